//! Short-lived helper programs (`ip`, `nft`, `ethtool`, ...).

use std::io::Write;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// Runs a command to its end and returns its standard output.
///
/// The error holds the whole command line and what the program said.
pub fn run(command: &mut Command) -> Result<String> {
    run_with_input(command, "")
}

/// Like [`run`], with `input` on standard input.
pub fn run_with_input(command: &mut Command, input: &str) -> Result<String> {
    let line = line_of(command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| {
            format!("cannot start `{line}`; `cargo xtask setup` installs what is missing")
        })?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin
            .write_all(input.as_bytes())
            .with_context(|| format!("`{line}` closed its input"))?;
    }
    let output = child
        .wait_with_output()
        .with_context(|| format!("cannot wait for `{line}`"))?;
    finish(&line, &output)
}

/// The command as a person would type it, for messages.
pub fn line_of(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

fn finish(line: &str, output: &Output) -> Result<String> {
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}`: {}\n{stderr}{stdout}", output.status);
    }
    Ok(stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_over_input_and_returns_output() {
        let output = run_with_input(&mut Command::new("cat"), "one\ntwo\n").unwrap();
        assert_eq!(output, "one\ntwo\n");
    }

    #[test]
    fn an_error_shows_the_command_and_its_words() {
        let error = run(Command::new("sh").args(["-c", "echo broken >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("sh -c"), "{text}");
        assert!(text.contains("broken"), "{text}");
        assert!(text.contains("exit status: 3"), "{text}");
    }
}
