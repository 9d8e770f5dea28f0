//! Run time and runs of loaded programs, as the kernel counts them
//! (`BPF_ENABLE_STATS`, kernel 5.8).

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use aya::Ebpf;
use aya::programs::{ProgramInfo, loaded_programs};
use aya::sys::{Stats, enable_stats};
use nix::unistd::Pid;

use super::fdinfo::{descriptors, value};

/// Lets the kernel count, until dropped. It takes two readings of the clock for
/// each run, which count as part of the run.
#[derive(Debug)]
pub struct Counting {
    _kept: OwnedFd,
}

impl Counting {
    /// Switches it on.
    pub fn start() -> Result<Self> {
        let kept = enable_stats(Stats::RunTime).context("the kernel counts no run times")?;
        Ok(Self { _kept: kept })
    }
}

/// The time that runs of a program took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// All of them together, in nanoseconds.
    pub ns: u64,
    /// How many.
    pub runs: u64,
}

impl Spent {
    /// Nanoseconds of one run; an error if there was none.
    pub fn each(self) -> Result<f64> {
        ensure!(self.runs > 0, "the program did not run");
        Ok(self.ns as f64 / self.runs as f64)
    }

    /// Since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self {
            ns: self.ns - earlier.ns,
            runs: self.runs - earlier.runs,
        }
    }
}

/// The programs that a process has loaded, by name.
#[derive(Debug, Clone)]
pub struct Programs(BTreeMap<String, Spent>);

impl Programs {
    /// Reads the programs of a process.
    pub fn of_process(process: Pid) -> Result<Self> {
        let mut found = BTreeMap::new();
        for (info, text) in loaded_by(process)? {
            let name = info.name_as_str().context("a program without a name")?;
            found.insert(name.to_owned(), spent(&text)?);
        }
        Ok(Self(found))
    }

    /// Reads the loaded programs of an object.
    pub fn of_object(object: &Ebpf) -> Result<Self> {
        let loaded = object
            .programs()
            .filter_map(|(name, program)| Some((name, program.fd().ok()?)));
        let spent = loaded.map(|(name, program)| Ok((name.to_owned(), of_descriptor(program)?)));
        Ok(Self(spent.collect::<Result<_>>()?))
    }

    /// The kernel's information about the programs of a process.
    pub fn infos(process: Pid) -> Result<Vec<ProgramInfo>> {
        let loaded = loaded_by(process)?;
        Ok(loaded.into_iter().map(|(info, _)| info).collect())
    }

    /// The program of a process whose name has this prefix.
    pub fn named(process: Pid, prefix: &str) -> Result<ProgramInfo> {
        let mut infos = Self::infos(process)?.into_iter();
        let starts = |info: &ProgramInfo| {
            info.name_as_str()
                .is_some_and(|name| name.starts_with(prefix))
        };
        let found = infos.find(starts);
        found.with_context(|| format!("no program {prefix} is loaded"))
    }

    /// The time that the program with this prefix has spent since an earlier reading.
    pub fn since(&self, earlier: &Self, prefix: &str) -> Result<Spent> {
        let named = |programs: &Self| {
            let mut names = programs.0.iter();
            let found = names.find(|(name, _)| name.starts_with(prefix));
            let found = found.map(|(_, spent)| *spent);
            found.with_context(|| format!("no program {prefix} is loaded"))
        };
        Ok(named(self)?.since(named(earlier)?))
    }
}

/// The programs that a process has open, with the lines about each.
fn loaded_by(process: Pid) -> Result<Vec<(ProgramInfo, String)>> {
    let mut texts: BTreeMap<u64, String> = BTreeMap::new();
    for text in descriptors(process)? {
        if let Some(id) = value(&text, "prog_id") {
            texts.insert(id, text);
        }
    }
    // One of another process may be unloaded meanwhile.
    let all = loaded_programs().filter_map(Result::ok);
    let found: Vec<_> = all
        .filter_map(|info| Some((texts.remove(&info.id().into())?, info)))
        .map(|(text, info)| (info, text))
        .collect();
    ensure!(!found.is_empty(), "process {process} has no program loaded");
    Ok(found)
}

/// The time that one program of this process has spent so far.
pub fn of_descriptor(program: impl AsFd) -> Result<Spent> {
    let path = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
    spent(&fs::read_to_string(&path).context(path)?)
}

/// The number that the kernel gave a program of this process.
pub fn id(program: impl AsFd) -> Result<u32> {
    let path = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let id = value(&text, "prog_id").with_context(|| format!("{path} is no program's"))?;
    Ok(u32::try_from(id)?)
}

fn spent(fdinfo: &str) -> Result<Spent> {
    let value = |name| value(fdinfo, name).with_context(|| format!("the kernel tells no {name}"));
    Ok(Spent {
        ns: value("run_time_ns")?,
        runs: value("run_cnt")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_tells() {
        let text = "pos:\t0\nprog_type:\t3\nprog_id:\t17\nrun_time_ns:\t900\nrun_cnt:\t3\n";
        assert_eq!(value(text, "prog_id"), Some(17));
        let spent = spent(text).unwrap();
        assert_eq!(spent, Spent { ns: 900, runs: 3 });
        assert!((spent.each().unwrap() - 300.0).abs() < f64::EPSILON);
        assert!(Spent::default().each().is_err());
    }
}
