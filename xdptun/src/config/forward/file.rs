//! Rules as the configuration file has them, in the words of the command line.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::{ForwardError, Listen, Source, To};

/// Reads a word of the command line.
struct Word<T> {
    like: &'static str,
    word: PhantomData<T>,
}

impl<T> Word<T> {
    const fn like(like: &'static str) -> Self {
        Self {
            like,
            word: PhantomData,
        }
    }
}

impl<T: FromStr<Err = ForwardError>> Visitor<'_> for Word<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.like)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    /// A port alone.
    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        file.deserialize_any(Word::like("a port like 7000 or \"203.0.113.7:443/udp\""))
    }
}

impl<'de> Deserialize<'de> for To {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        file.deserialize_any(Word::like("a back end like \"10.0.0.5:7000\""))
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        file.deserialize_any(Word::like(
            "\"keep\", \"masquerade\" or an address like \"203.0.113.7\"",
        ))
    }
}

/// Reads one back end or a list.
pub(super) fn one_or_some<'de, D: Deserializer<'de>>(file: D) -> Result<Vec<To>, D::Error> {
    struct OneOrSome;

    impl<'de> Visitor<'de> for OneOrSome {
        type Value = Vec<To>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a back end like \"10.0.0.5:7000\" or a list of them")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<To>, E> {
            Ok(vec![text.parse().map_err(E::custom)?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, back_ends: A) -> Result<Vec<To>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(back_ends))
        }
    }

    file.deserialize_any(OneOrSome)
}
