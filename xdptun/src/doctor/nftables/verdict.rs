//! What a rule says.

use serde_json::Value;

/// How deep chains can jump, as in the kernel (`NFT_JUMP_STACK_SIZE`).
pub const MAX_DEPTH: usize = 16;

/// The target of iptables that a statement is: nft does not list the arguments of these.
pub fn iptables_target(statement: &Value) -> Option<&str> {
    statement["xt"]["name"].as_str()
}

/// The verdict of a rule for packets that it matches.
pub enum Verdict<'a> {
    Accept,
    Drop,
    Return,
    Jump(&'a str),
    Goto(&'a str),
}

impl<'a> Verdict<'a> {
    pub fn read(statement: &'a Value) -> Option<Self> {
        let (name, value) = statement.as_object()?.iter().next()?;
        let target = || value["target"].as_str();
        Some(match name.as_str() {
            // A program in user space decides about queued packets; assume it accepts.
            "accept" | "queue" => Self::Accept,
            "drop" | "reject" => Self::Drop,
            "return" => Self::Return,
            "jump" => Self::Jump(target()?),
            "goto" => Self::Goto(target()?),
            _ => return None,
        })
    }
}
