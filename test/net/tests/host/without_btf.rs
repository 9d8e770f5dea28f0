//! The programs as a kernel without BTF gets them. `quick` of `test/vm` runs them under one; here the
//! verifier of the running kernel walks them with all that adds code.

use aya::programs::{Program, ProgramError, ProgramInfo};
use aya::{Ebpf, EbpfLoader};
use xdptun_common::global::RECORD;
use xdptun_common::tunnel::config::global::HIDDEN;
use xdptun_object::TUNNEL;

/// What the verifier walks at most (c04c0d2b968a, Linux 5.2), and a fifth to spare for other kernels.
const MOST: u32 = 800_000;

#[test]
fn the_verifier_walks_them_to_their_end() {
    // A secret, a capture, the log: those that add code.
    for (hidden, record, level) in [(0u32, 0u32, 0u8), (1, 0, 0), (1, 128, 0), (0, 0, u8::MAX)] {
        let mut ebpf = EbpfLoader::new()
            .override_global(HIDDEN, &hidden, true)
            .override_global(RECORD, &record, true)
            .override_global(aya_log::LEVEL, &level, true)
            .load(&TUNNEL.bytes_without_btf())
            .unwrap();
        let names: Vec<String> = ebpf.programs().map(|(name, _)| name.to_owned()).collect();
        for name in names {
            let context = format!("{name}: secret {hidden}, record {record}, log level {level}");
            let info = load(&mut ebpf, &name).unwrap_or_else(|error| panic!("{context}: {error}"));
            let walked = info.verified_instruction_count().unwrap();
            assert!(walked < MOST, "{context}: {walked} instructions");
        }
    }
}

fn load(ebpf: &mut Ebpf, name: &str) -> Result<ProgramInfo, ProgramError> {
    match ebpf.program_mut(name).expect("named by the object") {
        Program::SchedClassifier(program) => program.load().and_then(|()| program.info()),
        Program::Xdp(program) => program.load().and_then(|()| program.info()),
        other => panic!("{name}: {other:?}"),
    }
}
