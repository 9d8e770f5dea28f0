//! `counter`: names and indexes, which users see and maps are sized by.

use std::collections::HashSet;

use xdptun_common::report::outcome::Fate;
use xdptun_common::tunnel::outcome::{COUNTERS, GroStep, Outcome, Sent};

fn all() -> Vec<(u32, &'static str, &'static str)> {
    let outcomes = Outcome::ALL
        .iter()
        .map(|counter| (counter.index(), counter.name(), counter.meaning()));
    let sent = Sent::ALL
        .iter()
        .map(|counter| (counter.index(), counter.name(), counter.meaning()));
    let steps = GroStep::ALL
        .iter()
        .map(|counter| (counter.index(), counter.name(), counter.meaning()));
    outcomes.chain(sent).chain(steps).collect()
}

#[test]
fn indexes_are_dense_and_in_order() {
    let indexes: Vec<u32> = all().iter().map(|(index, ..)| *index).collect();
    assert_eq!(indexes, (0..COUNTERS).collect::<Vec<_>>());
}

#[test]
fn names_are_unique_and_snake_case() {
    let mut seen = HashSet::new();
    for (_, name, _) in all() {
        assert!(seen.insert(name), "{name} twice");
        let words: Vec<&str> = name.split('_').collect();
        assert!(
            words.iter().all(|word| {
                !word.is_empty()
                    && word
                        .bytes()
                        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
            }),
            "{name} is not snake_case"
        );
    }
}

/// The name in metrics is the name in the code, so that one can be found from the other.
#[test]
fn names_follow_the_variants() {
    for outcome in Outcome::ALL {
        assert_eq!(outcome.name(), snake_case(&format!("{outcome:?}")));
    }
    for sent in Sent::ALL {
        let expected = match sent {
            Sent::Limited => "replies_limited".to_owned(),
            _ => format!("sent_{}", snake_case(&format!("{sent:?}"))),
        };
        assert_eq!(sent.name(), expected);
    }
    for step in GroStep::ALL {
        assert_eq!(step.name(), snake_case(&format!("{step:?}")));
    }
}

fn snake_case(camel: &str) -> String {
    let mut snake = String::new();
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[test]
fn meanings_are_sentences_of_one_line_and_differ() {
    let mut seen = HashSet::new();
    for (_, name, meaning) in all() {
        assert!(seen.insert(meaning), "{name}: {meaning:?} twice");
        assert!(
            meaning.ends_with('.') && !meaning.contains('\n'),
            "{name}: {meaning:?}"
        );
    }
}

/// Direction and fate are in the name: a dropped packet never goes on, and each loss is
/// called one.
#[test]
fn names_tell_direction_and_fate() {
    for outcome in Outcome::ALL {
        let name = outcome.name();
        assert!(name.starts_with("tx_") || name.starts_with("rx_"), "{name}");
        let says_lost = name.contains("_drop_") || name.contains("_lost");
        assert_eq!(outcome.fate().is_loss(), says_lost, "{name}");
        if name.contains("_drop_") {
            assert_eq!(outcome.fate(), Fate::Lose, "{name}");
        }
    }
}

/// Fail closed: of what arrives, nothing but a restored datagram or fragment, an error about
/// one, and what is the host's own, reaches the host.
#[test]
fn inbound_only_what_was_translated_passes() {
    for outcome in Outcome::ALL {
        if outcome.name().starts_with("rx_") {
            assert_eq!(
                outcome.fate() == Fate::Pass,
                matches!(
                    outcome,
                    Outcome::RxRestored | Outcome::RxFragment | Outcome::RxIcmp | Outcome::RxToHost
                ),
                "{outcome:?}"
            );
        }
    }
}

/// Only a datagram that was made a message to its sender goes back to it.
#[test]
fn only_a_message_to_the_sender_returns() {
    for outcome in Outcome::ALL {
        assert_eq!(
            outcome.fate() == Fate::Return,
            *outcome == Outcome::TxTooBig,
            "{outcome:?}"
        );
    }
}

/// Of what is sent, a datagram that waits, or is lost while waiting, stays here:
/// unless its headers became the SYN that it caused.
#[test]
fn outbound_a_waiting_datagram_stays() {
    for outcome in [Outcome::TxQueued, Outcome::TxLost, Outcome::TxNotRequested] {
        assert_ne!(outcome.fate(), Fate::Pass, "{outcome:?}");
    }
    for outcome in [
        Outcome::TxDisguised,
        Outcome::TxOpened,
        Outcome::TxRequested,
    ] {
        assert_eq!(outcome.fate(), Fate::Pass, "{outcome:?}");
    }
}
