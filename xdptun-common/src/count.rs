//! A function that counts packets and changes none. It is for the tests, which attach it
//! beside the tunnel, and is not shipped.

use crate::report::outcome::outcomes;

outcomes! {
    /// How a packet that was counted ended: it went on.
    Count, first 0;
    InPackets "in_packets" Pass "IP packets that came in." "";
    OutPackets "out_packets" Pass "IP packets that left." "";
}
