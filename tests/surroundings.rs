//! What the agent finds around it: files of every kind in every place where a path is given, modes, addresses, processes
//! that it never started. Each may be refused by name or done without; none may hold PID 1 up or outlive it.

use std::fs;
use std::io::Write;
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::json;

use super::support::client::{Application, Reply, answer, request};
use super::support::{Agent, Setup, envoy, is_alive, kill, until, write_whole};

/// Whether tests may do what only root may: they say so when they may not.
fn is_root() -> bool {
    let root = sys::effective_uid() == 0;
    if !root {
        eprintln!("not root: a part is left out");
    }
    root
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// A script that stands in for Envoy: it stays, in the end.
fn script(folder: &tempfile::TempDir, lines: &str) -> PathBuf {
    let script = folder.path().join("envoy");
    fs::write(&script, format!("#!/bin/sh\n{lines}\nexec sleep 1000\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

#[test]
fn modes_are_the_same_whatever_the_umask() {
    for mask in [0o000, 0o022, 0o177, 0o277, 0o777] {
        let folder = tempfile::tempdir().unwrap();
        let told = folder.path().join("told");
        let lines = format!("umask > {0}.tmp; mv {0}.tmp {0}", told.display());
        let agent = Setup::bare(&script(&folder, &lines)).umask(mask).start();
        // Files that the proxy makes have what the agent was started with.
        let its = until("the proxy's umask", || fs::read_to_string(&told).ok());
        assert_eq!(its.trim(), format!("{mask:04o}"));
        let run = agent.path("run");
        assert_eq!(mode(&run), 0o700, "{mask:o}");
        assert_eq!(mode(&run.join("envoy-rev0.json")), 0o600, "{mask:o}");
    }
}

#[test]
fn a_config_path_that_has_gone_is_made_again() {
    let setup = Setup::bare(&envoy());
    setup.write("template.json", &setup.configuration("hello").to_string());
    let template = setup.path("template.json");
    let agent = setup.arg("--template-file").arg(template).start();
    agent.wait_log("epoch 0 is LIVE");
    fs::remove_dir_all(agent.path("run")).unwrap();
    agent.signal(libc::SIGHUP);
    agent.wait_log("epoch 1 is LIVE");
    assert_eq!(agent.get().unwrap(), "hello");
    assert_eq!(mode(&agent.path("run")), 0o700);
    assert!(!agent.log().contains("others may write"));
    agent.stop();
}

#[test]
fn a_config_path_that_others_may_write_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::bare(&script(&folder, ""));
    let run = setup.path("run");
    fs::create_dir(&run).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o777)).unwrap();
    let agent = setup.start();
    let run = run.display();
    agent.wait_log(&format!(
        "\twarn\tothers may write to {run}, and so replace the proxy's bootstrap"
    ));
}

/// Runs `what` in a network namespace of its own whose only address is `::1`.
fn with_ipv6_loopback_only(what: impl FnOnce() + Send) {
    thread::scope(|scope| {
        scope.spawn(|| {
            sys::testing::leave_network().unwrap();
            for line in ["link set lo up", "addr del 127.0.0.1/8 dev lo"] {
                let done = Command::new("ip").args(line.split(' ')).status().unwrap();
                assert!(done.success(), "ip {line}");
            }
            what();
        });
    });
}

#[test]
fn an_address_of_ipv6_loopback_is_enough() {
    if !is_root() || TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    // Its ports are looked for where there is IPv4.
    let setup = Setup::bare(&envoy());
    with_ipv6_loopback_only(move || {
        // What the application says, to kubelet's probe and to a scrape.
        let metrics = answer("200 OK", "Content-Type: text/plain\r\n", "app_up 1\n");
        let application = Application::at("[::1]:0", move |_, stream| {
            stream.write_all(metrics.as_bytes())
        });
        let port = application.port;
        let probers = json!({"/app-health/app/livez": {"httpGet": {"port": port, "path": "/"}}});
        let scrape = json!({"scrape": "true", "port": port.to_string(), "path": "/"});
        // There is no control plane here.
        setup.write(
            "override.json",
            &json!({"dynamic_resources": null}).to_string(),
        );
        let over = setup.path("override.json");
        let status = setup.status_port();
        let mut agent = setup
            .env("ISTIO_BOOTSTRAP_OVERRIDE", over.to_str().unwrap())
            .env("ISTIO_KUBE_APP_PROBERS", &probers.to_string())
            .env("ISTIO_PROMETHEUS_ANNOTATIONS", &scrape.to_string())
            .start();
        let said = |error: std::io::Error| error.to_string();
        let ask = |path: &str| {
            let mut stream = TcpStream::connect((Ipv6Addr::LOCALHOST, status)).map_err(said)?;
            let request = request(&format!("GET {path}"), "");
            stream.write_all(request.as_bytes()).map_err(said)?;
            Reply::read(&mut stream)
        };
        until("readiness", || {
            (ask("/healthz/ready").ok()?.status == 200).then_some(())
        });
        agent.wait_log("epoch 0 is LIVE");
        let document = fs::read_to_string(agent.path("run/envoy-rev0.json")).unwrap();
        assert!(document.contains("sidecar~::1~"), "{document}");
        assert_eq!(ask("/app-health/app/livez").unwrap().status, 200);
        assert!(ask("/metrics").unwrap().text().contains("\napp_up 1\n"));
        let url = format!("http://localhost:{status}/healthz/ready");
        let probe = Command::new(env!("CARGO_BIN_EXE_pintle"))
            .args(["probe", "--url", &url])
            .status();
        assert_eq!(probe.unwrap().code(), Some(0));
        agent.signal(libc::SIGHUP);
        agent.wait_log("epoch 1 is LIVE");
        agent.signal(libc::SIGTERM);
        assert_eq!(agent.wait().code(), Some(0), "{}", agent.log());
    });
}

/// A wrapper that does not become its Envoy: the next one would run beside what is left of it, and take half of its connections.
#[test]
fn what_a_wrapper_leaves_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let child = folder.path().join("child");
    let lines = format!(
        "sleep 1000 & echo $! > {0}.tmp; mv {0}.tmp {0}; wait",
        child.display()
    );
    let agent = Setup::bare(&script(&folder, &lines))
        .args(&["--disable-hot-restart", "--retry-initial", "10ms"])
        .start();
    let pid = until("the child", || fs::read_to_string(&child).ok());
    let pid = pid.trim().parse().unwrap();
    agent.wait_log("epoch 0 started");
    kill(agent.proxy_pid(0), libc::SIGKILL);
    agent.wait_log_times("epoch 0 started", 2);
    until("the child's end", || (!is_alive(pid)).then_some(()));
}

/// A user namespace that allows none.
#[test]
fn that_there_is_no_inotify_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let binary = script(&folder, "");
    let pintle = folder.path().join("pintle");
    let program = env!("CARGO_BIN_EXE_pintle");
    let none = "echo 0 > /proc/sys/user/max_inotify_instances";
    let line = format!("{none} && exec {program} \"$@\"");
    let text = format!("#!/bin/sh\nexec unshare --user --map-root-user sh -c '{line}' sh \"$@\"\n");
    fs::write(&pintle, text).unwrap();
    fs::set_permissions(&pintle, fs::Permissions::from_mode(0o755)).unwrap();
    let agent = Setup::with(&pintle, "proxy", &binary)
        .args(&["--rescan-interval", "1s"])
        .start();
    agent.wait_log("cannot start inotify: ");
    for turn in 1..4 {
        agent.write("cert.pem", &turn.to_string());
        agent.wait_log_times("configuration changed to", turn);
    }
    let log = agent.log();
    assert_eq!(
        log.matches("hashing the files every 10s instead").count(),
        1,
        "{log}"
    );
}

/// Starts what leaves its process group and outlives the shell: one that heeds TERM, with a child of its own, and one that
/// does not. Their pids go to files in `folder`.
fn orphans(folder: &Path) -> String {
    let folder = folder.display();
    let one = |name: &str, script: &str| {
        let told = format!("echo $$ > {folder}/{name}.tmp; mv {folder}/{name}.tmp {folder}/{name}");
        format!("setsid sh -c '{told}; {script}' <&- >&- 2>&- &")
    };
    [
        one("meek", "exec sleep 1000"),
        one("parent", "setsid sleep 1000 & echo $! > child; wait").replace("> child", &format!("> {folder}/child")),
        one("deaf", "trap : TERM; while :; do sleep 0.1; done"),
        format!("while ! [ -s {folder}/meek ] || ! [ -s {folder}/child ] || ! [ -s {folder}/deaf ]; do sleep 0.05; done; : > {folder}/all"),
    ]
    .join("\n")
}

fn assert_none_is_left(folder: &Path) {
    for name in ["meek", "parent", "child", "deaf"] {
        let pid = fs::read_to_string(folder.join(name)).unwrap();
        assert!(!is_alive(pid.trim().parse().unwrap()), "{name} is alive");
    }
}

#[test]
fn no_adopted_process_outlives_a_proxy_that_ends() {
    let folder = tempfile::tempdir().unwrap();
    let lines = format!(
        "{}\ntrap 'exit 0' TERM; sleep 1000 & wait\nexit 0",
        orphans(folder.path())
    );
    let mut agent = Setup::bare(&script(&folder, &lines))
        .args(&["--kill-timeout", "1s"])
        .start();
    until("its orphans", || {
        folder.path().join("all").exists().then_some(())
    });
    agent.signal(libc::SIGTERM);
    let status = agent.wait();
    assert_none_is_left(folder.path());
    let log = agent.log();
    // The code is the one that it would have been without them.
    assert_eq!(status.code(), Some(143), "{log}");
    assert!(log.contains("stopping adopted process "), "{log}");
    assert!(
        log.contains("\twarn\tadopted processes have had their time, killing them\n"),
        "{log}"
    );
    assert!(log.ends_with("exit code 143\n"), "{log}");
}

/// `exec pintle ... > >(tee log)`: the reader is the agent's child, but from before its time.
#[test]
fn a_child_from_before_the_agent_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let reader = folder.path().join("reader");
    let shell = folder.path().join("shell");
    let lines = format!(
        "#!/bin/sh\nsleep 1000 <&- >&- 2>&- &\necho $! > {}\nexec {} \"$@\"\n",
        reader.display(),
        env!("CARGO_BIN_EXE_pintle")
    );
    fs::write(&shell, lines).unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let proxy = script(&folder, ": > ${0%/*}/started");
    let mut agent = Setup::with(&shell, "proxy", &proxy)
        .args(&["--kill-timeout", "1s", "--status-port", "0"])
        .start();
    until("the proxy", || {
        folder.path().join("started").exists().then_some(())
    });
    agent.signal(libc::SIGTERM);
    let status = agent.wait();
    let log = agent.log();
    let reader: i32 = fs::read_to_string(reader).unwrap().trim().parse().unwrap();
    let lives = is_alive(reader);
    kill(reader, libc::SIGKILL);
    assert!(lives, "{log}");
    assert_eq!(status.code(), Some(143), "{log}");
    assert!(!log.contains("adopted"), "{log}");
}

#[test]
fn no_adopted_process_outlives_the_command_of_run() {
    let setup = Setup::run("hello").args(&["--kill-timeout", "1s"]);
    let folder = setup.path("orphans");
    fs::create_dir(&folder).unwrap();
    let lines = format!("{}\nexit 3", orphans(&folder));
    let mut agent = setup.args(&["--", "/bin/sh", "-c", &lines]).start();
    assert_eq!(agent.wait().code(), Some(3), "{}", agent.log());
    assert_none_is_left(&folder);
}

#[test]
fn no_adopted_process_outlives_init_and_who_asks_again_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("{}\nexit 7", orphans(folder.path()));
    let mut init = Command::new(env!("CARGO_BIN_EXE_pintle"))
        .args(["init", "--", "/bin/sh", "-c", &lines])
        .stdin(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let pid = i32::try_from(init.id()).unwrap();
    let gone = |name: &str| {
        let pid = fs::read_to_string(folder.path().join(name)).ok()?;
        (!is_alive(pid.trim().parse().ok()?)).then_some(())
    };
    until("the end of those that heed TERM", || {
        gone("meek").and_then(|()| gone("child"))
    });
    kill(pid, libc::SIGTERM);
    assert_eq!(init.wait().unwrap().code(), Some(7));
    assert_none_is_left(folder.path());
}

/// What may stand where a regular file is meant. Root reads what nobody may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fifo,
    Socket,
    Device,
    Directory,
    Dangling,
    Loop,
    LinkToFifo,
    /// A terabyte of nothing.
    Sparse,
    Unreadable,
}

const KINDS: [Kind; 9] = [
    Kind::Fifo,
    Kind::Socket,
    Kind::Device,
    Kind::Directory,
    Kind::Dangling,
    Kind::Loop,
    Kind::LinkToFifo,
    Kind::Sparse,
    Kind::Unreadable,
];

/// Puts one at `path`, in place of what is there.
fn put(kind: Kind, path: &Path) {
    let fifo = |at: &Path| {
        let made = Command::new("mkfifo").arg(at).status().unwrap();
        assert!(made.success());
    };
    drop(fs::remove_file(path));
    match kind {
        Kind::Fifo => fifo(path),
        // The listener may go, its name stays.
        Kind::Socket => drop(UnixListener::bind(path).unwrap()),
        Kind::Device => symlink("/dev/zero", path).unwrap(),
        Kind::Directory => fs::create_dir(path).unwrap(),
        Kind::Dangling => symlink("nowhere", path).unwrap(),
        Kind::Loop => symlink(path, path).unwrap(),
        Kind::LinkToFifo => {
            let other = path.with_extension("fifo");
            fifo(&other);
            symlink(other, path).unwrap();
        }
        Kind::Sparse => fs::File::create(path).unwrap().set_len(1 << 40).unwrap(),
        Kind::Unreadable => {
            fs::write(path, "{").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        }
    }
}

/// The agent refuses to start with this code, and names the path.
fn assert_refused(setup: Setup, code: i32, path: &Path, what: &str) {
    let mut agent = setup.start();
    let status = agent.wait();
    let log = agent.log();
    assert_eq!(status.code(), Some(code), "{what}: {log}");
    let last = log.lines().last().unwrap_or_default();
    assert!(last.contains(path.to_str().unwrap()), "{what}: {last}");
}

#[test]
fn documents_of_every_kind_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = script(&folder, "");
    for kind in KINDS {
        for place in ["--template-file", "--custom-config-file", "override"] {
            // Its size and its form are the proxy's business.
            let passed_on = kind == Kind::Sparse || kind == Kind::Unreadable && is_root();
            if place == "--custom-config-file" && passed_on {
                continue;
            }
            let setup = Setup::bare(&proxy);
            let path = setup.path("document");
            put(kind, &path);
            let setup = match place {
                "override" => setup.env("ISTIO_BOOTSTRAP_OVERRIDE", path.to_str().unwrap()),
                flag => setup.arg(flag).arg(&path),
            };
            assert_refused(setup, 78, &path, &format!("{place} {kind:?}"));
        }
    }
}

#[test]
fn a_config_path_of_every_kind_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = script(&folder, "");
    // Root may enter what nobody may.
    let fine = [Kind::Directory];
    for kind in KINDS.into_iter().filter(|kind| !fine.contains(kind)) {
        let setup = Setup::bare(&proxy);
        let path = setup.path("run");
        put(kind, &path);
        assert_refused(setup, 71, &path, &format!("{kind:?}"));
    }
}

#[test]
fn leftovers_in_the_config_path_are_replaced_and_never_followed() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = script(&folder, "");
    for name in ["envoy-rev0.json", "envoy-rev0.json.tmp"] {
        for kind in KINDS {
            let setup = Setup::bare(&proxy);
            let run = setup.path("run");
            fs::create_dir(&run).unwrap();
            put(kind, &run.join(name));
            if kind == Kind::Directory {
                assert_refused(setup, 71, &run, name);
                continue;
            }
            let agent = setup.start();
            agent.wait_log("epoch 0 started");
            let file = fs::symlink_metadata(run.join("envoy-rev0.json")).unwrap();
            assert!(file.is_file() && file.len() < 1 << 20, "{name} {kind:?}");
            assert!(!run.join("envoy-rev0.json.tmp").exists(), "{name} {kind:?}");
            assert!(!run.join("nowhere").exists(), "{name} {kind:?}");
        }
    }
}

#[test]
fn a_proxy_of_every_kind_is_a_failed_start_with_its_code() {
    for kind in KINDS {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("envoy");
        put(kind, &path);
        let mut agent = Setup::bare(&path).args(&["--retry-budget", "0"]).start();
        let code = if kind == Kind::Dangling { 127 } else { 126 };
        assert_eq!(agent.wait().code(), Some(code), "{kind:?}: {}", agent.log());
        let told = format!("cannot start {}: ", path.display());
        assert!(agent.log().contains(&told), "{kind:?}: {}", agent.log());
    }
}

/// The certificates, what `--watch` names, and what lies in a folder that it names: at the start, and later.
#[test]
fn what_is_watched_may_be_of_every_kind() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = script(&folder, "");
    for kind in KINDS {
        for late in [false, true] {
            if kind == Kind::Sparse && !late {
                continue;
            }
            let setup = Setup::bare(&proxy);
            let places = ["cert.pem", "watched", "folder/file"].map(|name| setup.path(name));
            let sentinel = setup.path("sentinel");
            fs::create_dir(setup.path("folder")).unwrap();
            for path in &places {
                fs::write(path, "good").unwrap();
            }
            fs::write(&sentinel, "one").unwrap();
            // A debug build takes a second to hash what counts of a large file.
            let most = if kind == Kind::Sparse {
                1
            } else {
                places.len()
            };
            let put_all = || places.iter().take(most).for_each(|path| put(kind, path));
            if !late {
                put_all();
            }
            let paths = ["watched", "folder", "sentinel"].map(|name| setup.path(name));
            let list = paths.map(|path| path.display().to_string()).join(",");
            let agent = setup.args(&["--watch", &list]).start();
            agent.wait_log("epoch 0 started");
            if late {
                put_all();
            }
            // What comes after it is seen all the same.
            write_whole(&sentinel, "two");
            agent.wait_log("configuration changed to ");
            assert_eq!(agent.status("/healthz/live").status, 200);
            // The end of each certificate is looked up for these.
            assert_eq!(agent.status("/status").status, 200);
            assert_eq!(agent.status("/metrics").status, 200);
            end(agent);
        }
    }
}

/// Asks the agent to end, which it does, without a proxy that was ever LIVE.
fn end(mut agent: Agent) {
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait().code(), Some(143), "{}", agent.log());
}

/// It counts as regular, and waits for the kernel to say something.
#[test]
fn a_link_to_the_kernels_log_as_a_certificate_is_not_waited_for() {
    if !is_root() || fs::File::open("/proc/kmsg").is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::bare(&script(&folder, ""));
    let certificate = setup.path("cert.pem");
    fs::remove_file(&certificate).unwrap();
    symlink("/proc/kmsg", &certificate).unwrap();
    let agent = setup.start();
    agent.wait_log("epoch 0 started");
    for _ in 0..2 {
        assert_eq!(agent.status("/status").status, 200);
        assert_eq!(agent.status("/metrics").status, 200);
    }
    end(agent);
}

/// The proxy's own user may do that, and anybody may in a /dev/shm that is shared.
#[test]
fn shared_memory_that_has_become_a_fifo_holds_nothing_up() {
    let agent = Setup::new("hello").args(&["--retry-budget", "1"]).start();
    agent.wait_log("epoch 0 is LIVE");
    let line = fs::read(format!("/proc/{}/cmdline", agent.proxy_pid(0))).unwrap();
    let line = String::from_utf8(line).unwrap();
    let (_, id) = line.split_once("--base-id\0").unwrap();
    let id: u32 = id.split('\0').next().unwrap().parse().unwrap();
    let segment = PathBuf::from(format!("/dev/shm/envoy_shared_memory_{}", id * 10));
    assert!(segment.exists());
    put(Kind::Fifo, &segment);
    agent.signal(libc::SIGHUP);
    // Its child has no shared memory; the parent goes on.
    agent.wait_log_times("before it was LIVE, keeping epoch 0", 2);
    assert_eq!(agent.status("/healthz/ready").status, 200);
    assert_eq!(agent.get().unwrap(), "hello");
    agent.stop();
    // What our proxies did not make stays.
    fs::remove_file(segment).unwrap();
}
