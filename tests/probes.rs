//! An application's probes through the status port, with servers of the test's own as the application.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::support::client::{
    Application, Reply, answer, ask, asked, request, send, wait_for_close,
};
use super::support::{Agent, Setup, port, quick, until};

pub(crate) fn with(probers: &Value) -> Setup {
    Setup::new("hello").env("ISTIO_KUBE_APP_PROBERS", &probers.to_string())
}

/// Not LIVE is no reason not to answer for the application, but the test wants quiet.
pub(crate) fn started(setup: Setup) -> Agent {
    let agent = setup.start();
    agent.wait_readiness(200, "ready");
    agent
}

pub(crate) fn said(agent: &Agent, path: &str) -> (u16, String) {
    let reply = agent.status(path);
    (reply.status, reply.text())
}

/// The status is in the path: `/200`.
pub(crate) fn echo(head: &str, stream: &mut TcpStream) -> std::io::Result<()> {
    // A probe of TLS has no path.
    let path = head.split(' ').nth(1).unwrap_or("/400");
    let status = path.get(1..4).unwrap_or("400");
    stream.write_all(answer(&format!("{status} As Asked"), "", &format!("{path} it is")).as_bytes())
}

/// Be it as long as it may; and nobody asks for a page, which would give it back.
#[test]
fn an_answer_of_the_application_leaves_no_memory_behind() {
    let long = "x".repeat(20 * 1024).leak();
    let app = Application::saying(answer("200 OK", "", long));
    let agent = started(with(&json!({"/app-health/app/livez":
        {"httpGet": {"port": app.port}, "timeoutSeconds": 50}})));
    assert_eq!(agent.status("/status").status, 200);
    assert_eq!(agent.readiness().0, 200);
    let least = agent.memory("Anonymous:");
    for _ in 0..5 {
        assert_eq!(agent.status("/app-health/app/livez").status, 200);
        // It takes a page or two of stack more than a readiness probe.
        let settled = || (agent.memory("Anonymous:") <= least + 8).then_some(());
        until("the memory of before", settled);
    }
    agent.stop();
}

#[test]
fn both_shapes_are_asked_and_the_status_is_passed_on() {
    let app = Application::start(echo);
    let agent = started(with(&json!({
        "/app-health/old/livez": {"path": "/200?x=y", "port": app.port, "scheme": "HTTP"},
        "/app-health/old/readyz": {"path": "404", "port": app.port},
        "/app-health/new/readyz": {"httpGet": {"path": "/503", "port": app.port}, "timeoutSeconds": 5},
        "/app-health/new/startupz": {"httpGet": {"path": "/201", "port": app.port, "host": "10.9.9.9"}},
        "/app-lifecycle/new/prestopz": {"httpGet": {"path": "/202", "port": app.port}},
        "/app-lifecycle/new/poststartz": {"httpGet": {"path": "/500", "port": app.port}},
    })));
    for (path, status, body) in [
        ("/app-health/old/livez", 200, "/200?x=y it is"),
        ("/app-health/old/readyz", 404, "/404 it is"),
        ("/app-health/new/readyz", 503, "/503 it is"),
        ("/app-health/new/startupz", 201, "/201 it is"),
        ("/app-lifecycle/new/prestopz", 202, "/202 it is"),
        ("/app-lifecycle/new/poststartz", 500, "/500 it is"),
    ] {
        assert_eq!(said(&agent, path), (status, body.to_owned()), "{path}");
    }
    for path in [
        "/app-health/other/livez",
        "/app-health/new/livez",
        "/app-health/",
        "/app-health",
    ] {
        assert_eq!(agent.status(path).status, 404, "{path}");
    }
    let metrics = agent.status("/metrics").text();
    for (result, count) in [("passed", 3), ("failed", 3)] {
        let line =
            format!("pintle_probes_total{{kind=\"application\",result=\"{result}\"}} {count}\n");
        assert!(metrics.contains(&line), "no {line} in {metrics}");
    }
    agent.stop();
}

#[test]
fn headers_are_kubelets_and_the_configured_ones() {
    let app = Application::saying(answer("200 OK", "", "fine"));
    let agent = started(with(&json!({
        "/app-health/plain/livez": {"port": app.port, "path": "/plain"},
        "/app-health/named/livez": {"port": app.port, "path": "/named", "httpHeaders": [
            {"name": "Host", "value": "shop.example"}, {"name": "X-Token", "value": "mine"},
            {"name": "User-Agent", "value": "configured"}]},
    })));
    let port = agent.status.number;
    let kubelet =
        "User-Agent: kube-probe/1.35\r\nAccept: */*\r\nX-Token: kubelet's\r\nConnection: close\r\n";
    for path in ["plain", "named"] {
        let line = format!("GET /app-health/{path}/livez");
        assert_eq!(ask(port, &request(&line, kubelet)).unwrap().status, 200);
    }
    let head = "HEAD /app-health/plain/livez";
    let reply = ask(port, &request(head, "")).unwrap();
    assert_eq!((reply.status, reply.text()), (200, String::new()));
    let heads = app.heads();
    let lines = |at: usize| heads[at].trim_end().split("\r\n").collect::<Vec<_>>();
    let plain = lines(0);
    assert_eq!(plain[0], "GET /plain HTTP/1.1");
    let host = format!("Host: 10.1.2.3:{}", app.port);
    for line in [
        &host,
        "User-Agent: kube-probe/1.35",
        "X-Token: kubelet's",
        "Accept: */*",
    ] {
        assert!(plain.contains(&line), "no {line:?} in {plain:?}");
    }
    let named = lines(1);
    for line in [
        "Host: shop.example",
        "User-Agent: configured",
        "X-Token: mine",
        "Accept: */*",
    ] {
        assert_eq!(
            named.iter().filter(|found| **found == line).count(),
            1,
            "{named:?}"
        );
    }
    assert!(!named.iter().any(|line| line.contains("kube")), "{named:?}");
    for lines in [&plain, &named] {
        let ends = lines.iter().filter(|line| line.starts_with("Connection:"));
        assert_eq!(ends.collect::<Vec<_>>(), [&"Connection: close"]);
    }
    assert!(heads[2].starts_with("HEAD /plain "), "{}", heads[2]);
    agent.stop();
}

#[test]
fn a_body_is_cut_at_10_kib_however_it_comes() {
    let long = "0123456789abcdef".repeat(64 * 1024);
    let (whole, chunks) = (long.clone(), long.clone());
    let app = Application::start(move |head, stream| {
        if head.starts_with("GET /length") {
            stream.write_all(answer("200 OK", "", &whole).as_bytes())
        } else if head.starts_with("GET /chunks") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            for piece in chunks.as_bytes().chunks(1000) {
                write!(stream, "{:x}\r\n", piece.len())?;
                stream.write_all(piece)?;
                stream.write_all(b"\r\n")?;
            }
            stream.write_all(b"0\r\n\r\n")
        } else {
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n")?;
            stream.write_all(chunks.as_bytes())
        }
    });
    let prober = |path: &str| json!({"port": app.port, "path": path});
    let agent = started(with(&json!({
        "/app-health/a/livez": prober("/length"),
        "/app-health/b/livez": prober("/chunks"),
        "/app-health/c/livez": prober("/close"),
    })));
    for container in ["a", "b", "c"] {
        let reply = agent.status(&format!("/app-health/{container}/livez"));
        assert_eq!(reply.status, 200);
        assert!(
            reply.body == long.as_bytes()[..10 * 1024],
            "{container}: {}",
            reply.body.len()
        );
    }
    agent.stop();
}

/// What the agent asks for, a close, it does not get.
#[test]
fn an_application_that_keeps_its_connection_is_not_waited_for() {
    let app = Application::start(|head, stream| {
        let whole = match head.split(' ').nth(1).unwrap() {
            "/length" => answer("200 OK", "Connection: keep-alive\r\n", "length"),
            "/chunks" => {
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6;x=y\r\nchunks\r\n0\r\n\r\n"
                    .to_owned()
            }
            "/204" => "HTTP/1.1 204\r\n\r\n".to_owned(),
            "/continue" => format!(
                "HTTP/1.1 100 Continue\r\n\r\n{}",
                answer("200 OK", "", "continue")
            ),
            "/head" => "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n".to_owned(),
            path => panic!("{path}"),
        };
        stream.write_all(whole.as_bytes())?;
        wait_for_close(stream);
        Ok(())
    });
    let prober =
        |path: &str| json!({"httpGet": {"port": app.port, "path": path}, "timeoutSeconds": 30});
    let agent = started(with(&json!({
        "/app-health/length/livez": prober("/length"),
        "/app-health/chunks/livez": prober("/chunks"),
        "/app-health/204/livez": prober("/204"),
        "/app-health/continue/livez": prober("/continue"),
        "/app-health/head/livez": prober("/head"),
    })));
    let before = settled(&agent);
    let begun = Instant::now();
    for (container, status, body) in [
        ("length", 200, "length"),
        ("chunks", 200, "chunks"),
        ("204", 204, ""),
        ("continue", 200, "continue"),
    ] {
        let path = format!("/app-health/{container}/livez");
        assert_eq!(said(&agent, &path), (status, body.to_owned()));
    }
    let head = asked(agent.status.number, "HEAD /app-health/head/livez");
    assert_eq!(head.status, 200);
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    leaves_nothing(&agent, before);
    agent.stop();
}

/// Cookies, policies, traces: some have many.
#[test]
fn an_application_may_have_many_headers() {
    let many: String = (0..60)
        .map(|n| format!("X-Header-{n}: {}\r\n", "v".repeat(180)))
        .collect();
    let app = Application::saying(answer("200 OK", &many, "fine"));
    let agent = started(with(&json!({"/app-health/app/livez": {"port": app.port}})));
    assert_eq!(
        said(&agent, "/app-health/app/livez"),
        (200, "fine".to_owned())
    );
    agent.stop();
}

#[test]
fn whoever_is_late_is_answered_for_in_time() {
    let silent = Application::start(|_, stream| {
        wait_for_close(stream);
        Ok(())
    });
    let dripping = Application::start(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")?;
        loop {
            stream.write_all(b"x")?;
            thread::sleep(Duration::from_millis(50));
        }
    });
    let slow = Application::start(|_, stream| {
        for byte in answer("200 OK", "", "slow").bytes() {
            stream.write_all(&[byte])?;
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    });
    let agent = started(with(&json!({
        "/app-health/silent/livez": {"httpGet": {"port": silent.port}, "timeoutSeconds": 1},
        "/app-health/dripping/livez": {"httpGet": {"port": dripping.port}, "timeoutSeconds": 1},
        "/app-health/slow/livez": {"httpGet": {"port": slow.port}, "timeoutSeconds": 20},
    })));
    for container in ["silent", "dripping"] {
        let path = format!("/app-health/{container}/livez");
        let begun = Instant::now();
        let answer = quick(&path, Duration::from_millis(1900), || said(&agent, &path));
        assert_eq!(answer, (500, "no answer in time\n".to_owned()));
        assert!(begun.elapsed() >= Duration::from_secs(1), "{path}");
    }
    assert_eq!(
        said(&agent, "/app-health/slow/livez"),
        (200, "slow".to_owned())
    );
    agent.stop();
}

/// The application says nothing to the first. Who came while that one waited has time left when it is late.
#[test]
fn who_waits_for_anothers_probe_is_not_late_with_it() {
    let asked = AtomicUsize::new(0);
    let app = Application::start(move |head, stream| {
        if asked.fetch_add(1, Ordering::Relaxed) == 0 {
            wait_for_close(stream);
            return Ok(());
        }
        echo(head, stream)
    });
    let agent = started(with(&json!({
        "/app-health/app/livez": {"httpGet": {"port": app.port, "path": "/200"}, "timeoutSeconds": 1},
        "/app-health/app/readyz": {"httpGet": {"port": app.port, "path": "/200"}, "timeoutSeconds": 20},
    })));
    let port = agent.status.number;
    let mut first = send(port, &request("GET /app-health/app/livez", "")).unwrap();
    until("the first", || (app.heads().len() == 1).then_some(()));
    let mut others = ["livez", "readyz", "readyz"].map(|probe| {
        thread::sleep(Duration::from_millis(200));
        send(port, &request(&format!("GET /app-health/app/{probe}"), "")).unwrap()
    });
    assert_eq!(
        Reply::read(&mut first).unwrap().text(),
        "no answer in time\n"
    );
    for stream in &mut others {
        assert_eq!(Reply::read(stream).unwrap().text(), "/200 it is");
    }
    assert!(app.heads().len() <= 4, "{:?}", app.heads());
    agent.stop();
}

/// Whatever its redirects lead to, it is the same probe.
#[test]
fn a_probe_that_is_redirected_is_shared_all_the_same() {
    let app = Application::start(|head, stream| {
        if head.starts_with("GET /302 ") {
            return stream.write_all(answer("302 Found", "Location: /200\r\n", "").as_bytes());
        }
        thread::sleep(Duration::from_secs(1));
        echo(head, stream)
    });
    let agent = started(with(&json!({
        "/app-health/app/livez": {"httpGet": {"port": app.port, "path": "/302"}, "timeoutSeconds": 20},
    })));
    let probe = request("GET /app-health/app/livez", "");
    let ask = || send(agent.status.number, &probe).unwrap();
    let mut first = ask();
    until("the redirect", || (app.heads().len() == 2).then_some(()));
    let mut other = ask();
    for stream in [&mut first, &mut other] {
        assert_eq!(Reply::read(stream).unwrap().text(), "/200 it is");
    }
    assert_eq!(app.heads().len(), 2);
    agent.stop();
}

#[test]
fn what_goes_wrong_is_500_with_the_reason() {
    let rubbish = Application::saying("SSH-2.0-OpenSSH_10.0\r\n");
    let closing = Application::saying("");
    let cut = Application::saying("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf");
    let nobody = port();
    let refused = nobody.number;
    let agent = started(with(&json!({
        "/app-health/refused/livez": {"port": refused},
        "/app-health/rubbish/livez": {"port": rubbish.port},
        "/app-health/closing/livez": {"port": closing.port},
        "/app-health/cut/livez": {"port": cut.port},
    })));
    for (container, port, why) in [
        ("refused", refused, "connection refused"),
        ("rubbish", rubbish.port, "what came back is not HTTP"),
        ("closing", closing.port, "closed without an answer"),
        ("cut", cut.port, "closed without an answer"),
    ] {
        let expected = format!("cannot probe port {port}: {why}\n");
        let path = format!("/app-health/{container}/livez");
        assert_eq!(said(&agent, &path), (500, expected));
    }
    agent.stop();
}

#[test]
fn an_application_that_listens_on_ipv6_only_is_found() {
    let app = Application::at("[::1]:0", echo);
    let agent = started(with(&json!({
        "/app-health/app/livez": {"port": app.port, "path": "/204"},
        "/app-health/app/readyz": {"tcpSocket": {"port": app.port}},
    })));
    assert_eq!(agent.status("/app-health/app/livez").status, 204);
    assert_eq!(agent.status("/app-health/app/readyz").status, 200);
    agent.stop();
}

/// To the admin port, say, which takes orders from loopback and tells everything.
#[test]
fn redirects_never_lead_to_envoy_or_the_agent() {
    let app = Application::start(|head, stream| {
        let port = head.split([' ', '/']).nth(2).unwrap();
        let location = format!("Location: http://localhost:{port}/status\r\n");
        stream.write_all(answer("302 Found", &location, "moved").as_bytes())
    });
    let setup = Setup::new("hello");
    let ports = [setup.admin_port(), setup.status_port(), 15090];
    let probers: serde_json::Map<_, _> = ports
        .iter()
        .map(|port| {
            let key = format!("/app-health/{port}/livez");
            (key, json!({"port": app.port, "path": format!("/{port}")}))
        })
        .collect();
    let probers = Value::Object(probers).to_string();
    let agent = started(setup.env("ISTIO_KUBE_APP_PROBERS", &probers));
    for port in ports {
        let expected = format!("redirected to http://localhost:{port}/status\n");
        let path = format!("/app-health/{port}/livez");
        assert_eq!(said(&agent, &path), (200, expected));
    }
    agent.stop();
}

#[test]
fn redirects_are_followed_on_the_same_host_and_are_a_good_sign_elsewhere() {
    let other = Application::saying(answer("418 Teapot", "", "other port"));
    let there = other.port;
    let app = Application::start(move |head, stream| {
        let path = head.split(' ').nth(1).unwrap();
        let host = head
            .lines()
            .find_map(|line| line.strip_prefix("Host: "))
            .unwrap();
        let location = match path {
            "/relative" => "end?x=1".to_owned(),
            "/rooted" => "/end".to_owned(),
            "/absolute" => format!("http://{host}/end"),
            "/port" => format!("http://localhost:{there}/"),
            "/elsewhere" => "https://login.example/".to_owned(),
            "/loop" => "/loop".to_owned(),
            "/none" => return stream.write_all(answer("302 Found", "", "").as_bytes()),
            "/304" => return stream.write_all(b"HTTP/1.1 304 Not Modified\r\n\r\n"),
            _ => return stream.write_all(answer("203 End", "", path).as_bytes()),
        };
        let location = format!("Location: {location}\r\n");
        stream.write_all(answer("302 Found", &location, "moved").as_bytes())
    });
    let paths = [
        "relative",
        "rooted",
        "absolute",
        "port",
        "elsewhere",
        "loop",
        "none",
        "304",
    ];
    let probers: serde_json::Map<_, _> = paths
        .iter()
        .map(|path| {
            let key = format!("/app-health/{path}/livez");
            (key, json!({"port": app.port, "path": format!("/{path}")}))
        })
        .collect();
    let agent = started(with(&Value::Object(probers)));
    let expected = [
        (203, "/end?x=1"),
        (203, "/end"),
        (203, "/end"),
        (418, "other port"),
        (200, "redirected to https://login.example/\n"),
        (500, "stopped after 10 redirects\n"),
        (200, ""),
        (200, ""),
    ];
    for (path, (status, body)) in paths.iter().zip(expected) {
        let path = format!("/app-health/{path}/livez");
        assert_eq!(said(&agent, &path), (status, body.to_owned()), "{path}");
    }
    let asked = app
        .heads()
        .iter()
        .filter(|head| head.starts_with("GET /loop "))
        .count();
    assert_eq!(asked, 11);
    agent.stop();
}

#[test]
fn a_tcp_probe_connects_and_that_is_all() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = port();
    let agent = started(with(&json!({
        "/app-health/app/livez": {"tcpSocket": {"port": listener.local_addr().unwrap().port()}},
        "/app-health/app/readyz": {"tcpSocket": {"port": nobody.number}},
    })));
    assert_eq!(said(&agent, "/app-health/app/livez"), (200, String::new()));
    let (mut stream, _) = listener.accept().unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0, "nothing is sent");
    let (status, why) = said(&agent, "/app-health/app/readyz");
    assert_eq!(status, 500);
    assert!(why.ends_with("connection refused\n"), "{why}");
    agent.stop();
}

#[test]
fn the_probe_ports_header_reaches_application_ports_and_no_others() {
    let app = Application::start(echo);
    let other = Application::start(echo);
    let ports = format!("{},{}", app.port, 1);
    let setup = Setup::new("hello").arg("--application-ports").arg(ports);
    // That nothing of Envoy's listens there makes it unready, and nothing else.
    let agent = setup.start();
    agent.wait_log("epoch 0 is LIVE");
    let forwarded = |path: &str, port: &str| {
        let header = format!("istio-app-probe-port: {port}\r\nX-More: yes\r\n");
        ask(
            agent.status.number,
            &request(&format!("GET {path}"), &header),
        )
        .unwrap()
    };
    let reply = forwarded("/302/x?y=z", &app.port.to_string());
    // Whatever the application says, a redirect too.
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (302, "/302/x?y=z it is")
    );
    let head = app.heads().remove(0);
    assert!(
        head.contains("X-More: yes\r\n") && !head.contains("istio-app"),
        "{head}"
    );
    // A path of the agent's own is no exception.
    assert_eq!(
        forwarded("/200healthz/ready", &app.port.to_string()).status,
        200
    );
    assert_eq!(forwarded("/200", &other.port.to_string()).status, 403);
    assert_eq!(
        forwarded("/200", &agent.admin.number.to_string()).status,
        403
    );
    assert_eq!(forwarded("/200", "http").status, 400);
    let port = agent.status.number;
    let header = format!("istio-app-probe-port: {}\r\n", app.port);
    for (line, more, status, allow, why) in [
        (
            "POST /200",
            "Content-Length: 2\r\n",
            405,
            "\r\nAllow: GET, HEAD",
            "passes on GET and HEAD only",
        ),
        (
            "PUT /200",
            "",
            405,
            "\r\nAllow: GET, HEAD",
            "passes on GET and HEAD only",
        ),
        (
            "GET /200",
            "Content-Length: 2\r\n",
            413,
            "",
            "passes on no body",
        ),
    ] {
        let reply = ask(port, &request(line, &[&header, more].concat())).unwrap();
        assert_eq!(reply.status, status, "{line}");
        assert!(reply.text().contains(why), "{line}: {}", reply.text());
        assert!(reply.head.contains(allow), "{}", reply.head);
    }
    assert_eq!(app.heads().len(), 2, "none of them was passed on");
    assert_eq!(forwarded("/200", "1").status, 500);
    assert_eq!(other.heads(), Vec::<String>::new());
    agent.stop();
}

/// The children of `parent` and their state.
pub(crate) fn children(parent: u32) -> Vec<(PathBuf, String, char)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        let Ok(stat) = fs::read_to_string(path.join("stat")) else {
            continue;
        };
        let Some((name, rest)) = stat.rsplit_once(") ") else {
            continue;
        };
        let words: Vec<_> = rest.split(' ').collect();
        if words[1] == parent.to_string() {
            let name = name.split_once('(').unwrap().1.to_owned();
            found.push((path, name, words[0].chars().next().unwrap()));
        }
    }
    found
}

pub(crate) fn helpers(agent: &Agent) -> usize {
    let children = children(agent.child.id());
    children
        .iter()
        .filter(|(_, name, state)| name == "pintle-probe" && *state != 'Z')
        .count()
}

/// As it was before, but for Envoy: no process, no descriptor.
pub(crate) fn leaves_nothing(agent: &Agent, descriptors: usize) {
    until("the helpers to be gone", || {
        let left = children(agent.child.id());
        left.iter()
            .all(|(_, name, _)| name != "pintle-probe")
            .then_some(())
    });
    until("the descriptors to be closed", || {
        (open(agent) <= descriptors).then_some(())
    });
}

/// The descriptors of an agent that does nothing: just after the start the admin port may still be asked.
pub(crate) fn settled(agent: &Agent) -> usize {
    let samples = (0..20).map(|_| {
        thread::sleep(Duration::from_millis(20));
        open(agent)
    });
    samples.min().unwrap()
}

pub(crate) fn open(agent: &Agent) -> usize {
    fs::read_dir(format!("/proc/{}/fd", agent.child.id()))
        .unwrap()
        .count()
}
