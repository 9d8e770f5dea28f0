//! Rules as the configuration file has them, in the words of the command line.

use serde::{Deserialize, Deserializer};

use super::{Listen, Source, To};
use crate::config::values::{one_or_some, word};

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(file, "a port like 7000 or \"203.0.113.7:443/udp\"")
    }
}

impl<'de> Deserialize<'de> for To {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(file, "a back end like \"10.0.0.5:7000\"")
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        word(
            file,
            "\"keep\", \"masquerade\" or an address like \"203.0.113.7\"",
        )
    }
}

/// Reads one back end or a list.
pub(super) fn back_ends<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<To>, D::Error> {
    one_or_some(file, "a back end like \"10.0.0.5:7000\" or a list of them")
}
