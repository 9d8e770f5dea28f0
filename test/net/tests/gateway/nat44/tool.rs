//! The kind of NAT, as coturn's `turnutils_natdiscovery` finds it (RFC 5780).

use xdptun_lab::{Host, Inside, Process, wait};
use xdptun_test_net::inside::nat;
use xdptun_test_net::{LIMIT, cli, unpacked};

/// A STUN server with two addresses outside, and the program that asks it inside.
#[test]
fn an_independent_program_finds_the_kind_of_nat() {
    for (filtering, words) in [
        (
            "endpoint-independent",
            "NAT with Endpoint Independent Filtering!",
        ),
        (
            "address-and-port-dependent",
            "NAT with Address and Port Dependent Filtering!",
        ),
    ] {
        let net = Inside::new().unwrap();
        let attached = nat(&net, &["--filtering", filtering]);
        let [server, _] = &net.outside;
        let second = "198.51.100.6";
        let add = ["address", "add", &format!("{second}/24"), "dev", Host::DEV];
        server.netns.run("ip", add).unwrap();
        let first = server.v4.to_string();
        let mut turnserver = unpacked::program(&server.netns, "coturn", "usr/bin/turnserver");
        turnserver.args([
            "-n",
            "--stun-only",
            "--no-cli",
            "--no-tls",
            "--no-dtls",
            "--log-file",
            "stdout",
            "-L",
            &first,
            "-L",
            second,
        ]);
        let turnserver = Process::spawn(&mut turnserver).unwrap();
        for address in [&*first, second] {
            wait::until(LIMIT, "the STUN server", || {
                let sockets = server.netns.run("ss", ["-Hlun", "src", address]).unwrap();
                [":3478", ":3479"].iter().all(|port| sockets.contains(port))
            })
            .unwrap();
        }
        let mut discovery =
            unpacked::program(&net.a.netns, "coturn", "usr/bin/turnutils_natdiscovery");
        let found = cli::finish(discovery.args(["-m", "-f", &first])).unwrap();
        let said = |words: &str| found.stdout.iter().any(|line| line.contains(words));
        assert!(said("NAT with Endpoint Independent Mapping!"), "{found:#?}");
        assert!(said(words), "{found:#?}");
        turnserver.kill().unwrap();
        attached.stop().unwrap();
    }
}
