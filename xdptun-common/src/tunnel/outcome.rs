//! Counters, and the fate of a packet with each outcome.
//!
//! Every packet that concerns xdptun ends in exactly one [`Outcome`], and the
//! outcome decides both the verdict and the counter, so the two cannot drift.
//! [`Sent`] counts the control segments that leave, beside the outcomes.

use crate::report::outcome::{IN_ROW, counters, outcomes};

outcomes! {
    /// How a packet that concerns xdptun ended.
    Outcome, first 0;
    TxDisguised "tx_disguised" Pass "Datagrams sent as TCP segments." "";
    TxQueued "tx_queued" Hold "Datagrams handed to the daemon to wait for the handshake." "";
    TxOpened "tx_opened" Pass "Datagrams that caused a SYN; the datagram itself waits with the daemon." "";
    TxOpenedLost "tx_opened_lost" PassEmpty "Datagrams that caused a SYN and were lost, because the daemon's queue was full or the daemon is gone." "Look whether the daemon runs (`xdptun status`); without it, start it again: `xdptun attach` goes on with what is attached.";
    TxLost "tx_lost" Lose "Datagrams lost before the handshake ended, because the daemon's queue was full or the daemon is gone." "Look whether the daemon runs (`xdptun status`). If it does, the program sends faster than the handshake ends: nothing to do unless it goes on.";
    TxRequested "tx_requested" Pass "Control segments sent for the daemon or for ingress." "";
    TxNotRequested "tx_not_requested" Consume "Requests for control segments that no flow needed any more." "";
    TxDropMalformed "tx_drop_malformed" Lose "Datagrams dropped because their length fields contradict each other or the packet." "Some program writes raw packets with wrong lengths; look for it with tcpdump on this interface.";
    TxSplit "tx_split" Split "UDP GSO super-packets sent to be split; their datagrams are counted when they come back." "";
    TxDropSuperPacket "tx_drop_super_packet" Lose "UDP GSO super-packets dropped because there is no splitter." "The splitter could not be made. Switch UDP GSO off in the program (wireguard-go, QUIC), or look why veth devices cannot be made here.";
    TxTooBig "tx_too_big" Return "Datagrams whose segment would exceed the MTU; their sender was told by ICMP." "If it goes on, lower the MTU inside the tunnel to what `xdptun attach` prints.";
    TxDropFragment "tx_drop_fragment" Lose "Fragments dropped: half a datagram cannot become a segment." "Lower the MTU inside the tunnel (wg0.conf: `MTU = ...`) to what `xdptun attach` prints. If it is that small already, a link on the way is narrower than this interface (`rx_icmp` grew): lower it further.";
    TxDropVlan "tx_drop_vlan" Lose "Datagrams dropped because they carry a VLAN tag." "Attach to the VLAN's own device, for example eth0.100.";
    TxDropOptions "tx_drop_options" Lose "Datagrams dropped because of IPv6 extension headers, or options of more than 64 bytes, that cannot be carried." "The sender asks for a route, authentication or very long options; send without.";
    TxDropTooBig "tx_drop_too_big" Lose "Datagrams dropped because the segment would exceed the MTU; their sender was not told, because too many were." "As for tx_too_big: lower the MTU inside the tunnel.";
    TxDropPending "tx_drop_pending" Lose "Datagrams without a checksum dropped because the device was to finish one inside them (VXLAN, Geneve), so that the segment's cannot be known." "Let the tunnel inside send checksums of its own (`udpcsum`), or switch its offload off: `ethtool -K vxlan0 tx off`.";
    TxDropDestination "tx_drop_destination" Lose "Datagrams dropped because they go to a multicast or broadcast address." "Only unicast can be a TCP connection; leave the port to something else if multicast needs it.";
    TxDropTableFull "tx_drop_table_full" Lose "Datagrams dropped because the flow table is full." "Attach with a larger `--max-flows`; `xdptun status` shows the flows.";
    TxDropOpening "tx_drop_opening" Lose "Datagrams dropped because a quarter of the flow table waits for answers to SYNs of this host, or because it opened more than 65,536 flows in 1.07 s on one CPU." "A program of this host, or behind it, sends to very many addresses; `xdptun flows --state syn-sent` shows where.";
    TxDropClosing "tx_drop_closing" Lose "Datagrams dropped because their flow is being closed." "";
    TxDropIcmp "tx_drop_icmp" Lose "ICMP errors dropped that leave and quote a datagram of a peer: on the wire it was a segment." "A peer calls a port that no program listens on, or this host does not forward to where the peer's datagrams go: see that the program runs. Or a link behind this host is narrower than the peer's datagrams: lower the MTU inside the tunnel there.";
    TxDropResize "tx_drop_resize" Lose "Datagrams dropped because the kernel refused to make room for the header." "The kernel is short of memory, or an acknowledgement was due for a packet with one inside (VXLAN) that came over a virtual device.";
    TxDropTooLong "tx_drop_too_long" Lose "Datagrams dropped because they are longer than 16,384 bytes and came without a complete checksum." "Let the program send shorter datagrams, or lower the MTU of the interface to 16,384 bytes.";
    TxDropAccess "tx_drop_access" Lose "Datagrams dropped because the kernel refused access to their bytes." "The kernel is short of memory.";
    RxRestored "rx_restored" Pass "Segments turned back into datagrams." "";
    RxSyn "rx_syn" Consume "SYNs received." "";
    RxSynAck "rx_syn_ack" Consume "SYN-ACKs that completed a handshake." "";
    RxAck "rx_ack" Consume "Acknowledgements without data." "";
    RxFin "rx_fin" Consume "FINs that ended a flow." "";
    RxRst "rx_rst" Consume "Resets that ended a flow." "Now and then after a peer was started anew. If it goes on, something on the way resets connections: look with tcpdump where the resets come from.";
    RxRefused "rx_refused" Consume "Resets that answered our SYN: from a host without xdptun there, or from a firewall." "Attach xdptun on the peer, to the interface and port that the peer is called at; let TCP to that port in, in every firewall before it.";
    RxToHost "rx_to_host" Pass "Segments of no flow, left to a TCP connection of this host or behind it or, with a secret, to its TCP server." "";
    RxIcmp "rx_icmp" Pass "ICMP errors about our segments, passed on as errors about the datagrams." "If large packets get lost, a link on the way is narrower than this interface: lower the MTU inside the tunnel.";
    RxDropIcmp "rx_drop_icmp" Lose "ICMP errors dropped because they do not prove that their sender saw a segment of this host, are damaged or fragmented, or would change the route to a peer." "A few are late. Many are forged, or a router's about other traffic to a peer (ping, GRE), which xdptun cannot check: set the MTU of that traffic by hand.";
    RxDropPlainUdp "rx_drop_plain_udp" Lose "UDP datagrams dropped that came undisguised to an owned port." "The peer sends without xdptun: attach it there, to the interface and port that it sends from, or leave the peer out with `--peer`. `xdptun capture --drops` shows who sends.";
    RxDropMalformed "rx_drop_malformed" Lose "Segments dropped because their header contradicts itself or the packet." "Damaged or forged; if it goes on, look with tcpdump who sends them.";
    RxDropChecksum "rx_drop_checksum" Lose "Segments dropped because their checksum, or that of their IPv4 header, is wrong." "Damaged on the way, or forged; if it goes on, look with tcpdump whether a link or a device on the way damages packets.";
    RxDropAddress "rx_drop_address" Lose "Segments dropped because of an address: to all hosts of a link, or from or to an address that no connection can have." "Scans or forged. If the service is behind an address that this host neither has nor forwards to, add the address: `ip route add local 192.0.2.1 dev lo`.";
    RxDropChain "rx_drop_chain" Lose "IPv6 packets dropped because what they carry cannot be found: more than eight extension headers, or none that ends within the packet." "No host sends such; look with tcpdump where they come from.";
    RxDropFragment "rx_drop_fragment" Lose "Fragmented segments dropped." "Something on the way fragments in spite of DF, or the peer's xdptun is older than this one: lower the MTU inside the tunnel on the peer.";
    RxDropOptions "rx_drop_options" Lose "Segments dropped because of IPv6 extension headers, or options of more than 64 bytes, that cannot be carried." "As for tx_drop_options, at the peer or on the way.";
    RxSplit "rx_split" Split "Merged segments sent to be split; the single ones are counted when they come back." "";
    RxDropMerged "rx_drop_merged" Lose "Merged segments dropped because there is no splitter, or because generic XDP could not see that they are merged." "Switch GRO off (`ethtool -K eth0 gro off`, in generic XDP also rx-gro-hw and lro), or attach with `--ingress tc`.";
    RxDropNoFlow "rx_drop_no_flow" Lose "Segments dropped that belong to no flow." "Now and then when a flow begins or ends. Many at once are scans or forged.";
    RxDropUnproven "rx_drop_unproven" Lose "Segments dropped without an answer: no flow, no proof of the secret, and no TCP socket of this host." "Scans, or a peer without this secret, with another one, or whose clock is wrong by more than three minutes.";
    RxDropReset "rx_drop_reset" Lose "Resets dropped because their sequence number is not the expected one." "Forged or late; nothing to do.";
    RxDropFin "rx_drop_fin" Lose "FINs dropped because their sequence number is not the expected one." "Forged, or after a loss at the end of a flow; nothing to do.";
    RxDropSequence "rx_drop_sequence" Lose "Segments dropped because sequence or acknowledgement number is out of the window." "Forged or very late; if a flow stalls meanwhile, something on the way changes sequence numbers.";
    RxDropTableFull "rx_drop_table_full" Lose "Completed handshakes dropped because the flow table is full: the last sixteenth is for flows that this host opens." "Attach with a larger `--max-flows`; `xdptun status` shows the flows.";
    RxDropShare "rx_drop_share" Lose "Completed handshakes dropped because a quarter of the flow table, or for one address (IPv6: /64) a thirty-second, is taken by flows of peers that this host has not answered." "Strangers open flows and do not use them: nothing to do. If the host only receives, from very many peers, attach with a larger `--max-flows`.";
    RxDropResize "rx_drop_resize" Lose "Segments dropped because the kernel refused to change their size." "The kernel is short of memory.";
    RxDropAccess "rx_drop_access" Lose "Segments dropped because the kernel refused access to their bytes." "The kernel is short of memory.";
}

counters! {
    /// Control segments that left, and replies that were withheld.
    Sent, first Outcome::ALL.len() as u32;
    Syn "sent_syn" "SYNs sent." "";
    SynAck "sent_syn_ack" "SYN-ACKs sent." "";
    Ack "sent_ack" "Acknowledgements without data sent." "";
    ChallengeAck "sent_challenge_ack" "Challenge ACKs sent (RFC 5961)." "";
    Probe "sent_probe" "Keepalive probes sent." "";
    Fin "sent_fin" "FINs sent." "";
    Rst "sent_rst" "Resets sent." "";
    Limited "replies_limited" "Replies withheld: the CPU has reached their rate limit, or the flow has given the same answer too often (16 at once, then one in 0.1 s)." "A flood, or guesses at a flow; nothing to do unless flows are slow to open.";
}

/// How many counters there are.
pub const COUNTERS: u32 = (Outcome::ALL.len() + Sent::ALL.len()) as u32;

const _: () = assert!(COUNTERS <= IN_ROW);

impl Outcome {
    /// Whether a segment with this outcome shows that the peer has the flow.
    #[inline(always)]
    #[must_use]
    pub const fn is_sign_of_life(self) -> bool {
        matches!(
            self,
            Self::RxRestored | Self::RxSynAck | Self::RxAck | Self::RxFin
        )
    }
}
