//! Files that change while they are served: in place, by kubelet's link, half-way, wrong, and under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{self, Client, Injector, InjectorPlace, TEMPLATE, kubelet, pair, until};

/// The promised time from the write to its effect, and the delay that two busy cores may add.
const PROMISED: Duration = Duration::from_millis(500);
const BUSY: Duration = Duration::from_secs(2);

fn template(image: &str) -> String {
    TEMPLATE.replace("proxy:1", image)
}

/// Waits for an image, and returns the time that it took.
fn serves(client: &mut Client, image: &str) -> Duration {
    let start = Instant::now();
    until(image, || client.image() == image);
    start.elapsed()
}

#[test]
fn ten_changes_in_a_row_are_all_seen() {
    let injector = Injector::new();
    let mut client = injector.client();
    for round in 0..3 {
        for number in 0..10 {
            injector
                .place
                .write("config", &template(&format!("proxy:{round}.{number}")));
        }
        let took = serves(&mut client, &format!("proxy:{round}.9"));
        assert!(took < PROMISED + BUSY, "{took:?}");
    }
}

#[test]
fn kubelets_dance() {
    let place = InjectorPlace::new();
    kubelet(place.root.path(), 0, &[("config", TEMPLATE)]);
    let injector = place.start(&[]);
    let mut client = injector.client();
    assert_eq!(client.image(), "proxy:1");
    let mut took = Vec::new();
    for number in 1..=10 {
        let image = format!("proxy:k{number}");
        kubelet(
            injector.place.root.path(),
            number,
            &[("config", &template(&image))],
        );
        took.push(serves(&mut client, &image));
    }
    took.sort_unstable();
    assert!(took[5] < PROMISED, "{took:?}");
    assert!(took[9] < PROMISED + BUSY, "{took:?}");
    // The volume's neighbours and the same bytes again are no change.
    let before =
        injector.metric("gudgeon_config_reloads_total{file=\"injectConfig\",result=\"ok\"}");
    kubelet(
        injector.place.root.path(),
        11,
        &[("config", &template("proxy:k10"))],
    );
    injector.place.write("other", "x");
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(
        injector.metric("gudgeon_config_reloads_total{file=\"injectConfig\",result=\"ok\"}"),
        before
    );
}

#[test]
fn a_broken_file_keeps_its_last_good_state() {
    let injector = Injector::new();
    let mut client = injector.client();
    let valid = |injector: &Injector, flag: &str| {
        injector.metric(&format!("gudgeon_config_valid{{file=\"{flag}\"}}"))
    };
    injector.place.write(
        "config",
        "policy: enabled\ntemplate: |\n  [[ nonsense \"a\" ]]\n",
    );
    until("it is called broken", || {
        valid(&injector, "injectConfig") == Some(0.0)
    });
    assert_eq!(client.image(), "proxy:1");
    let path = injector.place.path("config").display().to_string();
    let line = injector
        .log()
        .into_iter()
        .find(|line| line.contains("\terror\t"))
        .unwrap();
    assert!(
        line.contains(&format!("cannot use --injectConfig {path}: ")) && line.contains("nonsense"),
        "{line}"
    );
    // The page has the files once the reload that counted and logged the broken one has ended.
    let mut file = serde_json::Value::Null;
    until("the page shows the broken file", || {
        let config = injector.get("/debug/config").json();
        let mut files = config["files"].as_array().unwrap().iter();
        let named = files.find(|file| file["flag"] == "injectConfig");
        file = named.unwrap().clone();
        file["valid"] == false
    });
    assert!(
        file["error"].as_str().unwrap().contains("nonsense"),
        "{file}"
    );
    assert!(
        injector
            .get("/debug")
            .text()
            .contains("broken, the last good one is in use")
    );
    // A broken template keeps a good certificate out no more than the other way round.
    let (chain, key) = pair();
    injector.place.write("chain.pem", &chain);
    injector.place.write("key.pem", &key);
    until("the new certificate", || {
        Client::try_connect(injector.address(), support::client_config(&chain, &[])).is_ok()
    });
    injector.place.write("chain.pem", "nothing");
    until("it is called broken", || {
        valid(&injector, "tlsCertFile") == Some(0.0)
    });
    injector.place.write("config", &template("proxy:2"));
    serves(&mut client, "proxy:2");
    assert_eq!(valid(&injector, "injectConfig"), Some(1.0));
    assert_eq!(injector.logged("it is repaired"), 1);
    assert!(Client::try_connect(injector.address(), support::client_config(&chain, &[])).is_ok());
    assert_eq!(injector.get("/ready").status, 200);
}

#[test]
fn certificates_rotate_under_load() {
    const ROTATIONS: usize = 10;
    let injector = Injector::new();
    let address = injector.address();
    let stop = Arc::new(AtomicBool::new(false));
    let (reused, fresh) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    // Every certificate that was ever served is trusted.
    let pairs: Vec<(String, String)> = (0..ROTATIONS).map(|_| pair()).collect();
    let mut trust = injector.trust();
    for (chain, _) in &pairs {
        trust.push_str(chain);
    }
    let mut workers = Vec::new();
    for _ in 0..2 {
        let (stop, reused, trust) = (Arc::clone(&stop), Arc::clone(&reused), trust.clone());
        workers.push(std::thread::spawn(move || {
            let mut client = Client::connect(address, &trust);
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(client.image(), "proxy:1");
                reused.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    let worker = {
        let (stop, fresh, trust) = (Arc::clone(&stop), Arc::clone(&fresh), trust.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(Client::connect(address, &trust).image(), "proxy:1");
                fresh.fetch_add(1, Ordering::Relaxed);
            }
        })
    };
    workers.push(worker);
    for (number, (chain, key)) in pairs.iter().enumerate() {
        // In two steps, in both orders.
        let mut steps = [("chain.pem", chain), ("key.pem", key)];
        if number % 2 == 1 {
            steps.reverse();
        }
        injector.place.write(steps[0].0, steps[0].1);
        if number % 3 == 0 {
            std::thread::sleep(Duration::from_millis(300));
        }
        injector.place.write(steps[1].0, steps[1].1);
        until("the new certificate", || {
            Client::try_connect(address, support::client_config(chain, &[])).is_ok()
        });
    }
    // How many requests there are in a time is the machine's to say.
    until("requests", || {
        let is_over = workers.iter().any(std::thread::JoinHandle::is_finished);
        let made = [&reused, &fresh].map(|count| count.load(Ordering::Relaxed));
        is_over || made[0] > 100 && made[1] > 20
    });
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.join().expect("no request fails");
    }
    assert_eq!(
        injector.metric("gudgeon_config_valid{file=\"tlsKeyFile\"}"),
        Some(1.0)
    );
    assert_eq!(injector.logged("\terror\t"), 0, "{:?}", injector.log());
}

#[test]
fn half_a_rotation_is_broken_after_ten_seconds() {
    let injector = Injector::new();
    let old = injector.trust();
    let (chain, key) = pair();
    let start = Instant::now();
    injector.place.write("chain.pem", &chain);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(injector.logged("\terror\t"), 0);
    assert_eq!(Client::connect(injector.address(), &old).image(), "proxy:1");
    let message = "does not match the certificate";
    while injector.logged(message) == 0 {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        start.elapsed() > Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(Client::connect(injector.address(), &old).image(), "proxy:1");
    injector.place.write("key.pem", &key);
    until("the new certificate", || {
        Client::try_connect(injector.address(), support::client_config(&chain, &[])).is_ok()
    });
}
