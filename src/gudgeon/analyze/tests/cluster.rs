//! The requests that analyze sends to an API server, and the use of its answers: a small server over plain HTTP.

#![allow(
    clippy::disallowed_methods,
    reason = "the command blocks on its runtime, beside which the server runs"
)]

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use api::mesh::mesh_config::IngressControllerMode;
use serde_json::{Value, json};
use sources::kubernetes::Access;

use super::super::cluster::{InCluster, read};
use crate::cli::{Action, AnalyzeFlags, parse};

/// The answers by path, and the paths that were asked for: with ` (metadata)` behind those of which no more was wanted.
#[derive(Debug, Default)]
struct ApiServer {
    answers: Vec<(&'static str, Value)>,
    asked: Mutex<Vec<String>>,
}

impl ApiServer {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        loop {
            let (mut first, mut is_bare) = (String::new(), false);
            if reader.read_line(&mut first)? == 0 {
                return Ok(());
            }
            loop {
                let mut line = String::new();
                reader.read_line(&mut line)?;
                if line.trim().is_empty() {
                    break;
                }
                is_bare |= line.contains("PartialObjectMetadataList");
            }
            let target = first.split(' ').nth(1).unwrap_or_default();
            let path = target.split('?').next().unwrap_or_default();
            let kind = if is_bare { " (metadata)" } else { "" };
            self.asked.lock().unwrap().push(format!("{path}{kind}"));
            let answer = self.answers.iter().find(|(known, _)| *known == path);
            let none = json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404});
            let body = answer.map_or(&none, |(_, body)| body);
            let is_status = body["kind"] == "Status";
            let status = body["code"].as_u64().filter(|_| is_status).unwrap_or(200);
            let body = body.to_string();
            write!(
                reader.get_mut(),
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )?;
        }
    }

    /// Reads a cluster with these answers; returns it with the paths that were asked for.
    fn read(answers: Vec<(&'static str, Value)>) -> (InCluster, Vec<String>) {
        let version = ("/version", json!({"major": "1", "minor": "30"}));
        let server = Arc::new(Self {
            answers: [vec![version], answers].concat(),
            asked: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = Arc::clone(&server);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = Arc::clone(&serving);
                // A client that leaves ends its connection.
                std::thread::spawn(move || drop(serving.serve(stream)));
            }
        });
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("kubeconfig");
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://127.0.0.1:{port}")}}],
            "users": [{"name": "c", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
        });
        std::fs::write(&file, kubeconfig.to_string()).unwrap();
        let access = Access::Kubeconfig {
            file: Some(file),
            context: None,
        };
        let read = read(&access, &flags(), &[]).unwrap();
        let asked = server.asked.lock().unwrap().clone();
        (read, asked)
    }
}

fn flags() -> AnalyzeFlags {
    let arguments = ["gudgeon", "analyze"].map(std::ffi::OsString::from);
    let Action::Analyze(flags) = parse(&arguments).unwrap().action else {
        panic!("another command");
    };
    *flags
}

fn list(items: &Value) -> Value {
    json!({"metadata": {"resourceVersion": "1"}, "items": items})
}

const REPLICA_SETS: &str = "/apis/apps/v1/replicasets";

fn replica_set(name: &str, owner: &str) -> Value {
    let mut one = json!({"metadata": {"name": name, "namespace": "demo"}});
    if !owner.is_empty() {
        let owner = json!([{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "u", "controller": true}]);
        one["metadata"]["ownerReferences"] = owner;
    }
    one
}

fn asked_of<'a>(asked: &'a [String], path: &str) -> Vec<&'a str> {
    let asked = asked.iter().filter(|one| one.starts_with(path));
    asked.map(String::as_str).collect()
}

#[test]
fn replica_sets_of_deployments_are_asked_for_their_metadata_alone() {
    let of_deployments = list(&json!([
        replica_set("a", "Deployment"),
        replica_set("b", "Deployment")
    ]));
    let (cluster, asked) = ApiServer::read(vec![(REPLICA_SETS, of_deployments)]);
    assert_eq!(
        asked_of(&asked, REPLICA_SETS),
        ["/apis/apps/v1/replicasets (metadata)"]
    );
    assert!(cluster.unread.is_empty(), "{:?}", cluster.unread);
    assert_eq!(cluster.files.len(), 0);
    // Those that nothing made, or an object that is not read, are workloads of their own.
    let all = list(&json!([
        replica_set("a", "Deployment"),
        replica_set("b", "Rollout"),
        replica_set("c", "")
    ]));
    let (cluster, asked) = ApiServer::read(vec![(REPLICA_SETS, all)]);
    assert_eq!(
        asked_of(&asked, REPLICA_SETS),
        [
            "/apis/apps/v1/replicasets (metadata)",
            "/apis/apps/v1/replicasets"
        ]
    );
    let texts: Vec<_> = cluster.files.iter().map(|file| &*file.text).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].contains("\"name\":\"b\"") && texts[1].contains("\"name\":\"c\""));
}

#[test]
fn the_mesh_configuration_is_that_of_the_config_map() {
    const MAP: &str = "/api/v1/namespaces/istio-system/configmaps/istio";
    let map = |mesh: &str| vec![(MAP, json!({"data": {"mesh": mesh}}))];
    let (cluster, asked) = ApiServer::read(map("ingressControllerMode: OFF\n"));
    assert_eq!(asked_of(&asked, MAP), [MAP]);
    let mode = cluster.mesh.map(|mesh| mesh.ingress_controller_mode());
    assert_eq!(mode, Some(IngressControllerMode::Off));
    let (cluster, _) = ApiServer::read(Vec::new());
    assert!(cluster.mesh.is_none() && cluster.unread.is_empty());
    let (cluster, _) = ApiServer::read(map("ingressControllerMode: SOME\n"));
    let name = "cannot use ConfigMap istio-system/istio, key mesh: ";
    assert!(cluster.mesh.is_none());
    assert!(cluster.unread[0].starts_with(name), "{:?}", cluster.unread);
}

/// An account with rights to the objects alone used to end the command with 1, whatever they say.
#[test]
fn a_mesh_configuration_that_may_not_be_read_is_a_warning() {
    const MAP: &str = "/api/v1/namespaces/istio-system/configmaps/istio";
    let status = |code: u16, reason: &str| json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": reason, "message": "no such right", "code": code});
    let (cluster, _) = ApiServer::read(vec![(MAP, status(403, "Forbidden"))]);
    assert!(cluster.unread.is_empty(), "{:?}", cluster.unread);
    let [warning] = &*cluster.warnings else {
        panic!("one warning: {:?}", cluster.warnings)
    };
    for part in [
        "configmaps",
        "istio-system/istio",
        "no such right",
        "--meshConfigFile",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    // Rights that the server cannot look up may be there.
    let (cluster, _) = ApiServer::read(vec![(MAP, status(400, "BadRequest"))]);
    assert_eq!((cluster.unread.len(), cluster.warnings.len()), (1, 0));
}
