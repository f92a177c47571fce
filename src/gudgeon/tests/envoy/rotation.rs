//! Certificates of a router that rotate, in files and by name, while Envoy restarts hot.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::backend::Backend;
use crate::gateways::{
    client, gateway, get, of_tls, own_certificate, presented, rule, secured_load, server,
};
use crate::place::{Address, Discovery, Place, documents, entry, until};
use crate::proxy::{Proxy, Setup, in_sync, rows};
use crate::secured::put_in_volume;

const PORT: u16 = 18240;
const TURNS: usize = 3;

/// A certificate with its key, as PEM.
type Pair = (String, String);

/// A router with a server whose certificate is in files, and one whose certificate comes by name.
struct Edge {
    discovery: Discovery,
    proxy: Proxy,
    at: (IpAddr, u16),
    /// Believes all certificates.
    anybody: Arc<ClientConfig>,
}

impl Edge {
    const FILES: &str = "files.example";
    const NAMED: &str = "named.example";

    fn put(place: &Place, [in_files, named]: [&Pair; 2]) {
        let volume = place.path("certs").join("edge");
        put_in_volume(
            &volume,
            &[("tls.crt", &in_files.0), ("tls.key", &in_files.1)],
        );
        place.write("config/named.yaml", &of_tls("named", named));
    }

    /// The servers listen at `edge`, and lead to the endpoint.
    fn start(
        edge: Address,
        (to, port): (Ipv4Addr, u16),
        first: [&Pair; 2],
        roots: &[&str],
    ) -> Self {
        let place = Place::new();
        Self::put(&place, first);
        let volume = place.path("certs").join("edge");
        let volume = volume.display();
        let in_files = format!(
            "{{mode: SIMPLE, serverCertificate: {volume}/tls.crt, privateKey: {volume}/tls.key}}"
        );
        let servers = [
            (Self::FILES, &*in_files),
            (Self::NAMED, "{mode: SIMPLE, credentialName: named}"),
        ];
        let servers = servers.map(|(host, tls)| {
            let one = server(edge.ip, PORT, "HTTPS", &format!("[{host}]"), tls);
            one.replace(&format!("https-{PORT}"), host.split('.').next().unwrap())
        });
        let all = [
            entry(
                "web.demo.svc.cluster.local",
                80,
                "HTTP",
                &[(&to.to_string(), port)],
            ),
            gateway("edge", &servers),
            rule(
                "web",
                "hosts: ['*']\ngateways: [edge]\nhttp: [{route: [{destination: {host: web}}]}]",
            ),
        ];
        let discovery = place.with("config/all.yaml", &documents(&all)).start();
        let at = (IpAddr::V4(edge.ip), PORT);
        let proxy = Setup::at("edge-1", edge, discovery.grpc)
            .role("router")
            .label("istio", "edge")
            .start();
        Self {
            discovery,
            proxy,
            at,
            anybody: client(roots, None, &[]),
        }
    }

    fn rotate(&self, pairs: [&Pair; 2]) {
        Self::put(&self.discovery.place, pairs);
    }

    /// Waits until each server presents its certificate.
    fn until_presented(&self, pairs: [&Pair; 2]) {
        for (name, (chain, _)) in [Self::FILES, Self::NAMED].into_iter().zip(pairs) {
            let der = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
            until(name, || {
                (presented(&self.anybody, self.at, name)? == *der).then_some(())
            });
        }
    }

    /// The streams of its processes.
    fn streams(&self) -> Vec<String> {
        let rows = rows(&self.discovery, &self.proxy.name);
        let ids = rows.iter().map(|row| row["connection"].to_string());
        ids.collect()
    }

    /// Waits until a later process than that of this stream is the only one.
    fn until_restarted(&self, epoch: usize, before: &[String]) {
        until("a hot restart", || {
            let streams = self.streams();
            let is_alone = streams.len() == 1 && streams != before;
            let now = self.proxy.stat("server.hot_restart_epoch");
            (is_alone && usize::try_from(now).unwrap() == epoch).then_some(())
        });
    }
}

#[test]
fn certificates_rotate_around_hot_restarts_without_a_lost_request() {
    let ip = Address::new();
    let web = Backend::new(ip.ip, "web");
    let pairs: Vec<[Pair; 2]> = (0..=TURNS)
        .map(|_| [Edge::FILES, Edge::NAMED].map(own_certificate))
        .collect();
    let roots = pairs.iter().flatten().map(|(chain, _)| &**chain);
    let roots: Vec<&str> = roots.collect();
    let edge = Edge::start(
        Address::new(),
        (ip.ip, web.port),
        pairs[0].each_ref(),
        &roots,
    );
    edge.until_presented(pairs[0].each_ref());
    for name in [Edge::FILES, Edge::NAMED] {
        until(name, || {
            (get(&edge.anybody, edge.at, name) == Some((200, "web".to_owned()))).then_some(())
        });
    }

    let loads = [Edge::FILES, Edge::NAMED, Edge::FILES, Edge::NAMED]
        .map(|name| secured_load(Arc::clone(&edge.anybody), edge.at, name));
    for (turn, next) in pairs.iter().enumerate().skip(1) {
        let next = next.each_ref();
        let before = edge.streams();
        match turn {
            // The restart begins before anybody has taken them up.
            1 => {
                edge.rotate(next);
                edge.proxy.signal("HUP");
            }
            // Both processes live while they come.
            2 => {
                edge.proxy.signal("HUP");
                until("two processes", || {
                    (edge.streams().len() == 2).then_some(())
                });
                edge.rotate(next);
            }
            // They come before the later process has read anything.
            _ => {
                edge.proxy.signal("HUP");
                edge.rotate(next);
            }
        }
        edge.until_presented(next);
        edge.until_restarted(turn, &before);
        // The one that is left has them, too.
        edge.until_presented(next);
    }
    for load in loads {
        load.end_after(20);
    }
    let row = in_sync(&edge.discovery, "edge-1");
    assert_eq!(row["errors"], serde_json::json!({}));
}
