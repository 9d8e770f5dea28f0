//! Installed, upgraded, removed and purged.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use xdptun_test_package::own_package;
use xdptun_test_package::root::Root;

const SETTINGS: &str = "/etc/xdptun/config.toml";

/// The same package in a newer version with other settings.
fn newer(root: &Root, package: &str) -> String {
    root.run("dpkg-deb", &["--raw-extract", package, "/tmp/newer"])
        .unwrap();
    let replace = |path: &str, from: &str, to: &str| {
        let path = root.inside(path);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(&path, text.replace(from, to)).unwrap();
    };
    let version = concat!("Version: ", env!("CARGO_PKG_VERSION"));
    replace("/tmp/newer/DEBIAN/control", version, "Version: 99");
    add(root, &format!("/tmp/newer{SETTINGS}"), "# newer\n");
    root.run("dpkg-deb", &["--build", "/tmp/newer", "/tmp/newer.deb"])
        .unwrap();
    "/tmp/newer.deb".to_owned()
}

fn add(root: &Root, path: &str, text: &str) {
    let file = fs::OpenOptions::new().append(true).open(root.inside(path));
    file.unwrap().write_all(text.as_bytes()).unwrap();
}

fn state(root: &Root) -> String {
    let format = "--showformat=${Status} ${Version}";
    root.run("dpkg-query", &["--show", format, "xdptun"])
        .unwrap()
}

#[test]
fn it_comes_and_goes_and_settings_stay_until_the_purge() {
    let root = Root::new().unwrap();
    let package = root.bring(&own_package().unwrap()).unwrap();
    let installed = concat!("install ok installed ", env!("CARGO_PKG_VERSION"), "-1");
    root.run("dpkg", &["--install", &package]).unwrap();
    assert_eq!(state(&root), installed);
    // It compares every file with its sum.
    assert_eq!(root.run("dpkg", &["--verify", "xdptun"]).unwrap(), "");
    let version = root.run("xdptun", &["--version"]).unwrap();
    assert_eq!(version, concat!("xdptun ", env!("CARGO_PKG_VERSION"), "\n"));

    add(&root, SETTINGS, "# the operator's\n");
    fs::write(
        root.inside("/etc/xdptun/eth0.env"),
        "XDPTUN_OPTIONS=--port 1\n",
    )
    .unwrap();
    let settings = || fs::read_to_string(root.inside(SETTINGS)).unwrap();
    let kept = settings();
    let user = || root.run("getent", &["passwd", "xdptun"]);
    let entry = user().unwrap();
    assert!(entry.ends_with(":/usr/sbin/nologin\n"), "{entry}");
    let newer = newer(&root, &package);
    root.run("dpkg", &["--install", "--force-confold", &newer])
        .unwrap();
    assert_eq!(state(&root), "install ok installed 99-1");
    assert_eq!(settings(), kept);

    root.run("dpkg", &["--remove", "xdptun"]).unwrap();
    assert_eq!(state(&root), "deinstall ok config-files 99-1");
    assert_eq!(settings(), kept);
    let left: Vec<String> = root.changed().unwrap().into_iter().collect();
    let accounts = ["/etc/group", "/etc/gshadow", "/etc/passwd", "/etc/shadow"];
    let settings_left = [
        "/etc/xdptun",
        SETTINGS,
        "/etc/xdptun/config.toml.dpkg-dist",
        "/etc/xdptun/eth0.env",
    ];
    assert_eq!(left, [&accounts[..], &settings_left].concat());

    root.run("dpkg", &["--purge", "xdptun"]).unwrap();
    assert!(root.changed().unwrap().is_empty(), "{:?}", root.changed());
    user().unwrap_err();
    let books = fs::read_dir(root.inside("/var/lib/dpkg/info")).unwrap();
    for book in books {
        let name = book.unwrap().file_name();
        assert!(
            !Path::new(&name).to_string_lossy().starts_with("xdptun"),
            "{name:?}"
        );
    }
}

/// The operator decides who may read the operator's files: installing, reinstalling or
/// upgrading a package changes no owner and no mode.
#[test]
fn files_of_the_operator_keep_owner_and_mode() {
    let root = Root::new().unwrap();
    let package = root.bring(&own_package().unwrap()).unwrap();
    let files = [SETTINGS, "/etc/xdptun/secret", "/etc/xdptun/old/eth0.env"];
    fs::create_dir_all(root.inside("/etc/xdptun/old")).unwrap();
    for file in files {
        fs::write(root.inside(file), "[interface.eth0]\nports = [8000]\n").unwrap();
        fs::set_permissions(root.inside(file), Permissions::from_mode(0o600)).unwrap();
    }
    let install = |package: &str| {
        root.run("dpkg", &["--install", "--force-confold", package])
            .unwrap();
        for file in files {
            let found = root.run("stat", &["--format=%a %U %G", file]).unwrap();
            assert_eq!(found, "600 root root\n", "{file}");
        }
    };
    // As after a version that ran as root, then with the user there.
    root.run("getent", &["passwd", "xdptun"]).unwrap_err();
    install(&package);
    root.run("getent", &["passwd", "xdptun"]).unwrap();
    install(&package);
    install(&newer(&root, &package));
}
