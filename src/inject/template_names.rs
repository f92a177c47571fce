//! The names that templates give their elements. An author can write the annotations of an earlier injection, too, and their
//! entries for other elements could undo the work of other webhooks.

use std::collections::BTreeSet;

use crate::pod::{ByList, PROXY, PodList};

/// The containers of Istio's stock templates.
const STOCK_CONTAINERS: [&str; 4] = [PROXY, "istio-init", "istio-validation", "enable-core-dump"];

/// Their volumes, and those of the built-in template.
const STOCK_VOLUMES: [&str; 16] = [
    "credential-socket",
    "custom-bootstrap-volume",
    "custom-sds-token",
    "gke-workload-certificate",
    "istio-ca-crl",
    "istio-certs",
    "istio-data",
    "istio-envoy",
    "istio-podinfo",
    "istio-token",
    "istio-xds",
    "istiod-ca-cert",
    "lightstep-certs",
    "sds-uds-path",
    "workload-certs",
    "workload-socket",
];

/// Names of containers and volumes. A container may be in the one list here and in the other there.
#[derive(Debug, Clone, Default)]
pub(crate) struct TemplateNames {
    pub(crate) containers: BTreeSet<String>,
    pub(crate) volumes: BTreeSet<String>,
}

impl TemplateNames {
    /// The names of stock templates of all releases: another one may have made the earlier injection.
    pub(crate) fn stock() -> Self {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            containers: set(&STOCK_CONTAINERS),
            volumes: set(&STOCK_VOLUMES),
        }
    }

    const fn of(&mut self, list: PodList) -> Option<&mut BTreeSet<String>> {
        match list {
            PodList::Volumes => Some(&mut self.volumes),
            PodList::Containers | PodList::InitContainers => Some(&mut self.containers),
            PodList::ImagePullSecrets => None,
        }
    }

    /// Adds those of `wanted` that templates made; returns true if there was one.
    pub(crate) fn learn(&mut self, wanted: &mut Self, output_names: &ByList<Vec<String>>) -> bool {
        let mut learned = false;
        for (list, names) in output_names.iter() {
            let Some((own, wanted)) = self.of(list).zip(wanted.of(list)) else {
                continue;
            };
            let names = names.iter().filter(|name| wanted.contains(*name));
            for name in names {
                learned |= own.insert(name.clone());
            }
        }
        learned
    }
}
