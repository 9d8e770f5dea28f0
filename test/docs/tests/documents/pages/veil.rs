//! docs/veil.md. `cargo xtask test 'net veil'` looks at the wire.

use xdptun_test_docs::machine::Machine;
use xdptun_test_docs::page::Page;

pub fn walk(page: &mut Page) {
    let [host, _peer] = Machine::two_hosts().unwrap();
    host.install_xdptun().unwrap();
    host.write("/etc/xdptun/secret", "known to both hosts")
        .unwrap();
    let attach = "sudo xdptun attach --iface eth0 --port 443 --secret /etc/xdptun/secret --veil";
    let attached = host.attach(page, "eth0", attach).unwrap();
    let says = attached.summary();
    let veil = "eth0: payloads are veiled, and short datagrams padded to 256 bytes at most";
    assert!(says.iter().any(|line| line == veil), "{says:#?}");
    attached.stop().unwrap();
}
