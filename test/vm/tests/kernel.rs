//! A feature that the kernel lacks is refused by name, and nothing is left behind.

use nix::sys::utsname::uname;
use xdptun_lab::{Attached, Direct, Host};
use xdptun_test_net::cli::run;
use xdptun_test_net::kernel;
use xdptun_test_net::traces::Traces;

/// `5.15` and later are supported.
fn is_supported() -> bool {
    let release = uname().unwrap().release().to_str().unwrap().to_owned();
    let mut numbers = release
        .split('.')
        .map(|part| part.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(5), Some(15))
}

#[test]
fn tcx_is_used_or_refused() {
    let net = Direct::new().unwrap();
    let before = Traces::of(&net.a).unwrap();
    let args = ["--port", "8000", "--ingress", "tc", "--tc", "tcx"];
    if is_supported() && kernel::has_tcx() {
        let attached = Attached::start(&net.a.netns, Host::DEV, &args).unwrap();
        let summary = attached.summary().join("\n");
        assert!(summary.contains("(TCX)"), "{summary}");
        attached.stop().unwrap();
    } else {
        let attach = ["attach", "--iface", Host::DEV].iter().chain(&args);
        let refused = run(&net.a.netns, &attach.copied().collect::<Vec<_>>()).unwrap();
        let words = if is_supported() {
            ["TCX", "6.6"]
        } else {
            ["is too old", "5.15"]
        };
        refused.assert_one_line(&words);
    }
    assert_eq!(Traces::of(&net.a).unwrap(), before);
}
