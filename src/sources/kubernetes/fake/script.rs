//! One script of requests, played to the fake and to a real API server. Both must answer the same, as far as the client
//! reads it: the real server's responses are in [`FILE`], and a fake that differs is wrong.

use std::collections::BTreeSet;

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

/// The recorded responses of a real API server: one step per line.
pub(crate) const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/data/api-server.json"
);

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
/// The label of the script's objects: other clients may have configurations there, too.
const SELECTED: &str = "labelSelector=cluster-recorded%3Dyes";
/// A group that is installed only after the first discovery request.
const LATE: &str = "/apis/recorded.example.com/v1";
const ENTRY: &str = "sidecar-injector.istio.io";

/// Plays the script. `before` triggers events that a server does not produce by itself: it is called with each step before
/// the request is sent, and before the events of an open watch are read. `denied` is a client without permissions.
pub(crate) async fn play(
    client: &kube::Client,
    denied: &kube::Client,
    before: impl FnMut(&str),
) -> Value {
    let mut play = Play {
        client,
        before,
        seen: BTreeSet::new(),
        transcript: Vec::new(),
    };
    play.objects_come().await;
    let (version, token) = play.pages().await;
    play.one_changes_and_one_goes().await;
    let last = play.changes(&version).await;
    play.bookmark(&last).await;
    play.expired(&token).await;
    play.missing().await;
    play.objects_go().await;
    play.client = denied;
    play.denied(&version).await;
    Value::Array(play.transcript)
}

/// Asserts that the responses equal the recorded ones.
pub(crate) fn compare(transcript: &Value) {
    let recorded: Value = serde_json::from_slice(&std::fs::read(FILE).unwrap()).unwrap();
    let (recorded, played) = (recorded.as_array().unwrap(), transcript.as_array().unwrap());
    for (recorded, played) in recorded.iter().zip(played) {
        assert_eq!(played, recorded, "left: played, right: recorded");
    }
    assert_eq!(played.len(), recorded.len());
}

struct Play<'a, B> {
    client: &'a kube::Client,
    before: B,
    /// Versions of objects that were read so far.
    seen: BTreeSet<String>,
    transcript: Vec<Value>,
}

impl<B: FnMut(&str)> Play<'_, B> {
    async fn objects_come(&mut self) {
        let a = body("recorded-a");
        self.ask("create a", write(Method::POST, WEBHOOKS, &a))
            .await;
        self.ask("create a again", write(Method::POST, WEBHOOKS, &a))
            .await;
        for name in ["recorded-b", "recorded-c"] {
            let step = format!("create {name}");
            self.ask(&step, write(Method::POST, WEBHOOKS, &body(name)))
                .await;
        }
        let (a, missing) = (named("recorded-a"), named("recorded-x"));
        self.ask("get a", get(&a)).await;
        self.ask("get a missing one", get(&missing)).await;
    }

    /// The version of the list, and the token of its second page.
    async fn pages(&mut self) -> (String, String) {
        let path = format!("{WEBHOOKS}?{SELECTED}&limit=2");
        let list = self.ask("list two", get(&path)).await;
        let token = text(&list["metadata"]["continue"]);
        let next = format!("{path}&continue={token}");
        self.ask("list the next", get(&next)).await;
        (version(&list), token)
    }

    async fn one_changes_and_one_goes(&mut self) {
        let path = named("recorded-a");
        self.ask("patch an old version", patch(&path, "1")).await;
        let missing = named("recorded-x");
        self.ask("patch a missing one", patch(&missing, "1")).await;
        let now = self.ask("get what is patched", get(&path)).await;
        let now = self.ask("patch", patch(&path, &version(&now))).await;
        self.ask("patch with the same", patch(&path, &version(&now)))
            .await;
        let path = named("recorded-c");
        self.ask("delete c", write(Method::DELETE, &path, &Value::Null))
            .await;
        self.ask("delete c again", write(Method::DELETE, &path, &Value::Null))
            .await;
    }

    /// The version of the last change.
    async fn changes(&mut self, from: &str) -> String {
        let events = self.watch("watch", WEBHOOKS, from, 2, None).await;
        version(&events.last().unwrap()["object"])
    }

    /// A watch gets a bookmark two seconds before its timeout, if other objects have changed since it began: its timeout
    /// must be long enough.
    async fn bookmark(&mut self, from: &str) {
        self.watch("bookmark", WEBHOOKS, from, 8, Some("BOOKMARK"))
            .await;
    }

    async fn expired(&mut self, token: &str) {
        let page = format!("{WEBHOOKS}?{SELECTED}&limit=2&continue={token}");
        self.ask("expired page", get(&page)).await;
        let path = format!("{LATE}/recordings");
        self.watch("expired watch", &path, "1", 2, None).await;
    }

    async fn missing(&mut self) {
        let watch = "watch=true&resourceVersion=1&timeoutSeconds=2";
        for (what, kind) in [
            ("a kind", &*format!("{LATE}/others")),
            ("a group", "/apis/nobody.example.com/v1/others"),
        ] {
            let step = |verb: &str| format!("{verb} of {what} that is not there");
            self.ask(&step("list"), get(kind)).await;
            let watch = format!("{kind}?{watch}");
            self.ask(&step("watch"), get(&watch)).await;
            let one = format!("{kind}/a");
            self.ask(&step("get"), get(&one)).await;
            self.ask(&step("create"), write(Method::POST, kind, &body("a")))
                .await;
            self.ask(&step("patch"), patch(&one, "1")).await;
        }
        self.ask("kinds of a group", get(LATE)).await;
        self.ask(
            "kinds of a group that is not there",
            get("/apis/nobody.example.com/v1"),
        )
        .await;
    }

    async fn objects_go(&mut self) {
        for name in ["recorded-a", "recorded-b"] {
            let request = write(Method::DELETE, &named(name), &Value::Null);
            self.ask(&format!("delete {name}"), request).await;
        }
    }

    async fn denied(&mut self, from: &str) {
        let list = format!("{WEBHOOKS}?{SELECTED}");
        self.ask("denied list", get(&list)).await;
        let watch = format!("{list}&watch=true&resourceVersion={from}&timeoutSeconds=2");
        self.ask("denied watch", get(&watch)).await;
        let one = named("recorded-a");
        self.ask("denied get", get(&one)).await;
        self.ask("denied patch", patch(&one, from)).await;
    }

    /// Sends a request, records the response, and returns it unchanged.
    async fn ask(&mut self, step: &str, request: Request<Body>) -> Value {
        (self.before)(step);
        let response = self.client.send(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        let answer = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let content = self.says(&answer);
        self.note(step, code, &content);
        answer
    }

    /// Records the events up to one of the type `until`, or up to the server's end of the watch.
    async fn watch(
        &mut self,
        step: &str,
        kind: &str,
        from: &str,
        seconds: u8,
        until: Option<&str>,
    ) -> Vec<Value> {
        (self.before)(step);
        let path = format!(
            "{kind}?{SELECTED}&watch=true&resourceVersion={from}&allowWatchBookmarks=true&timeoutSeconds={seconds}"
        );
        let response = self.client.send(get(&path)).await.unwrap();
        let code = response.status().as_u16();
        let mut body = response.into_body();
        (self.before)(&format!("{step} has begun"));
        let (mut bytes, mut events, mut entries) = (Vec::new(), Vec::<Value>::new(), Vec::new());
        loop {
            let Some(frame) = body.frame().await else {
                entries.push(json!("end"));
                break;
            };
            let Ok(frame) = frame else {
                entries.push(json!("break"));
                break;
            };
            bytes.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(at) = bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = bytes.drain(..=at).collect();
                let event = serde_json::from_slice(&line).unwrap_or(Value::Null);
                entries.push(self.event(&event, from));
                events.push(event);
            }
            if until.is_some() && events.last().map(|event| &event["type"]) == Some(&json!(until)) {
                break;
            }
        }
        self.note(step, code, &Value::Array(entries));
        events
    }

    fn event(&mut self, event: &Value, from: &str) -> Value {
        let object = &event["object"];
        let content = if event["type"] == "BOOKMARK" {
            let number = |version: &str| version.parse::<u64>().unwrap();
            json!({"newer": number(&version(object)) > number(from)})
        } else {
            self.says(object)
        };
        json!({"type": event["type"], "object": content})
    }

    /// Reduces a response to the fields that the client reads and that are the same in each run.
    fn says(&mut self, answer: &Value) -> Value {
        if !answer.is_object() {
            return json!("text");
        }
        if answer["kind"] == "Status" {
            let read = ["kind", "status", "reason", "code"].into_iter();
            let there = read.filter(|key| !answer[key].is_null());
            return there
                .map(|key| (key.to_owned(), answer[key].clone()))
                .collect();
        }
        if let Some(kinds) = answer["resources"].as_array() {
            let names: Vec<_> = kinds.iter().map(|kind| &kind["name"]).collect();
            return json!({"resources": names});
        }
        if let Some(items) = answer["items"].as_array() {
            let names: Vec<_> = items.iter().map(|item| &item["metadata"]["name"]).collect();
            let more = !text(&answer["metadata"]["continue"]).is_empty();
            let versioned = !version(answer).is_empty();
            return json!({"items": names, "continue": more, "resourceVersion": versioned});
        }
        let version = version(answer);
        let version = match &*version {
            "" => "none",
            _ if self.seen.insert(version.clone()) => "new",
            _ => "seen",
        };
        let webhooks = answer["webhooks"].as_array().into_iter().flatten();
        let webhooks: Vec<_> = webhooks
            .map(|one| json!([one["name"], one["clientConfig"]["caBundle"]]))
            .collect();
        json!({"name": answer["metadata"]["name"], "resourceVersion": version, "webhooks": webhooks})
    }

    fn note(&mut self, step: &str, code: u16, content: &Value) {
        self.transcript
            .push(json!({"step": step, "code": code, "says": content}));
    }
}

fn body(name: &str) -> Value {
    webhooks(name, "cluster-recorded", &["validation.example.com", ENTRY])
}

/// A configuration with a matching label. Its entries have no server: they match no pod.
pub(crate) fn webhooks(name: &str, label: &str, entries: &[&str]) -> Value {
    let entry = |entry: &str| {
        json!({
            "name": entry,
            "clientConfig": {"service": {"name": "nobody", "namespace": "default", "path": "/inject"}},
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "namespaceSelector": {"matchLabels": {"nobody": "has-this"}},
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name, "labels": {label: "yes"}},
        "webhooks": entries.iter().map(|name| entry(name)).collect::<Vec<_>>(),
    })
}

fn named(name: &str) -> String {
    format!("{WEBHOOKS}/{name}")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn version(object: &Value) -> String {
    text(&object["metadata"]["resourceVersion"])
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

fn write(method: Method, path: &str, body: &Value) -> Request<Body> {
    let body = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = Request::builder().method(method).uri(path);
    let request = request.header("Content-Type", "application/json");
    request.body(body.into()).unwrap()
}

/// A patch as the reconciler writes it.
fn patch(path: &str, version: &str) -> Request<Body> {
    let body = json!({
        "metadata": {"resourceVersion": version},
        "webhooks": [{"name": ENTRY, "clientConfig": {"caBundle": "Cg=="}}],
    });
    let request = Request::patch(path);
    let request = request.header("Content-Type", "application/strategic-merge-patch+json");
    request.body(body.to_string().into_bytes().into()).unwrap()
}
