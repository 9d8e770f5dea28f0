//! `xdptun completions`: the script by which a shell completes the command line.
//!
//! The script asks xdptun itself, so it knows the interfaces and counters of the day. clap does the
//! rest.

use std::io;

use anyhow::Result;
use clap::{Arg, Args, Command, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::Shells;
use nix::net::if_::if_nameindex;

use super::explain::all_counters;

/// Print the script by which a shell completes `xdptun`.
///
/// Packages install it already.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  xdptun completions bash | sudo tee /etc/bash_completion.d/xdptun
  xdptun completions zsh | sudo tee /usr/share/zsh/site-functions/_xdptun
  xdptun completions fish | source";

/// The shells that there is a script for.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    /// bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
}

/// The variable by which a script asks.
const VARIABLE: &str = "COMPLETE";

/// Runs the verb.
pub fn run(arguments: &Arguments) -> Result<()> {
    Ok(write(arguments.shell, &mut io::stdout().lock())?)
}

/// Writes the script of a shell.
///
/// # Errors
///
/// If it cannot be written.
pub fn write(shell: Shell, out: &mut impl io::Write) -> io::Result<()> {
    let name = match shell {
        Shell::Bash => "bash",
        Shell::Zsh => "zsh",
        Shell::Fish => "fish",
    };
    let shells = Shells::builtins();
    let completer = shells.completer(name).ok_or(io::ErrorKind::Unsupported)?;
    completer.write_registration(VARIABLE, "xdptun", "xdptun", "xdptun", out)
}

/// Ends this process with an answer if a script asks.
pub fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// The command line with what its arguments may be.
pub fn with_candidates(command: Command) -> Command {
    let command = command.mut_args(with_candidates_of);
    command.mut_subcommands(|verb| verb.mut_args(with_candidates_of))
}

fn with_candidates_of(argument: Arg) -> Arg {
    match argument.get_id().as_str() {
        "iface" => argument.add(ArgValueCandidates::new(interfaces)),
        "counter" => argument.add(ArgValueCandidates::new(counters)),
        _ => argument,
    }
}

fn interfaces() -> Vec<CompletionCandidate> {
    // Without them there is nothing to complete.
    let all = if_nameindex().ok();
    let names = all.iter().flat_map(|all| all.iter());
    let names = names.filter_map(|one| one.name().to_str().ok());
    names.map(CompletionCandidate::new).collect()
}

fn counters() -> Vec<CompletionCandidate> {
    let described = |counter: crate::group::counter::Counter| {
        CompletionCandidate::new(counter.name).help(Some(counter.meaning.into()))
    };
    all_counters().map(described).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;

    use clap_complete::engine::complete;

    use super::super::command;
    use super::*;

    /// What is offered for the last word of a line.
    fn offered(line: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = line.iter().map(OsString::from).collect();
        let last = words.len() - 1;
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let found = complete(&mut command(), words, last, Some(folder)).unwrap();
        let values = found.iter().map(CompletionCandidate::get_value);
        values
            .map(|value| value.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn what_is_there_is_offered() {
        assert_eq!(offered(&["xdptun", "expl"]), ["explain"]);
        for verb in ["attach", "doctor", "capture"] {
            let interfaces = offered(&["xdptun", verb, "--iface", "l"]);
            assert!(
                interfaces.contains(&"lo".to_owned()),
                "{verb}: {interfaces:?}"
            );
        }
        let counters = offered(&["xdptun", "explain", "rx_drop_ch"]);
        assert_eq!(counters, ["rx_drop_checksum", "rx_drop_chain"]);
        let files = offered(&["xdptun", "check", "--config", "Cargo.to"]);
        assert_eq!(files, ["Cargo.toml"]);
    }
}
