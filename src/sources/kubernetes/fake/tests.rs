//! Compares the fake's responses with the recorded ones.

use std::time::Duration;

use super::{Fake, WEBHOOKS, script};

#[tokio::test]
async fn it_says_what_the_real_one_said() {
    let fake = Fake::start().await;
    let cluster = fake.cluster();
    let client = &cluster.client;
    let before = |step: &str| match step {
        "bookmark has begun" => fake.bookmark(),
        "expired page" => fake.forget(),
        "expired watch" => fake.set_api_group("/apis/recorded.example.com/v1", &["recordings"]),
        "denied list" => fake.forbid(&[WEBHOOKS]),
        _ => {}
    };
    let played = script::play(client, client, before);
    let played = tokio::time::timeout(Duration::from_secs(60), played).await;
    script::compare(&played.unwrap());
}
