//! xdptun at one end and phantun at the other, with wireguard-go inside: `--compat phantun`.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use xdptun_lab::extent::Extent;
use xdptun_test_real::compare::{Comparison, Speeds};
use xdptun_test_real::mixed::{Ends, run};

#[test]
fn either_end_may_be_phantun() {
    for ends in [Ends::PhantunCalls, Ends::XdptunCalls] {
        let running = run(ends).unwrap();
        let use_it = running
            .tunnel
            .ping()
            .and_then(|()| running.tunnel.exchange());
        use_it.with_context(|| ends.to_string()).unwrap();
        let dropped = running.path.net.router.dropped().unwrap();
        assert_eq!(dropped.invalid, 0, "{ends}: {dropped:?}");
    }
}

/// In the long form longer than the three minutes after which phantun resets a flow without data; the
/// short form shows only that the flow stays.
#[test]
fn traffic_passes_after_a_pause() {
    let both = [Ends::PhantunCalls, Ends::XdptunCalls].map(|ends| (ends, run(ends).unwrap()));
    let pause = Duration::from_secs(Extent::here().pick(5, 600));
    // Nothing but time brings the pause about.
    thread::sleep(pause);
    for (ends, running) in &both {
        let opened = running.tunnel.wait_open();
        let use_it = opened.and_then(|()| running.tunnel.exchange());
        use_it
            .with_context(|| format!("{ends}, after {pause:?}"))
            .unwrap();
    }
}

/// The goal is 1.3.
#[test]
fn its_speed_is_told() {
    let speeds = |ends| -> Result<Speeds> { run(ends)?.tunnel.speeds() };
    for (program, name, ends) in [
        ("compat phantun", "phantun to xdptun", Ends::PhantunCalls),
        ("compat phantun", "xdptun to phantun", Ends::XdptunCalls),
    ] {
        Comparison::new(program, [name, "phantun to phantun"])
            .measure(|| speeds(ends), || speeds(Ends::Phantun))
            .unwrap()
            .report();
    }
}
