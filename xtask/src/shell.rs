//! Running programs whose output the user watches.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use xdptun_lab::cleanup::{Guard, guarded};
use xdptun_lab::command::line_of;
use xdptun_lab::{wait, workspace};

/// Where Debian keeps administrators' programs, outside a user's `PATH`.
const ADMIN_DIRS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// How long an interrupted child may take to clean up after itself.
const CLEANUP_LIMIT: Duration = Duration::from_secs(60);

/// Runs a program to its end with its output on standard error.
///
/// Standard output is left to results: `demo --json` prints nothing else there.
pub fn run_visible(command: &mut Command) -> Result<()> {
    let line = line_of(command);
    command.stdout(std::io::stderr());
    let status = Supervised::spawn(command)?.wait()?;
    ensure!(status.success(), "`{line}`: {status}");
    Ok(())
}

/// Cargo in the workspace, finding the project's own tools first.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let tools = workspace::root().join(".tools/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(tools).chain(std::env::split_paths(&path));
    if let Ok(path) = std::env::join_paths(path) {
        command.env("PATH", path);
    }
    command.current_dir(workspace::root()).stdin(Stdio::null());
    command
}

/// Whether this process is root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Variables of the user's environment that a program keeps when it runs as root.
const KEPT_BY_SUDO: &str = "XDPTUN_BIN,XDPTUN_ROW,XDPTUN_TIME_FACTOR,CARGO_TARGET_DIR,\
     RUST_BACKTRACE,PROPTEST_CASES,DEBIAN_FRONTEND";

/// A program run as root: directly, or through `sudo`. It finds administrators'
/// programs.
pub fn as_root(program: impl AsRef<Path>) -> Result<Command> {
    let program = program.as_ref();
    let mut command = if is_root() {
        Command::new(program)
    } else {
        ensure!(
            find("sudo").is_some(),
            "{} must run as root and there is no sudo: start this command as root",
            program.display()
        );
        let mut sudo = Command::new("sudo");
        sudo.arg(format!("--preserve-env={KEPT_BY_SUDO}"))
            .arg(program);
        sudo
    };
    command.env("PATH", path_with_admin_dirs());
    Ok(command)
}

/// Replaces this process by a program. Returns only if the program does not start.
pub fn exec(command: &mut Command) -> Result<()> {
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start `{}`", line_of(command)))
}

/// Finds a program in `PATH` and where administrators' programs are.
pub fn find(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&path_with_admin_dirs())
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// `PATH` with the administrators' directories at its end.
pub fn path_with_admin_dirs() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(ADMIN_DIRS.map(PathBuf::from));
    std::env::join_paths(directories).unwrap_or(path)
}

/// A child that is asked to end, and given time to clean up, when a signal ends
/// this process or the owner fails.
pub struct Supervised {
    child: Child,
    line: String,
    _guard: Guard,
}

impl Supervised {
    /// Starts a command as it is configured.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let line = line_of(command);
        let (child, guard) = guarded(|| {
            let child = command
                .spawn()
                .with_context(|| format!("cannot start `{line}`"))?;
            let (pid, line) = (pid_of(&child), line.clone());
            Ok((child, move || end(pid, &line)))
        })?;
        Ok(Self {
            child,
            line,
            _guard: guard,
        })
    }

    /// The child, to take its output.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Asks it to end now, and waits for that.
    pub fn end(&self) {
        end(pid_of(&self.child), &self.line);
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Result<ExitStatus> {
        self.child.wait().context("cannot wait for a child")
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}

/// Ends a child; one that has been waited for is left alone.
fn end(pid: Pid, line: &str) {
    if has_ended(pid) {
        return;
    }
    if let Err(error) = kill(pid, Signal::SIGTERM) {
        // A terminal's Ctrl-C reaches a program behind sudo without our help.
        eprintln!("cannot end `{line}` (process {pid}): {error}; waiting for it");
    }
    if let Err(error) = wait::until(CLEANUP_LIMIT, line, || has_ended(pid)) {
        eprintln!("process {pid} is still running: {error}");
    }
}

/// Looks without reaping, which is up to the owner. An error means that there is no
/// such child any more.
fn has_ended(pid: Pid) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_named_with_its_status() {
        let error = run_visible(Command::new("sh").args(["-c", "exit 4"])).unwrap_err();
        assert_eq!(error.to_string(), "`sh -c exit 4`: exit status: 4");
    }

    #[test]
    fn a_dropped_child_is_ended() {
        let mut sleeper = Supervised::spawn(Command::new("sleep").arg("600")).unwrap();
        let pid = pid_of(sleeper.child());
        assert!(!has_ended(pid));
        drop(sleeper);
        assert!(has_ended(pid));
    }

    #[test]
    fn finds_programs_outside_a_users_path() {
        assert!(find("sh").is_some());
        assert!(find("no-such-program").is_none());
        let path = path_with_admin_dirs().into_string().unwrap();
        assert!(path.ends_with("/usr/local/sbin:/usr/sbin:/sbin"), "{path}");
    }
}
