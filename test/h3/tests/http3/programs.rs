//! The server and the client by themselves, without xdptun: what they are asked
//! for, and what they refuse.

use std::path::Path;

use xdptun_lab::content::{Filling, digest};
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Direct, Family, udp};
use xdptun_test_h3::Scenario;

fn start() -> Scenario {
    let net = Direct::new().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_server")).parent().unwrap();
    Scenario::new(&net.a, &net.b, programs).unwrap()
}

#[test]
fn downloads_come_in_order_with_their_digests() {
    let scenario = start();
    let contents = [
        udp::pattern(0, 0),
        udp::pattern(1, 1),
        udp::pattern(70_000, 2),
    ];
    for (number, content) in contents.iter().enumerate() {
        std::fs::write(scenario.folder().join(number.to_string()), content).unwrap();
    }
    let large = scenario.provide("large", 8, Filling::Pattern).unwrap();
    for family in Family::BOTH {
        let report = scenario.fetch(family, &["0", "large", "2", "1"]).unwrap();
        let lengths: Vec<u64> = report.downloads.iter().map(|file| file.bytes).collect();
        assert_eq!(lengths, [0, 8 << 20, 70_000, 1], "{report:?}");
        assert_eq!(report.downloads[1].sha256, large);
        for (place, name) in [(0, "0"), (2, "2"), (3, "1")] {
            let expected = digest(&scenario.folder().join(name)).unwrap();
            assert_eq!(report.downloads[place].sha256, expected, "{family} {name}");
        }
    }
}

#[test]
fn writes_what_it_downloads() {
    let scenario = start();
    let expected = scenario.provide("file", 3, Filling::Pattern).unwrap();
    let url = scenario.url(Family::V4, "file");
    let scratch = Scratch::new().unwrap();
    let copy = scratch.path().join("copy");
    let output = copy.to_str().unwrap();
    let said = scenario.client(&["-k", &url, "-o", output]).unwrap();
    assert_eq!(digest(&copy).unwrap(), expected);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains(&expected), "{said:?}");
    for word in ["3145728 bytes", " s: ", " MB/s", " MiB/s"] {
        assert!(said[1].contains(word), "{said:?}");
    }
}

#[test]
fn nothing_outside_the_folder_is_served() {
    let scenario = start();
    // Beside the served folder, where `..` would lead.
    let secret = scenario.folder().with_file_name("secret");
    std::fs::write(secret, "secret").unwrap();
    for name in [
        "../secret",
        "%2e%2e/secret",
        "..%2fsecret",
        "/etc/passwd",
        "",
    ] {
        let error = scenario.fetch(Family::V4, &[name]).unwrap_err().to_string();
        assert!(error.contains("404 Not Found"), "{name}: {error}");
    }
}

#[test]
fn without_k_the_certificate_must_be_known() {
    let (scenario, other) = (start(), start());
    scenario.provide("file", 1, Filling::Zeros).unwrap();
    let (known, foreign) = (scenario.certificate(), other.certificate());
    let [known, foreign] = [&known, &foreign].map(|path| path.to_str().unwrap());
    for family in Family::BOTH {
        let url = scenario.url(family, "file");
        let refused = |args: &[&str]| scenario.client(args).unwrap_err().to_string();
        scenario.client(&["--cacert", known, &url]).unwrap();
        let error = refused(&["--cacert", foreign, &url]);
        assert!(error.contains("invalid peer certificate"), "{error}");
        let error = refused(&[&url]);
        assert!(error.contains("--insecure"), "{error}");
    }
}
