//! Keys that are fetched from issuers of tokens: good ones, and issuers that mean no good.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer as Authority, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use crate::issuer::{Issuer, ok};
use crate::place::{Discovery, Place, documents, until};

/// Nobody looks whether it is on its curve.
const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"}]}"#;

fn policy(name: &str, rule: &str) -> String {
    format!(
        "apiVersion: security.istio.io/v1\nkind: RequestAuthentication\nmetadata: {{name: {name}, namespace: demo}}\n\
         spec: {{jwtRules: [{{{rule}}}]}}\n"
    )
}

fn fetched(name: &str, url: &str) -> String {
    policy(name, &format!("issuer: i, jwksUri: '{url}'"))
}

/// Returns the messages about a policy.
fn messages(discovery: &Discovery, name: &str) -> Vec<String> {
    let rows = discovery.json("/debug/configz?kind=RequestAuthentication");
    let mut rows = rows.as_array().unwrap().iter();
    let row = rows.find(|row| row["metadata"]["name"] == name).unwrap();
    let messages = row["status"]["messages"].as_array().unwrap().iter();
    messages
        .map(|one| one.as_str().unwrap().to_owned())
        .collect()
}

fn until_message(discovery: &Discovery, name: &str, message: &str) {
    until(&format!("{name}: {message}"), || {
        let all = messages(discovery, name);
        all.iter().any(|one| one.contains(message)).then_some(())
    });
}

fn count(discovery: &Discovery, result: &str) -> f64 {
    discovery.metric(&format!(
        "gudgeon_jwks_fetches_total{{result=\"{result}\"}}"
    ))
}

#[test]
fn keys_are_fetched_and_policies_that_have_them_have_no_message() {
    let issuer = Issuer::new(|path, to| match path {
        "/keys?a=secret" => ok(KEYS, to),
        other => write!(to, "HTTP/1.1 404 {other}\r\nContent-Length: 0\r\n\r\n"),
    });
    // Of a document that says where they are.
    let realm = Issuer::new({
        let to_keys = json!({"issuer": "i", "jwks_uri": issuer.url("/keys?a=secret")}).to_string();
        move |path, to| {
            assert_eq!(path, "/realm/.well-known/openid-configuration");
            ok(&to_keys, to)
        }
    });
    let url = issuer.url("/keys?a=secret").replace("127", "me:secret@127");
    let config = [
        fetched("a", &url),
        fetched("b", &url),
        policy("c", &format!("issuer: '{}'", realm.url("/realm/"))),
        fetched("d", &issuer.url("/other")),
    ];
    let discovery = Place::new()
        .with("config/a.yaml", &documents(&config))
        .arg("--jwksAllow=127.0.0.1,10.0.0.0/8")
        .start();
    // Everything was asked for when it began to serve.
    assert_eq!(discovery.logged("cannot fetch keys from"), 1);
    for name in ["a", "b", "c"] {
        assert_eq!(messages(&discovery, name), [""; 0], "{name}");
    }
    let message =
        "warning: spec.jwtRules[0]: tokens are refused, no keys: the response is 404 Not Found";
    assert_eq!(messages(&discovery, "d"), [message]);
    assert_eq!((count(&discovery, "success"), realm.asked()), (2.0, 1));
    assert_eq!(discovery.metric("gudgeon_jwks_without_keys"), 1.0);
    let (_, page) = discovery.get("/debug");
    let row = format!("<tr><td>http://{}<td>1<td>", issuer.address);
    assert!(
        page.contains("Keys of issuers") && page.contains(&row),
        "{page}"
    );
    assert!(page.contains("none: tokens are refused"), "{page}");
    assert!(!page.contains("secret"), "{page}");
    assert_eq!(discovery.logged("secret"), 0);
}

/// Nobody who writes an object makes this program ask its own machine.
#[test]
fn addresses_of_the_machine_are_not_asked_for_keys() {
    let issuer = Issuer::of(KEYS);
    let port = issuer.address.port();
    let places = [
        ("name", format!("http://localhost:{port}"), "is loopback"),
        (
            "plain",
            format!("http://127.0.0.1:{port}/keys"),
            "is loopback",
        ),
        ("six", format!("http://[::1]:{port}"), "is loopback"),
        (
            "mapped",
            format!("http://[::ffff:127.0.0.1]:{port}"),
            "is loopback",
        ),
        ("any", format!("http://0.0.0.0:{port}"), "is unspecified"),
        (
            "cloud",
            "http://169.254.169.254/latest".to_owned(),
            "is link-local",
        ),
        ("tls", format!("https://127.0.0.1:{port}"), "is loopback"),
        (
            "server",
            "http://10.96.0.1".to_owned(),
            "is the API server's",
        ),
        ("issuer", String::new(), "is loopback"),
    ];
    let config = places.each_ref().map(|(name, url, _)| match *name {
        "issuer" => policy(name, &format!("issuer: 'http://127.0.0.1:{port}'")),
        _ => fetched(name, url),
    });
    let discovery = Place::new()
        .with("config/a.yaml", &documents(&config))
        .env("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        .arg("--jwksAllow=127.0.0.2")
        .start();
    for (name, _, message) in &places {
        until_message(&discovery, name, message);
        until_message(&discovery, name, "see --jwksAllow");
    }
    assert!(count(&discovery, "address") >= 9.0);
    assert_eq!(issuer.asked(), 0);
}

#[test]
fn hostile_issuers_cost_a_bounded_time_and_nothing_else() {
    let good = Issuer::of(KEYS);
    let other = Issuer::of(KEYS);
    let endless = Issuer::new(|_, to| {
        to.write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"keys\": [")?;
        loop {
            to.write_all(&[b' '; 4096])?;
        }
    });
    let slow = Issuer::new(|_, to| {
        to.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")?;
        loop {
            to.write_all(b" ")?;
            to.flush()?;
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    // Fields so long that the head has too many bytes before it has too many fields, however much of it comes at once.
    let heads = Issuer::new(|_, to| {
        let field = format!("x: {}\r\n", "x".repeat(1000));
        to.write_all(b"HTTP/1.1 200 OK\r\n")?;
        loop {
            to.write_all(field.as_bytes())?;
        }
    });
    let interim = Issuer::new(|_, to| {
        let heads = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(1000);
        loop {
            to.write_all(heads.as_bytes())?;
        }
    });
    let redirect = Issuer::new({
        let to_other = other.url("/keys");
        move |_, to| {
            write!(
                to,
                "HTTP/1.1 302 Found\r\nLocation: {to_other}\r\nContent-Length: 0\r\n\r\n"
            )
        }
    });
    // 1,024 bits, the last of which is set.
    let modulus = format!("{}8", "_".repeat(170));
    let key = |at: usize| json!({"kty": "RSA", "kid": at.to_string(), "n": modulus, "e": "AQAB"});
    let text = |count: usize| json!({"keys": (0..count).map(key).collect::<Vec<_>>()}).to_string();
    let many = Issuer::of(text(4_000));
    let more = Issuer::of(text(10_000));
    let secret = Issuer::of(r#"{"keys": [{"kty": "oct", "k": "aHVzaA"}]}"#);
    let junk = Issuer::of("[".repeat(100_000));
    let binary = Issuer::new(|_, to| to.write_all(&[0xff; 1000]));
    let moved = Issuer::new({
        let document = json!({"jwks_uri": "file:///etc/passwd"}).to_string();
        move |_, to| ok(&document, to)
    });
    let all = [
        ("endless", &endless, "the response exceeds 1048576 bytes"),
        ("slow", &slow, "no response within 1s"),
        ("heads", &heads, "the response exceeds 65536 bytes"),
        ("interim", &interim, "the response exceeds 65536 bytes"),
        (
            "redirect",
            &redirect,
            "the response is 302 Found; redirects are not followed",
        ),
        ("more", &more, "the response exceeds 1048576 bytes"),
        ("secret", &secret, "has no key that proxies can use"),
        ("junk", &junk, "not a JSON key set with keys"),
        ("binary", &binary, "cannot read the response: "),
    ];
    let mut config: Vec<_> = all
        .iter()
        .map(|(name, issuer, _)| {
            let url = issuer.url("/keys");
            policy(name, &format!("issuer: i, jwksUri: '{url}', timeout: 1s"))
        })
        .collect();
    config.push(policy("moved", &format!("issuer: '{}'", moved.url(""))));
    config.push(fetched("many", &many.url("/keys")));
    config.push(fetched("good", &good.url("/keys")));
    let discovery = Place::new()
        .with("config/a.yaml", &documents(&config))
        .arg("--jwksAllow=127.0.0.1")
        .start();
    for (name, _, message) in all {
        until_message(&discovery, name, message);
    }
    until_message(&discovery, "moved", "not a URL");
    until("good keys", || {
        messages(&discovery, "good").is_empty().then_some(())
    });
    // The first hundred of them.
    until_message(
        &discovery,
        "many",
        "3900 keys that were fetched do not count",
    );
    assert_eq!(other.asked(), 0);
    let resident = discovery.metric("process_resident_memory_bytes");
    assert!(resident < 100e6, "{resident}");
    assert_eq!(discovery.get("/ready").0, 200);
}

/// Proxies that have keys lose none because this program starts again; but no issuer keeps it from serving.
#[test]
fn a_start_waits_for_keys_but_not_for_ever() {
    let issuer = Issuer::new(|_, to| {
        std::thread::sleep(Duration::from_secs(60));
        ok(KEYS, to)
    });
    let rule = format!("issuer: i, jwksUri: '{}', timeout: 9s", issuer.url("/keys"));
    let place = Place::new()
        .with("config/a.yaml", &policy("a", &rule))
        .arg("--jwksAllow=127.0.0.1");
    let begun = Instant::now();
    let discovery = place.begin();
    let mut waits = false;
    until("readiness", || {
        let (status, body) = discovery.get("/ready");
        waits |= status == 503 && body.contains("waiting for keys of 1 jwksUri");
        (status == 200).then_some(())
    });
    // A machine may be too slow to be asked meanwhile.
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(4900), "{took:?}");
    assert!(waits || took > Duration::from_secs(8), "{took:?}");
    assert_eq!(count(&discovery, "timeout"), 0.0);
    let message = "warning: spec.jwtRules[0]: tokens are refused until keys are fetched";
    assert_eq!(messages(&discovery, "a"), [message]);
}

#[test]
fn jwks_fetch_trusts_system_roots() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&key).unwrap().pem();
    let authority = Authority::new(params, key);
    let serve = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let leaf = params.signed_by(&key, &authority).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from(leaf.der().to_vec())], key)
            .unwrap();
        let config = Arc::new(config);
        Issuer::over(
            move |stream| {
                let connection = ServerConnection::new(Arc::clone(&config)).ok()?;
                Some(Box::new(StreamOwned::new(connection, stream)))
            },
            |_, to| {
                ok(KEYS, to)?;
                to.flush()
            },
        )
    };
    let (known, other) = (serve("localhost"), serve("other.example"));
    let at = |issuer: &Issuer| format!("https://localhost:{}/keys", issuer.address.port());
    let config = [fetched("known", &at(&known)), fetched("other", &at(&other))];
    let place = Place::new()
        .with("config/a.yaml", &documents(&config))
        .with("root.pem", &root)
        .arg("--jwksAllow=127.0.0.1,::1");
    let file = place.path("root.pem").to_str().unwrap().to_owned();
    let discovery = place.env("SSL_CERT_FILE", &file).start();
    until("keys", || {
        messages(&discovery, "known").is_empty().then_some(())
    });
    until_message(&discovery, "other", "tokens are refused, no keys: no TLS: ");
    // Without that root nobody is known.
    let stranger = Place::new()
        .with("config/a.yaml", &fetched("known", &at(&known)))
        .arg("--jwksAllow=127.0.0.1,::1")
        .start();
    until_message(&stranger, "known", "no TLS: ");
}
