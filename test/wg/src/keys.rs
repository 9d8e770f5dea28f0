//! Keys made for one run; none is ever committed.

use std::process::Command;

use anyhow::Result;
use xdptun_lab::command::{run, run_with_input};

/// A Curve25519 key pair in the base64 notation of `wg`.
#[derive(Clone)]
pub struct KeyPair {
    /// Stays on the peer.
    pub private: String,
    /// Goes into the other peer's configuration.
    pub public: String,
}

impl KeyPair {
    /// Makes a fresh pair.
    pub fn generate() -> Result<Self> {
        let private = run(Command::new("wg").arg("genkey"))?.trim().to_owned();
        let public = run_with_input(Command::new("wg").arg("pubkey"), &private)?;
        Ok(Self {
            private,
            public: public.trim().to_owned(),
        })
    }
}
