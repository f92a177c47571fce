//! Files of every kind in every place: what blocks, what hangs, what goes and comes back. Beside each a good one goes on.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::place::{Discovery, Place, entry, until};
use crate::support::{beside_a_hung_mount, gudgeon, pipe};

/// The deadline of an update on a loaded machine.
const UPDATE: Duration = Duration::from_secs(6);

fn service(name: &str, address: &str) -> String {
    let host = format!("{name}.demo.svc.cluster.local");
    entry(&host, 80, "HTTP", &[(address, 8080)])
}

/// With a mount that hangs at `hung`, where there can be one.
fn place() -> (Place, bool) {
    let place = Place::new();
    let hung = place.path("hung");
    let possible = beside_a_hung_mount(&hung).is_some();
    let command = move || beside_a_hung_mount(&hung).unwrap_or_else(gudgeon);
    let place = place.by(command);
    let place = place.env("PATH", &std::env::var("PATH").unwrap());
    (place, possible)
}

fn is_served(discovery: &Discovery, address: &str) -> bool {
    let (status, body) = discovery.get("/debug/endpointz?brief=1");
    status == 200 && body.contains(address)
}

/// A change of another file is served, health answers, and TERM is obeyed.
fn goes_on(mut discovery: Discovery) {
    let begin = Instant::now();
    discovery
        .place
        .write("config/other.yaml", &service("other", "10.0.9.9"));
    until("another file", || {
        is_served(&discovery, "10.0.9.9").then_some(())
    });
    assert!(begin.elapsed() < UPDATE, "{:?}", begin.elapsed());
    assert_eq!(discovery.get("/ready").0, 200);
    let begin = Instant::now();
    discovery.signal("TERM");
    assert!(discovery.wait().success());
    assert!(begin.elapsed() < UPDATE, "{:?}", begin.elapsed());
}

#[test]
fn files_that_block_hold_up_only_themselves() {
    let (place, hangs) = place();
    place.write("config/a.yaml", &service("a", "10.0.0.1"));
    let config = place.path("config");
    symlink("/proc/kmsg", config.join("kmsg.yaml")).unwrap();
    symlink("/dev/zero", config.join("zero.yaml")).unwrap();
    symlink("/dev/watchdog", config.join("watchdog.yaml")).unwrap();
    pipe(&config.join("pipe.yaml"));
    symlink(place.path("hung/b.yaml"), config.join("hung.yaml")).unwrap();
    symlink(place.path("hung"), config.join("hung")).unwrap();
    let discovery = place.start();
    assert!(is_served(&discovery, "10.0.0.1"));
    until("what blocks is said", || {
        (discovery.logged("kmsg.yaml: stale: cannot read: it is read by waiting for it") == 1
            || discovery.logged("kmsg.yaml: stale: cannot read: Operation not permitted") == 1)
            .then_some(())
    });
    if hangs {
        for name in ["hung.yaml", "hung"] {
            let message = format!("{name}: stale: cannot read: reading it hangs");
            until(&message, || (discovery.logged(&message) == 1).then_some(()));
        }
    }
    for name in ["zero.yaml", "pipe.yaml"] {
        let message = format!("{name}: refused: not a regular file");
        assert_eq!(discovery.logged(&message), 1, "{name}");
    }
    goes_on(discovery);
}

#[test]
fn a_file_that_begins_to_hang_keeps_its_last_content() {
    let (place, hangs) = place();
    place.write("config/a.yaml", &service("a", "10.0.0.1"));
    let (config, hung) = (place.path("config"), place.path("hung"));
    let discovery = place.start();
    let to = if hangs {
        hung.join("a.yaml")
    } else {
        "/proc/kmsg".into()
    };
    symlink(to, config.join(".new")).unwrap();
    fs::rename(config.join(".new"), config.join("a.yaml")).unwrap();
    until("what hangs is said", || {
        (discovery.logged("a.yaml: stale: cannot read") == 1).then_some(())
    });
    assert!(is_served(&discovery, "10.0.0.1"));
    discovery
        .place
        .write("config/a.yaml", &service("a", "10.0.0.2"));
    until("it is a file again", || {
        is_served(&discovery, "10.0.0.2").then_some(())
    });
    goes_on(discovery);
}

#[test]
fn mesh_files_that_hang_change_nothing() {
    let (place, hangs) = place();
    place.write("config/a.yaml", &service("a", "10.0.0.1"));
    let (mesh, hung) = (place.path("mesh"), place.path("hung"));
    let discovery = place.start();
    let link = |to: &Path| {
        let new = mesh.with_extension("new");
        symlink(to, &new).unwrap();
        fs::rename(new, &mesh).unwrap();
    };
    link(Path::new("/proc/kmsg"));
    until("what blocks is said", || {
        (discovery.logged("cannot use --meshConfig") == 1).then_some(())
    });
    if hangs {
        link(&hung.join("mesh"));
        until("what hangs is said", || {
            (discovery.logged("mesh: reading it hangs") == 1).then_some(())
        });
    }
    discovery.place.write("mesh", "enableTracing: true\n");
    until("it is a file again", || {
        (discovery.logged("mesh has changed") == 1).then_some(())
    });
    goes_on(discovery);
}

#[test]
fn a_folder_that_goes_changes_nothing_and_its_return_is_seen() {
    let place = Place::new();
    place.write("config/a.yaml", &service("a", "10.0.0.1"));
    let discovery = place.start();
    let (config, away) = (discovery.place.path("config"), discovery.place.path("away"));
    let lost = |times| {
        until("that it is gone is said", || {
            (discovery.logged("serving the last good content") == times).then_some(())
        });
        assert!(is_served(&discovery, "10.0.0.1"));
    };
    let returns = |address: &str| {
        let begin = Instant::now();
        fs::rename(&away, &config).unwrap();
        until("its return", || {
            is_served(&discovery, address).then_some(())
        });
        assert!(begin.elapsed() < UPDATE, "{:?}", begin.elapsed());
    };
    // Gone.
    fs::rename(&config, &away).unwrap();
    lost(1);
    fs::write(away.join("b.yaml"), service("b", "10.0.0.2")).unwrap();
    returns("10.0.0.2");
    // A file replaces the directory, with text that looks like configuration.
    fs::rename(&config, &away).unwrap();
    fs::write(&config, service("c", "10.0.0.3")).unwrap();
    lost(2);
    assert!(!is_served(&discovery, "10.0.0.3"));
    fs::write(away.join("b.yaml"), service("b", "10.0.0.4")).unwrap();
    fs::remove_file(&config).unwrap();
    returns("10.0.0.4");
    // A pipe, and a dangling link.
    fs::rename(&config, &away).unwrap();
    pipe(&config);
    lost(3);
    fs::remove_file(&config).unwrap();
    symlink("nowhere", &config).unwrap();
    fs::write(away.join("b.yaml"), service("b", "10.0.0.5")).unwrap();
    fs::remove_file(&config).unwrap();
    returns("10.0.0.5");
    // A link that is exchanged.
    fs::rename(&config, &away).unwrap();
    symlink("away", &config).unwrap();
    lost_or_not(&discovery);
    let other = discovery.place.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("b.yaml"), service("b", "10.0.0.6")).unwrap();
    let new = discovery.place.path("new");
    symlink("other", &new).unwrap();
    let begin = Instant::now();
    fs::rename(&new, &config).unwrap();
    until("the other folder", || {
        is_served(&discovery, "10.0.0.6").then_some(())
    });
    assert!(begin.elapsed() < UPDATE, "{:?}", begin.elapsed());
    goes_on(discovery);
}

/// A scan may or may not have happened between the two renames.
fn lost_or_not(discovery: &Discovery) {
    until("it is read again", || {
        let lost = discovery.logged("serving the last good content");
        let found = discovery.logged("can be read again");
        (lost == found && is_served(discovery, "10.0.0.5")).then_some(())
    });
}

/// As few descriptors as a shell may give.
fn few() -> Command {
    let mut command = Command::new("sh");
    let shell = "ulimit -n 64 && exec \"$0\" \"$@\"";
    command.args(["-c", shell, env!("CARGO_BIN_EXE_gudgeon")]);
    command
}

#[test]
fn with_few_descriptors_files_are_still_seen() {
    let place = Place::new().by(few);
    place.write("config/a.yaml", &service("a", "10.0.0.1"));
    let discovery = place.start();
    let connections: Vec<_> = (0..200)
        .filter_map(|at| {
            let port = if at % 2 == 0 {
                discovery.http
            } else {
                discovery.grpc
            };
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        })
        .collect();
    discovery
        .place
        .write("config/a.yaml", &service("a", "10.0.0.2"));
    discovery.place.write("mesh", "enableTracing: true\n");
    until("the mesh file", || {
        (discovery.logged("mesh has changed") == 1).then_some(())
    });
    drop(connections);
    until("the change", || {
        is_served(&discovery, "10.0.0.2").then_some(())
    });
    assert_eq!(discovery.logged("Too many open files"), 0);
    goes_on(discovery);
}

#[test]
fn signals_do_what_they_ask_for_and_end_nothing() {
    let (place, _) = place();
    place.write("config/a.yaml", &service("a", "10.0.0.1"));
    let discovery = place.start();
    for (name, message) in [
        ("HUP", "received SIGHUP: reading all files again"),
        ("USR1", "the log goes to no file"),
        ("USR2", "ignoring signal USR2"),
        ("QUIT", "ignoring signal QUIT"),
        ("50", "ignoring signal 50"),
    ] {
        discovery.signal(name);
        until(message, || (discovery.logged(message) == 1).then_some(()));
    }
    goes_on(discovery);
}
