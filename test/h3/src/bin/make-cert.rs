//! `make-cert`: a self-signed certificate for the server.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use xdptun_test_h3::cli;

/// Writes test.crt and test.key, a fresh certificate and its private key
#[derive(Debug, Parser)]
struct Args {
    /// Names and addresses of the server, for clients that look at them
    #[arg(default_values = ["localhost", "127.0.0.1", "::1"], value_name = "NAME")]
    names: Vec<String>,
    /// Where to write; made if absent
    #[arg(long, value_name = "DIR", default_value = "../tls")]
    directory: PathBuf,
}

fn main() -> ExitCode {
    cli::end(run(Args::parse()))
}

fn run(args: Args) -> Result<()> {
    let names = args.names.join(", ");
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(args.names)
        .with_context(|| format!("{names}: not all of these can be in a certificate"))?;
    let directory = &args.directory;
    fs::create_dir_all(directory)
        .with_context(|| format!("{}: cannot make the folder", directory.display()))?;
    let (certificate, key) = (directory.join("test.crt"), directory.join("test.key"));
    write(&key, 0o600, &signing_key.serialize_pem())?;
    write(&certificate, 0o644, &cert.pem())?;
    println!("{}\n{}", certificate.display(), key.display());
    Ok(())
}

/// Replaces a file by one that has this mode from the start.
fn write(path: &Path, mode: u32, content: &str) -> Result<()> {
    let write = || {
        if path.exists() {
            fs::remove_file(path)?;
        }
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
        file.write_all(content.as_bytes())
    };
    write().with_context(|| format!("{}: cannot write", path.display()))
}
