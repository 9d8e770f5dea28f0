//! Values of the file and of the command line.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::error::{Error, Result, bail};

/// The program that restores inbound data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
pub enum IngressChoice {
    /// XDP in the driver if it has it, else tc.
    #[default]
    Auto,
    /// XDP in the driver.
    Xdp,
    /// XDP in the stack; switches software GRO off for the whole interface.
    XdpGeneric,
    /// tc alone.
    Tc,
}

/// Whether restored datagrams pass GRO, which merges them for sockets with UDP_GRO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
pub enum GroChoice {
    /// Those of flows that bring 64 or more in 16.8 ms, where tc restores them on an Ethernet
    /// interface. After 256 of a flow that were hardly merged, it goes up directly for 1.07 s.
    #[default]
    Auto,
    /// None: each goes up by itself.
    Off,
}

/// What the peers run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
pub enum Compat {
    /// xdptun, as on this host.
    #[default]
    Xdptun,
    /// phantun 0.8, a client or a server; without `secret` and without fragments (docs/phantun.md).
    Phantun,
}

/// How the tc programs are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
pub enum TcChoice {
    /// TCX where the kernel has it (6.6), else clsact.
    #[default]
    Auto,
    /// TCX links.
    Tcx,
    /// Filters of the clsact qdisc.
    Clsact,
}

/// Default capacity of the flow table.
pub const DEFAULT_MAX_FLOWS: u32 = 65536;

/// A number from 1 to `MOST`; `DEFAULT` if none is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(try_from = "u32")]
pub struct UpTo<const MOST: u32, const DEFAULT: u32>(u32);

/// A capacity of the flow table. A larger table would take gigabytes of memory that the kernel
/// cannot swap.
pub type MaxFlows = UpTo<{ 1 << 24 }, DEFAULT_MAX_FLOWS>;

/// A capacity of the table of sessions.
pub type MaxSessions = UpTo<{ 1 << 22 }, 65536>;

/// A capacity of the table of bindings.
pub type MaxBindings = UpTo<{ 1 << 22 }, 65536>;

/// How many bindings one inside host may have at once.
pub type MaxBindingsPerHost = UpTo<{ 1 << 22 }, 8192>;

/// How many clients of one network may have an IPv4 address.
pub type PerPrefix = UpTo<{ 1 << 16 }, { 1 << 14 }>;

impl<const MOST: u32, const DEFAULT: u32> UpTo<MOST, DEFAULT> {
    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const MOST: u32, const DEFAULT: u32> Default for UpTo<MOST, DEFAULT> {
    fn default() -> Self {
        Self(DEFAULT)
    }
}

impl<const MOST: u32, const DEFAULT: u32> TryFrom<u32> for UpTo<MOST, DEFAULT> {
    type Error = Error;

    fn try_from(number: u32) -> Result<Self> {
        if number == 0 || number > MOST {
            bail!(Invalid, "{number} is not possible; give 1 to {MOST}");
        }
        Ok(Self(number))
    }
}

impl<const MOST: u32, const DEFAULT: u32> FromStr for UpTo<MOST, DEFAULT> {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<u32>() {
            Ok(number) => number.try_into(),
            Err(_) => bail!(Invalid, "`{text}` is not a number from 1 to {MOST}"),
        }
    }
}

impl<const MOST: u32, const DEFAULT: u32> fmt::Display for UpTo<MOST, DEFAULT> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The MTU of a path of IPv6, in bytes; 1500 if none is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(try_from = "u32")]
pub struct Mtu(u32);

impl Mtu {
    /// What every path of IPv6 takes (RFC 8200 section 5).
    pub const LEAST: u32 = 1280;
    /// What jumbo frames take.
    pub const MOST: u32 = 9216;

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Mtu {
    fn default() -> Self {
        Self(1500)
    }
}

impl TryFrom<u32> for Mtu {
    type Error = Error;

    fn try_from(bytes: u32) -> Result<Self> {
        let (least, most) = (Self::LEAST, Self::MOST);
        match (least..=most).contains(&bytes) {
            true => Ok(Self(bytes)),
            false => bail!(Invalid, "{bytes} is no MTU of IPv6; give {least} to {most}"),
        }
    }
}

impl FromStr for Mtu {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.parse::<u32>() {
            Ok(bytes) => bytes.try_into(),
            Err(_) => bail!(Invalid, "`{text}` is not a number of bytes"),
        }
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How much to log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema, serde::Serialize))]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the levels of `tracing`")]
pub enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

/// Reads a text as the command line has it; the error for anything else shows how to write one.
pub fn word<'de, T: FromStr<Err: fmt::Display>, D: Deserializer<'de>>(
    file: D,
    like: &'static str,
) -> Result<T, D::Error> {
    file.deserialize_any(Word {
        like,
        is: PhantomData,
    })
}

/// Reads one text, or a list of what such texts stand for.
pub fn one_or_some<'de, T: Deserialize<'de> + FromStr<Err: fmt::Display>, D: Deserializer<'de>>(
    file: D,
    like: &'static str,
) -> Result<Vec<T>, D::Error> {
    struct OneOrSome<T>(Word<T>);

    impl<'de, T: Deserialize<'de> + FromStr<Err: fmt::Display>> Visitor<'de> for OneOrSome<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.expecting(f)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            Ok(vec![self.0.visit_str(text)?])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(values))
        }
    }

    file.deserialize_any(OneOrSome(Word {
        like,
        is: PhantomData,
    }))
}

/// A text of the command line, in the file.
struct Word<T> {
    like: &'static str,
    is: PhantomData<T>,
}

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Word<T> {
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

/// Reads a list; the error for anything else shows how to write one.
pub fn list<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    file: D,
    like: &'static str,
) -> Result<Vec<T>, D::Error> {
    struct List<T>(&'static str, PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(values))
        }
    }

    file.deserialize_seq(List(like, PhantomData))
}
