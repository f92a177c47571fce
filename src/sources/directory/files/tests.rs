//! Directories that users change, and the objects served meanwhile.

use std::fs;

use api::model::ServiceKey;

use super::*;
use crate::catalogue::source_catalogue::SourceEntry;
use crate::catalogue::text::read;
use crate::catalogue::{MAX_OBJECTS, Origin};
use api::config::ServedInstead;

struct Directory {
    root: tempfile::TempDir,
    files: Files,
}

fn names() -> Names {
    Names {
        cluster: "local".into(),
        domain: "cluster.local".into(),
        trust_domain: "cluster.local".into(),
    }
}

impl Directory {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let files = Files::new(root.path(), names(), CoreOrigin::Files);
        Self { root, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> &Self {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
        self
    }

    /// Returns the names of entries with their ports' numbers, and the messages.
    fn read(&mut self) -> (String, Vec<String>) {
        let outcome = self.files.read().unwrap();
        let entries = outcome
            .contribution
            .configuration
            .service_entries
            .values()
            .map(|entry| {
                let port = entry.spec.ports.first().map_or(0, |port| port.number);
                format!("{}/{}:{port}", entry.namespace, entry.name)
            });
        let entries = entries.collect::<Vec<_>>().join(" ");
        (entries, self.lines(&outcome))
    }

    /// The lines of the log, with places below the directory.
    fn lines(&self, outcome: &Outcome) -> Vec<String> {
        let (refused, more) = outcome.report.new_lines(&ConfigReport::default());
        assert_eq!(more, 0);
        let messages = outcome.messages.iter().map(ToString::to_string);
        let root = format!("{}/", self.root.path().display());
        let lines = messages.chain(refused);
        lines.map(|line| line.replace(&root, "")).collect()
    }
}

fn entry(name: &str, port: u32) -> String {
    format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: ServiceEntry\nmetadata:\n  name: {name}\n\
         spec:\n  hosts: [{name}.example]\n  ports:\n  - {{number: {port}, name: http}}\n---\n"
    )
}

/// The place without its directory.
fn file_name(origin: &Origin) -> String {
    let text = origin.to_string();
    let (_, name) = text.rsplit_once('/').unwrap_or(("", &text));
    name.to_owned()
}

fn none() -> Vec<String> {
    Vec::new()
}

/// Readers of the contribution compare nothing of such a kind.
#[test]
fn a_kind_without_a_change_keeps_its_pointer() {
    let mut directory = Directory::new();
    let read = |directory: &mut Directory| {
        let outcome = directory.files.read().unwrap();
        outcome.contribution.configuration
    };
    directory.write("a.yaml", &entry("a", 80));
    let first = read(&mut directory);
    let sidecar = "{apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: a}, spec: {egress: [{hosts: ['./*']}]}}";
    directory.write("b.yaml", sidecar);
    let second = read(&mut directory);
    assert!(Arc::ptr_eq(&first.service_entries, &second.service_entries));
    assert_eq!(second.sidecars.len(), 1);
    fs::remove_file(directory.path("b.yaml")).unwrap();
    let third = read(&mut directory);
    assert!(
        Arc::ptr_eq(&first.service_entries, &third.service_entries) && third.sidecars.is_empty()
    );
}

#[test]
fn an_annotation_is_kept_with_the_object() {
    let mut directory = Directory::new();
    for (says, near) in [("PreferClose", true), ("Other", false)] {
        let annotated =
            format!("name: a\n  annotations: {{networking.istio.io/traffic-distribution: {says}}}");
        directory.write("a.yaml", &entry("a", 1).replacen("name: a", &annotated, 1));
        let entries = directory
            .files
            .read()
            .unwrap()
            .contribution
            .configuration
            .service_entries;
        let all: Vec<_> = entries.values().map(|one| one.prefers_close).collect();
        assert_eq!(all, [near]);
    }
}

#[test]
fn rules_for_traffic_are_read() {
    let mut directory = Directory::new();
    let rule = |subset: &str| {
        let head =
            "apiVersion: networking.istio.io/v1\nmetadata: {name: r, namespace: demo}\nkind: ";
        format!(
            "{head}VirtualService\nspec: {{hosts: [a], http: [{{route: [{{destination: {{host: a, subset: {subset}}}}}]}}]}}\n---\n\
             {head}DestinationRule\nspec: {{host: a, subsets: [{{name: {subset}}}]}}\n"
        )
    };
    let subsets = |directory: &mut Directory| -> Vec<String> {
        let outcome = directory.files.read().unwrap();
        let counts: Vec<_> = outcome
            .objects
            .iter()
            .map(|(kind, count)| (&**kind, *count))
            .collect();
        assert_eq!(counts, [("DestinationRule", 1), ("VirtualService", 1)]);
        let Contribution { configuration, .. } = outcome.contribution;
        let services = configuration.virtual_services.values();
        let destinations = services.map(|one| {
            one.spec.http[0].route[0]
                .destination
                .clone()
                .unwrap()
                .subset
        });
        let rules = configuration.destination_rules.values();
        destinations
            .chain(rules.map(|one| one.spec.subsets[0].name.clone()))
            .collect()
    };
    directory.write("a.yaml", &rule("v1"));
    assert_eq!(subsets(&mut directory), ["v1"; 2]);
    directory.write("a.yaml", &rule("v2"));
    assert_eq!(subsets(&mut directory), ["v2"; 2]);
    directory.write("a.yaml", &rule("_"));
    assert_eq!(subsets(&mut directory), ["v2"; 2]);
}

#[test]
fn files_say_objects_and_no_longer() {
    let mut directory = Directory::new();
    assert_eq!(directory.read(), (String::new(), none()));
    directory
        .write("a.yaml", &(entry("a", 1) + &entry("b", 2)))
        .write("d/c.yml", &entry("c", 3))
        .write(".d.yaml", &entry("d", 4))
        .write("e.txt", &entry("e", 5))
        .write(
            "f.json",
            "{\n\t\"apiVersion\": \"v1\", \"kind\": \"List\", \"items\": [{\"apiVersion\": \"networking.istio.io/v1\",
             \"kind\": \"ServiceEntry\", \"metadata\": {\"name\": \"f\", \"namespace\": \"demo\"}, \"spec\":
             {\"hosts\": [\"f.example\"], \"ports\": [{\"number\": 6, \"name\": \"http\"}]}}]}",
        );
    let all = "default/a:1 default/b:2 default/c:3 demo/f:6";
    assert_eq!(directory.read(), (all.to_owned(), none()));
    fs::remove_file(directory.path("a.yaml")).unwrap();
    directory.write("f.json", "");
    assert_eq!(directory.read(), ("default/c:3".to_owned(), none()));
    fs::remove_dir_all(directory.path("d")).unwrap();
    assert_eq!(directory.read(), (String::new(), none()));
    fs::remove_dir_all(directory.root.path()).unwrap();
    assert!(directory.files.read().is_err());
}

#[test]
fn a_broken_file_keeps_what_it_had() {
    let mut directory = Directory::new();
    directory.write("a.yaml", &(entry("a", 1) + &entry("b", 2)));
    directory.write("c.yaml", &entry("c", 3));
    directory.read();
    directory.write("a.yaml", &(entry("a", 9) + "b: [\n"));
    directory.write("c.yaml", "c: [\n");
    let (entries, messages) = directory.read();
    assert_eq!(entries, "default/a:1 default/b:2 default/c:3");
    assert_eq!(messages.len(), 2);
    assert!(
        messages[0].starts_with("a.yaml:10: stale: cannot parse: "),
        "{messages:?}"
    );
    // The message persists as long as the error does.
    assert_eq!(directory.read(), (entries, messages));
    fs::remove_file(directory.path("a.yaml")).unwrap();
    fs::create_dir(directory.path("a.yaml")).unwrap();
    fs::remove_file(directory.path("c.yaml")).unwrap();
    std::os::unix::fs::symlink("nowhere", directory.path("c.yaml")).unwrap();
    let (entries, messages) = directory.read();
    // A directory is another thing.
    assert_eq!(entries, "default/c:3");
    assert!(messages.contains(&"c.yaml: stale: cannot read: the link leads nowhere".to_owned()));
    fs::remove_file(directory.path("c.yaml")).unwrap();
    directory.write("c.yaml", &entry("c", 4));
    assert_eq!(directory.read(), ("default/c:4".to_owned(), none()));
}

/// Objects without a name are shown and counted by their file.
#[test]
fn a_file_that_cannot_be_read_is_an_object_of_its_own() {
    let mut directory = Directory::new();
    let node = "{apiVersion: v1, kind: Node, metadata: {name: n}}\n";
    let route = "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v}, spec: {hosts: [a], tcp: [{route: [{destination: {host: b}}]}]}}\n";
    directory
        .write("a.yaml", &(entry("a", 1) + node + "---\n" + route))
        .write("b.yaml", "b: [\n")
        .write("c.yaml", "{apiVersion: v1, kind: Pod}\n---\n[]\n")
        .write("d.yaml", "{apiVersion: apps/v1, kind: Deployment}\n");
    let outcome = directory.files.read().unwrap();
    let path = |name: &str| directory.path(name).display().to_string();
    let file = |name: &str| (Arc::from("File"), path(name));
    let [b, c] = ["b.yaml", "c.yaml"].map(file);
    let refused: Vec<_> = outcome.refused().collect();
    assert_eq!(refused, [b, c.clone(), c]);
    let files = outcome.written.iter().filter(|one| *one.kind == *"File");
    let files: Vec<_> = files
        .map(|one| (one.origin.to_string(), one.is_accepted, one.findings.len()))
        .collect();
    let file = |place: &str| (path(place), false, 1);
    assert_eq!(
        files,
        [file("b.yaml:1"), file("c.yaml:1"), file("c.yaml:3")]
    );
    // The number of used objects, by kind.
    let counts = outcome.objects.iter().map(|(kind, n)| (&**kind, *n));
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [("Node", 1), ("ServiceEntry", 1), ("VirtualService", 1)]
    );
    directory.write("b.yaml", "").write("c.yaml", "");
    let outcome = directory.files.read().unwrap();
    assert!(outcome.written.iter().all(|one| *one.kind != *"File"));
}

#[test]
fn a_document_that_is_wrong_keeps_the_last_good_version_of_its_object() {
    let mut directory = Directory::new();
    directory.write("a.yaml", &(entry("a", 0) + &entry("b", 2)));
    let wrong = "port 0 is not in 1..65535";
    let (entries, messages) = directory.read();
    assert_eq!(entries, "default/b:2");
    assert_eq!(
        messages,
        [format!(
            "a.yaml:8: ServiceEntry default/a: refused: spec.ports[0].number: {wrong}"
        )]
    );
    directory.write("a.yaml", &(entry("a", 1) + &entry("b", 2)));
    assert_eq!(
        directory.read(),
        ("default/a:1 default/b:2".to_owned(), none())
    );
    directory.write("a.yaml", &(entry("b", 3) + &entry("a", 0)));
    let (entries, messages) = directory.read();
    assert_eq!(entries, "default/a:1 default/b:3");
    assert_eq!(
        messages,
        [format!(
            "a.yaml:17: ServiceEntry default/a: stale: spec.ports[0].number: {wrong}"
        )]
    );
    let outcome = directory.files.read().unwrap();
    let shown: Vec<_> = outcome
        .written
        .iter()
        .map(|one| {
            format!(
                "{} {} {} {}",
                one.name,
                file_name(&one.origin),
                one.is_accepted,
                one.findings.len()
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            "a a.yaml:1 true 0",
            "a a.yaml:17 false 1",
            "b a.yaml:1 true 0"
        ]
    );
    directory.write("a.yaml", &entry("b", 3));
    assert_eq!(directory.read(), ("default/b:3".to_owned(), none()));
    directory.write("a.yaml", &(entry("b", 3) + &entry("a", 0)));
    assert_eq!(directory.read().0, "default/b:3");
}

#[test]
fn the_first_of_two_by_path_counts() {
    let mut directory = Directory::new();
    directory.write("b.yaml", &entry("a", 2));
    assert_eq!(directory.read(), ("default/a:2".to_owned(), none()));
    directory.write("a/z.yaml", &(entry("a", 1) + &entry("a", 3)));
    let (entries, messages) = directory.read();
    assert_eq!(entries, "default/a:1");
    assert_eq!(
        messages,
        [
            "a/z.yaml:10: ServiceEntry default/a: refused: metadata.name: duplicate of a/z.yaml:1",
            "b.yaml:1: ServiceEntry default/a: refused: metadata.name: duplicate of a/z.yaml:1",
        ]
    );
    fs::remove_dir_all(directory.path("a")).unwrap();
    assert_eq!(directory.read(), ("default/a:2".to_owned(), none()));
}

#[test]
fn a_volume_is_exchanged_as_a_whole() {
    use std::os::unix::fs::symlink;
    let mut directory = Directory::new();
    directory.write("..1/a.yaml", &entry("a", 1));
    symlink("..1", directory.path("..data")).unwrap();
    symlink("..data/a.yaml", directory.path("a.yaml")).unwrap();
    assert_eq!(directory.read(), ("default/a:1".to_owned(), none()));
    directory.write("..2/a.yaml", &entry("a", 2));
    symlink("..2", directory.path("..tmp")).unwrap();
    fs::rename(directory.path("..tmp"), directory.path("..data")).unwrap();
    assert_eq!(directory.read(), ("default/a:2".to_owned(), none()));
}

#[test]
fn a_directory_that_cannot_be_looked_into_keeps_its_files() {
    use std::os::unix::fs::symlink;
    let mut directory = Directory::new();
    directory
        .write("..1/a.yaml", &entry("a", 1))
        .write("b.yaml", &entry("b", 2));
    symlink("..1", directory.path("d")).unwrap();
    let both = "default/a:1 default/b:2".to_owned();
    assert_eq!(directory.read(), (both.clone(), none()));
    fs::rename(directory.path("..1"), directory.path("..2")).unwrap();
    let said = vec!["d: stale: cannot read: the link leads nowhere".to_owned()];
    assert_eq!(directory.read(), (both, said));
    fs::remove_file(directory.path("d")).unwrap();
    assert_eq!(directory.read(), ("default/b:2".to_owned(), none()));
}

#[test]
fn an_unchanged_object_is_the_same_pointer() {
    let mut directory = Directory::new();
    directory.write("a.yaml", &(entry("a", 1) + &entry("b", 2)));
    let one = directory.files.read().unwrap().contribution;
    let same = directory.files.read().unwrap().contribution;
    let key: (Arc<str>, Arc<str>) = ("default".into(), "a".into());
    assert!(Arc::ptr_eq(
        &one.configuration.service_entries[&key],
        &same.configuration.service_entries[&key]
    ));
    // Another file, another order, other comments.
    directory.write("a.yaml", &(entry("b", 3) + "# a\n" + &entry("a", 1)));
    let next = directory.files.read().unwrap().contribution;
    assert!(Arc::ptr_eq(
        &one.configuration.service_entries[&key],
        &next.configuration.service_entries[&key]
    ));
    assert_ne!(
        one.configuration.service_entries,
        next.configuration.service_entries
    );
}

const CLUSTER: &str = "
{apiVersion: v1, kind: Service, metadata: {name: b, namespace: demo},
 spec: {clusterIP: 10.0.0.1, selector: {app: b}, ports: [{port: 80, name: http, targetPort: 8080}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
 metadata: {name: b-1, namespace: demo, labels: {kubernetes.io/service-name: b}},
 endpoints: [{addresses: [10.0.1.1], conditions: {ready: true}, targetRef: {kind: Pod, name: b-1, namespace: demo}}],
 ports: [{name: http, port: 8080}]}
---
{apiVersion: v1, kind: Pod, metadata: {name: b-1, namespace: demo, labels: {app: b}},
 spec: {serviceAccountName: b, nodeName: n}, status: {podIP: 10.0.1.1, phase: Running}}
---
{apiVersion: v1, kind: Node, metadata: {name: n, labels: {topology.kubernetes.io/region: eu}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: s}, data: {token: c2VjcmV0}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: b}}
";

#[test]
fn a_dumped_cluster_is_served() {
    let mut directory = Directory::new();
    directory.write("cluster.yaml", CLUSTER);
    let outcome = directory.files.read().unwrap();
    let key = ServiceKey::new("b.demo.svc.cluster.local", "demo");
    let endpoint = &outcome.contribution.endpoints[&key][0];
    assert_eq!(endpoint.locality.region(), "eu");
    assert_eq!(
        endpoint.account.as_deref(),
        Some("spiffe://cluster.local/ns/demo/sa/b")
    );
    assert!(outcome.contribution.services.contains_key(&key));
    assert_eq!(outcome.contribution.workloads.len(), 1);
    assert_eq!(outcome.objects["EndpointSlice"], 1);
    assert_eq!(
        directory.lines(&outcome),
        ["cluster.yaml: discovery does not serve apps/v1 Deployment: 1 not used"]
    );
    let contribution = directory.files.set_trust_domain("example");
    let account = contribution.endpoints[&key][0].account.clone();
    assert_eq!(account.as_deref(), Some("spiffe://example/ns/demo/sa/b"));
    // With an API server as the source of Kubernetes' kinds.
    directory.files = Files::new(directory.root.path(), names(), CoreOrigin::Cluster);
    let outcome = directory.files.read().unwrap();
    assert!(outcome.contribution.services.is_empty());
    assert_eq!(
        directory.lines(&outcome)[0],
        "cluster.yaml: 5 objects of Kubernetes are not used: the API server has them"
    );
}

#[test]
fn kinds_without_effect_are_shown_and_kinds_that_are_none_are_refused() {
    let mut directory = Directory::new();
    directory.write(
        "a.yaml",
        "{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v}, spec: {hosts: [a]}}\n---\n\
         {apiVersion: networking.istio.io/v9, kind: Gateway, metadata: {name: g}}\n---\n\
         {apiVersion: security.istio.io/v1, kind: Gateway, metadata: {name: g}}\n---\n\
         {apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: ''}}\n---\n\
         {apiVersion: networking.istio.io/v1, kind: Sidecar, metadata: {name: s, creationTimestamp: today}}\n---\n\
         {apiVersion: networking.istio.io/v1, kind: WorkloadEntry, metadata: {name: w}, spec: {address: 10.0.0.1, port: 1}}\n---\n\
         - 1\n---\n{kind: ServiceEntry}\n---\n\
         {apiVersion: v1, kind: Service, metadata: {name: Bad_name}, spec: {ports: [{port: 80}]}}\n",
    );
    let outcome = directory.files.read().unwrap();
    assert_eq!(
        directory.lines(&outcome),
        [
            "a.yaml:1: VirtualService default/v: refused: spec: needs http, tls or tcp",
            "a.yaml:3: refused: kind: unrecognized type networking.istio.io/v9 Gateway, did you mean \"networking.istio.io/v1alpha3 Gateway\"?",
            "a.yaml:5: refused: kind: unrecognized type security.istio.io/v1 Gateway, did you mean \"networking.istio.io/v1alpha3 Gateway\"?",
            "a.yaml:7: ServiceEntry ?: refused: spec.hosts: must not be empty; metadata.name: is required",
            "a.yaml:9: Sidecar default/s: refused: spec: is empty; metadata.creationTimestamp: want a time, got \"today\"",
            "a.yaml:11: WorkloadEntry default/w: refused: spec.port: unknown field, did you mean \"ports\"?",
            "a.yaml:13: refused: expected an object",
            "a.yaml:15: refused: apiVersion: is required",
            "a.yaml:17: Service ?: refused: metadata.name: want a DNS label that begins with a letter (RFC 1035), got \"Bad_name\"",
        ]
    );
    let shown: Vec<_> = outcome
        .written
        .iter()
        .map(|one| {
            format!(
                "{} {} {} {:?}",
                one.kind,
                file_name(&one.origin),
                one.is_accepted,
                one.all_findings()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
            )
        })
        .collect();
    // An object without a name is shown by its file.
    assert_eq!(
        shown[..4],
        [
            "File a.yaml:7 false [\"spec.hosts: must not be empty\", \"metadata.name: is required\"]",
            "File a.yaml:13 false [\"expected an object\"]",
            "File a.yaml:15 false [\"apiVersion: is required\"]",
            "File a.yaml:17 false [\"metadata.name: want a DNS label that begins with a letter (RFC 1035), got \\\"Bad_name\\\"\"]",
        ]
    );
    assert!(shown[6].starts_with("Sidecar a.yaml:9 false "), "{shown:?}");
    // The object has no effect, and is refused all the same.
    assert_eq!(
        shown[7],
        "VirtualService a.yaml:1 false [\"spec: needs http, tls or tcp\"]"
    );
    assert!(
        shown[8].starts_with("WorkloadEntry a.yaml:11 false "),
        "{shown:?}"
    );
    assert_eq!(shown.len(), 9);
}

#[test]
fn an_object_of_no_time_keeps_its_last_good_version() {
    let service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\nspec:\n  clusterIP: 10.0.0.1\n  ports: [{port: 80}]\n---\n";
    let mut directory = Directory::new();
    directory.write("a.yaml", &(entry("a", 1) + service));
    let before = directory.files.read().unwrap().contribution;
    assert_eq!(
        (
            before.configuration.service_entries.len(),
            before.services.len()
        ),
        (1, 1)
    );
    let dated = |text: &str| text.replace("metadata:\n", "metadata:\n  creationTimestamp: today\n");
    directory.write("a.yaml", &(dated(&entry("a", 2)) + &dated(service)));
    let outcome = directory.files.read().unwrap();
    assert!(outcome.contribution == before);
    let objects: Vec<_> = outcome.refused().collect();
    assert_eq!(
        objects,
        [
            ("ServiceEntry".into(), "default/a".to_owned()),
            ("Service".into(), "default/s".to_owned()),
        ]
    );
    let mut refused = outcome.report.refused.iter();
    assert!(refused.all(|one| one.serving == ServedInstead::Old));
}

/// Users who move a mesh over look for them on the page of configuration.
#[test]
fn objects_of_the_gateway_api_are_shown_with_the_reason_why_they_do_nothing() {
    let mut directory = Directory::new();
    let object = |kind: &str, name: &str| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{a: 1}}\n---\n"
        )
    };
    let (route, class) = (object("HTTPRoute", "r"), object("GatewayClass", "c"));
    let nameless = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n---\n";
    directory.write("a.yaml", &format!("{route}{class}{nameless}"));
    let outcome = directory.files.read().unwrap();
    let rows = outcome.written.iter().map(|one| {
        let note = one.all_findings().map(|one| one.message.clone());
        let note: String = note.collect();
        let unread = "gudgeon does not read Gateway API objects; they have no effect";
        assert_eq!((note.as_str(), one.is_accepted), (unread, true));
        assert_eq!(one.spec.value(), serde_json::json!({"a": 1}));
        format!(
            "{} {} {}",
            one.kind,
            one.full_name(),
            file_name(&one.origin)
        )
    });
    let rows: Vec<_> = rows.collect();
    assert_eq!(
        rows,
        ["GatewayClass c a.yaml:6", "HTTPRoute default/r a.yaml:1"]
    );
    directory.write("a.yaml", &entry("a", 80));
    let outcome = directory.files.read().unwrap();
    assert_eq!(outcome.written.len(), 1);
}

/// The bound is one of a document: a file of many is served as a whole.
#[test]
fn a_file_of_many_documents_may_be_long() {
    let root = tempfile::tempdir().unwrap();
    let long = "x".repeat(50_000);
    let entry = |at: usize| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: e{at}, annotations: {{a: {long}}}}}\n\
             spec: {{hosts: [e{at}.example], ports: [{{number: 80, name: http}}]}}\n---\n"
        )
    };
    let text: String = (0..100).map(entry).collect();
    fs::write(root.path().join("all.yaml"), text).unwrap();
    let read = Files::new(root.path(), names(), CoreOrigin::Files)
        .read()
        .unwrap();
    assert!(read.messages.is_empty() && read.report.refused.is_empty());
    assert_eq!(read.contribution.configuration.service_entries.len(), 100);
}

/// Reads a text, whose documents are not valid.
fn read_text(text: &[u8]) -> Result<Vec<SourceEntry<FileVersion>>, String> {
    let origin = Origin::file("a.yaml");
    let read = read(text, LIMITS, |object, checked| {
        stored(object, checked, &origin)
    });
    let read = read.map_err(|malformed| malformed.to_string())?;
    assert!(read.foreign.is_empty());
    assert!(read.entries.iter().all(|one| one.checked.is_refused()));
    Ok(read.entries)
}

/// Returns the lines at which invalid documents begin.
fn lines(text: &str) -> Result<Vec<usize>, String> {
    let entries = read_text(text.as_bytes())?;
    Ok(entries.iter().map(|entry| entry.line).collect())
}

#[test]
fn a_text_is_its_documents_with_their_lines() {
    for (text, want) in [
        ("", &[][..]),
        ("# c\n---\n# d\n...\n", &[]),
        ("a: 1", &[1]),
        ("%YAML 1.2\n---\na: 1\n", &[3]),
        ("---\na: 1\n---\n\nb: 2\n---\n", &[2, 5]),
        (
            "\u{feff}a: |\n  --- \n--- {b: 2}\r\n---\r\nc: 3\r\n",
            &[1, 3, 5],
        ),
        ("\n{\n\t\"a\": 1\n}\n{}", &[2, 5]),
        ("--- ~\n--- {a: 1}\n", &[2]),
        // Items of a typed list have the list's kind.
        (
            "kind: PodList\napiVersion: v1\nitems:\n- metadata: {}\n- metadata: {}\n",
            &[4, 5],
        ),
    ] {
        assert_eq!(lines(text), Ok(want.to_vec()), "{text}");
    }
}

#[test]
fn a_malformed_file_is_reported_with_its_line() {
    let twice = lines("a: 1\n---\na: 1\na: 2\n");
    assert_eq!(twice, Err("line 4: the key \"a\" twice".to_owned()));
    let said = read_text(b"a: 1\nb: \xff").unwrap_err();
    assert_eq!(said, "line 2: it is not UTF-8");
    // As everywhere: a list that lost its items is not an empty one.
    let lost = lines("a: 1\n---\napiVersion: v1\nkind: List\n");
    assert_eq!(lost, Err("line 3: items: is required".to_owned()));
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    assert!(lines(&deep).unwrap_err().contains("nested too deeply"));
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\n".to_owned()
        + &('b'..='h')
            .map(|name| {
                let before = char::from(name as u8 - 1);
                format!("{name}: &{name} [{}]\n", format!("*{before},").repeat(10))
            })
            .collect::<String>();
    assert!(lines(&bomb).is_err());
}

/// Faults are told of the first documents.
#[test]
fn documents_of_a_text_are_bounded() {
    let many = "a: 1\n---\n".repeat(MAX_OBJECTS + 1);
    let entries = read_text(many.as_bytes()).unwrap();
    assert_eq!(entries.len(), 102);
    let last = entries[100..].iter();
    let last: Vec<_> = last
        .map(|one| (one.line, one.checked.findings[0].message.as_str()))
        .collect();
    assert_eq!(
        last,
        [
            (
                2 * MAX_OBJECTS + 1,
                "more than 200000 documents: the rest is left out"
            ),
            (201, "and 199900 more documents that are no objects"),
        ]
    );
}

#[test]
fn aliases_of_many_documents_are_bounded_together() {
    let text = "x".repeat(100);
    let bomb = format!("a: &a {text}\nb: [{}]\n---\n", "*a,".repeat(10_000));
    assert_eq!(lines(&bomb.repeat(2)).map(|lines| lines.len()), Ok(2));
    let said = lines(&bomb.repeat(100)).unwrap_err();
    let words = "aliases of all documents stand for more than";
    assert!(said.contains(words), "{said}");
    // Escapes are longer than they are written, and values as many as can be.
    let dense = format!(
        "a: [{}]\nb: \"{}\"\n---\n",
        "0,".repeat(10_000),
        r"\L".repeat(10_000)
    );
    assert_eq!(lines(&dense.repeat(200)).map(|lines| lines.len()), Ok(101));
}

/// An object that is too large is refused alone, and keeps its last version.
#[test]
fn an_object_that_is_too_large_is_refused_alone() {
    let mut directory = Directory::new();
    let service = |address: &str, text: &str| {
        format!(
            "{{apiVersion: v1, kind: Service, metadata: {{name: b, annotations: {{a: {text}}}}}, spec: {{clusterIP: {address}, ports: [{{port: 80}}]}}}}\n---\n"
        )
    };
    directory.write("a.yaml", &(entry("a", 1) + &service("10.0.0.1", "x")));
    let before = directory.files.read().unwrap().contribution;
    let long = "x".repeat(10 << 20);
    let large = entry("a", 2).replacen(
        "name: a",
        &format!("name: a\n  annotations: {{a: {long}}}"),
        1,
    );
    directory.write(
        "a.yaml",
        &(large + &service("10.0.0.2", &long) + &entry("b", 2)),
    );
    let outcome = directory.files.read().unwrap();
    assert_eq!(
        directory.lines(&outcome),
        [
            "a.yaml:1: ServiceEntry default/a: stale: object is too large",
            "a.yaml:11: Service default/b: stale: longer than 4 MiB",
        ]
    );
    let now = outcome.contribution;
    assert_eq!(now.services, before.services);
    let names: Vec<_> = now
        .configuration
        .service_entries
        .values()
        .map(|one| (&*one.name, one.spec.ports[0].number))
        .collect();
    assert_eq!(names, [("a", 1), ("b", 2)]);
}

/// The last good version of one stays, and what is wrong with it is said without any of its words.
#[test]
fn certificates_and_ingresses_are_read() {
    let pair = || {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    };
    let indented =
        |text: &str| -> String { text.lines().map(|line| format!("    {line}\n")).collect() };
    let secret = |chain: &str, key: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: a, namespace: edge}}\nstringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
            indented(chain),
            indented(key)
        )
    };
    let ((chain, key), (_, other)) = (pair(), pair());
    let mut directory = Directory::new();
    directory.write("a.yaml", &secret(&chain, &key));
    let first = directory.files.read().unwrap();
    assert_eq!(directory.lines(&first), none());
    let all = &first.contribution.credentials;
    let place = ("edge".into(), "a".into());
    assert_eq!(*all[&place].pair.as_ref().unwrap().1, *key.as_bytes());
    directory.write("a.yaml", &secret(&chain, &other));
    let second = directory.files.read().unwrap();
    assert!(Arc::ptr_eq(all, &second.contribution.credentials));
    assert_eq!(
        directory.lines(&second),
        ["a.yaml:1: Secret edge/a: stale: the key does not match the certificate"]
    );
    assert!(
        second.written.is_empty() && !format!("{second:?}").contains(other.lines().nth(1).unwrap())
    );
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: i, namespace: shop, labels: {a: b}}\nspec: {rules: []}\n";
    directory.write("a.yaml", ingress);
    let third = directory.files.read().unwrap();
    assert_eq!(directory.lines(&third), none());
    assert!(third.contribution.credentials.is_empty());
    let kept = &third.contribution.ingresses[&("shop".into(), "i".into())];
    let kept: serde_json::Value = serde_json::from_str(kept).unwrap();
    assert_eq!(
        kept,
        serde_json::json!({
            "metadata": {"annotations": {}, "creationTimestamp": null, "name": "i", "namespace": "shop"},
            "spec": {"rules": []},
        })
    );
}

/// Clusters of 1.1 to 1.5 have the earlier versions.
#[test]
fn an_ingress_of_an_earlier_version_is_one() {
    let ingress = |version: &str| {
        format!(
            "apiVersion: {version}\nkind: Ingress\nmetadata: {{name: i, namespace: shop}}\nspec: {{rules: [{{host: a.b, http: {{paths: \
             [{{backend: {{serviceName: web, servicePort: 80}}}}]}}}}]}}\n---\n"
        )
    };
    for version in ["networking.k8s.io/v1beta1", "extensions/v1beta1"] {
        let mut directory = Directory::new();
        directory.write("a.yaml", &ingress(version));
        let read = directory.files.read().unwrap();
        assert_eq!(directory.lines(&read), none(), "{version}");
        let kept = &read.contribution.ingresses[&("shop".into(), "i".into())];
        assert!(
            kept.contains("\"serviceName\":\"web\""),
            "{version}: {kept}"
        );
        // It is the same object, whatever version says it.
        directory.write("b.yaml", &ingress("networking.k8s.io/v1"));
        let (_, messages) = directory.read();
        assert!(
            messages[0].contains("duplicate of a.yaml:1"),
            "{version}: {messages:?}"
        );
    }
}

/// It is none of the namespace `default`, whose object stays.
#[test]
fn an_object_of_no_namespace_takes_no_place() {
    let mut directory = Directory::new();
    directory.write("b.yaml", &entry("web", 1));
    let mut text = String::new();
    for namespace in ["a_b", "a.b", "'a:b'", "a/b", "-a", "{a: 1}", "[a]"] {
        let named = format!("  name: web\n  namespace: {namespace}\n");
        text += &entry("web", 2).replace("  name: web\n", &named);
    }
    text += "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: a_b}}\n";
    directory.write("a.yaml", &text);
    let (entries, messages) = directory.read();
    assert_eq!(entries, "default/web:1");
    assert_eq!(messages.len(), 8, "{messages:#?}");
    for (message, kind) in messages
        .iter()
        .zip(["ServiceEntry"; 7].into_iter().chain(["Pod"]))
    {
        let words = format!(": {kind} ?: refused: metadata.namespace: ");
        assert!(message.contains(&words), "{messages:#?}");
        assert!(!message.contains("metadata.name:"), "{messages:#?}");
    }
    let words = "Pod ?: refused: metadata.namespace: want a DNS label";
    assert!(messages[7].ends_with(words), "{messages:#?}");
}

/// Names that no API server takes are refused by themselves.
#[test]
fn a_name_is_one_that_an_api_server_takes_for_the_kind() {
    let mut directory = Directory::new();
    let object = |kind: &str, name: &str| {
        format!("{{apiVersion: v1, kind: {kind}, metadata: {{name: {name}}}}}\n---\n")
    };
    let text: String = [
        object("Service", "Web.x"),
        object("Service", "web"),
        object("Pod", "web.x"),
        object("Pod", "web_x"),
    ]
    .concat();
    directory.write("a.yaml", &text);
    let outcome = directory.files.read().unwrap();
    let counts = outcome.objects.iter().map(|(kind, n)| (&**kind, *n));
    assert_eq!(counts.collect::<Vec<_>>(), [("Pod", 1), ("Service", 1)]);
    assert_eq!(
        directory.lines(&outcome),
        [
            "a.yaml:1: Service ?: refused: metadata.name: want a DNS label that begins with a letter (RFC 1035), got \"Web.x\"",
            "a.yaml:7: Pod ?: refused: metadata.name: want a DNS subdomain (RFC 1123), got \"web_x\"",
        ]
    );
}

#[test]
fn files_may_lie_as_deep_as_all_roles_together_read_them() {
    let mut directory = Directory::new();
    let deep = |depth: usize| format!("{}a.yaml", "d/".repeat(depth));
    directory.write(&deep(63), &entry("a", 1));
    assert_eq!(directory.read(), ("default/a:1".to_owned(), none()));
    directory.write(&deep(64), &entry("b", 1));
    let (entries, messages) = directory.read();
    assert_eq!((entries.as_str(), messages.len()), ("default/a:1", 1));
    let words = ": stale: cannot read: more than 64 directories within each other";
    assert!(messages[0].ends_with(words), "{messages:?}");
}

#[test]
fn objects_without_room_are_left_out_and_read_once_there_is_room() {
    let mut directory = Directory::new();
    let root = root_of(directory.root.path());
    directory.files.files.objects = FileObjects::holding(root, names(), 3);
    directory.write("a.yaml", &(entry("a", 1) + &entry("b", 1)));
    directory.write("c.yaml", &(entry("c", 1) + &entry("d", 1) + &entry("e", 1)));
    let three = "default/a:1 default/b:1 default/c:1".to_owned();
    let said = |at: &str| vec![format!("c.yaml:{at} are left out")];
    let expected = (three, said("10: refused: more than 3 objects: 2"));
    assert_eq!(directory.read(), expected);
    assert_eq!(directory.read(), expected);
    directory.write("a.yaml", &entry("a", 1));
    let three = "default/a:1 default/c:1 default/d:1".to_owned();
    assert_eq!(
        directory.read(),
        (three, said("19: refused: more than 3 objects: 1"))
    );
    fs::remove_file(directory.path("a.yaml")).unwrap();
    // The room of a file that is gone is there for the next scan.
    directory.read();
    let three = "default/c:1 default/d:1 default/e:1".to_owned();
    assert_eq!(directory.read(), (three, none()));
}

#[test]
fn an_object_that_nobody_reads_takes_none_of_its_name_away() {
    let mut directory = Directory::new();
    let policy = |version: &str| {
        format!(
            "apiVersion: {version}\nkind: AuthorizationPolicy\nmetadata: {{name: deny}}\nspec: {{action: DENY, rules: [{{}}]}}\n"
        )
    };
    directory.write("a.yaml", &policy("security.istio.io/v1"));
    directory.write("b.yaml", &policy("rbac.istio.io/v1alpha1"));
    let mut count = || {
        let outcome = directory.files.read().unwrap();
        let configuration = outcome.contribution.configuration;
        configuration.authorization_policies.len()
    };
    assert_eq!(count(), 1);
    fs::remove_file(directory.root.path().join("b.yaml")).unwrap();
    assert_eq!(count(), 1);
    fs::remove_file(directory.root.path().join("a.yaml")).unwrap();
    assert_eq!(count(), 0);
}
