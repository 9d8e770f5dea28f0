//! A wire with a program that sees every frame between two devices, and decides which
//! frames arrive and where.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::capture::Frame;
use crate::stop::{self, Stop, Stopped, Woken};
use crate::tap::{Kind, Tap};
use crate::vnet::Vnet;

/// An end of the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The first device.
    A,
    /// The second device.
    B,
}

impl Side {
    /// The opposite end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// A frame on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// Where it will arrive.
    pub to: Side,
    /// What is left to the receiver.
    pub vnet: Vnet,
    /// The frame: from the Ethernet header on, or the IP packet of a TUN device.
    pub bytes: Vec<u8>,
}

impl Carried {
    /// The same frame with other, final bytes.
    #[must_use]
    pub fn with_bytes(&self, bytes: Vec<u8>) -> Self {
        Self {
            to: self.to,
            vnet: Vnet::default(),
            bytes,
        }
    }
}

/// Turns one frame into those that arrive, in this order.
type Program = Box<dyn FnMut(Carried) -> Vec<Carried> + Send>;

/// A running wire; it ends when dropped.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    threads: Vec<(Stop, JoinHandle<()>)>,
}

struct Shared {
    kind: Kind,
    ends: [Tap; 2],
    state: Mutex<State>,
}

struct State {
    program: Program,
    /// By the end they came from, which `outgoing` cannot say.
    sent: Vec<(Side, Frame)>,
    failure: Option<anyhow::Error>,
}

impl Relay {
    /// Connects two devices; at first everything passes as it is.
    pub fn start(kind: Kind, a: Tap, b: Tap) -> Result<Self> {
        let shared = Arc::new(Shared {
            kind,
            ends: [a, b],
            state: Mutex::new(State {
                program: Box::new(|frame| vec![frame]),
                sent: Vec::new(),
                failure: None,
            }),
        });
        let mut threads = Vec::new();
        for from in [Side::A, Side::B] {
            let (stop, stopped) = stop::channel()?;
            let shared = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                if let Err(error) = shared.carry(from, &stopped) {
                    eprintln!("relay from {from:?}: {error:#}");
                    shared.lock().failure = Some(error);
                }
            });
            threads.push((stop, thread));
        }
        Ok(Self { shared, threads })
    }

    /// From now on `program` decides. It is called with one frame at a time.
    pub fn program(&self, program: impl FnMut(Carried) -> Vec<Carried> + Send + 'static) {
        self.shared.lock().program = Box::new(program);
    }

    /// From now on everything passes as it is.
    pub fn pass(&self) {
        self.program(|frame| vec![frame]);
    }

    /// From now on everything passes as it is, this much later.
    pub fn delay(&self, by: Duration) {
        let (under_way, arriving) = mpsc::channel::<(Instant, Carried)>();
        // The program holds the other end of the channel: the relay's end is the thread's.
        let shared: Weak<Shared> = Arc::downgrade(&self.shared);
        thread::spawn(move || {
            for (due, frame) in arriving {
                thread::sleep(due.saturating_duration_since(Instant::now()));
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                if let Err(error) = shared.deliver(&frame) {
                    eprintln!("delayed frame: {error:#}");
                    shared.lock().failure = Some(error);
                }
            }
        });
        self.program(move |frame| {
            // The thread is gone only when the relay is.
            let _ = under_way.send((Instant::now() + by, frame));
            Vec::new()
        });
    }

    /// Lets a frame arrive that neither host sent.
    pub fn deliver(&self, frame: &Carried) -> Result<()> {
        self.shared.deliver(frame)
    }

    /// The frames that both hosts sent since the last call, before the program saw it.
    ///
    /// A frame is among them before anything that follows from it can be seen.
    pub fn sent(&self) -> Result<Vec<Frame>> {
        Ok(self.sent_by_side()?.into_iter().map(|(_, f)| f).collect())
    }

    /// The frames that one host sent since the last call; the other's frames are forgotten.
    pub fn sent_from(&self, side: Side) -> Result<Vec<Frame>> {
        let mut sent = self.sent_by_side()?;
        sent.retain(|(from, _)| *from == side);
        Ok(sent.into_iter().map(|(_, frame)| frame).collect())
    }

    /// Looks at what was sent since the last call of [`Relay::sent`].
    pub fn peek<R>(&self, look: impl FnOnce(&[(Side, Frame)]) -> R) -> R {
        look(&self.shared.lock().sent)
    }

    fn sent_by_side(&self) -> Result<Vec<(Side, Frame)>> {
        let mut state = self.shared.lock();
        match state.failure.take() {
            Some(error) => Err(error).context("the relay has ended"),
            None => Ok(std::mem::take(&mut state.sent)),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        for (stop, thread) in self.threads.drain(..) {
            drop(stop);
            if thread.join().is_err() {
                eprintln!("the program of a relay panicked");
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, side: Side) -> &Tap {
        let [a, b] = &self.ends;
        match side {
            Side::A => a,
            Side::B => b,
        }
    }

    fn deliver(&self, frame: &Carried) -> Result<()> {
        self.end(frame.to).send(frame.vnet, &frame.bytes)
    }

    fn carry(&self, from: Side, stopped: &Stopped) -> Result<()> {
        let device = self.end(from);
        let mut buffer = Tap::buffer();
        while stopped.wait_readable(device)? == Woken::Readable {
            let Some((vnet, bytes)) = device.receive(&mut buffer)? else {
                continue;
            };
            let mut state = self.lock();
            state.sent.push((from, self.frame(vnet, &bytes)?));
            let frame = Carried {
                to: from.other(),
                vnet,
                bytes,
            };
            // Under the lock, so that frames keep their order.
            for frame in (state.program)(frame) {
                self.deliver(&frame)?;
            }
        }
        Ok(())
    }

    fn frame(&self, vnet: Vnet, bytes: &[u8]) -> Result<Frame> {
        Ok(Frame {
            bytes: bytes.to_vec(),
            outgoing: true,
            bare: self.kind == Kind::Tun,
            vlan: None,
            checksum_ready: !vnet.checksum_is_pending(),
            time: SystemTime::now().duration_since(UNIX_EPOCH)?,
        })
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("kind", &self.kind).finish()
    }
}
