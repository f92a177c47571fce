//! Start and end: what cannot be, the probe files, TERM.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::place::{GalleyPlace, run, service, until};

#[test]
fn an_impossible_configuration_exits_with_78() {
    let root = tempfile::tempdir().unwrap();
    let none = root.path().join("none");
    let none = none.to_str().unwrap();
    let cases: [(&[&str], &str); 4] = [
        (&["galley"], "--configPath"),
        (
            &[
                "galley",
                "--enable-server=false",
                "--enable-validation=false",
            ],
            "both false",
        ),
        (
            &["galley", "server", "--configPath", none, "--ctrlz_port=0"],
            none,
        ),
        (&["galley", "--ctrlz_port", "none"], "--ctrlz-port"),
    ];
    for (arguments, message) in cases {
        let off = [
            "--monitoringPort=0",
            "--insecure",
            "--server-address=tcp://127.0.0.1:0",
            "--livenessProbePath=",
            "--readinessProbePath=",
        ];
        let ended = run(&[arguments, &off].concat());
        let output = [ended.stdout, ended.stderr].concat();
        let output = String::from_utf8(output).unwrap();
        assert_eq!(ended.status.code(), Some(78), "{arguments:?}: {output}");
        assert!(output.contains(message), "{output}");
    }
}

/// As the originals' images have it.
#[test]
fn a_link_is_the_original_program() {
    let root = tempfile::tempdir().unwrap();
    let link = root.path().join("galley");
    symlink(env!("CARGO_BIN_EXE_gudgeon"), &link).unwrap();
    let file = root.path().join("file");
    let probe = |interval: &str| {
        let ended = Command::new(&link)
            .args([
                "probe",
                "--probe-path",
                file.to_str().unwrap(),
                "--interval",
                interval,
            ])
            .output()
            .unwrap();
        let output = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        (ended.status.code().unwrap(), output)
    };
    assert_eq!(probe("10s").0, 1);
    fs::write(&file, "").unwrap();
    assert_eq!(probe("1h"), (0, "OK\n".to_owned()));
    let set = |to: SystemTime| {
        let opened = fs::File::options().write(true).open(&file).unwrap();
        opened.set_modified(to).unwrap();
    };
    set(SystemTime::now() - Duration::from_secs(60));
    assert_eq!(probe("10s").0, 1);
    set(SystemTime::now() + Duration::from_secs(60));
    assert_eq!(probe("10s").0, 1);
    let version = Command::new(&link).args(["version", "--short"]).output();
    assert!(version.unwrap().status.success());
    let ended = Command::new(&link)
        .args([
            "server",
            "--configPath",
            "/none/at/all",
            "--monitoringPort=0",
            "--ctrlz_port=0",
            "--insecure",
            "--server-address=tcp://127.0.0.1:0",
        ])
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(78));
}

/// The webhook's reconciler logged the same cause, and that it would try again.
#[test]
fn a_kubeconfig_that_cannot_be_used_is_one_line() {
    let ended = run(&[
        "galley",
        "--kubeconfig=/none/at/all",
        "--selfSigned",
        "--insecure",
        "--server-address=tcp://127.0.0.1:0",
        "--validation-port=0",
        "--monitoringPort=0",
        "--ctrlz_port=0",
        "--livenessProbePath=",
        "--readinessProbePath=",
    ]);
    let output = String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
    assert_eq!(ended.status.code(), Some(78), "{output}");
    let of_it = output.lines().filter(|line| line.contains("/none/at/all"));
    assert_eq!(of_it.count(), 1, "{output}");
}

#[test]
fn probe_files_are_there_while_they_hold_and_gone_at_the_end() {
    let place = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .with("ready", "of an earlier one")
        .arg("--livenessProbeInterval=50ms")
        .arg("--readinessProbeInterval=50ms")
        .arg("--drainDuration=60s");
    let mut galley = place.start();
    let [live, ready] = ["live", "ready"].map(|name| galley.place.path(name));
    until("both files", || {
        (live.exists() && fs::read(&ready).ok()? == b"ok").then_some(())
    });
    let written = |path: &std::path::Path| fs::metadata(path).unwrap().modified().unwrap();
    for path in [&live, &ready] {
        let before = written(path);
        until("a newer file", || (written(path) > before).then_some(()));
    }
    galley.signal("TERM");
    until("not ready", || {
        let (status, body) = galley.get("/ready");
        (status == 503 && body == "draining\n").then_some(())
    });
    until("one file", || (!ready.exists()).then_some(()));
    assert!(live.exists());
    assert_eq!(galley.get("/healthz").0, 200);
    // Asked twice: at once.
    galley.signal("TERM");
    assert_eq!(galley.wait().code(), Some(0));
    assert!(!live.exists() && !ready.exists());
}

#[test]
fn after_a_term_it_drains_and_ends_by_itself() {
    let mut galley = GalleyPlace::new().arg("--drainDuration=1s").start();
    galley.signal("TERM");
    assert_eq!(galley.wait().code(), Some(0));
    assert!(!galley.place.path("live").exists());
    assert_eq!(galley.logged("stopped: all"), 1);
}

#[test]
fn a_probe_file_that_cannot_be_written_is_no_reason_to_end() {
    let galley = GalleyPlace::new()
        .arg("--livenessProbePath=/none/at/all")
        .arg("--livenessProbeInterval=10ms")
        .start();
    let message = "cannot write probe file /none/at/all";
    until("a line", || (galley.logged(message) == 1).then_some(()));
}

#[test]
fn a_term_while_it_starts_ends_it() {
    let root = tempfile::tempdir().unwrap();
    let kubeconfig = root.path().join("kubeconfig");
    fs::write(&kubeconfig, crate::support::patient(root.path())).unwrap();
    let mut galley = GalleyPlace::of_a_cluster(kubeconfig.to_str().unwrap()).begin();
    until("the program for credentials", || {
        root.path().join("started").exists().then_some(())
    });
    galley.signal("TERM");
    assert_eq!(galley.wait().code(), Some(0));
}
