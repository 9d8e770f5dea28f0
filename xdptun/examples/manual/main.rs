//! Writes the man pages and the completions of bash, zsh and fish into a folder,
//! for packages. Not a part of the program, which would carry them for nothing.

mod configuration;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use clap::Command;
use clap_mangen::Man;
use xdptun::cli::completions::{self, Shell};

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
    for (shell, name) in [
        (Shell::Bash, "xdptun.bash"),
        (Shell::Zsh, "_xdptun"),
        (Shell::Fish, "xdptun.fish"),
    ] {
        completions::write(shell, &mut fs::File::create(folder.join(name))?)?;
    }
    fs::write(folder.join("xdptun.toml.5"), configuration::page())?;
    let mut command = xdptun::cli::command().disable_help_subcommand(true);
    command.build();
    write_pages(&command, folder)
}

/// The section of commands for the administrator.
const SECTION: &str = "8";

/// Writes the page of a command, and those of its verbs.
fn write_pages(command: &Command, folder: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        write_pages(verb, folder)?;
    }
    let page = Man::new(command.clone()).section(SECTION);
    let mut text = Vec::new();
    page.render_title(&mut text)?;
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut text)?;
    }
    if let Some(more) = command.get_after_help() {
        text.extend(as_it_is(&more.to_string()).into_bytes());
    }
    if command.has_subcommands() {
        text.extend(b".SH SEE ALSO\nxdptun.toml(5)\n");
    }
    if command.get_version().is_some() {
        page.render_version_section(&mut text)?;
    }
    fs::write(folder.join(page.get_filename()), text)
}

/// What follows the help: headings, which end in a colon, and lines that are not to be filled.
fn as_it_is(text: &str) -> String {
    let mut page = String::new();
    let mut is_open = false;
    for line in text.lines() {
        if let Some(heading) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            let end = if is_open { ".fi\n" } else { "" };
            page.push_str(&format!("{end}.SH {}\n.nf\n", heading.to_uppercase()));
            is_open = true;
            continue;
        }
        // A line that begins with one of these would be a request to roff.
        if line.starts_with(['.', '\'']) {
            page.push_str("\\&");
        }
        page.push_str(&escape(line));
        page.push('\n');
    }
    if is_open {
        page.push_str(".fi\n");
    }
    page
}

/// A text as roff prints it.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            other => escaped.push(other),
        }
    }
    escaped
}
