//! Ports that every proxy uses itself: objects that want one of them are reported.

use crate::client::*;
use crate::place::Place;

const INGRESS: &str = "apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {name: web, namespace: demo}\nspec:\n  ingress:\n  \
    - {port: {number: 9080, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:80'}\n  \
    - {port: {number: 15021, name: http, protocol: HTTP}, defaultEndpoint: '127.0.0.1:81'}\n";

#[tokio::test]
async fn listeners_at_the_proxys_own_ports_are_counted_and_reported() {
    let metric = "pilot_invalid_out_listeners";
    let discovery = Place::new()
        .with("mesh", "enableTracing: false\nproxyHttpPort: 15020\n")
        .with("config/web.yaml", INGRESS)
        .start();
    let mut stream = Sotw::open(discovery.grpc).await;
    stream.ask(LDS, &[]);
    let lds = stream.hear(LDS).await;
    stream.ack(&lds, &[]);
    assert_eq!(names_of(&lds), ["127.0.0.1_9080"]);
    assert_eq!(discovery.metric(metric), 2.0);
    let reported = discovery.json("/debug/push_status")[metric].clone();
    assert_eq!(
        reported,
        serde_json::json!({
            "http_proxy": {"proxy": "", "message": "proxyHttpPort 15020 is left out: the proxy listens there"},
            "inbound|15021|http|web.demo": {"proxy": node().id,
                "message": "the ingress of Sidecar demo/web on 15021 is left out: the proxy listens there"},
        })
    );
    assert!(discovery.get("/debug").1.contains("proxyHttpPort 15020"));

    // With other ports of the proxy nothing is left out.
    let mesh = "enableTracing: false\nproxyHttpPort: 15080\n";
    discovery.place.write("mesh", mesh);
    let other = INGRESS.replace("15021", "9081");
    discovery.place.write("config/web.yaml", &other);
    let all = ["127.0.0.1_15080", "127.0.0.1_9080", "127.0.0.1_9081"];
    loop {
        let lds = stream.hear(LDS).await;
        stream.ack(&lds, &[]);
        if names_of(&lds) == all {
            break;
        }
    }
    assert_eq!(discovery.metric(metric), 0.0);
}
