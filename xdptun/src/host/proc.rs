//! Lists of the kernel in `/proc`.

use std::fs::File;
use std::io::{self, Read as _};

/// As much as one read gets of such a list, and more.
const AT_ONCE: usize = 1 << 16;

/// Reads a list. The kernel fills the buffer of one read, as far as a page, without a change in
/// between. What comes or goes between two reads can hide another line, so there is no short read
/// first, as of [`std::fs::read_to_string`].
///
/// # Errors
///
/// If it cannot be read.
pub fn read_list(path: &str) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut text, mut buffer) = (Vec::new(), vec![0; AT_ONCE]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            length => text.extend_from_slice(&buffer[..length]),
        }
    }
}
