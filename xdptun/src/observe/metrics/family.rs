//! A metric: its description, and a sample for each attachment.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use crate::observe::status::AttachmentStatus;

/// An attachment and the value of its label `interface`, or of `group` if it stands for all
/// of its group.
#[derive(Debug)]
pub struct Labelled<T> {
    pub name: String,
    pub status: T,
}

/// Gives attachments their labels, which have to be unique. If several attachments of a
/// function have interfaces of one name (all but one of them gone), the latest counts.
pub fn labelled<T: AsRef<AttachmentStatus>>(mut all: Vec<T>) -> Vec<Labelled<T>> {
    all.sort_by(|a, b| {
        let [a, b] = [a.as_ref(), b.as_ref()];
        (a.function, &a.name, a.attached).cmp(&(b.function, &b.name, b.attached))
    });
    all.dedup_by(|older, latest| {
        let [older, latest] = [older.as_ref(), latest.as_ref()];
        (older.function, &older.name) == (latest.function, &latest.name)
    });
    let all = all.into_iter().map(|status| Labelled {
        name: escaped(&status.as_ref().name),
        status,
    });
    all.collect()
}

/// Keeps one attachment of each group, under the label of that group, which has to be unique.
/// Two groups have one label if the interfaces of the first are gone; then the latest counts.
pub fn labelled_by_group<T: AsRef<AttachmentStatus>>(all: Vec<T>) -> Vec<Labelled<T>> {
    let all = all.into_iter().map(|status| Labelled {
        name: group(status.as_ref()),
        status,
    });
    let mut all: Vec<_> = all.collect();
    let attached = |one: &Labelled<T>| one.status.as_ref().attached;
    all.sort_by(|a, b| (&a.name, attached(a)).cmp(&(&b.name, attached(b))));
    all.dedup_by(|older, latest| older.name == latest.name);
    all
}

/// The value of the label `group`: the names of its interfaces.
pub fn group(attachment: &AttachmentStatus) -> String {
    escaped(&attachment.group.join(","))
}

/// The value of a label: the library does not escape it.
pub fn escaped(text: &str) -> String {
    text.replace('\\', r"\\").replace('"', "\\\"")
}

/// Name, help and unit; the name is without the suffixes of unit and kind.
pub type Descriptor<'a> = (&'a str, &'a str, Option<&'a Unit>);

/// Writes metrics of attachments.
pub struct Families<'a, 'e, T> {
    pub encoder: DescriptorEncoder<'e>,
    pub attachments: &'a [Labelled<T>],
}

impl<T> Families<'_, '_, T> {
    /// Writes a metric. `samples` gets the name of each [`Labelled`].
    pub fn each(
        &mut self,
        (name, help, unit): Descriptor<'_>,
        kind: MetricType,
        samples: impl Fn(&mut MetricEncoder<'_>, &str, &T) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, unit, kind)?;
        for Labelled { name, status } in self.attachments {
            samples(&mut metric, name, status)?;
        }
        Ok(())
    }
}
