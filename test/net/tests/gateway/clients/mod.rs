//! Programs of others through `xdptun forward`, `xdptun nat` and `xdptun nat64`.

mod curl;
mod dig;
mod iperf3;
mod names;
mod ssh;
