//! A Prometheus that reads the metrics and answers the queries of the dashboard.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use xdptun_lab::scratch::Scratch;
use xdptun_lab::{Netns, Process, Served, wait};
use xdptun_test_net::cli::finish;
use xdptun_test_net::dashboard::{attach_all, queries};
use xdptun_test_net::http::request_with;
use xdptun_test_net::{LIMIT, unpacked};

/// Where Prometheus listens.
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);

/// How often it reads, and how far back a rate looks: over some readings.
const INTERVAL: &str = "200ms";
const RATE: &str = "2s";

/// As Prometheus before its version 3 asks for it.
const PLAIN: &str = "Accept: text/plain;version=0.0.4\r\n";

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let net = Served::new().unwrap();
    let (_attached, address) = attach_all(&net).unwrap();
    let answer = request_with(&net.gateway, address, "GET", "/metrics", PLAIN).unwrap();
    let scratch = Scratch::new().unwrap();
    let metrics = scratch.path().join("metrics");
    fs::write(&metrics, answer.body).unwrap();
    let mut promtool = unpacked::program(&net.gateway, "prometheus", "usr/bin/promtool");
    promtool.args(["check", "metrics"]);
    promtool.stdin(File::open(&metrics).unwrap());
    let ended = finish(&mut promtool).unwrap();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(
        ended.stdout.is_empty() && ended.stderr.is_empty(),
        "{ended:#?}"
    );
}

#[test]
fn it_answers_the_queries_of_the_dashboard() {
    let net = Served::new().unwrap();
    let (_attached, address) = attach_all(&net).unwrap();
    let scratch = Scratch::new().unwrap();
    let prometheus = start(&net.gateway, address, scratch.path());
    for query in queries().unwrap() {
        // A variable of Grafana, which asks for its values by itself.
        if query.expression.starts_with("label_values(") {
            continue;
        }
        // Of drops and the like there may be none.
        let expression = query.expression.replace("$interface", ".*");
        let expression = expression.replace("$__rate_interval", RATE);
        let may_be_empty = expression.ends_with(" > 0");
        let answered = wait::until_some(LIMIT, &expression, || {
            // It may not listen yet.
            let Ok(answer) = ask(&net.gateway, &expression) else {
                return Ok(None);
            };
            anyhow::ensure!(answer["status"] == "success", "{answer}");
            let results = answer["data"]["result"].as_array().map_or(0, Vec::len);
            Ok((results != 0 || may_be_empty).then_some(()))
        });
        prometheus.with_output(answered).unwrap();
    }
    prometheus.kill().unwrap();
}

/// What Prometheus answers.
fn ask(netns: &Netns, expression: &str) -> anyhow::Result<Value> {
    let query = utf8_percent_encode(expression, NON_ALPHANUMERIC);
    let path = format!("/api/v1/query?query={query}");
    let answer = request_with(netns, SERVER, "GET", &path, "Connection: close\r\n")?;
    Ok(serde_json::from_str(&answer.body)?)
}

/// Starts a Prometheus that reads the metrics at an address.
fn start(netns: &Netns, address: SocketAddr, folder: &Path) -> Process {
    let config = folder.join("prometheus.yml");
    let text = format!(
        "global:\n  scrape_interval: {INTERVAL}\n  scrape_timeout: {INTERVAL}\n\
         scrape_configs:\n  - job_name: xdptun\n    static_configs:\n\
         \x20     - targets: [\"{address}\"]\n"
    );
    fs::write(&config, text).unwrap();
    let mut prometheus = unpacked::program(netns, "prometheus", "usr/bin/prometheus");
    prometheus.arg(format!("--config.file={}", config.display()));
    prometheus.arg(format!(
        "--storage.tsdb.path={}",
        folder.join("data").display()
    ));
    prometheus.arg(format!("--web.listen-address={SERVER}"));
    Process::spawn(&mut prometheus).unwrap()
}
