//! The golden file, and strings that would break JSON.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::status::stories::{Story, golden};

fn parsed(story: &Story) -> Value {
    serde_json::from_slice(&render(&story.view())).unwrap()
}

#[test]
fn a_story_is_told_as_in_the_golden_file() {
    let value = parsed(&Story::full());
    golden("status.json", format!("{value:#}\n").as_bytes());
}

#[test]
fn status_has_every_documented_field() {
    let value = parsed(&Story::full());
    for (field, of) in [
        (
            "schema version state ready reason configuration retry_budget",
            &value,
        ),
        ("epoch pid state age_seconds why", &value["epochs"][0]),
        ("command pid state restarts", &value["companions"][1]),
        ("time what", &value["events"][0]),
    ] {
        for field in field.split(' ') {
            assert!(!of[field].is_null(), "{field} in {of}");
        }
    }
}

#[test]
fn every_field_stands_in_the_module_documentation() {
    fn walk(value: &Value, documentation: &str) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let named = ["`", "."]
                        .iter()
                        .any(|before| documentation.contains(&format!("{before}{name}`")));
                    assert!(named, "{name}");
                    walk(value, documentation);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, documentation)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let documentation: String = include_str!("../json.rs")
        .lines()
        .filter(|line| line.starts_with("//!"))
        .collect();
    walk(&parsed(&Story::full()), &documentation);
}

#[test]
fn unknown_values_are_null() {
    let mut story = Story::new(&[]);
    story.expiry = None;
    let value = parsed(&story);
    for field in [
        "certificate_expires",
        "certificate_seconds_left",
        "configuration_changed",
        "next_why",
        "next_try_seconds",
    ] {
        assert_eq!(value.get(field), Some(&Value::Null), "{field}");
    }
    assert_eq!(value["epochs"][0]["live_seconds"], Value::Null);
    assert_eq!(value["lives"][0]["ended"], Value::Null);
    assert_eq!(value["lives"][0]["exit_code"], Value::Null);
}

#[test]
fn a_retry_says_when_and_why() {
    let mut story = Story::new(&[]);
    story.live(100, 0);
    for turn in 0..4 {
        story.exited(
            20_000 * (turn + 1),
            0,
            crate::supervisor::ExitStatus::Code(1),
        );
    }
    let value = parsed(&story);
    assert_eq!(value["state"], "restarting");
    assert_eq!(value["next_why"], "crash");
    assert_eq!(value["next_try_seconds"], 1);
    assert_eq!(value["retry_budget"], 6);
    assert_eq!(value["retry_budget_of"], 10);
    assert_eq!(value["epochs"].as_array().unwrap().len(), 0);
}

#[test]
fn no_argument_of_a_companion_is_told() {
    assert!(!parsed(&Story::full()).to_string().contains("secret"));
}

#[test]
fn an_answer_has_a_limit() {
    let command = "\u{1}".repeat(4096);
    let mut story = Story::new(&[command.as_str(); 8]);
    story.node = "\u{1}".repeat(100_000);
    for turn in 0..100 {
        story.change(turn * 20_000, u8::try_from(turn).unwrap());
    }
    let value = parsed(&story);
    assert_eq!(value["companions"][7]["command"], command.as_str());
    let node = value["node"].as_str().unwrap();
    assert_eq!(node.chars().count(), TEXT + 1);
    assert!(node.ends_with('…'));
    assert!(value["events"].as_array().unwrap().len() <= 32);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_string_comes_back(node in prop::collection::vec(any::<char>(), 0..40), command in "[\\x00-\\x7f\"\\\\é\u{2028}]{0,20}") {
        let mut story = Story::new(&[&command]);
        story.node = node.iter().collect();
        let value = parsed(&story);
        prop_assert_eq!(value["node"].as_str(), Some(story.node.as_str()));
        prop_assert_eq!(value["companions"][0]["command"].as_str(), Some(command.as_str()));
    }
}
