//! Many bootstraps as one, so that Envoy is started once for all; and the certificates that are named in them.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use envoy_types::pb::envoy::config::bootstrap::v3::Bootstrap;
use envoy_types::pb::envoy::config::bootstrap::v3::bootstrap::StaticResources;
use envoy_types::pb::envoy::config::core::v3::Address;
use envoy_types::pb::envoy::config::core::v3::address::Address as Place;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use prost::Message as _;

/// The questions to Envoy for one start, and the resources that are in it already.
#[derive(Debug, Default)]
struct Batch {
    all: Bootstrap,
    known: HashSet<Vec<u8>>,
    names: HashMap<String, usize>,
    places: HashSet<Vec<u8>>,
}

/// Returns true if no two of its resources have one name, and no two listen at one address: in a batch that would not be
/// seen.
fn is_plain(one: &Bootstrap) -> bool {
    let Some(resources) = &one.static_resources else {
        return true;
    };
    let clusters = resources
        .clusters
        .iter()
        .map(|cluster| ("c", &cluster.name));
    let listeners = resources
        .listeners
        .iter()
        .map(|listener| ("l", &listener.name));
    let mut names = HashSet::new();
    let mut places = HashSet::new();
    let listening = resources.listeners.iter().flat_map(|listener| {
        let more = listener.additional_addresses.iter();
        let more = more.filter_map(|one| one.address.as_ref());
        listener.address.iter().chain(more)
    });
    clusters.chain(listeners).all(|name| names.insert(name))
        && listening
            .map(prost::Message::encode_to_vec)
            .all(|place| places.insert(place))
}

/// The names of its clusters.
fn clusters(one: &Bootstrap) -> impl Iterator<Item = &str> {
    let resources = one.static_resources.iter();
    let clusters = resources.flat_map(|resources| &resources.clusters);
    clusters.map(|cluster| cluster.name.as_str())
}

/// Returns true if it names a cluster that others have and it has not: in a batch that would not be missing. A string has its
/// length in front of it, however deep it is.
fn leans_on(one: &Bootstrap, all: &HashSet<String>) -> bool {
    let own: HashSet<&str> = clusters(one).collect();
    let others: HashSet<&[u8]> = all
        .iter()
        .filter(|name| !own.contains(name.as_str()))
        .map(String::as_bytes)
        .collect();
    let lengths: HashSet<usize> = others.iter().map(|name| name.len()).collect();
    let bytes = one.encode_to_vec();
    (0..bytes.len()).any(|at| {
        let mut rest = &bytes[at..];
        let Ok(length) = prost::encoding::decode_varint(&mut rest) else {
            return false;
        };
        usize::try_from(length).is_ok_and(|length| {
            lengths.contains(&length)
                && rest.get(..length).is_some_and(|text| others.contains(text))
        })
    })
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
pub(crate) struct EnvoyValidator {
    program: PathBuf,
    file: PathBuf,
    /// The warnings that it may have about what it takes.
    known: fn(&str) -> bool,
    /// The number of its starts.
    pub(crate) runs: usize,
}

impl EnvoyValidator {
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
            file: directory.join("asked.pb"),
            known: |_| true,
            runs: 0,
        }
    }

    /// One that is to take everything without a word but these.
    #[allow(dead_code, reason = "not all who share this have words to look at")]
    pub(crate) fn silent_but(self, known: fn(&str) -> bool) -> Self {
        Self { known, ..self }
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
        let stderr = String::from_utf8_lossy(&run.stderr).into_owned();
        let is_silent = stderr.lines().all(self.known);
        if run.status.success() && is_silent {
            return Ok(());
        }
        Err(stderr)
    }

    /// Returns the cases that it refuses, with its reasons. A case is the bootstraps of its proxies.
    pub(crate) fn refused<C: Clone>(&mut self, cases: &[(C, Vec<Bootstrap>)]) -> Vec<(C, String)> {
        let every = cases.iter().flat_map(|(_, all)| all).flat_map(clusters);
        let every: HashSet<String> = every.map(str::to_owned).collect();
        let (plain, others): (Vec<_>, Vec<_>) = cases.iter().partition(|(_, all)| {
            all.iter()
                .all(|one| is_plain(one) && !leans_on(one, &every))
        });
        let mut refused = self.refused_of(&plain);
        for (case, all) in others {
            let why = all.iter().find_map(|one| self.takes(one).err());
            refused.extend(why.map(|why| (case.clone(), why)));
        }
        refused
    }

    fn refused_of<C: Clone>(&mut self, cases: &[&(C, Vec<Bootstrap>)]) -> Vec<(C, String)> {
        if cases.is_empty() {
            return Vec::new();
        }
        let mut batch = Batch::default();
        cases
            .iter()
            .flat_map(|(_, all)| all)
            .for_each(|one| batch.add(one));
        let Err(why) = self.takes(&batch.all) else {
            return Vec::new();
        };
        if let [(case, all)] = cases {
            // As they are, without what the others had of it.
            let alone = all.iter().find_map(|one| self.takes(one).err());
            return vec![(
                case.clone(),
                alone.unwrap_or_else(|| format!("only together: {why}")),
            )];
        }
        let (first, second) = cases.split_at(cases.len() / 2);
        let mut refused = self.refused_of(first);
        refused.extend(self.refused_of(second));
        refused
    }
}

/// A certificate that signs itself, under the names that a mesh uses.
pub(crate) fn certificates(directory: &Path) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ])
        .args([
            "-days",
            "2",
            "-subj",
            "/CN=test",
            "-keyout",
            "key.pem",
            "-out",
            "cert-chain.pem",
        ])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let root = directory.join("root-cert.pem");
    std::fs::copy(directory.join("cert-chain.pem"), root).unwrap();
}
