//! RequestAuthentications, by requests with tokens that come in to a workload, and what its application sees of them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::backend::{Backend, Load};
use crate::issuer::Issuer;
use crate::place::{Place, documents, until};
use crate::policies::{Clients, comes, connect, doors, outcome, policy, workload, workload_by};
use crate::proxy::{Address, in_sync};
use crate::relay::Relay;
use crate::secured::Root;
use crate::signer::{Signer, now, set};

const ROWS: &str = include_str!("../../../../tests/data/tokens.rows");

/// Policies that hold together, each with its kind and namespace, and the rows behind them with their lines.
type Group<'a> = (Vec<[&'a str; 3]>, Vec<(usize, &'a str)>);

fn groups(text: &str) -> Vec<Group<'_>> {
    let mut all: Vec<Group<'_>> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (word, rest) = line.split_once(' ').unwrap();
        let kind = match word {
            "tokens" => "RequestAuthentication",
            "policy" => "AuthorizationPolicy",
            _ => {
                all.last_mut().unwrap().1.push((at + 1, line));
                continue;
            }
        };
        if all.last().is_none_or(|(_, rows)| !rows.is_empty()) {
            all.push((Vec::new(), Vec::new()));
        }
        let (namespace, spec) = rest.split_once(' ').unwrap();
        all.last_mut().unwrap().0.push([kind, namespace, spec]);
    }
    all
}

fn replaced(text: &str, mark: char, by: &BTreeMap<&str, String>) -> String {
    let mut text = text.to_owned();
    // The longest name first: one may begin another.
    for (name, value) in by.iter().rev() {
        text = text.replace(&format!("{mark}{name}"), value);
    }
    text
}

#[test]
fn request_authentications_decide_which_tokens_are_accepted() {
    let (rsa, curve) = (Signer::rsa("rsa"), Signer::curve("ec"));
    // Of the same name.
    let stranger = Signer::rsa("rsa");
    let off = json!({"keys": [{"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"}]});
    let keys = BTreeMap::from([
        ("rsa", set(&[&rsa])),
        ("ec", set(&[&curve])),
        ("both", set(&[&rsa, &curve])),
        ("curve", off.to_string()),
    ]);
    let soon = now() + 1000;
    let claims = |more: Value| {
        let mut claims = json!({"iss": "i", "sub": "alice", "exp": soon});
        let more = more.as_object().unwrap().clone();
        claims.as_object_mut().unwrap().extend(more);
        claims
    };
    let unsigned = URL_SAFE_NO_PAD.encode(json!({"alg": "none"}).to_string());
    let unsigned = [
        unsigned,
        URL_SAFE_NO_PAD.encode(claims(json!({})).to_string()),
    ]
    .join(".");
    let tokens = BTreeMap::from([
        ("rsa", rsa.token(&claims(json!({})))),
        ("ec", curve.token(&claims(json!({"sub": "bob"})))),
        ("j", curve.token(&claims(json!({"iss": "j"})))),
        ("stranger", rsa.token(&claims(json!({"iss": "s"})))),
        ("forged", stranger.token(&claims(json!({})))),
        ("expired", rsa.token(&claims(json!({"exp": now() - 1000})))),
        ("early", rsa.token(&claims(json!({"nbf": soon})))),
        ("none", format!("{unsigned}.")),
        ("audience", rsa.token(&claims(json!({"aud": "a"})))),
        ("audiences", rsa.token(&claims(json!({"aud": ["x", "a"]})))),
        ("presenter", rsa.token(&claims(json!({"azp": "app"})))),
        (
            "claims",
            rsa.token(&claims(json!({
                "groups": ["dev", "admin"], "scope": "read write", "roles": "r1 r2", "realm": {"access": "full-1"},
            }))),
        ),
    ]);
    let web = Address::new();
    let application = Backend::new([127, 0, 0, 1], "web");
    let application = SocketAddr::from(([127, 0, 0, 1], application.port));
    let discovery = Place::new()
        .with("mesh", "enableTracing: false\nenableAutoMtls: true\n")
        .with("config/all.yaml", &doors("begin", application))
        .start();
    let root = Root::new();
    let web = workload(&discovery, web, &root);
    let mut clients = Clients::new(root);
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (at, (policies, rows)) in groups(ROWS).into_iter().enumerate() {
        let mark = format!("group-{at}");
        let mut config = vec![doors(&mark, application)];
        for (number, [kind, namespace, spec]) in policies.iter().enumerate() {
            let name = format!("p{number}");
            config.push(policy(kind, namespace, &name, &replaced(spec, '@', &keys)));
        }
        comes(&discovery, &web, &mark, &config);
        for (line, row) in rows {
            let (incoming, expected) = row.split_once(" => ").unwrap();
            let incoming = replaced(incoming, '$', &tokens);
            let outcome = outcome(&incoming, web.ip, &mut clients);
            if outcome.to_string() != expected {
                wrong.push(format!("line {line}: {row}: {outcome}"));
            }
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 75, "{count}");

    // The last of them, for whoever looks.
    let all = discovery.json("/debug/authorizationz?proxyID=web.demo");
    let policies = &all["authorization_policies"]["namespace_to_v1beta1_policies"]["demo"];
    assert_eq!(policies[0]["name"], "p1");
    let rules = &policies[0]["authorization_policy"]["rules"];
    let who = "cluster.local/ns/demo/sa/client";
    assert_eq!(rules[0]["from"][0]["source"]["principals"][0], who);
    let requests = &all["request_authentications"]["demo"];
    assert_eq!(
        requests[0]["request_authentication"]["jwtRules"][0]["issuer"],
        "i"
    );
    assert_eq!(
        discovery.json("/debug/authenticationz?proxyID=web.demo"),
        json!([])
    );
    for (path, answer) in [
        ("authorizationz?proxyID=nobody.demo", (404, "{}")),
        ("authenticationz?proxyID=nobody.demo", (404, "[]")),
        ("authenticationz", (400, "want ?proxyID=NAME.NAMESPACE")),
    ] {
        let (status, body) = discovery.get(&format!("/debug/{path}"));
        assert_eq!((status, body.trim()), answer, "{path}");
    }
    assert!(discovery.json("/debug/authorizationz")["request_authentications"]["demo"].is_array());
}

/// Returns the parts of a request that the application sees.
fn seen(to: SocketAddr, application: &Backend, headers: &str) -> String {
    let mut stream = connect(Ipv4Addr::LOCALHOST, to);
    let text = format!("GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    application.seen.last().1
}

/// Nobody but the proxy says to an application what a token said.
#[test]
fn applications_receive_the_claims_of_a_token_and_none_that_a_client_puts_in_its_place() {
    let signer = Signer::curve("ec");
    let address = Address::new();
    let backend = Backend::new([127, 0, 0, 1], "web");
    let application = SocketAddr::from(([127, 0, 0, 1], backend.port));
    let spec = |forward: bool| {
        format!(
            "{{jwtRules: [{{issuer: i, jwks: '{}', outputPayloadToHeader: x-payload, forwardOriginalToken: {forward}, \
             outputClaimToHeaders: [{{header: x-group, claim: realm.group}}]}}]}}",
            set(&[&signer])
        )
    };
    let config = |mark: &str, forward| {
        let tokens = policy("RequestAuthentication", "demo", "p", &spec(forward));
        [doors(mark, application), tokens]
    };
    let discovery = Place::new()
        .with("config/all.yaml", &documents(&config("first", false)))
        .start();
    let web = workload(&discovery, address, &Root::new());
    comes(&discovery, &web, "first", &config("first", false));
    let to = SocketAddr::from((web.ip, 9080));
    let claims =
        json!({"iss": "i", "sub": "alice", "realm": {"group": "dev"}, "exp": now() + 1000});
    let token = signer.token(&claims);
    let spoofed = "X-Payload: spoofed\r\nx-group: spoofed\r\n";
    let with = format!("{spoofed}Authorization: Bearer {token}\r\n");
    let head = seen(to, &backend, &with).to_ascii_lowercase();
    let payload = token.split('.').nth(1).unwrap().to_ascii_lowercase();
    assert!(
        head.contains(&format!("x-payload: {payload}\r\n")),
        "{head}"
    );
    assert!(head.contains("x-group: dev\r\n"), "{head}");
    assert!(
        !head.contains("spoofed") && !head.contains("authorization"),
        "{head}"
    );
    let head = seen(to, &backend, spoofed).to_ascii_lowercase();
    assert!(!head.contains("spoofed"), "{head}");
    comes(&discovery, &web, "second", &config("second", true));
    let head = seen(to, &backend, &with);
    assert!(head.contains(&format!("Bearer {token}")), "{head}");
}

fn status(to: SocketAddr, token: &str) -> u16 {
    let mut stream = connect(Ipv4Addr::LOCALHOST, to);
    let text = format!(
        "GET / HTTP/1.1\r\nHost: web\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    let _read = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    status.unwrap_or_default()
}

/// Requests without end, each with the token that is current; whether all were let in.
struct TokenLoad {
    /// Held by each request until its answer.
    token: Arc<Mutex<String>>,
    load: Load,
}

impl TokenLoad {
    fn new(to: SocketAddr, token: &str) -> Self {
        let token = Arc::new(Mutex::new(token.to_owned()));
        let current = Arc::clone(&token);
        let load = Load::of(move || {
            let status = status(to, &current.lock().unwrap());
            std::thread::sleep(Duration::from_millis(5));
            (status == 200)
                .then_some(())
                .ok_or_else(|| status.to_string())
        });
        Self { token, load }
    }

    /// Makes it the token of the next request; none has another one any more.
    fn take(&self, token: &str) {
        token.clone_into(&mut self.token.lock().unwrap());
    }
}

#[test]
fn keys_of_an_issuer_are_exchanged_without_a_lost_request() {
    let (first, second) = (Signer::curve("first"), Signer::rsa("second"));
    let claims = json!({"iss": "i", "sub": "alice", "exp": now() + 1000});
    let [old, new] = [&first, &second].map(|signer| signer.token(&claims));
    let issuer = Issuer::of(set(&[&first]));
    let own = Address::new();
    let address = Address::new();
    let backend = Backend::new([127, 0, 0, 1], "web");
    let application = SocketAddr::from(([127, 0, 0, 1], backend.port));
    let spec = format!(
        "{{jwtRules: [{{issuer: i, jwksUri: '{}'}}]}}",
        issuer.url("/keys")
    );
    let config = [
        doors("first", application),
        policy("RequestAuthentication", "demo", "p", &spec),
    ];
    let mut discovery = Place::new()
        .with("config/all.yaml", &documents(&config))
        .env("PILOT_JWT_PUB_KEY_REFRESH_INTERVAL", "1s")
        .arg(&format!("--grpcAddr={}:15010", own.ip))
        .arg("--jwksAllow=127.0.0.1")
        .start();
    let relay = Relay::new((own.ip, 15010).into());
    let web = workload_by(relay.port, &discovery.place, address, &Root::new());
    comes(&discovery, &web, "first", &config);
    let to = SocketAddr::from((web.ip, 9080));
    let becomes = |token: &str, expected: u16| {
        until(&format!("{expected}"), || {
            (status(to, token) == expected).then_some(())
        });
    };
    becomes(&old, 200);
    assert_eq!(status(to, &new), 401);
    let load = TokenLoad::new(to, &old);
    // Both are known for a while, and signers change meanwhile.
    issuer.say(set(&[&first, &second]));
    becomes(&new, 200);
    load.take(&new);
    issuer.say(set(&[&second]));
    becomes(&old, 401);
    // An issuer that is away, or says something else, changes nothing.
    for turn in 0..2 {
        let asked = issuer.asked();
        if turn == 0 {
            issuer.fall_silent();
        } else {
            issuer.say("{}");
        }
        until("it was asked", || {
            (issuer.asked() > asked + 1).then_some(())
        });
    }
    let rows = discovery.json("/debug/configz?kind=RequestAuthentication");
    let message = rows[0]["status"]["messages"][0]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("the last fetched keys stay in use: "),
        "{message}"
    );
    // A start with an issuer that answers takes no key from anybody.
    issuer.say(set(&[&second]));
    discovery.kill();
    relay.cut();
    discovery.again();
    // Without a key of the issuer its listeners would be others.
    in_sync(&discovery, "web");
    load.load.end_after(100);
}
