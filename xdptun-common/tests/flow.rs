//! `flow` and `isn`: keys, states, times, and numbers that prove an address.

use proptest::prelude::*;
use std::collections::HashSet;
use std::net::SocketAddr;
use xdptun_common::bytes_of;
use xdptun_common::flow::key::FlowKey;
use xdptun_common::flow::tick::Tick;
use xdptun_common::tunnel::config::TcpDefaults;
use xdptun_common::tunnel::isn::{EPOCH_NS, LIFETIME, Secret};
use xdptun_common::tunnel::state::{
    ANSWER_AGAIN, ANSWERS, KEPT_ANSWERS, REMEMBERED, State, answer, syn_is_due,
};
use xdptun_common::tunnel::window::{MAX_WINDOW, is_exact, is_without_df, window, with_df};

const STATES: [State; 5] = [
    State::Closed,
    State::SynSent,
    State::SynReceived,
    State::Established,
    State::FinSent,
];

#[test]
fn states_survive_the_map() {
    let mut names = HashSet::new();
    for (number, state) in (0..).zip(STATES) {
        assert_eq!(state as u32, number);
        assert_eq!(State::from_raw(number), state);
        assert!(names.insert(state.name()));
    }
    for unknown in [5, 6, 0x100, u32::MAX] {
        assert_eq!(State::from_raw(unknown), State::Closed);
    }
}

#[test]
fn the_window_offered_fits_the_window_taken_and_is_no_sign() {
    for acknowledgment in (0..=u32::MAX).step_by(0x003f_fff1) {
        for df in [true, false] {
            let offered = with_df(window(acknowledgment), df);
            assert_eq!(is_without_df(offered), !df);
            assert!(!is_exact(offered), "nor is it a probe or challenge");
            let offered = u32::from(offered) << TcpDefaults::LINUX.window_scale;
            assert!(
                offered <= MAX_WINDOW && offered > MAX_WINDOW / 2,
                "{offered}"
            );
        }
    }
}

#[test]
fn the_window_grows_in_16_mib_and_falls_in_4_gib() {
    const STEP: u32 = 1 << 24;
    for step in 0..=0xff_u16 {
        let first = u32::from(step) * STEP;
        assert_eq!(window(first), 0xf000 + step);
        assert_eq!(window(first + (STEP - 1)), 0xf000 + step);
    }
}

#[test]
fn syns_back_off_and_never_stop() {
    const MS: u64 = 1_000_000;
    let last = 7_000 * MS;
    for (sent, wait) in [
        (0, 50),
        (1, 500),
        (2, 1000),
        (3, 1000),
        (REMEMBERED - 1, 1000),
    ] {
        assert!(!syn_is_due(last, sent, last + wait * MS - 1), "{sent}");
        assert!(syn_is_due(last, sent, last + wait * MS), "{sent}");
        assert!(!syn_is_due(last, sent, last - 1), "another CPU's clock");
    }
    assert!(syn_is_due(0, 0, 1), "never sent");
    for (last, now) in [(0, 1), (last, u64::MAX)] {
        assert!(!syn_is_due(last, REMEMBERED, now), "it is the peer's turn");
    }
}

proptest! {
    #[test]
    fn a_key_gives_back_what_it_was_made_of(local: SocketAddr, remote: SocketAddr) {
        // Scope and flow label of an IPv6 socket address are no part of a flow.
        let plain = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let key = FlowKey::new(local, remote);
        prop_assert_eq!((key.local(), key.remote()), (plain(local), plain(remote)));
        prop_assert_eq!((key.local_port(), key.remote_port()), (local.port(), remote.port()));
        prop_assert_eq!(key.is_ipv4(), plain(remote).is_ipv4());
        prop_assert_eq!(key.reversed(), FlowKey::new(remote, local));
        prop_assert_eq!(&bytes_of(&key)[32..34], local.port().to_be_bytes());
        let parts = FlowKey::from_parts(
            key.local_address(), key.local_port(), key.remote_address(), key.remote_port(),
        );
        prop_assert_eq!(parts, key);
    }

    /// Each part of a flow counts for its number, and the time only by its epoch.
    #[test]
    fn a_number_belongs_to_one_flow_and_time(
        secret: [u64; 2], local: SocketAddr, remote: SocketAddr, byte in 0usize..36, flip in 1..=u8::MAX,
        now in 32 * EPOCH_NS..1 << 60,
    ) {
        let secret = Secret::new(secret);
        let key = FlowKey::new(local, remote);
        let isn = secret.isn(&key, now);
        let start = now - now % EPOCH_NS;
        prop_assert_eq!(secret.isn(&key, start), isn);
        prop_assert_eq!(secret.isn(&key, start + EPOCH_NS - 1), isn);
        prop_assert!(secret.gave(isn, &key, start + (LIFETIME + 1) * EPOCH_NS - 1));
        prop_assert!(!secret.gave(isn, &key, start + (LIFETIME + 1) * EPOCH_NS));
        prop_assert!(!secret.gave(isn, &key, start - 1), "not given yet");
        prop_assert!(!secret.gave(isn.wrapping_add(1), &key, now));

        let mut other = bytes_of(&key).to_vec();
        other[byte] ^= flip;
        let other: FlowKey = xdptun_common::read_plain(&other).expect("36 bytes");
        prop_assert!(!secret.gave(isn, &other, now));
    }
}

#[test]
fn answers_are_earned_one_by_one() {
    for start in [0, 1 << 31, u32::MAX - 3] {
        let now = |later: u32| Tick(start.wrapping_add(later));
        let mut earned_at = start;
        let mut give = |later| match answer(earned_at, now(later), 0) {
            Some(after) => {
                earned_at = after;
                true
            }
            None => false,
        };
        assert_eq!((0..100).filter(|_| give(0)).count(), ANSWERS as usize);
        assert!(!give(ANSWER_AGAIN - 1), "{start:#x}");
        assert!(give(ANSWER_AGAIN), "{start:#x}");
        assert!(!give(ANSWER_AGAIN), "{start:#x}");
        let later = (1 + ANSWERS) * ANSWER_AGAIN;
        assert_eq!((0..100).filter(|_| give(later)).count(), ANSWERS as usize);
        // By the clock of a CPU that is behind.
        assert!(!give(later - 10), "{start:#x}");
    }
}

#[test]
fn challenges_leave_answers_for_probes() {
    let now = Tick(7);
    let mut earned_at = now.0;
    let mut give = |kept| {
        answer(earned_at, now, kept).is_some_and(|after| {
            earned_at = after;
            true
        })
    };
    let challenges = (0..100).filter(|_| give(KEPT_ANSWERS)).count();
    assert_eq!(challenges, (ANSWERS - KEPT_ANSWERS) as usize);
    assert_eq!((0..100).filter(|_| give(0)).count(), KEPT_ANSWERS as usize);
}
