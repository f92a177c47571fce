//! Configuration in an API server: objects of the mesh's own kinds, decoded and validated one by one. An invalid one is not
//! used; its last good version stays.

use std::sync::Arc;

use api::config::document::{self, ValueCount};
use api::kubernetes::ObjectMeta;
use api::model::{ClusterId, Configured, DISTRIBUTION, DRY_RUN, is_dry_run, is_near};
use api::networking;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::objects::Problem;
use super::wire::MetadataView as _;
use crate::catalogue::{self, Candidate, Catalogue, Content, Origin, Status};
use crate::contribution::{AnyConfigured, Configuration, ConfigurationKind, ObjectKey, Refusal};
use crate::kind::{Key, Kind, Resource};
use crate::kubernetes::store::{Change, Changes};

/// An object, or its errors.
#[derive(Debug, Deserialize)]
#[serde(from = "RawObject", bound = "T: ConfigurationKind")]
pub(super) struct Custom<T> {
    key: Key,
    /// `metadata.resourceVersion`.
    version: Box<str>,
    read: Result<Arc<Configured<T>>, Refusal>,
    /// Bytes that the object takes, about.
    size: usize,
}

/// A new version with equal content is no change.
impl<T: PartialEq> PartialEq for Custom<T> {
    fn eq(&self, other: &Self) -> bool {
        (&self.key, &self.read) == (&other.key, &other.read)
    }
}

#[cfg(test)]
impl<T> Custom<T> {
    pub(super) const fn read(&self) -> Result<&Arc<Configured<T>>, &Refusal> {
        self.read.as_ref()
    }
}

impl<T: ConfigurationKind> Kind for Custom<T> {
    const RESOURCE: Resource = Resource {
        group: T::GROUP,
        version: newest(T::VERSIONS),
        name: T::PLURAL,
    };

    fn key(&self) -> Key {
        self.key.clone()
    }

    /// Decoded objects take some seven times their text.
    const ROOM: usize = 256 << 20;

    fn size(&self) -> usize {
        self.size
    }

    /// The last good version is served on in place of a refused one.
    fn keeps_last_good(&self) -> bool {
        self.read.is_err()
    }
}

/// Returns the newest version. A server with several versions converts between them, so any of them will do.
pub(super) const fn newest(versions: &'static [&'static str]) -> &'static str {
    match versions {
        [.., last] => last,
        [] => "v1",
    }
}

/// Returns the `apiVersion` that objects of a kind are shown with, independent of the server's version.
pub(super) fn api_version<T: ConfigurationKind>() -> String {
    format!("{}/{}", T::GROUP, newest(T::VERSIONS))
}

/// Any object of configuration, as the server writes it.
#[derive(Deserialize)]
pub(super) struct RawObject {
    #[serde(default)]
    pub(super) metadata: ObjectMeta,
    /// Decoded after the object's key is known: an object that is nested too deeply must not spoil a whole list.
    #[serde(default)]
    pub(super) spec: Option<Box<RawValue>>,
}

impl<T: ConfigurationKind> From<RawObject> for Custom<T> {
    fn from(raw: RawObject) -> Self {
        let key = raw.metadata.key();
        let refused = |refusal| Refusal {
            revision: raw.metadata.revision(),
            ..refusal
        };
        let text = raw.spec.as_ref().map_or("null", |spec| spec.get());
        let counted = document::count_values(text);
        let count = counted.clone().unwrap_or_default();
        let decoded = counted
            .map_err(Refusal::from)
            .and_then(|_| decode::<T>(&raw.metadata, text));
        let read = decoded.map_err(refused).map(|spec| {
            Arc::new(Configured {
                name: (*key.name).into(),
                namespace: (*key.namespace).into(),
                created: raw.metadata.created_at(),
                prefers_close: is_near(raw.metadata.annotation(DISTRIBUTION)),
                dry_run: is_dry_run(raw.metadata.annotation(DRY_RUN)),
                spec,
            })
        });
        Self {
            key,
            version: raw.metadata.resource_version.as_str().into(),
            size: size(text, count, &read),
            read,
        }
    }
}

/// Bytes that each object and each other value within a decoded object takes besides its text, about.
const OBJECT_BYTES: usize = 500;
const VALUE_BYTES: usize = 48;

/// Estimates the bytes of an object: a short text may be a large object.
fn size<T>(text: &str, count: ValueCount, read: &Result<T, Refusal>) -> usize {
    let all = [
        text.len(),
        count.objects.saturating_mul(OBJECT_BYTES),
        count.values.saturating_mul(VALUE_BYTES),
    ];
    match read {
        Ok(_) => all.into_iter().fold(0, usize::saturating_add),
        Err(refusal) => refusal.size(),
    }
}

/// Validates an object by the rules of files, MCP and the webhook.
fn decode<T: ConfigurationKind>(metadata: &ObjectMeta, text: &str) -> Result<T, Refusal> {
    let spec: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut object = json!({
        "apiVersion": api_version::<T>(),
        "kind": T::NAME,
        "metadata": metadata.checked_fields(),
    });
    // Within `json!` the spec would be copied.
    if let Some(fields) = object.as_object_mut() {
        fields.insert("spec".to_owned(), spec);
    }
    let checked = networking::check::<T>(&object);
    match (Refusal::of(&checked.findings), checked.spec) {
        (None, Some(spec)) => Ok(spec),
        (refusal, _) => Err(refusal.unwrap_or_default()),
    }
}

/// Objects of an API server by kind and key, each written at a place of its own.
#[derive(Debug)]
struct InServer;

/// The kind's name, and which object of it, shared by all that name the object: there may be thousands, and each change of one
/// lists them anew.
type KindAndName = (&'static str, Arc<Key>);

impl Content for InServer {
    type Location = KindAndName;
    type Id = KindAndName;
    type Version = AnyConfigured;
    type Findings = Refusal;
}

/// The origin of each object as it is written now, by kind and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(Arc<[(KindAndName, Origin)]>);

impl Origins {
    pub(super) fn of(&self, kind: &'static str, key: &Key) -> Option<&Origin> {
        let is = |(place, _): &(KindAndName, Origin)| {
            let (of_kind, of_key) = place;
            (*of_kind, &**of_key).cmp(&(kind, key))
        };
        let at = self.0.binary_search_by(is).ok()?;
        self.0.get(at).map(|(_, origin)| origin)
    }
}

/// The configuration objects of all kinds.
#[derive(Debug)]
pub(super) struct Configs {
    cluster: ClusterId,
    catalogue: Catalogue<InServer>,
    configuration: Configuration,
    /// Built by the first call after a change.
    origins: Option<Origins>,
}

impl Configs {
    pub(super) fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            catalogue: Catalogue::default(),
            configuration: Configuration::default(),
            origins: None,
        }
    }

    pub(super) fn apply<T: ConfigurationKind>(&mut self, changes: Changes<Custom<T>>) {
        self.origins = None;
        if changes.whole {
            let there = |key: &Key| {
                changes
                    .changes
                    // `Changes` sorts its changes by key.
                    .binary_search_by(|change| change.key().cmp(key))
                    .is_ok()
            };
            // The empty key sorts before every key of the kind.
            let first = (T::NAME, Arc::default());
            let places = self.catalogue.places_from(&first);
            let places = places.take_while(|(kind, _)| *kind == T::NAME);
            let gone = places.filter(|(_, key)| !there(key));
            for place in gone.cloned().collect::<Vec<_>>() {
                self.catalogue.remove(&place);
            }
        }
        for change in changes.changes {
            match change {
                Change::Set(key, object) => {
                    let place = (T::NAME, Arc::new(key));
                    let (version, refusal) = match &object.read {
                        Ok(new) => (Some(T::any(Arc::clone(new))), Refusal::default()),
                        Err(refusal) => (None, refusal.clone()),
                    };
                    let origin = Origin::of_cluster(&self.cluster, &place.1, &object.version);
                    let candidate = Candidate::new(Some(place.clone()), origin, version, refusal);
                    self.catalogue.put(&place, vec![candidate]);
                }
                Change::Gone(key) => drop(self.catalogue.remove(&(T::NAME, Arc::new(key)))),
            }
        }
        for change in self.catalogue.reconcile().changes {
            match change {
                catalogue::CatalogueChange::Set(_, object, _) => self.configuration.set(object),
                catalogue::CatalogueChange::Moved(..) => {}
                catalogue::CatalogueChange::Gone((kind, key)) => {
                    self.configuration.remove(kind, &place(&key));
                }
            }
        }
    }

    pub(super) const fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// Returns the configuration in last good versions.
    pub(super) const fn configuration(&self) -> &Configuration {
        &self.configuration
    }

    /// Returns the origins of all objects; the same pointer as before if there was no change.
    pub(super) fn origins(&mut self) -> Origins {
        let catalogue = &self.catalogue;
        let origins = self.origins.get_or_insert_with(|| {
            let all = catalogue.places();
            let all = all.filter_map(|(place, candidates)| {
                let one = candidates.first()?;
                Some((place.clone(), one.origin.clone()))
            });
            Origins(all.collect())
        });
        origins.clone()
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        let all = self.catalogue.places();
        let all =
            all.flat_map(|(place, candidates)| candidates.iter().map(move |one| (place, one)));
        all.filter_map(|((kind, object), one)| {
            let Status::Refused { serving } = one.status else {
                return None;
            };
            Some(Problem {
                kind,
                object: Key::clone(object),
                origin: Some(one.origin.clone()),
                serving: Some(serving),
                refusal: one.findings.clone(),
                is_unreadable: false,
            })
        })
    }
}

fn place(key: &Key) -> ObjectKey {
    ((*key.namespace).into(), (*key.name).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{EntryId, Refused};
    use crate::kubernetes::store::{Writer, store};
    use api::config::ServedInstead;
    use api::networking::{ServiceEntry, Sidecar, VirtualService};

    fn entry(name: &str, host: &str) -> Value {
        json!({
            "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
            "metadata": {"name": name, "namespace": "demo", "creationTimestamp": "1970-01-01T00:00:07Z"},
            "spec": {"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"},
        })
    }

    fn read(object: &Value) -> Custom<ServiceEntry> {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn problem_texts(configs: &Configs) -> Vec<String> {
        let say =
            |problem: Problem| format!("{} {}: {}", problem.kind, problem.object, problem.refusal);
        configs.problems().map(say).collect()
    }

    fn hosts(configs: &Configs) -> Vec<String> {
        let all = &configs.configuration().service_entries;
        all.values()
            .flat_map(|one| one.spec.hosts.clone())
            .collect()
    }

    #[tokio::test]
    async fn an_invalid_object_leaves_the_last_good_version() {
        let (mut writer, mut reader): (Writer<Custom<ServiceEntry>>, _) = store();
        let mut configs = Configs::new("east".into());
        writer.replace(vec![
            read(&entry("a", "a.example")),
            read(&entry("b", "not a host")),
        ]);
        configs.apply(reader.changed().await.unwrap());
        assert_eq!(hosts(&configs), ["a.example"]);
        assert_eq!(
            configs
                .configuration()
                .service_entries
                .values()
                .next()
                .unwrap()
                .created,
            Some(7)
        );
        let problems = problem_texts(&configs);
        assert!(
            problems.len() == 1 && problems[0].starts_with("ServiceEntry demo/b: spec.hosts[0]: "),
            "{problems:?}"
        );
        let before = configs.configuration().clone();
        writer.set(read(&entry("a", "")));
        configs.apply(reader.changed().await.unwrap());
        assert!(before.is_same(configs.configuration()));
        assert_eq!(problem_texts(&configs).len(), 2);
        writer.set(read(&entry("a", "c.example")));
        configs.apply(reader.changed().await.unwrap());
        assert_eq!(hosts(&configs), ["c.example"]);
        assert_eq!(problem_texts(&configs).len(), 1);
        // A list that has neither.
        writer.replace(vec![read(&entry("d", "d.example"))]);
        let mut late = reader.clone();
        configs.apply(late.changed().await.unwrap());
        assert_eq!(hosts(&configs), ["d.example"]);
        assert!(problem_texts(&configs).is_empty());
    }

    /// A reader of logs finds all faults of an object in one line, by the same words wherever the object is written.
    #[tokio::test]
    async fn all_faults_are_told_as_those_of_a_file() {
        let mut object = entry("a", "not a host");
        object["metadata"]["resourceVersion"] = json!("7");
        object["spec"]["ports"][0]["number"] = json!(70_000);
        object["spec"]["resolution"] = json!("SOMETIMES");
        let (_, findings) = api::config::check(&object);
        assert_eq!(findings.len(), 3, "{findings:?}");
        let (mut writer, mut reader): (Writer<Custom<ServiceEntry>>, _) = store();
        let mut configs = Configs::new("east".into());
        let id = EntryId {
            collection: "istio/networking/v1alpha3/serviceentries",
            name: "demo/a".into(),
        };
        let in_file = |serving| {
            let refused = Refused {
                id: id.clone(),
                origin: Origin::of_cluster(&"east".into(), &"demo/a", "7"),
                serving,
                findings: findings.clone().into(),
                written: None,
                revision: crate::kind::Revision::default(),
            };
            refused.to_string()
        };
        for serving in [ServedInstead::Nothing, ServedInstead::Old] {
            writer.set(read(&object));
            configs.apply(reader.changed().await.unwrap());
            let problem = configs.problems().next().unwrap();
            assert_eq!(problem.to_string(), in_file(serving));
            writer.set(read(&entry("a", "a.example")));
            configs.apply(reader.changed().await.unwrap());
        }
    }

    /// The status says of which version its findings are.
    #[tokio::test]
    async fn the_same_is_wrong_with_a_newer_version() {
        let (mut writer, mut reader): (Writer<Custom<ServiceEntry>>, _) = store();
        let mut configs = Configs::new("east".into());
        let mut refused = |uid: &str, generation: i64, host: &str| {
            let mut object = entry("a", host);
            object["metadata"]["uid"] = json!(uid);
            object["metadata"]["generation"] = json!(generation);
            writer.set(read(&object));
        };
        let mut all = Vec::new();
        for (uid, generation, host) in [("u", 1, "x y"), ("u", 2, "x y"), ("v", 1, "x y")] {
            refused(uid, generation, host);
            configs.apply(reader.changed().await.unwrap());
            let problem = configs.problems().next().unwrap();
            let Refusal { findings, revision } = problem.refusal;
            all.push((findings, revision.uid.to_string(), revision.generation));
        }
        let findings = Arc::clone(&all[0].0);
        let of = |uid: &str, generation| (Arc::clone(&findings), uid.to_owned(), generation);
        assert_eq!(all, [of("u", 1), of("u", 2), of("v", 1)]);
        // Versions that are used differ by their content alone.
        refused("v", 3, "a.example");
        configs.apply(reader.changed().await.unwrap());
        refused("v", 4, "a.example");
        let none = tokio::time::timeout(std::time::Duration::from_millis(20), reader.changed());
        assert!(none.await.is_err());
    }

    #[tokio::test]
    async fn the_origin_is_that_of_the_present_version() {
        let (mut writer, mut reader): (Writer<Custom<ServiceEntry>>, _) = store();
        let mut configs = Configs::new("east".into());
        let key = Key::new("demo", "a");
        let origin = |configs: &mut Configs| {
            let origins = configs.origins();
            origins.of("ServiceEntry", &key).map(ToString::to_string)
        };
        assert_eq!(origin(&mut configs), None);
        let mut object = entry("a", "a.example");
        let mut put = |version: &str, host: &str| {
            object["metadata"]["resourceVersion"] = json!(version);
            object["spec"]["hosts"] = json!([host]);
            writer.set(read(&object));
        };
        put("7", "a.example");
        configs.apply(reader.changed().await.unwrap());
        assert_eq!(origin(&mut configs).as_deref(), Some("east/demo/a@7"));
        let before = configs.origins();
        assert!(Arc::ptr_eq(&before.0, &configs.origins().0));
        // The version that is refused, as the log names it.
        put("8", "x y");
        configs.apply(reader.changed().await.unwrap());
        assert_eq!(origin(&mut configs).as_deref(), Some("east/demo/a@8"));
        let line = configs.problems().next().unwrap().to_string();
        let start = "east/demo/a@8: ServiceEntry demo/a: stale: spec.hosts[0]: ";
        assert!(line.starts_with(start), "{line}");
        // No change but of the version is none.
        put("9", "x y");
        let none = tokio::time::timeout(std::time::Duration::from_millis(20), reader.changed());
        assert!(none.await.is_err());
        writer.remove(&key);
        configs.apply(reader.changed().await.unwrap());
        assert_eq!(origin(&mut configs), None);
    }

    /// A short text may be a large object: 680 kB of bare routes took 34 MB, 960 kB of routes with matches 27 MB.
    #[test]
    fn the_size_is_about_that_of_the_decoded_object() {
        let read = |http: Vec<Value>| -> Custom<VirtualService> {
            let spec = json!({"hosts": ["h.example"], "http": http});
            let object = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec});
            serde_json::from_str(&object.to_string()).unwrap()
        };
        let bare = |k: usize| json!({"route": [{"destination": {"host": format!("s{k}")}}]});
        let matching = |k: usize| {
            let found =
                json!({"uri": {"prefix": format!("/a-{k}")}, "headers": {"x-a": {"exact": "v"}}});
            let port = json!({"number": 80});
            json!({"match": [found], "route": [{"destination": {"host": "s", "port": port}}]})
        };
        let size = read((0..15_000).map(bare).collect()).size();
        assert!((24_000_000..40_000_000).contains(&size), "{size}");
        let size = read((0..6_000).map(matching).collect()).size();
        assert!((20_000_000..36_000_000).contains(&size), "{size}");
        let size = read(vec![bare(1)]).size();
        assert!(size < 4_000, "{size}");
    }

    /// As a file that has so many is refused.
    #[test]
    fn an_object_of_too_many_values_is_refused() {
        let read = |count: usize| -> Custom<ServiceEntry> {
            let mut object = entry("a", "a.example");
            object["spec"]["hosts"] = vec!["a.example"; count].into();
            read(&object)
        };
        let refused = read(200_000);
        assert_eq!(
            refused.read().unwrap_err().to_string(),
            "more than 200000 values"
        );
        assert!(refused.size() < 1_000, "{}", refused.size());
        let message = &read(100_000).read().unwrap_err().to_string();
        assert!(message.starts_with("spec.hosts: 100000 hosts"), "{message}");
    }

    #[test]
    fn an_annotation_is_kept_with_the_object() {
        let mut object = entry("a", "a.example");
        for (says, near) in [("PreferClose", true), ("Other", false)] {
            object["metadata"]["annotations"] =
                json!({"networking.istio.io/traffic-distribution": says});
            assert_eq!(read(&object).read.unwrap().prefers_close, near);
        }
    }

    #[test]
    fn one_that_is_nested_too_deeply_is_wrong_and_no_more() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        let text = format!(r#"{{"metadata": {{"name": "a"}}, "spec": {{"hosts": {deep}}}}}"#);
        let list = format!("[{text}, {}]", entry("b", "b.example"));
        let all: Vec<Custom<ServiceEntry>> = serde_json::from_str(&list).unwrap();
        assert!(all[0].read.is_err() && all[1].read.is_ok());
        // No spec is an empty one.
        let empty = r#"{"metadata": {"name": "a"}}"#;
        let empty: Custom<Sidecar> = serde_json::from_str(empty).unwrap();
        assert_eq!(empty.read.unwrap_err().to_string(), "spec: is empty");
    }
}
