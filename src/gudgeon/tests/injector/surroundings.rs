//! Files of every kind in the place of its own: what blocks, what hangs, what expires; and signals.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::support::{
    Injector, InjectorPlace, TEMPLATE, beside_a_hung_mount, gudgeon, pair_until, pipe, until,
};

/// Asserts that the injector still injects, and ends on SIGTERM.
fn goes_on(mut injector: Injector) {
    let mut client = injector.client();
    assert_eq!(client.image(), "proxy:2");
    assert_eq!(injector.get("/ready").status, 200);
    injector.signal("TERM");
    assert!(injector.wait().success());
}

#[test]
fn files_that_block_hold_up_only_themselves() {
    let place = InjectorPlace::new();
    let hung = place.path("hung");
    let possible = beside_a_hung_mount(&hung);
    let to = match possible {
        Some(_) => hung.join("x"),
        None => "/proc/kmsg".into(),
    };
    let arguments = place.arguments();
    let injector = place.start_as(possible.unwrap_or_else(gudgeon), &arguments);
    let mut client = injector.client();
    assert_eq!(client.image(), "proxy:1");
    let link = |name: &str, to: &Path| {
        let path = injector.place.path(name);
        let new = path.with_extension("link");
        symlink(to, &new).unwrap();
        fs::rename(new, path).unwrap();
    };
    let (chain, key) = (
        injector.place.read("chain.pem"),
        injector.place.read("key.pem"),
    );
    for name in ["chain.pem", "key.pem", "config"] {
        link(name, &to);
    }
    for flag in ["injectConfig", "tlsCertFile"] {
        let message = format!("cannot use --{flag}");
        until(&message, || injector.logged(&message) >= 1);
    }
    // The last good configuration is used.
    assert_eq!(client.image(), "proxy:1");
    injector.place.write("chain.pem", &chain);
    injector.place.write("key.pem", &key);
    injector
        .place
        .write("config", &TEMPLATE.replace("proxy:1", "proxy:2"));
    until("they are files again", || client.image() == "proxy:2");
    goes_on(injector);
}

/// A pipe without a reader, in place of files that are written: the event loop used to wait for a reader, and so did
/// SIGTERM.
#[test]
fn places_that_block_a_writer_are_errors_at_once() {
    for (flag, message) in [
        ("healthCheckFile", "cannot write health file"),
        ("caOut", "cannot write --caOut"),
    ] {
        let place = InjectorPlace::new();
        let path = place.path("pipe");
        pipe(&path);
        let mut arguments = place.arguments();
        arguments.push(format!("--{flag}={}", path.display()));
        arguments.extend(["--selfSigned", "--healthCheckInterval=1s"].map(str::to_owned));
        let ended = gudgeon().args(&arguments).output().unwrap();
        // The log's place is stdout.
        let output = [ended.stdout, ended.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        assert!(
            !ended.status.success() && output.contains(message),
            "{output}"
        );
    }
}

#[test]
fn certificates_that_end_are_said_and_shown() {
    let place = InjectorPlace::new();
    let (chain, key) = pair_until(Some(time::Duration::hours(3)));
    place.write("chain.pem", &chain);
    place.write("key.pem", &key);
    place.write("config", &TEMPLATE.replace("proxy:1", "proxy:2"));
    let injector = place.start(&["--debugAddr=127.0.0.1:0"]);
    assert_eq!(injector.logged("chain.pem ends within a day: "), 1);
    let page = |text: &str| injector.get("/debug").text().contains(text);
    assert!(page("within a day"), "{}", injector.get("/debug").text());
    // The certificate expires while it is in use.
    let (chain, key) = pair_until(Some(time::Duration::seconds(3)));
    injector.place.write("key.pem", &key);
    injector.place.write("chain.pem", &chain);
    until("its end", || {
        injector.logged("chain.pem has expired: ") == 1
    });
    assert!(page("it has expired"));
    // Read again it is the same.
    injector.signal("HUP");
    until("HUP", || {
        injector.logged("received SIGHUP: reading all files again") == 1
    });
    let (chain, key) = pair_until(Some(time::Duration::days(3)));
    injector.place.write("key.pem", &key);
    injector.place.write("chain.pem", &chain);
    until("another", || !page("it has expired"));
    assert_eq!(injector.logged("chain.pem has expired: "), 1);
    for name in ["USR1", "USR2"] {
        injector.signal(name);
    }
    until("signals", || {
        injector.logged("the log goes to no file") == 1
            && injector.logged("ignoring signal USR2") == 1
    });
    goes_on(injector);
}
