//! Owned ports that the kernel may give to any UDP socket of this host.

use super::{Finding, Subject};
use crate::error::Result;
use crate::host::ephemeral::Exposed;

pub fn check(subject: &Subject) -> Result<Vec<Finding>> {
    if subject.ports.is_empty() {
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
            format!("{name}: the kernel gives no owned port to a socket that asks for any port"),
        ),
        Some(exposed) => {
            let what = format!(
                "{name}: the kernel may give port {} to a UDP socket that asks for any port; its \
                 datagrams would leave as TCP",
                exposed.ports()
            );
            Finding::warn(CHECK, what).mend(exposed.command())
        }
    }
}
