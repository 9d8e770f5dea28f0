//! The `xdptun` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    xdptun::cli::main()
}
