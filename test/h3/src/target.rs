//! The URLs a client takes.

use anyhow::{Context, Result, bail, ensure};
use http::Uri;
use http::uri::Authority;

/// The port of `https` (RFC 9110 section 4.2.2).
const DEFAULT_PORT: u16 = 443;

/// Files of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Targets {
    /// Name or address, without the brackets of IPv6.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// The URLs, all of this host and port.
    pub urls: Vec<Uri>,
}

impl Targets {
    /// Reads URLs, which one connection must be able to fetch.
    pub fn parse(urls: &[String]) -> Result<Self> {
        let mut targets: Option<Self> = None;
        for text in urls {
            let url: Uri = text.parse().with_context(|| {
                format!("{text}: not a URL; one is https://192.0.2.1:8000/test")
            })?;
            ensure!(
                url.scheme_str() == Some("https"),
                "{text}: not a URL of HTTP/3, which start with https://"
            );
            let authority = url.authority().map_or("", Authority::as_str);
            let written = url.host().unwrap_or_default();
            let host = written.trim_matches(['[', ']']).to_owned();
            ensure!(!host.is_empty(), "{text}: names no host");
            let port = match url.port_u16() {
                Some(port) => port,
                None if authority.ends_with(written) => DEFAULT_PORT,
                None => bail!("{text}: what follows the host is not a port"),
            };
            let targets = targets.get_or_insert_with(|| Self {
                host: host.clone(),
                port,
                urls: Vec::new(),
            });
            ensure!(
                targets.host == host && targets.port == port,
                "{text}: another server than {}; start a client for each",
                targets.urls[0]
            );
            targets.urls.push(url);
        }
        match targets {
            Some(targets) => Ok(targets),
            None => bail!("no URL given"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(urls: &[&str]) -> Result<Targets> {
        let urls: Vec<String> = urls.iter().map(|url| (*url).to_owned()).collect();
        Targets::parse(&urls)
    }

    #[test]
    fn takes_names_and_addresses_of_both_families() {
        for (url, host, port) in [
            ("https://localhost/a", "localhost", 443),
            ("https://10.0.0.2:8000/a", "10.0.0.2", 8000),
            ("https://[fd00::2]:8000/a?b", "fd00::2", 8000),
        ] {
            let targets = parse(&[url]).unwrap();
            assert_eq!((targets.host.as_str(), targets.port), (host, port));
        }
    }

    #[test]
    fn refuses_what_one_connection_cannot_fetch() {
        for (urls, word) in [
            (&[][..], "no URL"),
            (&["http://h/a"], "https://"),
            (&["/a"], "https://"),
            (&["https://h:99999/a"], "not a port"),
            (&["https://h:/a"], "not a port"),
            (&["https://h:x/a"], "not a"),
            (&["https://h:1/a", "https://h:2/a"], "another server"),
            (&["https://h/a", "https://g/a"], "another server"),
        ] {
            let error = parse(urls).unwrap_err().to_string();
            assert!(error.contains(word), "{urls:?}: {error}");
        }
    }
}
