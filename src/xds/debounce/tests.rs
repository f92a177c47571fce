//! Changes at their times, and what goes out when.

use super::*;

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn endpoints(host: &str) -> PushRequest {
    PushRequest::Endpoints([host.into()].into())
}

const SERVICE: PushRequest = PushRequest::Full(TriggerReason::Service);

/// `full`, hosts and proxies as text.
fn text(batch: &Batch) -> String {
    let full = batch.full.then_some("full").into_iter();
    let hosts = batch.hosts.iter().map(|host| &**host);
    let proxies = batch.proxies.iter().map(|proxy| &*proxy.name);
    let texts: Vec<_> = full.chain(hosts).chain(proxies).collect();
    texts.join(" ")
}

/// Plays (time, request) and asks at every millisecond. Says what went out when; each snapshot takes `making`.
fn play(
    quiet: DebounceOptions,
    making: u64,
    script: &[(u64, PushRequest)],
    until: u64,
) -> Vec<(u64, String)> {
    let mut debounce = Debounce::new(quiet);
    let mut log = Vec::new();
    let mut done: Option<(u64, DueBatch)> = None;
    for now in 0..until {
        for (_, request) in script.iter().filter(|(time, _)| *time == now) {
            debounce.request(at(now), request.clone());
        }
        if let Some((_, due)) = done.take_if(|(time, _)| *time == now) {
            debounce.done(&due, true);
        }
        let expected = debounce
            .deadline()
            .is_some_and(|deadline| deadline <= at(now));
        let due = debounce.due(at(now));
        assert_eq!(due.is_some(), expected, "{now}");
        if let Some(due) = due {
            assert!(!due.batch.is_empty());
            let partly = if due.partial { "partly " } else { "" };
            log.push((now, format!("{partly}{}", text(&due.batch))));
            done = Some((now + making, due));
        }
    }
    log
}

fn log(log: &[(u64, &str)]) -> Vec<(u64, String)> {
    log.iter()
        .map(|(at, text)| (*at, (*text).to_owned()))
        .collect()
}

#[test]
fn changes_go_out_after_a_quiet_moment_as_one() {
    let script: Vec<_> = (0..50)
        .map(|n| (n, endpoints(&format!("{n:02}"))))
        .collect();
    let sent = play(DebounceOptions::default(), 1, &script, 2_000);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0, 149);
    assert_eq!(sent[0].1.split(' ').count(), 50);
}

#[test]
fn changes_without_end_go_out_after_ten_seconds() {
    let script: Vec<_> = (0..240).map(|n| (n * 50, SERVICE)).collect();
    let sent = play(DebounceOptions::default(), 1, &script, 15_000);
    assert_eq!(sent, log(&[(10_000, "full"), (12_050, "full")]));
}

#[test]
fn endpoints_without_end_go_out_each_second() {
    let script: Vec<_> = (0..60).map(|n| (n * 50, endpoints("a"))).collect();
    let sent = play(DebounceOptions::default(), 1, &script, 5_000);
    assert_eq!(sent, log(&[(1_000, "a"), (2_050, "a"), (3_050, "a")]));
}

/// A service that comes and goes all the time holds up no endpoint of another one, and is not pushed more often for it.
#[test]
fn endpoints_wait_a_second_at_most_whatever_else_changes() {
    let mut script: Vec<_> = (0..240).map(|n| (n * 50, SERVICE)).collect();
    script.extend([
        (320, endpoints("a")),
        (700, endpoints("b")),
        (5_010, endpoints("c")),
    ]);
    let sent = play(DebounceOptions::default(), 1, &script, 15_000);
    assert_eq!(
        sent,
        log(&[
            (1_320, "partly a b"),
            (6_010, "partly c"),
            (10_000, "full"),
            (12_050, "full")
        ])
    );
    // A shorter limit of everything is one of endpoints, too.
    let quiet = DebounceOptions {
        max: Duration::from_millis(400),
        ..DebounceOptions::default()
    };
    let script: Vec<_> = (0..20).map(|n| (n * 50, endpoints("a"))).collect();
    assert_eq!(play(quiet, 1, &script, 600)[0], (400, "a".to_owned()));
}

#[test]
fn one_full_change_makes_all_full_and_a_proxy_is_its_own() {
    let proxy = PushRequest::Proxy(WorkloadKey {
        cluster: "c".into(),
        namespace: "n".into(),
        name: "p".into(),
    });
    let script = [
        (0, endpoints("b")),
        (10, SERVICE),
        (20, endpoints("a")),
        (500, proxy),
    ];
    let sent = play(DebounceOptions::default(), 1, &script, 1_000);
    assert_eq!(sent, log(&[(120, "full a b"), (600, "p")]));
}

/// A snapshot of endpoints alone leaves a host to the next whole one where more of it has changed.
#[test]
fn endpoints_go_out_with_proxies_that_wait() {
    let proxy = PushRequest::Proxy(WorkloadKey {
        cluster: "c".into(),
        namespace: "n".into(),
        name: "p".into(),
    });
    let mut script: Vec<_> = (0..40).map(|n| (n * 50, proxy.clone())).collect();
    script.push((320, endpoints("a")));
    let sent = play(DebounceOptions::default(), 1, &script, 3_000);
    assert_eq!(sent, log(&[(1_320, "a p"), (2_050, "p")]));
}

#[test]
fn reasons_add_up() {
    let mut debounce = Debounce::new(DebounceOptions::default());
    debounce.request(at(0), endpoints("a"));
    debounce.request(at(1), SERVICE);
    let due = debounce.due(at(101)).unwrap();
    assert_eq!(due.since, at(0));
    assert!(
        due.batch
            .reasons
            .iter()
            .eq([TriggerReason::Endpoint, TriggerReason::Service])
    );
}

#[test]
fn snapshots_do_not_overlap() {
    let script = [(0, SERVICE), (150, endpoints("a")), (200, endpoints("b"))];
    let sent = play(DebounceOptions::default(), 400, &script, 2_000);
    assert_eq!(sent, log(&[(100, "full"), (500, "a b")]));
    // What comes late is quiet for its own time.
    let script = [(0, SERVICE), (450, endpoints("a"))];
    let sent = play(DebounceOptions::default(), 400, &script, 2_000);
    assert_eq!(sent, log(&[(100, "full"), (550, "a")]));
}

#[test]
fn after_a_snapshot_that_could_not_be_made_the_next_is_of_everything() {
    let mut debounce = Debounce::new(DebounceOptions::default());
    let mut push = |now: u64, request: PushRequest, is_made: bool| {
        debounce.request(at(now), request);
        let due = debounce.due(at(now + 100)).unwrap();
        debounce.done(&due, is_made);
        due.batch.full
    };
    assert!(!push(0, endpoints("a"), true));
    assert!(push(1_000, SERVICE, false));
    // It is not made again by itself, and what comes then is told with it.
    assert!(push(2_000, endpoints("a"), false));
    assert!(push(3_000, endpoints("a"), true));
    assert!(!push(4_000, endpoints("a"), true));
    // Endpoints that go out alone are told of what is served.
    let mut debounce = Debounce::new(DebounceOptions {
        endpoints: false,
        ..DebounceOptions::default()
    });
    debounce.request(at(0), SERVICE);
    let due = debounce.due(at(100)).unwrap();
    assert!(due.batch.full);
    debounce.done(&due, false);
    debounce.request(at(200), SERVICE);
    debounce.request(at(210), endpoints("a"));
    let due = debounce.due(at(210)).unwrap();
    assert!(due.partial && !due.batch.full);
    debounce.done(&due, true);
    assert!(debounce.behind);
    let due = debounce.due(at(310)).unwrap();
    assert!(!due.partial && due.batch.full);
    debounce.done(&due, true);
    assert!(!debounce.behind);
}

#[test]
fn endpoints_may_go_out_at_once() {
    let quiet = DebounceOptions {
        endpoints: false,
        ..DebounceOptions::default()
    };
    let script = [
        (0, SERVICE),
        (50, endpoints("a")),
        (60, endpoints("b")),
        (300, endpoints("c")),
    ];
    let sent = play(quiet, 20, &script, 1_000);
    assert_eq!(
        sent,
        log(&[
            (50, "partly a"),
            (70, "partly b"),
            (100, "full"),
            (300, "c")
        ])
    );
}
