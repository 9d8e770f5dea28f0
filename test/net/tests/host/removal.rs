//! An entry of the flow table is removed while the programs use it.

use nix::sys::signal::Signal;
use xdptun::datapath::map::Source;
use xdptun::tunnel::maps::Maps;
use xdptun_lab::{Direct, Family, Host, udp, wait, xdptun as product};
use xdptun_test_net::nets::Plain;
use xdptun_test_net::{LIMIT, PORT, mode, status};

/// The sweep has judged a closed flow when a datagram opens it, and removes it: the
/// datagram waits for a flow that is not there, and opens it again.
#[test]
fn a_datagram_whose_flow_is_removed_opens_it_again() {
    let net = Plain::new().unwrap();
    let (client, server) = (net.0.client(), &net.0.server);
    let [near, _far] = mode::TC.attach_to([client, server]).unwrap();
    let echo = udp::Server::echo(&server.netns, server.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(&client.netns, client.socket(Family::V4, 0)).unwrap();
    // The daemon acts between two instructions of the programs.
    net.hold().unwrap();
    near.process().signal(Signal::SIGSTOP).unwrap();
    socket.send_to(b"just then", echo.address()).unwrap();
    status::wait_states(&client.netns, "syn-sent", 1).unwrap();
    let pins = product::pin_dir(&client.netns, Host::DEV).unwrap();
    let mut maps = Maps::open(&mut Source::Pins(&pins)).unwrap();
    let key = maps.flows().unwrap()[0].0;
    let taken = maps.take_flow(&key).unwrap().unwrap();
    assert_eq!(taken.state().name(), "syn-sent");
    near.process().signal(Signal::SIGCONT).unwrap();
    net.release().unwrap();
    socket
        .set_read_timeout(Some(wait::stretched(LIMIT).unwrap()))
        .unwrap();
    let mut answer = [0; 100];
    let len = near
        .process()
        .with_output(socket.recv(&mut answer).map_err(Into::into));
    assert_eq!(&answer[..len.unwrap()], b"just then");
    assert_eq!(
        status::counter(&client.netns, "tx_lost_in_queue").unwrap(),
        0
    );
}

/// Removing a flow returns its entry as it was at that moment. The entry can be put back,
/// but not in place of a flow that the programs have made meanwhile.
#[test]
fn a_flow_that_is_put_back_goes_on_unless_there_is_a_new_one() {
    let net = Direct::new().unwrap();
    let _attached = mode::TC.attach_both(&net).unwrap();
    let netns = &net.a.netns;
    let echo = udp::Server::echo(&net.b.netns, net.b.socket(Family::V4, PORT)).unwrap();
    let socket = udp::bind(netns, net.a.socket(Family::V4, 0)).unwrap();
    let exchange = || udp::exchange(&socket, echo.address(), b"hello", LIMIT).unwrap();
    let sent = || status::flows(netns).unwrap()[0].tx.0;
    exchange();
    let pins = product::pin_dir(netns, Host::DEV).unwrap();
    let mut maps = Maps::open(&mut Source::Pins(&pins)).unwrap();
    let key = maps.flows().unwrap()[0].0;
    let taken = maps.take_flow(&key).unwrap().unwrap();
    assert_eq!(taken.state().name(), "established");
    assert_eq!(taken.tx_packets, 1);
    assert!(maps.flows().unwrap().is_empty());
    assert!(maps.take_flow(&key).unwrap().is_none());
    maps.put_back(&key, &taken).unwrap();
    exchange();
    assert_eq!(sent(), 2);

    let taken = maps.take_flow(&key).unwrap().unwrap();
    assert_eq!(taken.tx_packets, 2);
    exchange();
    assert_eq!(sent(), 1, "a new one");
    maps.put_back(&key, &taken).unwrap();
    assert_eq!(sent(), 1, "and it stays");
}
