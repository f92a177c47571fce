//! Random rules that are valid: each begins with a small one, and every step changes one field of it, as far as the rules allow.
//!
//! The fields are those of the tables that the messages have, so that a new one is tried without a word here; values come from
//! small stores by the field's name, with some at the edge among them.

use api::config;
use api::networking::has_errors;
use api::schema::{Field, FieldKind, Key, Message, Shape};
use serde_json::{Map, Value as Json, json};

/// The same numbers for the same seed, everywhere and for ever.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// As SplitMix64 does it.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, max: usize) -> usize {
        usize::try_from(self.next() % max.max(1) as u64).unwrap()
    }

    pub(crate) fn one<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Makes rules. It knows the path of the certificate that files name.
#[derive(Debug)]
pub(crate) struct Generator<'a> {
    pub(crate) certificates: &'a str,
}

const HOSTS: &[&str] = &[
    "a",
    "b",
    "at",
    "dns",
    "wild.example",
    "*.example",
    "*",
    "c.example",
    "A.demo.svc.cluster.local",
    "other.example",
    "a.demo.svc.cluster.local",
    "b.demo.svc.cluster.local",
    "10.0.0.9",
    "*.demo.svc.cluster.local",
    "demo/*",
    "./*",
    "*/*",
    "demo/b.demo.svc.cluster.local",
    "./c.example",
    "~/*",
    "none",
];
const ODD: &[&str] = &[
    "", "50%", "%%", "%REQ(x)%", "%NO(x)%", "%REQ(x", "a\nb", "a\u{0}b", "a b", "ä", " ", "a:b",
    "a/b?c#d", "*", "x*", "*x", ":path", "Host", "0", "-1", "/", "//", "{a}", "\\", "(", "a.",
    ".a", "1.1", "true",
];
const WORDS: &[&str] = &[
    "a", "v1", "v2", "x-user", "GET", "x", "end-user", "a.b", "A",
];
const REGEXES: &[&str] = &[
    ".*",
    "/a/[0-9]+",
    "[a-z]{1,3}",
    "(a|b)*",
    "^/x$",
    "a\\d+",
    "\\pL",
    "(?i)x",
    "x{1000}",
    "[[:alpha:]]",
    "\\Qa.b\\E",
    "(?P<n>a)",
    "",
];
const PATHS: &[&str] = &[
    "/", "/a", "/a/b", "/a/", "/a%20b", "/{x}", "/a*", "//a", "/a?b=c", "*.html", "/{*}/x",
    "/{**}", "/a#b",
];
const DURATIONS: &[&str] = &[
    "1s",
    "0.5s",
    "1ms",
    "100h",
    "0s",
    "0.000000001s",
    "10s",
    "3600s",
    "0.0015s",
];
const ADDRESSES: &[&str] = &[
    "10.0.0.1",
    "10.1.0.1",
    "127.0.0.1",
    "0.0.0.0",
    "::1",
    "2001:db8::1",
    "unix:///tmp/a",
    "a.example",
    "10.96.0.7",
];
const BLOCKS: &[&str] = &[
    "10.0.0.0/8",
    "10.1.2.3",
    "0.0.0.0/0",
    "::/0",
    "2001:db8::/32",
    "10.1.2.3/16",
    "127.0.0.1/32",
];
const NAMESPACES: &[&str] = &["demo", "other", "*", ".", "~", "istio-system"];
const LABELS: &[&str] = &["app", "version", "istio", "security.istio.io/tlsMode"];
const CIPHERS: &[&str] = &[
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "AES128-SHA",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "DES-CBC3-SHA",
    "NONE",
];
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    50,
    80,
    90,
    91,
    100,
    200,
    404,
    443,
    503,
    599,
    1000,
    8080,
    15001,
    65535,
    65536,
    2_147_483_647,
    4_294_967_295,
];
const CONDITIONS: &[&str] = &[
    "request.headers[x]",
    "source.ip",
    "remote.ip",
    "source.namespace",
    "source.principal",
    "request.auth.principal",
    "request.auth.audiences",
    "request.auth.presenter",
    "request.auth.claims[a]",
    "request.auth.claims[a][b]",
    "destination.ip",
    "destination.port",
    "connection.sni",
    "experimental.envoy.filters.a[b]",
    "source.serviceAccount",
    "none",
];
const KEYS: &[&str] = &[
    r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE"}]}"#,
    r#"{"keys": [{"kty": "oct", "k": "AQ", "alg": "HS256"}]}"#,
    r#"{"keys": []}"#,
];
/// A CRL is not there, and who is asked is one of those that the mesh has.
const LEFT_OUT: &[&str] = &["caCrl", "provider"];

impl Generator<'_> {
    /// A valid object of a kind, or none where luck has it so.
    pub(crate) fn object(&self, rng: &mut Rng, kind: &config::Kind, name: &str) -> Option<Json> {
        let namespace = if rng.chance(12) {
            "istio-system"
        } else {
            "demo"
        };
        let mut object = json!({
            "apiVersion": format!("{}/{}", kind.group, kind.versions.first()?),
            "kind": kind.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": self.seed(rng, kind.kind),
        });
        is_valid(&object).then_some(())?;
        // It has so few fields that most would be others.
        let steps = match kind.kind {
            "WorkloadEntry" => 8,
            _ => 40,
        };
        for _ in 0..rng.below(steps) {
            let mut changed = object.clone();
            let spec = changed.get_mut("spec").and_then(Json::as_object_mut)?;
            self.change(rng, kind.message, spec, 0);
            if is_valid(&changed) {
                object = changed;
            }
        }
        Some(object)
    }

    /// An Ingress, of which the rules for what is made of it decide.
    pub(crate) fn ingress(&self, rng: &mut Rng) -> Json {
        let mut paths = || -> Vec<Json> {
            let path = |rng: &mut Rng| {
                let port = rng.one(&[
                    r#"{"number": 80}"#,
                    r#"{"name": "http"}"#,
                    r#"{"name": "none"}"#,
                ]);
                let port: Json = serde_json::from_str(port).unwrap();
                json!({"path": self.text(rng, "path"), "pathType": rng.one(&["Exact", "Prefix", "ImplementationSpecific"]),
                    "backend": {"service": {"name": rng.one(&["a", "b", "at", "none"]), "port": port}}})
            };
            (0..=rng.below(3)).map(|_| path(rng)).collect()
        };
        let rules = [paths(), paths()];
        let hosts = ["", "c.example", "*.example", "a.demo.svc.cluster.local"];
        let rules: Vec<_> = rules
            .into_iter()
            .map(|paths| json!({"host": rng.one(&hosts), "http": {"paths": paths}}))
            .collect();
        let mut spec = json!({"rules": rules});
        if rng.chance(50) {
            spec["tls"] = json!([{"hosts": ["c.example"], "secretName": rng.one(&["istio-ingress-certs", "other"])}]);
        }
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spec": spec,
            "metadata": {"name": "i", "namespace": "demo", "annotations": {"kubernetes.io/ingress.class": "istio"}}})
    }

    /// A small one, to begin with.
    fn seed(&self, rng: &mut Rng, kind: &str) -> Json {
        let host = rng.one(&[
            "a",
            "b",
            "at",
            "c.example",
            "*.example",
            "dns",
            "wild.example",
        ]);
        let route = json!([{"destination": {"host": "b"}}]);
        match kind {
            "VirtualService" => match rng.below(6) {
                0 => json!({"hosts": [host], "tcp": [{"route": route}]}),
                1 => {
                    json!({"hosts": [host], "tls": [{"match": [{"sniHosts": [host]}], "route": route}]})
                }
                2 => {
                    json!({"hosts": ["*"], "gateways": ["g0", "mesh"], "http": [{"route": [{"destination": {"host": "b", "port": {"number": 80}}}]}]})
                }
                3 => {
                    json!({"hosts": [host, "c.example"], "http": [{"match": [{"uri": {"prefix": "/a"}}], "redirect": {"uri": "/b"}}, {"route": route}]})
                }
                4 => {
                    json!({"hosts": [host], "gateways": ["demo/g0"], "http": [{"match": [{"uri": {"exact": "/a"}}], "directResponse": {"status": 200}}, {"route": [{"destination": {"host": "a", "port": {"number": 80}}}]}]})
                }
                _ => {
                    json!({"hosts": [host], "http": [{"route": [{"destination": {"host": "a", "subset": "v1"}, "weight": 20}, {"destination": {"host": "b"}, "weight": 80}]}]})
                }
            },
            "DestinationRule" => {
                json!({"host": host, "trafficPolicy": {"loadBalancer": {"simple": "RANDOM"}}, "subsets": [{"name": "v1", "labels": {"version": "v1"}}]})
            }
            "Gateway" => match rng.below(4) {
                0 => {
                    json!({"selector": {"istio": "edge"}, "servers": [{"port": {"number": 80, "name": "a", "protocol": "HTTP"}, "hosts": ["*"]}]})
                }
                1 => {
                    json!({"selector": {"istio": "edge"}, "servers": [{"port": {"number": 443, "name": "b", "protocol": "HTTPS"}, "hosts": ["c.example"],
                    "tls": {"mode": "MUTUAL", "serverCertificate": self.file("cert-chain"), "privateKey": self.file("key"), "caCertificates": self.file("root-cert")}}]})
                }
                2 => {
                    json!({"selector": {"istio": "edge"}, "servers": [{"port": {"number": 443, "name": "b", "protocol": "HTTPS"}, "hosts": ["c.example"],
                    "tls": {"mode": rng.one(&["SIMPLE", "MUTUAL"]), "credentialName": rng.one(&["one", "two"])}},
                    {"port": {"number": 8443, "name": "e", "protocol": "TLS"}, "hosts": ["*"], "tls": {"mode": "SIMPLE", "credentialName": "one"}},
                    {"port": {"number": 8444, "name": "f", "protocol": "HTTPS"}, "hosts": ["*"], "tls": {"mode": "SIMPLE", "credentialName": "two"}}]})
                }
                _ => {
                    json!({"selector": {"istio": "edge"}, "servers": [{"port": {"number": 8443, "name": "c", "protocol": "TLS"}, "hosts": ["*.example"], "tls": {"mode": "PASSTHROUGH"}},
                    {"port": {"number": 9000, "name": "d", "protocol": "TCP"}, "hosts": ["*"]}]})
                }
            },
            "ServiceEntry" => {
                json!({"hosts": [format!("e{}.example", rng.below(4))], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}, {"number": 443, "name": "tls", "protocol": "TLS"}],
                "resolution": rng.one(&["NONE", "DNS", "DNS_ROUND_ROBIN", "STATIC"]), "location": rng.one(&["MESH_EXTERNAL", "MESH_INTERNAL"])})
            }
            "WorkloadEntry" => {
                json!({"address": rng.one(&["10.0.0.7", "10.0.0.1", "2001:db8::7"]), "labels": {"app": "a", "version": rng.one(&["v1", "v2"])}, "ports": {"http": 8080}})
            }
            "Sidecar" => json!({"egress": [{"hosts": ["./*", "istio-system/*"]}]}),
            "PeerAuthentication" => {
                json!({"mtls": {"mode": rng.one(&["STRICT", "PERMISSIVE", "DISABLE"])}})
            }
            "RequestAuthentication" => json!({"jwtRules": [{"issuer": "i", "jwks": KEYS[0]}]}),
            "AuthorizationPolicy" if rng.chance(25) => {
                json!({"action": "CUSTOM", "provider": {"name": rng.one(&["http", "grpc"])}, "rules": [{"to": [{"operation": {"paths": ["/a"]}}]}]})
            }
            "AuthorizationPolicy" => {
                json!({"action": rng.one(&["ALLOW", "DENY", "AUDIT"]), "rules": [{"from": [{"source": {"namespaces": ["demo"]}}], "to": [{"operation": {"paths": ["/a"]}}]}]})
            }
            _ => json!({}),
        }
    }

    fn file(&self, name: &str) -> String {
        format!("{}/{name}.pem", self.certificates)
    }

    /// Changes one field, or one of a field's own.
    fn change(
        &self,
        rng: &mut Rng,
        message: &Message,
        object: &mut Map<String, Json>,
        depth: usize,
    ) {
        let present: Vec<&Field> = message
            .fields
            .iter()
            .filter(|field| object.contains_key(field.json))
            .collect();
        let is_inside = rng.chance(70) && !present.is_empty();
        let field = if is_inside {
            present[rng.below(present.len())]
        } else if message.fields.is_empty() {
            return;
        } else {
            &message.fields[rng.below(message.fields.len())]
        };
        if LEFT_OUT.contains(&field.json) {
            return;
        }
        match object.get_mut(field.json) {
            Some(value) if rng.chance(80) => self.change_value(rng, field, value, depth),
            Some(_) if rng.chance(50) => drop(object.remove(field.json)),
            _ => {
                if let Some(group) = field.oneof {
                    let others = message.fields.iter().filter(|one| one.oneof == Some(group));
                    others.for_each(|one| drop(object.remove(one.json)));
                }
                let value = self.fresh(rng, field, depth);
                object.insert(field.json.to_owned(), value);
            }
        }
    }

    fn change_value(&self, rng: &mut Rng, field: &Field, value: &mut Json, depth: usize) {
        match value {
            Json::Array(items) if !items.is_empty() && rng.chance(70) => {
                let at = rng.below(items.len());
                self.change_item(rng, field, &mut items[at], depth);
            }
            Json::Array(items) if !items.is_empty() && rng.chance(30) => drop(items.remove(0)),
            Json::Array(items) if items.len() < 5 => items.push(self.item(rng, field, depth)),
            Json::Object(entries) if matches!(field.shape, Shape::Map(_)) => {
                entries.insert(self.key(rng, field), self.item(rng, field, depth));
            }
            _ => self.change_item(rng, field, value, depth),
        }
    }

    fn change_item(&self, rng: &mut Rng, field: &Field, item: &mut Json, depth: usize) {
        match (field.kind, item) {
            (FieldKind::Message(message), Json::Object(object)) => {
                self.change(rng, message, object, depth + 1);
            }
            (_, item) => *item = self.item(rng, field, depth),
        }
    }

    fn fresh(&self, rng: &mut Rng, field: &Field, depth: usize) -> Json {
        match field.shape {
            Shape::One => self.item(rng, field, depth),
            Shape::List => (0..=rng.below(2))
                .map(|_| self.item(rng, field, depth))
                .collect(),
            Shape::Map(_) => {
                let entries = (0..=rng.below(2))
                    .map(|_| (self.key(rng, field), self.item(rng, field, depth)));
                Json::Object(entries.collect())
            }
        }
    }

    fn key(&self, rng: &mut Rng, field: &Field) -> String {
        let all = match (field.shape, field.json) {
            (Shape::Map(Key::Uint32), _) => &["80", "90", "0", "65536"][..],
            (_, "labels" | "matchLabels" | "sourceLabels" | "selector") => LABELS,
            (_, "ports") => &["http", "tls"],
            _ if rng.chance(20) => ODD,
            _ => &[
                "x-user",
                ":authority",
                ":path",
                "x",
                "a/b/*",
                ":method",
                "cookie",
                "user-agent",
                "host",
            ],
        };
        rng.one(all).to_owned()
    }

    fn item(&self, rng: &mut Rng, field: &Field, depth: usize) -> Json {
        self.scalar(rng, field.kind, field.json, depth)
    }

    fn scalar(&self, rng: &mut Rng, kind: FieldKind, name: &str, depth: usize) -> Json {
        match kind {
            FieldKind::String => self.text(rng, name).into(),
            FieldKind::Bytes => rng.one(&["", "YQ==", "AAECAw=="]).into(),
            FieldKind::Bool => rng.chance(50).into(),
            FieldKind::Int32 | FieldKind::Int64 if rng.chance(10) => (-1).into(),
            FieldKind::Int32 | FieldKind::Int64 | FieldKind::Uint32 | FieldKind::Uint64 => {
                NUMBERS[rng.below(NUMBERS.len())].into()
            }
            FieldKind::Float | FieldKind::Double => {
                json!([0.0, 0.001, 0.1, 50.0, 99.9999, 100.0, 101.0, 1e30][rng.below(8)])
            }
            FieldKind::Enum(values) => values.values[rng.below(values.values.len())].0.into(),
            FieldKind::Duration => rng.one(DURATIONS).into(),
            FieldKind::Timestamp => "2020-01-01T00:00:00Z".into(),
            FieldKind::Wrapper(inner) => self.scalar(rng, *inner, name, depth),
            FieldKind::Struct | FieldKind::Any => json!({}),
            FieldKind::Message(message) => {
                let mut object = Map::new();
                if depth < 6 {
                    for _ in 0..=rng.below(3) {
                        let field = &message.fields[rng
                            .below(message.fields.len().max(1))
                            .min(message.fields.len().saturating_sub(1))];
                        let is_free = field.oneof.is_none_or(|group| {
                            let of = message.fields.iter().filter(|one| one.oneof == Some(group));
                            of.into_iter().all(|one| !object.contains_key(one.json))
                        });
                        if is_free && !LEFT_OUT.contains(&field.json) {
                            object.insert(field.json.to_owned(), self.fresh(rng, field, depth + 1));
                        }
                    }
                }
                object.into()
            }
        }
    }

    fn text(&self, rng: &mut Rng, name: &str) -> String {
        match name {
            "serverCertificate" | "clientCertificate" => return self.file("cert-chain"),
            "privateKey" => return self.file("key"),
            "caCertificates" => return self.file("root-cert"),
            _ => {}
        }
        let all = match name {
            _ if rng.chance(8) => ODD,
            "host" | "hosts" | "notHosts" | "sniHosts" | "sni" | "authority" | "targetHost" => {
                HOSTS
            }
            "labels" | "matchLabels" | "sourceLabels" | "selector" => {
                &["a", "a", "v1", "v2", "edge", "istio"]
            }
            "subset" => &["v1", "v2", "none"],
            "gateways" => &["mesh", "g0", "demo/g0", "g1", "none/g"],
            "exportTo" | "namespaces" | "notNamespaces" | "sourceNamespace" => NAMESPACES,
            "regex" | "match" => REGEXES,
            "exact" | "prefix" | "uri" | "rewrite" | "path" | "paths" | "notPaths"
            | "prefixRewrite" => PATHS,
            "address" | "addresses" | "bind" | "defaultEndpoint" => ADDRESSES,
            "destinationSubnets" | "sourceSubnet" | "ipBlocks" | "notIpBlocks"
            | "remoteIpBlocks" | "notRemoteIpBlocks" => BLOCKS,
            "protocol" => &[
                "HTTP",
                "HTTPS",
                "TCP",
                "TLS",
                "HTTP2",
                "GRPC",
                "GRPC-WEB",
                "MONGO",
                "MYSQL",
                "REDIS",
                "UDP",
                "HTTP_PROXY",
            ],
            "retryOn" => &[
                "5xx",
                "connect-failure,refused-stream",
                "503",
                "gateway-error,504",
                "retriable-headers",
                "none",
            ],
            "ports" | "notPorts" => &["80", "90", "0", "65536"],
            "methods" | "notMethods" | "allowMethods" => &["GET", "POST", "*", "G*", "get"],
            "principals"
            | "notPrincipals"
            | "requestPrincipals"
            | "notRequestPrincipals"
            | "subjectAltNames" => &[
                "cluster.local/ns/demo/sa/a",
                "*",
                "i/*",
                "*/sa/a",
                "spiffe://cluster.local/ns/demo/sa/a",
                "a.example",
            ],
            "key" => CONDITIONS,
            "values" | "notValues" => &[
                "a",
                "10.0.0.0/8",
                "demo",
                "*",
                "a*",
                "80",
                "i/s",
                "[",
                "10.0.0.1",
            ],
            "jwks" => KEYS,
            "jwksUri" => &["https://keys.example/a", "http://127.0.0.1/a", "ftp://a"],
            "cipherSuites" => CIPHERS,
            "credentialName" | "caCertCredentialName" | "credentialNames" => {
                &["one", "two", "demo/one", "kubernetes://two", "other/one"]
            }
            "verifyCertificateSpki" => &["eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg="],
            "locality" | "from" | "to" => &["a", "a/b", "a/b/c", "*", "a/*"],
            "scheme" => &["http", "https", "ftp"],
            "grpcStatus" => &["UNAVAILABLE", "OK", "14", "NONE"],
            "string" => &["", "hello", "{}", "%PROTOCOL%"],
            "failoverPriority" => &["topology.kubernetes.io/region", "version", "version=v1"],
            _ => WORDS,
        };
        rng.one(all).to_owned()
    }
}

pub(crate) fn is_valid(object: &Json) -> bool {
    let (read, findings) = config::check(object);
    read.is_some() && !has_errors(&findings)
}
