//! The names that templates give their elements. An author can write the annotations of an earlier injection, too, and what they
//! hold of other elements could undo the work of other webhooks.

use std::collections::BTreeSet;

use crate::pod::{CONTAINERS, LISTS, PROXY};

/// The containers of Istio's stock templates.
const CONTAINER_NAMES: [&str; 4] = [PROXY, "istio-init", "istio-validation", "enable-core-dump"];

/// Names of elements that are a template's. A container may be in the one list here and in the other there.
#[derive(Debug)]
pub(crate) struct TemplateNames {
    containers: BTreeSet<String>,
}

impl TemplateNames {
    /// The names of stock templates of all releases: another one may have made the earlier injection.
    pub(crate) fn stock() -> Self {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            containers: set(&CONTAINER_NAMES),
        }
    }

    pub(crate) fn has(&self, list: &str, name: &str) -> bool {
        CONTAINERS.contains(&list) && self.containers.contains(name)
    }

    /// Adds those of `wanted` that templates made, by [`LISTS`]; returns true if there was one.
    pub(crate) fn learn(&mut self, wanted: &BTreeSet<String>, made: &[Vec<String>; 4]) -> bool {
        let before = self.containers.len();
        let lists = LISTS.iter().zip(made);
        for (_, names) in lists.filter(|(list, _)| CONTAINERS.contains(list)) {
            let names = names.iter().filter(|name| wanted.contains(*name));
            self.containers.extend(names.cloned());
        }
        self.containers.len() > before
    }
}
