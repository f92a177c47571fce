//! Many bootstraps as one, so that Envoy is started once for all.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use envoy_types::pb::envoy::config::bootstrap::v3::Bootstrap;
use envoy_types::pb::envoy::config::bootstrap::v3::bootstrap::StaticResources;
use envoy_types::pb::envoy::config::core::v3::Address;
use envoy_types::pb::envoy::config::core::v3::address::Address as Place;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use prost::Message as _;

/// What Envoy is asked for at once, and the resources that are in it already.
#[derive(Debug, Default)]
struct Batch {
    all: Bootstrap,
    known: HashSet<Vec<u8>>,
    names: HashMap<String, usize>,
    places: HashSet<Vec<u8>>,
}

impl Batch {
    fn add(&mut self, one: &Bootstrap) {
        if self.all.static_resources.is_none() {
            self.all = Bootstrap {
                static_resources: Some(StaticResources::default()),
                ..one.clone()
            };
        }
        let Some(resources) = &one.static_resources else {
            return;
        };
        for cluster in &resources.clusters {
            let bytes = cluster.encode_to_vec();
            if self.known.insert([b"c", &*bytes].concat()) {
                let mut cluster = cluster.clone();
                cluster.name = self.name("cluster", &cluster.name);
                self.resources().clusters.push(cluster);
            }
        }
        for listener in &resources.listeners {
            let bytes = listener.encode_to_vec();
            if self.known.insert([b"l", &*bytes].concat()) {
                let mut listener = listener.clone();
                listener.name = self.name("listener", &listener.name);
                self.place(&mut listener);
                self.resources().listeners.push(listener);
            }
        }
    }

    fn resources(&mut self) -> &mut StaticResources {
        self.all.static_resources.get_or_insert_default()
    }

    /// The first keeps its name, so that what refers to it finds one.
    fn name(&mut self, kind: &str, name: &str) -> String {
        let count = self.names.entry(format!("{kind} {name}")).or_default();
        *count += 1;
        if *count == 1 {
            return name.to_owned();
        }
        format!("{name}~{count}")
    }

    /// No two listen at one address.
    fn place(&mut self, listener: &mut Listener) {
        let more = listener.additional_addresses.iter_mut();
        let all = more.filter_map(|one| one.address.as_mut());
        for address in listener.address.iter_mut().chain(all) {
            let mut at = 0_u32;
            while !self.places.insert(address.encode_to_vec()) {
                at += 1;
                elsewhere(address, at);
            }
        }
    }
}

fn elsewhere(address: &mut Address, at: u32) {
    match &mut address.address {
        Some(Place::SocketAddress(place)) if place.address.contains(':') => {
            place.address = format!("2001:db8:1::{at:x}");
        }
        Some(Place::SocketAddress(place)) => {
            place.address = format!("127.{}.{}.{}", 100 + (at >> 16), (at >> 8) & 255, at & 255);
        }
        Some(Place::Pipe(pipe)) => pipe.path = format!("{}~{at}", pipe.path),
        _ => {}
    }
}

/// Envoy, and a file for it.
#[derive(Debug)]
pub(crate) struct Envoy {
    program: PathBuf,
    file: PathBuf,
    /// How often it was started.
    pub(crate) runs: usize,
}

impl Envoy {
    pub(crate) fn new(directory: &Path) -> Self {
        let program = std::env::var_os("PINTLE_ENVOY").map_or_else(
            || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/envoy/envoy-1.40.0"),
            PathBuf::from,
        );
        assert!(
            program.exists(),
            "{} is missing: run build/envoy first",
            program.display()
        );
        Self {
            program,
            file: directory.join("random.pb"),
            runs: 0,
        }
    }

    fn takes(&mut self, bootstrap: &Bootstrap) -> Result<(), String> {
        std::fs::write(&self.file, bootstrap.encode_to_vec()).unwrap();
        self.runs += 1;
        let run = Command::new(&self.program)
            .args([
                "--mode",
                "validate",
                "--log-level",
                "warning",
                "--config-path",
            ])
            .arg(&self.file)
            .output()
            .unwrap();
        if run.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&run.stderr).into_owned())
    }

    /// Which cases it refuses, and why. A case is the bootstraps of its proxies.
    pub(crate) fn refused(&mut self, cases: &[(u64, Vec<Bootstrap>)]) -> Vec<(u64, String)> {
        let mut batch = Batch::default();
        cases
            .iter()
            .flat_map(|(_, all)| all)
            .for_each(|one| batch.add(one));
        let Err(why) = self.takes(&batch.all) else {
            return Vec::new();
        };
        if let [(seed, all)] = cases {
            // As they are, without what the others had of it.
            let alone = all.iter().find_map(|one| self.takes(one).err());
            return vec![(
                *seed,
                alone.unwrap_or_else(|| format!("only together: {why}")),
            )];
        }
        let (first, second) = cases.split_at(cases.len() / 2);
        let mut refused = self.refused(first);
        refused.extend(self.refused(second));
        refused
    }
}
