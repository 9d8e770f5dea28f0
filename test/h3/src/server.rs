//! An HTTP/3 server of files.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use h3::error::Code;
use h3::server::{RequestResolver, RequestStream};
use h3_quinn::BidiStream;
use http::header::{ALLOW, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode, response};
use quinn::{Endpoint, EndpointConfig, Incoming, TokioRuntime, TransportConfig, VarInt};
use tokio::io::AsyncReadExt;
use tracing::{info, warn};

use crate::files::{Folder, Served};
use crate::{socket, tls};

/// Read from the file at a time. One such piece waits for each download, and
/// what was sent and not yet acknowledged, which quinn bounds.
const PIECE: usize = 256 << 10;

/// `H3_NO_ERROR` (RFC 9114 section 8.1).
const NO_ERROR: VarInt = VarInt::from_u32(0x100);

/// A server that is bound to its port.
///
/// The transport is what quinn has by default: a send hands the kernel many
/// datagrams where it takes them (UDP GSO), and their size follows the path.
#[derive(Debug)]
pub struct Server {
    endpoint: Endpoint,
    folder: Arc<Folder>,
}

impl Server {
    /// Reads the certificate and its key, opens the folder, binds the port; `gso`
    /// lets sends hold many datagrams.
    pub fn bind(
        listen: SocketAddr,
        certificates: &Path,
        key: &Path,
        folder: &Path,
        gso: bool,
    ) -> Result<Self> {
        let mut config = tls::server(certificates, key)?;
        let mut transport = TransportConfig::default();
        transport.enable_segmentation_offload(gso);
        config.transport_config(Arc::new(transport));
        let folder = Arc::new(Folder::open(folder)?);
        let endpoint = Endpoint::new(
            EndpointConfig::default(),
            Some(config),
            socket::bind(listen)?,
            Arc::new(TokioRuntime),
        )
        .with_context(|| format!("UDP {listen}: cannot serve QUIC"))?;
        Ok(Self { endpoint, folder })
    }

    /// Where it listens.
    pub fn address(&self) -> Result<SocketAddr> {
        self.endpoint
            .local_addr()
            .context("a socket without address")
    }

    /// Serves until dropped.
    pub async fn run(&self) {
        while let Some(incoming) = self.endpoint.accept().await {
            let folder = Arc::clone(&self.folder);
            tokio::spawn(async move {
                let client = client_of(&incoming);
                if let Err(error) = serve_connection(client, incoming, &folder).await {
                    warn!("{client}: {error:#}");
                }
            });
        }
    }

    /// Ends all connections and tells the clients so.
    pub async fn close(&self) {
        self.endpoint.close(NO_ERROR, b"the server ends");
        self.endpoint.wait_idle().await;
    }
}

/// A socket of both families sees IPv4 clients at mapped addresses; people know
/// them by their own.
fn client_of(incoming: &Incoming) -> SocketAddr {
    let client = incoming.remote_address();
    SocketAddr::new(client.ip().to_canonical(), client.port())
}

/// Serves the requests of one connection, each in its own task.
async fn serve_connection(
    client: SocketAddr,
    incoming: Incoming,
    folder: &Arc<Folder>,
) -> Result<()> {
    let quic = incoming.await.context("no handshake")?;
    let transport = h3_quinn::Connection::new(quic.clone());
    let mut http = h3::server::Connection::new(transport).await?;
    let end = loop {
        match http.accept().await {
            Ok(Some(request)) => {
                let folder = Arc::clone(folder);
                tokio::spawn(async move {
                    if let Err(error) = serve_request(client, request, &folder).await {
                        warn!("{client}: {error:#}");
                    }
                });
            }
            Ok(None) => break Ok(()),
            Err(error) if error.is_h3_no_error() => break Ok(()),
            Err(error) => break Err(error.into()),
        }
    };
    let stats = quic.stats();
    info!(
        "{client}: sent {} datagrams in {} sends, {} lost, largest {} bytes",
        stats.udp_tx.datagrams, stats.udp_tx.ios, stats.path.lost_packets, stats.path.current_mtu
    );
    end
}

async fn serve_request(
    client: SocketAddr,
    request: RequestResolver<h3_quinn::Connection, Bytes>,
    folder: &Folder,
) -> Result<()> {
    let (request, mut stream) = request.resolve_request().await?;
    let answer = answer(&request, folder);
    let (method, path) = (request.method(), request.uri().path());
    let described = match &answer {
        Ok(served) => format!("200, {} bytes", served.length),
        Err(status) => status.to_string(),
    };
    info!("{client}: {method} {path}: {described}");
    match answer {
        Ok(served) => send_file(&request, served, &mut stream).await,
        Err(status) => send_status(status, &mut stream).await,
    }
    .with_context(|| format!("{method} {path}"))
}

fn answer(request: &Request<()>, folder: &Folder) -> Result<Served, StatusCode> {
    match *request.method() {
        Method::GET | Method::HEAD => folder.get(request.uri().path()),
        _ => Err(StatusCode::METHOD_NOT_ALLOWED),
    }
}

type Stream = RequestStream<BidiStream<Bytes>, Bytes>;

async fn send_file(request: &Request<()>, served: Served, stream: &mut Stream) -> Result<()> {
    let head = Response::builder()
        .header(CONTENT_TYPE, "application/octet-stream")
        .header(CONTENT_LENGTH, served.length);
    send_head(head, stream).await?;
    if request.method() == Method::GET
        && let Err(error) = send_content(served, stream).await
    {
        // Merely dropped, the stream would look complete to the client.
        stream.stop_stream(Code::H3_INTERNAL_ERROR);
        return Err(error);
    }
    stream.finish().await?;
    Ok(())
}

/// Sends exactly the length that was announced.
async fn send_content(served: Served, stream: &mut Stream) -> Result<()> {
    let Served { file, length } = served;
    let mut content = tokio::fs::File::from_std(file).take(length);
    while content.limit() > 0 {
        let mut piece = BytesMut::with_capacity(PIECE);
        let read = content.read_buf(&mut piece).await.context("cannot read")?;
        ensure!(read > 0, "the file became shorter while it was served");
        stream.send_data(piece.freeze()).await?;
    }
    Ok(())
}

async fn send_status(status: StatusCode, stream: &mut Stream) -> Result<()> {
    let head = Response::builder().status(status);
    let head = match status {
        StatusCode::METHOD_NOT_ALLOWED => head.header(ALLOW, "GET, HEAD"),
        _ => head,
    };
    send_head(head.header(CONTENT_LENGTH, 0), stream).await?;
    stream.finish().await?;
    Ok(())
}

async fn send_head(head: response::Builder, stream: &mut Stream) -> Result<()> {
    stream.send_response(head.body(())?).await?;
    Ok(())
}
