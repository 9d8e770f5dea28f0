//! The image of a container, as the Containerfile describes it, in an archive that `podman load`,
//! `docker load` and skopeo read: the layout of OCI images, and docker's own list of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::about::{About, LICENCE, NAME, SUMMARY};
use super::archive::{Entry, tar, tar_gz};

/// The instructions of a Containerfile that starts from nothing.
struct Instructions {
    /// Where the program goes.
    program: String,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    stop_signal: String,
}

impl Instructions {
    fn read(path: &Path) -> Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("{name}: cannot read"))?;
        let mut found = BTreeMap::new();
        for line in text.lines() {
            if let Some((instruction, value)) = line.split_once(' ')
                && instruction != "#"
            {
                let twice = found.insert(instruction, value).is_some();
                ensure!(!twice, "{name}: two lines begin with {instruction}");
            }
        }
        let mut take = |instruction| {
            let value = found.remove(instruction);
            value.with_context(|| format!("{name}: no line begins with {instruction}"))
        };
        let words = |text: &str| -> Result<Vec<String>> {
            serde_json::from_str(text).with_context(|| format!("{name}: {text}: no list of words"))
        };
        ensure!(take("FROM")? == "scratch", "{name}: it is not FROM scratch");
        let program = take("COPY")?.strip_prefix("xdptun /");
        let instructions = Self {
            program: program
                .with_context(|| format!("{name}: it copies not xdptun"))?
                .to_owned(),
            entrypoint: words(take("ENTRYPOINT")?)?,
            cmd: words(take("CMD")?)?,
            stop_signal: take("STOPSIGNAL")?.to_owned(),
        };
        let rest: Vec<&str> = found.into_keys().collect();
        ensure!(
            rest.is_empty(),
            "{name}: {rest:?}: teach xtask/src/package/oci.rs these instructions"
        );
        Ok(instructions)
    }
}

/// A piece of the image, which is found by its digest.
struct Blob {
    data: Vec<u8>,
    digest: String,
}

impl Blob {
    fn new(data: Vec<u8>) -> Self {
        let digest = digest(&data);
        Self { data, digest }
    }

    fn json(value: &Value) -> Result<Self> {
        Ok(Self::new(serde_json::to_vec(value)?))
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, kind: &str) -> Value {
        json!({
            "mediaType": format!("application/vnd.oci.image.{kind}"),
            "digest": format!("sha256:{}", self.digest),
            "size": self.data.len(),
        })
    }
}

/// Packs the image of a program. `machine` is Debian's and Go's name of the processor.
pub fn build(
    containerfile: &Path,
    binary: Vec<u8>,
    about: &About,
    machine: &str,
    time: u64,
) -> Result<Vec<u8>> {
    let instructions = Instructions::read(containerfile)?;
    let program = instructions.program.clone();
    let mut files = BTreeMap::from([(program.clone(), Entry::program(binary))]);
    for (end, _) in program.match_indices('/') {
        files.insert(program[..=end].to_owned(), Entry::Directory);
    }
    // The layer is known by the digest of what it unpacks to.
    let unpacked = digest(&tar(&files, "", time)?);
    let layer = Blob::new(tar_gz(&files, "", time)?);
    let config = Blob::json(&configuration(&instructions, about, machine, &unpacked))?;
    let manifest = Blob::json(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor("config.v1+json"),
        "layers": [layer.descriptor("layer.v1.tar+gzip")],
    }))?;
    let tag = format!("{NAME}:{}", about.version);
    let mut index = manifest.descriptor("manifest.v1+json");
    index["annotations"] = json!({
        "io.containerd.image.name": format!("localhost/{tag}"),
        "org.opencontainers.image.ref.name": about.version,
    });
    index["platform"] = json!({ "architecture": machine, "os": "linux" });
    let lists = [
        ("oci-layout", json!({ "imageLayoutVersion": "1.0.0" })),
        (
            "index.json",
            json!({ "schemaVersion": 2, "manifests": [index] }),
        ),
        (
            "manifest.json",
            json!([{ "Config": config.path(), "RepoTags": [tag], "Layers": [layer.path()] }]),
        ),
    ];
    let mut archive = BTreeMap::from([
        ("blobs/".to_owned(), Entry::Directory),
        ("blobs/sha256/".to_owned(), Entry::Directory),
    ]);
    for (name, list) in lists {
        archive.insert(name.to_owned(), Entry::file(serde_json::to_vec(&list)?));
    }
    for blob in [layer, config, manifest] {
        archive.insert(blob.path(), Entry::file(blob.data));
    }
    tar(&archive, "", time)
}

fn configuration(
    instructions: &Instructions,
    about: &About,
    machine: &str,
    unpacked: &str,
) -> Value {
    json!({
        "architecture": machine,
        "os": "linux",
        "config": {
            "Entrypoint": instructions.entrypoint,
            "Cmd": instructions.cmd,
            "StopSignal": instructions.stop_signal,
            "Labels": {
                "org.opencontainers.image.title": NAME,
                "org.opencontainers.image.description": SUMMARY,
                "org.opencontainers.image.version": about.version,
                "org.opencontainers.image.licenses": LICENCE,
                "org.opencontainers.image.authors": about.maintainer,
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{unpacked}")] },
    })
}

fn digest(data: &[u8]) -> String {
    format!("{:x}", Sha256::digest(data))
}
