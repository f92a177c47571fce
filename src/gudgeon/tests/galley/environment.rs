//! Files of every kind in every place: blocking, hanging, removed and restored, too large. Beside each a valid one is
//! served.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::place::{Galley, GalleyPlace, SERVICES, service, until};
use crate::support::{beside_a_hung_mount, gudgeon, pipe};

/// The deadline of an update on a loaded machine.
const UPDATE: Duration = Duration::from_secs(6);

/// Starts the program with the test's folder `hung` as a hanging mount, if possible.
fn beside_hung(root: &Path) -> Command {
    beside_a_hung_mount(&root.join("hung")).unwrap_or_else(gudgeon)
}

fn goes_on(mut galley: Galley) {
    let begin = Instant::now();
    galley
        .place
        .write("config/other.yaml", &service("other", [75, 25]));
    until("another file", || {
        let names = galley.names(SERVICES);
        names.contains(&"shop/other".to_owned()).then_some(())
    });
    assert!(begin.elapsed() < UPDATE, "{:?}", begin.elapsed());
    assert_eq!(galley.get("/ready").0, 200);
    let begin = Instant::now();
    galley.signal("TERM");
    assert!(galley.wait().success());
    assert!(begin.elapsed() < UPDATE, "{:?}", begin.elapsed());
}

#[test]
fn files_that_block_hold_up_only_themselves() {
    let place = GalleyPlace::new()
        .by(beside_hung)
        .with("config/a.yaml", &service("a", [75, 25]))
        .mesh("enableTracing: true\n");
    let config = place.path("config");
    symlink("/proc/kmsg", config.join("kmsg.yaml")).unwrap();
    symlink(place.path("hung/b.yaml"), config.join("hung.yaml")).unwrap();
    symlink(place.path("hung"), config.join("hung")).unwrap();
    pipe(&config.join("pipe.yaml"));
    let hangs = beside_a_hung_mount(&place.path("hung")).is_some();
    let galley = place.start();
    assert_eq!(galley.names(SERVICES), ["shop/a"]);
    let rejected = galley.configz()["rejected"].to_string();
    assert!(rejected.contains("kmsg.yaml"), "{rejected}");
    if hangs {
        assert_eq!(
            rejected.matches("reading it hangs").count(),
            2,
            "{rejected}"
        );
    }
    // One that was good begins to hang, and is good again.
    let a = config.join("a.yaml");
    let to = if hangs { "../hung/a" } else { "/proc/kmsg" };
    symlink(to, config.join(".new")).unwrap();
    fs::rename(config.join(".new"), &a).unwrap();
    until("what hangs is shown", || {
        let rejected = galley.configz()["rejected"].to_string();
        rejected.contains("/a.yaml").then_some(())
    });
    assert_eq!(galley.names(SERVICES), ["shop/a"]);
    galley.place.write("config/a.yaml", &service("b", [75, 25]));
    until("it is a file again", || {
        (galley.names(SERVICES) == ["shop/b"]).then_some(())
    });
    // The mesh's file, too.
    let mesh = galley.place.path("mesh");
    symlink(to.replace("..", "."), mesh.with_extension("new")).unwrap();
    fs::rename(mesh.with_extension("new"), &mesh).unwrap();
    until("that is said", || {
        (galley.logged("cannot use --meshConfigFile") == 1).then_some(())
    });
    galley.place.write("mesh", "enableTracing: false\n");
    until("it is a file again", || {
        (galley.logged("mesh has changed") == 1).then_some(())
    });
    goes_on(galley);
}

#[test]
fn a_folder_that_goes_changes_nothing_and_its_return_is_seen() {
    let galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .start();
    let (config, away) = (galley.place.path("config"), galley.place.path("away"));
    for (name, in_its_place) in [("b", "nothing"), ("c", "a file"), ("d", "a pipe")] {
        fs::rename(&config, &away).unwrap();
        match in_its_place {
            "a file" => fs::write(&config, service("wrong", [75, 25])).unwrap(),
            "a pipe" => pipe(&config),
            _ => {}
        }
        until("it is known to be gone", || {
            galley.configz()["source"]["stale_since"].as_str().map(drop)
        });
        assert!(galley.names(SERVICES).contains(&"shop/a".to_owned()));
        assert!(!galley.names(SERVICES).contains(&"shop/wrong".to_owned()));
        fs::write(away.join(format!("{name}.yaml")), service(name, [75, 25])).unwrap();
        let _absent = fs::remove_file(&config);
        fs::rename(&away, &config).unwrap();
        let begin = Instant::now();
        until("its return", || {
            let names = galley.names(SERVICES);
            names.contains(&format!("shop/{name}")).then_some(())
        });
        assert!(
            begin.elapsed() < UPDATE,
            "{in_its_place}: {:?}",
            begin.elapsed()
        );
    }
    goes_on(galley);
}

/// Documents that are nearly empty, or invalid: the memory for them is bounded. (15 MB of each used to take 1.5 GB; these
/// take 90 MB.)
#[test]
fn many_tiny_documents_take_bounded_memory() {
    const MANY: usize = 20_000;
    let nameless = "kind: VirtualService\napiVersion: networking.istio.io/v1\n---\n";
    let named = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: NAME}\nspec: {x: 1}\n---\n";
    let named = (0..MANY).map(|at| named.replace("NAME", &format!("n{at}")));
    let galley = GalleyPlace::new()
        .with("config/a.yaml", &service("a", [75, 25]))
        .with("config/empty.yaml", &"a: 1\n---\n".repeat(MANY))
        .with("config/nameless.yaml", &nameless.repeat(MANY))
        .with("config/wrong.yaml", &named.collect::<String>())
        .start();
    assert_eq!(galley.names(SERVICES), ["shop/a"]);
    assert!(galley.anonymous() < 48 << 10, "{} KiB", galley.anonymous());
    let rejected = galley.configz()["rejected"].to_string();
    for message in [
        "and 19900 more documents that are no objects",
        "more objects are refused: validate the files to see why",
    ] {
        assert!(rejected.contains(message), "{message}");
    }
    goes_on(galley);
}

/// A pipe without a reader, in place of files that are written: the event loop used to wait for a reader, and so did
/// SIGTERM.
#[test]
fn places_that_block_a_writer_hold_up_nothing() {
    let place = GalleyPlace::new()
        .by(beside_hung)
        .with("config/a.yaml", &service("a", [75, 25]));
    let (live, ready) = (place.path("live"), place.path("hung/ready"));
    pipe(&live);
    let flags = [
        format!("--livenessProbePath={}", live.display()),
        format!("--readinessProbePath={}", ready.display()),
        "--livenessProbeInterval=100ms".to_owned(),
        "--readinessProbeInterval=100ms".to_owned(),
    ];
    let place = flags.iter().fold(place, |place, flag| place.arg(flag));
    let galley = place.start();
    until("it is said", || {
        (galley.logged("cannot write probe file") >= 1).then_some(())
    });
    goes_on(galley);
}

#[test]
fn signals_do_what_they_ask_for_and_end_nothing() {
    let place = GalleyPlace::new().with("config/a.yaml", &service("a", [75, 25]));
    let log = place.path("log");
    let to_file = format!("--log_target={}", log.display());
    let galley = place.arg("--log_target=stdout").arg(&to_file).start();
    fs::rename(&log, log.with_extension("old")).unwrap();
    galley.signal("USR1");
    until("the log's new file", || {
        let text = fs::read_to_string(&log).ok()?;
        text.contains("reopened the log").then_some(())
    });
    until("all files are read again", || {
        (galley.logged("received SIGUSR1: reading all files again") == 1).then_some(())
    });
    for (name, message) in [
        ("HUP", "received SIGHUP: reading all files again"),
        ("USR2", "ignoring signal USR2"),
        ("ALRM", "ignoring signal ALRM"),
        ("QUIT", "ignoring signal QUIT"),
        ("50", "ignoring signal 50"),
    ] {
        galley.signal(name);
        until(message, || (galley.logged(message) == 1).then_some(()));
    }
    goes_on(galley);
}
