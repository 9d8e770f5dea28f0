//! One process of many connections (`xdptun_lab::crowd`).

use std::env::args;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = args().skip(1).collect();
    let [role, address] = &arguments[..] else {
        eprintln!("usage: crowd serve|callNUMBER ADDRESS");
        return ExitCode::FAILURE;
    };
    match xdptun_lab::crowd::work(role, address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
