//! Serving a file with Python and fetching it with curl, as the reference
//! measurement does.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xdptun_lab::{Host, Process, wait};

/// The port of the web server, as in the reference.
pub const PORT: u16 = 8001;

/// A download that takes longer than this does not move any more: 1 GiB at
/// 1 MiB/s is 17 minutes, and the slowest path here is many times faster.
const FETCH_LIMIT: Duration = Duration::from_secs(1200);

/// `python3 -m http.server`, serving one directory.
#[derive(Debug)]
pub struct Server {
    process: Process,
}

impl Server {
    /// Starts it on all addresses of a host.
    pub fn start(host: &Host, directory: &Path) -> Result<Self> {
        let mut command = host.netns.command("python3");
        // Unbuffered, so that the line that tells it listens comes at once.
        command
            .args(["-u", "-m", "http.server", &PORT.to_string()])
            .arg("--directory")
            .arg(directory);
        let process = Process::spawn(&mut command)?;
        process.wait_for_line("Serving HTTP", Duration::from_secs(30))?;
        Ok(Self { process })
    }

    /// Adds what the server logged to an error.
    pub fn with_log<T>(&self, result: Result<T>) -> Result<T> {
        self.process.with_output(result)
    }
}

/// A finished download.
#[derive(Debug, Clone)]
pub struct Download {
    /// Where the file is.
    pub path: PathBuf,
    /// Average speed that curl reports, in MiB/s.
    pub mib_s: f64,
    /// How long it took by curl's clock.
    pub time: Duration,
}

/// Fetches `name` from a server into `directory` with `curl -O`.
///
/// `progress` is called now and then with the bytes so far.
pub fn fetch(
    host: &Host,
    server: IpAddr,
    name: &str,
    directory: &Path,
    mut progress: impl FnMut(u64),
) -> Result<Download> {
    let url = format!("http://{}/{name}", SocketAddr::new(server, PORT));
    let path = directory.join(name);
    if path.exists() {
        std::fs::remove_file(&path)
            .with_context(|| format!("{}: cannot remove", path.display()))?;
    }
    let mut command = host.netns.command("curl");
    // A proxy of the machine's environment does not exist in the namespace.
    command
        .args(["--silent", "--show-error", "--fail", "--noproxy", "*"])
        .args(["--write-out", "%{speed_download} %{time_total}\\n"])
        .args(["-O", &url])
        .current_dir(directory);
    let started = Instant::now();
    let curl = Process::spawn(&mut command)?;
    wait::until_some(FETCH_LIMIT, "a download", || {
        // The file does not exist until the first byte came.
        progress(std::fs::metadata(&path).map_or(0, |metadata| metadata.len()));
        Ok((!curl.is_running()?).then_some(()))
    })?;
    let left = FETCH_LIMIT.saturating_sub(started.elapsed());
    let output = curl
        .wait_success(left)
        .with_context(|| format!("cannot fetch {url}"))?;
    let (speed, time) = parse(&output).with_context(|| format!("curl printed {output:?}"))?;
    ensure!(
        path.is_file(),
        "curl reported success without {}",
        path.display()
    );
    Ok(Download {
        path,
        mib_s: speed / f64::from(1 << 20),
        time,
    })
}

/// Bytes per second and duration from what `--write-out` printed.
fn parse(output: &[String]) -> Option<(f64, Duration)> {
    let (speed, time) = output.last()?.split_once(' ')?;
    let time = Duration::try_from_secs_f64(time.parse().ok()?).ok()?;
    Some((speed.parse().ok()?, time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_curl_reports() {
        let (speed, time) = parse(&["104857600 2.500000".to_owned()]).unwrap();
        assert!((speed - 104_857_600.0).abs() < f64::EPSILON);
        assert_eq!(time, Duration::from_millis(2500));
        assert!(parse(&[]).is_none());
        assert!(parse(&["fast".to_owned()]).is_none());
    }
}
