//! A function that counts packets, attached through the library: the second client of the
//! engine, beside the tunnel.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use aya::Ebpf;
use serde_json::Value;
use tokio::runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;
use tokio::time::interval;
use xdptun::config::{GroChoice, IngressChoice, TcChoice};
use xdptun::datapath::map::Source;
use xdptun::datapath::programs::Programs;
use xdptun::datapath::recorder::Recorder;
use xdptun::error;
use xdptun::group::counter::{self, Counter};
use xdptun::group::load::Globals;
use xdptun::group::options::Contradiction;
use xdptun::group::orders::next;
use xdptun::group::pinned::Pinned;
use xdptun::group::{
    Attached, End, Function, Group, Handle, Incumbent, Options, Order, Orders, Progress, Reason,
    Recording, Trace,
};
use xdptun::host::interface::Interface;
use xdptun::observe::metrics::render_attachments;
use xdptun::observe::status::AttachmentStatus;
use xdptun_common::count::Count as Counted;
use xdptun_lab::Netns;
use xdptun_object::COUNT;
use xdptun_test_net::LIMIT;
use xdptun_test_net::exposition::Exposition;

/// Counts packets.
pub enum Count {}

/// How to attach.
#[derive(Clone, PartialEq)]
pub struct Plan {
    pub tc: TcChoice,
    /// A setting that programs must be replaced for.
    pub trace: Trace,
}

impl From<TcChoice> for Plan {
    fn from(tc: TcChoice) -> Self {
        let trace = Trace::Off;
        Self { tc, trace }
    }
}

impl Function for Count {
    const PROGRAMS: &'static Programs = &Programs {
        function: "count",
        order: 3,
        is_older_than_groups: false,
        device: None,
        ingress: Some("count_ingress"),
        egress: "count_egress",
        splitter: None,
        xdp: None,
    };

    const BEHIND: &'static str = "counted";

    type Plan = Plan;
    type Settings = ();
    type Maps = ();
    type Own = ();
    type Observer = ();

    fn counters() -> Vec<Counter> {
        counter::of_endings::<Counted>().collect()
    }

    fn options(plan: &Plan) -> Options<()> {
        Options {
            ingress: IngressChoice::Tc,
            gro: GroChoice::Off,
            tc: plan.tc,
            trace: plan.trace,
            record: None,
            settings: (),
        }
    }

    fn contradiction((): &(), (): &()) -> Option<Contradiction> {
        None
    }

    fn takes_other_programs((): &(), (): &()) -> bool {
        false
    }

    fn load(
        options: &Options<()>,
        interface: &Interface,
        directory: &Path,
    ) -> error::Result<(Ebpf, ())> {
        let globals = Globals::of(options, interface)?;
        let ebpf = globals.loader(Some(directory)).load(&COUNT.bytes())?;
        Ok((ebpf, ()))
    }

    fn maps(_: &mut Source<'_>) -> error::Result<()> {
        Ok(())
    }

    fn set_up((): &mut (), (): &(), (): &()) -> error::Result<()> {
        Ok(())
    }

    fn tidy((): &mut (), (): &()) -> error::Result<()> {
        Ok(())
    }

    fn change(_: &mut Attached<Self>, (): &()) -> error::Result<()> {
        Ok(())
    }

    fn interfaces_changed(_: &mut Attached<Self>, _: &[u32]) -> error::Result<()> {
        Ok(())
    }

    async fn run(
        attached: &mut Attached<Self>,
        _: &Plan,
        missing: &[String],
        orders: &mut Orders<Reason<Plan>>,
        (): &(),
        ready: impl FnOnce(&mut Attached<Self>) -> error::Result<()>,
    ) -> error::Result<End<Reason<Plan>>> {
        ready(attached)?;
        let mut tick = interval(Duration::from_millis(20));
        loop {
            tokio::select! {
                order = next(orders) => return Ok(match order {
                    Order::Stop => End::Stopped,
                    Order::Pause(reason) => End::Paused(reason),
                }),
                _ = tick.tick() => if attached.interfaces_changed(missing) {
                    return Ok(End::InterfacesChanged);
                },
            }
        }
    }
}

/// What a test tells a running group.
type Command = Box<dyn FnOnce(&Handle<Plan>) + Send>;

/// A group that counts, carried by a thread as a process would carry it.
pub struct Counting {
    commands: UnboundedSender<Command>,
    /// Its reports, as text.
    progress: mpsc::Receiver<Result<String>>,
    thread: JoinHandle<Result<()>>,
}

impl Counting {
    /// Attaches to interfaces of a namespace, and waits until the group carries all.
    pub fn start(netns: &Netns, names: &[&str], plan: impl Into<Plan>) -> Result<Self> {
        let started = Self::begin(netns, names, plan.into(), Incumbent::Respect)?;
        for name in names {
            started.wait(&format!("carrying {name}"))?;
        }
        Ok(started)
    }

    /// Attaches, or takes over what another group left or carries.
    pub fn begin(netns: &Netns, names: &[&str], plan: Plan, incumbent: Incumbent) -> Result<Self> {
        let (commands, receiver) = unbounded_channel::<Command>();
        let (told, progress) = mpsc::channel();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let netns = netns.clone();
        let thread = thread::spawn(move || {
            let carried = netns.enter(|| {
                let runtime = runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let carry = carry(&names, plan, incumbent, receiver, &told);
                LocalSet::new().block_on(&runtime, carry)
            });
            let carried = carried.and_then(|carried| carried);
            if let Err(error) = &carried {
                let _gone = told.send(Err(anyhow!("{error:#}")));
            }
            carried
        });
        Ok(Self {
            commands,
            progress,
            thread,
        })
    }

    /// Waits for a report.
    pub fn wait(&self, report: &str) -> Result<()> {
        loop {
            let next = self.progress.recv_timeout(LIMIT);
            if next.with_context(|| format!("it never said {report:?}"))?? == report {
                return Ok(());
            }
        }
    }

    /// Tells the group something.
    pub fn tell(&self, command: impl FnOnce(&Handle<Plan>) + Send + 'static) {
        let _ended = self.commands.send(Box::new(command));
    }

    /// Ends it in this way, and waits.
    pub fn end(self, order: impl FnOnce() -> Order<Reason<Plan>> + Send + 'static) -> Result<()> {
        self.tell(move |handle| handle.order(order()));
        self.join()
    }

    /// Detaches.
    pub fn stop(self) -> Result<()> {
        self.end(|| Order::Stop)
    }

    /// Leaves everything attached, without a daemon, as a process that is killed.
    pub fn abandon(self) -> Result<()> {
        self.end(|| Order::Pause(Reason::Succeeded))
    }

    /// Gives it another plan, and waits until it is applied.
    pub fn change(&self, plan: Plan) -> Result<()> {
        self.ask(|handle| async move { handle.change(plan).await })
    }

    /// Adds an interface, and waits until it is attached.
    pub fn join_interface(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.ask(|handle| async move { handle.join(name).await.map(|_| ()) })
    }

    /// Takes an interface out, and waits until it is detached.
    pub fn leave_interface(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.ask(|handle| async move { handle.leave(name).await })
    }

    /// Has the group do something, and waits for the result.
    fn ask<R: Future<Output = error::Result<()>> + 'static>(
        &self,
        request: impl FnOnce(Handle<Plan>) -> R + Send + 'static,
    ) -> Result<()> {
        let (done, result) = mpsc::channel();
        self.tell(move |handle| {
            let asked = request(handle.clone());
            tokio::task::spawn_local(async move {
                let _gone = done.send(asked.await);
            });
        });
        Ok(result.recv_timeout(LIMIT)??)
    }

    /// Waits until it ends by itself, and gives its result.
    pub fn join(self) -> Result<()> {
        self.thread.join().map_err(|_| anyhow!("it panicked"))?
    }

    /// Has packets of an interface recorded; the recording goes on until the result is dropped.
    pub fn record(&self, interface: &str) -> UnboundedReceiver<Result<Recorder, String>> {
        let (feed, recorders) = unbounded_channel();
        let recording = Recording {
            interface: interface.to_owned(),
            snap_len: NonZeroU32::MAX,
            feed,
        };
        self.tell(move |handle| handle.order(Order::Pause(Reason::Record(recording))));
        recorders
    }
}

/// Carries a group until a command ends it.
async fn carry(
    names: &[String],
    plan: Plan,
    incumbent: Incumbent,
    mut commands: UnboundedReceiver<Command>,
    told: &mpsc::Sender<Result<String>>,
) -> Result<()> {
    let group = Group::<Count>::attach(names, plan, incumbent)?;
    let (handle, mut orders) = Handle::new();
    let run = group.run(&mut orders, &(), |progress| {
        let _gone = told.send(Ok(text(&progress)));
        Ok(())
    });
    let obey = async move {
        while let Some(command) = commands.recv().await {
            command(&handle);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        ended = run => Ok(ended?),
        () = obey => unreachable!("it waits for ever"),
    }
}

fn text(progress: &Progress<'_, Count>) -> String {
    match progress {
        Progress::Loaded { .. } => "loaded".to_owned(),
        Progress::Carrying {
            attached,
            interface,
            ..
        } => {
            let name = attached.at(*interface).map(|one| one.kept_as.as_str());
            format!("carrying {}", name.unwrap_or_default())
        }
        Progress::Waiting(name) => format!("waiting for {name}"),
        Progress::GivenUp(name, why) => format!("{name} given up: {why:#}"),
    }
}

/// What is attached in a namespace.
fn attached(netns: &Netns) -> Result<Vec<AttachmentStatus>> {
    let statuses = netns.enter(|| {
        let all = Pinned::<Count>::all()?;
        let all = all.iter().map(AttachmentStatus::read);
        all.collect::<error::Result<Vec<_>>>()
    })?;
    Ok(statuses?)
}

/// The status of an interface in a namespace, if it is attached.
pub fn status(netns: &Netns, name: &str) -> Result<Option<Value>> {
    let mut statuses = attached(netns)?.into_iter();
    let found = statuses.find(|status| status.name == name);
    Ok(found.map(serde_json::to_value).transpose()?)
}

/// Its metrics in a namespace.
pub fn metrics(netns: &Netns) -> Result<Exposition> {
    Exposition::parse(&render_attachments(attached(netns)?)?)
}

/// What it has counted on an interface: packets that came in, and packets that left.
pub fn counted(netns: &Netns, name: &str) -> Result<[u64; 2]> {
    let status = status(netns, name)?.with_context(|| format!("{name}: nothing counts there"))?;
    let counter = |name: &str| status["counters"][name].as_u64().unwrap_or_default();
    Ok([counter("in_packets"), counter("out_packets")])
}
