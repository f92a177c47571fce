//! Certificates in files of a router, of which some are not there: they close their own server, and no other.

use std::fs;

use crate::backend::Backend;
use crate::gateways::{client, gateway, get, own_certificate, router, rule, server};
use crate::place::{Address, Place, documents, until};
use crate::proxy::rows;

const PORT: u16 = 18210;

#[test]
fn files_that_are_missing_close_their_own_server() {
    let (edge, ip) = (Address::new(), Address::new());
    let web = Backend::new(ip.ip, "web");
    let place = Place::new();
    let names = [
        "good.example",
        "late.example",
        "mutual.example",
        "nowhere.example",
    ];
    let made = names.map(own_certificate);
    let [good, late, mutual, nowhere] = &made;
    let certs = place.path("certs");
    let keep = |name: &str, (chain, key): &(String, String)| {
        for (what, text) in [("crt", chain), ("key", key)] {
            // Moved into their directory, as whole files.
            let written = certs.join(format!(".{name}.{what}"));
            fs::write(&written, text).unwrap();
            fs::rename(written, certs.join(format!("{name}.{what}"))).unwrap();
        }
    };
    keep("good", good);
    keep("mutual", mutual);
    let files = |directory: &str, name: &str| {
        format!("serverCertificate: {directory}/{name}.crt, privateKey: {directory}/{name}.key")
    };
    let own = certs.display().to_string();
    let of = |host: &str, tls: &str| {
        gateway(
            host,
            &[server(
                edge.ip,
                PORT,
                "HTTPS",
                &format!("[{host}.example]"),
                tls,
            )],
        )
    };
    // The missing ones are older, by their names.
    let all = [
        of(
            "mutual",
            &format!(
                "{{mode: MUTUAL, {}, caCertificates: {own}/ca.crt}}",
                files(&own, "mutual")
            ),
        ),
        of(
            "late",
            &format!("{{mode: SIMPLE, {}}}", files(&own, "late")),
        ),
        of(
            "nowhere",
            &format!(
                "{{mode: SIMPLE, {}}}",
                files(&format!("{own}/none"), "nowhere")
            ),
        ),
        of(
            "good",
            &format!("{{mode: SIMPLE, {}}}", files(&own, "good")),
        ),
        rule(
            "web",
            "hosts: ['*.example']\ngateways: [good, late, mutual, nowhere]\nhttp: [{route: [{destination: {host: web}}]}]",
        ),
        crate::gateways::object(
            "ServiceEntry",
            "web",
            &format!(
                "hosts: [web.demo.svc.cluster.local]\nlocation: MESH_INTERNAL\nresolution: STATIC\nports: [{{number: 80, name: http, \
                 protocol: HTTP}}]\nendpoints: [{{address: {}, ports: {{http: {}}}}}]",
                ip.ip, web.port
            ),
        ),
    ];
    let discovery = place.with("config/all.yaml", &documents(&all)).start();
    let proxy = router("edge-1", &discovery).start();
    let at = (std::net::IpAddr::V4(edge.ip), PORT);
    let roots: Vec<&str> = made.iter().map(|(chain, _)| &**chain).collect();
    let anybody = client(&roots, None, &[]);
    let user = own_certificate("user.example");
    let known = client(&roots, Some((&user.0, &user.1)), &[]);
    let answer = Some((200, "web".to_owned()));
    until("the one whose files are there", || {
        (get(&anybody, at, "good.example") == answer).then_some(())
    });
    for host in ["late.example", "mutual.example", "nowhere.example"] {
        assert_eq!(get(&known, at, host), None, "{host}");
    }
    // Each Gateway is told what the router says of its own files, whatever it says of others.
    let messages_of = |name: &str| -> String {
        let all = discovery.json("/debug/configz?kind=Gateway");
        let mut all = all.as_array().unwrap().iter();
        let one = all.find(|one| one["metadata"]["name"] == name).unwrap();
        one["status"]["messages"].to_string()
    };
    for (name, file) in [
        ("late", "certs/late."),
        ("mutual", "certs/ca.crt"),
        ("nowhere", "certs/none/"),
    ] {
        until(name, || messages_of(name).contains(file).then_some(()));
        let other = ["late.", "ca.crt", "none/"].into_iter();
        let other: Vec<_> = other.filter(|one| !file.ends_with(one)).collect();
        let messages = messages_of(name);
        assert!(
            other
                .iter()
                .all(|one| !messages.contains(&format!("certs/{one}"))),
            "{messages}"
        );
    }
    assert_eq!(messages_of("good"), "[]");
    let row = rows(&discovery, "edge-1").pop().unwrap();
    assert!(row["errors"]["listener"].is_null(), "{row}");
    assert!(row["errors"]["secret"].is_object(), "{row}");

    // Envoy watches a directory that is there.
    let taken = proxy.stat("listener_manager.lds.update_success");
    keep("late", late);
    until("the files that come late", || {
        (get(&anybody, at, "late.example") == answer).then_some(())
    });
    assert_eq!(proxy.stat("listener_manager.lds.update_success"), taken);
    // One that comes with its directory waits for Envoy to start again, and so does a root.
    keep("ca", &user);
    fs::create_dir(certs.join("none")).unwrap();
    for (what, text) in [("crt", &nowhere.0), ("key", &nowhere.1)] {
        fs::write(certs.join(format!("none/nowhere.{what}")), text).unwrap();
    }
    assert_eq!(get(&anybody, at, "nowhere.example"), None);
    assert_eq!(get(&known, at, "mutual.example"), None);
    proxy.signal("HUP");
    until("a hot restart", || {
        (get(&anybody, at, "nowhere.example") == answer).then_some(())
    });
    assert_eq!(get(&anybody, at, "good.example"), answer);
    until("the root", || {
        (get(&known, at, "mutual.example") == answer).then_some(())
    });
    assert_eq!(
        get(&anybody, at, "mutual.example"),
        None,
        "without a certificate"
    );
}
