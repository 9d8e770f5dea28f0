//! Many TCP connections at once, each of which sends a payload and waits for its echo.
//!
//! One process may not open as many files as there are connections, so each end is several
//! processes. Each runs a program of the caller, which calls [`work`].

mod client;
mod server;

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _, stdin};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::epoll::{Epoll, EpollEvent, EpollTimeout};

use crate::netns::Netns;
use client::Clients;

/// How many processes an end has: each has less than twenty thousand connections.
const PROCESSES: usize = 5;

/// How much is read at once, in bytes.
const AT_ONCE: usize = 16 << 10;

/// Events at a time.
const EVENTS: usize = 1024;

/// Lets a namespace have as many connections as there are ports.
pub fn prepare(netns: &Netns) -> Result<()> {
    for (key, value) in [
        ("net.ipv4.ip_local_port_range", "1024 65535"),
        ("net.core.somaxconn", "65535"),
        ("net.ipv4.tcp_max_syn_backlog", "65535"),
    ] {
        netns.sysctl(key, value)?;
    }
    Ok(())
}

/// The same for the namespace of a [`Crowd`], which names the ports of its connections: others
/// get ports beyond these.
pub fn prepare_clients(netns: &Netns) -> Result<()> {
    prepare(netns)?;
    netns.sysctl("net.ipv4.ip_local_port_range", "62000 65535")
}

/// The program that is run for each process, with its first arguments.
#[derive(Debug, Clone)]
pub struct Program {
    /// Its path.
    pub path: PathBuf,
    /// Arguments before those of [`work`].
    pub arguments: Vec<String>,
}

/// A process of either end; it ends when dropped.
#[derive(Debug)]
struct Worker {
    child: Child,
    commands: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Worker {
    fn start(program: &Program, netns: &Netns, role: &str, at: SocketAddr) -> Result<Self> {
        let mut command = netns.command(&program.path);
        command
            .args(&program.arguments)
            .args([role, &at.to_string()]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", program.path.display()))?;
        let (commands, answers) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            child,
            commands,
            answers: BufReader::new(answers.context("no output")?),
        })
    }

    fn command(&mut self, command: &str) -> Result<()> {
        let commands = self.commands.as_mut().context("no input")?;
        writeln!(commands, "{command}").context("the process has ended")
    }

    /// The words of its next line.
    fn answer(&mut self) -> Result<Vec<u64>> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        if let Some(why) = line.strip_prefix("error: ") {
            bail!("{}", why.trim_end());
        }
        ensure!(!line.is_empty(), "a process of the crowd has ended");
        let words = line.split_whitespace();
        words
            .map(|word| word.parse().with_context(|| line.clone()))
            .collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.commands = None;
        if let Err(error) = self.child.wait() {
            eprintln!("cannot end a process of the crowd: {error}");
        }
    }
}

/// A server that sends back what every connection sends; it ends when dropped.
#[derive(Debug)]
pub struct Echo {
    _workers: Vec<Worker>,
}

impl Echo {
    /// Listens on an address.
    pub fn start(program: &Program, netns: &Netns, at: SocketAddr) -> Result<Self> {
        let start = |_| Worker::start(program, netns, "serve", at);
        let mut workers: Vec<Worker> = (0..PROCESSES).map(start).collect::<Result<_>>()?;
        for worker in &mut workers {
            worker.answer()?;
        }
        Ok(Self { _workers: workers })
    }
}

/// Connections to a server.
#[derive(Debug)]
pub struct Crowd {
    workers: Vec<Worker>,
}

/// What became of the echoes of a crowd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echoed {
    count: usize,
    /// How long they took together.
    sum: Duration,
}

impl Echoed {
    /// How long each took, on average.
    pub fn mean(&self) -> Duration {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.sum.checked_div(count).unwrap_or_default()
    }
}

impl Crowd {
    /// No connections yet, to this server.
    pub fn new(program: &Program, netns: &Netns, to: SocketAddr) -> Result<Self> {
        let start = |number| Worker::start(program, netns, &format!("call{number}"), to);
        let workers = (0..PROCESSES).map(start).collect::<Result<_>>()?;
        Ok(Self { workers })
    }

    /// Connects until there are so many connections.
    pub fn grow(&mut self, count: usize) -> Result<()> {
        self.all(|number| {
            let share = count / PROCESSES + usize::from(number < count % PROCESSES);
            format!("grow {share}")
        })?;
        Ok(())
    }

    /// Has each connection send payloads of a length so many times, each when the echo of the
    /// last one has come; compares every byte.
    pub fn echo(&mut self, length: usize, times: u8) -> Result<Echoed> {
        let mut echoed = Echoed {
            count: 0,
            sum: Duration::ZERO,
        };
        for answer in self.all(|_| format!("echo {length} {times}"))? {
            let [count, sum] = answer[..] else {
                bail!("not an answer: {answer:?}");
            };
            echoed.count += usize::try_from(count)?;
            echoed.sum += Duration::from_nanos(sum);
        }
        Ok(echoed)
    }

    /// Commands all processes at once.
    fn all(&mut self, command: impl Fn(usize) -> String) -> Result<Vec<Vec<u64>>> {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            worker.command(&command(number))?;
        }
        self.workers.iter_mut().map(Worker::answer).collect()
    }
}

/// The work of one process, which `role` and `address` tell; answers on standard output.
pub fn work(role: &str, address: &str) -> Result<()> {
    let result = match role {
        "serve" => serve(address.parse()?),
        role => match role.strip_prefix("call").map(str::parse) {
            Some(Ok(number)) => call(number, address.parse()?),
            _ => bail!("no work for {role}"),
        },
    };
    if let Err(error) = &result {
        println!("error: {error:#}");
    }
    result
}

fn serve(at: SocketAddr) -> Result<()> {
    let listener = server::listen(at)?;
    println!("1");
    server::serve(&listener)
}

fn call(process: usize, to: SocketAddr) -> Result<()> {
    let mut clients = Clients::new(process)?;
    for line in stdin().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["grow", count] => {
                clients.grow(to, count.parse()?)?;
                println!("1");
            }
            ["echo", length, times] => {
                let echoed = clients.echo(length.parse()?, times.parse()?)?;
                println!("{} {}", echoed.count, echoed.sum.as_nanos());
            }
            _ => bail!("not a command: {line}"),
        }
    }
    Ok(())
}

/// The result of a step, if it could be done at once.
fn would_block<T>(result: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn wait_for(epoll: &Epoll, events: &mut [EpollEvent], limit: EpollTimeout) -> Result<usize> {
    match epoll.wait(events, limit) {
        Ok(count) => Ok(count),
        Err(nix::errno::Errno::EINTR) => Ok(0),
        Err(error) => Err(error).context("cannot wait for connections"),
    }
}
