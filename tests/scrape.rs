//! The merged metrics, with the real Envoy and applications that are good, bad, slow and large.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::probes::{open, settled};
use super::support::client::{Application, Reply, answer, ask, request, send, wait_for_close};
use super::support::{Agent, Setup, kill, port, until};

const PAGE: &str = "# HELP app_orders_total Orders.\n# TYPE app_orders_total counter\n\
                    app_orders_total{kind=\"a \\\"b\\\"\"} 7\napp_orders_total{kind=\"c\"} 1.5e3\n";
/// A large page, nearly all that an application may say.
const LARGE: usize = 10 * 1000 * 1000;

/// An agent that merges the metrics at these ports and paths.
fn merging(targets: &[(u16, &str)]) -> Agent {
    let targets: Vec<_> = targets
        .iter()
        .map(|(port, path)| json!({"port": port.to_string(), "path": path}))
        .collect();
    let annotations = json!({"scrape": "true", "targets": targets}).to_string();
    let setup = Setup::new("hello").env("ISTIO_PROMETHEUS_ANNOTATIONS", &annotations);
    let agent = setup.start();
    agent.wait_readiness(200, "ready");
    agent
}

/// The value of a sample.
fn sample(text: &str, series: &str) -> f64 {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value
        .unwrap_or_else(|| panic!("no {series} in {text}"))
        .parse()
        .unwrap()
}

fn failures(text: &str) -> (f64, f64) {
    let of = |source| {
        sample(
            text,
            &format!("pintle_scrape_failures_total{{source=\"{source}\"}}"),
        )
    };
    (of("envoy"), of("application"))
}

fn scrape(agent: &Agent, headers: &str) -> Reply {
    ask(
        agent.status.number,
        &request("GET /stats/prometheus", headers),
    )
    .unwrap()
}

/// `build/test` gives what this writes to a real parser.
#[test]
fn all_three_are_merged_and_kept_for_the_parser() {
    let app = Application::saying(answer(
        "200 OK",
        "Content-Type: text/plain; version=0.0.4\r\n",
        PAGE,
    ));
    let agent = merging(&[(app.port, "/prom?x=y")]);
    agent.get().unwrap();
    scrape(&agent, "");
    let reply = scrape(&agent, "X-Prometheus-Scrape-Timeout-Seconds: 10\r\n");
    assert_eq!(reply.status, 200);
    let kind = "Content-Type: text/plain; version=0.0.4";
    assert!(reply.head.contains(kind), "{}", reply.head);
    let text = reply.text();
    let first = |start: &str| {
        text.lines()
            .position(|line| line.starts_with(start))
            .unwrap()
    };
    assert!(first("pintle_") < first("envoy_") && first("envoy_") < first("app_orders_total"));
    assert!(text.ends_with(PAGE), "{text}");
    assert_eq!(failures(&text), (0.0, 0.0));
    assert!(sample(&text, "pintle_ready") > 0.0);
    assert!(
        app.heads()[1].starts_with("GET /prom?x=y HTTP/1.1\r\n"),
        "{:?}",
        app.heads()
    );
    // The query is Envoy's.
    let few = ask(
        agent.status.number,
        &request("GET /metrics?filter=^server.live$", ""),
    );
    let few = few.unwrap().text();
    let envoys = few.lines().filter(|line| line.starts_with("envoy_"));
    assert_eq!(envoys.count(), 1, "{few}");
    fs::write(
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("scrape.txt"),
        &text,
    )
    .unwrap();
    agent.stop();
}

#[test]
fn an_old_client_and_head_are_served_too() {
    let app = Application::saying(answer("200 OK", "", PAGE));
    let agent = merging(&[(app.port, "/metrics")]);
    let port = agent.status.number;
    let old = ask(port, "GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(old.status, 200);
    assert!(
        !old.head.to_lowercase().contains("transfer-encoding"),
        "{}",
        old.head
    );
    assert!(old.text().starts_with("# HELP pintle_") && old.text().ends_with(PAGE));
    let asked = app.heads().len();
    let head = ask(port, "HEAD /metrics HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!((head.status, head.text()), (200, String::new()));
    let head = send(port, &request("HEAD /metrics", "")).map(|mut stream| {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        String::from_utf8(bytes).unwrap()
    });
    let head = head.unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    assert_eq!(app.heads().len(), asked, "nobody is asked for a head");
    agent.stop();
}

/// Each fails in its own way, and what is good comes through, in order.
#[test]
fn sources_that_fail_are_left_out_and_counted() {
    let silent = Application::start(|_, stream| {
        wait_for_close(stream);
        Ok(())
    });
    let sorry = Application::saying(answer("500 Sorry", "", "app_sorry 1\n"));
    let page = Application::saying(answer("200 OK", "", "<html>\napp_between 1\n</html>\n"));
    let zipped = Application::saying(answer(
        "200 OK",
        "Content-Encoding: gzip\r\n",
        "app_zipped 1\n",
    ));
    let cut = Application::saying(
        "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\napp_whole 1\napp_cut 12",
    );
    let resting = Application::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\napp_early 1\napp_la")?;
        wait_for_close(stream);
        Ok(())
    });
    let good = Application::saying("HTTP/1.0 200 OK\r\n\r\napp_good 1\napp_last 2");
    let nobody = port();
    let agent = merging(&[
        (nobody.number, "/metrics"),
        (silent.port, "/metrics"),
        (sorry.port, "/metrics"),
        (page.port, "/metrics"),
        (zipped.port, "/metrics"),
        (cut.port, "/metrics"),
        (resting.port, "/metrics"),
        (good.port, "/metrics"),
    ]);
    let begun = Instant::now();
    let patience = "X-Prometheus-Scrape-Timeout-Seconds: 12\r\n";
    let text = scrape(&agent, patience).text();
    assert!(
        begun.elapsed() < Duration::from_secs(12),
        "{:?}",
        begun.elapsed()
    );
    let apps: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("app_") || line.contains('<'))
        .collect();
    assert_eq!(
        apps,
        [
            "app_between 1",
            "app_whole 1",
            "app_early 1",
            "app_good 1",
            "app_last 2"
        ]
    );
    assert!(text.contains("\nenvoy_"));
    assert_eq!(failures(&text), (0.0, 0.0), "those of before");
    let text = scrape(&agent, patience).text();
    assert_eq!(failures(&text), (0.0, 7.0));
    // Without Envoy the rest is there all the same.
    let proxy = agent.proxy_pid(0);
    kill(proxy, libc::SIGSTOP);
    let text = scrape(&agent, patience).text();
    assert!(
        text.contains("pintle_ready 0\n") && text.ends_with("app_good 1\napp_last 2\n"),
        "{text}"
    );
    assert!(!text.contains("\nenvoy_"));
    kill(proxy, libc::SIGCONT);
    agent.wait_readiness(200, "ready");
    assert_eq!(failures(&scrape(&agent, patience).text()), (1.0, 21.0));
    agent.stop();
}

/// A page of about that size, each line another.
fn large(size: usize) -> String {
    let mut page = String::with_capacity(size + 128);
    let mut line = 0_u64;
    while page.len() < size {
        writeln!(
            page,
            "app_large{{cluster=\"outbound|8080||service-{line}.shop.svc.cluster.local\"}} {line}"
        )
        .unwrap();
        line += 1;
    }
    page
}

/// Reads a bit every few milliseconds.
fn read_slowly(stream: &mut TcpStream, size: usize) -> Vec<u8> {
    let (mut bytes, mut piece) = (Vec::with_capacity(size + size / 8), vec![0; 256 * 1024]);
    loop {
        match stream.read(&mut piece).unwrap() {
            0 => return bytes,
            read => bytes.extend_from_slice(&piece[..read]),
        }
        thread::sleep(Duration::from_millis(8));
    }
}

/// Held by nobody: the source waits for the reader. Envoy's own grow to that with some ten thousand clusters.
#[test]
fn fifty_megabytes_pass_through_without_a_trace() {
    let page = large(LARGE);
    let app = Application::saying(answer("200 OK", "", &page));
    let targets = ["/1", "/2", "/3", "/4", "/5"].map(|path| (app.port, path));
    let pages = page.repeat(targets.len());
    for old in [false, true] {
        let agent = merging(&targets);
        pass(&agent, &pages, old);
        agent.stop();
    }
}

fn pass(agent: &Agent, page: &str, old: bool) {
    let port = agent.status.number;
    let version = if old { "1.0" } else { "1.1" };
    let head = format!("GET /metrics?usedonly HTTP/{version}\r\nHost: x\r\n\r\n");
    // Once for the code's own pages, with a reader that goes early.
    let mut first = send(port, &head).unwrap();
    first.read_exact(&mut vec![0; 2 * 1024 * 1024]).unwrap();
    drop(first);
    for _ in 0..20 {
        assert_eq!(agent.status("/healthz/live").status, 200);
        assert_eq!(agent.readiness().0, 200);
    }
    let before = agent.memory("Rss:");
    let going = AtomicBool::new(true);
    let bytes = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut stream = send(port, &head).unwrap();
            let bytes = read_slowly(&mut stream, page.len());
            going.store(false, Ordering::Relaxed);
            bytes
        });
        let (mut most, mut times) = (0, Vec::new());
        while going.load(Ordering::Relaxed) {
            most = most.max(agent.memory("Rss:"));
            let asked = Instant::now();
            assert_eq!(agent.status("/healthz/live").status, 200);
            assert_eq!(agent.readiness(), (200, "ready".to_owned()));
            times.push(asked.elapsed());
            thread::sleep(Duration::from_millis(10));
        }
        let rounds = times.len();
        assert!(rounds > 5, "{rounds}");
        times.sort_unstable();
        // A tenth is left to what else the machine does.
        let slow = times[rounds * 9 / 10];
        assert!(slow < Duration::from_secs(1), "{times:?}");
        assert!(most <= before + 64, "from {before} to {most} kB");
        eprintln!(
            "{before} kB before, {most} kB at most, {slow:?} for two probes, {rounds} rounds"
        );
        reader.join().unwrap()
    });
    let reply = Reply::parse(&bytes).unwrap();
    let from = reply.body.len() - page.len();
    // Not with `assert_eq`, which would print them.
    assert!(
        &reply.body[from..] == page.as_bytes(),
        "the pages have become others"
    );
    assert!(reply.body[..from].ends_with(b"\n"));
}

/// It reads for a while, then no more: its place is not held for ever.
#[test]
fn a_reader_that_stops_is_dropped() {
    let app = Application::saying(answer("200 OK", "", &large(LARGE)));
    let agent = merging(&[(app.port, "/metrics")]);
    let before = settled(&agent);
    let mut stream = send(agent.status.number, &request("GET /metrics", "")).unwrap();
    let begun = Instant::now();
    stream.read_exact(&mut [0; 1000]).unwrap();
    assert!(open(&agent) > before);
    until("the end of the scrape", || {
        (open(&agent) <= before).then_some(())
    });
    let took = begun.elapsed();
    // From its last read on, not from the start of the answer.
    assert!(
        took > Duration::from_secs(9) && took < Duration::from_secs(20),
        "{took:?}"
    );
    drop(stream);
    agent.stop();
}
