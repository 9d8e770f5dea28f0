//! What a flow sends and receives: counts, acknowledgements, times, and fields of its headers.

use xdptun_common::flow::seq::{after, distance};
use xdptun_common::flow::tick::Tick;
use xdptun_common::tunnel::ack;
use xdptun_common::tunnel::handshake::{Segment, next_expected};
use xdptun_common::tunnel::state::{Label, RESTARTED, answer};
use xdptun_common::wire::IpFields;

use super::Entry;
use crate::flow::word::Word;
use crate::host::interface::interface;
use crate::packet::direction::{Direction, link_to_peer};
use aya_ebpf::programs::TcContext;

impl Entry {
    /// Whether datagrams have left.
    #[inline(always)]
    pub fn has_sent(self) -> bool {
        word!(self, tx_packets).load() != 0
    }

    /// Whether the datagram that has just left is the first answer to a peer that opened
    /// the flow. Two CPUs that send the first two at once may both miss it.
    #[inline(always)]
    pub fn has_just_answered(self) -> bool {
        word!(self, tx_packets).load() == 1 && word!(self, syn_at).load() == 0
    }

    /// Takes the sequence numbers of a datagram of `len` bytes and counts it.
    /// Returns sequence number and acknowledgement number.
    #[inline(always)]
    pub fn send_datagram(self, len: u32, now: u64) -> (u32, u32) {
        let sequence = word!(self, snd_nxt).fetch_add(len);
        let acknowledgment = self.acknowledge(now);
        self.expect_answer(now);
        word!(self, data_at).refresh(now);
        word!(self, tx_bytes).fetch_add(u64::from(len));
        word!(self, tx_packets).fetch_add(1);
        (sequence, acknowledgment)
    }

    /// Notes that something was sent that the peer answers at the latest when it
    /// is asked to.
    #[inline(always)]
    pub fn expect_answer(self, now: u64) {
        if !self.is_unanswered() {
            word!(self, unanswered_at).refresh(now);
        }
    }

    /// Whether something was sent since the peer was last heard of.
    #[inline(always)]
    pub fn is_unanswered(self) -> bool {
        word!(self, unanswered_at).load() > word!(self, received_at).load()
    }

    /// Whether that was so long ago, in nanoseconds.
    #[inline(always)]
    pub fn is_unanswered_for(self, now: u64, time: u64) -> bool {
        self.is_unanswered() && now.saturating_sub(word!(self, unanswered_at).load()) >= time
    }

    /// The acknowledgement number for a segment that leaves now.
    #[inline(always)]
    pub fn acknowledge(self, now: u64) -> u32 {
        let acknowledgment = word!(self, rcv_nxt).load();
        word!(self, acked).store(acknowledgment);
        word!(self, sent_at).refresh(now);
        acknowledgment
    }

    /// Whether, with `segment` taken, an acknowledgement of its own is due.
    #[inline(always)]
    pub fn ack_due(self, segment: &Segment, now: u64) -> bool {
        let unacknowledged = distance(segment.end(), word!(self, acked).load());
        let quiet = now.saturating_sub(word!(self, sent_at).load());
        // On another line of the cache than all else that a datagram needs.
        let age = || now.saturating_sub(word!(self, established_at).load());
        ack::is_due(unacknowledged, quiet, age)
    }

    /// Notes a valid segment without data.
    #[inline(always)]
    pub fn received(self, now: u64) {
        word!(self, received_at).refresh(now);
    }

    /// How many datagrams have come.
    #[inline(always)]
    pub fn received_datagrams(self) -> u64 {
        word!(self, rx_packets).load()
    }

    /// Whether it is time to answer a segment with nothing but the flow's numbers, if `kept` such
    /// answers are not for it; at most one of all CPUs is told so.
    #[inline(always)]
    pub fn claim_answer(self, now: u64, kept: u32) -> bool {
        let earned_at = word!(self, answers_earned_at);
        let before = earned_at.load();
        match answer(before, Tick::at(now), kept) {
            Some(after) => earned_at.replace(before, after),
            None => false,
        }
    }

    /// When an ICMP error last proved nothing.
    #[inline(always)]
    pub fn distrusted_at(self) -> u32 {
        word!(self, distrusted_at).load()
    }

    /// Notes that an ICMP error proved nothing.
    #[inline(always)]
    pub fn distrust(self, now: u64) {
        word!(self, distrusted_at).store(Tick::at(now).0);
    }

    /// Notes what an acceptable segment acknowledges.
    #[inline(always)]
    pub fn acknowledged(self, segment: &Segment, now: u64) {
        let snd_una = word!(self, snd_una);
        let before = snd_una.load();
        if after(segment.acknowledgment, before) {
            if let Some(marks) = self.ack_marks().moved(before, Tick::at(now)) {
                self.set_ack_marks(marks);
            }
            snd_una.store(segment.acknowledgment);
        }
    }

    /// Counts a datagram and moves the acknowledgement number up to its end.
    #[inline(always)]
    pub fn receive_datagram(self, segment: &Segment, now: u64) {
        self.acknowledged(segment, now);
        self.advance_rcv_nxt(segment);
        self.received(now);
        word!(self, data_at).refresh(now);
        word!(self, rx_bytes).fetch_add(u64::from(segment.len));
        word!(self, rx_packets).fetch_add(1);
    }

    #[inline(always)]
    fn advance_rcv_nxt(self, segment: &Segment) {
        let rcv_nxt = word!(self, rcv_nxt);
        // The number must not move back, whichever CPU comes last; after a
        // few lost races the others have moved it further than we would.
        for _ in 0..4 {
            let seen = rcv_nxt.load();
            let next = next_expected(seen, segment);
            if next == seen || rcv_nxt.replace(seen, next) {
                break;
            }
        }
    }

    /// Notes the IP header of a datagram that leaves.
    #[inline(always)]
    pub fn keep_fields(self, fields: IpFields) {
        let kept = word!(self, kept_fields);
        let before = kept.load();
        let after = before.seen(fields);
        if after != before {
            kept.store(after);
        }
    }

    /// Takes the flow label of the datagram that opens the flow.
    #[inline(always)]
    pub fn set_label(self, label: u32) {
        self.change_label(|before| Some(before.with_value(label)));
    }

    /// The flow label of its segments, or 0 for that of the datagram.
    #[inline(always)]
    pub fn label(self) -> u32 {
        self.label_word().value()
    }

    /// Whether a fragment of it was ever carried.
    #[inline(always)]
    pub fn has_fragments(self) -> bool {
        self.label_word().is_daemon_told()
    }

    /// Whether its peer takes fragments.
    #[inline(always)]
    pub fn takes_fragments(self) -> bool {
        self.label_word().takes_fragments()
    }

    /// Notes that its peer takes fragments.
    #[inline(always)]
    pub fn note_takes_fragments(self) {
        if !self.takes_fragments() {
            self.change_label(|before| Some(before.taking_fragments()));
        }
    }

    /// Forgets what its peer takes.
    #[inline(always)]
    pub(super) fn forget_peer(self) {
        if self.takes_fragments() {
            self.change_label(|before| Some(before.begun_again()));
        }
    }

    /// Whether it is time to ask the peer whether it takes fragments; at most one of all CPUs is
    /// told so.
    #[inline(always)]
    pub fn claim_question(self, now: u64) -> bool {
        self.change_label(|before| before.asked(now))
    }

    /// Whether it is time to tell the sender of a fragment that it is too long; at most one of all
    /// CPUs is told so.
    #[inline(always)]
    pub fn claim_too_big(self, now: u64) -> bool {
        self.change_label(|before| before.told_sender(now))
    }

    /// Whether the daemon is to be told that the flow has fragments, which is so once.
    #[inline(always)]
    pub fn claim_telling(self) -> bool {
        self.change_label(Label::daemon_told)
    }

    #[inline(always)]
    fn label_word(self) -> Label {
        Label(word!(self, label).load())
    }

    /// Whether the word was changed: not if nothing is to change. Other CPUs may change it at the
    /// same time, each to something else, and none for long.
    #[inline(always)]
    fn change_label(self, change: impl Fn(Label) -> Option<Label>) -> bool {
        for _ in 0..4 {
            let before = self.label_word();
            let Some(after) = change(before) else {
                return false;
            };
            if word!(self, label).replace(before.0, after.0) {
                return true;
            }
        }
        false
    }

    /// The IP header fields of a segment without data that leaves now. `hop_limit` is that
    /// of the host.
    #[inline(always)]
    pub fn fields(self, is_syn: bool, hop_limit: u8) -> IpFields {
        let syns = self.syns() & !RESTARTED;
        let count = if is_syn {
            syns
        } else {
            // One for each that came: the first that leaves may overtake the handshake's ACK.
            let datagrams = word!(self, rx_packets).load() as u16;
            datagrams.wrapping_add(syns).wrapping_add(1)
        };
        let kept = word!(self, kept_fields).load();
        kept.fields(count, hop_limit, self.label())
    }

    /// Remembers the interface and the link header that reach the peer of the packet at hand. A
    /// subprogram: the stacks of its callers are full.
    #[inline(never)]
    pub fn keep_way(self, ctx: &TcContext, direction: Direction) {
        word!(self, interface).store(interface(ctx).index());
        // SAFETY: a field of a map value. A torn write, or the header of one interface beside
        // the index of another, costs one segment of the daemon.
        unsafe { (*self.0).link = link_to_peer(ctx, direction) }
    }

    /// Index of the interface by which it last sent.
    #[inline(always)]
    pub fn interface(self) -> u32 {
        word!(self, interface).load()
    }
}
