//! Programs of others through `xdptun forward` and `xdptun nat`.

mod curl;
mod dig;
mod iperf3;
mod ssh;
