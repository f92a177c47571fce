//! Real files and a loader that knows three words.

use std::fs;
use std::path::Path;

use inject::{ConfigurationError, Outcome, Request};
use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::json;

use super::*;
use crate::config_file::chosen;
use crate::exposition::ExpositionFormat;
use crate::file;
use crate::tls::HALF_WAY;

/// Texts are valid unless they contain "broken"; a config with "needs new" is valid beside values with "new", and the load of one
/// with "needs the file " and a path panics as long as there is no such file.
#[derive(Debug, PartialEq, Eq)]
struct Three(Option<String>, Option<String>, Option<String>);

impl ActiveConfiguration for Three {
    fn load(
        sources: Sources<'_>,
        _: &Parameters,
    ) -> Result<(Self, Vec<String>), ConfigurationError> {
        let Sources {
            config,
            values,
            mesh,
        } = sources;
        let named = [
            (SourceKind::Config, config),
            (SourceKind::Values, values),
            (SourceKind::Mesh, mesh),
        ];
        for (source, text) in named {
            if text.is_some_and(|text| text.contains("broken")) {
                return Err(ConfigurationError {
                    source,
                    cause: "line 1: it says so".into(),
                });
            }
        }
        if let Some(path) = config.and_then(|text| text.strip_prefix("needs the file ")) {
            assert!(Path::new(path).exists());
        }
        if config == Some("needs new") && values != Some("new") {
            return Err(ConfigurationError {
                source: SourceKind::Config,
                cause: "line 1: needs new values".into(),
            });
        }
        let own = |text: Option<&str>| text.map(ToOwned::to_owned);
        Ok((Self(own(config), own(values), own(mesh)), Vec::new()))
    }

    fn inject(&self, _: &Request, _: &Value) -> Outcome {
        Outcome::Skipped {
            reason: "policy",
            warnings: Vec::new(),
        }
    }

    fn describe(&self) -> Value {
        json!({})
    }
}

struct Place {
    root: tempfile::TempDir,
    metrics: Arc<InjectorMetrics>,
}

impl Place {
    fn new() -> Self {
        let this = Self {
            root: tempfile::tempdir().unwrap(),
            metrics: Arc::new(InjectorMetrics::new(SystemTime::now())),
        };
        this.write("config", "one");
        this.write("values", "one");
        this.rotate();
        this
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn pair() -> (String, String) {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let params = CertificateParams::new(vec!["a.example".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn rotate(&self) {
        let (chain, key) = Self::pair();
        self.write("chain", &chain);
        self.write("key", &key);
    }

    fn wanted(&self) -> WantedFiles {
        let named = |flag, name| FlaggedFile {
            flag,
            path: self.path(name),
        };
        WantedFiles {
            config: Some(named("injectConfig", "config")),
            values: Some(named("injectValues", "values")),
            mesh: None,
            pair: Some((named("tlsCertFile", "chain"), named("tlsKeyFile", "key"))),
            ca: None,
            parameters: Parameters::default(),
        }
    }

    async fn open(&self) -> Files<Three> {
        Files::open(self.wanted(), Arc::clone(&self.metrics))
            .await
            .unwrap()
    }

    fn valid(&self, flag: &str) -> bool {
        let text = self.metrics.text(ExpositionFormat::Text);
        let line = format!("gudgeon_config_valid{{file=\"{flag}\"}} ");
        let (_, rest) = text.split_once(&line).unwrap();
        rest.starts_with('1')
    }
}

fn engine(files: &Files<Three>) -> (String, String) {
    let Three(config, values, _) = &*files.served().engine();
    (config.clone().unwrap(), values.clone().unwrap())
}

#[tokio::test]
async fn each_is_judged_by_itself() {
    let place = Place::new();
    let mut files = place.open().await;
    let began = files.served().engine();
    place.write("config", "broken");
    place.write("values", "two");
    place.write("chain", "x");
    assert_eq!(files.reload().await, None);
    assert_eq!(engine(&files), ("one".into(), "two".into()));
    assert_eq!(
        began.1.as_deref(),
        Some("one"),
        "what has begun ends with what it began with"
    );
    assert!(
        !place.valid("injectConfig") && place.valid("injectValues") && !place.valid("tlsCertFile")
    );
    let report = files.served().report();
    assert_eq!(report[0]["error"], "line 1: it says so");
    assert_eq!(report[0]["valid"], false);
    assert_eq!(report[1]["sha256"], file::sha256(b"two"));
    place.write("config", "three");
    place.rotate();
    files.reload().await;
    assert_eq!(engine(&files), ("three".into(), "two".into()));
    assert!(place.valid("injectConfig") && place.valid("tlsCertFile") && place.valid("tlsKeyFile"));
}

#[tokio::test]
async fn the_same_bytes_are_no_change() {
    let place = Place::new();
    let mut files = place.open().await;
    let before = files.served().engine();
    place.write("config", "one");
    files.reload().await;
    assert!(Arc::ptr_eq(&before, &files.served().engine()));
    assert!(
        place
            .metrics
            .text(ExpositionFormat::Text)
            .contains("reloads_total{file=\"injectConfig\",result=\"ok\"} 1\n")
    );
}

#[tokio::test]
async fn one_may_wait_for_another() {
    let place = Place::new();
    let mut files = place.open().await;
    place.write("config", "needs new");
    files.reload().await;
    assert_eq!(engine(&files), ("one".into(), "one".into()));
    assert!(!place.valid("injectConfig"));
    place.write("values", "new");
    files.reload().await;
    assert_eq!(engine(&files), ("needs new".into(), "new".into()));
    assert!(place.valid("injectConfig"));
}

/// The load that had panicked was not repeated, no page and no metric knew of it, and the certificate had to wait.
#[tokio::test]
async fn a_load_that_panics_is_reported_and_repeated() {
    let place = Place::new();
    let mut files = place.open().await;
    let needed = place.path("needed");
    let config = format!("needs the file {}", needed.display());
    place.write("config", &config);
    place.write("values", "two");
    place.write("chain", "x");
    for _ in 0..2 {
        assert_eq!(files.reload().await, None);
        assert_eq!(engine(&files), ("one".into(), "two".into()));
        assert!(!place.valid("injectConfig") && place.valid("injectValues"));
        assert!(!place.valid("tlsCertFile"));
    }
    let report = files.served().report();
    let error = report[0]["error"].as_str().unwrap();
    assert!(error.contains("panicked"), "{error}");
    place.write("needed", "");
    files.reload().await;
    assert_eq!(engine(&files), (config, "two".into()));
    assert!(place.valid("injectConfig"));
}

#[tokio::test]
async fn a_file_that_is_gone_keeps_its_last_state() {
    let place = Place::new();
    let mut files = place.open().await;
    fs::remove_file(place.path("config")).unwrap();
    fs::remove_file(place.path("key")).unwrap();
    files.reload().await;
    assert_eq!(engine(&files), ("one".into(), "one".into()));
    assert!(
        !place.valid("injectConfig") && !place.valid("tlsKeyFile") && place.valid("tlsCertFile")
    );
}

#[tokio::test(start_paused = true)]
async fn half_a_rotation_is_waited_for() {
    let place = Place::new();
    let mut files = place.open().await;
    let (chain, key) = Place::pair();
    place.write("chain", &chain);
    assert!(files.reload().await.is_some());
    assert!(place.valid("tlsCertFile") && place.valid("tlsKeyFile"));
    tokio::time::advance(Duration::from_secs(5)).await;
    assert!(files.reload().await.is_some());
    place.write("key", &key);
    assert_eq!(files.reload().await, None);
    assert!(place.valid("tlsKeyFile"));
    // And one that never ends.
    let (chain, _) = Place::pair();
    place.write("chain", &chain);
    assert!(files.reload().await.is_some());
    tokio::time::advance(HALF_WAY).await;
    assert_eq!(files.reload().await, None);
    assert!(!place.valid("tlsKeyFile"));
    assert_eq!(files.reload().await, None);
    place.rotate();
    assert_eq!(files.reload().await, None);
    assert!(place.valid("tlsKeyFile"));
}

#[tokio::test(start_paused = true)]
async fn at_the_start_the_broken_one_is_named() {
    for (name, text, message) in [
        ("config", "broken", "cannot use --injectConfig"),
        ("values", "broken", "cannot use --injectValues"),
        ("chain", "x", "cannot use --tlsCertFile"),
        ("key", "x", "cannot use --tlsKeyFile"),
        ("key", &Place::pair().1, "does not match the certificate"),
    ] {
        let place = Place::new();
        place.write(name, text);
        let opened = Files::<Three>::open(place.wanted(), Arc::clone(&place.metrics)).await;
        let line = opened.expect_err(name);
        assert!(
            line.contains(message) && line.contains(place.path(name).to_str().unwrap()),
            "{line}"
        );
    }
    let place = Place::new();
    fs::remove_file(place.path("values")).unwrap();
    assert!(
        Files::<Three>::open(place.wanted(), place.metrics)
            .await
            .is_err()
    );
    assert!(chosen("injectConfig", Some(Path::new("/none")), "/none").is_err());
    assert!(chosen("injectConfig", None, "/none").unwrap().is_none());
}

#[tokio::test]
async fn the_ca_bundle_is_kept_too() {
    let place = Place::new();
    place.write("ca", &Place::pair().0);
    let mut wanted = place.wanted();
    wanted.ca = Some(FlaggedFile {
        flag: "caCertFile",
        path: place.path("ca"),
    });
    let mut files = Files::<Three>::open(wanted, Arc::clone(&place.metrics))
        .await
        .unwrap();
    let served = files.served();
    let mut bundle = served.ca.subscribe();
    let first = bundle.borrow_and_update().clone();
    assert!(first.is_some());
    place.write("ca", "x");
    files.reload().await;
    assert!(!bundle.has_changed().unwrap() && !place.valid("caCertFile"));
    place.write("ca", &Place::pair().0);
    files.reload().await;
    assert!(bundle.has_changed().unwrap() && place.valid("caCertFile"));
    assert_ne!(*bundle.borrow_and_update(), first);
}
