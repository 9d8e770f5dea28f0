//! `translate`: datagram to segment and back, against etherparse and a bytewise sum.

#[path = "common/datagram.rs"]
mod datagram;
#[path = "common/oracle.rs"]
mod oracle;

use datagram::{Network, network};
use etherparse::{NetHeaders, PacketHeaders, TcpHeader as TcpOracle, TransportHeader};
use proptest::prelude::*;
use xdptun_common::bytes_of;
use xdptun_common::checksum::Sum;
use xdptun_common::parse::Bytes as _;
use xdptun_common::tunnel::translate::{GROWTH, Numbers, PayloadSum, disguise, restore};
use xdptun_common::tunnel::window::window;
use xdptun_common::wire::{Ip, Ipv4Header, Ipv6Header, Protocol, TcpHeader, UdpHeader};

const NUMBERS: Numbers = Numbers {
    sequence: 0xfeed_c0de,
    acknowledgment: 0x0bad_cafe,
    window: 0xf042,
};

fn numbers() -> impl Strategy<Value = Numbers> {
    any::<(u32, u32)>().prop_map(|(sequence, acknowledgment)| Numbers {
        sequence,
        acknowledgment,
        window: window(acknowledgment),
    })
}

fn headers<I: Ip>(datagram: &[u8]) -> (I, UdpHeader, &[u8]) {
    let read = "a datagram has both headers";
    (
        datagram.read(0).expect(read),
        datagram.read(I::LEN).expect(read),
        &datagram[I::LEN + UdpHeader::LEN..],
    )
}

/// The packet that goes out for `datagram`.
fn disguised<I: Ip>(datagram: &[u8], sum: PayloadSum, numbers: Numbers) -> Vec<u8> {
    let (ip, udp, payload) = headers::<I>(datagram);
    let (ip, tcp) = disguise(ip, udp, sum, numbers);
    [bytes_of(&ip), bytes_of(&tcp), payload].concat()
}

/// The packet that `segment` becomes; `None` if it has an impossible data offset.
fn restored<I: Ip>(segment: &[u8]) -> Option<Vec<u8>> {
    let read = "a segment has both headers";
    let ip: I = segment.read(0).expect(read);
    let tcp: TcpHeader = segment.read(I::LEN).expect(read);
    let bytes = &segment[I::LEN..];
    let options = bytes.get(TcpHeader::LEN..tcp.header_len()).unwrap_or(&[]);
    let (ip, udp) = restore(ip, tcp, bytes.len(), Sum::new().bytes(options))?;
    Some([bytes_of(&ip), bytes_of(&udp), &bytes[tcp.header_len()..]].concat())
}

/// Pseudo-header and transport bytes in one, for the bytewise sum. Length and
/// protocol are the last eight bytes for IPv6; for IPv4, leading zeros add nothing.
fn transport_sum<I: Ip>(packet: &[u8], protocol: Protocol) -> u16 {
    let addresses = match I::LEN {
        20 => &packet[12..20],
        _ => &packet[8..40],
    };
    let transport = &packet[I::LEN..];
    let len = u32::try_from(transport.len()).expect("an IP packet is short");
    let tail = [len.to_be_bytes(), [0, 0, 0, protocol.0]].concat();
    oracle::sum(&[addresses, &tail, transport].concat())
}

/// Whether an IP packet is IPv4 without DF.
fn is_without_df(packet: &[u8]) -> bool {
    packet[0] >> 4 == 4 && packet[6] & 0x40 == 0
}

/// What etherparse has to say of the segment of `datagram`: all lengths, both checksums.
#[track_caller]
fn assert_valid_segment(packet: &[u8], numbers: Numbers, datagram: &[u8], payload: &[u8]) {
    let parsed = PacketHeaders::from_ip_slice(packet).expect("a valid packet");
    let Some(TransportHeader::Tcp(tcp)) = &parsed.transport else {
        panic!("not TCP: {parsed:?}");
    };
    assert_eq!(parsed.payload.slice(), payload);
    let checksum = match &parsed.net {
        Some(NetHeaders::Ipv4(ip, _)) => {
            assert_eq!(usize::from(ip.total_len), packet.len());
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            tcp.calc_checksum_ipv4(ip, payload)
        }
        Some(NetHeaders::Ipv6(ip, _)) => {
            assert_eq!(usize::from(ip.payload_length), packet.len() - 40);
            tcp.calc_checksum_ipv6(ip, payload)
        }
        other => panic!("not IP: {other:?}"),
    };
    // Of its two zeros, etherparse may have the one that UDP sends.
    let checksum = match checksum.expect("the payload fits") {
        0xffff => 0,
        checksum => checksum,
    };
    assert_eq!(tcp.checksum, checksum);
    let expected = TcpOracle {
        source_port: tcp.source_port,
        destination_port: tcp.destination_port,
        sequence_number: numbers.sequence,
        acknowledgment_number: numbers.acknowledgment,
        psh: true,
        ack: true,
        window_size: numbers.window & !0x0200 | u16::from(is_without_df(datagram)) << 9,
        checksum: tcp.checksum,
        ..TcpOracle::default()
    };
    assert_eq!(tcp, &expected);
    assert!(!is_without_df(packet));
}

/// The whole way of one datagram; returns its segment.
#[track_caller]
fn assert_round_trip<I: Ip>(datagram: &[u8], numbers: Numbers) -> Vec<u8> {
    let (ip, _, payload) = headers::<I>(datagram);
    let segment = disguised::<I>(datagram, PayloadSum::InUdpChecksum, numbers);
    let known = PayloadSum::Known(Sum::new().bytes(payload));
    assert_eq!(segment, disguised::<I>(datagram, known, numbers));
    assert_eq!(segment.len(), datagram.len() + GROWTH);
    assert_valid_segment(&segment, numbers, datagram, payload);
    assert_eq!(transport_sum::<I>(&segment, Protocol::TCP), 0xffff);
    // Of the IP header, only length, protocol, DF and checksum differ.
    let (changed, ..) = headers::<I>(&segment);
    assert_eq!(
        (changed.source(), changed.destination()),
        (ip.source(), ip.destination())
    );
    let differing = (0..I::LEN).filter(|at| segment[*at] != datagram[*at]);
    let may_differ: &[usize] = if I::LEN == 20 {
        &[2, 3, 6, 9, 10, 11]
    } else {
        &[4, 5, 6]
    };
    for at in differing {
        assert!(
            may_differ.contains(&at),
            "byte {at} of the IP header changed"
        );
    }
    assert_eq!(
        segment[I::LEN..I::LEN + 4],
        datagram[I::LEN..I::LEN + 4],
        "ports"
    );

    assert_eq!(restored::<I>(&segment).as_deref(), Some(datagram));
    segment
}

/// A reproducible sequence of bytes without pattern (xorshift).
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut next = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0.to_be_bytes()[3]
        };
        (0..len).map(|_| next()).collect()
    }
}

#[test]
fn every_length_makes_the_round_trip() {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    let network = Network::example();
    let jumbo = [8_960, 8_961, 32_767, 65_475, 65_483, 65_495];
    for len in (0..=1460).chain(jumbo) {
        let payload = noise.bytes(len);
        // 20 + 20 + 65,495 is the longest IPv4 packet; IPv6 does not count its header.
        assert_round_trip::<Ipv4Header>(&network.ipv4_datagram(&payload), NUMBERS);
        assert_round_trip::<Ipv6Header>(&network.ipv6_datagram(&payload), NUMBERS);
    }
    let longest = network.ipv6_datagram(&noise.bytes(65_515));
    assert_round_trip::<Ipv6Header>(&longest, NUMBERS);
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(0x00), Just(0xff), any::<u8>()];
    prop::collection::vec(byte, 0..80)
}

/// A segment like `segment` into which a middlebox put TCP options: longer data
/// offset, checksum updated.
fn with_options<I: Ip>(segment: &[u8], options: &[u8]) -> Vec<u8> {
    assert_eq!(options.len() % 4, 0);
    let after = I::LEN + TcpHeader::LEN;
    let mut longer = [&segment[..after], options, &segment[after..]].concat();
    let len = u16::try_from(longer.len()).expect("fits");
    if I::LEN == 20 {
        longer[2..4].copy_from_slice(&len.to_be_bytes());
        longer[10..12].fill(0);
        let checksum = oracle::checksum(&longer[..20]);
        longer[10..12].copy_from_slice(&checksum);
    } else {
        longer[4..6].copy_from_slice(&(len - 40).to_be_bytes());
    }
    let words = u8::try_from((TcpHeader::LEN + options.len()) / 4).expect("at most fifteen");
    longer[I::LEN + 12] = words << 4;
    longer[I::LEN + 16..I::LEN + 18].fill(0);
    let checksum = (!transport_sum::<I>(&longer, Protocol::TCP)).to_be_bytes();
    longer[I::LEN + 16..I::LEN + 18].copy_from_slice(&checksum);
    longer
}

/// Options do not reach the datagram.
fn options_are_left_out<I: Ip>(datagram: &[u8], options: &[u8], numbers: Numbers) {
    let segment = disguised::<I>(datagram, PayloadSum::InUdpChecksum, numbers);
    let longer = with_options::<I>(&segment, options);
    assert_eq!(restored::<I>(&longer).as_deref(), Some(datagram));
}

/// A datagram without a checksum arrives with the one it would have had.
fn zero_checksum_is_filled_in<I: Ip>(datagram: &[u8], numbers: Numbers) {
    let at = I::LEN + UdpHeader::CHECKSUM_OFFSET;
    let mut bare = datagram.to_vec();
    bare[at..at + 2].fill(0);
    let (_, _, payload) = headers::<I>(&bare);
    let known = PayloadSum::Known(Sum::new().bytes(payload));
    let segment = disguised::<I>(&bare, known, numbers);
    assert_valid_segment(&segment, numbers, datagram, payload);
    assert_eq!(restored::<I>(&segment).as_deref(), Some(datagram));
}

/// What was damaged on the way fails the check of the UDP stack.
fn damage_is_passed_on<I: Ip>(datagram: &[u8], at: prop::sample::Index, flip: u8) {
    let mut segment = disguised::<I>(datagram, PayloadSum::InUdpChecksum, NUMBERS);
    // Anywhere in TCP header or payload, except in the data offset and the ports, which
    // decide where the segment goes at all.
    let damaged: Vec<usize> = (I::LEN + 4..segment.len())
        .filter(|at| *at != I::LEN + 12)
        .collect();
    segment[damaged[at.index(damaged.len())]] ^= flip;
    let arrived = restored::<I>(&segment).expect("the data offset is whole");
    assert_ne!(transport_sum::<I>(&arrived, Protocol::UDP), 0xffff);
}

proptest! {
    #[test]
    fn any_datagram_makes_the_round_trip(network in network(), numbers in numbers(), payload in payload()) {
        assert_round_trip::<Ipv4Header>(&network.ipv4_datagram(&payload), numbers);
        assert_round_trip::<Ipv6Header>(&network.ipv6_datagram(&payload), numbers);
    }

    #[test]
    fn tcp_options_are_left_out(
        network in network(), numbers in numbers(), payload in payload(),
        words in prop::collection::vec(any::<[u8; 4]>(), 0..=10),
    ) {
        let options = words.concat();
        options_are_left_out::<Ipv4Header>(&network.ipv4_datagram(&payload), &options, numbers);
        options_are_left_out::<Ipv6Header>(&network.ipv6_datagram(&payload), &options, numbers);
    }

    #[test]
    fn a_missing_udp_checksum_is_filled_in(network in network(), numbers in numbers(), payload in payload()) {
        zero_checksum_is_filled_in::<Ipv4Header>(&network.ipv4_datagram(&payload), numbers);
        zero_checksum_is_filled_in::<Ipv6Header>(&network.ipv6_datagram(&payload), numbers);
    }

    #[test]
    fn damage_on_the_way_is_found_at_the_end(
        network in network(), payload in payload(), at: prop::sample::Index, flip in 1..=u8::MAX,
    ) {
        damage_is_passed_on::<Ipv4Header>(&network.ipv4_datagram(&payload), at, flip);
        damage_is_passed_on::<Ipv6Header>(&network.ipv6_datagram(&payload), at, flip);
    }

    #[test]
    fn an_impossible_data_offset_is_refused(network in network(), payload in payload(), words in 0u8..16) {
        let mut segment = network.ipv4_datagram(&payload);
        segment = disguised::<Ipv4Header>(&segment, PayloadSum::InUdpChecksum, NUMBERS);
        segment[Ipv4Header::LEN + 12] = words << 4;
        let header_len = usize::from(words) * 4;
        let possible = (TcpHeader::LEN..=TcpHeader::LEN + payload.len()).contains(&header_len);
        prop_assert_eq!(restored::<Ipv4Header>(&segment).is_some(), possible);
    }
}

/// A payload word that makes the checksum over everything else come out as `wanted`.
fn adjusted(sum_without: u16, wanted: [u8; 2]) -> [u8; 2] {
    // In one's complement: wanted = !(sum + word), so word = !wanted - sum.
    let target = u32::from(!u16::from_be_bytes(wanted));
    let word = (target + 0xffff - u32::from(sum_without)) % 0xffff;
    u16::try_from(word).expect("below 65535").to_be_bytes()
}

fn udp_checksum_of_all_ones_survives<I: Ip>(build: impl Fn(&[u8]) -> Vec<u8>) {
    let without = build(&[7, 0, 0, 9]);
    let mut cleared = without.clone();
    cleared[I::LEN + 6..I::LEN + 8].fill(0);
    let [a, b] = adjusted(transport_sum::<I>(&cleared, Protocol::UDP), [0, 0]);
    // The word goes where the zeros are, so it is split over two words.
    let datagram = build(&[7, b, a, 9]);
    let (_, udp, _) = headers::<I>(&datagram);
    assert_eq!(udp.checksum(), [0xff, 0xff], "the case is made");
    assert_round_trip::<I>(&datagram, NUMBERS);
}

/// A UDP checksum that adds up to zero is sent as 0xffff; it comes back as 0xffff.
#[test]
fn a_udp_checksum_of_all_ones_survives() {
    let network = Network::example();
    udp_checksum_of_all_ones_survives::<Ipv4Header>(|payload| network.ipv4_datagram(payload));
    udp_checksum_of_all_ones_survives::<Ipv6Header>(|payload| network.ipv6_datagram(payload));
}

fn tcp_checksum_of_zero_is_sent<I: Ip>(build: impl Fn(&[u8]) -> Vec<u8>) {
    let mut numbers = Numbers {
        acknowledgment: 0,
        ..NUMBERS
    };
    let datagram = build(b"payload");
    let mut segment = disguised::<I>(&datagram, PayloadSum::InUdpChecksum, numbers);
    segment[I::LEN + 16..I::LEN + 18].fill(0);
    let low = adjusted(transport_sum::<I>(&segment, Protocol::TCP), [0, 0]);
    numbers.acknowledgment = u16::from_be_bytes(low).into();
    let segment = assert_round_trip::<I>(&datagram, numbers);
    assert_eq!(
        segment[I::LEN + 16..I::LEN + 18],
        [0, 0],
        "the case is made"
    );
}

/// For TCP, zero is a checksum like any other.
#[test]
fn a_tcp_checksum_of_zero_is_sent_and_understood() {
    let network = Network::example();
    tcp_checksum_of_zero_is_sent::<Ipv4Header>(|payload| network.ipv4_datagram(payload));
    tcp_checksum_of_zero_is_sent::<Ipv6Header>(|payload| network.ipv6_datagram(payload));
}

/// IPv4 options stay where they are; only the length and protocol of the fixed
/// header change.
#[test]
fn the_ip_header_of_a_packet_with_options_stays_consistent() {
    let mut packet = Network::example().ipv4_datagram(b"data");
    packet.splice(20..20, [1u8; 8]);
    packet[0] = 0x47;
    packet[3] += 8;
    packet[10..12].fill(0);
    let checksum = oracle::checksum(&packet[..28]);
    packet[10..12].copy_from_slice(&checksum);

    let ip: Ipv4Header = packet.as_slice().read(0).expect("long enough");
    let changed = ip.with_payload(Protocol::TCP, 24);
    packet.splice(0..20, bytes_of(&changed).iter().copied());
    assert_eq!(oracle::sum(&packet[..28]), 0xffff);
    assert_eq!(packet[2..4], 52u16.to_be_bytes());
    assert_eq!(changed.payload_len(), Some(24));
}
