//! The commands of every document run as they are written, in its order, and print
//! what it shows. Documents and commands that no test knows are failures.

mod capture;
mod kernels;
mod operating;
mod packages;
mod phantun;
mod readme;
mod veil;

use std::fs;

use xdptun_lab::workspace;
use xdptun_test_docs::page::Page;

/// Documents that tell to run something, each with the test that does.
macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        const PAGES: &[&str] = &[$($path),*];
        $(
            #[test]
            fn $name() {
                let mut page = Page::open($path).unwrap();
                $name::walk(&mut page);
                page.end().unwrap();
            }
        )*
    };
}

pages! {
    readme: "README.md",
    capture: "docs/capture.md",
    kernels: "docs/kernels.md",
    operating: "docs/operating.md",
    packages: "docs/packages.md",
    phantun: "docs/phantun.md",
    veil: "docs/veil.md",
}

#[test]
fn every_document_with_commands_has_a_test() {
    let folder = fs::read_dir(workspace::root().join("docs")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let documents = names.filter(|name| name.ends_with(".md"));
    for document in documents.map(|name| format!("docs/{name}")) {
        let page = Page::open(&document).unwrap();
        let has_test = PAGES.contains(&document.as_str());
        assert!(page.is_empty() || has_test, "no test runs {page:#?}");
    }
}
