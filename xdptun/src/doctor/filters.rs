//! Filters of a clsact qdisc, and what they do.

use futures_util::{Stream, StreamExt as _};
use rtnetlink::packet_core::Nla as _;
use rtnetlink::packet_route::tc::{
    TcAction, TcActionAttribute, TcActionGeneric, TcActionOption, TcActionType, TcAttribute,
    TcFilterBpfOption, TcFilterFlowerOption, TcFilterMatchAllOption, TcFilterU32Option, TcMessage,
    TcOption,
};

use crate::error::Result;

/// The action that ends a packet or lets it pass.
const VERDICT: &str = "gact";

/// Its option with the verdict (`TCA_GACT_PARMS`).
const PARAMETERS: u16 = 2;

/// A filter on one direction of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The name of its program, or its kind.
    pub name: String,
    /// The number by which filters are ordered.
    pub priority: u32,
    /// Whether it drops the packets that it matches. What a program drops is not known.
    pub drops: bool,
}

/// The filters that the kernel lists, in their order. Without a clsact qdisc there are none.
pub async fn read(listed: impl Stream<Item = Result<TcMessage, rtnetlink::Error>>) -> Vec<Filter> {
    let found = listed.filter_map(async |filter| filter.ok().as_ref().and_then(filter_of));
    found.collect().await
}

fn filter_of(message: &TcMessage) -> Option<Filter> {
    // The kernel lists each priority once more, as a filter without a handle.
    if u32::from(message.header.handle) == 0 {
        return None;
    }
    let (mut kind, mut program, mut drops) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            TcAttribute::Kind(name) => kind = Some(name.clone()),
            TcAttribute::Options(options) => {
                program = options.iter().find_map(|option| match option {
                    TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => Some(name.clone()),
                    _ => None,
                });
                drops = options.iter().flat_map(actions).any(drops_packets);
            }
            _ => {}
        }
    }
    Some(Filter {
        name: program.or(kind)?,
        priority: message.header.info >> 16,
        drops,
    })
}

fn actions(option: &TcOption) -> &[TcAction] {
    match option {
        TcOption::U32(TcFilterU32Option::Action(actions))
        | TcOption::MatchAll(TcFilterMatchAllOption::Action(actions))
        | TcOption::Flower(TcFilterFlowerOption::Actions(actions)) => actions,
        _ => &[],
    }
}

fn drops_packets(action: &TcAction) -> bool {
    let attributes = action.attributes.iter();
    let options = attributes.filter_map(|one| match one {
        TcActionAttribute::Options(options) => Some(options),
        _ => None,
    });
    let mut verdicts = options.flatten().filter_map(verdict);
    let kind = TcActionAttribute::Kind(VERDICT.into());
    action.attributes.contains(&kind) && verdicts.any(|verdict| verdict == TcActionType::Shot)
}

/// What an option of [`VERDICT`] says.
fn verdict(option: &TcActionOption) -> Option<TcActionType> {
    let TcActionOption::Other(raw) = option else {
        return None;
    };
    if raw.kind() != PARAMETERS {
        return None;
    }
    let mut bytes = vec![0; raw.value_len()];
    raw.emit_value(&mut bytes);
    Some(TcActionGeneric::parse(&bytes).ok()?.action)
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_core::DefaultNla;
    use rtnetlink::packet_route::tc::TcHandle;

    use super::*;

    /// A filter of `tc filter add ... prio 100 u32 match ... action`, with the number of a verdict.
    fn listed(verdict: i32) -> TcMessage {
        let mut parameters = [0; 20];
        parameters[8..12].copy_from_slice(&verdict.to_ne_bytes());
        let mut action = TcAction::default();
        action.attributes = vec![
            TcActionAttribute::Kind("gact".into()),
            TcActionAttribute::Options(vec![TcActionOption::Other(DefaultNla::new(
                2,
                parameters.to_vec(),
            ))]),
        ];
        let mut message = TcMessage::default();
        message.header.handle = TcHandle::from(1);
        message.header.info = 100 << 16 | 8;
        message.attributes = vec![
            TcAttribute::Kind("u32".into()),
            TcAttribute::Options(vec![TcOption::U32(TcFilterU32Option::Action(vec![action]))]),
        ];
        message
    }

    #[test]
    fn an_action_that_drops_is_seen() {
        const PASS: i32 = 0;
        const SHOT: i32 = 2;
        for (verdict, drops) in [(PASS, false), (SHOT, true)] {
            let filter = Filter {
                name: "u32".into(),
                priority: 100,
                drops,
            };
            assert_eq!(filter_of(&listed(verdict)), Some(filter));
        }
        let mut priority = listed(SHOT);
        priority.header.handle = TcHandle::from(0);
        assert_eq!(filter_of(&priority), None);
    }
}
