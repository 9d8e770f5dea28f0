//! What is counted, and what it does to the packet.
//!
//! Every packet that concerns xdptun ends in exactly one [`Outcome`], and the
//! outcome decides both the verdict and the counter, so the two cannot drift.
//! [`Sent`] counts the control segments that leave, beside the outcomes.

macro_rules! counters {
    (
        $(#[$doc:meta])* $name:ident, first $first:expr;
        $($variant:ident $label:literal $meaning:literal;)+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum $name {
            $(#[doc = $meaning] $variant,)+
        }

        impl $name {
            /// Every variant, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The index of its counter in the `COUNTERS` map.
            #[inline(always)]
            #[must_use]
            pub const fn index(self) -> u32 {
                $first + self as u32
            }

            /// The name in status output and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $label,)+ }
            }

            /// What it means, in one line.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning,)+ }
            }
        }
    };
}

counters! {
    /// How a packet that concerns xdptun ended.
    Outcome, first 0;
    TxDisguised "tx_disguised" "Datagrams sent as TCP segments.";
    TxQueued "tx_queued" "Datagrams handed to the daemon to wait for the handshake.";
    TxOpened "tx_opened" "Datagrams that caused a SYN; the datagram itself waits with the daemon.";
    TxOpenedLost "tx_opened_lost" "Datagrams that caused a SYN and were lost, because the daemon's queue was full or the daemon is gone.";
    TxLost "tx_lost" "Datagrams lost before the handshake ended, because the daemon's queue was full or the daemon is gone.";
    TxRequested "tx_requested" "Control segments sent for the daemon or for ingress.";
    TxNotRequested "tx_not_requested" "Requests for control segments that no flow needed any more.";
    TxDropMalformed "tx_drop_malformed" "Datagrams dropped because their length fields contradict each other.";
    TxSplit "tx_split" "UDP GSO super-packets sent to be split; their datagrams are counted when they come back.";
    TxDropSuperPacket "tx_drop_super_packet" "UDP GSO super-packets dropped because there is no splitter.";
    TxTooBig "tx_too_big" "Datagrams whose segment would exceed the MTU; their sender was told by ICMP.";
    TxDropFragment "tx_drop_fragment" "Fragments dropped: half a datagram cannot become a segment.";
    TxDropVlan "tx_drop_vlan" "Datagrams dropped because they carry a VLAN tag; attach to the VLAN's own device.";
    TxDropOptions "tx_drop_options" "Datagrams dropped because of IPv6 extension headers, or options of more than 64 bytes, that cannot be carried.";
    TxDropTooBig "tx_drop_too_big" "Datagrams dropped because the segment would exceed the MTU; their sender was not told, because too many were.";
    TxDropPending "tx_drop_pending" "Datagrams dropped because the device was to finish a checksum inside them (VXLAN, Geneve), which has no place in a segment.";
    TxDropDestination "tx_drop_destination" "Datagrams dropped because they go to a multicast or broadcast address.";
    TxDropTableFull "tx_drop_table_full" "Datagrams dropped because the flow table is full.";
    TxDropClosing "tx_drop_closing" "Datagrams dropped because their flow is being closed.";
    TxDropResize "tx_drop_resize" "Datagrams dropped because the kernel could not make room for the header.";
    RxRestored "rx_restored" "Segments turned back into datagrams.";
    RxSyn "rx_syn" "SYNs received.";
    RxSynAck "rx_syn_ack" "SYN-ACKs that completed a handshake.";
    RxAck "rx_ack" "Acknowledgements without data.";
    RxFin "rx_fin" "FINs that ended a flow.";
    RxRst "rx_rst" "Resets that ended a flow.";
    RxRefused "rx_refused" "Resets that answered our SYN: the peer's xdptun is not there yet.";
    RxToHost "rx_to_host" "Segments without a proof of the secret, left to this host's own TCP.";
    RxIcmp "rx_icmp" "ICMP errors about our segments, passed on as errors about the datagrams.";
    RxDropIcmp "rx_drop_icmp" "ICMP errors dropped because they quote a sequence number that was not sent lately.";
    RxDropPlainUdp "rx_drop_plain_udp" "UDP datagrams dropped that came undisguised to an owned port.";
    RxDropMalformed "rx_drop_malformed" "Segments dropped because their header contradicts itself.";
    RxDropFragment "rx_drop_fragment" "Fragmented segments dropped.";
    RxDropOptions "rx_drop_options" "Segments dropped because of IPv6 extension headers, or options of more than 64 bytes, that cannot be carried.";
    RxSplit "rx_split" "Merged segments sent to be split; the single ones are counted when they come back.";
    RxDropMerged "rx_drop_merged" "Merged segments dropped because there is no splitter.";
    RxDropNoFlow "rx_drop_no_flow" "Segments dropped that belong to no flow.";
    RxDropUnproven "rx_drop_unproven" "Segments dropped without an answer: no flow, no proof of the secret, and no TCP socket of this host.";
    RxDropReset "rx_drop_reset" "Resets dropped because their sequence number is not the expected one.";
    RxDropFin "rx_drop_fin" "FINs dropped because their sequence number is not the expected one.";
    RxDropSequence "rx_drop_sequence" "Segments dropped because sequence or acknowledgement number is out of the window.";
    RxDropTableFull "rx_drop_table_full" "Completed handshakes dropped because the flow table is full.";
    RxDropResize "rx_drop_resize" "Segments dropped because the kernel could not change their size.";
}

counters! {
    /// Control segments that left, and replies that were withheld.
    Sent, first Outcome::ALL.len() as u32;
    Syn "sent_syn" "SYNs sent.";
    SynAck "sent_syn_ack" "SYN-ACKs sent.";
    Ack "sent_ack" "Acknowledgements without data sent.";
    ChallengeAck "sent_challenge_ack" "Challenge ACKs sent (RFC 5961).";
    Probe "sent_probe" "Keepalive probes sent.";
    Fin "sent_fin" "FINs sent.";
    Rst "sent_rst" "Resets sent.";
    Limited "replies_limited" "Replies withheld by the rate limit.";
}

/// How many counters there are.
pub const COUNTERS: u32 = (Outcome::ALL.len() + Sent::ALL.len()) as u32;

/// What becomes of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It goes on its way; later filters still see it.
    Pass,
    /// It goes through the splitter and comes back in pieces.
    Split,
    /// It was turned into a message to its sender.
    Return,
    /// It ends here, and its sender is told that it went well.
    Take,
    /// It ends here.
    Drop,
}

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

    /// The fate that goes with the outcome. Lists every variant, so that a new
    /// one cannot compile without a decision.
    #[inline(always)]
    #[must_use]
    pub const fn fate(self) -> Fate {
        match self {
            Self::TxDisguised
            | Self::TxOpened
            | Self::TxOpenedLost
            | Self::TxRequested
            | Self::RxRestored
            | Self::RxToHost
            | Self::RxIcmp => Fate::Pass,
            Self::TxTooBig => Fate::Return,
            Self::TxQueued => Fate::Take,
            Self::TxSplit | Self::RxSplit => Fate::Split,
            Self::TxLost
            | Self::TxNotRequested
            | Self::TxDropMalformed
            | Self::TxDropSuperPacket
            | Self::TxDropFragment
            | Self::TxDropVlan
            | Self::TxDropOptions
            | Self::TxDropTooBig
            | Self::TxDropPending
            | Self::TxDropDestination
            | Self::TxDropTableFull
            | Self::TxDropClosing
            | Self::TxDropResize
            | Self::RxSyn
            | Self::RxSynAck
            | Self::RxAck
            | Self::RxFin
            | Self::RxRst
            | Self::RxRefused
            | Self::RxDropIcmp
            | Self::RxDropPlainUdp
            | Self::RxDropMalformed
            | Self::RxDropFragment
            | Self::RxDropOptions
            | Self::RxDropMerged
            | Self::RxDropNoFlow
            | Self::RxDropUnproven
            | Self::RxDropReset
            | Self::RxDropFin
            | Self::RxDropSequence
            | Self::RxDropTableFull
            | Self::RxDropResize => Fate::Drop,
        }
    }
}
