//! docs/kernels.md.

use xdptun_test_docs::page::Page;

pub fn walk(page: &mut Page) {
    let guests = "each boots a machine that is emulated, for minutes; `cargo xtask test` boots \
                  three of them in its own way";
    page.pass_over(
        guests,
        &[
            "cargo xtask vm --matrix --write -- test test-vm",
            "cargo xtask vm --arch armv7 -- test",
            "cargo xtask vm --kernel 6.1 -- test net",
            "cargo xtask vm --kernel 7.2 -- sh",
            "cargo xtask vm --kernel 6.12 -- uname -a",
            "cargo xtask vm --kernel user-mode-linux -- test quick",
            "cargo xtask vm --kernel 6.12 --nic e1000e",
            "cargo xtask vm --arch aarch64 -- test",
            "cargo xtask vm --arch aarch64 -- test net",
            "cargo xtask vm --arch aarch64 --kernel 6.1 -- uname -a",
        ],
    )
    .unwrap();
}
