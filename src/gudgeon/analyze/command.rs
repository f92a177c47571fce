//! The command: all files, then what their objects say of each other.

use std::collections::BTreeMap;
use std::io::Write as _;

use api::config::document::{self, COMMAND_LINE};
use api::config::{self, Finding};
use api::mesh::MeshConfig;
use serde_json::{Map, Value as Json};

use super::codes;
use super::inventory::{Inventory, Item};
use super::messages::{Located, Message};
use super::objects::{NAMELESS, ObjectsOfFiles, of_files, placed};
use super::report::written;
use super::suppressed::Suppressed;
use super::{analyzers, cluster, mesh};
use crate::cli::AnalyzeFlags;
use crate::exit::{self, Exit, Failure};
use crate::named_files::{self, NamedFile};
use crate::secrets::redact_finding;

/// Reads the objects, analyzes them, and prints the messages.
///
/// # Errors
/// An error in flags, or in the output; messages about objects are no error but the result.
pub(crate) fn run(flags: &AnalyzeFlags) -> Result<Exit, Failure> {
    if flags.list_analyzers {
        return list();
    }
    let arguments: Vec<String> = flags.files.iter().chain(&flags.more).cloned().collect();
    let access = cluster::access(flags);
    if arguments.is_empty() && access.is_none() {
        let variable = std::env::var_os("KUBECONFIG");
        return Err(Failure::usage(format!(
            "cannot analyze: no manifest is named, and {}",
            cluster::without_access(flags.use_kube, variable.as_deref())
        )));
    }
    let mut suppressed = Vec::new();
    for one in &flags.suppress {
        suppressed.push(Suppressed::read(one).map_err(Failure::config)?);
    }
    let mut mesh = mesh::of_flag(flags.mesh_config_file.as_deref())?;
    let mut all = Vec::new();
    let mut is_whole = true;
    for found in named_files::named(&arguments, &|_| false).map_err(Failure::usage)? {
        match found.and_then(|found| NamedFile::read(&found)) {
            Ok(file) => all.push(file),
            Err(unread) => {
                is_whole = false;
                print_line(&format!("cannot read {}: {}", unread.name, unread.cause));
            }
        }
    }
    let mut namespace = None;
    if let Some(access) = access {
        let read = cluster::read(&access, flags, &all)?;
        is_whole &= read.unread.is_empty();
        let warnings = read.warnings.iter();
        warnings.for_each(|line| print_line(&format!("warning: {line}")));
        read.unread.iter().for_each(|line| print_line(line));
        namespace = read.namespace;
        mesh = mesh.or(read.mesh);
        all.extend(read.files);
    }
    let Analysis {
        mut located,
        unread,
        missing_namespace,
    } = analyze(
        &all,
        flags.namespace.as_deref(),
        (&flags.istio_namespace, mesh.as_ref()),
    );
    is_whole &= unread.is_empty() && missing_namespace.is_none();
    unread.iter().for_each(|line| print_line(line));
    if let Some(namespace) = missing_namespace {
        print_line(&format!("cannot find namespace {namespace:?} in the input"));
    }
    // Of a cluster the messages of one namespace are kept, and those of objects without one.
    located.retain(|one| {
        let is_meant = !one.file.is_empty() || one.namespace.is_empty();
        is_meant || namespace.as_ref().is_none_or(|name| one.namespace == *name)
    });
    located.retain(|one| {
        one.code.level >= flags.output_threshold
            && !suppressed.iter().any(|suppressed| suppressed.has(one))
    });
    out(&written(&located, flags.output).map_err(Failure::failed)?)?;
    let is_bad = located
        .iter()
        .any(|one| one.code.level >= flags.failure_threshold);
    Ok(match is_bad || !is_whole {
        true => Exit::Failed,
        false => Exit::Done,
    })
}

/// Prints the codes.
fn list() -> Result<Exit, Failure> {
    let lines = codes::ALL
        .iter()
        .map(|code| format!("{} {:7} {}\n", code.name, code.level.as_str(), code.about));
    out(&lines.collect::<String>())?;
    Ok(Exit::Done)
}

fn out(text: &str) -> Result<(), Failure> {
    exit::print(text.as_bytes()).map_err(|cause| Failure::stdout(&cause))
}

fn print_line(line: &str) {
    // If stderr is closed, nobody can read the line.
    let _written = writeln!(std::io::stderr(), "{line}");
}

/// The result of an analysis.
#[derive(Debug)]
pub(crate) struct Analysis {
    /// The messages, with their places.
    pub(crate) located: Vec<Located>,
    /// A line for each part of a file that is no object or cannot be read.
    pub(super) unread: Vec<String>,
    /// The namespace of the flags, if no object is in it.
    pub(super) missing_namespace: Option<String>,
}

/// Analyzes the objects of all files. `namespace` is that of objects that name none, `root` the mesh's root namespace; `mesh`: its
/// configuration, where it is known.
pub(crate) fn analyze(
    files: &[NamedFile],
    namespace: Option<&str>,
    (root, mesh): (&str, Option<&MeshConfig>),
) -> Analysis {
    let ObjectsOfFiles {
        items,
        mut messages,
        unread,
        ..
    } = ObjectsOfFiles::read(files, namespace);
    let is_missing = |namespace: &&str| !has_namespace(&items, namespace);
    let missing_namespace = namespace.filter(is_missing).map(ToOwned::to_owned);
    let mut inventory = Inventory::new(items, root, "cluster.local");
    inventory.mesh = mesh.cloned();
    analyzers::run(&inventory, &mut messages);
    let mut by_item: BTreeMap<usize, Vec<Message>> = BTreeMap::new();
    for message in messages {
        by_item.entry(message.item).or_default().push(message);
    }
    Analysis {
        located: located(files, by_item, namespace),
        unread,
        missing_namespace,
    }
}

fn has_namespace(items: &[Item], namespace: &str) -> bool {
    // An input without objects misses no namespace.
    items.is_empty()
        || items.iter().any(|item| {
            item.namespace == namespace || (item.kind == "Namespace" && item.name == namespace)
        })
}

/// Goes through the files once more, for the lines.
fn located(
    all: &[NamedFile],
    mut messages: BTreeMap<usize, Vec<Message>>,
    namespace: Option<&str>,
) -> Vec<Located> {
    let mut located = Vec::new();
    let mut number = 0;
    for file in all {
        let mut of_file = Vec::new();
        let documents = document::documents_within(&file.text, COMMAND_LINE);
        for document in documents.flatten() {
            for part in document.parts() {
                let of_part = messages.remove(&number).unwrap_or_default();
                number += 1;
                if of_part.is_empty() {
                    continue;
                }
                let value = placed(&part, of_files(file, namespace));
                let metadata = value
                    .get("metadata")
                    .cloned()
                    .unwrap_or(Json::Object(Map::new()));
                let text = |value: &Json, name: &str| {
                    value
                        .get(name)
                        .and_then(Json::as_str)
                        .unwrap_or_default()
                        .to_owned()
                };
                let kind = text(&value, "kind");
                let version = text(&value, "apiVersion");
                let is_global = kind == "Namespace"
                    || config::kind(&version, &kind).is_ok_and(|kind| kind.cluster);
                let namespace = match text(&metadata, "namespace") {
                    _ if is_global => String::new(),
                    empty if empty.is_empty() => NAMELESS.to_owned(),
                    namespace => namespace,
                };
                of_file.extend(of_part.into_iter().map(|message| Located {
                    // A log of CI has more readers than the file.
                    text: redact_finding(&Finding::error(&message.path, &message.text)).message,
                    code: message.code,
                    kind: kind.clone(),
                    namespace: namespace.clone(),
                    name: text(&metadata, "name"),
                    file: file.name.clone(),
                    line: part.line(&message.path),
                    path: message.path,
                }));
            }
        }
        of_file.sort_by_key(|one| one.line);
        located.extend(of_file);
    }
    located
}
