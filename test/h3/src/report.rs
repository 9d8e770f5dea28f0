//! What the client says about its downloads, to a person and to a program.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One run of the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The downloads in the order of the command line.
    pub downloads: Vec<Download>,
    /// From before the connection was opened to the last byte.
    pub seconds: f64,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Download {
    /// Where it came from.
    pub url: String,
    /// Length of its content.
    pub bytes: u64,
    /// SHA-256 of its content in hexadecimal.
    pub sha256: String,
}

impl Report {
    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.downloads.iter().map(|download| download.bytes).sum()
    }

    /// Average speed in bytes per second, the handshake included.
    pub fn speed(&self) -> f64 {
        self.bytes() as f64 / self.seconds
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for download in &self.downloads {
            let Download { url, bytes, sha256 } = download;
            writeln!(f, "{url}: {bytes} bytes, SHA-256 {sha256}")?;
        }
        write!(
            f,
            "{} bytes in {:.3} s: {:.2} MB/s, {:.2} MiB/s",
            self.bytes(),
            self.seconds,
            self.speed() / 1e6,
            self.speed() / f64::from(1 << 20)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_both_units_of_speed() {
        let download = |bytes| Download {
            url: "https://h/f".to_owned(),
            bytes,
            sha256: "00".to_owned(),
        };
        let report = Report {
            downloads: vec![download(3 << 20), download(1 << 20)],
            seconds: 2.0,
        };
        assert_eq!(
            report.to_string(),
            "https://h/f: 3145728 bytes, SHA-256 00\n\
             https://h/f: 1048576 bytes, SHA-256 00\n\
             4194304 bytes in 2.000 s: 2.10 MB/s, 2.00 MiB/s"
        );
    }
}
