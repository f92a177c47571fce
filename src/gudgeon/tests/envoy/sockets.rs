//! Sockets where a Sidecar has applications call services, by what Envoy does at them.

use std::fs;
use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;

use crate::backend::Backend;
use crate::gateways::object;
use crate::place::{Address, Place, SOON, documents, until};
use crate::proxy::{Setup, in_sync, rows};

fn connect(socket: &str) -> Option<UnixStream> {
    let stream = match socket.strip_prefix('@') {
        Some(name) => {
            let address = SocketAddr::from_abstract_name(name).unwrap();
            UnixStream::connect_addr(&address)
        }
        None => UnixStream::connect(socket),
    };
    let stream = stream.ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    Some(stream)
}

/// The status and the last line of what a host answers there.
fn ask(socket: &str, host: &str) -> Option<(u16, String)> {
    let mut stream = connect(socket)?;
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

fn say(socket: &str) -> Option<String> {
    let mut stream = connect(socket)?;
    stream.write_all(b"hello\n").ok()?;
    let mut first = [0; 64];
    let count = stream.read(&mut first).ok()?;
    Some(String::from_utf8_lossy(&first[..count]).into_owned())
}

/// An egress listener.
fn at(name: &str, protocol: &str, path: &str, hosts: &str) -> String {
    format!(
        "{{port: {{number: 0, name: {name}, protocol: {protocol}}}, bind: 'unix://{path}', hosts: [{hosts}]}}"
    )
}

#[test]
fn applications_call_services_through_a_socket() {
    let ip = Address::new();
    let [a, b, line] = ["a", "b", "line"].map(|body| Backend::new(ip.ip, body));
    let entry = |name: &str, port: u16, protocol: &str, to: u16| {
        let spec = format!(
            "hosts: [{name}.demo.svc.cluster.local]\nlocation: MESH_INTERNAL\nresolution: STATIC\nports: [{{number: {port}, name: \
             main, protocol: {protocol}}}]\nendpoints: [{{address: {}, ports: {{main: {to}}}}}]",
            ip.ip
        );
        object("ServiceEntry", name, &spec)
    };
    let services = [
        entry("a", 80, "HTTP", a.port),
        entry("b", 8080, "HTTP", b.port),
        entry("line", 9000, "TCP", line.port),
    ];
    let place = Place::new().with("config/services.yaml", &documents(&services));
    // Applications and their proxy share a directory.
    let directory = place.path("run");
    fs::create_dir(&directory).unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    let (http, tcp, missing) = (path("http"), path("tcp"), path("none/here"));
    let name = format!("@gudgeon-{}", ip.ip);
    // What is there before is in the way of nobody.
    fs::write(&http, "a file").unwrap();
    let egress = |listeners: &[String]| {
        let spec = format!("egress: [{}]", listeners.join(", "));
        object("Sidecar", "default", &spec)
    };
    let listeners = [
        at("http", "HTTP", &http, "./*"),
        at("tcp", "TCP", &tcp, "./line.demo.svc.cluster.local"),
        at("other", "HTTP", &name, "./b.demo.svc.cluster.local"),
    ];
    let discovery = place
        .with("config/sidecar.yaml", &egress(&listeners))
        .start();
    let proxy = Setup::new("client-1", discovery.grpc).start();
    let answers = |when: &str| {
        let is = |body: &str| Some((200, body.to_owned()));
        until(when, || (ask(&http, "a.demo") == is("a")).then_some(()));
        assert_eq!(ask(&http, "b.demo:8080"), is("b"), "{when}");
        // Nothing says where an unknown one wanted to go.
        assert_eq!(ask(&http, "c.demo").unwrap().0, 502, "{when}");
        assert_eq!(ask(&name, "b:8080"), is("b"), "{when}");
        assert_eq!(ask(&name, "a").unwrap().0, 502, "{when}: not imported");
        assert_eq!(say(&tcp).as_deref(), Some("line hello\n"), "{when}");
    };
    answers("at the start");
    in_sync(&discovery, "client-1");
    let file = fs::metadata(&http).unwrap();
    assert!(file.file_type().is_socket());
    assert_eq!(
        file.permissions().mode() & 0o777,
        0o666,
        "for every user of the pod"
    );

    // Envoy hands them over.
    proxy.signal("HUP");
    until("a hot restart", || {
        (proxy.stat("server.hot_restart_epoch") == 1).then_some(())
    });
    answers("after a hot restart");

    // Without its directory one listener is refused, and told; the others live on.
    let with_missing = [&listeners[..], &[at("gone", "HTTP", &missing, "./*")]].concat();
    discovery
        .place
        .write("config/sidecar.yaml", &egress(&with_missing));
    let refused = until("the refusal", || {
        let row = rows(&discovery, "client-1").pop()?;
        row["errors"]["listener"].is_object().then_some(row)
    });
    let errors = refused["errors"]["listener"].to_string();
    assert!(
        errors.contains("No such file or directory") && errors.contains("Sidecar demo/default"),
        "{errors}"
    );
    let sidecars = discovery.json("/debug/configz?kind=Sidecar");
    assert!(sidecars.to_string().contains("cannot bind"), "{sidecars}");
    answers("beside the refusal");
    // It is tried again with the next listeners.
    fs::create_dir(directory.join("none")).unwrap();
    let changed = [
        &with_missing[..],
        &[at("more", "HTTP", &path("more"), "./*")],
    ]
    .concat();
    discovery
        .place
        .write("config/sidecar.yaml", &egress(&changed));
    until("the directory", || {
        (ask(&missing, "a.demo") == Some((200, "a".to_owned()))).then_some(())
    });

    // Places of the proxy's own are noted, and nothing else changes.
    let hostile = [
        &listeners[..1],
        &[
            at("dev", "HTTP", "/dev/stdout", "./*"),
            at("dots", "HTTP", &format!("{http}/../tcp"), "./*"),
            at("restart", "HTTP", "@envoy_domain_socket_parent_0", "./*"),
            at("marker", "HTTP", &path("marker"), "./*"),
        ],
    ]
    .concat();
    discovery
        .place
        .write("config/sidecar.yaml", &egress(&hostile));
    until("the last one", || {
        (ask(&path("marker"), "a.demo") == Some((200, "a".to_owned()))).then_some(())
    });
    in_sync(&discovery, "client-1");
    let sidecars = discovery.json("/debug/configz?kind=Sidecar").to_string();
    for at in ["egress[1].bind", "egress[2].bind", "egress[3].bind"] {
        assert!(
            sidecars.contains(&format!("{at}: is not served")),
            "{sidecars}"
        );
    }
    assert!(Path::new("/dev/stdout").exists());
}
