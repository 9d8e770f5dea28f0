//! The descriptions for containers say what the systemd units and the documents say,
//! in the words of Kubernetes and of container builders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container, PodSpec};
use parse_dockerfile::{Command, Instruction, Source};
use serde::de::DeserializeOwned;
use serde_norway::Deserializer;
use xdptun::config::{Config, DEFAULT_PATH};

const MANIFEST: &str = include_str!("../package/daemonset.yaml");
const CONTAINERFILE: &str = include_str!("../package/Containerfile");
const UNITS: &str = include_str!("../package/common.conf");

/// Reads an object, and requires that its schema knows every field.
fn object<T: DeserializeOwned>(number: usize) -> T {
    let document = Deserializer::from_str(MANIFEST).nth(number).unwrap();
    let mut unknown = Vec::new();
    let object = serde_ignored::deserialize(document, |path| unknown.push(path.to_string()));
    assert_eq!(unknown, [""; 0], "fields that Kubernetes does not know");
    object.unwrap()
}

fn pod() -> PodSpec {
    let set: DaemonSet = object(1);
    let spec = set.spec;
    let template = spec.template.metadata.unwrap();
    assert_eq!(spec.selector.match_labels, template.labels);
    spec.template.spec.unwrap()
}

fn container() -> Container {
    let [container] = pod().containers.try_into().unwrap();
    container
}

fn instructions() -> Vec<String> {
    let file = parse_dockerfile::parse(CONTAINERFILE).unwrap();
    let exec = |command: &Command<'_>| match command {
        Command::Exec(words) => {
            let words = words.value.iter().map(|word| word.value.clone());
            words.collect::<Vec<_>>().join(" ")
        }
        other => panic!("there is no shell for {other:?}"),
    };
    let told = file
        .instructions
        .iter()
        .map(|instruction| match instruction {
            Instruction::From(from) => format!("from {}", from.image.value),
            Instruction::Copy(copy) => match &copy.src[..] {
                [Source::Path(from)] => format!("copy {} {}", from.value, copy.dest.value),
                other => panic!("not one file: {other:?}"),
            },
            Instruction::Entrypoint(entry) => format!("run {}", exec(&entry.arguments)),
            Instruction::Cmd(command) => format!("with {}", exec(&command.arguments)),
            Instruction::Stopsignal(signal) => format!("stop {}", signal.arguments.value),
            other => panic!("needs more than an empty image has: {other:?}"),
        });
    told.collect()
}

#[test]
fn the_manifest_has_a_settings_file_and_the_set_that_reads_it() {
    let count = Deserializer::from_str(MANIFEST).count();
    assert_eq!(count, 2);
    let map: ConfigMap = object(0);
    let volumes: BTreeMap<String, _> = pod()
        .volumes
        .unwrap()
        .into_iter()
        .map(|volume| (volume.name.clone(), volume))
        .collect();
    let source = volumes["config"].config_map.clone().unwrap();
    assert_eq!(Some(source.name), map.metadata.name);

    let path = Path::new(DEFAULT_PATH);
    let container = container();
    let mounts: BTreeMap<String, String> = container
        .volume_mounts
        .unwrap()
        .into_iter()
        .map(|mount| (mount.name, mount.mount_path))
        .collect();
    assert_eq!(Path::new(&mounts["config"]), path.parent().unwrap());
    assert_eq!(
        mounts.keys().collect::<Vec<_>>(),
        volumes.keys().collect::<Vec<_>>()
    );
    // What outlives the container is where the programs on the node look for it.
    for name in ["bpffs", "run"] {
        let host = volumes[name].host_path.as_ref().unwrap();
        assert_eq!(host.path, mounts[name]);
    }

    let data = map.data.unwrap();
    assert_eq!(data.len(), 1);
    let config = Config::parse(&data[path.file_name().unwrap().to_str().unwrap()]).unwrap();
    assert!(!config.interfaces.is_empty());
    let [port] = container.ports.unwrap().try_into().unwrap();
    assert_eq!(
        port.container_port,
        i32::from(config.metrics.unwrap().port())
    );
    let sample = include_str!("../package/config.toml");
    assert!(
        sample.contains(&format!(":{}\"", port.container_port)),
        "{sample}"
    );
}

#[test]
fn it_works_on_the_node_with_the_capabilities_of_the_units() {
    let pod = pod();
    assert_eq!((pod.host_network, pod.host_pid), (Some(true), Some(true)));
    let context = container().security_context.unwrap();
    assert_eq!(context.privileged, None);
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.read_only_root_filesystem, Some(true));
    let capabilities = context.capabilities.unwrap();
    assert_eq!(capabilities.drop.unwrap(), ["ALL"]);
    let units = UNITS
        .lines()
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let units: BTreeSet<&str> = units.unwrap().split(' ').collect();
    let added = capabilities.add.unwrap();
    let added: BTreeSet<String> = added.iter().map(|name| format!("CAP_{name}")).collect();
    assert_eq!(
        added.iter().map(String::as_str).collect::<BTreeSet<_>>(),
        units
    );
}

#[test]
fn the_image_is_the_program_and_runs_the_settings_file() {
    let version = env!("CARGO_PKG_VERSION");
    let container = container();
    assert_eq!(container.image.unwrap(), format!("xdptun:{version}"));
    let arguments = container.args.unwrap().join(" ");
    let expected = [
        "from scratch".to_owned(),
        "copy xdptun /usr/bin/xdptun".to_owned(),
        "run /usr/bin/xdptun".to_owned(),
        format!("with {arguments}"),
        // As the units do when they start it again.
        "stop SIGUSR2".to_owned(),
    ];
    assert_eq!(instructions(), expected);
    assert!(UNITS.contains("\nRestartKillSignal=SIGUSR2\n"));
    let command = xdptun::cli::command();
    let words = ["xdptun"].into_iter().chain(arguments.split(' '));
    command.try_get_matches_from(words).unwrap();
}
