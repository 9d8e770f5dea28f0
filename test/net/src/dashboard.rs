//! The dashboard in `docs/`, and a host on which all that it shows is attached.

use std::fs;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use serde_json::Value;
use xdptun_lab::{Attached, Family, Served, workspace};

/// A query of the dashboard.
#[derive(Debug)]
pub struct Query {
    /// What it asks for, in Prometheus' language; of a variable, in Grafana's.
    pub expression: String,
    /// How its answers are named.
    pub legend: String,
}

/// Its queries, wherever they are.
pub fn queries() -> Result<Vec<Query>> {
    let path = workspace::root().join("docs/grafana-dashboard.json");
    let text = fs::read_to_string(&path).with_context(|| format!("{}", path.display()))?;
    let mut queries = Vec::new();
    collect(&serde_json::from_str(&text)?, &mut queries);
    Ok(queries)
}

fn collect(value: &Value, queries: &mut Vec<Query>) {
    match value {
        Value::Object(fields) => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str);
            for name in ["expr", "definition"] {
                if let Some(expression) = text(name) {
                    queries.push(Query {
                        expression: expression.to_owned(),
                        legend: text("legendFormat").unwrap_or_default().to_owned(),
                    });
                }
            }
            fields.values().for_each(|value| collect(value, queries));
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, queries)),
        _ => {}
    }
}

/// Attaches every function to a gateway, the tunnel first. Where the metrics are.
pub fn attach_all(net: &Served) -> Result<(Vec<Attached>, SocketAddr)> {
    let (gateway, wan) = (&net.gateway, Served::WAN);
    let args = ["--port", "8000", "--metrics", "127.0.0.1:0"];
    let tunnel = Attached::start(gateway, wan, &args)?;
    let address = address(&tunnel)?;
    let to = net.back_end.socket(Family::V4, 8080).to_string();
    let forward = Attached::forward(gateway, wan, &["--listen", "7000", "--to", &to])?;
    let rule = [
        "--direction",
        "in",
        "--contains",
        "STEPH",
        "--action",
        "count",
    ];
    let policy = Attached::policy(gateway, wan, &rule)?;
    let nat64 = Attached::nat64(gateway, &["--inside", "fd00:5::/64"])?;
    Ok((vec![tunnel, forward, policy, nat64], address))
}

/// Where a process says that its metrics are.
pub fn address(attached: &Attached) -> Result<SocketAddr> {
    let summary = attached.summary();
    let mut told = summary.iter().filter_map(|line| {
        let address = line.strip_prefix("metrics: http://")?;
        address.strip_suffix("/metrics")
    });
    Ok(told.next().context("no metrics")?.parse()?)
}
