//! How large the programs are, and how much work they are to the verifier: a
//! figure that does not depend on the machine's mood, so that CI can guard it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result, bail};
use aya::programs::ProgramInfo;
use serde::{Deserialize, Serialize};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Attached, Direct, Family, Host, secret, workspace};

use crate::kernel::Programs;
use crate::route::PORT;

/// Where the baseline is kept.
const BASELINE: &str = "bench/results/programs.json";

/// How many percent a figure may be above the baseline.
const TOLERANCE: u64 = 5;
/// The same of machine code, which depends on what the processor can do and on
/// which of its faults the kernel works around.
const MACHINE_TOLERANCE: u64 = 25;

/// The command that writes the baseline.
const SAVE: &str = "cargo xtask bench programs --save-baseline";

/// A program in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Bytes of its instructions after verification.
    xlated_bytes: u32,
    /// Bytes of machine code made of them.
    jited_bytes: u32,
    /// Instructions that the verifier walked.
    verified_instructions: u32,
}

/// The sizes of all programs in one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The kernel, without its patch level: another one verifies otherwise.
    kernel: String,
    /// The processor's architecture.
    architecture: String,
    /// By the name that the kernel shows, and how it was loaded.
    programs: BTreeMap<String, Size>,
}

impl Sizes {
    /// Loads all programs, as root.
    pub fn measure() -> Result<Self> {
        let net = Direct::new()?;
        let port = PORT.to_string();
        let scratch = Scratch::new()?;
        let secret = secret::write(scratch.path(), "secret", "correct horse battery")?;
        let mut programs = BTreeMap::new();
        let mut note_all = |attached: &Attached, note: &str| {
            for info in Programs::infos(attached.process().pid())? {
                let name = info.name_as_str().context("a program without a name")?;
                programs.insert(format!("{name}{note}"), Size::of(&info)?);
            }
            anyhow::Ok(())
        };
        // Each mode has an XDP program of its own; the code that keeps
        // callers without the secret out is in all of them, and that of the veil, but the verifier
        // walks it only if there is a secret, or a veil.
        for (host, options, note) in [
            (&net.a, &["--ingress", "xdp"][..], ""),
            (&net.b, &["--ingress", "xdp-generic"], ""),
            (&net.a, &["--secret", &secret], " with a secret"),
            (
                &net.b,
                &["--ingress", "xdp", "--secret", &secret, "--veil"],
                " with a veil",
            ),
        ] {
            let options = [&["--port", &port], options].concat();
            let attached = Attached::start(&host.netns, Host::DEV, &options)?;
            note_all(&attached, note)?;
        }
        // The same programs forward and translate.
        let to = net.b.socket(Family::V4, PORT).to_string();
        let rule = ["--listen", &port, "--to", &to];
        note_all(&Attached::forward(&net.a.netns, Host::DEV, &rule)?, "")?;
        let rule = ["--direction", "in", "--contains", "STEPH"];
        let rule = [&rule[..], &["--action", "drop"]].concat();
        note_all(&Attached::policy(&net.a.netns, Host::DEV, &rule)?, "")?;
        let clients = ["--inside", "fd00:6::/64"];
        note_all(&Attached::nat64(&net.a.netns, &clients)?, "")?;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Ok(Self {
            kernel: release.split('.').take(2).collect::<Vec<_>>().join("."),
            architecture: std::env::consts::ARCH.to_owned(),
            programs,
        })
    }

    /// Makes them the baseline.
    pub fn save(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        fs::write(workspace::root().join(BASELINE), text)
            .with_context(|| format!("{BASELINE}: cannot write"))?;
        eprintln!("wrote {BASELINE}");
        Ok(())
    }

    /// Compares them with the baseline; an error names what has grown.
    pub fn check(&self) -> Result<()> {
        let text = fs::read_to_string(workspace::root().join(BASELINE))
            .with_context(|| format!("{BASELINE}: cannot read; `{SAVE}` makes it"))?;
        let baseline: Self = serde_json::from_str(&text).context(BASELINE)?;
        println!("{}", self.compare(&baseline)?);
        Ok(())
    }

    fn compare(&self, baseline: &Self) -> Result<String> {
        let place = |sizes: &Self| (sizes.kernel.clone(), sizes.architecture.clone());
        if place(self) != place(baseline) {
            return Ok(format!(
                "not compared: {BASELINE} is of Linux {} on {}, this is {} on {}",
                baseline.kernel, baseline.architecture, self.kernel, self.architecture
            ));
        }
        let names = |sizes: &Self| sizes.programs.keys().cloned().collect::<Vec<_>>();
        if names(self) != names(baseline) {
            bail!(
                "{BASELINE} has the programs {:?}, the kernel {:?}; `{SAVE}` writes it anew",
                names(baseline),
                names(self)
            );
        }
        let (mut grown, mut report) = (String::new(), String::new());
        for (name, size) in &self.programs {
            let before = &baseline.programs[name];
            let pairs = size.figures().into_iter().zip(before.figures());
            for ((what, now, tolerance), (_, before, _)) in pairs {
                let growth = f64::from(now) / f64::from(before) - 1.0;
                let line = format!("{name}: {now} {what}, {:+.1} %", growth * 100.0);
                if u64::from(now) * 100 > u64::from(before) * (100 + tolerance) {
                    writeln!(grown, "{line}, from {before}; allowed are {tolerance} %")?;
                }
                writeln!(report, "{line}")?;
            }
        }
        if !grown.is_empty() {
            bail!(
                "programs have grown:\n{grown}make them smaller, or accept it with `{SAVE}` and \
                 say why in the commit"
            );
        }
        Ok(report)
    }
}

impl Size {
    fn of(info: &ProgramInfo) -> Result<Self> {
        Ok(Self {
            xlated_bytes: info.size_translated().context("no translated size")?,
            jited_bytes: info.size_jitted(),
            verified_instructions: info
                .verified_instruction_count()
                .context("no count of verified instructions (kernel 5.16)")?,
        })
    }

    /// Each with how many percent it may grow.
    fn figures(self) -> [(&'static str, u32, u64); 3] {
        [
            ("bytes of instructions", self.xlated_bytes, TOLERANCE),
            ("bytes of machine code", self.jited_bytes, MACHINE_TOLERANCE),
            (
                "verified instructions",
                self.verified_instructions,
                TOLERANCE,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(verified_instructions: u32) -> Sizes {
        let size = Size {
            xlated_bytes: 800,
            jited_bytes: 500,
            verified_instructions,
        };
        Sizes {
            kernel: "6.18".into(),
            architecture: "x86_64".into(),
            programs: [("egress".to_owned(), size)].into(),
        }
    }

    #[test]
    fn growth_beyond_the_tolerance_is_an_error_that_tells_the_way_out() {
        let baseline = sizes(1000);
        assert!(sizes(1050).compare(&baseline).is_ok());
        assert!(sizes(10).compare(&baseline).is_ok());
        let error = sizes(1051).compare(&baseline).unwrap_err().to_string();
        assert!(error.contains("egress: 1051 verified instructions, +5.1 %, from 1000"));
        assert!(error.contains(SAVE), "{error}");
    }

    #[test]
    fn another_kernel_is_not_compared() {
        let other = Sizes {
            kernel: "6.12".into(),
            ..sizes(9999)
        };
        let text = other.compare(&sizes(1)).unwrap();
        assert!(text.starts_with("not compared"), "{text}");
    }

    #[test]
    fn a_program_more_is_an_error() {
        let mut more = sizes(1000);
        let size = more.programs["egress"];
        more.programs.insert("ingress".into(), size);
        assert!(more.compare(&sizes(1000)).is_err());
    }
}
