//! What the agent reads: documents, whose size and shape are somebody else's, and what is watched.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::{Agent, Setup, client, quick, until};

/// The largest document, in bytes.
const DOCUMENT_BYTES: usize = 4 << 20;

/// A proxy that does nothing.
fn sleeper(directory: &Path) -> PathBuf {
    let path = directory.join("sleeper");
    fs::write(&path, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// An agent that has started its first epoch.
fn with_template(document: &str) -> Agent {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::bare(&sleeper(directory.path()));
    setup.write("template.json", document);
    let template = setup.path("template.json");
    let agent = setup.arg("--template-file").arg(template).start();
    agent.wait_log("epoch 0 started");
    agent
}

/// Ends it without the patience that the sleeper needs.
fn end(mut agent: Agent) {
    for _ in 0..3 {
        agent.signal(libc::SIGTERM);
    }
    agent.wait();
}

/// What the agent has used, in ticks of 10 ms.
fn cpu_ticks(agent: &Agent) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/stat", agent.child.id())).unwrap();
    let (_, fields) = text.rsplit_once(") ").unwrap();
    let ticks = fields.split(' ').skip(11).take(2);
    ticks.map(|field| field.parse::<u64>().unwrap()).sum()
}

/// How often the agent has waited for something.
fn wakes(agent: &Agent) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/status", agent.child.id())).unwrap();
    let (_, rest) = text.split_once("\nvoluntary_ctxt_switches:").unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// An object of `bytes` with as many entries as fit, in no order.
fn unsorted(bytes: usize, value: &str) -> String {
    let mut text = String::from("{");
    let mut key = 1_u64;
    while text.len() + value.len() + 30 < bytes {
        key = key
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        text += &format!("\"{:x}\":{value},", key >> 20);
    }
    text + "\"last\":0}"
}

/// A sorted object is freed in another order than it was read in, which is what makes holes in a heap.
#[test]
fn the_time_for_a_document_grows_with_its_size_and_not_with_the_square() {
    const POLICY: &str =
        r#"{"permissions":[{"any":true}],"principals":[{"authenticated":{"name":"a"}}]}"#;
    const LARGE: usize = DOCUMENT_BYTES / 2;
    const TIMES: usize = 16;
    for value in [POLICY, "0"] {
        let used = |bytes| {
            let agent = with_template(&unsorted(bytes, value));
            let used = cpu_ticks(&agent);
            end(agent);
            used
        };
        let (small, large) = (used(LARGE / TIMES), used(LARGE));
        let most = (small + 1) * (TIMES as u64) * 4;
        assert!(
            large < most,
            "{small} and {large} ticks for {TIMES} times as much of {value}"
        );
    }
}

/// A million lists, each with a block of its own: eighty megabytes, which are given back.
#[test]
fn a_document_of_many_small_parts_is_survived() {
    let count = (DOCUMENT_BYTES - 20) / "[0],".len();
    let document = ["{\"a\":[", &vec!["[0]"; count].join(","), "]}"].concat();
    let agent = with_template(&document);
    until("the memory to be given back", || {
        (agent.memory("Private_Dirty:") < 4096).then_some(())
    });
    end(agent);
}

#[test]
fn a_document_above_the_bound_is_refused_by_name() {
    let setup = Setup::bare(Path::new("/bin/true"));
    setup.write("template.json", &unsorted(DOCUMENT_BYTES + 100, "0"));
    let template = setup.path("template.json");
    let mut agent = setup.arg("--template-file").arg(&template).start();
    assert_eq!(agent.wait().code(), Some(78), "{}", agent.log());
    let expected = format!(
        "cannot read template {}: larger than 4 MiB",
        template.display()
    );
    assert!(agent.log().contains(&expected), "{}", agent.log());
}

/// A proxy that does nothing, and a directory of that name that is watched.
fn watching(name: &str, prepare: impl FnOnce(&Path)) -> (Agent, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::bare(&sleeper(directory.path()));
    let watched = setup.path(name);
    prepare(&watched);
    let agent = setup
        .arg("--watch")
        .arg(&watched)
        .args(&["--rescan-interval", "1s"])
        .start();
    agent.wait_log("epoch 0 started");
    (agent, watched)
}

#[test]
fn what_the_agent_writes_is_not_watched() {
    let setup = Setup::bare(Path::new("/bin/true"));
    let root = setup.path("");
    let mut agent = setup.arg("--watch").arg(&root).start();
    assert_eq!(agent.wait().code(), Some(78), "{}", agent.log());
    let expected = format!("cannot use --watch {} with --config-path: ", root.display());
    assert!(agent.log().contains(&expected), "{}", agent.log());

    let setup = Setup::bare(Path::new("/bin/true"));
    let (log, other) = (setup.path("own.log"), setup.path("other"));
    fs::write(&log, "").unwrap();
    std::os::unix::fs::symlink(&log, &other).unwrap();
    let setup = setup.arg("--log-target").arg(&log).arg("--watch");
    let mut agent = setup.arg(&other).args(&["--log-target", "stdout"]).start();
    assert_eq!(agent.wait().code(), Some(78), "{}", agent.log());
}

#[test]
fn what_cannot_be_read_is_told_once_and_is_no_change() {
    let (agent, watched) = watching("watched", |watched| {
        fs::create_dir(watched).unwrap();
        fs::write(watched.join("one"), "1").unwrap();
        fs::write(watched.join("two"), "2").unwrap();
    });
    let away = watched.with_extension("away");
    let unreadable = format!("cannot read {}: ", watched.display());
    fs::rename(&watched, &away).unwrap();
    agent.wait_log(&unreadable);
    // Descriptors come to an end while it is gone, and after it has come back.
    let limit = |soft| {
        let pid = i32::try_from(agent.child.id()).unwrap();
        sys::testing::limit_open_files(pid, soft).unwrap();
    };
    limit(0);
    let certificate = agent.path("cert.pem");
    agent.wait_log(&format!(
        "cannot read {}: Too many open files",
        certificate.display()
    ));
    fs::rename(&away, &watched).unwrap();
    limit(1024);
    agent.wait_log(&format!("{} can be read again", certificate.display()));
    agent.wait_log(&format!("{} can be read again", watched.display()));
    assert_eq!(
        agent.log().matches(&unreadable).count(),
        1,
        "{}",
        agent.log()
    );
    assert!(
        !agent.log().contains("configuration changed"),
        "{}",
        agent.log()
    );
    // A file that leaves a watched directory is a change, and it is named.
    fs::remove_file(watched.join("two")).unwrap();
    agent.wait_log("configuration changed to ");
    let line = format!(": {}\n", watched.display());
    assert!(agent.log().contains(&line), "{}", agent.log());
    fs::write(watched.join("one"), "other").unwrap();
    agent.wait_log(&format!(": {}\n", watched.join("one").display()));
    end(agent);
}

#[test]
fn much_that_is_watched_does_not_hold_up_probes() {
    const FILES: usize = 4;
    let (agent, watched) = watching("watched", |watched| fs::create_dir(watched).unwrap());
    let aside = agent.path("aside");
    fs::create_dir(&aside).unwrap();
    for number in 0..FILES {
        let file = fs::File::create(aside.join(number.to_string())).unwrap();
        file.set_len(16 << 20).unwrap();
    }
    for number in 0..FILES {
        let number = number.to_string();
        fs::rename(aside.join(&number), watched.join(&number)).unwrap();
    }
    let mut probes = 0;
    while !agent.log().contains("configuration changed") {
        quick("liveness", Duration::from_millis(200), || {
            let answer = client::asked(agent.status.number, "GET /healthz/live");
            assert_eq!(answer.status, 200);
        });
        probes += 1;
    }
    assert!(probes > 5, "only {probes} probes while it was hashed");
    end(agent);
}

/// The signal is there before the agent's first instruction, so it comes while the first hash is taken, whatever the machine
/// does.
#[test]
fn the_first_hash_does_not_hold_up_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let starter = folder.path().join("starter");
    let agent = env!("CARGO_BIN_EXE_pintle");
    let script = format!(
        "#!/usr/bin/env python3
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.kill(os.getpid(), signal.SIGTERM)
os.execv({agent:?}, sys.argv)
"
    );
    fs::write(&starter, script).unwrap();
    fs::set_permissions(&starter, fs::Permissions::from_mode(0o755)).unwrap();
    let setup = Setup::with(&starter, "proxy", &sleeper(folder.path()));
    let watched = setup.path("watched");
    // More than is hashed in one turn.
    fs::write(&watched, vec![0; 1 << 20]).unwrap();
    let mut agent = setup.arg("--watch").arg(&watched).start();
    assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
    let log = agent.log();
    assert!(!log.contains("epoch 0 started"), "{log}");
}

/// It has expired in June 2026.
const EXPIRED: &str = "\
-----BEGIN CERTIFICATE-----
MIIBCzCBvqADAgECAgECMAUGAytlcDAXMRUwEwYDVQQDDAxpbnRlcm1lZGlhdGUw
HhcNMjUwMTAxMDAwMDAwWhcNMjYwNjMwMDAwMDAwWjAXMRUwEwYDVQQDDAxpbnRl
cm1lZGlhdGUwKjAFBgMrZXADIQBg2VCJe7re+G52yuHFOlnLOnK3vimta9xrchI0
4ah+PaMvMC0wDAYDVR0TBAUwAwEB/zAdBgNVHQ4EFgQU+bIuzC5jJRM7Bvn8YbKN
XzulimowBQYDK2VwA0EAFYq/Geys+vXMbPakoF+YqldHocZBiAZzGeD7KOChZ0jU
TaXY6TseRWssU1PmQMFV3wRWw3gAiAItpAqSJ8nNDw==
-----END CERTIFICATE-----
";

#[test]
fn a_certificate_that_has_expired_is_told_and_not_again_at_each_look() {
    let (agent, watched) = watching("old.pem", |path| fs::write(path, EXPIRED).unwrap());
    let told = format!(
        "certificate {} expired at 2026-06-30T00:00:00",
        watched.display()
    );
    agent.wait_log(&told);
    fs::write(&watched, [EXPIRED, "\n"].concat()).unwrap();
    agent.wait_log(&format!(": {}\n", watched.display()));
    assert_eq!(agent.log().matches(&told).count(), 1, "{}", agent.log());
    end(agent);
}

/// Five hundred lines a second, as a busy program logs them, into a folder that is watched; and as many files that come and
/// go beside one that is. What is noticed once is not noticed again before the files are hashed.
#[test]
fn a_busy_neighbour_in_a_watched_folder_wakes_nobody() {
    for (seconds, woken, used) in beside_busy_neighbours("1h") {
        assert!(
            woken <= 10 + 20 * seconds,
            "woken {woken} times in {seconds} s"
        );
        assert!(used <= 5 + seconds, "{used} ticks in {seconds} s");
    }
}

/// It is hashed every second then, and what changed is tried as often as a change may be: both cost little.
#[test]
fn a_busy_neighbour_in_a_watched_folder_costs_little_where_it_is_hashed() {
    for (seconds, _, used) in beside_busy_neighbours("1s") {
        assert!(used <= 10 + 5 * seconds, "{used} ticks in {seconds} s");
    }
}

/// Seconds that each of two neighbours was busy for, how often the agent was woken, and its ticks meanwhile.
fn beside_busy_neighbours(debounce: &str) -> [(u64, u64, u64); 2] {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::bare(&sleeper(directory.path())).args(&["--cert-debounce", debounce]);
    let (folder, beside) = (setup.path("folder"), setup.path("beside"));
    for path in [&folder, &beside] {
        fs::create_dir(path).unwrap();
    }
    for number in 0..100 {
        fs::write(folder.join(number.to_string()), "0").unwrap();
    }
    fs::write(beside.join("watched"), "0").unwrap();
    let mut log = fs::File::create(folder.join("log")).unwrap();
    let agent = setup
        .arg("--watch")
        .arg(&folder)
        .arg("--watch")
        .arg(beside.join("watched"))
        .start();
    agent.wait_log("at the end");
    let pause = Duration::from_millis(2);
    let found = ["neighbour", "log"].map(|busy| {
        let (woken, used, began) = (wakes(&agent), cpu_ticks(&agent), Instant::now());
        for number in 0..1000 {
            if busy == "log" {
                writeln!(log, "line {number}").unwrap();
            } else {
                fs::write(beside.join("new"), "0").unwrap();
                fs::rename(beside.join("new"), beside.join("old")).unwrap();
            }
            std::thread::sleep(pause);
        }
        let (woken, used) = (wakes(&agent) - woken, cpu_ticks(&agent) - used);
        eprintln!(
            "{busy}: woken {woken} times, {used} ticks in {:?}",
            began.elapsed()
        );
        (began.elapsed().as_secs(), woken, used)
    });
    end(agent);
    found
}

/// All that a process was started with.
fn command_line(pid: i32) -> String {
    String::from_utf8(fs::read(format!("/proc/{pid}/cmdline")).unwrap()).unwrap()
}

/// Every process of the pod may read a command line: a token in an override stands in a file that is the proxy's alone.
#[test]
fn an_override_of_a_json_file_stands_in_no_command_line() {
    let setup = Setup::new("hello").args(&["--validate"]);
    let token = r#"{"node": {"metadata": {"token": "a secret"}}, "stats_config": {}}"#;
    setup.write("override.json", token);
    let over = setup.path("override.json");
    let agent = setup
        .env("ISTIO_BOOTSTRAP_OVERRIDE", over.to_str().unwrap())
        .start();
    agent.wait_log("epoch 0 is LIVE");
    let taken = |wanted: &str| {
        until(wanted, || {
            let info = agent.admin("/server_info")?;
            info.contains(wanted).then_some(())
        });
    };
    let assert_hidden = |epoch| {
        let line = command_line(agent.proxy_pid(epoch));
        let hidden = !line.contains("--config-yaml") && !line.contains("a secret");
        assert!(hidden, "{line}");
    };
    taken("a secret");
    assert_hidden(0);
    let file = agent.path("run/envoy-rev0.json");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    agent.write("override.json", &token.replace("a secret", "another"));
    agent.wait_log("epoch 1 is LIVE");
    taken("another");
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    assert_hidden(1);
    agent.wait_log("epoch 0 exited with code 0");
    assert!(!file.exists());
    // Half of an edit is neither started nor shown to anybody.
    let whole = fs::read_to_string(agent.path("envoy.json")).unwrap();
    agent.write("envoy.json", whole.split_at(whole.len() / 2).0);
    agent.signal(libc::SIGHUP);
    agent.wait_log("cannot parse custom configuration ");
    assert_eq!(agent.get().as_deref(), Ok("hello"));
    let (log, file) = (agent.log(), agent.path("run/envoy-rev1.json"));
    assert!(file.exists());
    assert!(
        !log.contains("a secret") && !log.contains("command line"),
        "{log}"
    );
    agent.stop();
    assert!(!file.exists());
}

/// Envoy itself reads YAML, and the agent does not.
#[test]
fn an_override_of_another_file_is_an_argument_and_that_is_said() {
    let setup = Setup::new("hello");
    let yaml = ["# YAML\n", &setup.configuration("hello").to_string()].concat();
    setup.write("envoy.yaml", &yaml);
    setup.write(
        "override.json",
        r#"{"node": {"metadata": {"team": "blue"}}}"#,
    );
    let (file, over) = (setup.path("envoy.yaml"), setup.path("override.json"));
    let agent = setup
        .arg("--custom-config-file")
        .arg(file)
        .env("ISTIO_BOOTSTRAP_OVERRIDE", over.to_str().unwrap())
        .start();
    agent.wait_log("epoch 0 is LIVE");
    agent.wait_log("ISTIO_BOOTSTRAP_OVERRIDE stands in the proxy's command line");
    assert!(command_line(agent.proxy_pid(0)).contains("--config-yaml"));
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 1 is LIVE");
    let said = agent.log();
    let told = said.matches("stands in the proxy's command line");
    assert_eq!(told.count(), 2, "{said}");
    agent.stop();
}

/// What Envoy's configuration is with this override of a file of that name, with `PORT` in the place of its ports.
fn overridden(file: &str, over: &Value) -> Value {
    let setup = Setup::new("hello");
    let mut own = setup.configuration("hello");
    own["node"]["metadata"] = json!({"A": {"b": 1}, "B": [1]});
    own["node"]["locality"] = json!({"region": "r", "zone": "z"});
    own["stats_config"] = json!({
        "statsTags": [{"tag_name": "one", "regex": "a(b)"}],
        "stats_matcher": {"reject_all": false},
    });
    own["application_log_config"] = json!({"log_format": {"text_format": "%v"}});
    own["dynamic_resources"] = json!({"lds_config": {"path": "/dev/null"}});
    own["default_socket_interface"] = json!("");
    own["bootstrap_extensions"] = json!([]);
    own["stats_flush_interval"] = json!("2s");
    // Where it is not the agent that reads it.
    let comment = if file.ends_with("yaml") {
        "# YAML\n"
    } else {
        ""
    };
    setup.write(file, &[comment, &own.to_string()].concat());
    setup.write("override.json", &over.to_string());
    let (file, over) = (setup.path(file), setup.path("override.json"));
    let ports = [setup.admin_port(), setup.listener_port()];
    let agent = setup
        .arg("--custom-config-file")
        .arg(file)
        .env("ISTIO_BOOTSTRAP_OVERRIDE", over.to_str().unwrap())
        .start();
    agent.wait_log("epoch 0 started");
    let port = ports[0].to_string();
    let dump = until("the configuration", || {
        let mut request = Command::new(env!("CARGO_BIN_EXE_pintle"));
        request.args(["request", "--debug-port", &port, "GET", "/config_dump"]);
        let said = request.output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        said.contains("bootstrap").then_some(said)
    });
    end(agent);
    let dump = ports.iter().fold(dump, |dump, port| {
        dump.replace(&port.to_string(), "\"PORT\"")
    });
    let dump: Value = serde_json::from_str(&dump).unwrap();
    let configs = dump["configs"].as_array().unwrap().iter();
    let mut bootstraps = configs.filter_map(|config| config.get("bootstrap"));
    let mut bootstrap = bootstraps.next().unwrap().clone();
    // Envoy's own, in no order.
    bootstrap["node"]
        .as_object_mut()
        .unwrap()
        .remove("extensions");
    bootstrap
}

/// Envoy would add the one, the agent adds the other.
#[test]
fn an_override_means_the_same_in_a_file_as_in_an_argument() {
    let over = json!({
        "node": {"metadata": {"A": {"c": 2}, "C": null}, "locality": {"zone": "y"}, "cluster": null},
        "stats_config": {"stats_tags": [{"tagName": "two", "regex": "c(d)"}], "useAllDefaultTags": false,
            "statsMatcher": {"exclusionList": {"patterns": [{"prefix": "x."}]}}},
        "applicationLogConfig": {"logFormat": {"jsonFormat": {"said": "%j"}}},
        "dynamicResources": {"ldsConfig": {"pathConfigSource": {"path": "/dev/null"}}},
        "statsFlushInterval": "3s",
        "static_resources": {"clusters": [{"name": "more", "connect_timeout": "1s"}]},
        "layered_runtime": {"layers": [{"name": "a", "static_layer": {"b": {"c": 1}}}]},
    });
    let [argument, file] = ["own.yaml", "own.json"].map(|file| overridden(file, &over));
    assert_eq!(argument, file);
    assert_eq!(
        file["node"]["metadata"],
        json!({"A": {"c": 2}, "B": [1], "C": null})
    );
    assert_eq!(
        file["application_log_config"],
        json!({"log_format": {"json_format": {"said": "%j"}}})
    );
    let matcher = &file["stats_config"]["stats_matcher"];
    assert!(matcher["exclusion_list"].is_object(), "{matcher}");
}

#[test]
fn a_watched_path_that_is_not_there_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup::bare(&sleeper(directory.path()));
    let (absent, there) = (setup.path("absent"), setup.path("cert.pem"));
    let agent = setup
        .arg("--watch")
        .arg(&absent)
        .arg("--watch")
        .arg(there)
        .start();
    agent.wait_log("epoch 0 started");
    let log = agent.log();
    let said = format!("warn\t--watch {} is not there yet", absent.display());
    assert!(log.contains(&said), "{log}");
    assert_eq!(log.matches("is not there yet").count(), 1, "{log}");
    end(agent);
}
