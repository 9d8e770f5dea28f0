use super::*;
use crate::config::Config;

#[test]
fn a_prefix_is_what_the_programs_understand() {
    for text in [
        "64:ff9b::/96",
        "2001:db8::/32",
        "2001:db8:122:300::/56",
        "2001:db8::/64",
    ] {
        let prefix: Prefix = text.parse().unwrap();
        let (address, len) = prefix.of_programs().parts();
        let made = format!("{}/{len}", std::net::Ipv6Addr::from(address));
        assert_eq!(made, text);
    }
    for text in [
        "64:ff9b::/95",
        "2001:db8:0:0:100::/96",
        "::/96",
        "fe80::/64",
        "ff00::/32",
    ] {
        let error = text.parse::<Prefix>().unwrap_err();
        assert_eq!(error, Nat64Error::NotAPrefix(text.to_owned()), "{text}");
    }
}

#[test]
fn a_pool_is_what_the_programs_understand() {
    for text in ["100.64.0.0/16", "10.0.0.4/30", "192.168.7.0/24"] {
        let pool: Pool = text.parse().unwrap();
        let (address, len) = pool.of_programs().parts();
        assert_eq!(format!("{}/{len}", std::net::Ipv4Addr::from(address)), text);
    }
    for text in ["100.64.0.0/15", "10.0.0.0/31"] {
        let error = text.parse::<Pool>().unwrap_err();
        assert_eq!(error, Nat64Error::PoolSize(text.to_owned()));
    }
}

#[test]
fn mistakes_of_the_file_are_named_with_their_place() {
    for (file, hint) in [
        ("[nat64]\n", "`inside` is missing"),
        ("[nat64]\ninside = []", "no network of clients"),
        (
            "[nat64]\ninside = 5",
            "a network like \"fd00:6::/64\" or a list of them",
        ),
        (
            "[nat64]\ninside = \"fd00:6::/64\"\nstatic = \"100.64.0.9\"",
            "is no static address",
        ),
        (
            "[nat64]\ninside = \"fd00:6::/64\"\nports = 5",
            "unknown key `ports`",
        ),
        (
            "[nat64]\ninside = \"fd00:6::/64\"\nmtu = 5",
            "5 is no MTU of IPv6",
        ),
    ] {
        let error = format!("{:#}", Config::parse(file).unwrap_err());
        assert!(error.contains(hint), "{file}: {hint}: {error}");
    }
    let many: Vec<String> = (0..17)
        .map(|number| format!("\"fd00:{number}::/64\""))
        .collect();
    let file = format!("[nat64]\ninside = [{}]", many.join(", "));
    let error = format!("{:#}", Config::parse(&file).unwrap_err());
    assert!(
        error.contains("17 networks of clients are too many"),
        "{error}"
    );
}
