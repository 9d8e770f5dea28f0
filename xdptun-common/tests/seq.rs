//! `seq`: comparison of numbers on a circle.

use proptest::prelude::*;
use xdptun_common::flow::seq::{after, distance, near};

#[test]
fn distance_crosses_zero() {
    let table = [
        (0, 0, 0),
        (1, 0, 1),
        (0, 1, -1),
        (0, u32::MAX, 1),
        (u32::MAX, 0, -1),
        (5, u32::MAX - 4, 10),
        (0x7fff_ffff, 0, i32::MAX),
        (0x8000_0000, 0, i32::MIN),
        (0x8000_0001, 0, -i32::MAX),
    ];
    for (a, b, expected) in table {
        assert_eq!(distance(a, b), expected, "{a:#x} to {b:#x}");
        assert_eq!(after(a, b), expected > 0, "{a:#x} to {b:#x}");
    }
}

#[test]
fn near_includes_its_limits_on_both_sides() {
    for base in [0, 5, 0x8000_0000, u32::MAX] {
        for (offset, expected) in [(0, true), (9, true), (10, true), (11, false)] {
            assert_eq!(near(base.wrapping_add(offset), base, 10), expected);
            assert_eq!(near(base.wrapping_sub(offset), base, 10), expected);
        }
        // The far side of the circle has no side: it is 2^31 away, not near.
        assert!(!near(base.wrapping_add(1 << 31), base, (1 << 31) - 1));
        assert!(near(base.wrapping_add(1 << 31), base, 1 << 31));
    }
}

proptest! {
    #[test]
    fn what_is_added_is_the_distance(base: u32, step in 0..=i32::MAX.cast_unsigned()) {
        let moved = base.wrapping_add(step);
        prop_assert_eq!(distance(moved, base), step.cast_signed());
        prop_assert_eq!(distance(base, moved), -step.cast_signed());
        prop_assert_eq!(after(moved, base), step != 0);
        prop_assert!(!after(base, moved));
        prop_assert!(near(moved, base, step) && near(base, moved, step));
        prop_assert!(step == 0 || !near(moved, base, step - 1));
    }
}
