//! docs/packages.md.

use xdptun_test_docs::page::Page;

pub fn walk(page: &mut Page) {
    page.pass_over(
        "test/package does so on a Debian of its own, under systemd",
        &[
            "sudo apt install ./target/package/xdptun_0.1.0-1_amd64.deb",
            "sudo cp /usr/share/doc/xdptun/examples/eth0.env /etc/xdptun/",
            "sudo systemctl enable --now xdptun@eth0",
            "chgrp xdptun /etc/xdptun/secret",
            "chmod 640 /etc/xdptun/secret",
        ],
    )
    .unwrap();
    page.pass_over(
        "there is no container runtime here; `fleet` of xdptun reads what they read, and `image` \
         of test/package does what they do",
        &[
            "podman build --file xdptun/package/Containerfile --tag xdptun:0.1.0 \
             target/x86_64-unknown-linux-musl/dist",
            "sudo mkdir -p /run/xdptun",
            "sudo podman run --detach --name xdptun --network host --pid host --read-only \
             --cap-drop all --cap-add BPF,NET_ADMIN,NET_RAW,PERFMON \
             --security-opt apparmor=unconfined --security-opt label=disable \
             --volume /sys/fs/bpf:/sys/fs/bpf --volume /run/xdptun:/run/xdptun \
             --volume /etc/xdptun:/etc/xdptun:ro xdptun:0.1.0",
            "kubectl apply --filename xdptun/package/daemonset.yaml",
        ],
    )
    .unwrap();
}
