//! Directories in the wild: volumes of kubelet, duplicate names, unreadable files.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use serde_json::json;

use crate::place::{GalleyPlace, SERVICES, service, until};

/// As a ConfigMap comes into a pod: names lead through one link, which is exchanged.
#[test]
fn kubelets_exchange_of_a_volume_is_one_publish() {
    let place = GalleyPlace::new();
    let volume = |name: &str, weights: [u32; 2]| {
        let folder = place.path("config").join(name);
        fs::create_dir(&folder).unwrap();
        for rule in ["a", "b"] {
            fs::write(folder.join(format!("{rule}.yaml")), service(rule, weights)).unwrap();
        }
    };
    volume("..1", [75, 25]);
    volume("..2", [50, 50]);
    let link = |to: &str, from: &str| symlink(to, place.path("config").join(from)).unwrap();
    link("..1", "..data");
    link("..data/a.yaml", "a.yaml");
    link("..data/b.yaml", "b.yaml");
    let galley = place.start();
    assert_eq!(galley.names(SERVICES), ["shop/a", "shop/b"]);
    let before = galley.collection(SERVICES);
    let config = galley.place.path("config");
    symlink("..2", config.join("..new")).unwrap();
    fs::rename(config.join("..new"), config.join("..data")).unwrap();
    let after = until("the other volume", || {
        let now = galley.collection(SERVICES);
        (now != before).then_some(now)
    });
    assert_eq!(after["count"], 2);
    assert_eq!(galley.configz()["snapshots"]["default"]["publishes"], 2);
    let document = galley.document(&format!("/debug/configz?collection={SERVICES}"));
    for resource in document["resources"].as_array().unwrap() {
        assert_eq!(resource["body"]["http"][0]["route"][0]["weight"], 50);
    }
    assert_eq!(galley.collection(SERVICES), after);
}

#[test]
fn the_first_of_two_with_one_name_is_served() {
    let galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .with("config/b.yaml", &service("a", [50, 50]))
        .start();
    let weight = || {
        let document = galley.document(&format!("/debug/configz?collection={SERVICES}"));
        document["resources"][0]["body"]["http"][0]["route"][0]["weight"].clone()
    };
    assert_eq!(weight(), 75);
    let rejected = galley.configz()["rejected"][0].clone();
    let message = rejected["errors"][0]["message"].as_str().unwrap();
    assert!(
        message.starts_with("duplicate of ") && message.ends_with("/a.yaml:1"),
        "{message}"
    );
    galley.place.remove("config/a.yaml");
    until("the second", || (weight() == 50).then_some(()));
    assert_eq!(galley.configz()["rejected"], json!([]));
}

#[test]
fn unreadable_files_harm_no_other() {
    let place = GalleyPlace::new().with("config/good.yaml", &service("a", [75, 25]));
    let config = place.path("config");
    let bomb = (1..40).fold(
        "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned(),
        |text, at| {
            let before = at - 1;
            text + &format!(
                "a{at}: &a{at} [*a{before}, *a{before}, *a{before}, *a{before}, *a{before}]\n"
            )
        },
    );
    fs::write(config.join("bomb.yaml"), bomb).unwrap();
    fs::write(config.join("deep.yaml"), "[".repeat(100_000)).unwrap();
    // Two valid objects surround one that is nested 100 deep.
    let filter = format!(
        "apiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {{name: e}}\nspec: {}{}\n",
        "[".repeat(100),
        "]".repeat(100)
    );
    let around = [service("d", [75, 25]), filter, service("e", [75, 25])];
    fs::write(config.join("around.yaml"), around.join("---\n")).unwrap();
    let large = fs::File::create(config.join("large.yaml")).unwrap();
    large.set_len(20 << 20).unwrap();
    let fifo = Command::new("mkfifo")
        .arg(config.join("fifo.yaml"))
        .status();
    assert!(fifo.unwrap().success());
    symlink("..", config.join("loop")).unwrap();
    symlink("round.yaml", config.join("round.yaml")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"odd-\xff.yaml");
    fs::write(config.join(odd), service("b", [75, 25])).unwrap();
    let galley = place.start();
    assert_eq!(galley.names(SERVICES), ["shop/a", "shop/d", "shop/e"]);
    let rejected = galley.configz()["rejected"].clone();
    let origins: Vec<_> = rejected
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["origin"].as_str().unwrap())
        .collect();
    for name in [
        "around.yaml",
        "bomb.yaml",
        "deep.yaml",
        "fifo.yaml",
        "large.yaml",
        "round.yaml",
        "odd-",
    ] {
        assert!(
            origins.iter().any(|origin| origin.contains(name)),
            "{name} {origins:?}"
        );
    }
    assert!(galley.anonymous() < 100 << 10, "{} KiB", galley.anonymous());
    galley
        .place
        .write("config/good.yaml", &service("c", [75, 25]));
    until("another rule", || {
        (galley.names(SERVICES) == ["shop/c", "shop/d", "shop/e"]).then_some(())
    });
}

#[test]
fn a_directory_that_may_not_be_read_is_passed_over() {
    let place = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .with("config/z.yaml", &service("z", [75, 25]));
    let closed = place.path("config/closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("b.yaml"), service("b", [75, 25])).unwrap();
    let file = place.path("config/file.yaml");
    fs::write(&file, service("c", [75, 25])).unwrap();
    let allow = |directory, mode| {
        let allowed = |bits| fs::Permissions::from_mode(bits);
        fs::set_permissions(&closed, allowed(directory)).unwrap();
        fs::set_permissions(&file, allowed(mode)).unwrap();
    };
    allow(0o000, 0o000);
    let galley = place.not_by_root().start();
    assert_eq!(galley.names(SERVICES), ["shop/a", "shop/z"]);
    for name in ["/config/closed", "/config/file.yaml"] {
        let is_unreadable =
            |line: &&String| line.contains(name) && line.contains("cannot read: Permission denied");
        let log = galley.log();
        assert_eq!(
            log.iter().filter(is_unreadable).count(),
            1,
            "{name}: {log:?}"
        );
    }
    let rejected = galley.configz()["rejected"].clone();
    let rejected = rejected.as_array().unwrap().iter();
    let mut origins: Vec<_> = rejected
        .map(|one| one["origin"].as_str().unwrap())
        .collect();
    origins.sort_unstable();
    assert!(
        origins.len() == 2 && origins[0].ends_with("/closed") && origins[1].contains("/file.yaml"),
        "{origins:?}"
    );
    allow(0o755, 0o644);
    galley.signal("USR1");
    until("what was closed", || {
        (galley.names(SERVICES) == ["shop/a", "shop/b", "shop/c", "shop/z"]).then_some(())
    });
    assert_eq!(galley.configz()["rejected"], json!([]));
}
