//! Writes the man pages and the completions of bash, zsh and fish into a folder,
//! for packages. Not a part of the program, which would carry them for nothing.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use clap_complete::Shell;

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("the folder to write to is missing");
        return ExitCode::FAILURE;
    };
    match write(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}: {error}", folder.display());
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        let mut command = xdptun::cli::command();
        clap_complete::generate_to(shell, &mut command, "xdptun", folder)?;
    }
    clap_mangen::generate_to(xdptun::cli::command(), folder)
}
