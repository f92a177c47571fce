//! The modules that the generated files go into: one for each part of a package's name, because they refer to each other by
//! `super`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

#[derive(Default)]
struct Module {
    package: Option<String>,
    has_json: bool,
    inner: BTreeMap<String, Self>,
}

/// `json`: those of the packages that have proto JSON, too.
pub(crate) fn tree(packages: &BTreeSet<String>, json: &BTreeSet<String>) -> String {
    let mut root = Module::default();
    for package in packages {
        let mut at = &mut root;
        for part in package.split('.') {
            at = at.inner.entry(part.to_owned()).or_default();
        }
        at.package = Some(package.clone());
        at.has_json = json.contains(package);
    }
    let mut text = String::new();
    write(&root, &mut text);
    text
}

fn write(module: &Module, text: &mut String) {
    if let Some(package) = &module.package {
        let json = module.has_json.then(|| format!("{package}.serde.rs"));
        for file in [format!("{package}.rs")].into_iter().chain(json) {
            writeln!(text, "include!(concat!(env!(\"OUT_DIR\"), \"/{file}\"));")
                .expect("a string takes all");
        }
    }
    for (name, inner) in &module.inner {
        writeln!(text, "pub mod {name} {{").expect("a string takes all");
        write(inner, text);
        text.push_str("}\n");
    }
}
