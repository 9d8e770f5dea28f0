//! The stack that chains of calls need on every kernel, whatever this one allows.

use std::fs;

use xdptun_lab::workspace;
use xdptun_test_datapath::stack::{MOST, deepest};

#[test]
fn every_kernel_has_room_for_the_deepest_chain_of_calls() {
    let object = fs::read(workspace::object("tunnel")).unwrap();
    let chains = deepest(&object).unwrap();
    assert_eq!(chains.len(), 6, "a chain for each program: {chains:#?}");
    for chain in chains {
        println!("{} bytes: {}", chain.bytes, chain.functions.join(" > "));
        assert!(chain.bytes <= MOST, "{chain:#?}");
    }
}
