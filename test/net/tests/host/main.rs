//! What the host and its interfaces do to an attachment, and what it leaves there.

mod cleanup;
mod functions;
mod members;
mod outgoing;
mod removal;
mod rename;
mod replug;
mod upgrade;
mod without_btf;
