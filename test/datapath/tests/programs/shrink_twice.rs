//! Kernels before 6.2 are made to shrink packets in two steps: nothing else may
//! differ. (`BPF_PROG_TEST_RUN` does not show what it is for: pending checksums.)

use xdptun_test_datapath::{Config, Datapath, check};

#[test]
fn all_packets_are_the_same() {
    let mut datapath = Datapath::new(&Config {
        shrink_twice: true,
        ..Config::default()
    });
    check(&mut datapath, crate::established::every_length());
    check(&mut datapath, crate::opening::first_datagrams());
    check(&mut datapath, crate::requests::granted_requests());
    check(&mut datapath, crate::options::leaving());
    check(&mut datapath, crate::icmp::each_type_and_code());
}
