//! A damaged IPv4 header stays damaged: the stack, which comes after the
//! programs on the way in, must find it.

use etherparse::Ipv4Header;
use xdptun_test_datapath::packet::payload;
use xdptun_test_datapath::{Family, Moment, Packet, Path, Program, Skb};

use crate::datapath;
use crate::restored::segment;

/// Where the fields of the header are in a frame that do not tell where it
/// goes, or how long it is.
const FIELDS: [usize; 5] = [15, 18, 19, 22, 24];

#[test]
fn a_damaged_ip_header_stays_damaged() {
    let path = Path::client(Family::V4);
    let mut datapath = datapath();
    let mut repaired = Vec::new();
    for words in [0, 1, 5, 10] {
        let flow = path.established(Moment::now());
        let with_options = |packet: Packet| packet.payload(payload(40)).ip_options(words);
        let (out, back) = (with_options(path.outbound()), with_options(path.inbound()));
        for (program, frame) in [
            (Program::Egress, out.bytes()),
            (Program::Ingress, segment(&flow, &back).bytes()),
        ] {
            for field in FIELDS {
                let mut frame = frame.clone();
                frame[field] ^= 0x10;
                datapath.reset();
                datapath.set_flows([(&path.key(), &flow)]);
                let ran = datapath.run(program, &frame, Skb::default());
                assert_eq!(ran.verdict, u32::MAX);
                assert_ne!(ran.packet.len(), frame.len(), "translated");
                let (header, _) = Ipv4Header::from_slice(&ran.packet[14..]).expect("a header");
                if header.header_checksum == header.calc_header_checksum() {
                    repaired.push(format!("{program:?}, {words} words, byte {field}"));
                }
            }
        }
    }
    assert!(repaired.is_empty(), "repaired: {repaired:#?}");
}
