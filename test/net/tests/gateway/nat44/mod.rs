//! Inside hosts that share one outside address: `xdptun nat`.

mod bindings;
mod carried;
mod lasting;
mod limits;
mod reload;
mod tool;
