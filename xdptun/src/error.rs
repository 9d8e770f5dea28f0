//! The error of the library: a kind that a program can act on, a message for its operator,
//! and the causes.

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::io;

use nix::errno::Errno;

/// What a function of the library returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something failed, as far as a program can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The configuration is wrong, or asks for more than there is room for.
    Invalid,
    /// A file with a secret cannot be read, or the secret cannot be used: it is too short, or
    /// another file holds the same.
    Secret,
    /// The host name of a peer has no usable address, or no name server answers.
    NameLookup,
    /// There is no interface of that name.
    NoInterface,
    /// The kernel or the link layer of the interface lacks what is asked for.
    Unsupported,
    /// Another XDP program is attached to the interface.
    XdpTaken,
    /// The driver of the interface does not take the XDP program.
    XdpUnsupported,
    /// This process lacks a capability, or may not open a file.
    Permission,
    /// Another process keeps the interface, or is the service of this network namespace.
    AlreadyAttached,
    /// Nothing is attached to the interface.
    NotAttached,
    /// What is attached has an option that cannot change while it is attached.
    CannotChange,
    /// No process can be asked: no daemon keeps the interface, no service runs, or it has
    /// ended meanwhile.
    NotRunning,
    /// A running xdptun does not answer, leave or end in time, or is just being attached.
    Busy,
    /// A running xdptun must not be replaced or stopped for this: other interfaces would lose
    /// their daemon, or its configuration file decides what it keeps.
    Conflict,
    /// Another version of xdptun attached what is there, or is the one that answers.
    OtherVersion,
    /// The interface was attached in another mount or PID namespace, and can be changed only
    /// there.
    OtherNamespace,
    /// The kernel refused a request.
    Kernel,
    /// A file or a socket failed.
    Io,
    /// None of the above.
    Other,
}

/// Why a function of the library failed.
///
/// `{}` shows the message alone; `{:#}` shows the causes as well, each after a colon.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    what: What,
}

type Source = Box<dyn StdError + Send + Sync>;

#[derive(Debug, thiserror::Error)]
enum What {
    #[error("{message}")]
    Message {
        message: String,
        source: Option<Source>,
    },
    /// An error of another library, which has a message of its own.
    #[error(transparent)]
    Cause(Source),
}

impl What {
    /// The error whose message this one shows as its own, and so does not name as its source.
    fn cause(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Message { .. } => None,
            Self::Cause(cause) => Some(&**cause),
        }
    }
}

impl Error {
    /// An error with this message and no cause.
    #[must_use]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let (message, source) = (message.into(), None);
        Self::of(kind, What::Message { message, source })
    }

    /// An error of the caller's own, of [`Kind::Other`], with its message and causes.
    #[must_use]
    pub fn other(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::caused_by(Kind::Other, cause)
    }

    /// An error of this kind, with the message and the causes of an error of another library.
    #[must_use]
    pub fn caused_by(kind: Kind, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::of(kind, What::Cause(cause.into()))
    }

    fn of(kind: Kind, what: What) -> Self {
        Self(Box::new(Inner { kind, what }))
    }

    /// Why it failed, as far as a program can act on it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The same error with another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: Kind) -> Self {
        self.0.kind = kind;
        self
    }

    /// An error with this message and the same kind, caused by this one.
    #[must_use]
    pub fn context(self, message: impl Display) -> Self {
        let (kind, message) = (self.kind(), message.to_string());
        let source = Some(self.into());
        Self::of(kind, What::Message { message, source })
    }

    /// The kind of the I/O error at the bottom of it, if there is one.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        io_error(self).map(io::Error::kind)
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.what)?;
        if f.alternate() {
            for cause in causes(self).skip(1) {
                write!(f, ": {cause}")?;
            }
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.what.source()
    }
}

/// An error and its causes, the nearest first.
fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The I/O error among an error and its causes.
pub(crate) fn io_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    causes(error).find_map(|cause| match cause.downcast_ref::<Error>() {
        Some(Error(inner)) => io_error(inner.what.cause()?),
        None => cause.downcast_ref(),
    })
}

/// The kind of an error of another library: `otherwise`, unless a privilege is missing.
fn kind_of(error: &(dyn StdError + 'static), otherwise: Kind) -> Kind {
    let denied = io_error(error).is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied);
    if denied { Kind::Permission } else { otherwise }
}

/// Errors of other libraries, by the kind that they are of.
macro_rules! from_causes {
    ($($kind:ident: $($cause:ty),+;)+) => {$($(
        impl From<$cause> for Error {
            fn from(cause: $cause) -> Self {
                Self::caused_by(kind_of(&cause, Kind::$kind), cause)
            }
        }
    )+)+};
}

from_causes! {
    Io: io::Error;
    Kernel:
        aya::EbpfError,
        aya::maps::MapError,
        aya::maps::perf::PerfBufferError,
        aya::pin::PinError,
        aya::programs::ProgramError,
        aya::programs::links::LinkError,
        aya::programs::tc::TcError,
        caps::errors::CapsError;
    NotRunning: tokio::sync::oneshot::error::RecvError;
    Busy: tokio::time::error::Elapsed;
    Other:
        ipnet::PrefixLenError,
        rtnetlink::packet_core::DecodeError,
        serde_json::Error,
        fmt::Error,
        std::num::ParseIntError,
        std::num::TryFromIntError,
        std::string::FromUtf8Error,
        tokio::sync::AcquireError,
        tokio::task::JoinError;
}

impl From<Errno> for Error {
    fn from(cause: Errno) -> Self {
        let kind = match cause {
            Errno::EPERM | Errno::EACCES => Kind::Permission,
            _ => Kind::Kernel,
        };
        Self::caused_by(kind, cause)
    }
}

impl From<rtnetlink::Error> for Error {
    fn from(cause: rtnetlink::Error) -> Self {
        let kind = match &cause {
            rtnetlink::Error::NetlinkError(answer) => kind_of(&answer.to_io(), Kind::Kernel),
            _ => Kind::Kernel,
        };
        Self::caused_by(kind, cause)
    }
}

/// Says what was tried when something failed.
pub trait Context<T> {
    /// With a message. The kind stays that of the cause; of a value that is missing it is
    /// [`Kind::Other`].
    ///
    /// # Errors
    ///
    /// If this is one.
    fn context(self, message: impl Display) -> Result<T>;

    /// The same, with a message that is made only if it is needed.
    ///
    /// # Errors
    ///
    /// If this is one.
    fn with_context<M: Display>(self, message: impl FnOnce() -> M) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context(self, message: impl Display) -> Result<T> {
        self.map_err(|cause| cause.into().context(message))
    }

    fn with_context<M: Display>(self, message: impl FnOnce() -> M) -> Result<T> {
        self.map_err(|cause| cause.into().context(message()))
    }
}

impl<T> Context<T> for Option<T> {
    fn context(self, message: impl Display) -> Result<T> {
        self.ok_or_else(|| Error::new(Kind::Other, message.to_string()))
    }

    fn with_context<M: Display>(self, message: impl FnOnce() -> M) -> Result<T> {
        self.ok_or_else(|| Error::new(Kind::Other, message().to_string()))
    }
}

/// Returns an error of a kind, with a message as for `format!`.
macro_rules! bail {
    ($kind:ident, $($message:tt)+) => {
        return Err($crate::error::Error::new(
            $crate::error::Kind::$kind,
            format!($($message)+),
        ))
    };
}
pub(crate) use bail;

#[cfg(test)]
mod tests {
    use super::*;

    fn missing_file() -> Result<()> {
        Err(io::Error::from_raw_os_error(Errno::ENOENT as i32))
            .context("cannot read b")
            .with_context(|| "interface a")
    }

    fn map_error(io_error: io::Error) -> aya::maps::MapError {
        let call = "bpf_map_lookup_elem";
        aya::sys::SyscallError { call, io_error }.into()
    }

    #[test]
    fn the_causes_are_shown_on_demand() {
        let error = missing_file().unwrap_err();
        assert_eq!(error.to_string(), "interface a");
        let all = "interface a: cannot read b: No such file or directory (os error 2)";
        assert_eq!(format!("{error:#}"), all);
        // As the command line shows it.
        assert_eq!(format!("{:#}", anyhow::Error::from(error)), all);
    }

    #[test]
    fn an_error_of_another_library_is_shown_once() {
        let cause = || map_error(io::Error::other("full"));
        let shown = format!("{:#}", anyhow::Error::from(cause()));
        assert!(shown.ends_with(": full"), "{shown}");
        assert_eq!(format!("{:#}", Error::from(cause())), shown);
    }

    #[test]
    fn a_message_keeps_the_kind_of_the_cause() {
        assert_eq!(missing_file().unwrap_err().kind(), Kind::Io);
        let error = Error::new(Kind::Secret, "too short").context("peer a");
        assert_eq!(error.kind(), Kind::Secret);
        assert_eq!(format!("{error:#}"), "peer a: too short");
        let error = error.with_kind(Kind::Invalid);
        assert_eq!(error.kind(), Kind::Invalid);
        let absent: Option<()> = None;
        assert_eq!(absent.context("gone").unwrap_err().kind(), Kind::Other);
    }

    #[test]
    fn a_missing_privilege_is_found_among_the_causes() {
        let denied = || io::Error::from_raw_os_error(Errno::EPERM as i32);
        for error in [
            denied().into(),
            map_error(denied()).into(),
            Errno::EACCES.into(),
        ] {
            let error: Error = error;
            assert_eq!(error.kind(), Kind::Permission, "{error:#}");
        }
        let error = Error::from(Errno::EBUSY);
        assert_eq!(error.kind(), Kind::Kernel);
    }

    #[test]
    fn the_io_error_at_the_bottom_is_found() {
        let error = missing_file().unwrap_err();
        assert_eq!(error.io_kind(), Some(io::ErrorKind::NotFound));
        assert_eq!(Error::new(Kind::Io, "alone").io_kind(), None);
        let own = Error::other("of another program");
        assert_eq!((own.io_kind(), own.kind()), (None, Kind::Other));
    }
}
