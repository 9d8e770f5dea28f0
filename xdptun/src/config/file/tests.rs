//! What the file can say, and how mistakes are shown.

use std::time::Duration;

use super::*;
use crate::config::{IngressChoice, Nat, Secrets, TcChoice, Veil};
use crate::error::Kind;

fn one(text: &str) -> InterfaceConfig {
    let config = Config::parse(&format!("[interface.eth0]\n{text}")).unwrap();
    config.interfaces["eth0"].clone()
}

#[test]
fn a_port_is_all_it_takes() {
    let interface = one("ports = [51820]");
    let expected = InterfaceConfig::new(vec!["51820".parse().unwrap()]);
    assert_eq!(interface, expected);
    assert_eq!(Duration::from(interface.keepalive).as_secs(), 25);
    assert_eq!(Duration::from(interface.idle_timeout).as_secs(), 600);
}

#[test]
fn everything_can_be_said() {
    let text = r#"
        log-level = "debug"
        metrics = "[::1]:9469"
        resolve-interval = 5
        [interface."eth0.100"]
        ports = [443, "8000-8010"]
        peers = ["203.0.113.7", { peer = "2001:db8::/32", secret = "b" }, "gw.example.org"]
        ingress = "xdp-generic"
        tc = "clsact"
        keepalive = 10
        idle-timeout = 60
        secret = ["/etc/xdptun/secret", "a"]
        max-flows = 1000
    "#;
    let config = Config::parse(text).unwrap();
    assert_eq!(config.log_level, LogLevel::Debug);
    assert_eq!(config.resolve_interval.to_string(), "5");
    assert_eq!(config.metrics, "[::1]:9469".parse().ok());
    let interface = &config.interfaces["eth0.100"];
    let ports: Vec<String> = interface.ports.iter().map(ToString::to_string).collect();
    assert_eq!(ports, ["443", "8000-8010"]);
    let peers: Vec<String> = interface.peers().map(ToString::to_string).collect();
    assert_eq!(peers, ["203.0.113.7/32", "2001:db8::/32", "gw.example.org"]);
    assert_eq!(interface.ingress, IngressChoice::XdpGeneric);
    assert_eq!(interface.tc, TcChoice::Clsact);
    assert_eq!(interface.keepalive.to_string(), "10");
    assert_eq!(interface.idle_timeout.to_string(), "60");
    let files = |secret: &Option<Secrets>| {
        let files = secret.iter().flat_map(Secrets::files);
        files
            .map(|file| file.display().to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(files(&interface.secret), ["/etc/xdptun/secret", "a"]);
    assert_eq!(files(&interface.peers[1].secret), ["b"]);
    assert_eq!(interface.max_flows.get(), 1000);
}

/// Every mistake is shown with its line and column, and what would be right.
#[test]
fn mistakes_are_shown_where_they_are() {
    for (line, column, hint) in [
        (
            "prots = [1]",
            1,
            "unknown key `prots`; did you mean `ports`?",
        ),
        ("ports = []", 9, "no port"),
        ("ports = 8000", 9, "expected a list like [51820]"),
        ("ports = [0]", 10, "ports are 1 to 65535"),
        ("ports = [70000]", 10, "ports are 1 to 65535"),
        ("ports = [\"9-8\"]", 10, "write 8-9"),
        (
            "ports = [1]\npeers = [\"10.0.0.0/33\"]",
            10,
            "203.0.113.0/24",
        ),
        (
            "ports = [1]\ningress = \"magic\"",
            11,
            "expected one of `auto`, `xdp`",
        ),
        (
            "ports = [1]\nkeepalive = 0",
            13,
            "`0` is not possible; give 1 s",
        ),
        ("ports = [1]\nsecret = 1", 10, "expected a file like"),
        ("ports = [1]\nsecret = []", 10, "no file with a secret"),
        (
            "ports = [1]\nsecret = [\"a\", \"b\", \"a\"]",
            10,
            "a: the same secret twice",
        ),
        (
            "ports = [1]\nsecret = [\"a\", \"b\", \"c\", \"d\", \"e\"]",
            10,
            "5 secrets are too many, 4 are allowed at once",
        ),
        ("ports = [1]\npeers = [7]", 10, "expected a peer like"),
        (
            "ports = [1]\npeers = [{ peer = \"10.0.0.1\", secrets = \"a\" }]",
            31,
            "unknown key `secrets`; did you mean `secret`?",
        ),
        (
            "ports = [1]\npeers = [\"10.0.0.1\", { peer = \"10.0.0.1\", secret = \"a\" }]",
            9,
            "peer 10.0.0.1/32 is listed twice",
        ),
        ("ports = [1]\nidle-timeout = \"1x\"", 16, "`1x` is no time"),
        (
            "ports = [1]\nmax-flows = 0",
            13,
            "0 is not possible; give 1 to 16777216",
        ),
        ("forward = 7", 11, "tables like [[interface.eth0.forward]]"),
        (
            "forward = [{ listen = 0, to = \"10.0.0.5:1\" }]",
            23,
            "`0` is not a port",
        ),
        ("forward = [{ listen = 7000 }]", 12, "`to` is missing"),
        (
            "forward = [{ listen = 7000, to = \"10.0.0.5\" }]",
            34,
            "`10.0.0.5` has no port; write 10.0.0.5:7000",
        ),
        (
            "forward = [{ listen = 7000, to = [\"10.0.0.5:1=0\"] }]",
            35,
            "`0` is no weight",
        ),
        (
            "forward = [{ listen = 7000, to = [], source = \"me\" }]",
            47,
            "`me` is no address",
        ),
        (
            "forward = [{ listen = 7000, to = [], from = 1 }]",
            38,
            "expected one of `listen`, `to`, `source`, `steal`",
        ),
        ("nat = 7", 7, "expected a table like [interface.eth0.nat]"),
        ("nat = {}", 7, "`inside` is missing"),
        ("nat = { inside = [7] }", 19, "`7` is no network"),
        (
            "nat = { inside = 7 }",
            18,
            "expected a network like \"192.168.7.0/24\" or a list of them",
        ),
        (
            "nat = { inside = [\"10.0.0.0/8\", \"192.168.7.1/24\"] }",
            33,
            "write 192.168.7.0/24, or 192.168.7.1",
        ),
        (
            "nat = { inside = \"10.0.0.0/8\", outside = \"::1\" }",
            42,
            "`::1` is IPv6",
        ),
        (
            "nat = { inside = \"10.0.0.0/8\", filtering = \"none\" }",
            44,
            "expected one of `endpoint-independent`, `address-and-port-dependent`",
        ),
        (
            "nat = { inside = \"10.0.0.0/8\", max-bindings-per-host = 0 }",
            56,
            "0 is not possible; give 1 to 4194304",
        ),
        (
            "nat = { inside = \"10.0.0.0/8\", port = 1 }",
            32,
            "unknown key `port`; did you mean `ports`?",
        ),
        ("ports = [1", 11, "array"),
    ] {
        let text = format!("[interface.eth0]\n{line}");
        let error = Config::parse(&text).expect_err(line);
        assert_eq!(error.kind(), Kind::Invalid, "{error:#}");
        let error = format!("{error:#}");
        let row = 1 + line.lines().count();
        let place = format!("line {row}, column {column}");
        assert!(error.contains(&place), "{place}: {error}");
        assert!(error.contains(hint), "{hint}: {error}");
    }
}

#[test]
fn a_phantun_proves_no_secret() {
    for keys in [
        "secret = \"a\"\ncompat = \"phantun\"",
        "secret = \"a\"\npeers = [\"10.0.0.2\", { peer = \"10.0.0.1\", compat = \"phantun\" }]",
        "secret = \"a\"\npeers = [{ peer = \"10.0.0.1\", secret = \"b\", compat = \"phantun\" }]",
    ] {
        let text = format!("[interface.eth0]\nports = [1]\n{keys}");
        let error = format!("{:#}", Config::parse(&text).unwrap_err());
        assert!(error.contains("cannot prove"), "{error}");
    }
}

#[test]
fn a_veil_takes_one_secret() {
    let parse = |keys: &str| Config::parse(&format!("[interface.eth0]\nports = [1]\n{keys}"));
    for (keys, complaint) in [
        ("veil = 256", "takes its key from a secret"),
        ("veil = 256\nsecret = [\"a\", \"b\"]", "of several"),
        (
            "veil = 0\nsecret = \"a\"\npeers = [{ peer = \"10.0.0.1\", secret = [\"b\", \"c\"] }]",
            "of several",
        ),
        ("veil = 257\nsecret = \"a\"", "give 0 to 256"),
    ] {
        let error = format!("{:#}", parse(keys).expect_err(keys));
        assert!(error.contains(complaint), "{keys}: {error}");
        let told = error.lines().next().unwrap();
        assert!(!told.contains("  "), "{keys}: {error}");
    }
    let peers = "peers = [{ peer = \"10.0.0.1\", secret = \"b\" }]";
    let config = parse(&format!("veil = 256\nsecret = \"a\"\n{peers}")).unwrap();
    let veil = config.interfaces["eth0"].veil;
    assert_eq!(veil.map(Veil::pads_to), Some(256));
}

#[test]
fn a_peers_secret_takes_one_of_the_interface() {
    let peers = "ports = [1]\npeers = [{ peer = \"10.0.0.1\", secret = [\"b\", \"c\"] }]\n";
    let interface = one(&format!("{peers}secret = \"a\""));
    let own = interface.peers[0].secret.as_ref().unwrap();
    assert_eq!(own.files().count(), 2);
    let error = Config::parse(&format!("[interface.eth0]\n{peers}")).unwrap_err();
    let error = format!("{error:#}");
    assert!(
        error.contains("peer 10.0.0.1/32 has a secret and the interface has none; give"),
        "{error}"
    );
}

/// These fit the grammar, and not each other.
#[test]
fn parts_that_do_not_fit_are_named() {
    let rule = "{ listen = 7000, to = \"10.0.0.5:80\" }";
    let one_rule = format!("forward = [{rule}]");
    let nat = "nat = { inside = \"10.0.0.0/8\", outside = \"203.0.113.7\" }";
    for (eth0, eth1, hint) in [
        (
            "",
            "ports = [1]",
            "eth0: no `ports`, `forward`, `nat` or `policy`",
        ),
        (
            "keepalive = 5",
            "ports = [1]",
            "eth0: no `ports`, `forward`, `nat` or",
        ),
        (
            &format!("{one_rule}\nkeepalive = 5"),
            "ports = [1]",
            "eth0: it has keys of the tunnel and no `ports`; give it ports, or leave only \
             `forward`, `nat`, `policy` and `tc`",
        ),
        (
            &format!("{nat}\nmax-flows = 5"),
            "ports = [1]",
            "eth0: it has keys of the tunnel and no `ports`",
        ),
        (
            "nat = { inside = [] }",
            "ports = [1]",
            "eth0: no network of inside hosts",
        ),
        (
            nat,
            nat,
            "interfaces eth0 and eth1 both have the outside address 203.0.113.7; give each",
        ),
        (
            &format!("{nat}\ntc = \"clsact\""),
            &one_rule,
            "interfaces eth0 and eth1 share their sessions; give both the same `tc`",
        ),
        (
            &format!("forward = [{rule}, {rule}]"),
            "ports = [1]",
            "eth0: `7000` and `7000` both listen to TCP port 7000",
        ),
        (
            "forward = [{ listen = 7000, to = [] }]",
            "ports = [1]",
            "eth0: `7000` leads nowhere",
        ),
        (
            &format!("{one_rule}\ntc = \"tcx\""),
            &one_rule,
            "eth0 and eth1 share their sessions; give both the same `tc`",
        ),
    ] {
        let text = format!("[interface.eth0]\n{eth0}\n[interface.eth1]\n{eth1}\n");
        let error = Config::parse(&text).expect_err(&text);
        assert_eq!(error.kind(), Kind::Invalid, "{error:#}");
        let error = format!("{error:#}");
        assert!(error.contains(hint), "{hint}: {error}");
    }
}

#[test]
fn rules_are_those_of_the_command_line() {
    let text = r#"
        max-sessions = 1000
        [[interface.eth0.forward]]
        listen = 7000
        to = "10.0.0.5:80"
        [[interface.eth0.forward]]
        listen = "203.0.113.7:8000-8009/udp"
        to = ["10.0.0.5:80-89", "10.0.0.6:80-89=3"]
        source = "masquerade"
        steal = true
    "#;
    let config = Config::parse(text).unwrap();
    assert_eq!(config.max_sessions.get(), 1000);
    let interface = &config.interfaces["eth0"];
    assert!(interface.has_gateway() && !interface.has_tunnel());
    let shown: Vec<String> = interface.forward.iter().map(ToString::to_string).collect();
    let expected = [
        "7000 -> 10.0.0.5:80",
        "203.0.113.7:8000-8009/udp -> 10.0.0.5:80-89, 10.0.0.6:80-89=3, source masquerade",
    ];
    assert_eq!(shown, expected);
    let steals: Vec<bool> = interface.forward.iter().map(|one| one.steal).collect();
    assert_eq!(steals, [false, true]);
}

#[test]
fn two_interfaces_can_translate() {
    let text = r#"
        max-bindings = 1000
        [interface.wan0]
        tc = "clsact"
        [interface.wan0.nat]
        inside = ["192.168.7.0/24", "10.9.9.9"]
        outside = "203.0.113.7"
        ports = "20000-29999"
        filtering = "address-and-port-dependent"
        max-bindings-per-host = 100
        [interface.wan1]
        tc = "clsact"
        ports = [51820]
        [interface.wan1.nat]
        inside = "192.168.7.0/24"
        [[interface.wan1.forward]]
        listen = 7000
        to = "192.168.7.5:80"
    "#;
    let config = Config::parse(text).unwrap();
    assert_eq!(config.max_bindings.get(), 1000);
    let nat = |name: &str| config.interfaces[name].nat.clone().unwrap();
    let expected = "192.168.7.0/24, 10.9.9.9/32, outside 203.0.113.7, ports 20000-29999, \
                    filtering address-and-port-dependent";
    assert_eq!(nat("wan0").to_string(), expected);
    assert_eq!(nat("wan0").max_bindings_per_host.get(), 100);
    assert_eq!(
        nat("wan1"),
        Nat::new(vec!["192.168.7.0/24".parse().unwrap()])
    );
    assert!(config.has_gateway_on("wan0") && !config.has_tunnel_on("wan0"));
    assert!(config.has_gateway_on("wan1") && config.has_tunnel_on("wan1"));
}

#[test]
fn what_no_interface_can_be_called_is_refused() {
    for name in ["", "a/b", "a b", "..", "sixteen-letters-"] {
        let text = format!("[interface.\"{name}\"]\nports = [1]\n");
        let error = Config::parse(&text).expect_err(name).to_string();
        assert!(error.contains(&format!("`{name}`")), "{error}");
    }
    let peers = "\"10.0.0.1\", ".repeat(1025);
    let text = format!("[interface.a]\nports = [1]\npeers = [{peers}]\n");
    let error = Config::parse(&text).unwrap_err().to_string();
    assert!(error.contains("1025 peers are too many"), "{error}");
}

/// What the sample shows as a default is one, and it shows all there is.
#[test]
fn the_sample_tells_the_truth() {
    assert_eq!(Config::parse(SAMPLE).unwrap(), Config::default());
    let enabled: String = SAMPLE
        .lines()
        .map(|line| match line.strip_prefix('#') {
            // "#name = value"; text has a space there.
            Some(option) if !option.starts_with(' ') => format!("{option}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let config = Config::parse(&enabled).unwrap();
    assert_eq!(
        (
            config.log_level,
            config.resolve_interval,
            config.max_bindings,
            config.max_sessions
        ),
        Default::default()
    );
    assert_eq!(
        (
            config.udp_timeout,
            config.tcp_timeout,
            config.tcp_transitory_timeout
        ),
        Default::default()
    );
    let interface = &config.interfaces["eth0"];
    assert!(!interface.peers.is_empty() && interface.secret.is_some());
    let [rule] = &interface.forward[..] else {
        panic!("{:?}", interface.forward);
    };
    assert_eq!((rule.source, rule.steal), Default::default());
    let nat = interface.nat.as_ref().unwrap();
    let default = Nat {
        outside: nat.outside,
        ..Nat::new(nat.inside.clone())
    };
    assert_eq!(*nat, default);
    let [rule] = &interface.policy[..] else {
        panic!("{:?}", interface.policy);
    };
    assert_eq!(Some(rule.name_at(0)), rule.name);
    assert_eq!((rule.ignore_case, rule.dry_run), Default::default());
    let InterfaceConfig { ports, .. } = interface.clone();
    let expected = InterfaceConfig {
        ports,
        peers: interface.peers.clone(),
        secret: interface.secret.clone(),
        veil: interface.veil,
        forward: interface.forward.clone(),
        nat: interface.nat.clone(),
        policy: interface.policy.clone(),
        ..one("ports = [1]")
    };
    assert_eq!(*interface, expected);
    for option in [
        "ingress",
        "tc",
        "keepalive",
        "idle-timeout",
        "max-flows",
        "source",
        "steal",
        "ports",
        "filtering",
        "max-bindings-per-host",
    ] {
        let shown = format!("\n#{option} = ");
        assert!(SAMPLE.contains(&shown), "{option}");
    }
}

#[test]
fn a_relative_secret_lies_beside_the_file() {
    let peers = "peers = [{ peer = \"10.0.0.1\", secret = [\"b/c\", \"/etc/d\"] }]";
    let text = format!("[interface.eth0]\nports = [1]\nsecret = \"a\"\n{peers}\n");
    let mut config = Config::parse(&text).unwrap();
    config.look_in(Path::new("/etc/xdptun"));
    let interface = &config.interfaces["eth0"];
    let files = |secrets: &Option<Secrets>| -> Vec<String> {
        let files = secrets.iter().flat_map(Secrets::files);
        files.map(|file| file.display().to_string()).collect()
    };
    assert_eq!(files(&interface.secret), ["/etc/xdptun/a"]);
    let of_peer = files(&interface.peers[0].secret);
    assert_eq!(of_peer, ["/etc/xdptun/b/c", "/etc/d"]);
}
