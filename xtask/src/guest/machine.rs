//! One emulated machine that runs one job.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::wait;

use super::initramfs;
use super::job::Job;
use super::kernel::{Kernel, USER_MODE};
use crate::debian::Arch;
use crate::shell::Supervised;

/// From the start of the emulator to the start of the job: ten times what it
/// takes on two idle cores.
const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// How much of the kernel's last words an error shows.
const CONSOLE_TAIL: usize = 40;

const MEMORY_MIB: u32 = 2048;
const CORES: u32 = 2;

/// The parts of a guest.
#[derive(Debug, Clone)]
pub struct Hardware<'a> {
    /// Its processor.
    pub arch: Arch,
    /// The kernel that it boots.
    pub kernel: &'a Kernel,
    /// A static shell for the way up.
    pub busybox: &'a Path,
    /// Programs of its architecture, if it cannot run the host's.
    pub programs: Option<&'a Path>,
    /// Further arguments of the emulator.
    pub devices: &'a [OsString],
}

/// How a job ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Exit status, as a shell reports it.
    pub status: u8,
    /// From the start of the emulator to the start of the job.
    pub boot: Duration,
}

/// A guest that is on its way up or runs its job; it ends when dropped.
pub struct Guest {
    kernel: String,
    started: Instant,
    emulator: Supervised,
    /// Shared with the guest; holds the job, and the files that the job leaves.
    share: Scratch,
    console: PathBuf,
    _initramfs: Scratch,
}

impl Guest {
    /// Starts the emulator.
    pub fn start(hardware: &Hardware<'_>, job: &Job) -> Result<Self> {
        let (share, files) = (Scratch::new()?, Scratch::new()?);
        job.write(share.path(), hardware.arch, hardware.kernel)?;
        let initramfs = files.path().join("initramfs");
        initramfs::write(hardware.kernel, hardware.busybox, &initramfs)?;
        let console = files.path().join("console");
        let mut command = hardware.command(&initramfs, &console, share.path())?;
        if job.terminal {
            command.stdin(Stdio::inherit()).stdout(Stdio::inherit());
        } else {
            command.stdin(Stdio::null()).stdout(Stdio::piped());
        }
        Ok(Self {
            kernel: hardware.kernel.release.clone(),
            started: Instant::now(),
            emulator: Supervised::spawn(&mut command)?,
            share,
            console,
            _initramfs: files,
        })
    }

    /// The release of its kernel.
    pub fn release(&self) -> &str {
        &self.kernel
    }

    /// Reads a file that the job left in the shared folder.
    pub fn read(&self, name: &str) -> Result<String> {
        let path = self.share.path().join(name);
        fs::read_to_string(path).with_context(|| format!("the guest left no {name}"))
    }

    /// Hands every line of the job's output to `show`, to its end.
    ///
    /// A guest that does not get that far within `limit` is ended.
    pub fn run(&mut self, limit: Duration, show: impl Fn(&str) + Send + 'static) -> Result<Ended> {
        let output = self.emulator.child().stdout.take();
        let reader = output.map(|output| {
            thread::spawn(move || -> Result<()> {
                for line in BufReader::new(output).split(b'\n') {
                    show(String::from_utf8_lossy(&line?).trim_end());
                }
                Ok(())
            })
        });
        let ended = self.watch(limit);
        if ended.is_err() {
            // Closes the output, which the reader waits for.
            self.emulator.end();
        }
        if let Some(reader) = reader {
            let read = reader.join().map_err(|_| anyhow!("the reader panicked"))?;
            read.context("the output of the guest")?;
        }
        ended.map_err(|error| self.with_console(&error))
    }

    fn watch(&mut self, limit: Duration) -> Result<Ended> {
        let [ready, status] = ["ready", "status"].map(|name| self.share.path().join(name));
        let what = "the guest to start its job";
        wait::until_some(BOOT_LIMIT.min(limit), what, || {
            ensure!(
                self.exited()?.is_none() || ready.exists(),
                "it ended while starting"
            );
            Ok(ready.exists().then_some(()))
        })?;
        let boot = self.started.elapsed();
        let left = limit.saturating_sub(boot);
        wait::until_some(left, "the job in the guest to end", || self.exited())?;
        let status = fs::read_to_string(status)
            .map_err(|_| anyhow!("the guest ended before its job did"))?;
        let status = status.trim().parse().context("the status of the job")?;
        Ok(Ended { status, boot })
    }

    fn exited(&mut self) -> Result<Option<ExitStatus>> {
        let status = self.emulator.child().try_wait();
        status.context("cannot wait for the emulator")
    }

    /// Adds the kernel's last words to an error.
    fn with_console(&self, error: &anyhow::Error) -> anyhow::Error {
        let console = fs::read(&self.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console);
        let lines: Vec<&str> = console.lines().collect();
        let mut text = format!("guest with Linux {}: {error:#}\nits console:", self.kernel);
        for line in &lines[lines.len().saturating_sub(CONSOLE_TAIL)..] {
            text += "\n    | ";
            text += line.trim_end();
        }
        anyhow!(text)
    }
}

impl Hardware<'_> {
    fn command(&self, initramfs: &Path, console: &Path, share: &Path) -> Result<Command> {
        if self.kernel.is_user_mode {
            return self.user_mode(initramfs, console, share);
        }
        let mut command = Command::new(self.arch.emulator());
        command.args([
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
            "-display",
            "none",
        ]);
        command.args(self.arch.machine());
        command.args(["-accel", "tcg,thread=multi"]);
        command.args(["-smp", &CORES.to_string(), "-m", &MEMORY_MIB.to_string()]);
        command.arg("-kernel").arg(self.kernel.image());
        command.arg("-initrd").arg(initramfs);
        let serial = self.arch.serial();
        // A parameter that the kernel does not know becomes a variable of `initramfs.sh`.
        let programs = self.programs.map_or("", |_| " programs=own");
        // A panic restarts at once, which `-no-reboot` turns into an end.
        let line = format!("console={serial} panic=-1 loglevel=5{programs}");
        command.args(["-append", &line]);
        command.arg("-serial").arg(option("file:", console));
        let mut shares = vec![("root", Path::new("/"), "on"), ("job", share, "off")];
        shares.extend(self.programs.map(|path| ("programs", path, "on")));
        for (tag, path, access) in shares {
            let share = format!(
                "local,id={tag},security_model=none,multidevs=remap,readonly={access},path="
            );
            command.arg("-fsdev").arg(option(&share, path));
            command.args([
                "-device",
                &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
            ]);
        }
        // Ctrl-C belongs to the guest's shell, or to us; never to the emulator.
        command.args(["-chardev", "stdio,id=job,signal=off"]);
        command.args([
            "-device",
            "virtio-serial-pci",
            "-device",
            "virtconsole,chardev=job",
        ]);
        command.args(self.devices);
        Ok(command)
    }

    /// User-Mode Linux, which is its own emulator. Parameters that it does not know become variables
    /// of `initramfs.sh` and `guest.sh`.
    fn user_mode(&self, initramfs: &Path, console: &Path, share: &Path) -> Result<Command> {
        ensure!(
            self.devices.is_empty(),
            "{USER_MODE} has no emulated devices: choose another --kernel"
        );
        let mut command = Command::new(self.kernel.image());
        command.arg(format!("mem={MEMORY_MIB}M"));
        command.arg(joined("initrd=", initramfs));
        command.arg(joined("share=", share));
        // Its own files.
        command.arg(joined(
            "uml_dir=",
            initramfs.with_file_name("uml").as_path(),
        ));
        command.args(["con=null", "con0=null,fd:2", "ssl=null", "ssl0=fd:0,fd:1"]);
        command.args(["terminal=ttyS0", "console=tty0", "panic=-1", "loglevel=5"]);
        let console = File::create(console)
            .with_context(|| format!("{}: cannot write", console.display()))?;
        command.stderr(console);
        Ok(command)
    }
}

/// A parameter whose value is a path.
fn joined(name: &str, path: &Path) -> OsString {
    let mut parameter = OsString::from(name);
    parameter.push(path);
    parameter
}

/// An option of the emulator that ends with a path, in which a comma is written twice.
pub fn option(name: &str, path: &Path) -> String {
    format!("{name}{}", path.display().to_string().replace(',', ",,"))
}
