//! Counters, and the fate of a packet with each outcome.
//!
//! Every packet that concerns xdptun ends in exactly one [`Outcome`], and the
//! outcome decides both the verdict and the counter, so the two cannot drift.
//! Beside the outcomes, [`Sent`] counts the control segments that leave, and [`GroStep`]
//! the restored datagrams on the detour through GRO.

use crate::report::outcome::{IN_ROW, counters, outcomes};

outcomes! {
    /// How a packet that concerns xdptun ended.
    Outcome, first 0;
    TxDisguised "tx_disguised" Pass "Datagrams sent as TCP segments." "";
    TxFragment "tx_fragment" Pass "Fragments of datagrams sent as TCP segments." "Datagrams are longer than the path takes, and each costs several segments: lower the MTU inside the tunnel to the number that `xdptun attach` prints.";
    TxAskedLost "tx_asked_lost" PassEmpty "Fragments, and data of WireGuard too long for one segment, lost because it was not known whether the peer's xdptun takes fragments: each became a probe, which asks that." "One or two for each flow that has fragments are normal. If the count keeps growing, see `tx_drop_fragment`.";
    TxQueued "tx_queued" Hold "Datagrams handed to the daemon, which keeps them until the handshake ends." "";
    TxOpened "tx_opened" Pass "Datagrams that opened a flow: each became the SYN; the daemon keeps a copy until the handshake ends." "";
    TxOpenedLost "tx_opened_lost" PassEmpty "Datagrams that opened a flow and were lost: each became the SYN, but it was a fragment, the daemon's queue was full, or the daemon is gone." "Fragments do not wait for the handshake; for others see in `xdptun status` whether the daemon runs. If it does not, start it again: `xdptun attach` goes on with what is attached.";
    TxLost "tx_lost" Lose "Datagrams lost before the handshake ended, because the daemon's queue was full or the daemon is gone." "See in `xdptun status` whether the daemon runs. If it does, the program sends faster than the handshake ends: nothing to do, except if the count keeps growing.";
    TxRequested "tx_requested" Pass "Control segments sent for the daemon or for ingress." "";
    TxNotRequested "tx_not_requested" Consume "Requests for control segments dropped because no flow needed the segment any more." "";
    TxDropMalformed "tx_drop_malformed" Lose "Datagrams dropped because their length fields contradict each other or the packet." "A program writes raw packets with wrong lengths: find it with tcpdump on this interface.";
    TxSplit "tx_split" Split "UDP GSO super-packets sent to the splitter; their datagrams are counted when they come back." "";
    TxDropSuperPacket "tx_drop_super_packet" Lose "UDP GSO super-packets dropped because there is no splitter." "xdptun could not make the splitter. Switch UDP GSO off in the program (wireguard-go, QUIC), or find out why this host cannot make veth devices.";
    TxTooBig "tx_too_big" Return "Datagrams and first fragments whose segment would exceed the MTU; xdptun told the sender by ICMP." "If the count keeps growing, lower the MTU inside the tunnel to the number that `xdptun attach` prints.";
    TxDropFragment "tx_drop_fragment" Lose "Fragments, and data of WireGuard too long for one segment, dropped because the flow was not open, the peer's xdptun has not said that it takes fragments, the first fragment of the datagram was dropped or sent back (`tx_too_big`), or options or other extension headers stand before it." "A few are normal when a flow begins. If `tx_asked_lost` grows as well, the peer's xdptun takes no fragments: update it, or lower the MTU inside the tunnel.";
    TxDropVlan "tx_drop_vlan" Lose "Datagrams dropped because they carry a VLAN tag." "Attach to the VLAN's own device, for example eth0.100.";
    TxDropOptions "tx_drop_options" Lose "Datagrams dropped because xdptun cannot carry their IPv6 extension headers, or their options of more than 64 bytes." "The sender uses a routing or authentication header, or very long options: send without them.";
    TxDropTooBig "tx_drop_too_big" Lose "Datagrams dropped because the segment would exceed the MTU; the sender was not told, because too many such errors were sent already." "As for tx_too_big: lower the MTU inside the tunnel.";
    TxDropPending "tx_drop_pending" Lose "Datagrams dropped because a packet inside has a checksum that the device was to finish (VXLAN, Geneve), and they have none themselves, or payloads are veiled." "Switch the offload of the tunnel inside off: `ethtool -K vxlan0 tx off`. Without a veil it is enough that it sends checksums of its own (`udpcsum`).";
    TxDropDestination "tx_drop_destination" Lose "Datagrams dropped because they go to a multicast or broadcast address." "Only unicast can become a TCP connection. If multicast needs this port, give xdptun another port.";
    TxDropTableFull "tx_drop_table_full" Lose "Datagrams dropped because the flow table is full." "Attach with a larger `--max-flows`; `xdptun status` shows the flows.";
    TxDropOpening "tx_drop_opening" Lose "Datagrams dropped because a quarter of the flow table waits for answers to SYNs of this host, or because this host opened more than 65,536 flows in 1.07 s on one CPU." "A program of this host, or behind it, sends to very many addresses; `xdptun flows --sort state` shows them, in the state `syn-sent`.";
    TxDropClient "tx_drop_client" Lose "Datagrams dropped because they go to a phantun peer without a connection, at a port that is not owned: such a peer is a client, and only it can open one." "If the peer is a phantun server, attach with its TCP port (`--port`). If it is a client, it sends first, and its phantun forgets the connection after 180 s of silence: let it send keepalives (WireGuard: `PersistentKeepalive = 25`).";
    TxDropClosing "tx_drop_closing" Lose "Datagrams dropped because their flow is being closed." "";
    TxDropIcmp "tx_drop_icmp" Lose "Outbound ICMP errors dropped because they quote a peer's datagram, which was a segment on the wire." "No program listens on the port that the peer uses: start it. Or this host cannot forward the datagram: add the route. Or a link behind this host is too narrow: lower the MTU inside the tunnel at the peer.";
    TxDropResize "tx_drop_resize" Lose "Datagrams dropped because the kernel refused to make room for the header." "The kernel is short of memory, or the packet's buffer cannot be changed. Or an acknowledgement was to be made from a packet with another one inside (VXLAN) that came over a virtual device.";
    TxDropTooLong "tx_drop_too_long" Lose "Datagrams dropped because they are longer than 16,384 bytes and came without a complete checksum." "Let the program send shorter datagrams, or lower the MTU of the interface to 16,384 bytes.";
    TxDropAccess "tx_drop_access" Lose "Datagrams dropped because the kernel refused access to their bytes." "The kernel is short of memory.";
    RxRestored "rx_restored" Pass "Segments turned back into datagrams." "";
    RxFragment "rx_fragment" Pass "Segments turned back into fragments of datagrams." "As for `tx_fragment`, at the peer.";
    RxSyn "rx_syn" Consume "SYNs received." "";
    RxSynAck "rx_syn_ack" Consume "SYN-ACKs that completed a handshake." "";
    RxAck "rx_ack" Consume "Acknowledgements without data." "";
    RxFin "rx_fin" Consume "FINs that ended a flow." "";
    RxRst "rx_rst" Consume "Resets that ended a flow." "A few are normal after a peer restarts. If the count keeps growing, a device on the path resets connections: find with tcpdump where the resets come from.";
    RxRefused "rx_refused" Consume "Resets in answer to a SYN of this host: from a host without xdptun on that port, or from a firewall." "Attach xdptun at the peer, to the interface and port that this host calls. Let TCP to that port in, in every firewall in front of the peer.";
    RxToHost "rx_to_host" Pass "Segments without a flow, passed on: they belong to a TCP connection of this host or a host behind it or, with a secret, to this host's TCP server." "";
    RxIcmp "rx_icmp" Pass "ICMP errors about segments of this host, passed on as errors about the datagrams." "If large packets get lost, a link on the path is narrower than this interface: lower the MTU inside the tunnel.";
    RxDropIcmp "rx_drop_icmp" Lose "ICMP errors dropped because they do not prove that their sender saw a segment of this host, because they are damaged or fragmented, or because they would change the route to a peer." "A few: they came late. Many: forged, or a router's errors about other traffic to the peer (ping, GRE), which xdptun cannot check; set that traffic's MTU by hand.";
    RxDropPlainUdp "rx_drop_plain_udp" Lose "UDP datagrams dropped because they came undisguised to an owned port." "The peer sends without xdptun. Attach it there, to the interface and port that the peer sends from, or exclude the peer: name only the others with `--peer`. `xdptun capture --drops` shows the sender.";
    RxDropMalformed "rx_drop_malformed" Lose "Segments dropped because their header contradicts itself or the packet." "Damaged or forged; under a veil, perhaps of another secret. If the count keeps growing, find the sender with tcpdump.";
    RxDropChecksum "rx_drop_checksum" Lose "Segments dropped because their checksum, or that of their IPv4 header, is wrong." "Damaged on the path, or forged. If the count keeps growing, check with tcpdump whether a link or a device on the path damages packets.";
    RxDropAddress "rx_drop_address" Lose "Segments dropped because they were sent to all hosts of a link, or because no connection can have their source or destination address." "A scan, or forged. If clients call an address that this host neither has nor forwards to, add the address: `ip route add local 192.0.2.1 dev lo`.";
    RxDropChain "rx_drop_chain" Lose "IPv6 packets dropped because they have more than eight extension headers, or one that does not end within the packet." "No ordinary host sends such packets: find with tcpdump where they come from.";
    RxDropFragment "rx_drop_fragment" Lose "Segments dropped because a device on the path cut them into IP fragments, or because they carry a fragment whose first did not come in the second before." "If `rx_fragment` grows as well, the path loses segments, or turns them round. If not, a device on the path fragments in spite of DF: lower the MTU inside the tunnel at the peer.";
    RxDropOptions "rx_drop_options" Lose "Segments dropped because xdptun cannot carry their IPv6 extension headers, or their options of more than 64 bytes." "As for tx_drop_options, at the peer or on the path.";
    RxSplit "rx_split" Split "Merged segments sent to the splitter; the single segments are counted when they come back." "";
    RxBehindMerged "rx_behind_merged" Split "Single segments sent to the splitter because merged ones of their flow are on the way through it; they are counted again when they come back." "";
    RxDropMerged "rx_drop_merged" Lose "Merged segments dropped because there is no splitter, or because generic XDP could not see that they are merged." "Switch GRO off (`ethtool -K eth0 gro off`, in generic XDP also rx-gro-hw and lro), or attach with `--ingress tc`.";
    RxDropNoFlow "rx_drop_no_flow" Lose "Segments dropped because they belong to no flow." "A few are normal when a flow begins or ends. Many at once are a scan, or forged.";
    RxDropUnproven "rx_drop_unproven" Lose "Segments dropped without an answer because they have no flow, no proof of the secret, and no TCP socket of this host." "A scan. Or a peer without a secret, with another one, with `veil` on one side only, or with a clock wrong by more than three minutes.";
    RxDropReset "rx_drop_reset" Lose "Resets dropped because their sequence number is not the expected one." "Forged or late; nothing to do.";
    RxDropFin "rx_drop_fin" Lose "FINs dropped because their sequence number is not the expected one." "Forged, or after a loss at the end of a flow; nothing to do.";
    RxDropSequence "rx_drop_sequence" Lose "Segments dropped because their sequence or acknowledgement number is outside the window." "Forged or very late. If a flow stalls at the same time, a device on the path changes sequence numbers.";
    RxDropTableFull "rx_drop_table_full" Lose "Completed handshakes dropped because the flow table is full: its last sixteenth is for flows that this host opens." "Attach with a larger `--max-flows`; `xdptun status` shows the flows.";
    RxDropShare "rx_drop_share" Lose "Completed handshakes dropped because flows of peers that this host has not answered hold their share: a quarter of the table, or a thirty-second for one address (IPv6: /64)." "Strangers open flows and do not use them: nothing to do. If this host only receives, from very many peers, attach with a larger `--max-flows`.";
    RxDropResize "rx_drop_resize" Lose "Segments dropped because the kernel refused to change their size." "The kernel is short of memory, or the packet's buffer cannot be changed.";
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
    Limited "replies_limited" "Replies not sent: the CPU reached its rate limit, or the flow its limit for this reply (16 at once, of which 8 may be challenges, then one in 0.1 s)." "A flood, or guesses at a flow: nothing to do, except if flows open slowly.";
}

counters! {
    /// Steps of a restored datagram on the detour through GRO. They overlap, with outcomes too.
    GroStep, first (Outcome::ALL.len() + Sent::ALL.len()) as u32;
    RxGroSent "rx_gro_sent" "Restored datagrams sent through GRO, which merges them for sockets with UDP_GRO; `rx_restored` counts them as well." "If `rx_gro_returned` falls further and further behind, the kernel drops the difference, as it has no time for it: attach with `--gro off`, and see whether less is lost.";
    RxGroReturned "rx_gro_returned" "Restored datagrams that came back from GRO, merged or not." "As for `rx_gro_sent`.";
    RxGroMerged "rx_gro_merged" "Restored datagrams that came back from GRO in one packet with others." "If it stays far below `rx_gro_returned`, the program does not use UDP_GRO, or its datagrams come one by one: `--gro off` may be faster.";
}

/// How many counters there are.
pub const COUNTERS: u32 = (Outcome::ALL.len() + Sent::ALL.len() + GroStep::ALL.len()) as u32;

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
