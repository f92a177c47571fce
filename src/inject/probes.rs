//! Probes of the application. With mutual TLS kubelet's would be refused by Envoy, so they go to the proxy's status port, and
//! the agent there asks the application in kubelet's place.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::agent_probes;
use crate::file::Probers;
use crate::pod::{self, MAX_VARIABLE_LENGTH, PodList};
use crate::status::Status;
use crate::warnings::Warnings;

/// The variable of the proxy with the original probes, by the path that replaces each.
pub(crate) const VARIABLE: &str = "ISTIO_KUBE_APP_PROBERS";

/// Original probes by path.
pub(crate) type OriginalProbes = BTreeMap<String, Value>;

/// Original probes as far as one variable can hold them.
#[derive(Default)]
struct BoundedProbes {
    probes: OriginalProbes,
    bytes: usize,
}

/// The bound of the variable that one more probe would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Excess {
    Bytes,
    Probes,
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => write!(
                f,
                "make {VARIABLE} longer than {MAX_VARIABLE_LENGTH} bytes, with which Linux starts no program"
            ),
            Self::Probes => write!(
                f,
                "be one of over {} in {VARIABLE}, with which the proxy does not start",
                agent_probes::MAX_PROBES
            ),
        }
    }
}

impl BoundedProbes {
    /// Adds a probe for which the variable has room.
    fn insert(&mut self, path: String, original: Value) -> Result<(), Excess> {
        if self.probes.len() >= agent_probes::MAX_PROBES {
            return Err(Excess::Probes);
        }
        let text = original.to_string();
        let bytes = self.bytes + path.len() + text.len() + "{\"\":}".len();
        if bytes + VARIABLE.len() + "=\0".len() > MAX_VARIABLE_LENGTH {
            return Err(Excess::Bytes);
        }
        self.bytes = bytes;
        self.probes.insert(path, original);
        Ok(())
    }
}

/// A probe as the pod has it.
struct WrittenProbe<'c> {
    probe: &'c Map<String, Value>,
    /// The key of its handler.
    handler: &'static str,
    /// The handler.
    asked: &'c Map<String, Value>,
}

/// A probe or hook of a container, by its name in paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbeField {
    parent: Option<&'static str>,
    field: &'static str,
    path: &'static str,
    /// The first agents that support probes in this field.
    since: Probers,
}

pub(crate) const PROBE_FIELDS: [ProbeField; 5] = [
    ProbeField {
        parent: None,
        field: "readinessProbe",
        path: "readyz",
        since: Probers::Legacy,
    },
    ProbeField {
        parent: None,
        field: "livenessProbe",
        path: "livez",
        since: Probers::Legacy,
    },
    ProbeField {
        parent: None,
        field: "startupProbe",
        path: "startupz",
        since: Probers::CurrentHttp,
    },
    ProbeField {
        parent: Some("lifecycle"),
        field: "preStop",
        path: "prestopz",
        since: Probers::Current,
    },
    ProbeField {
        parent: Some("lifecycle"),
        field: "postStart",
        path: "poststartz",
        since: Probers::Current,
    },
];

const HANDLERS: [&str; 3] = ["httpGet", "tcpSocket", "grpc"];
const PREFIXES: [&str; 2] = ["/app-health/", "/app-lifecycle/"];

impl ProbeField {
    pub(crate) fn get<'a>(&self, container: &'a Value) -> Option<&'a Value> {
        self.parent
            .map_or(Some(container), |parent| container.get(parent))?
            .get(self.field)
    }

    pub(crate) fn get_mut<'a>(&self, container: &'a mut Value) -> Option<&'a mut Value> {
        match self.parent {
            Some(parent) => container.get_mut(parent)?.get_mut(self.field),
            None => container.get_mut(self.field),
        }
    }

    fn path(&self, container: &str) -> String {
        let prefix = if self.parent.is_some() {
            "/app-lifecycle"
        } else {
            "/app-health"
        };
        format!("{prefix}/{container}/{}", self.path)
    }
}

/// Settings for rewriting probes.
#[derive(Debug)]
pub(crate) struct ProbeRewrite<'a> {
    pub(crate) probers: Probers,
    pub(crate) port: u16,
    /// The originals that an earlier injection stored of probes that have not changed since.
    pub(crate) earlier: &'a OriginalProbes,
}

impl ProbeRewrite<'_> {
    /// Rewrites the probes of all containers but those that `is_made` knows by list and name; the originals are for the agent.
    pub(crate) fn rewrite(
        &self,
        pod: &mut Value,
        is_made: impl Fn(PodList, &str) -> bool,
        warnings: &mut Warnings,
    ) -> OriginalProbes {
        let mut originals = BoundedProbes::default();
        let lists: &[PodList] = if self.probers < Probers::Http {
            &[PodList::Containers]
        } else {
            &[PodList::InitContainers, PodList::Containers]
        };
        for list in lists.iter().copied() {
            for container in pod::existing_list_mut(pod, list).into_iter().flatten() {
                let name = pod::name(container).to_owned();
                if is_made(list, &name) {
                    continue;
                }
                for field in PROBE_FIELDS {
                    self.rewrite_probe(container, &name, field, &mut originals, warnings);
                }
            }
        }
        originals.probes
    }

    fn rewrite_probe(
        &self,
        container: &mut Value,
        name: &str,
        field: ProbeField,
        originals: &mut BoundedProbes,
        warnings: &mut Warnings,
    ) {
        let Some(WrittenProbe {
            probe,
            handler,
            asked,
        }) = self.written_probe(container, field)
        else {
            return;
        };
        if self.probers < field.since.max(first(handler)) {
            // Agents up to 1.4 never got more.
            if self.probers != Probers::Legacy {
                warnings.push(|| format!("container {name}: {} has {handler}, which the probers of the configuration or of the image's release do not have there; it is left as it is", field.field));
            }
            return;
        }
        let ports = container.get("ports").unwrap_or(&Value::Null);
        let Some(port) = number(asked.get("port"), ports) else {
            let wanted = asked
                .get("port")
                .and_then(Value::as_str)
                .unwrap_or_default();
            warnings.push(|| format!("container {name}: {} names port {wanted:?}, which the container does not have; it is left as it is", field.field));
            return;
        };
        // The API server refuses these where it sees them.
        if !is_port(&port) || !agent_probes::is_container(name) || !agent_probes::is_timed(probe) {
            return;
        }
        if let Some(fault) = agent_probes::fault(handler, asked) {
            warnings.push(|| format!("container {name}: {} has {fault}, with which the proxy would not start; it is left as it is", field.field));
            return;
        }
        let path = field.path(name);
        let original = original(handler, asked, &port);
        let sent = to_status_port(asked, &path, self.port);
        let original = self.entry(probe, handler, original, &path);
        // Nothing of the probe has changed up to here, so that one without room stays whole.
        if let Err(excess) = originals.insert(path, original) {
            warnings.push(|| {
                format!(
                    "container {name}: {} would {excess}; it is left as it is",
                    field.field
                )
            });
            return;
        }
        let Some(Value::Object(probe)) = field.get_mut(container) else {
            return;
        };
        if handler != "httpGet" {
            probe.shift_remove(handler);
        }
        probe.insert("httpGet".to_owned(), sent);
    }

    /// Returns the probe in a field, if the agent may ask in kubelet's place.
    fn written_probe<'c>(
        &self,
        container: &'c Value,
        field: ProbeField,
    ) -> Option<WrittenProbe<'c>> {
        let probe = field.get(container)?.as_object()?;
        let mut handlers = HANDLERS.into_iter();
        let handler = handlers.find(|handler| probe.get(*handler).is_some_and(Value::is_object))?;
        let asked = probe.get(handler)?.as_object()?;
        let host = asked.get("host").and_then(Value::as_str);
        // Kubernetes has no such hook.
        let is_unknown_hook = field.parent.is_some() && handler == "grpc";
        let has_host = host.is_some_and(|host| !host.is_empty());
        let is_left = is_unknown_hook || has_host || self.is_ours(asked);
        (!is_left).then_some(WrittenProbe {
            probe,
            handler,
            asked,
        })
    }

    /// The original as the agent takes it.
    fn entry(
        &self,
        probe: &Map<String, Value>,
        handler: &str,
        original: Value,
        path: &str,
    ) -> Value {
        if self.probers == Probers::Legacy {
            return original;
        }
        let mut entry = Map::from_iter([(handler.to_owned(), original)]);
        // The server may have filled in 1 since; an entry without a timeout has none, in spite of the probe's.
        let is_stored = self
            .earlier
            .get(path)
            .is_none_or(|known| !is_current(known) || known.get("timeoutSeconds").is_some());
        let timeout = probe.get("timeoutSeconds").filter(|seconds| {
            let seconds = seconds.as_i64().unwrap_or_default();
            seconds != 0 && (seconds != 1 || is_stored)
        });
        entry.extend(timeout.map(|seconds| ("timeoutSeconds".to_owned(), seconds.clone())));
        Value::Object(entry)
    }

    /// Returns true if the probe points at the status port already, because an earlier injection rewrote it.
    fn is_ours(&self, asked: &Map<String, Value>) -> bool {
        let path = asked
            .get("path")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let port = asked.get("port").and_then(Value::as_i64);
        PREFIXES.iter().any(|prefix| path.starts_with(prefix)) && port == Some(i64::from(self.port))
    }
}

/// Returns the first agents that support a handler.
fn first(handler: &str) -> Probers {
    match handler {
        "httpGet" => Probers::Legacy,
        "tcpSocket" => Probers::TcpSocket,
        _ => Probers::Grpc,
    }
}

/// A port by number, or by a name that the container has.
fn number(port: Option<&Value>, ports: &Value) -> Option<Value> {
    match port? {
        Value::Number(number) => Some(Value::Number(number.clone())),
        Value::String(name) => {
            let container_port = ports
                .as_array()?
                .iter()
                .find(|port| port.get("name").and_then(Value::as_str) == Some(name))?;
            container_port
                .get("containerPort")
                .filter(|number| number.is_number())
                .cloned()
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn is_port(port: &Value) -> bool {
    port.as_u64()
        .is_some_and(|port| (1..=65_535).contains(&port))
}

/// The handler as the agent gets it, in the order of Kubernetes' types.
fn original(handler: &str, asked: &Map<String, Value>, port: &Value) -> Value {
    let order: &[&str] = match handler {
        "httpGet" => &["path", "port", "host", "scheme", "httpHeaders"],
        _ => &["port", "host", "service"],
    };
    let mut out = Map::new();
    for key in order {
        match asked.get(*key) {
            Some(_) if *key == "port" => drop(out.insert("port".to_owned(), port.clone())),
            Some(value) if !value.is_null() => drop(out.insert((*key).to_owned(), value.clone())),
            _ => {}
        }
    }
    for (key, value) in asked {
        if !out.contains_key(key) && !value.is_null() {
            out.insert(key.clone(), value.clone());
        }
    }
    Value::Object(out)
}

/// Returns the probe that kubelet sends from now on: plain HTTP, since the agent has no TLS.
fn to_status_port(asked: &Map<String, Value>, path: &str, port: u16) -> Value {
    let mut fields = Map::from_iter([
        ("path".to_owned(), Value::from(path)),
        ("port".to_owned(), Value::from(port)),
    ]);
    for (key, value) in asked {
        match (key.as_str(), value) {
            ("path" | "port" | "service" | "host", _) => {}
            ("scheme", Value::String(scheme)) if scheme == "HTTPS" => {
                drop(fields.insert(key.clone(), Value::from("HTTP")));
            }
            _ => drop(fields.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(fields)
}

fn is_current(original: &Value) -> bool {
    HANDLERS
        .iter()
        .any(|handler| original.get(*handler).is_some())
}

/// Adds the original probes to the proxy's container, as its last variable.
pub(crate) fn set_original_probes(proxy: &mut Value, originals: &OriginalProbes) {
    if originals.is_empty() {
        return;
    }
    let text = serde_json::to_string(originals).unwrap_or_default();
    let Some(container) = proxy.as_object_mut() else {
        return;
    };
    let env = container.entry("env").or_insert(Value::Null);
    if !env.is_array() {
        *env = Value::Array(Vec::new());
    }
    if let Some(env) = env.as_array_mut() {
        env.retain(|variable| pod::name(variable) != VARIABLE);
        env.push(json!({"name": VARIABLE, "value": text}));
    }
}

/// The status port that the proxy's arguments name: the last of them, in any of its spellings.
pub(crate) fn status_port(proxy: &Value) -> Option<u16> {
    status_port_argument(proxy)?
        .parse()
        .ok()
        .filter(|port| *port != 0)
}

/// Returns true if the proxy's arguments name a status port, even an invalid one.
pub(crate) fn has_status_port(proxy: &Value) -> bool {
    status_port_argument(proxy).is_some()
}

fn status_port_argument(proxy: &Value) -> Option<&str> {
    let args: Vec<&str> = proxy
        .get("args")
        .and_then(Value::as_array)?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let names = [
        "--statusPort",
        "-statusPort",
        "--status-port",
        "-status-port",
    ];
    flag(&args, &names)
}

/// The last value of a flag, given as `F V` or `F=V`.
pub(crate) fn flag<'a>(args: &[&'a str], names: &[&str]) -> Option<&'a str> {
    let mut flag_value = None;
    for (index, arg) in args.iter().enumerate() {
        if names.contains(arg) {
            flag_value = args.get(index + 1).copied();
        } else if let Some((name, value)) = arg.split_once('=')
            && names.contains(&name)
        {
            flag_value = Some(value);
        }
    }
    flag_value
}

/// Restores the original probes that an earlier injection had rewritten.
pub(crate) fn restore(pod: &mut Value, earlier: &Status) -> OriginalProbes {
    let Some(entries) = earlier.stored_variable(pod, VARIABLE) else {
        return OriginalProbes::new();
    };
    let mut restored = OriginalProbes::new();
    for list in PodList::OF_CONTAINERS {
        for container in pod::existing_list_mut(pod, list).into_iter().flatten() {
            let name = pod::name(container).to_owned();
            for field in PROBE_FIELDS {
                let path = field.path(&name);
                let Some(original) = entries.get(&path) else {
                    continue;
                };
                if let Some(Value::Object(probe)) = field.get_mut(container)
                    && put_back(probe, &path, original)
                {
                    restored.insert(path, original.clone());
                }
            }
        }
    }
    restored
}

/// Restores the original of a probe that points at `path`; returns true if it did.
fn put_back(probe: &mut Map<String, Value>, path: &str, original: &Value) -> bool {
    let asked = probe.get("httpGet");
    // A probe that leads elsewhere by now was changed by another author, and stays.
    if asked.and_then(|asked| asked.get("path")?.as_str()) != Some(path) {
        return false;
    }
    let (handler, asked) = match HANDLERS
        .into_iter()
        .find(|handler| original.get(*handler).is_some())
    {
        Some(handler) => (handler, original.get(handler)),
        None => ("httpGet", Some(original)),
    };
    let Some(asked) = asked.filter(|asked| asked.is_object()) else {
        return false;
    };
    if handler != "httpGet" {
        probe.shift_remove("httpGet");
    }
    probe.insert(handler.to_owned(), asked.clone());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The API server would refuse it, and must still see it.
    #[test]
    fn a_port_that_is_none_stays_where_it_is() {
        let rewrite = |container: &Value| {
            let rewriting = ProbeRewrite {
                probers: Probers::Current,
                port: 15020,
                earlier: &OriginalProbes::new(),
            };
            let mut pod = json!({"spec": {"containers": [container]}});
            let mut warnings = Warnings::default();
            rewriting.rewrite(&mut pod, |_, _| false, &mut warnings);
            assert_eq!(warnings.into_vec(), Vec::<String>::new());
            pod["spec"]["containers"][0] != *container
        };
        let ports = [
            ("1", true),
            ("65535", true),
            ("0", false),
            ("-1", false),
            ("65536", false),
            ("80.5", false),
            ("1e30", false),
        ];
        for (text, rewritten) in ports {
            let port: Value = serde_json::from_str(text).unwrap();
            for handler in ["httpGet", "tcpSocket", "grpc"] {
                let probe = json!({"name": "a", "livenessProbe": {handler: {"port": port}}});
                assert_eq!(rewrite(&probe), rewritten, "{probe}");
            }
            let hook = json!({"name": "a", "lifecycle": {"preStop": {"httpGet": {"port": port}}}});
            assert_eq!(rewrite(&hook), rewritten, "{hook}");
            let named = json!({"name": "a", "ports": [{"name": "http", "containerPort": port}],
                "readinessProbe": {"httpGet": {"port": "http"}}});
            assert_eq!(rewrite(&named), rewritten, "{named}");
        }
    }

    fn rewritten(pod: &mut Value) -> (OriginalProbes, Vec<String>) {
        let rewriting = ProbeRewrite {
            probers: Probers::Current,
            port: 15020,
            earlier: &OriginalProbes::new(),
        };
        let mut warnings = Warnings::default();
        let originals = rewriting.rewrite(pod, |_, _| false, &mut warnings);
        (originals, warnings.into_vec())
    }

    /// The API server takes such a value, and the agent would end with it.
    #[test]
    fn a_probe_that_the_agent_refuses_stays_as_it_is() {
        let asked =
            json!({"port": 80, "httpHeaders": [{"name": "Authorization", "value": "Bearer x\n"}]});
        let sent = json!({"spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": asked}, "readinessProbe": {"httpGet": {"port": 80}},
            "lifecycle": {"preStop": {"httpGet": asked}}}]}});
        let mut pod = sent.clone();
        let (originals, warnings) = rewritten(&mut pod);
        assert_eq!(
            originals.keys().collect::<Vec<_>>(),
            ["/app-health/a/readyz"]
        );
        let (sent, made) = (
            &sent["spec"]["containers"][0],
            &pod["spec"]["containers"][0],
        );
        assert_eq!(made["livenessProbe"], sent["livenessProbe"]);
        assert_eq!(made["lifecycle"], sent["lifecycle"]);
        let left = |field| {
            format!(
                "container a: {field} has a header whose value is not valid in HTTP, with which the proxy would not start; it is left as it is"
            )
        };
        assert_eq!(warnings, ["livenessProbe", "preStop"].map(left));
    }

    #[test]
    fn as_many_probes_are_rewritten_as_the_agent_takes() {
        let probe = json!({"httpGet": {"port": 80}});
        let containers = (0..=agent_probes::MAX_PROBES)
            .map(|at| json!({"name": format!("a{at}"), "livenessProbe": probe}));
        let mut pod = json!({"spec": {"containers": containers.collect::<Vec<_>>()}});
        let (originals, warnings) = rewritten(&mut pod);
        assert_eq!(originals.len(), agent_probes::MAX_PROBES);
        assert_eq!(
            pod["spec"]["containers"][agent_probes::MAX_PROBES]["livenessProbe"],
            probe
        );
        assert_eq!(
            warnings,
            [
                "container a256: livenessProbe would be one of over 256 in ISTIO_KUBE_APP_PROBERS, with which the proxy does not start; it is left as it is"
            ]
        );
    }

    /// The API server refuses both where it sees them.
    #[test]
    fn a_probe_of_no_valid_pod_stays_as_it_is() {
        for container in [
            json!({"name": "a/b", "livenessProbe": {"httpGet": {"port": 80}}}),
            json!({"livenessProbe": {"httpGet": {"port": 80}}}),
            json!({"name": "a", "livenessProbe": {"tcpSocket": {"port": 80}, "timeoutSeconds": -1}}),
            json!({"name": "a", "livenessProbe": {"tcpSocket": {"port": 80}, "timeoutSeconds": 0x8000_0000_u32}}),
        ] {
            let sent = json!({"spec": {"containers": [container]}});
            let mut pod = sent.clone();
            assert_eq!(rewritten(&mut pod), (OriginalProbes::new(), Vec::new()));
            assert_eq!(pod, sent);
        }
    }

    /// Agents end at the start where they get more.
    #[test]
    fn an_agent_gets_the_probes_that_it_supports() {
        use Probers::{Current, CurrentHttp, Grpc, Http, Legacy, TcpSocket, WithoutStartup};
        let all = [
            Legacy,
            WithoutStartup,
            CurrentHttp,
            Http,
            TcpSocket,
            Grpc,
            Current,
        ];
        let rows = [
            ("livenessProbe", "httpGet", Some(Legacy)),
            ("readinessProbe", "httpGet", Some(Legacy)),
            ("startupProbe", "httpGet", Some(CurrentHttp)),
            ("livenessProbe", "tcpSocket", Some(TcpSocket)),
            ("startupProbe", "tcpSocket", Some(TcpSocket)),
            ("readinessProbe", "grpc", Some(Grpc)),
            ("startupProbe", "grpc", Some(Grpc)),
            ("preStop", "httpGet", Some(Current)),
            ("postStart", "tcpSocket", Some(Current)),
            ("preStop", "grpc", None),
        ];
        for (field, handler, since) in rows {
            for probers in all {
                let rewriting = ProbeRewrite {
                    probers,
                    port: 15020,
                    earlier: &OriginalProbes::new(),
                };
                let probe = json!({field: {handler: {"port": 80}}});
                let mut container = json!({"name": "a"});
                if field.ends_with("Probe") {
                    container[field] = probe[field].clone();
                } else {
                    container["lifecycle"] = probe;
                }
                let mut pod = json!({"spec": {"containers": [container]}});
                let mut warnings = Warnings::default();
                let rewritten = rewriting.rewrite(&mut pod, |_, _| false, &mut warnings);
                let warnings = warnings.into_vec();
                let wanted = since.is_some_and(|since| probers >= since);
                assert_eq!(
                    rewritten.len(),
                    usize::from(wanted),
                    "{probers:?} {container}"
                );
                assert_eq!(pod["spec"]["containers"][0] != container, wanted);
                let is_reported = !wanted && probers != Legacy && since.is_some();
                assert_eq!(warnings.len(), usize::from(is_reported), "{warnings:?}");
            }
        }
    }

    /// Agents of 1.5 to 1.8 know it, too; without it they wait for a hung application for ever.
    #[test]
    fn all_agents_but_the_oldest_get_the_timeout() {
        use Probers::{Current, CurrentHttp, Http, Legacy, WithoutStartup};
        let timed = json!({"httpGet": {"port": 80}, "timeoutSeconds": 3});
        for (probers, wanted) in [
            (Legacy, &timed["httpGet"]),
            (WithoutStartup, &timed),
            (CurrentHttp, &timed),
            (Http, &timed),
            (Current, &timed),
        ] {
            let rewriting = ProbeRewrite {
                probers,
                port: 15020,
                earlier: &OriginalProbes::new(),
            };
            let mut pod = json!({"spec": {"containers": [{"name": "a", "livenessProbe": timed}]}});
            let rewritten = rewriting.rewrite(&mut pod, |_, _| false, &mut Warnings::default());
            assert_eq!(rewritten["/app-health/a/livez"], *wanted, "{probers:?}");
        }
    }

    /// Probes without a timeout have none in their entry, and the API server fills in 1.
    #[test]
    fn a_timeout_that_was_not_stored_is_the_probes_own() {
        let stored = json!({"httpGet": {"port": 80}});
        let timed = json!({"httpGet": {"port": 80}, "timeoutSeconds": 3});
        let rows = [
            (json!(3), Some(&stored), Some(3)),
            (json!(1), Some(&stored), None),
            (json!(3), Some(&timed), Some(3)),
            (json!(1), None, Some(1)),
            (json!(0), None, None),
        ];
        for (timeout, stored, wanted) in rows {
            let path = "/app-health/a/livez".to_owned();
            let earlier = stored.map(|stored| (path.clone(), stored.clone()));
            let rewriting = ProbeRewrite {
                probers: Probers::Current,
                port: 15020,
                earlier: &earlier.into_iter().collect(),
            };
            let mut pod = json!({"spec": {"containers": [{"name": "a",
                "livenessProbe": {"httpGet": {"port": 80}, "timeoutSeconds": timeout}}]}});
            let rewritten = rewriting.rewrite(&mut pod, |_, _| false, &mut Warnings::default());
            let found = rewritten[&path]
                .get("timeoutSeconds")
                .and_then(Value::as_i64);
            assert_eq!(found, wanted, "{timeout} {stored:?}");
        }
    }
}
