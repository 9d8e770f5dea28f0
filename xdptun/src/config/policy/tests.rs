use super::*;

/// The rule of a table.
fn parse(text: &str) -> Result<PolicyRule, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

const RULE: &str = "direction = \"in\"\naction = \"drop\"\n";

fn with(lines: &str) -> PolicyRule {
    parse(&format!("{RULE}{lines}")).unwrap()
}

#[test]
fn a_rule_says_what_it_does() {
    for (lines, expected) in [
        ("contains = \"STEPH\"", "in contains `STEPH`: drop"),
        (
            "contains = [\"a\", \"hex:00ff\"]\nport = 80\nprotocol = \"tcp\"",
            "in tcp port 80 contains one of 2 patterns: drop",
        ),
        (
            "contains = \"hex:0D0a\"\nfrom = \"10.1.0.1\"\nto = \"10.2.0.0/16\"\noffset = \"4-\"\n\
             ignore-case = true\ndry-run = true",
            "in from 10.1.0.1/32 to 10.2.0.0/16 contains hex:0d0a, case ignored, offset 4-: drop \
             (dry run)",
        ),
    ] {
        assert_eq!(with(lines).to_string(), expected);
    }
}

#[test]
fn patterns_are_text_or_bytes() {
    for (text, bytes) in [
        ("GET ", &b"GET "[..]),
        ("hex:474554", b"GET"),
        ("hex:00Ff", &[0, 0xff]),
        ("hexa", b"hexa"),
    ] {
        assert_eq!(text.parse::<Pattern>().unwrap().bytes(), bytes, "{text}");
    }
    for text in ["", "hex:", "hex:0", "hex:0g", "hex:+1", "hex:0€"] {
        assert!(text.parse::<Pattern>().is_err(), "{text}");
    }
    let long = "x".repeat(129);
    assert_eq!(long.parse::<Pattern>(), Err(PolicyError::LongPattern(129)));
    let shown = ["hex:68", "hex:6865783a", "ü", "hex:ff"].map(|text| {
        let pattern: Pattern = text.parse().unwrap();
        pattern.to_string()
    });
    assert_eq!(shown, ["`h`", "hex:6865783a", "`ü`", "hex:ff"]);
}

#[test]
fn offsets_are_a_first_and_a_last_byte() {
    let offset = |first, last| Ok(Offset { first, last });
    for (text, expected) in [
        ("0-0", offset(0, Some(0))),
        ("4-15", offset(4, Some(15))),
        ("4-", offset(4, None)),
        ("4-3", Err(PolicyError::NotAnOffset("4-3".to_owned()))),
        ("4", Err(PolicyError::NotAnOffset("4".to_owned()))),
        ("-4", Err(PolicyError::NotAnOffset("-4".to_owned()))),
        (
            "0-65536",
            Err(PolicyError::NotAnOffset("0-65536".to_owned())),
        ),
    ] {
        assert_eq!(text.parse::<Offset>(), expected, "{text}");
    }
}

#[test]
fn rules_that_contradict_themselves_are_refused() {
    let rule = || with("contains = \"x\"");
    let checked = |change: fn(&mut PolicyRule)| {
        let mut rule = rule();
        change(&mut rule);
        check_policies(&[rule]).map_err(|error| error.to_string())
    };
    for (change, reason) in [
        (
            (|rule| rule.contains.clear()) as fn(&mut PolicyRule),
            "no pattern",
        ),
        (
            |rule| rule.contains = vec![rule.contains[0].clone(); 65],
            "65 patterns are too many",
        ),
        (
            |rule| {
                rule.from = Some("10.0.0.0/8".parse().unwrap());
                rule.to = Some("fd00::/8".parse().unwrap());
            },
            "different versions of IP",
        ),
        (
            |rule| {
                rule.action = PolicyAction::Count;
                rule.dry_run = true;
            },
            "drops nothing",
        ),
        (
            |rule| {
                rule.offset = Some("3-4".parse().unwrap());
                rule.contains = vec!["abc".parse().unwrap()];
            },
            "has no room in bytes 3-4",
        ),
    ] {
        let error = checked(change).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(check_policies(&[rule(), rule()]), Ok(()));
    assert!(check_policies(&vec![rule(); MAX_RULES + 1]).is_err());
}

/// Metrics and the log tell rules apart by their names, those that are made up included.
#[test]
fn names_of_rules_differ() {
    let named = |name: &str| with(&format!("contains = \"x\"\nname = \"{name}\""));
    let unnamed = with("contains = \"x\"");
    assert_eq!(unnamed.name_at(1).as_str(), "rule2");
    let twice = PolicyError::Twice("rule2".parse().unwrap());
    assert_eq!(check_policies(&[named("rule2"), unnamed]), Err(twice));
    for name in ["", "a b", "a\"b", "ä", &"x".repeat(33)] {
        assert!(name.parse::<RuleName>().is_err(), "{name}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    for (text, reason) in [
        ("action = \"drop\"\ncontains = \"x\"", "direction"),
        ("direction = \"in\"\ncontains = \"x\"", "action"),
        (RULE, "contains"),
        ("direction = \"up\"", "up"),
        (
            "direction = \"in\"\naction = \"drop\"\ncontains = \"hex:0\"",
            "pairs of hexadecimal",
        ),
        (
            "direction = \"in\"\naction = \"drop\"\ncontains = \"x\"\nport = 0",
            "port",
        ),
        (
            "direction = \"in\"\naction = \"drop\"\ncontains = \"x\"\nfrom = \"here\"",
            "no network",
        ),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

/// Networks are kept with 16 bytes an address, where `::/0` has those of IPv4 too.
#[test]
fn a_network_of_all_addresses_is_refused() {
    for end in ["from", "to"] {
        let rule = |network| {
            let text = format!(
                "direction = \"in\"\naction = \"drop\"\ncontains = \"x\"\n{end} = \"{network}\""
            );
            toml::from_str::<PolicyRule>(&text).unwrap()
        };
        let refused = check_policies(&[rule("::/0")]);
        assert_eq!(refused, Err(PolicyError::AllAddresses));
        for network in ["0.0.0.0/0", "2000::/3"] {
            assert_eq!(check_policies(&[rule(network)]), Ok(()));
        }
    }
}
