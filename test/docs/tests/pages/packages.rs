//! docs/packages.md.

use xdptun_test_docs::page::Page;

pub fn walk(page: &mut Page) {
    page.pass_over(
        "test/package does so on a Debian of its own, under systemd",
        &[
            "sudo apt install ./target/package/xdptun_0.1.0-1_amd64.deb",
            "sudo cp /usr/share/doc/xdptun/examples/eth0.env /etc/xdptun/",
            "sudo systemctl enable --now xdptun@eth0",
        ],
    )
    .unwrap();
}
