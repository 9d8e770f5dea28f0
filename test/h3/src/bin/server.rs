//! `server`: serves the files of a folder over HTTP/3.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};
use xdptun_test_h3::cli;
use xdptun_test_h3::server::Server;

/// Serves the files of a folder over HTTP/3
#[derive(Debug, Parser)]
struct Args {
    /// The certificate, and those between it and its root, in PEM
    #[arg(short, long, value_name = "FILE")]
    certificate: PathBuf,
    /// The certificate's private key in PEM
    #[arg(short = 'k', long, value_name = "FILE")]
    private_key: PathBuf,
    /// The folder; nothing outside of it is served
    #[arg(short, long, value_name = "DIR")]
    directory: PathBuf,
    /// The UDP address and port
    #[arg(long, value_name = "ADDR", default_value = "[::]:8000")]
    listen: SocketAddr,
    /// Hand the kernel one datagram at a time
    #[arg(long)]
    no_gso: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    cli::end(run(Args::parse()).await)
}

async fn run(args: Args) -> Result<()> {
    cli::start_log();
    let server = Server::bind(
        args.listen,
        &args.certificate,
        &args.private_key,
        &args.directory,
        !args.no_gso,
    )?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    println!(
        "serving {} on UDP {}; Ctrl-C ends it",
        args.directory.display(),
        server.address()?
    );
    tokio::select! {
        () = server.run() => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    server.close().await;
    Ok(())
}
