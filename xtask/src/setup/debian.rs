//! The Debian system that packages are tried on.

use super::Part;
use crate::debian::system;

pub(super) fn parts() -> Vec<Part> {
    vec![Part {
        name: format!("a Debian system ({}) to try packages on", system::RELEASE),
        present: system::folder().is_dir(),
        install: Box::new(system::make),
    }]
}
