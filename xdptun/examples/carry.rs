//! The shortest useful program: UDP port 8000 of eth0 travels as TCP until Ctrl-C.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use xdptun::config::InterfaceConfig;
use xdptun::group::{Group, Incumbent, Trace};
use xdptun::tunnel::resolve::Names;
use xdptun::tunnel::{Plan, Tunnel};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    // Killed, it would leave its programs attached. A service waits for SIGTERM as well.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let config = InterfaceConfig::new(vec!["8000".parse()?]);
    let plan = Plan::new(&config, &Names::default(), Trace::Off)?;
    let group = Group::<Tunnel>::attach(&["eth0".to_owned()], plan, Incumbent::Respect)?;
    println!("ready: eth0 carries UDP port 8000 as TCP");
    group.run_until(&(), interrupt.recv()).await?;
    Ok(())
}
