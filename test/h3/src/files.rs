//! The folder a server serves, and nothing outside of it.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use http::StatusCode;
use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use percent_encoding::percent_decode_str;

/// An open folder.
#[derive(Debug)]
pub struct Folder(File);

/// A file to serve.
#[derive(Debug)]
pub struct Served {
    /// Open for reading.
    pub file: File,
    /// Its length in bytes when it was opened.
    pub length: u64,
}

impl Folder {
    /// Opens the folder.
    pub fn open(path: &Path) -> Result<Self> {
        let folder = File::open(path)
            .with_context(|| format!("{}: cannot serve; is it a folder?", path.display()))?;
        anyhow::ensure!(
            folder.metadata()?.is_dir(),
            "{}: not a folder, which `-d` wants",
            path.display()
        );
        Ok(Self(folder))
    }

    /// Opens the file that the path of a URL names; otherwise what to answer.
    ///
    /// The kernel looks after the bounds (`RESOLVE_BENEATH`): neither `..`, in
    /// whichever disguise, nor a symbolic link leads out of the folder.
    pub fn get(&self, url_path: &str) -> Result<Served, StatusCode> {
        let decoded: Vec<u8> = percent_decode_str(url_path).collect();
        let start = decoded.iter().take_while(|byte| **byte == b'/').count();
        let how = OpenHow::new()
            // Not to wait for the other end of a named pipe.
            .flags(OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)
            .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let file = openat2(&self.0, &decoded[start..], how).map_err(status_of)?;
        let file = File::from(file);
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => Ok(Served {
                file,
                length: metadata.len(),
            }),
            Ok(_) => Err(StatusCode::NOT_FOUND),
            Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

fn status_of(error: Errno) -> StatusCode {
    match error {
        // EXDEV is the way out of the folder: as good as absent.
        Errno::ENOENT | Errno::ENOTDIR | Errno::EXDEV | Errno::ELOOP | Errno::ENXIO => {
            StatusCode::NOT_FOUND
        }
        Errno::EACCES => StatusCode::FORBIDDEN,
        // A byte that no path can hold, or too many of them.
        Errno::EINVAL | Errno::ENAMETOOLONG => StatusCode::BAD_REQUEST,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use xdptun_lab::scratch::Scratch;

    /// A folder `www` with a file, beside a file that must stay unseen.
    fn folder() -> (Scratch, Folder) {
        let scratch = Scratch::new().unwrap();
        let www = scratch.path().join("www");
        fs::create_dir_all(www.join("sub")).unwrap();
        fs::write(www.join("sub/a b"), "content").unwrap();
        fs::write(scratch.path().join("secret"), "secret").unwrap();
        symlink("../secret", www.join("out")).unwrap();
        symlink("/etc/passwd", www.join("far")).unwrap();
        symlink("sub/a b", www.join("in")).unwrap();
        let folder = Folder::open(&www).unwrap();
        (scratch, folder)
    }

    #[test]
    fn serves_files_inside() {
        let (_scratch, folder) = folder();
        for path in ["/sub/a%20b", "//sub//a b", "/sub/../sub/a%20b", "/in"] {
            let mut served = folder.get(path).unwrap();
            let mut content = String::new();
            served.file.read_to_string(&mut content).unwrap();
            assert_eq!((content.as_str(), served.length), ("content", 7), "{path}");
        }
    }

    #[test]
    fn nothing_leads_out() {
        let (_scratch, folder) = folder();
        for path in [
            "/../secret",
            "/%2e%2e/secret",
            "/..%2fsecret",
            "/sub/../../secret",
            "/%2e%2e%2fwww/../../secret",
            "/../../../../../../etc/passwd",
            "//etc/passwd",
            "/%2fetc%2fpasswd",
            "/out",
            "/far",
            "/",
            "/sub",
            "/absent",
            "/in/absent",
        ] {
            assert_eq!(
                folder.get(path).unwrap_err(),
                StatusCode::NOT_FOUND,
                "{path}"
            );
        }
        assert_eq!(folder.get("/a%00b").unwrap_err(), StatusCode::BAD_REQUEST);
        let long = "a".repeat(5000);
        assert_eq!(folder.get(&long).unwrap_err(), StatusCode::BAD_REQUEST);
    }

    #[test]
    fn a_file_is_no_folder() {
        let (scratch, _folder) = folder();
        let error = Folder::open(&scratch.path().join("secret")).unwrap_err();
        assert!(error.to_string().contains("not a folder"), "{error}");
        let error = Folder::open(&scratch.path().join("absent")).unwrap_err();
        assert!(error.to_string().contains("cannot serve"), "{error}");
    }
}
