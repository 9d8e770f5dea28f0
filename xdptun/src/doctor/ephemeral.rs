//! Owned ports that this host's own connections may be given.

use anyhow::Result;

use super::{Finding, Subject};
use crate::ephemeral::Exposed;

pub fn check(subject: &Subject) -> Result<Vec<Finding>> {
    if subject.ports.is_empty() || subject.has_secret() {
        return Ok(Vec::new());
    }
    let exposed = Exposed::among(&subject.ports)?;
    Ok(vec![judge(subject.name(), exposed.as_ref())])
}

fn judge(name: &str, exposed: Option<&Exposed>) -> Finding {
    const CHECK: &str = "ephemeral-port";
    match exposed {
        None => Finding::ok(
            CHECK,
            format!("{name}: the kernel gives no owned port to connections of this host"),
        ),
        Some(exposed) => {
            let what = format!(
                "{name}: the kernel may give port {} to an outgoing TCP connection of this host, \
                 which then gets no answer here",
                exposed.ports()
            );
            Finding::warn(CHECK, what).mend(exposed.command())
        }
    }
}
