//! docs/phantun.md. `cargo xtask test 'real compat'` has the peers.

use xdptun_test_docs::machine::Machine;
use xdptun_test_docs::page::Page;

pub fn walk(page: &mut Page) {
    let [host, _peer] = Machine::two_hosts().unwrap();
    host.install_xdptun().unwrap();
    for peer in [" --peer 203.0.113.7", ""] {
        let attach = format!("sudo xdptun attach --iface eth0 --port 4567{peer} --compat phantun");
        let attached = host.attach(page, "eth0", &attach).unwrap();
        let says = attached.summary();
        let phantuns = "eth0: takes all peers for phantuns";
        assert!(says.iter().any(|line| line == phantuns), "{says:#?}");
        attached.stop().unwrap();
    }
}
