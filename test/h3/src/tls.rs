//! Certificates: QUIC has no mode without them (RFC 9001).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

/// How HTTP/3 is called in the handshake (RFC 9114 section 3.1).
const ALPN: &[u8] = b"h3";

/// Whose certificate a client accepts.
#[derive(Debug, Clone)]
pub enum Trust {
    /// Any, as `curl -k`.
    Anyone,
    /// One that a certificate in this file has signed, or that is in it.
    Issuers(PathBuf),
}

/// The server's half, from files in PEM.
pub fn server(certificates: &Path, key: &Path) -> Result<quinn::ServerConfig> {
    let private_key =
        PrivateKeyDer::from_pem_file(key).with_context(|| unreadable(key, "a private key"))?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(read_certificates(certificates)?, private_key)
        .with_context(|| {
            format!(
                "{} and {}: not a pair to serve with",
                certificates.display(),
                key.display()
            )
        })?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    let config = QuicServerConfig::try_from(config)?;
    Ok(quinn::ServerConfig::with_crypto(Arc::new(config)))
}

/// The client's half.
pub fn client(trust: &Trust) -> Result<quinn::ClientConfig> {
    let builder = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?;
    let mut config = match trust {
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider()))),
        Trust::Issuers(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in read_certificates(file)? {
                roots
                    .add(certificate)
                    .with_context(|| unreadable(file, "certificates"))?;
            }
            builder.with_root_certificates(roots)
        }
    }
    .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let config = QuicClientConfig::try_from(config)?;
    Ok(quinn::ClientConfig::new(Arc::new(config)))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn read_certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect)
        .with_context(|| unreadable(file, "certificates"))
}

fn unreadable(file: &Path, what: &str) -> String {
    format!(
        "{}: cannot read {what} in PEM; `cargo run --bin make-cert` makes a pair in ../tls",
        file.display()
    )
}

/// Accepts every certificate, but only with proof that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
