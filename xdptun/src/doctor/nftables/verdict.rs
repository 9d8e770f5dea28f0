//! What a rule says.

use serde_json::Value;

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
