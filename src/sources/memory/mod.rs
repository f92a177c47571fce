//! A registry for experiments: each request replaces all objects of the request before.

mod received;
#[cfg(test)]
mod rule_rows_tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::catalogue::ConfigObject;
use crate::catalogue::one_line::one_line;
use crate::catalogue::source_catalogue::Root;
use crate::contribution::Contribution;
use crate::directory::scanned_files::FilesObjects as _;
use crate::directory::{CoreOrigin, FileObjects};
use crate::kubernetes::Names;
pub use received::{LastVersion, ReceivedObjects};

const NO_BODY: &str =
    "want a body: objects as YAML or JSON, which replace all earlier ones; --- alone removes them";

/// The objects of the last request.
#[derive(Debug)]
pub struct Memory {
    names: Names,
    objects: FileObjects,
    written: Vec<Arc<ConfigObject>>,
    body: Arc<[u8]>,
}

/// The result of a request.
#[derive(Clone, Debug)]
pub struct Put {
    pub contribution: Contribution,
    /// The number of objects in the request.
    pub objects: usize,
    /// By kind.
    pub counts: BTreeMap<Arc<str>, usize>,
}

impl Memory {
    /// The name of the cluster that its objects are of.
    pub const CLUSTER: &'static str = "v2-debug";
    /// Bytes of a request's body at most.
    pub const MAX_BYTES: usize = crate::directory::MAX_BYTES;

    /// `names`: of [`Self::CLUSTER`].
    #[must_use]
    pub fn new(names: Names) -> Self {
        Self {
            objects: FileObjects::new(root(), names.clone(), CoreOrigin::Files),
            names,
            written: Vec::new(),
            body: Arc::default(),
        }
    }

    /// Replaces all objects by those of the body.
    ///
    /// # Errors
    ///
    /// All errors of the body; the objects stay as they were. An empty body is an error, since a client that forgets the
    /// body would delete all objects; `---` deletes all objects.
    pub fn put(&mut self, body: &[u8]) -> Result<Put, Vec<String>> {
        if body.is_empty() {
            return Err(vec![NO_BODY.to_owned()]);
        }
        let mut objects = FileObjects::new(root(), self.names.clone(), CoreOrigin::Files);
        objects.put(&Arc::default(), body).map_err(|malformed| {
            let line = malformed.line.max(1);
            vec![in_body(line, &malformed.cause)]
        })?;
        let outcome = objects.outcome();
        let messages = outcome.messages.into_iter();
        let messages = messages.map(|one| (one.origin.line(), one.text));
        let refused = outcome.report.refused.iter();
        let refused = refused.map(|one| (one.origin.line(), one.text()));
        let secrets = objects.secrets().map(|origin| {
            let text = "Secret: refused: every client of this page would see it";
            (origin.line(), text.to_owned())
        });
        let mut errors: Vec<_> = messages.chain(refused).chain(secrets).collect();
        if !errors.is_empty() {
            errors.sort();
            let errors = errors.iter().map(|(line, text)| in_body(*line, text));
            return Err(errors.collect());
        }
        self.objects = objects;
        self.written = outcome.written;
        self.body = body.into();
        Ok(Put {
            contribution: outcome.contribution,
            objects: outcome.objects.values().sum(),
            counts: outcome.objects,
        })
    }

    /// The body of the last request that was taken.
    #[must_use]
    pub fn body(&self) -> Arc<[u8]> {
        self.body.clone()
    }

    /// The mesh's configuration in it.
    #[must_use]
    pub fn config_objects(&self) -> &[Arc<ConfigObject>] {
        &self.written
    }

    /// The mesh's trust domain is another one.
    pub fn set_trust_domain(&mut self, trust_domain: &str) -> Contribution {
        self.names.trust_domain = trust_domain.into();
        self.objects.set_trust_domain(trust_domain)
    }
}

/// The origin of a body's objects: they have no other place.
fn root() -> Root {
    Root::Directory(Memory::CLUSTER.into())
}

/// An error in a body; `line`: 0 if it is of the whole.
fn in_body(line: usize, text: &str) -> String {
    let text = one_line(text);
    match line {
        0 => text,
        line => format!("line {line}: {text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory() -> Memory {
        Memory::new(Names {
            cluster: Memory::CLUSTER.into(),
            domain: "cluster.local".into(),
            trust_domain: "cluster.local".into(),
        })
    }

    fn entry(name: &str, port: u32) -> String {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}}}\n\
             spec: {{hosts: [{name}.example], ports: [{{number: {port}, name: http}}]}}\n---\n"
        )
    }

    #[test]
    fn a_body_takes_the_place_of_the_one_before() {
        let mut memory = memory();
        let both = entry("a", 80) + &entry("b", 80);
        let put = memory.put(both.as_bytes()).unwrap();
        assert_eq!(
            (
                put.objects,
                put.contribution.configuration.service_entries.len()
            ),
            (2, 2)
        );
        let put = memory.put(entry("c", 80).as_bytes()).unwrap();
        assert_eq!(
            (
                put.objects,
                put.contribution.configuration.service_entries.len()
            ),
            (1, 1)
        );
        assert_eq!(&*memory.body(), entry("c", 80).as_bytes());
        assert_eq!(memory.config_objects()[0].name, "c".into());
        assert_eq!(memory.put(b"---\n").unwrap().objects, 0);
        assert_eq!(memory.config_objects().len(), 0);
    }

    #[test]
    fn rules_for_traffic_are_taken() {
        let rule = "{apiVersion: networking.istio.io/v1, kind: DestinationRule, metadata: {name: r}, spec: {host: a}}";
        let put = memory().put(rule.as_bytes()).unwrap();
        assert_eq!(put.counts, BTreeMap::from([("DestinationRule".into(), 1)]));
        assert_eq!(put.contribution.configuration.destination_rules.len(), 1);
    }

    #[test]
    fn kubernetes_objects_are_those_of_its_own_cluster() {
        let service = r#"{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "b", "namespace": "demo"}, "spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 80}]}}]}"#;
        let put = memory().put(service.as_bytes()).unwrap();
        let (key, service) = put.contribution.services.first_key_value().unwrap();
        assert_eq!(&*key.hostname, "b.demo.svc.cluster.local");
        assert_eq!(service.cluster, Memory::CLUSTER.into());
    }

    #[test]
    fn all_errors_are_said_and_nothing_changes() {
        let mut memory = memory();
        memory.put(entry("a", 80).as_bytes()).unwrap();
        let wrong = entry("b", 0)
            + &entry("c", 80)
            + &entry("c", 80)
            + "{apiVersion: apps/v1, kind: Deployment}\n---\n"
            + "{apiVersion: v1, kind: Service, metadata: {name: d}, spec: {ports: [{port: 99999}]}}\n";
        let errors = memory.put(wrong.as_bytes()).unwrap_err();
        assert_eq!(
            errors,
            [
                "discovery does not serve apps/v1 Deployment: 1 not used",
                "line 4: ServiceEntry default/b: refused: spec.ports[0].number: port 0 is not in 1..65535",
                "line 11: ServiceEntry default/c: refused: metadata.name: duplicate of v2-debug:6",
                "line 18: Service default/d: spec.ports.port: want a port, 1 to 65535, got 99999",
            ]
        );
        assert!(memory.put(b"a: [").is_err());
        // An empty body deletes nothing.
        let errors = memory.put(b"").unwrap_err();
        assert!(errors[0].starts_with("want a body"), "{errors:?}");
        assert_eq!(&*memory.body(), entry("a", 80).as_bytes());
    }

    /// Any client can read the body.
    #[test]
    fn secrets_are_refused() {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        let chain = params.self_signed(&key).unwrap().pem();
        let indented =
            |text: &str| -> String { text.lines().map(|line| format!("    {line}\n")).collect() };
        let body = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: a}}\nstringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
            indented(&chain),
            indented(&key.serialize_pem())
        );
        let mut memory = memory();
        let wrong = memory.put(body.as_bytes()).unwrap_err();
        assert_eq!(wrong.len(), 1);
        let printed = format!("{wrong:?}");
        assert!(printed.contains("Secret: refused"), "{printed}");
        let password =
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {password: hunter2}\n";
        for body in [
            password,
            "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n",
        ] {
            let wrong = format!("{:?}", memory.put(body.as_bytes()).unwrap_err());
            assert!(wrong.contains("Secret: refused"), "{wrong}");
        }
        assert!(memory.body().is_empty());
    }
}
