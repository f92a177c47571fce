//! The command: all files, then what their objects say of each other.

use std::collections::BTreeMap;
use std::io::Write as _;

use api::config::document::{self, COMMAND_LINE, Part};
use api::config::{self, Finding};
use api::mesh::MeshConfig;
use serde_json::{Map, Value as Json};
use sources::catalogue::created_finding;

use super::cluster;
use super::codes;
use super::duplicates::Places;
use super::inventory::{Inventory, Item};
use super::messages::{Located, Message};
use super::report::{OutputFormat, written};
use super::suppressed::Suppressed;
use super::{
    claims, conflicts, idle_policies, idle_routes, ingresses, mesh, ports, references, secrets,
    user_id, workloads,
};
use crate::cli::AnalyzeFlags;
use crate::exit::{Exit, Failure};
use crate::named_files::{self, NamedFile, put_namespace};

/// Kinds of Kubernetes that objects of ours speak of.
const KUBERNETES: [(&str, &[&str]); 10] = [
    (
        "v1",
        &["Endpoints", "Namespace", "Pod", "Secret", "Service"],
    ),
    ("networking.k8s.io/v1", &["Ingress"]),
    ("networking.k8s.io/v1beta1", &["Ingress"]),
    (
        "apps/v1",
        &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
    ),
    ("batch/v1", &["CronJob", "Job"]),
    // No API server has these versions any more; manifests do, such as Istio 1.1's samples.
    (
        "apps/v1beta2",
        &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"],
    ),
    ("apps/v1beta1", &["Deployment", "StatefulSet"]),
    ("batch/v1beta1", &["CronJob"]),
    (
        "extensions/v1beta1",
        &["DaemonSet", "Deployment", "Ingress", "ReplicaSet"],
    ),
    ("discovery.k8s.io/v1", &["EndpointSlice"]),
];

/// The namespace of objects that name none.
const NAMELESS: &str = "default";

/// Reads the objects, analyzes them, and prints the messages.
///
/// # Errors
///
/// The error in flags, or in the output; what is found is no error but the result.
pub(crate) fn run(flags: &AnalyzeFlags) -> Result<Exit, Failure> {
    if flags.list_analyzers {
        return list();
    }
    let usage = |message: String| Failure {
        exit: Exit::Usage,
        message,
    };
    let arguments: Vec<String> = flags.files.iter().chain(&flags.more).cloned().collect();
    let access = cluster::access(flags);
    if arguments.is_empty() && access.is_none() {
        let variable = std::env::var_os("KUBECONFIG");
        return Err(usage(format!(
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
    for found in named_files::named(&arguments, &|_| false).map_err(usage)? {
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
        read.unread.iter().for_each(|line| print_line(line));
        namespace = read.namespace;
        mesh = mesh.or(read.mesh);
        all.extend(read.files);
    }
    let known = (&*flags.istio_namespace, mesh.as_ref());
    let mut located = found(&all, flags.namespace.as_deref(), known, &mut is_whole);
    // Of a cluster the messages of one namespace are kept, and those of objects without one.
    located.retain(|one| {
        let is_meant = !one.file.is_empty() || one.namespace.is_empty();
        is_meant || namespace.as_ref().is_none_or(|name| one.namespace == *name)
    });
    located.retain(|one| {
        one.code.level >= flags.output_threshold
            && !suppressed.iter().any(|suppressed| suppressed.has(one))
    });
    let format = match flags.output.as_str() {
        "json" => OutputFormat::Json,
        "yaml" => OutputFormat::Yaml,
        _ => OutputFormat::Log,
    };
    let failed = |message: String| Failure {
        exit: Exit::Failed,
        message,
    };
    out(&written(&located, format).map_err(failed)?)?;
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
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written.map_err(|cause| Failure {
        exit: Exit::Failed,
        message: format!("cannot write stdout: {cause}"),
    })
}

fn print_line(line: &str) {
    // If stderr is closed, nobody can read the line.
    let _written = writeln!(std::io::stderr(), "{line}");
}

/// Finds the messages about all files, with their places; `is_whole` becomes false if a part of a file cannot be read. `mesh`: its
/// configuration, where it is known.
pub(super) fn found(
    all: &[NamedFile],
    namespace: Option<&str>,
    (root, mesh): (&str, Option<&MeshConfig>),
    is_whole: &mut bool,
) -> Vec<Located> {
    let mut items = Vec::new();
    let mut messages = Vec::new();
    let mut number = 0;
    let mut places = Places::default();
    for file in all {
        let mut documents = document::documents_within(&file.text, COMMAND_LINE).peekable();
        if !file.below && documents.peek().is_none() {
            *is_whole = false;
            print_line(&format!("{}:1: there is no object in it", file.name));
        }
        for document in documents {
            match document {
                Ok(document) => {
                    for part in document.parts() {
                        if !file.below && !part.value().is_object() {
                            *is_whole = false;
                            print_line(&format!(
                                "{}:{}: there is no object in it",
                                file.name,
                                part.begin()
                            ));
                        }
                        let (item, of_part) = read(&part, number, file, namespace);
                        messages.extend(of_part);
                        if let Some(item) = item {
                            let place = format!("{}:{}", file.name, part.begin());
                            match places.duplicate(&item, place) {
                                Some(duplicate) => messages.push(duplicate),
                                None => items.push(item),
                            }
                        }
                        // `located` counts the same parts, to find them again by their numbers.
                        number += 1;
                    }
                }
                Err(malformed) if file.skips_text(malformed.line) => {}
                Err(malformed) => {
                    *is_whole = false;
                    print_line(&format!(
                        "{}:{}: {}",
                        file.name,
                        malformed.line.max(1),
                        malformed.cause
                    ));
                }
            }
        }
    }
    if let Some(namespace) = namespace.filter(|namespace| !has_namespace(&items, namespace)) {
        *is_whole = false;
        print_line(&format!("cannot find namespace {namespace:?} in the input"));
    }
    let inventory = Inventory::new(items, root, "cluster.local");
    references::find(&inventory, &mut messages);
    conflicts::find(&inventory, &mut messages);
    workloads::find(&inventory, &mut messages);
    secrets::find(&inventory, &mut messages);
    claims::find(&inventory, &mut messages);
    user_id::find(&inventory, &mut messages);
    ports::find(&inventory, &mut messages);
    idle_routes::find(&inventory, &mut messages);
    idle_policies::find(&inventory, &mut messages);
    ingresses::find(&inventory, mesh, &mut messages);
    let mut by_item: BTreeMap<usize, Vec<Message>> = BTreeMap::new();
    for message in messages {
        by_item.entry(message.item).or_default().push(message);
    }
    located(all, by_item, namespace)
}

fn has_namespace(items: &[Item], namespace: &str) -> bool {
    // An input without objects misses no namespace.
    items.is_empty()
        || items.iter().any(|item| {
            item.namespace == namespace || (item.kind == "Namespace" && item.name == namespace)
        })
}

/// An object of ours, valid or not, or one of Kubernetes that those speak of; and what is wrong with it by itself.
fn read(
    part: &Part<'_>,
    number: usize,
    file: &NamedFile,
    namespace: Option<&str>,
) -> (Option<Item>, Vec<Message>) {
    let value = placed(part, of_files(file, namespace));
    let text = |pointer: &str| {
        value
            .pointer(pointer)
            .and_then(Json::as_str)
            .unwrap_or_default()
    };
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    let item = |body: Json, namespace: &str| Item {
        number,
        group: version
            .split_once('/')
            .map_or("", |(group, _)| group)
            .to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: text("/metadata/name").to_owned(),
        body,
        annotations: value
            .pointer("/metadata/annotations")
            .cloned()
            .unwrap_or(Json::Null),
    };
    let message = |finding: Finding| Message {
        code: code_of(&finding),
        item: number,
        path: finding.path,
        text: finding.message,
    };
    if config::is_ours(version) {
        let (object, mut findings) = config::check_all(&value);
        part.add_number_findings(&mut findings);
        if file.skips_object(part, &findings) {
            return (None, Vec::new());
        }
        findings.extend(created_finding(&value));
        let is_valid = !findings.iter().any(Finding::is_error);
        if let Some(object) = object.as_ref().filter(|_| is_valid) {
            findings.extend(config::notes_of(object));
        }
        let messages = findings.into_iter().map(message).collect();
        return (
            object.map(|object| item(object.spec, &object.namespace)),
            messages,
        );
    }
    if let Some(unread) = config::unread_api(version) {
        return (None, vec![message(unread)]);
    }
    let is_known = KUBERNETES
        .iter()
        .any(|(known, kinds)| *known == version && kinds.contains(&kind));
    if !is_known {
        return (None, Vec::new());
    }
    let namespace = match (kind, text("/metadata/namespace")) {
        ("Namespace", _) => "",
        (_, "") => NAMELESS,
        (_, namespace) => namespace,
    };
    let mut body = value.clone();
    if let (Some(fields), true) = (body.as_object_mut(), kind == "Secret") {
        // Nobody is to read them again.
        fields.retain(|name, _| name == "metadata");
    }
    (Some(item(body, namespace)), Vec::new())
}

/// The code that istioctl has for a finding of the rules.
fn code_of(finding: &Finding) -> &'static codes::Code {
    match &finding.message {
        _ if finding.is_error() => &codes::INVALID,
        text if text.starts_with("deprecated, ") => &codes::DEPRECATED,
        text if text.starts_with("never reached: ") => &codes::UNREACHABLE,
        _ => &codes::NOTED,
    }
}

/// Objects of a cluster are in their namespaces.
fn of_files<'a>(file: &NamedFile, namespace: Option<&'a str>) -> Option<&'a str> {
    namespace.filter(|_| !file.name.is_empty())
}

fn placed(part: &Part<'_>, namespace: Option<&str>) -> Json {
    let mut value = part.value();
    if let Some(namespace) = namespace {
        put_namespace(&mut value, namespace);
    }
    value
}

/// Goes through the files once more, for the lines.
fn located(
    all: &[NamedFile],
    mut messages: BTreeMap<usize, Vec<Message>>,
    namespace: Option<&str>,
) -> Vec<Located> {
    let mut found = Vec::new();
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
                    code: message.code,
                    kind: kind.clone(),
                    namespace: namespace.clone(),
                    name: text(&metadata, "name"),
                    file: file.name.clone(),
                    line: part.line(&message.path),
                    path: message.path,
                    text: message.text,
                }));
            }
        }
        of_file.sort_by_key(|one| one.line);
        found.extend(of_file);
    }
    found
}
