//! Names for addresses.

use std::net::{IpAddr, Ipv4Addr};

use xdptun_lab::Family;

use crate::ends::{
    CLIENT, Ends, ROUTER_V4, ROUTER_V6, SECOND_CLIENT, SECOND_SERVER, SERVER, STRANGER, at,
};
use crate::gateway::{GATEWAY_V4, GATEWAY_V6};

/// xdptun's own address of its pool.
const OWN: Ipv4Addr = Ipv4Addr::new(100, 64, 0, 1);

/// The client, as either family knows it.
pub const THE_CLIENT: &str = "the client";
/// The server, likewise.
pub const THE_SERVER: &str = "the server";

/// The name of an address, whichever a translator chose.
pub fn name(address: IpAddr, ends: &Ends) -> String {
    let of = |known| Family::BOTH.map(|family| at(family, known));
    let named: [(&str, [IpAddr; 2]); 9] = [
        (THE_CLIENT, [ends.address.into(), CLIENT.into()]),
        (THE_SERVER, of(SERVER)),
        ("the gateway", [GATEWAY_V6.into(), GATEWAY_V4.into()]),
        ("the device", of(OWN)),
        ("the router", of(ROUTER_V4)),
        ("the router", [ROUTER_V6.into(); 2]),
        ("the other server", of(SECOND_SERVER)),
        ("the client's IPv4 address", of(ends.address)),
        ("another host", [SECOND_CLIENT, STRANGER].map(Into::into)),
    ];
    let found = named.iter().find(|(_, known)| known.contains(&address));
    match found {
        Some((name, _)) => (*name).to_owned(),
        None if is_of_pool(address) => "another client's IPv4 address".to_owned(),
        None => address.to_string(),
    }
}

/// Whether it is one of xdptun's pool, as IPv6 knows it.
fn is_of_pool(address: IpAddr) -> bool {
    let own = at(Family::V6, OWN);
    let [own, address] = [own, address].map(|address| match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => address.octets().first_chunk::<14>().copied(),
    });
    own == address
}
