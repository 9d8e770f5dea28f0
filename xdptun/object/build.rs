//! Builds the kernel side and leaves it where this package embeds it.
//!
//! The BPF target has no prebuilt `core`, so an inner cargo builds it from the
//! sources of the toolchain (`-Z build-std`, which stable accepts under
//! `RUSTC_BOOTSTRAP`, set for that child alone).

mod contexts;

use std::env;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use object::build::elf::{Builder, SectionData};
use object::elf::SHT_STRTAB;
use object::{Object as _, ObjectSection as _};

const PACKAGE: &str = "xdptun-ebpf";
/// The functions: each is a feature of the package, and a program with the object as its file.
const OBJECTS: [&str; 6] = ["tunnel", "policy", "gateway", "nat64", "count", "floor"];

fn main() {
    if let Err(message) = build() {
        println!("cargo::error={message}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .find(|folder| folder.join(PACKAGE).is_dir())
        .ok_or("the crate is not in its workspace")?
        .to_owned();
    for watched in [
        PACKAGE,
        "xdptun-common",
        "Cargo.lock",
        ".tools/bin/bpf-linker",
    ] {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(watched).display()
        );
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let endian = match var("CARGO_CFG_TARGET_ENDIAN")?.as_str() {
        "big" => "bpfeb",
        _ => "bpfel",
    };
    let target = format!("{endian}-unknown-none");
    // A target directory of its own: the outer cargo holds the lock of the other.
    let target_dir = out.join("ebpf");
    for name in OBJECTS {
        compile(&workspace, name, &target, &target_dir)?;
        let object = target_dir.join(&target).join("release").join(name);
        let stripped = without_debug_sections(&object)
            .map_err(|error| format!("cannot strip {}: {error}", object.display()))?;
        let linkages =
            linkages(&stripped).map_err(|error| format!("{}: {error}", object.display()))?;
        let deflated = deflated(&stripped)
            .map_err(|error| format!("cannot compress {}: {error}", object.display()))?;
        // As it is for tests, compressed to embed.
        for (file, bytes) in [
            (name.to_owned(), stripped),
            (format!("{name}.z"), deflated),
            (
                format!("{name}.linkages"),
                format!("{linkages:?}").into_bytes(),
            ),
        ] {
            let file = out.join(file);
            std::fs::write(&file, bytes)
                .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        }
    }
    Ok(())
}

/// Runs the inner cargo for one object: without the rooms of other functions, whose maps the
/// linker would keep.
fn compile(workspace: &Path, name: &str, target: &str, target_dir: &Path) -> Result<(), String> {
    let flags = [
        format!(
            "--cfg=bpf_target_arch=\"{}\"",
            var("CARGO_CFG_TARGET_ARCH")?
        ),
        format!(
            "--cfg=kernel_bits=\"{}\"",
            var("CARGO_CFG_TARGET_POINTER_WIDTH")?
        ),
        "-Cdebuginfo=2".into(),
        "-Clink-arg=--btf".into(),
        // v3: atomic operations that return a value (kernel 5.12).
        "-Ctarget-cpu=v3".into(),
    ]
    .join("\x1f");

    let toolchain = Toolchain::with_sources()?;
    let status = Command::new(&toolchain.cargo)
        .current_dir(workspace)
        .args([
            "build",
            "--release",
            "--quiet",
            "--locked",
            "--package",
            PACKAGE,
            "--no-default-features",
            "--features",
            name,
            "--bin",
            name,
        ])
        .args(["-Z", "build-std=core", "--target", target, "--target-dir"])
        .arg(target_dir)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTC", &toolchain.rustc)
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .env("PATH", path_with_linker(workspace)?)
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .status()
        .map_err(|error| format!("cannot run {}: {error}", toolchain.cargo.display()))?;
    if !status.success() {
        return Err(format!(
            "building {PACKAGE} failed ({status}); its errors are above"
        ));
    }
    Ok(())
}

/// The object without DWARF: four fifths of it, which only the linker needs, to
/// make BTF.
fn without_debug_sections(object: &Path) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let object = std::fs::read(object)?;
    let mut builder = Builder::read(&*object)?;
    for section in &mut builder.sections {
        let name = section.name.as_slice();
        section.delete = name.starts_with(b".debug_") || name.starts_with(b".rel.debug_");
    }
    // Symbols of the sections that are gone.
    builder.delete_orphans();
    // LLVM keeps all names in one table, the writer those of sections in another.
    let names = builder.sections.add();
    names.name = ".shstrtab".into();
    names.sh_type = SHT_STRTAB;
    names.data = SectionData::SectionString;
    let mut stripped = Vec::new();
    builder.write(&mut stripped)?;
    Ok(stripped)
}

/// Where the object says of each function with a context that it is global.
fn linkages(object: &[u8]) -> Result<Vec<usize>, Box<dyn std::error::Error>> {
    let file = object::File::parse(object)?;
    let section = file.section_by_name(".BTF").ok_or("no BTF in it")?;
    let (start, len) = section.file_range().ok_or("no bytes in .BTF")?;
    let section = start.try_into()?..(start + len).try_into()?;
    Ok(contexts::linkages(object, section).ok_or("its BTF ends too early")?)
}

/// A quarter of the size (zlib, RFC 1950).
fn deflated(object: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(object)?;
    encoder.finish()
}

/// A compiler that has the sources of `core` beside it.
struct Toolchain {
    cargo: PathBuf,
    rustc: PathBuf,
}

impl Toolchain {
    /// The one that builds this crate, or else Debian's (`rust-web-src`).
    fn with_sources() -> Result<Self, String> {
        let own = Self {
            cargo: var("CARGO")?.into(),
            rustc: var("RUSTC")?.into(),
        };
        let debian = Self {
            cargo: "/usr/bin/cargo".into(),
            rustc: "/usr/bin/rustc".into(),
        };
        [own, debian]
            .into_iter()
            .find(Self::has_sources)
            .ok_or_else(|| {
                "the sources of the Rust library are missing; run `cargo xtask setup`, \
             or `rustup component add rust-src`"
                    .into()
            })
    }

    fn has_sources(&self) -> bool {
        let Ok(output) = Command::new(&self.rustc)
            .args(["--print", "sysroot"])
            .output()
        else {
            return false;
        };
        let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success()
            && Path::new(&sysroot)
                .join("lib/rustlib/src/rust/library/core")
                .is_dir()
    }
}

/// `PATH` with the project's own tools first.
fn path_with_linker(workspace: &Path) -> Result<OsString, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = [workspace.join(".tools/bin")]
        .into_iter()
        .chain(env::split_paths(&path))
        .collect();
    if !directories
        .iter()
        .any(|directory| directory.join("bpf-linker").is_file())
    {
        return Err("bpf-linker is missing; run `cargo xtask setup`".into());
    }
    env::join_paths(directories).map_err(|error| format!("PATH: {error}"))
}

fn var(name: &str) -> Result<String, String> {
    env::var(name).map_err(|error| format!("{name}: {error}"))
}
