//! Counters, and the fate of a packet with each outcome.

use crate::report::outcome::{counters, outcomes};

outcomes! {
    /// How a packet ended whose payload a rule was to search.
    Outcome, first 0;
    InSearched "in_searched" Pass "Packets that came in, were searched for the patterns of at least one rule, and matched none." "";
    InMatched "in_matched" Pass "Packets that came in and matched a rule that only counts or logs; they passed." "";
    InDryRun "in_dry_run" Pass "Packets that came in and matched a rule with `--dry-run` that would have dropped them; they passed." "When the counter grows by what you want to drop, start the rule without `--dry-run`.";
    InDropMatched "in_drop_matched" Lose "Packets that came in and were dropped because a rule with the action `drop` matched." "`xdptun status` shows which rule; try a rule with `--dry-run` before it drops.";
    InDropReset "in_drop_reset" Lose "Packets that came in and were dropped because a rule with the action `reset` matched; both ends of a connection get RST, the sender of a datagram an ICMP error." "`xdptun status` shows which rule; try a rule with `--dry-run` before it drops.";
    OutSearched "out_searched" Pass "Packets that left, were searched for the patterns of at least one rule, and matched none." "";
    OutMatched "out_matched" Pass "Packets that matched a rule that only counts or logs, and left." "";
    OutDryRun "out_dry_run" Pass "Packets that matched a rule with `--dry-run` that would have dropped them, and left." "When the counter grows by what you want to drop, start the rule without `--dry-run`.";
    OutDropMatched "out_drop_matched" Lose "Packets dropped on their way out because a rule with the action `drop` matched." "`xdptun status` shows which rule; try a rule with `--dry-run` before it drops.";
    OutDropReset "out_drop_reset" Lose "Packets dropped on their way out because a rule with the action `reset` matched; both ends of a connection get RST, the sender of a datagram an ICMP error." "`xdptun status` shows which rule; try a rule with `--dry-run` before it drops.";
}

counters! {
    /// What is counted beside the ends of packets.
    Count, first Outcome::ALL.len() as u32;
    SearchesCut "searches_cut" "Searches of one packet for the patterns of one rule that took too many steps and were ended, as the payload is full of parts of patterns; or could not begin, as more than eight IPv6 extension headers stand before it. A rule that drops takes such a packet for a match, a rule that counts or logs does not." "Somebody sends near-matches, or a pattern is a run of a byte that is common in the payload (zeros, spaces): make it longer or rarer.";
    Unlogged "matches_unlogged" "Matches of rules with the action `log` that the programs did not hand to the daemon: there were too many, or the daemon does not read them." "Use the action `count`; `xdptun status` shows the hits of each rule.";
    Untold "resets_untold" "Packets dropped by the action `reset` that the programs did not hand to the daemon, which tells the ends: there were too many, the daemon does not read them, or it is a later fragment." "";
}
