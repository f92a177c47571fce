//! Case 43: a server that shuts down sends GOAWAY, and a client that goes on to another one has all that this one would
//! send.

use crate::client::*;
use crate::place::{Place, documents};
use crate::relay::Relay;

fn world(endpoint: &str) -> String {
    documents(&[service("a", &[endpoint]), service("b", &["10.0.0.2"])])
}

#[tokio::test]
async fn a_client_that_moves_to_another_server_is_sent_nothing_again() {
    let [mut first, second] = [(); 2].map(|()| {
        Place::new()
            .with("config/all.yaml", &world("10.0.0.1"))
            .start()
    });
    let relays = [(); 2].map(|()| Relay::new(first.address()));
    let mut stream = Sotw::open(relays[0].port).await;
    let [cds, eds, lds, rds] = stream.settle(&[A, B], &["8080"]).await;
    let mut delta = Delta::open(relays[1].port).await;
    // For each type the subscribed names, and the received resources with their version.
    let mut received = Vec::new();
    for (url, names) in [(CDS, &[][..]), (EDS, &[A, B]), (LDS, &[]), (RDS, &["8080"])] {
        delta.ask(url, names, &[]);
        let response = delta.hear(url).await;
        delta.ack(&response);
        received.push((url, names, response.resources));
    }
    for relay in &relays {
        assert!(relay.farewells().is_empty());
        relay.lead(second.address());
    }

    first.signal("TERM");
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
    for (url, names, resources) in &received {
        assert!(!resources.is_empty(), "{url}");
        delta.ask(url, names, &versions(resources));
    }
    soon("both streams", || second.streams() == 2).await;
    stream.is_quiet().await;
    delta.is_quiet().await;
    for kind in ["cds", "eds", "lds", "rds"] {
        let metric = format!("pilot_xds_pushes{{type=\"{kind}\"}}");
        assert_eq!(second.metric(&metric), 0.0, "{kind}");
    }

    // The new server sends the change, and nothing else.
    second.place.write("config/all.yaml", &world("10.0.0.9"));
    let news = stream.hear(EDS).await;
    assert_eq!(names_of(&news), [A]);
    assert_eq!(endpoints(&news, A), ["10.0.0.9:80"]);
    let news = delta.hear(EDS).await;
    assert_eq!(names_of_delta(&news), [A]);
    stream.is_quiet().await;
    delta.is_quiet().await;
}
