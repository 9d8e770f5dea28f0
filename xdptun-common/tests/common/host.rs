//! Two hosts and the wires between them: the part of the programs around the
//! state machine, with nothing of packets in it.

use xdptun_common::flow::key::FlowKey;
use xdptun_common::tunnel::handshake::{
    ANYWHERE, Endpoint, Reaction, Reply, Segment, listen, receive,
};
use xdptun_common::tunnel::isn::Secret;
use xdptun_common::tunnel::outcome::{Outcome, Sent};
use xdptun_common::tunnel::state::State;
use xdptun_common::tunnel::window::MAX_WINDOW;
use xdptun_common::wire::Flags;

pub const DATA: Flags = Flags::PSH.with(Flags::ACK);
pub const FIN_ACK: Flags = Flags::FIN.with(Flags::ACK);
pub const SYN_ACK: Flags = Flags::SYN.with(Flags::ACK);

/// A segment on the wire, and the number of the datagram in it.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub segment: Segment,
    pub datagram: Option<u32>,
}

impl From<Reply> for Packet {
    fn from(reply: Reply) -> Self {
        Self {
            segment: Segment {
                flags: reply.flags,
                sequence: reply.sequence,
                acknowledgment: reply.acknowledgment,
                len: 0,
                asks: reply.kind == Sent::Probe,
                exact: matches!(reply.kind, Sent::Probe | Sent::ChallengeAck),
            },
            datagram: None,
        }
    }
}

/// One end: its entry in the flow table, and the datagrams that wait for it.
#[derive(Clone, Debug)]
pub struct Host {
    key: FlowKey,
    pub secret: Secret,
    pub now: u64,
    pub flow: Option<Endpoint>,
    queue: Vec<(u32, u32)>,
    pub delivered: Vec<u32>,
    /// Something was sent, and nothing came since that makes sense.
    unanswered: bool,
    /// Nothing came for so long that a sequence number may be any.
    pub silent: bool,
}

impl Host {
    pub fn new(key: FlowKey, secret: Secret) -> Self {
        Self {
            key,
            secret,
            now: 0,
            flow: None,
            queue: Vec::new(),
            delivered: Vec::new(),
            unanswered: false,
            silent: false,
        }
    }

    pub fn state(&self) -> State {
        self.flow.map_or(State::Closed, |flow| flow.state)
    }

    pub fn isn(&self) -> u32 {
        self.secret.isn(&self.key, self.now)
    }

    pub fn gave(&self, isn: u32) -> bool {
        self.secret.gave(isn, &self.key, self.now)
    }

    /// Sends datagram `number`, or a SYN if it must wait.
    pub fn send(&mut self, number: u32, len: u32) -> Option<Packet> {
        match self.state() {
            State::Established => return Some(self.data(number, len)),
            State::FinSent => return None,
            State::Closed => {
                let before = self.flow.unwrap_or(Endpoint::LISTENING);
                self.flow = Some(Endpoint::opening(before.next_iss(self.isn())));
            }
            State::SynSent | State::SynReceived => {}
        }
        self.queue.push((number, len));
        self.retransmit()
    }

    fn data(&mut self, number: u32, len: u32) -> Packet {
        let flow = self.flow.as_mut().expect("established");
        let segment = Segment {
            flags: DATA,
            sequence: flow.snd_nxt,
            acknowledgment: flow.rcv_nxt,
            len,
            asks: false,
            exact: false,
        };
        flow.snd_nxt = segment.end();
        self.unanswered = true;
        Packet {
            segment,
            datagram: Some(number),
        }
    }

    /// What the timer sends: the SYN or the FIN again.
    pub fn retransmit(&mut self) -> Option<Packet> {
        let flow = self.flow?;
        let reply = match flow.state {
            State::SynSent | State::SynReceived => Reply {
                kind: Sent::Syn,
                flags: Flags::SYN,
                sequence: flow.iss,
                acknowledgment: 0,
            },
            State::FinSent => Reply {
                kind: Sent::Fin,
                flags: FIN_ACK,
                sequence: flow.snd_nxt.wrapping_sub(1),
                acknowledgment: flow.rcv_nxt,
            },
            State::Closed | State::Established => return None,
        };
        Some(reply.into())
    }

    /// What the daemon does about silence: it asks, and starts over if that was
    /// in vain.
    pub fn doubt(&mut self, asked: bool) -> Option<Packet> {
        let flow = self.flow.filter(|flow| flow.state == State::Established)?;
        self.silent |= asked;
        if !self.unanswered {
            return None;
        }
        if !asked {
            return self.probe();
        }
        self.flow = Some(Endpoint::opening(flow.next_iss(self.isn())));
        self.retransmit()
    }

    /// A keepalive probe.
    pub fn probe(&mut self) -> Option<Packet> {
        let flow = self.flow.filter(|flow| flow.state == State::Established)?;
        self.unanswered = true;
        let probe = Reply {
            kind: Sent::Probe,
            flags: Flags::ACK,
            sequence: flow.snd_nxt.wrapping_sub(1),
            acknowledgment: flow.rcv_nxt,
        };
        Some(probe.into())
    }

    /// Ends an established flow.
    pub fn finish(&mut self) -> Option<Packet> {
        let flow = self
            .flow
            .as_mut()
            .filter(|flow| flow.state == State::Established)?;
        flow.state = State::FinSent;
        flow.snd_nxt = flow.snd_nxt.wrapping_add(1);
        self.retransmit()
    }

    /// What the state machine makes of a segment, without taking it.
    pub fn reaction(&self, segment: &Segment) -> Reaction {
        let gave = |isn| self.gave(isn);
        match self.flow {
            None => listen(segment, self.isn(), &gave),
            Some(mut flow) => {
                if flow.state == State::Closed {
                    flow.iss = flow.next_iss(self.isn());
                }
                if self.silent {
                    flow.reach = ANYWHERE;
                }
                receive(flow, segment, &gave)
            }
        }
    }

    /// Takes what arrives; returns what leaves in consequence.
    pub fn take(&mut self, packet: &Packet) -> Vec<Packet> {
        let before = self.state();
        let reaction = self.reaction(&packet.segment);
        if self.flow.is_some() || reaction.endpoint.state == State::Established {
            self.flow = Some(Endpoint {
                reach: MAX_WINDOW,
                ..reaction.endpoint
            });
        }
        if reaction.outcome.is_sign_of_life() {
            self.unanswered = false;
            self.silent = false;
        }
        if reaction.outcome == Outcome::RxRestored {
            self.delivered.extend(packet.datagram);
        }
        let reply = reaction.reply.is_some().then_some(reaction.reply);
        let mut sent: Vec<Packet> = reply.map(Packet::from).into_iter().collect();
        if self.state() == State::Established && before != State::Established {
            for (number, len) in std::mem::take(&mut self.queue) {
                sent.push(self.data(number, len));
            }
        }
        sent
    }
}

/// Two hosts; `wires[n]` leads to `hosts[n]`.
#[derive(Clone, Debug)]
pub struct Link {
    pub hosts: [Host; 2],
    pub wires: [Vec<Packet>; 2],
}

impl Link {
    pub fn new(secrets: [u64; 2]) -> Self {
        let key = FlowKey::new(
            "192.0.2.1:8000".parse().expect("an address"),
            "198.51.100.2:40000".parse().expect("an address"),
        );
        let [a, b] = secrets;
        Self {
            hosts: [
                Host::new(key, Secret::new([a, 1])),
                Host::new(key.reversed(), Secret::new([b, 2])),
            ],
            wires: [Vec::new(), Vec::new()],
        }
    }

    /// Puts on the wire what a host sends.
    pub fn emit(&mut self, from: usize, packets: impl IntoIterator<Item = Packet>) {
        self.wires[1 - from].extend(packets);
    }

    /// Delivers one packet of a wire.
    pub fn deliver(&mut self, to: usize, position: usize) {
        let packet = self.wires[to].remove(position);
        let replies = self.hosts[to].take(&packet);
        self.emit(to, replies);
    }

    /// Delivers everything in order, replies included, until both wires are
    /// empty. Returns how many segments that took.
    pub fn settle(&mut self) -> usize {
        let mut count = 0;
        while self.wires.iter().any(|wire| !wire.is_empty()) {
            for to in 0..2 {
                if !self.wires[to].is_empty() {
                    self.deliver(to, 0);
                    count += 1;
                }
            }
            assert!(count < 10_000, "the hosts answer each other without end");
        }
        count
    }

    pub fn send(&mut self, from: usize, number: u32, len: u32) {
        let sent = self.hosts[from].send(number, len);
        self.emit(from, sent);
    }

    pub fn states(&self) -> [State; 2] {
        [self.hosts[0].state(), self.hosts[1].state()]
    }
}
