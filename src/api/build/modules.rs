//! The modules that the generated files go into: one for each part of a package's name, because they refer to each other by
//! `super`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

#[derive(Default)]
struct Module {
    package: Option<String>,
    inner: BTreeMap<String, Self>,
}

pub(crate) fn tree(packages: &BTreeSet<String>) -> String {
    let mut root = Module::default();
    for package in packages {
        let mut at = &mut root;
        for part in package.split('.') {
            at = at.inner.entry(part.to_owned()).or_default();
        }
        at.package = Some(package.clone());
    }
    let mut text = String::new();
    write(&root, &mut text);
    text
}

fn write(module: &Module, text: &mut String) {
    if let Some(package) = &module.package {
        let parts: Vec<_> = package.split('.').map(identifier).collect();
        let file = parts.join(".");
        writeln!(
            text,
            "include!(concat!(env!(\"OUT_DIR\"), \"/{file}.rs\"));"
        )
        .expect("a string takes all");
    }
    for (name, inner) in &module.inner {
        writeln!(text, "pub mod {} {{", identifier(name)).expect("a string takes all");
        write(inner, text);
        text.push_str("}\n");
    }
}

/// As prost writes a part of a package, in code and in the name of its file.
fn identifier(part: &str) -> String {
    match part {
        "type" => format!("r#{part}"),
        _ => part.to_owned(),
    }
}
