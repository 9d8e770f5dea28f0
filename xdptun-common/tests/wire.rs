//! `wire`: headers as etherparse reads and writes them.

#[path = "common/oracle.rs"]
mod oracle;

use std::net::IpAddr;

use etherparse::{
    IpNumber, Ipv4Header as Ipv4Oracle, Ipv4HeaderSlice, Ipv6HeaderSlice, TcpHeaderSlice,
    TcpOptionElement, UdpHeader as UdpOracle,
};
use proptest::prelude::*;
use xdptun_common::address::{
    address_bytes, ip_addr, is_link_local, is_loopback, is_multicast_or_broadcast, is_unspecified,
};
use xdptun_common::checksum::Sum;
use xdptun_common::tunnel::options::{Offer, OptionWalk, SynOptions};
use xdptun_common::wire::{
    EtherType, EthernetHeader, Flags, Ip, IpFields, Ipv4Header, Ipv6Header, Protocol, TcpFields,
    TcpHeader, UdpHeader,
};
use xdptun_common::{bytes_of, read_plain};

proptest! {
    #[test]
    fn tcp_header(
        ports: (u16, u16), numbers: (u32, u32), window: u16, flags in 0u8..0x40,
        words in 0usize..=10, checksum: [u8; 2],
    ) {
        let header = TcpHeader::new(TcpFields {
            source: ports.0,
            destination: ports.1,
            sequence: numbers.0,
            acknowledgment: numbers.1,
            flags: Flags(flags),
            window,
            options_len: words * 4,
        })
        .with_checksum(checksum);
        let mut bytes = bytes_of(&header).to_vec();
        prop_assert_eq!(oracle::checksum(&bytes), header.sum().checksum());
        bytes.resize(header.header_len(), 0);
        let oracle = TcpHeaderSlice::from_slice(&bytes).expect("a whole header");
        prop_assert_eq!(ports, (oracle.source_port(), oracle.destination_port()));
        prop_assert_eq!(numbers, (oracle.sequence_number(), oracle.acknowledgment_number()));
        prop_assert_eq!(window, oracle.window_size());
        prop_assert_eq!(u16::from_be_bytes(checksum), oracle.checksum());
        prop_assert_eq!(oracle.slice().len(), 20 + words * 4);
        prop_assert_eq!(oracle.urgent_pointer(), 0);
        let bit = |flag: Flags| header.flags().contains(flag);
        prop_assert_eq!(bit(Flags::FIN), oracle.fin());
        prop_assert_eq!(bit(Flags::SYN), oracle.syn());
        prop_assert_eq!(bit(Flags::RST), oracle.rst());
        prop_assert_eq!(bit(Flags::PSH), oracle.psh());
        prop_assert_eq!(bit(Flags::ACK), oracle.ack());

        let again: TcpHeader = read_plain(&bytes).expect("twenty bytes");
        prop_assert_eq!(again, header);
        prop_assert_eq!((again.source(), again.destination()), ports);
        prop_assert_eq!((again.sequence(), again.acknowledgment()), numbers);
        prop_assert_eq!((again.window(), again.checksum()), (window, checksum));
    }

    #[test]
    fn udp_header(ports: (u16, u16), length: u16, checksum: [u8; 2]) {
        let header = UdpHeader::new(ports.0, ports.1, length, [0; 2]).with_checksum(checksum);
        let (oracle, _) = UdpOracle::from_slice(bytes_of(&header)).expect("eight bytes");
        prop_assert_eq!(oracle, UdpOracle {
            source_port: ports.0,
            destination_port: ports.1,
            length,
            checksum: u16::from_be_bytes(checksum),
        });
        prop_assert_eq!((header.source(), header.destination()), ports);
        prop_assert_eq!((header.length(), header.checksum()), (length, checksum));
    }

    /// A fresh IPv4 header: right checksum, no fragmentation, addresses in place.
    #[test]
    fn bare_ipv4(source: [u8; 4], destination: [u8; 4], len in 0u16..=65_515) {
        let header = Ipv4Header::bare(
            address_bytes(source.into()), address_bytes(destination.into()), Protocol::TCP, len,
        );
        prop_assert_eq!(header.payload_len(), Some(usize::from(len)));
        let mut bytes = bytes_of(&header).to_vec();
        let oracle = Ipv4HeaderSlice::from_slice(&bytes).expect("a whole header").to_header();
        prop_assert_eq!(oracle.header_checksum, oracle.calc_header_checksum());
        prop_assert_eq!((oracle.source, oracle.destination), (source, destination));
        prop_assert_eq!((oracle.total_len, oracle.protocol.0), (len + 20, 6));
        prop_assert!(oracle.dont_fragment && !oracle.is_fragmenting_payload());
        prop_assert_eq!(oracle.time_to_live, 64);

        let pseudo = [&source[..], &destination, &[0, 6], &len.to_be_bytes()].concat();
        prop_assert_eq!(header.pseudo_header(Protocol::TCP, len).checksum(), oracle::checksum(&pseudo));

        // Changed in place, it equals one made so.
        let shorter = len / 2;
        let changed = header.with_payload(Protocol::UDP, shorter);
        prop_assert_eq!(changed, Ipv4Header::bare(header.source(), header.destination(), Protocol::UDP, shorter));
        bytes.copy_from_slice(bytes_of(&changed));
        prop_assert_eq!(oracle::sum(&bytes), 0xffff);
    }

    #[test]
    fn bare_ipv6(source: [u8; 16], destination: [u8; 16], len: u16) {
        let header = Ipv6Header::bare(source, destination, Protocol::TCP, len);
        prop_assert_eq!(header.payload_len(), Some(usize::from(len)));
        let oracle = Ipv6HeaderSlice::from_slice(bytes_of(&header)).expect("a whole header").to_header();
        prop_assert_eq!((oracle.source, oracle.destination), (source, destination));
        prop_assert_eq!((oracle.payload_length, oracle.next_header.0, oracle.hop_limit), (len, 6, 64));
        prop_assert_eq!(u32::from(oracle.flow_label), 0);

        let pseudo = [&source[..], &destination, &[0, 0], &len.to_be_bytes(), &[0, 0, 0, 6]].concat();
        prop_assert_eq!(header.pseudo_header(Protocol::TCP, len).checksum(), oracle::checksum(&pseudo));
        prop_assert_eq!(
            header.with_payload(Protocol::UDP, len / 2),
            Ipv6Header::bare(source, destination, Protocol::UDP, len / 2),
        );
    }

    /// Options are put before the payload and taken away again; the checksum is
    /// that of header and options.
    #[test]
    fn ipv4_with_options(
        source: [u8; 4], destination: [u8; 4], fields: (u8, u16, u8), len in 0u16..=65_475,
        words in prop::collection::vec(any::<[u8; 4]>(), 0..=10),
    ) {
        let (tos, identification, ttl) = fields;
        let options = words.concat();
        let build = |protocol: IpNumber, options: &[u8]| {
            let mut ip = Ipv4Oracle::new(len, ttl, protocol, source, destination).expect("fits");
            ip.dscp = (tos >> 2).try_into().expect("six bits");
            ip.ecn = (tos & 3).try_into().expect("two bits");
            ip.identification = identification;
            ip.options = options.try_into().expect("whole words");
            ip.set_payload_len(len.into()).expect("fits");
            ip.header_checksum = ip.calc_header_checksum();
            ip.to_bytes().to_vec()
        };
        let plain: Ipv4Header = read_plain(&build(IpNumber::UDP, &[])).expect("twenty bytes");
        let sum = Sum::new().bytes(&options);
        for (protocol, oracle) in [(Protocol::UDP, IpNumber::UDP), (Protocol::TCP, IpNumber::TCP)] {
            let with = plain.with_options(protocol, options.len(), sum, len);
            prop_assert_eq!(bytes_of(&with), &build(oracle, &options)[..20]);
            prop_assert_eq!(with.header_len(), 20 + options.len());
            prop_assert_eq!(with.payload_len(), Some(usize::from(len)));
        }
        let with: Ipv4Header = read_plain(&build(IpNumber::UDP, &options)).expect("a header");
        let without = with.with_options(Protocol::UDP, 0, Sum::new().without(sum), len);
        prop_assert_eq!(without, plain);
        let quoted = with.with_options(Protocol::UDP, 0, Sum::new(), len);
        prop_assert_eq!(quoted.with_fresh_checksum(), plain);

        // What was damaged on the way stays so.
        let mut damaged = build(IpNumber::UDP, &options);
        damaged[8] ^= 1;
        let damaged: Ipv4Header = read_plain(&damaged).expect("a header");
        let without = damaged.with_options(Protocol::TCP, 0, Sum::new().without(sum), len);
        prop_assert_ne!(oracle::sum(bytes_of(&without)), 0xffff);
        prop_assert_ne!(without.with_fresh_checksum(), without);
    }

    #[test]
    fn ipv6_with_options(
        source: [u8; 16], destination: [u8; 16], next: u8, units in 0usize..=8, len in 0u16..=65_471,
    ) {
        let plain = Ipv6Header::bare(source, destination, Protocol::UDP, len);
        let with = plain.with_options(Protocol(next), units * 8, Sum::new(), len);
        let oracle = Ipv6HeaderSlice::from_slice(bytes_of(&with)).expect("a header").to_header();
        prop_assert_eq!(usize::from(oracle.payload_length), usize::from(len) + units * 8);
        prop_assert_eq!(oracle.next_header.0, next);
        prop_assert_eq!((oracle.source, oracle.destination), (source, destination));
        prop_assert_eq!(with.with_options(Protocol::UDP, 0, Sum::new(), len), plain);
        prop_assert_eq!(plain.with_fresh_checksum(), plain);
    }

    #[test]
    fn an_address_survives_sixteen_bytes(v4: [u8; 4], v6: [u8; 16]) {
        let v4 = IpAddr::from(v4);
        prop_assert_eq!(ip_addr(address_bytes(v4)), v4);
        let v6 = IpAddr::from(v6);
        prop_assert_eq!(ip_addr(address_bytes(v6)), v6.to_canonical());
    }
}

#[test]
fn syn_options_are_those_of_linux() {
    let noop = || Ok(TcpOptionElement::Noop);
    let sack = || Ok(TcpOptionElement::SelectiveAcknowledgementPermitted);
    let scale = || Ok(TcpOptionElement::WindowScale(7));
    for mss in [0, 88, 1440, 1460, 8948, u16::MAX] {
        for (offer, rest) in [
            (Offer(0), vec![]),
            (Offer::SACK, vec![noop(), noop(), sack()]),
            (Offer::SCALE, vec![noop(), scale()]),
            (Offer::OURS, vec![noop(), noop(), sack(), noop(), scale()]),
            (Offer::ECN, vec![]),
        ] {
            let options = SynOptions::new(mss, 7, offer);
            let (sent, unused) = bytes_of(&options).split_at(offer.options_len());
            let header = TcpHeader::new(TcpFields {
                source: 1,
                destination: 2,
                sequence: 3,
                acknowledgment: 4,
                flags: Flags::SYN,
                window: 5,
                options_len: sent.len(),
            });
            let bytes = [bytes_of(&header), sent].concat();
            let oracle = TcpHeaderSlice::from_slice(&bytes).expect("header and options");
            let elements: Vec<_> = oracle.options_iterator().collect();
            let expected = [vec![Ok(TcpOptionElement::MaximumSegmentSize(mss))], rest].concat();
            assert_eq!(elements, expected, "{offer:?}");
            assert_eq!(options.sum().checksum(), oracle::checksum(sent));
            assert!(unused.iter().all(|byte| *byte == 0), "{offer:?}");
        }
    }
}

proptest! {
    /// Whatever the bytes are, the walk ends within them.
    #[test]
    fn a_walk_over_options_stays_within_them(bytes in prop::collection::vec(0u8..8, 0..=40)) {
        let mut walk = OptionWalk::BEGIN;
        let mut steps = 0;
        while walk.step(bytes.len(), |at| bytes.get(at).copied()) {
            steps += 1;
            prop_assert!(walk.at <= bytes.len() && steps <= OptionWalk::MOST);
        }
    }

    /// IP header fields change as they are told, and nothing else does.
    #[test]
    fn fields_of_ip_headers(class: u8, hop_limit: u8, identification: u16, label in 0u32..1 << 20) {
        let fields = IpFields { class, hop_limit, identification, label };
        let address = |last: u8| address_bytes([10, 0, 0, last].into());
        let bare = Ipv4Header::bare(address(1), address(2), Protocol::TCP, 40);
        let v4 = bare.with_fields(fields);
        prop_assert_eq!(v4.fields(), IpFields { label: 0, ..fields });
        prop_assert_eq!(oracle::sum(bytes_of(&v4)), 0xffff);
        prop_assert_eq!(v4.with_fields(bare.fields()), bare);
        prop_assert_eq!(v4.with_label(label), v4);
        prop_assert!(v4.has_df());

        let bare = Ipv6Header::bare([1; 16], [2; 16], Protocol::TCP, 40);
        let v6 = bare.with_fields(fields);
        prop_assert_eq!(v6.fields(), IpFields { identification: 0, ..fields });
        prop_assert_eq!(v6.with_fields(bare.fields()), bare);
        prop_assert_eq!(bare.with_label(label).fields().label, label);
        prop_assert!(v6.has_df());
        prop_assert_eq!(v6.with_df(false), v6);
    }

    /// DF becomes what it is told to be, other flags stay, and the checksum stays as right
    /// or wrong as it was.
    #[test]
    fn df_of_an_ipv4_header(
        flags in 0u8..8, wrong in prop_oneof![Just(0), any::<u16>()], df: bool,
    ) {
        let address = |last: u8| address_bytes([10, 0, 0, last].into());
        let bare = Ipv4Header::bare(address(1), address(2), Protocol::TCP, 40);
        let mut bytes = bytes_of(&bare).to_vec();
        bytes[6] = flags << 5;
        bytes[10..12].fill(0);
        let sum = u16::from_be_bytes(oracle::checksum(&bytes)) ^ wrong;
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        let header: Ipv4Header = read_plain(&bytes).expect("twenty bytes");
        let header = header.with_df(df);
        prop_assert_eq!(header.has_df(), df);
        let after = bytes_of(&header);
        prop_assert_eq!(after[6] & !0x40, bytes[6] & !0x40);
        prop_assert_eq!(oracle::sum(after) == 0xffff, oracle::sum(&bytes) == 0xffff);
        bytes[6] = after[6];
        bytes[10..12].copy_from_slice(&after[10..12]);
        prop_assert_eq!(after, &bytes[..]);
    }
}

#[test]
fn addresses_of_more_than_one_host() {
    let table = [
        ("224.0.0.1", true),
        ("239.255.255.255", true),
        ("255.255.255.255", true),
        ("255.255.255.254", false),
        ("223.255.255.255", false),
        ("240.0.0.1", false),
        ("10.0.0.255", false),
        ("ff02::1", true),
        ("ff00::", true),
        ("fe80::1", false),
        ("::ffff:0:1", false),
        ("e000::ffff", false),
    ];
    for (address, expected) in table {
        let bytes = address_bytes(address.parse().expect("an address"));
        assert_eq!(is_multicast_or_broadcast(bytes), expected, "{address}");
    }
}

#[test]
fn addresses_of_no_host_on_a_link() {
    // Address, whether it is unspecified, whether it is of the loopback.
    let table = [
        ("0.0.0.0", true, false),
        ("0.255.255.255", true, false),
        ("1.0.0.0", false, false),
        ("126.255.255.255", false, false),
        ("127.0.0.0", false, true),
        ("127.255.255.255", false, true),
        ("128.0.0.0", false, false),
        ("::", true, false),
        ("::1", false, true),
        ("::2", false, false),
        ("::1:0:0", false, false),
        ("1::", false, false),
        ("1::1", false, false),
    ];
    for (address, unspecified, loopback) in table {
        let bytes = address_bytes(address.parse().expect("an address"));
        assert_eq!(is_unspecified(bytes), unspecified, "{address}");
        assert_eq!(is_loopback(bytes), loopback, "{address}");
    }
}

#[test]
fn addresses_of_a_link() {
    let table = [
        ("fe7f:ffff::", false),
        ("fe80::", true),
        ("febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true),
        ("fec0::", false),
        ("169.254.0.1", false),
    ];
    for (address, expected) in table {
        let bytes = address_bytes(address.parse().expect("an address"));
        assert_eq!(is_link_local(bytes), expected, "{address}");
    }
}

#[test]
fn ethernet_header() {
    let bytes = *b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02\x86\xdd";
    let header: EthernetHeader = read_plain(&bytes).expect("fourteen bytes");
    assert_eq!(header.ether_type(), EtherType::IPV6);
    assert_eq!(
        bytes_of(&header.reversed()),
        b"\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x86\xdd"
    );
    assert_eq!(header.reversed().reversed(), header);
    assert_eq!(header.to_bytes(), bytes);
    assert_eq!(
        EthernetHeader::nameless(EtherType::IPV4).to_bytes(),
        *b"\0\0\0\0\0\0\0\0\0\0\0\0\x08\0"
    );
}

#[test]
fn flags_are_named_for_people() {
    let table = [
        (Flags(0), "{}"),
        (Flags::SYN, r#"{"SYN"}"#),
        (Flags::SYN | Flags::ACK, r#"{"SYN", "ACK"}"#),
        (Flags::PSH | Flags::ACK, r#"{"PSH", "ACK"}"#),
        (Flags::FIN | Flags::ACK, r#"{"FIN", "ACK"}"#),
        (Flags::RST, r#"{"RST"}"#),
    ];
    for (flags, expected) in table {
        assert_eq!(format!("{flags:?}"), expected);
    }
    assert!((Flags::SYN | Flags::ACK).contains(Flags::ACK));
    assert!(!Flags::SYN.contains(Flags::SYN | Flags::ACK));
    assert!(Flags::SYN.intersects(Flags::SYN | Flags::ACK));
}

#[test]
fn a_record_is_not_read_beyond_the_end() {
    let bytes = [1u8; 24];
    for len in 0..bytes.len() {
        assert_eq!(read_plain::<UdpHeader>(&bytes[..len]).is_some(), len >= 8);
        assert_eq!(read_plain::<TcpHeader>(&bytes[..len]).is_some(), len >= 20);
    }
}
