//! An HTTP/3 client that downloads from one server over one connection.

use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::{Buf, Bytes};
use futures_util::{StreamExt, TryStreamExt, stream};
use h3::client::SendRequest;
use h3_quinn::OpenStreams;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, Request, StatusCode, Uri};
use quinn::{Endpoint, EndpointConfig, TokioRuntime};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use crate::report::{Download, Report};
use crate::socket;
use crate::target::Targets;
use crate::tls::{self, Trust};

/// What to download, and how.
#[derive(Debug)]
pub struct Job<'a> {
    /// From where.
    pub targets: Targets,
    /// Whose certificate is accepted.
    pub trust: Trust,
    /// The UDP port to send from; 0 lets the kernel choose.
    pub local_port: u16,
    /// Requests under way at once.
    pub parallel: usize,
    /// Where the content goes, if anywhere; for a single URL.
    pub output: Option<&'a Path>,
}

/// Downloads all targets; the first that fails ends it.
pub async fn download(job: Job<'_>) -> Result<Report> {
    let Targets { host, port, urls } = &job.targets;
    let server = resolve(host, *port).await?;
    let endpoint = open(server, &job)?;
    let started = Instant::now();
    let quic = async {
        endpoint
            .connect(server, host)?
            .await
            .map_err(anyhow::Error::from)
    };
    let quic = quic.await.with_context(|| {
        format!(
            "{server}: cannot connect; does the server run, and xdptun on both hosts or on none?"
        )
    })?;
    let transport = h3_quinn::Connection::new(quic);
    let (mut driver, requests) = h3::client::new(transport).await?;
    let driver = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });

    let fetch = |url| fetch(requests.clone(), url, job.output);
    let downloads = stream::iter(urls)
        .map(fetch)
        .buffered(job.parallel)
        .try_collect()
        .await;
    let seconds = started.elapsed().as_secs_f64();
    // The last one closes the connection.
    drop(requests);
    let end = driver.await.context("the connection's task")?;
    endpoint.wait_idle().await;
    let downloads = downloads?;
    ensure!(end.is_h3_no_error(), "{server}: {end}");
    Ok(Report { downloads, seconds })
}

async fn resolve(host: &str, port: u16) -> Result<SocketAddr> {
    let found = tokio::net::lookup_host((host, port)).await;
    let mut found = found.with_context(|| format!("{host}: no such host"))?;
    found
        .next()
        .ok_or_else(|| anyhow!("{host}: has no address"))
}

fn open(server: SocketAddr, job: &Job<'_>) -> Result<Endpoint> {
    let local = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let local = SocketAddr::new(local, job.local_port);
    let mut endpoint = Endpoint::new(
        EndpointConfig::default(),
        None,
        socket::bind(local)?,
        Arc::new(TokioRuntime),
    )
    .with_context(|| format!("UDP {local}: cannot use QUIC"))?;
    endpoint.set_default_client_config(tls::client(&job.trust)?);
    Ok(endpoint)
}

type Requests = SendRequest<OpenStreams, Bytes>;

async fn fetch(mut requests: Requests, url: &Uri, output: Option<&Path>) -> Result<Download> {
    let fetched = async {
        let mut stream = requests.send_request(Request::get(url).body(())?).await?;
        stream.finish().await?;
        let response = stream.recv_response().await?;
        let status = response.status();
        ensure!(status == StatusCode::OK, "the server answered {status}");
        let announced = content_length(response.headers())?;
        let mut content = Content::new(output).await?;
        while let Some(piece) = stream.recv_data().await? {
            content.add(piece).await?;
        }
        content.finish(url, announced).await
    };
    fetched.await.with_context(|| url.to_string())
}

fn content_length(headers: &HeaderMap) -> Result<Option<u64>> {
    let Some(value) = headers.get(CONTENT_LENGTH) else {
        return Ok(None);
    };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    let length = length.with_context(|| format!("content-length {value:?}: not a number"))?;
    Ok(Some(length))
}

/// Content that is counted, digested, and written where that is wanted.
struct Content<'a> {
    bytes: u64,
    digest: Sha256,
    output: Option<(&'a Path, tokio::fs::File)>,
}

impl<'a> Content<'a> {
    async fn new(output: Option<&'a Path>) -> Result<Self> {
        let output = match output {
            Some(path) => {
                let file = tokio::fs::File::create(path).await;
                Some((path, file.with_context(|| unwritable(path))?))
            }
            None => None,
        };
        Ok(Self {
            bytes: 0,
            digest: Sha256::new(),
            output,
        })
    }

    async fn add(&mut self, mut piece: impl Buf) -> Result<()> {
        while piece.has_remaining() {
            let chunk = piece.chunk();
            let length = chunk.len();
            self.digest.update(chunk);
            if let Some((path, file)) = &mut self.output {
                let written = file.write_all(chunk).await;
                written.with_context(|| unwritable(path))?;
            }
            self.bytes += length as u64;
            piece.advance(length);
        }
        Ok(())
    }

    async fn finish(self, url: &Uri, announced: Option<u64>) -> Result<Download> {
        let Self {
            bytes,
            digest,
            output,
        } = self;
        if let Some((path, mut file)) = output {
            file.flush().await.with_context(|| unwritable(path))?;
        }
        ensure!(
            announced.is_none_or(|announced| announced == bytes),
            "{bytes} bytes came, {} were announced",
            announced.unwrap_or_default()
        );
        let digest = digest.finalize();
        Ok(Download {
            url: url.to_string(),
            bytes,
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

fn unwritable(path: &Path) -> String {
    format!("{}: cannot write", path.display())
}
