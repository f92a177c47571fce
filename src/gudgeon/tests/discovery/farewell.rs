//! Case 43: a server that is told to end says so to its connections, and who goes on to another one has all that one would send.

use std::net::{Ipv4Addr, SocketAddr};

use crate::client::*;
use crate::place::{Discovery, Place, documents, entry};
use crate::relay::Relay;

const A: &str = "outbound|8080||a.demo.svc.cluster.local";
const B: &str = "outbound|8080||b.demo.svc.cluster.local";

fn world(endpoint: &str) -> String {
    let services = [("a", endpoint), ("b", "10.0.0.2")];
    documents(&services.map(|(name, endpoint)| {
        let host = format!("{name}.demo.svc.cluster.local");
        entry(&host, 8080, "HTTP", &[(endpoint, 80)])
    }))
}

fn at(discovery: &Discovery) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, discovery.grpc).into()
}

#[tokio::test]
async fn who_goes_on_to_another_server_is_sent_nothing_again() {
    let [mut first, second] = [(); 2].map(|()| {
        Place::new()
            .with("config/all.yaml", &world("10.0.0.1"))
            .arg("--drainDuration=1s")
            .start()
    });
    let relays = [(); 2].map(|()| Relay::new(at(&first)));
    let mut stream = Sotw::open(relays[0].port).await;
    let [cds, eds, lds, rds] = stream.settle(&[A, B], &["8080"]).await;
    let mut delta = Delta::open(relays[1].port).await;
    // Of each type the names that are asked for, and what was given with its version.
    let mut held = Vec::new();
    for (url, names) in [(CDS, &[][..]), (EDS, &[A, B]), (LDS, &[]), (RDS, &["8080"])] {
        delta.ask(url, names, &[]);
        let response = delta.hear(url).await;
        delta.ack(&response);
        held.push((url, names, response.resources));
    }
    for relay in &relays {
        assert!(relay.farewells().is_empty());
        relay.lead(at(&second));
    }

    first.signal("TERM");
    soon("draining", || {
        first.get("/ready") == (503, "draining\n".to_owned())
    })
    .await;
    for (relay, ended) in relays.iter().zip([stream.end().await, delta.end().await]) {
        assert_eq!(ended.code(), tonic::Code::Unavailable);
        // One before it ends and one when it does, neither for a fault.
        let farewells = relay.farewells();
        assert!(!farewells.is_empty());
        assert!(farewells.iter().all(|code| *code == 0), "{farewells:?}");
    }
    assert_eq!(first.wait().code(), Some(0));

    let mut stream = Sotw::open(relays[0].port).await;
    stream.ask_with(CDS, &[], &cds.version_info);
    stream.ask_with(EDS, &[A, B], &eds.version_info);
    stream.ask_with(LDS, &[], &lds.version_info);
    stream.ask_with(RDS, &["8080"], &rds.version_info);
    let mut delta = Delta::open(relays[1].port).await;
    for (url, names, resources) in &held {
        assert!(!resources.is_empty(), "{url}");
        let versions: Vec<_> = resources
            .iter()
            .map(|one| (one.name.as_str(), one.version.as_str()))
            .collect();
        delta.ask(url, names, &versions);
    }
    soon("both streams", || {
        second.json("/debug/syncz").as_array().unwrap().len() == 2
    })
    .await;
    stream.is_quiet().await;
    delta.is_quiet().await;
    for kind in ["cds", "eds", "lds", "rds"] {
        let metric = format!("pilot_xds_pushes{{type=\"{kind}\"}}");
        assert_eq!(second.metric(&metric), 0.0, "{kind}");
    }

    // What is new comes from there, and that alone.
    second.place.write("config/all.yaml", &world("10.0.0.9"));
    let news = stream.hear(EDS).await;
    assert_eq!(names_of(&news), [A]);
    assert_eq!(endpoints(&news, A), ["10.0.0.9:80"]);
    let news = delta.hear(EDS).await;
    let names: Vec<_> = news.resources.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, [A]);
    stream.is_quiet().await;
    delta.is_quiet().await;
}
