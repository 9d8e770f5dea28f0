//! Programs that Go builds into `.tools`, the project's own folder.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xdptun_lab::command::run;
use xdptun_lab::workspace;

use super::Part;
use crate::shell::{find, run_visible};

/// The module of nfpm, and its version: the newest all of whose parts the module proxy has.
const NFPM: [&str; 2] = ["github.com/goreleaser/nfpm/v2", "v2.45.2"];

/// Its program tells the version that it was linked with.
pub(super) fn nfpm_part() -> Part {
    let [module, version] = NFPM;
    let answer = run(Command::new(nfpm_path()).arg("--version"));
    Part {
        name: format!("nfpm {version}, which makes packages"),
        present: answer.is_ok_and(|text| text.split_whitespace().any(|word| word == version)),
        install: Box::new(move || {
            let linked = format!("-ldflags=-s -w -X main.version={version}");
            let program = format!("{module}/cmd/nfpm@{version}");
            go_build(|go| {
                go.args(["install", "-trimpath", &linked, &program])
                    .env("GOBIN", nfpm_path().with_file_name(""))
            })
        }),
    }
}

fn nfpm_path() -> PathBuf {
    workspace::root().join(".tools/nfpm/bin/nfpm")
}

/// Where nfpm is, which [`super::ensure_nfpm`] builds.
pub fn nfpm() -> Result<PathBuf> {
    let path = nfpm_path();
    ensure!(
        path.is_file(),
        "{}: no such file; `cargo xtask setup` builds it",
        path.display()
    );
    Ok(path)
}

/// Runs Go as it is installed.
pub(super) fn go_build(configure: impl FnOnce(&mut Command) -> &mut Command) -> Result<()> {
    let go =
        find("go").context("there is no Go, which it is built with; install Go 1.25 or later")?;
    eprintln!("          building it takes up to three minutes");
    let mut command = Command::new(go);
    // Neither a C compiler nor another Go.
    command.envs([("CGO_ENABLED", "0"), ("GOTOOLCHAIN", "local")]);
    run_visible(configure(&mut command)).context("Go cannot build it")
}
