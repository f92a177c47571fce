//! The command line of the built binary: every flag by each of its names, links, help, completions, codes.

use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::support::{self, InjectorPlace, apart, gudgeon, kubelet, run, until};

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn output_of(done: &Output) -> String {
    text(&done.stdout) + &text(&done.stderr)
}

/// The binary by other names.
struct Links(tempfile::TempDir);

impl Links {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for name in ["gudgeon", "sidecar-injector", "istioctl"] {
            symlink(env!("CARGO_BIN_EXE_gudgeon"), root.path().join(name)).unwrap();
        }
        Self(root)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, line: &[&str]) -> Output {
        Command::new(self.path(line[0]))
            .args(&line[1..])
            .output()
            .unwrap()
    }
}

/// Words between capitals, as `selfSignedTTL` has them: self, signed, ttl.
fn split_words(name: &str) -> Vec<String> {
    let name = name
        .replace("TTL", "Ttl")
        .replace("UID", "Uid")
        .replace("IPRanges", "IpRanges");
    let mut parts = vec![String::new()];
    for letter in name.chars() {
        if letter.is_ascii_uppercase() || matches!(letter, '-' | '_') {
            parts.push(String::new());
        }
        if letter.is_ascii_alphanumeric() {
            parts.last_mut().unwrap().push(letter.to_ascii_lowercase());
        }
    }
    parts
}

#[test]
fn every_flag_by_each_of_its_names() {
    let links = Links::new();
    let mut known = 0;
    for role in [
        &["gudgeon", "injector"][..],
        &["gudgeon", "inject"],
        &["gudgeon", "probe"],
        &["sidecar-injector"],
        &["istioctl", "kube-inject"],
    ] {
        let help = text(&links.run(&[role, &["--help"]].concat()).stdout);
        let names: Vec<&str> = help
            .lines()
            .filter_map(|line| {
                let line = line.trim_start();
                let line = line
                    .strip_prefix("--")
                    .or_else(|| line.get(4..)?.strip_prefix("--"))?;
                line.split([' ', '[', '=']).next()
            })
            .filter(|name| !matches!(*name, "help" | "version"))
            .collect();
        assert!(names.len() >= 5, "{role:?}: {names:?}");
        for name in names {
            let parts = split_words(name);
            let mut camel = parts.concat();
            for word in &parts[1..] {
                // Upper-case initials, the last first, so that places stay.
                let at = camel.rfind(word.as_str()).unwrap();
                camel[at..=at].make_ascii_uppercase();
            }
            for spelling in [name.to_owned(), parts.join("-"), camel] {
                if spelling.contains("Ttl") || spelling.contains("Uid") || spelling.contains("Ip") {
                    continue;
                }
                // `--help` is printed once all flags before it are known; values are validated at the end.
                let flag = format!("--{spelling}");
                let with_value = format!("--{spelling}=true");
                for line in [
                    [role, &[&flag, "--help"]].concat(),
                    [role, &[&with_value, "--help"]].concat(),
                ] {
                    let done = links.run(&line);
                    let printed = output_of(&done);
                    assert!(
                        !printed.contains("unexpected argument"),
                        "{line:?}: {printed}"
                    );
                }
                known += 1;
            }
        }
    }
    assert!(known > 200, "{known}");
}

#[test]
fn errors_suggest_the_nearest_name() {
    for (line, code, message) in [
        (
            &["injector", "--injectConfg", "x"][..],
            64,
            "--injectConfig",
        ),
        (&["injector", "--self-sign"], 64, "--self-signed"),
        (
            &["injector", "--webhookConfigNames=x"],
            64,
            "--webhookConfigName",
        ),
        (
            &["inject", "--inject-config-fil", "x"],
            64,
            "--inject-config-file",
        ),
        (&["injctor"], 64, "injector"),
        (&["injector", "extra"], 64, "extra"),
        (&[], 64, "Usage: gudgeon"),
        (&["probe", "--probe-pat=/x"], 64, "--probe-path"),
        (&["completion"], 64, "SHELL"),
        (
            &["injector", "--healthCheckInterval=often"],
            78,
            "--health-check-interval",
        ),
        (&["version", "-o", "xml"], 78, "xml"),
    ] {
        let done = run(line);
        assert_eq!(
            done.status.code(),
            Some(code),
            "{line:?}: {}",
            output_of(&done)
        );
        assert!(
            output_of(&done).contains(message),
            "{line:?}: {}",
            output_of(&done)
        );
        assert!(done.stdout.is_empty(), "{line:?}");
    }
}

#[test]
fn flags_of_other_versions_are_warned_about_once() {
    let more = [
        "--log_caller=default",
        "--log_caller=all",
        "--log-rotate-max-age=30",
        "--logtostderr",
        "--vklog=9",
    ];
    let injector = InjectorPlace::new().start(&more);
    for flag in ["log_caller", "log_rotate_max_age", "logtostderr", "vklog"] {
        assert_eq!(
            injector.logged(&format!("\twarn\tignoring --{flag}: ")),
            1,
            "{flag}"
        );
    }
    assert_eq!(injector.client().image(), "proxy:1");
    let done = run(&[
        "inject",
        "-n",
        "ns",
        "--namespace=ns",
        "--debug",
        "--verbosity=2",
        "--setVersionString=x",
    ]);
    assert_eq!(done.status.code(), Some(64), "no -f");
    for flag in ["namespace", "debug", "verbosity", "setVersionString"] {
        let message = format!("ignoring --{flag}: ");
        assert_eq!(
            output_of(&done).matches(&message).count(),
            1,
            "{}",
            output_of(&done)
        );
    }
}

/// As scripts of istioctl's users call them: the output is that of the command, and each flag without a meaning is named.
#[test]
fn flags_of_version_and_proxy_status_that_mean_nothing_are_named() {
    let links = Links::new();
    for (line, code) in [
        (&["version", "--remote=false", "-n", "ns"][..], 0),
        // Nobody listens there.
        (&["proxy-status", "--http-addr=127.0.0.1:1", "-n", "ns"], 1),
    ] {
        let done = Command::new(links.path("istioctl")).args(line).output();
        let done = done.unwrap();
        let errors = text(&done.stderr);
        assert_eq!(done.status.code() == Some(0), code == 0, "{errors}");
        assert_eq!(
            errors.matches("ignoring --namespace: ").count(),
            1,
            "{errors}"
        );
        let of_remote = usize::from(line.contains(&"--remote=false"));
        assert_eq!(
            errors.matches("ignoring --remote: ").count(),
            of_remote,
            "{errors}"
        );
        assert_eq!(
            text(&done.stdout).contains(env!("CARGO_PKG_VERSION")),
            code == 0
        );
    }
}

#[test]
fn help_versions_and_completions() {
    let links = Links::new();
    for (line, expected) in [
        (&["gudgeon", "help"][..], "Exit codes:"),
        (&["gudgeon", "--help"], "injector"),
        (&["gudgeon", "help", "inject"], "--status-port"),
        (&["istioctl", "help", "kube-inject"], "--statusPort"),
        (&["sidecar-injector", "help"], "--webhookName"),
        (&["istioctl", "help", "kube-inject"], "--injectConfigFile"),
        (&["istioctl", "kube-inject", "-h"], "--includeIPRanges"),
        (&["istioctl", "help", "validate"], "--filename"),
        (&["gudgeon", "kube-inject", "--help"], "--hub"),
        (&["gudgeon", "version"], env!("CARGO_PKG_VERSION")),
        (&["gudgeon", "-V"], env!("CARGO_PKG_VERSION")),
        (&["istioctl", "-V"], env!("CARGO_PKG_VERSION")),
        (
            &["sidecar-injector", "version", "--short"],
            env!("CARGO_PKG_VERSION"),
        ),
        (&["istioctl", "version", "-o", "yaml"], "clientVersion:"),
    ] {
        let done = links.run(line);
        assert_eq!(
            done.status.code(),
            Some(0),
            "{line:?}: {}",
            output_of(&done)
        );
        assert!(
            text(&done.stdout).contains(expected),
            "{line:?}: {}",
            output_of(&done)
        );
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = links.run(&["gudgeon", "completion", shell]);
        assert!(done.status.success());
        for name in ["self-signed", "kube-inject", "inject-config-file"] {
            let there = text(&done.stdout).contains(name);
            assert_eq!(there, name != "kube-inject", "{shell}: {name}");
        }
    }
    // Bash finds no mistake in its own, and completes.
    let script = text(
        &links
            .run(&["sidecar-injector", "completion", "bash"])
            .stdout,
    );
    let ask = "
COMP_WORDS=(sidecar-injector --webhookC) COMP_CWORD=1
$(complete -p sidecar-injector | sed 's/.*-F \\([^ ]*\\).*/\\1/') sidecar-injector --webhookC sidecar-injector
echo \"${COMPREPLY[@]}\"
";
    let done = Command::new("bash")
        .args(["-c", &(script + ask)])
        .output()
        .unwrap();
    assert_eq!(
        text(&done.stdout),
        "--webhookConfigName\n",
        "{}",
        text(&done.stderr)
    );
}

#[test]
fn a_probe_says_one_thing() {
    let links = Links::new();
    let file = links.path("health");
    std::fs::write(&file, "ok").unwrap();
    let path = file.to_str().unwrap();
    for (line, code) in [
        (
            &["gudgeon", "probe", "--probe-path", path, "--interval=1m"][..],
            0,
        ),
        (
            &[
                "sidecar-injector",
                "probe",
                "--probePath",
                path,
                "--interval",
                "1m0s",
            ],
            0,
        ),
        (
            &[
                "sidecar-injector",
                "probe",
                "--probe-path=/none",
                "--interval=1m",
            ],
            1,
        ),
        (
            &["gudgeon", "probe", "--probe-path", path, "--interval=1ns"],
            1,
        ),
        (&["gudgeon", "probe", "--probe-path", path], 64),
        (&["gudgeon", "probe", "--interval=1m"], 64),
        (&["gudgeon", "probe", "--probe-path=", "--interval=1m"], 64),
    ] {
        let done = links.run(line);
        assert_eq!(
            done.status.code(),
            Some(code),
            "{line:?}: {}",
            output_of(&done)
        );
        let (ok, lines) = (text(&done.stdout), text(&done.stderr).lines().count());
        assert_eq!(
            (ok.as_str(), lines),
            if code == 0 { ("OK\n", 0) } else { ("", 1) }
        );
    }
}

#[test]
fn the_monitoring_port_may_be_off() {
    let place = InjectorPlace::new();
    let arguments: Vec<String> = place
        .arguments()
        .into_iter()
        .map(|word| {
            if word.starts_with("--monitoringPort") {
                "--monitoringPort=-1".to_owned()
            } else {
                word
            }
        })
        .collect();
    let injector = place.start_with(&arguments);
    assert_eq!(injector.client().image(), "proxy:1");
    assert_eq!(injector.logged("monitoring on"), 0);
    // The first line after binding, and how it ends.
    let line = injector
        .log()
        .into_iter()
        .find(|line| line.contains("listening on"))
        .unwrap();
    assert!(
        line.ends_with(&format!("listening on https://[::]:{}", injector.port)),
        "{line}"
    );
    assert_eq!(injector.log()[0], line);
}

#[test]
fn a_revision_by_flag_and_environment() {
    for (flag, environment, image) in [
        (None, None, "r-default"),
        (None, Some("canary"), "r-canary"),
        (Some("--revision=blue"), Some("canary"), "r-blue"),
        (Some("--revision="), Some("canary"), "r-default"),
    ] {
        let place = InjectorPlace::new();
        place.write(
            "config",
            "probers: legacy\ntemplate: |\n  containers:\n  - {name: istio-proxy, image: 'r-[[ .Revision ]]'}\n",
        );
        let mut arguments = place.arguments();
        arguments.extend(flag.map(ToOwned::to_owned));
        let mut command = gudgeon();
        command.env_remove("REVISION");
        if let Some(value) = environment {
            command.env("REVISION", value);
        }
        let injector = place.start_as(command, &arguments);
        assert_eq!(injector.client().image(), image);
    }
}

#[test]
fn without_inotify_files_are_looked_at_by_the_clock() {
    // A user namespace of its own has its own limit of instances.
    let command = apart("-Ur", "echo 0 > /proc/sys/user/max_inotify_instances &&");
    let place = InjectorPlace::new();
    kubelet(place.root.path(), 0, &[("config", support::TEMPLATE)]);
    let arguments = place.arguments();
    let injector = place.start_as(command, &arguments);
    let message = "\twarn\tpolling the files every 10 s: cannot start inotify: ";
    until("it is said", || injector.logged(message) == 1);
    let start = std::time::Instant::now();
    kubelet(
        injector.place.root.path(),
        1,
        &[("config", &support::TEMPLATE.replace("proxy:1", "proxy:2"))],
    );
    let mut client = injector.client();
    while client.image() != "proxy:2" {
        assert!(start.elapsed() < std::time::Duration::from_secs(13));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert_eq!(injector.logged(message), 1);
}
