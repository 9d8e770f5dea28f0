//! Lists of the kernel in `/proc`.

use std::fs::File;
use std::io::{self, Read as _};

/// More than one read of such a list returns (a page).
const AT_ONCE: usize = 1 << 16;

/// Reads a list. The kernel fills the buffer of one read, as far as a page, without a change in
/// between. An entry that comes or goes between two reads can hide another one.
/// [`std::fs::read_to_string`] starts with a short read, so it is not used.
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
