//! Sinks that ask for what there is not: what they cost the others.

use tonic::Code;

use crate::client::*;
use crate::place::Place;
use crate::streams::channel;

#[tokio::test]
async fn streams_that_ask_for_what_there_is_not_end_and_fill_no_log() {
    let galley = Place::new().start();
    let channel = channel(&galley).await;
    for turn in 0..100 {
        let mut client = Client::open(&channel).await.unwrap();
        client.ask(&format!("istio/nothing/{turn}"));
        assert_eq!(client.code().await, Code::InvalidArgument);
    }
    let failures = "istio_mcp_recv_failures_total{component=\"galley\"}";
    assert_eq!(galley.metric(failures), Some(100.0));
    let lines = galley.logged("unsupported collection");
    // One in a minute, and the machine may be slow.
    assert!((1..=5).contains(&lines), "{lines} lines");
}
