//! Objects of a cluster, in the form of files, so that the checks treat both alike.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;

use api::config::KINDS;
use api::config::document::{self, COMMAND_LINE};
use api::mesh::MeshConfig;
use serde_json::{Value as Json, json};
use sources::Resource;
use sources::kubernetes::{Access, Cluster, ListedPart};

use super::mesh::{self, ClusterMesh};
use crate::cli::AnalyzeFlags;
use crate::exit::Failure;
use crate::named_files::{NamedFile, put_namespace};

/// Objects of all kinds together.
const MAX_OBJECTS: usize = 100_000;

/// Kinds of Kubernetes that objects of ours speak of: version and group, kind, plural, and the part that is read:
/// for Secrets no more is to leave the server.
const KUBERNETES: [(&str, &str, &str, &str, ListedPart); 13] = [
    ("", "v1", "Endpoints", "endpoints", ListedPart::Whole),
    ("", "v1", "Namespace", "namespaces", ListedPart::Metadata),
    ("", "v1", "Pod", "pods", ListedPart::Metadata),
    ("", "v1", "Secret", "secrets", ListedPart::Metadata),
    ("", "v1", "Service", "services", ListedPart::Whole),
    ("apps", "v1", "DaemonSet", "daemonsets", ListedPart::Whole),
    ("apps", "v1", "Deployment", "deployments", ListedPart::Whole),
    ("apps", "v1", "ReplicaSet", "replicasets", ListedPart::Whole),
    (
        "apps",
        "v1",
        "StatefulSet",
        "statefulsets",
        ListedPart::Whole,
    ),
    ("batch", "v1", "CronJob", "cronjobs", ListedPart::Whole),
    ("batch", "v1", "Job", "jobs", ListedPart::Whole),
    (
        "discovery.k8s.io",
        "v1",
        "EndpointSlice",
        "endpointslices",
        ListedPart::Whole,
    ),
    (
        "networking.k8s.io",
        "v1",
        "Ingress",
        "ingresses",
        ListedPart::Whole,
    ),
];

/// Kinds of which most objects are made by another that is read, and the kind of that: the object says nothing that its maker does
/// not say, and one of a Deployment's past is none of its present.
const OWNERS: [(&str, &str); 2] = [("Job", "CronJob"), ("ReplicaSet", "Deployment")];

/// Returns true if an object of that kind made this one.
fn is_owned_by(object: &Json, maker: &str) -> bool {
    let owners = object.pointer("/metadata/ownerReferences");
    let mut owners = owners.and_then(Json::as_array).into_iter().flatten();
    owners.any(|owner| {
        let of_kubernetes = |api: &str| api.starts_with("apps/") || api.starts_with("batch/");
        let api_version = owner.get("apiVersion").and_then(Json::as_str);
        owner.get("kind").and_then(Json::as_str) == Some(maker)
            && api_version.is_some_and(of_kubernetes)
            && owner.get("controller").and_then(Json::as_bool) == Some(true)
    })
}

/// The objects of a cluster.
#[derive(Debug, Default)]
pub(super) struct InCluster {
    pub(super) files: Vec<NamedFile>,
    /// Failures to read a kind.
    pub(super) unread: Vec<String>,
    /// Lines about the cluster that say nothing against its objects.
    pub(super) warnings: Vec<String>,
    /// The namespace to report on; `None`: all.
    pub(super) namespace: Option<String>,
    /// The mesh configuration of the cluster; `None`: it is not known.
    pub(super) mesh: Option<MeshConfig>,
}

/// The group, the kind, the namespace and the name.
type ObjectName = (String, String, String, String);

/// Returns the access to the cluster; `None` if no access is configured and the flags do not require one.
pub(super) fn access(flags: &AnalyzeFlags) -> Option<Access> {
    let kubeconfig = || Access::Kubeconfig {
        file: flags.kubeconfig.clone(),
        context: flags.context.clone(),
    };
    let is_named = flags.kubeconfig.is_some() || flags.context.is_some();
    match flags.use_kube {
        Some(false) => None,
        _ if is_named => Some(kubeconfig()),
        _ if Access::in_cluster() => Some(Access::InCluster),
        Some(true) => Some(kubeconfig()),
        None => has_kubeconfig().then(kubeconfig),
    }
}

fn has_kubeconfig() -> bool {
    let variable = std::env::var_os("KUBECONFIG");
    if let Some(paths) = variable.filter(|paths| !paths.is_empty()) {
        return std::env::split_paths(&paths).any(|path| path.exists());
    }
    let home = std::env::var_os("HOME").map(PathBuf::from);
    home.is_some_and(|home| home.join(".kube/config").exists())
}

/// Returns the reason why the cluster is not read, where [`access`] says so. `variable`: `KUBECONFIG`.
pub(super) fn without_access(use_kube: Option<bool>, variable: Option<&OsStr>) -> String {
    if use_kube == Some(false) {
        return "--use-kube=false leaves out the cluster".to_owned();
    }
    let paths = variable.filter(|paths| !paths.is_empty());
    paths.map_or_else(
        || "there is no kubeconfig".to_owned(),
        |paths| format!("KUBECONFIG names no file that exists: {}", paths.display()),
    )
}

/// Reads the cluster; what files have, too, counts as they have it.
///
/// # Errors
/// No client of the cluster can be built, or the cluster does not answer.
pub(super) fn read(
    access: &Access,
    flags: &AnalyzeFlags,
    files: &[NamedFile],
) -> Result<InCluster, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|cause| Failure::system(format!("cannot start the runtime: {cause}")))?;
    let names_in_files = names(files, flags.namespace.as_deref());
    let asked = runtime.block_on(fetch(access, flags, &names_in_files));
    runtime.shutdown_background();
    asked
}

async fn fetch(
    access: &Access,
    flags: &AnalyzeFlags,
    names_in_files: &BTreeSet<ObjectName>,
) -> Result<InCluster, Failure> {
    let without = "--use-kube=false looks at files alone";
    let cluster = Cluster::open(access)
        .await
        .map_err(|cause| Failure::config(format!("{cause} ({without})")))?;
    // A server that is away is told once, and not with each kind.
    cluster
        .version()
        .await
        .map_err(|cause| Failure::config(format!("{cause} ({without})")))?;
    let namespace = flags
        .namespace
        .as_deref()
        .unwrap_or_else(|| cluster.namespace());
    let mut read = InCluster {
        namespace: (!flags.all_namespaces).then(|| namespace.to_owned()),
        ..InCluster::default()
    };
    if flags.mesh_config_file.is_none() {
        match mesh::of_cluster(&cluster, &flags.istio_namespace).await {
            Ok(ClusterMesh::Read(found)) => read.mesh = found.map(|mesh| *mesh),
            Ok(ClusterMesh::Forbidden(warning)) => read.warnings.push(warning),
            Err(cause) => read.unread.push(cause),
        }
    }
    for (group, version, kind, plural, part) in KUBERNETES {
        let resource = Resource {
            group,
            version,
            name: plural,
        };
        read.kind(&cluster, resource, kind, part, names_in_files)
            .await;
    }
    for kind in KINDS {
        for version in kind.versions {
            let resource = Resource {
                group: kind.group,
                version,
                name: kind.plural,
            };
            if read
                .kind(
                    &cluster,
                    resource,
                    kind.kind,
                    ListedPart::Whole,
                    names_in_files,
                )
                .await
            {
                // The server converts between versions, so the first one that it has is enough.
                break;
            }
        }
    }
    Ok(read)
}

impl InCluster {
    /// Returns true if the server has the kind, or does not say.
    async fn kind(
        &mut self,
        cluster: &Cluster,
        resource: Resource,
        kind: &str,
        part: ListedPart,
        names_in_files: &BTreeSet<ObjectName>,
    ) -> bool {
        let max = MAX_OBJECTS.saturating_sub(self.files.len());
        let maker = OWNERS.iter().find(|(made, _)| *made == kind);
        let objects = match list(
            cluster,
            resource,
            (part, maker.map(|(_, maker)| *maker)),
            max,
        )
        .await
        {
            Ok(Some(objects)) => objects,
            Ok(None) => return false,
            Err(failure) => {
                self.unread.push(failure.to_string());
                return true;
            }
        };
        let version = match resource.group {
            "" => resource.version.to_owned(),
            group => format!("{group}/{}", resource.version),
        };
        for mut object in objects {
            if let Some(fields) = object.as_object_mut() {
                // Items of a list do not say it, and those of metadata say another kind.
                fields.insert("apiVersion".to_owned(), json!(version));
                fields.insert("kind".to_owned(), json!(kind));
            }
            if !names_in_files.contains(&name(&object)) {
                self.files.push(file(&object));
            }
        }
        true
    }
}

/// Lists a kind. Where all objects have a `maker` their metadata is enough; where others are among them, the kind is asked for whole,
/// too.
async fn list(
    cluster: &Cluster,
    resource: Resource,
    (part, maker): (ListedPart, Option<&str>),
    max: usize,
) -> Result<Option<Vec<Json>>, sources::kubernetes::Failure> {
    let Some(maker) = maker else {
        return cluster.list_all(resource, part, max).await;
    };
    let without_maker = |mut all: Vec<Json>| {
        all.retain(|object| !is_owned_by(object, maker));
        all
    };
    let metadata = cluster
        .list_all(resource, ListedPart::Metadata, max)
        .await?;
    match metadata.map(without_maker) {
        Some(others) if !others.is_empty() => {
            let all = cluster.list_all(resource, ListedPart::Whole, max).await?;
            Ok(all.map(without_maker))
        }
        none => Ok(none),
    }
}

fn name(object: &Json) -> ObjectName {
    let text = |pointer: &str| {
        let found = object.pointer(pointer).and_then(Json::as_str);
        found.unwrap_or_default().to_owned()
    };
    let version = text("/apiVersion");
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let namespace = match text("/metadata/namespace") {
        empty if empty.is_empty() => "default".to_owned(),
        namespace => namespace,
    };
    (
        group.to_owned(),
        text("/kind"),
        namespace,
        text("/metadata/name"),
    )
}

/// Objects of files, by their names.
fn names(files: &[NamedFile], namespace: Option<&str>) -> BTreeSet<ObjectName> {
    let mut all = BTreeSet::new();
    for file in files {
        let documents = document::documents_within(&file.text, COMMAND_LINE);
        for document in documents.flatten() {
            for part in document.parts() {
                let mut value = part.value();
                if let Some(namespace) = namespace {
                    put_namespace(&mut value, namespace);
                }
                all.insert(name(&value));
            }
        }
    }
    all
}

/// JSON is YAML but for characters that YAML wants to be escaped.
fn file(object: &Json) -> NamedFile {
    let mut text = String::new();
    for letter in object.to_string().chars() {
        match u32::from(letter) {
            code @ (0x7f..=0x9f | 0x2028 | 0x2029 | 0xfeff | 0xfffe | 0xffff) => {
                text.push_str(&format!("\\u{code:04x}"));
            }
            _ => text.push(letter),
        }
    }
    NamedFile {
        name: String::new(),
        text,
        below: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_as_it_was_whatever_letters_it_has() {
        let odd = "a\u{7f}\u{85}\u{2028}\u{feff}\u{0}\"\\ \u{1f600}";
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "namespace": "n", "annotations": {"odd": odd}},
        });
        let file = file(&object);
        let documents: Vec<_> = document::documents_within(&file.text, COMMAND_LINE).collect();
        let [Ok(document)] = &documents[..] else {
            panic!("{documents:?}");
        };
        assert_eq!(document.parts()[0].value(), object);
        let own = ("".into(), "Pod".into(), "n".into(), "a".into());
        assert_eq!(names(&[file], None), BTreeSet::from([own]));
    }

    #[test]
    fn the_reason_for_no_access_is_named() {
        for (use_kube, variable, reason) in [
            (None, None, "there is no kubeconfig"),
            (None, Some(""), "there is no kubeconfig"),
            (
                None,
                Some("/nope"),
                "KUBECONFIG names no file that exists: /nope",
            ),
            (
                Some(false),
                Some("/a"),
                "--use-kube=false leaves out the cluster",
            ),
        ] {
            let variable = variable.map(OsStr::new);
            assert_eq!(without_access(use_kube, variable), reason);
        }
    }

    #[test]
    fn one_version_of_each_kind_is_requested() {
        assert!(KINDS.iter().all(|kind| !kind.versions.is_empty()));
    }
}
