//! `checksum` against a byte-wise RFC 1071 sum and against etherparse.

#[path = "common/oracle.rs"]
mod oracle;

use etherparse::checksum::Sum16BitWords;
use proptest::prelude::*;
use xdptun_common::checksum::{LongSum, Sum};

/// One call on a [`Sum`] that adds something to it.
#[derive(Clone, Debug)]
enum Part {
    Word([u8; 2]),
    Words([u8; 4]),
    Number(u16),
    Address([u8; 16]),
    /// Of even length, so that more may follow.
    Bytes(Vec<u8>),
    /// A sum of its own, of even length.
    Combined(Vec<u8>),
    /// A value of several words.
    Long([u8; 40]),
    /// The shortest one.
    Short([u8; 4]),
}

impl Part {
    fn add_to(&self, sum: Sum) -> Sum {
        match self {
            Self::Word(word) => sum.word(*word),
            Self::Words(words) => sum.words(*words),
            Self::Number(number) => sum.number(*number),
            Self::Address(address) => sum.address(*address),
            Self::Bytes(bytes) => sum.bytes(bytes),
            Self::Combined(bytes) => sum.combine(Sum::new().bytes(bytes)),
            Self::Long(bytes) => sum.value(bytes),
            Self::Short(bytes) => sum.value(bytes),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Word(word) => word.to_vec(),
            Self::Words(words) => words.to_vec(),
            Self::Number(number) => number.to_be_bytes().to_vec(),
            Self::Address(address) => address.to_vec(),
            Self::Bytes(bytes) | Self::Combined(bytes) => bytes.clone(),
            Self::Long(bytes) => bytes.to_vec(),
            Self::Short(bytes) => bytes.to_vec(),
        }
    }
}

/// Bytes in which the values that carry (0x00, 0xff) are common.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0x00), Just(0xff), any::<u8>()]
}

fn even_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec([byte(), byte()], 0..40).prop_map(|pairs| pairs.concat())
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        [byte(), byte()].prop_map(Part::Word),
        prop::array::uniform4(byte()).prop_map(Part::Words),
        [byte(), byte()].prop_map(|bytes| Part::Number(u16::from_be_bytes(bytes))),
        prop::array::uniform16(byte()).prop_map(Part::Address),
        even_bytes().prop_map(Part::Bytes),
        even_bytes().prop_map(Part::Combined),
        prop::collection::vec(byte(), 40)
            .prop_map(|bytes| Part::Long(bytes.try_into().expect("forty bytes"))),
        prop::array::uniform4(byte()).prop_map(Part::Short),
    ]
}

proptest! {
    #[test]
    fn a_sum_is_right_at_any_offset(bytes: Vec<u8>, before in prop::collection::vec(Just(0), 0..4)) {
        let whole = [&*before, &*bytes].concat();
        prop_assert_eq!(
            Sum::new().bytes(&bytes).at(before.len()).checksum(),
            Sum::new().bytes(&whole).checksum()
        );
    }

    /// However the bytes are handed over, the checksum is that of all of them.
    #[test]
    fn every_way_to_add_equals_the_bytewise_sum(
        parts in prop::collection::vec(part(), 0..20),
        tail in prop::collection::vec(byte(), 0..9),
    ) {
        let sum = parts.iter().fold(Sum::new(), |sum, part| part.add_to(sum)).bytes(&tail);
        let mut bytes: Vec<u8> = parts.iter().flat_map(Part::bytes).collect();
        bytes.extend(&tail);
        prop_assert_eq!(sum.checksum(), oracle::checksum(&bytes));
        let etherparse = Sum16BitWords::new().add_slice(&bytes).ones_complement();
        prop_assert_eq!(sum.checksum(), etherparse.to_ne_bytes());
    }

    /// What was added and is taken away again leaves no trace.
    #[test]
    fn taking_away_undoes_adding(
        bytes in prop::collection::vec(1..=u8::MAX, 1..60),
        word in [byte(), byte()],
    ) {
        let sum = Sum::new().bytes(&bytes);
        let number = u16::from_be_bytes(word);
        prop_assert_eq!(sum.word(word).without_word(word).checksum(), sum.checksum());
        prop_assert_eq!(sum.without_word(word).word(word).checksum(), sum.checksum());
        prop_assert_eq!(sum.word(word).without_number(number).checksum(), sum.checksum());
        prop_assert_eq!(sum.number(number).without_word(word).checksum(), sum.checksum());
    }

    /// A sum that is taken away leaves what is not in it.
    #[test]
    fn taking_a_sum_away_leaves_the_rest(
        kept in prop::collection::vec((1..=u8::MAX, byte()).prop_map(<[u8; 2]>::from), 1..30),
        removed in even_bytes(),
    ) {
        let kept = kept.concat();
        let all = Sum::new().bytes(&kept).bytes(&removed);
        let rest = all.without(Sum::new().bytes(&removed));
        // What is left may be the other form of zero.
        let rest = match rest.checksum() {
            [0xff, 0xff] => [0, 0],
            checksum => checksum,
        };
        prop_assert_eq!(rest, oracle::checksum(&kept));
    }

    /// Sums that are themselves differences can be added and taken on from.
    #[test]
    fn sums_are_folded_only_at_the_end(
        kept in prop::collection::vec((1..=u8::MAX, byte()).prop_map(<[u8; 2]>::from), 1..30),
        others in prop::collection::vec(even_bytes(), 0..40),
    ) {
        let kept = kept.concat();
        let mut sum = Sum::new().bytes(&kept);
        for other in &others {
            sum = sum.combine(Sum::new().without(Sum::new().bytes(other)));
        }
        for other in &others {
            sum = sum.combine(Sum::new().bytes(other));
        }
        prop_assert_eq!(sum.checksum(), Sum::new().bytes(&kept).checksum());
    }

    /// Words of 64 bits give the sum that their halves give, also where every
    /// addition carries.
    #[test]
    fn long_words_add_up_as_their_halves(
        words in prop::collection::vec(prop_oneof![any::<u64>(), Just(u64::MAX), Just(0)], 0..300),
    ) {
        let long = words.iter().fold(LongSum::new(), |sum, &word| sum.long(word));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        prop_assert_eq!(long.sum().checksum(), Sum::new().bytes(&bytes).checksum());
    }

    /// `CHECKSUM_PARTIAL`: the field holds the folded sum itself, and a device
    /// that adds field and data gets the checksum of both.
    #[test]
    fn a_pending_checksum_is_finished_by_adding_the_data(
        pseudo in prop::collection::vec([byte(), byte()], 1..20),
        data in prop::collection::vec(byte(), 0..60),
    ) {
        let pseudo = pseudo.concat();
        let sum = Sum::new().bytes(&pseudo);
        prop_assert_eq!(sum.pending(), oracle::sum(&pseudo).to_be_bytes());
        let finished = oracle::checksum(&[&sum.pending(), &data[..]].concat());
        prop_assert_eq!(finished, sum.bytes(&data).checksum());
    }

    /// The kernel's form: 32 bits of which any folding gives the same sum.
    #[test]
    fn the_unfolded_sum_is_the_same_sum(bytes in even_bytes()) {
        let words = Sum::new().bytes(&bytes).unfolded().to_ne_bytes();
        prop_assert_eq!(oracle::sum(&words), oracle::sum(&bytes));
    }

    /// RFC 1624: replacing a word of a header without adding the header up.
    #[test]
    fn a_checksum_is_updated_in_place(
        header in prop::collection::vec(any::<u8>(), 20),
        word in any::<[u8; 2]>(),
        position in 0usize..10,
    ) {
        let at = position * 2;
        let mut replaced = header.clone();
        replaced[at..at + 2].copy_from_slice(&word);
        let updated = Sum::of_checksum(oracle::checksum(&header))
            .without_word([header[at], header[at + 1]])
            .word(word);
        // 0x0000 and 0xffff are the same number; only an all-zero header has the latter.
        prop_assume!(oracle::sum(&header) != 0 && oracle::sum(&replaced) != 0);
        prop_assert_eq!(updated.checksum(), oracle::checksum(&replaced));
    }

    /// Data with its checksum is intact, and no longer after any one bit flips.
    #[test]
    fn damage_of_one_bit_is_seen(
        mut bytes in prop::collection::vec(any::<u8>(), 0..60),
        bit in any::<prop::sample::Index>(),
    ) {
        let checksum = Sum::new().bytes(&bytes).checksum();
        prop_assert!(Sum::new().word(checksum).bytes(&bytes).is_intact());
        // The UDP form of the checksum verifies as well.
        let udp = Sum::new().bytes(&bytes).udp_checksum();
        prop_assert!(Sum::new().word(udp).bytes(&bytes).is_intact());

        bytes.splice(0..0, checksum);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!Sum::new().bytes(&bytes).is_intact());
    }
}

#[test]
fn a_checksum_field_stands_for_its_sum_in_every_value() {
    for value in 0..=u16::MAX {
        let field = value.to_be_bytes();
        let sum = Sum::of_checksum(field);
        assert_eq!(sum.checksum(), field);
        assert!(sum.word(field).is_intact(), "{value:#06x}");
        // Both forms of zero are the same number to whatever is added.
        assert_eq!(
            sum.words([0x12, 0x34, 0, 0]).checksum(),
            oracle::checksum(&[0x12, 0x34, (!field[0]), (!field[1])]),
            "{value:#06x}"
        );
    }
}

#[test]
fn both_forms_of_zero_mean_the_same() {
    for word in 1..=u16::MAX {
        let of = |field| Sum::of_checksum(field).number(word).checksum();
        assert_eq!(of([0, 0]), of([0xff, 0xff]), "{word:#06x}");
    }
}

#[test]
fn a_udp_checksum_is_never_zero() {
    for value in 0..=u16::MAX {
        let sum = Sum::new().number(value);
        let expected = match sum.checksum() {
            [0, 0] => [0xff, 0xff],
            checksum => checksum,
        };
        assert_eq!(sum.udp_checksum(), expected);
        assert_ne!(sum.udp_checksum(), [0, 0]);
    }
    // Zero by carry, too.
    assert_eq!(Sum::new().number(0xfffe).number(1).checksum(), [0, 0]);
    assert_eq!(
        Sum::new().number(0xfffe).number(1).udp_checksum(),
        [0xff; 2]
    );
}

#[test]
fn the_sum_of_nothing_is_not_intact() {
    assert_eq!(Sum::new().checksum(), [0xff, 0xff]);
    assert!(!Sum::new().is_intact());
    assert_eq!(Sum::new().udp_checksum(), [0xff, 0xff]);
}

/// The example of RFC 1071 section 3.
#[test]
fn the_example_of_the_rfc() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(
        Sum::new().bytes(&bytes).checksum(),
        (!0xddf2u16).to_be_bytes()
    );
}

/// Carries beyond 32 bits are folded in, not lost.
#[test]
fn the_largest_packet_of_the_largest_words_folds_right() {
    let mut sum = Sum::new();
    for _ in 0..1 << 18 {
        sum = sum.words([0xff; 4]);
    }
    sum = sum.number(0x1234);
    assert_eq!(sum.checksum(), (!0x1234u16).to_be_bytes());

    let bytes = vec![0xfe; 65_535];
    assert_eq!(
        Sum::new().bytes(&bytes).checksum(),
        oracle::checksum(&bytes)
    );
}
