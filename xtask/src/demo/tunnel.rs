//! WireGuard over xdptun.

use std::path::Path as FilePath;

use anyhow::{Context, Result, bail};
use xdptun_lab::content::Filling;
use xdptun_test_wg::web::Download;
use xdptun_test_wg::{Between, Implementation, Path, Scenario, TUNNEL_PORT};

use super::Args;
use super::report::{Report, Run};
use crate::progress::Progress;

/// The demonstration itself, as root.
pub fn show(args: &Args) -> Result<()> {
    eprintln!(
        "A client and a server have a WireGuard tunnel; between them stands a router that\n\
         translates addresses. The same file crosses it three times: twice while the router lets\n\
         UDP pass, and once, over xdptun, when it drops UDP and all TCP that belongs to no\n\
         connection it has seen begin.\n"
    );
    let report = demonstrate(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&report.summary())?);
    } else {
        print!("{report}");
    }
    let violations = report.violations();
    if !violations.is_empty() {
        bail!("not what was promised: {}", violations.join("; "));
    }
    Ok(())
}

fn demonstrate(args: &Args) -> Result<Report> {
    let progress = Progress::start();
    let demo = Demo {
        progress: &progress,
        bytes: u64::from(args.size_mib) << 20,
        scenario: {
            progress.say(&format!(
                "three namespaces, a file of {} MiB, {}",
                args.size_mib,
                Implementation::chosen()?
            ));
            Scenario::new(
                Between::StrictRouter,
                usize::try_from(args.size_mib)?,
                Filling::Pattern,
            )?
        },
    };
    let direct = demo.download(Path::Direct)?;

    demo.scenario.ping()?;
    let watch = demo.scenario.watch()?;
    let wireguard = demo.download(Path::WireGuard)?.with(watch.stop()?);

    progress.say("from now on the router drops all UDP");
    let router = demo.scenario.router()?;
    router.hold(&["meta l4proto udp"])?;
    let blocked = !demo.scenario.is_answered()?;
    progress.say(match blocked {
        true => "          three pings through WireGuard alone: no answer",
        false => "          a ping through WireGuard alone is answered",
    });

    progress.say(&format!(
        "xdptun attach --iface eth0 --port {TUNNEL_PORT}, on both hosts, under the running tunnel"
    ));
    let attached = demo.scenario.attach()?;
    let disguised = demo.disguised();
    let xdptun = attached
        .iter()
        .fold(disguised, |result, attached| attached.explain(result))?;
    let conntrack = router.conntrack("tcp", TUNNEL_PORT)?;
    let dropped = router.dropped()?;
    progress.say("SIGINT to both: xdptun detaches");
    for attached in attached {
        attached.stop()?;
    }
    Ok(Report {
        direct,
        wireguard,
        blocked,
        xdptun,
        conntrack,
        invalid: dropped.invalid,
    })
}

struct Demo<'a> {
    progress: &'a Progress,
    bytes: u64,
    scenario: Scenario,
}

impl Demo<'_> {
    /// The download under xdptun, and the handshake before it.
    fn disguised(&self) -> Result<Run> {
        let watch = self.scenario.watch()?;
        self.scenario.ping()?;
        Ok(self.download(Path::Xdptun)?.with(watch.stop()?))
    }

    fn download(&self, path: Path) -> Result<Run> {
        self.progress.say(&format!("download, {path}"));
        let bar = self.progress.download(self.bytes);
        let download = self.scenario.fetch(path, |bytes| bar.set_position(bytes));
        bar.finish_and_clear();
        let download = download.with_context(|| format!("download, {path}"))?;
        let run = Run {
            mib_s: download.mib_s,
            intact: self.verify(&download),
            wire: None,
        };
        self.progress.say(&format!("          {run}"));
        Ok(run)
    }

    fn verify(&self, download: &Download) -> bool {
        let verdict = self.scenario.verify(download);
        if let Err(error) = &verdict {
            self.progress.say(&format!("{error:#}"));
        }
        remove(&download.path);
        verdict.is_ok()
    }
}

/// Frees the room of a download early; the directory goes at the end anyway.
fn remove(path: &FilePath) {
    if let Err(error) = std::fs::remove_file(path) {
        eprintln!("{}: cannot remove: {error}", path.display());
    }
}
