//! One sink, response by response.

use api::config::ObjectStatus;
use api::google::protobuf::Any;

use super::*;
use crate::message::{Metadata, Resource};

const TYPE: &str = "type.googleapis.com/t";

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A body is text; `!…` cannot be read, `?…` breaks a rule.
struct Text;

impl ResourceReader for Text {
    type Object = String;

    fn read(&self, _: &str, resource: &Resource) -> ReadResult<Arc<String>> {
        let body = resource.body.as_ref().unwrap();
        let text = String::from_utf8(body.value.to_vec()).unwrap();
        match text.chars().next() {
            Some('!') => ReadResult::Unreadable("it is shouted".to_owned()),
            Some('?') => ReadResult::Refused(vec![text]),
            _ => ReadResult::Accepted(Arc::new(text)),
        }
    }
}

fn resource(name: &str, body: &str) -> Resource {
    Resource {
        metadata: Some(Metadata {
            name: name.to_owned(),
            version: format!("v-{body}"),
            ..Metadata::default()
        }),
        body: Some(Any {
            type_url: TYPE.to_owned(),
            value: body.as_bytes().to_vec().into(),
        }),
    }
}

fn response(nonce: &str, members: &[(&str, &str)]) -> Resources {
    let members = members.iter();
    Resources {
        system_version_info: format!("system {nonce}"),
        collection: "a".to_owned(),
        resources: members.map(|(name, body)| resource(name, body)).collect(),
        nonce: nonce.to_owned(),
        ..Resources::default()
    }
}

fn more(nonce: &str, members: &[(&str, &str)], removed: &[&str]) -> Resources {
    Resources {
        incremental: true,
        removed_resources: removed.iter().map(|name| (*name).to_owned()).collect(),
        ..response(nonce, members)
    }
}

struct Play(Sink<String>);

impl Play {
    fn new() -> Self {
        Self::naming(VERSIONS_BYTES)
    }

    /// Limits the versions in a first request to so many bytes.
    fn naming(bytes: usize) -> Self {
        let settings = Settings {
            id: "me".to_owned(),
            annotations: [("k".to_owned(), "v".to_owned())].into(),
            incremental: true,
        };
        Self(Sink::new(settings, [("a", TYPE), ("b", TYPE)]).with_versions_of(bytes))
    }

    /// The answer: `ACK`, or the code and the words.
    fn say(&mut self, response: &Resources) -> String {
        self.handle(response).0
    }

    /// Returns the answer, and the changes: `+NAME`, `-NAME`, `?NAME`.
    fn handle(&mut self, response: &Resources) -> (String, String) {
        let handled = self
            .0
            .handle_response(at(1), response.clone(), &Text)
            .unwrap();
        let request = handled.request;
        assert_eq!(request.collection, response.collection);
        assert_eq!(request.response_nonce, response.nonce);
        assert_eq!(request.sink_node.unwrap().id, "me");
        assert!(request.incremental && request.initial_resource_versions.is_empty());
        assert_eq!(request.error_detail.is_some(), handled.changes.is_none());
        let answer = request.error_detail.map_or_else(
            || "ACK".to_owned(),
            |error| format!("{} {}", error.code, error.message),
        );
        let mut changed = Vec::new();
        if let Some(changes) = handled.changes {
            let set = changes.set.iter().map(|(name, _)| format!("+{name}"));
            let removed = changes.removed.iter().map(|name| format!("-{name}"));
            let refused = changes.refused.iter().map(|name| format!("?{name}"));
            changed.extend(set.chain(removed).chain(refused));
            assert_eq!(changed.is_empty(), changes.is_empty());
        }
        (answer, changed.join(" "))
    }

    fn stored_text(&self) -> String {
        let entries = self.0.entries("a").map(|(name, entry)| {
            let object = entry.object.as_ref().map_or("-", |object| object.as_str());
            let status = match entry.status() {
                ObjectStatus::Accepted => "accepted",
                ObjectStatus::Refused { serving } => serving.as_str(),
            };
            format!("{name}={object}:{status}")
        });
        entries.collect::<Vec<_>>().join(" ")
    }
}

#[test]
fn a_stream_begins_with_a_request_for_each_collection() {
    let mut play = Play::new();
    let requests = play.0.start(at(0));
    let names: Vec<_> = requests.iter().map(|one| &*one.collection).collect();
    assert_eq!(names, ["a", "b"]);
    for request in &requests {
        let node = request.sink_node.as_ref().unwrap();
        assert_eq!((&*node.id, &*node.annotations["k"]), ("me", "v"));
        assert!(request.incremental && request.response_nonce.is_empty());
        assert!(request.initial_resource_versions.is_empty());
    }
}

#[test]
fn all_replaces_and_some_adds_and_removes() {
    let mut play = Play::new();
    assert!(!play.0.is_synced());
    let all = response("1", &[("n/1", "x"), ("n/2", "x")]);
    assert_eq!(play.handle(&all), ("ACK".into(), "+n/1 +n/2".into()));
    assert_eq!(play.handle(&all).1, "");
    let all = response("2", &[("n/2", "y"), ("n/3", "x")]);
    assert_eq!(play.handle(&all).1, "+n/2 +n/3 -n/1");
    let some = more("3", &[("n/1", "z"), ("n/2", "y")], &["n/3", "n/9", "n/2"]);
    assert_eq!(play.handle(&some).1, "+n/1 -n/3");
    assert_eq!(play.stored_text(), "n/1=z:accepted n/2=y:accepted");
    assert!(!play.0.is_synced());
    let mut other = response("4", &[]);
    other.collection = "b".to_owned();
    assert_eq!(play.handle(&other), ("ACK".into(), String::new()));
    assert!(play.0.is_synced());
    let (_, status) = play.0.status().next().unwrap();
    assert_eq!((status.version, status.count), ("system 3", 2));
    assert_eq!((status.last_ack, status.last_nack), (Some(at(1)), None));
}

#[test]
fn an_unreadable_resource_refuses_the_response_by_name() {
    let mut play = Play::new();
    play.say(&response("1", &[("n/1", "x")]));
    let mut bad = response(
        "2",
        &[("n/1", "y"), ("n/2", "!"), ("n/3", "z"), ("n/4", "z")],
    );
    bad.resources[2].body.as_mut().unwrap().type_url = "other".to_owned();
    bad.resources[3].body = None;
    bad.resources.push(Resource::default());
    assert_eq!(
        play.say(&bad),
        "3 n/2: it is shouted; n/3: the body is other, not type.googleapis.com/t; \
         n/4: the body is nothing, not type.googleapis.com/t; a resource without a name"
    );
    assert_eq!(play.stored_text(), "n/1=x:accepted");
    let (_, status) = play.0.status().next().unwrap();
    assert_eq!(status.version, "system 1");
    assert!(matches!(status.last_nack, Some((_, INVALID_ARGUMENT, _))));
    // However many they are.
    let names: Vec<_> = (0..2_000).map(|n| format!("n/{n}")).collect();
    let members: Vec<_> = names.iter().map(|name| (&**name, "!")).collect();
    let answer = play.say(&response("3", &members));
    assert!(answer.ends_with("; and 1980 more"), "{answer}");
    let long = "x".repeat(100_000);
    assert!(play.say(&response("4", &[(&long, "!")])).len() <= NACK_BYTES + 2);
}

#[test]
fn another_collection_is_unimplemented() {
    let mut play = Play::new();
    let mut other = response("1", &[("n/1", "!")]);
    for collection in ["c", ""] {
        other.collection = collection.to_owned();
        let answer = format!("12 unsupported collection {collection:?}");
        assert_eq!(play.say(&other), answer);
    }
    // A source that has dialled begins with the trigger.
    let trigger = Resources {
        collection: crate::TRIGGER.to_owned(),
        ..Resources::default()
    };
    assert_eq!(
        play.say(&trigger),
        "12 unsupported collection \"$triggerCollection\""
    );
    assert_eq!(play.stored_text(), "");
}

#[test]
fn an_object_that_breaks_a_rule_is_left_out_alone() {
    let mut play = Play::new();
    let all = response("1", &[("n/1", "?a"), ("n/2", "x"), ("n/3", "x")]);
    assert_eq!(play.handle(&all), ("ACK".into(), "+n/2 +n/3 ?n/1".into()));
    assert_eq!(
        play.stored_text(),
        "n/1=-:refused n/2=x:accepted n/3=x:accepted"
    );
    // A good one before it is kept.
    let some = more("2", &[("n/2", "?b")], &[]);
    assert_eq!(play.handle(&some), ("ACK".into(), "?n/2".into()));
    assert_eq!(
        play.stored_text(),
        "n/1=-:refused n/2=x:stale n/3=x:accepted"
    );
    let findings: Vec<_> = play
        .0
        .entries("a")
        .map(|(_, entry)| entry.findings.clone())
        .collect();
    assert_eq!(
        findings,
        [vec!["?a".to_owned()], vec!["?b".to_owned()], vec![]]
    );
    // Gone is gone, and good is good.
    let all = response("3", &[("n/1", "y"), ("n/3", "?c")]);
    assert_eq!(play.handle(&all).1, "+n/1 -n/2 ?n/3");
    assert_eq!(play.stored_text(), "n/1=y:accepted n/3=x:stale");
    assert_eq!(play.handle(&more("4", &[("n/3", "x")], &[])).1, "+n/3");
    // A name that was never good is no loss.
    play.say(&more("5", &[("n/4", "?d")], &[]));
    assert_eq!(play.handle(&more("6", &[], &["n/4"])).1, "");
}

#[test]
fn a_new_stream_says_what_is_there() {
    let mut play = Play::new();
    play.0.start(at(0));
    play.say(&response("1", &[("n/1", "x"), ("n/2", "?x")]));
    play.0.reconnect_at(at(1), 0.5);
    let requests = play.0.start(at(2));
    let versions: Vec<_> = requests[0].initial_resource_versions.iter().collect();
    // A refused resource was answered, too: it is not to come again before it changes.
    assert_eq!(versions.len(), 2);
    assert_eq!(
        (versions[0].0.as_str(), versions[0].1.as_str()),
        ("n/1", "v-x")
    );
    assert_eq!(versions[1].1, "v-?x");
    assert_eq!(play.stored_text(), "n/1=x:accepted n/2=-:refused");
}

#[test]
fn all_is_requested_of_a_source_that_counts_otherwise_when_not_all_can_be_named() {
    let mut play = Play::new();
    let names: Vec<_> = (0..20_000)
        .map(|n| format!("namespace/name-{n:020}"))
        .collect();
    let members: Vec<_> = names.iter().map(|name| (&**name, "x")).collect();
    play.say(&response("1", &members));
    let first = &play.0.start(at(0))[0];
    assert!(!first.incremental && first.initial_resource_versions.is_empty());
    play.say(&response("1", &members[..15_000]));
    let first = &play.0.start(at(0))[0];
    assert_eq!(first.initial_resource_versions.len(), 15_000);
    assert!(prost::Message::encoded_len(first) < 1 << 20);
}

/// As a source of ours counts.
fn counted(name: &str, body: &str) -> Resource {
    let mut counted = resource(name, body);
    let version = crate::snapshot::content(&counted);
    counted.metadata.as_mut().unwrap().version = version.to_string();
    counted
}

/// A part of a response by a source that has all of these.
fn part(members: &[(&str, &str)], removed: &[&str], all: &[(&str, &str)]) -> Resources {
    let mut part = more("1", &[], removed);
    let members = members.iter();
    part.resources = members.map(|(name, body)| counted(name, body)).collect();
    let sums = all.iter().map(|(name, body)| {
        let version = crate::snapshot::content(&resource(name, body));
        crate::version::member(name, version)
    });
    part.system_version_info = sums.sum::<crate::version::Sum>().to_string();
    part
}

const SIX: [(&str, &str); 6] = [
    ("n/1", "x"),
    ("n/2", "x"),
    ("n/3", "x"),
    ("n/4", "x"),
    ("n/5", "?x"),
    ("n/6", "x"),
];

/// A sink with six members of gudgeon's source, whose next stream has named the first three so far.
fn three_of_six() -> Play {
    let mut play = Play::naming(100);
    play.0.start(at(0));
    play.say(&part(&SIX, &[], &SIX));
    play.0.reconnect_at(at(0), 0.5);
    play.again();
    play
}

impl Play {
    /// Begins a stream; returns the names in the first request.
    fn again(&mut self) {
        let first = self.0.start(at(1)).remove(0);
        let names: Vec<_> = first.initial_resource_versions.keys().collect();
        assert!(first.incremental && first.response_nonce.is_empty());
        assert_eq!(names, ["n/1", "n/2", "n/3"]);
    }

    fn names(&self) -> String {
        let names = self.0.entries("a").map(|(name, _)| name.trim_matches('n'));
        names.collect()
    }
}

#[test]
fn unnamed_objects_are_received_again_without_a_change() {
    let mut play = three_of_six();
    for one in &SIX[3..] {
        assert_eq!(play.handle(&part(&[*one], &[], &SIX)).1, "");
        assert_eq!(play.names(), "/1/2/3/4/5/6");
    }
    // From now on the source knows of all.
    let five = &SIX[..5];
    assert_eq!(play.handle(&part(&[], &["n/6"], five)).1, "-n/6");
    assert_eq!(play.names(), "/1/2/3/4/5");
}

#[test]
fn unnamed_objects_that_do_not_come_again_are_removed() {
    let mut play = three_of_six();
    let all = [("n/2", "x"), ("n/3", "y"), ("n/4", "y"), ("n/7", "x")];
    let first = part(&[("n/3", "y")], &["n/1"], &all);
    assert_eq!(play.handle(&first).1, "+n/3 -n/1");
    assert_eq!(play.handle(&part(&[("n/4", "y")], &[], &all)).1, "+n/4");
    assert_eq!(play.names(), "/2/3/4/5/6");
    let last = part(&[("n/7", "x")], &[], &all);
    // A name that was never good is no loss.
    assert_eq!(play.handle(&last), ("ACK".into(), "+n/7 -n/6".into()));
    assert_eq!(play.names(), "/2/3/4/7");
    assert_eq!(play.handle(&last).1, "");
}

#[test]
fn it_goes_with_an_answer_that_is_empty() {
    let mut play = three_of_six();
    assert_eq!(play.handle(&part(&[], &[], &SIX[..3])).1, "-n/4 -n/6");
    let mut play = three_of_six();
    let none = part(&[], &["n/1", "n/2", "n/3"], &[]);
    assert_eq!(play.handle(&none).1, "-n/1 -n/2 -n/3 -n/4 -n/6");
}

#[test]
fn a_stream_that_breaks_between_parts_takes_nothing_with_it() {
    let mut play = three_of_six();
    let five = &SIX[..5];
    for _ in 0..3 {
        assert_eq!(play.handle(&part(&SIX[3..4], &[], five)).1, "");
        play.0.reconnect_at(at(1), 0.5);
        play.again();
        // The new source does not know the members of the one before: it sends no removal for them, and its part is
        // complete.
        assert_eq!(play.handle(&part(&[], &[], five)).1, "");
        assert_eq!(play.names(), "/1/2/3/4/5/6");
    }
    assert_eq!(play.handle(&part(&SIX[3..5], &[], five)).1, "-n/6");
}

#[test]
fn a_refusal_between_parts_takes_nothing_with_it() {
    let mut play = three_of_six();
    let all = [SIX[0], SIX[1], SIX[2], ("n/4", "!")];
    let refused = part(&[("n/4", "!")], &[], &all);
    assert_eq!(play.say(&refused), "3 n/4: it is shouted");
    assert_eq!(play.names(), "/1/2/3/4/5/6");
    assert_eq!(play.handle(&part(&[], &[], &SIX[..3])).1, "-n/4 -n/6");
}

#[test]
fn a_source_that_counts_otherwise_loses_nothing() {
    // Another source has replaced gudgeon's: members that it does not name stay until it removes them.
    let mut play = three_of_six();
    for version in ["7", "system"] {
        let mut some = part(&[("n/8", "x")], &["n/1"], &[]);
        some.system_version_info = version.to_owned();
        play.say(&some);
        assert_eq!(play.names(), "/2/3/4/5/6/8");
    }
    assert_eq!(play.handle(&more("2", &[], &["n/6"])).1, "-n/6");
    // Next time it is asked for all.
    let first = play.0.start(at(2)).remove(0);
    assert!(!first.incremental && first.initial_resource_versions.is_empty());
    assert_eq!(play.names(), "/2/3/4/5/8");
    let mut all = part(&[("n/8", "x")], &[], &[]);
    (all.incremental, all.system_version_info) = (false, "8".to_owned());
    assert_eq!(play.handle(&all).1, "-n/2 -n/3 -n/4");
    // A source without incremental responses.
    let mut play = three_of_six();
    let mut all = part(&SIX[1..5], &[], &SIX[1..5]);
    all.incremental = false;
    assert_eq!(play.handle(&all).1, "-n/1 -n/6");
}

#[test]
fn as_many_are_named_as_there_is_room_for() {
    let mut play = Play::naming(VERSIONS_BYTES);
    let names: Vec<_> = (0..20_000)
        .map(|n| format!("namespace/name-{n:020}"))
        .collect();
    let long = format!("namespace/a{}", "x".repeat(VERSIONS_BYTES));
    let mut members: Vec<_> = names.iter().map(|name| (&**name, "x")).collect();
    members.push((&long, "x"));
    play.say(&part(&members, &[], &members));
    let first = &play.0.start(at(0))[0];
    let versions = &first.initial_resource_versions;
    // The first ones, but for one that is too long by itself.
    assert!(
        first.incremental && versions.len() > 12_000,
        "{}",
        versions.len()
    );
    assert!(versions.keys().eq(names.iter().take(versions.len())));
    let length = prost::Message::encoded_len(first);
    assert!((800 << 10..1 << 20).contains(&length), "{length}");
}

#[test]
fn a_version_that_does_not_count_hides_no_change() {
    let mut play = Play::new();
    for (body, changes) in [("x", "+n/1"), ("y", "+n/1"), ("y", "")] {
        let mut all = response("1", &[("n/1", body)]);
        all.resources[0].metadata.as_mut().unwrap().version = "1".to_owned();
        assert_eq!(play.handle(&all).1, changes);
    }
    // Then the next request must name the new version.
    let mut all = response("2", &[("n/1", "y")]);
    all.resources[0].metadata.as_mut().unwrap().version = "2".to_owned();
    play.say(&all);
    let first = &play.0.start(at(0))[0];
    assert_eq!(first.initial_resource_versions["n/1"], "2");
}

#[test]
fn tries_are_further_and_further_apart_until_a_stream_brings_a_response() {
    let mut play = Play::new();
    let waits = |play: &mut Play, times: usize| -> Vec<_> {
        let wait = |_| play.0.reconnect_at(at(0), 0.5).as_millis();
        (0..times).map(wait).collect()
    };
    assert_eq!(waits(&mut play, 3), [200, 400, 800]);
    // A stream alone does not reset the backoff: it may break before a response comes.
    play.0.start(at(0));
    assert_eq!(waits(&mut play, 1), [1600]);
    play.0.start(at(0));
    play.say(&response("1", &[]));
    assert_eq!(waits(&mut play, 3), [200, 400, 800]);
    // Nor does one that this side ends: the next would bring the same.
    play.0.start(at(0));
    play.say(&response("1", &[]));
    play.0.refuse();
    assert_eq!(waits(&mut play, 1), [1600]);
    play.0.start(at(0));
    play.say(&response("1", &[]));
    let unusable = play.0.handle_response(at(0), response("", &[]), &Text);
    assert!(unusable.is_err());
    assert_eq!(waits(&mut play, 1), [3200]);
    play.0.start(at(0));
    play.say(&response("1", &[]));
    assert_eq!(waits(&mut play, 1), [200]);
}

#[test]
fn an_answer_without_nonce_is_no_answer() {
    let mut play = Play::new();
    let fault = play
        .0
        .handle_response(at(0), response("", &[]), &Text)
        .unwrap_err();
    assert_eq!(
        fault.to_string(),
        "cannot answer a response without nonce of \"a\""
    );
}

#[test]
fn the_last_requests_are_kept() {
    let mut play = Play::new();
    play.0.start(at(0));
    play.say(&response("1", &[]));
    play.say(&response("2", &[("n/1", "!")]));
    let log: Vec<_> = play.0.log().collect();
    assert_eq!(log.len(), 4);
    let nothing = Outcome::Acked {
        resources: 0,
        removed: 0,
    };
    assert_eq!((&*log[2].nonce, &log[2].outcome), ("1", &nothing));
    let Outcome::Nacked(code, message) = &log[3].outcome else {
        panic!("{log:?}")
    };
    assert_eq!((*code, &**message), (3, "n/1: it is shouted"));
    for n in 0..1000 {
        play.say(&response(&n.to_string(), &[]));
    }
    assert_eq!(play.0.log().count(), LOG_CAPACITY);
    assert_eq!(&*play.0.log().last().unwrap().nonce, "999");
    // However long it is, it is answered, and little of it is kept.
    let long = "9".repeat(1 << 20);
    play.say(&response(&long, &[]));
    assert!(play.0.log().last().unwrap().nonce.len() < 1000);
}

#[test]
fn a_collection_in_parts_is_there_with_the_last_one() {
    use crate::snapshot::{Origin, Resource as Given, content};
    use crate::version::member;

    let mut play = Play::new();
    let mut other = response("1", &[]);
    other.collection = "b".to_owned();
    play.say(&other);
    let version = |body: &str| content(&resource("n/1", body));
    let given = Given::new(Origin {
        type_url: TYPE.to_owned(),
        body: "x".into(),
        ..Origin::default()
    });
    assert_eq!(version("x"), given.version);
    let all = member("n/1", version("x")) + member("n/2", version("?y"));
    for (name, body, is_synced) in [("n/1", "x", false), ("n/2", "?y", true)] {
        let mut part = more("1", &[(name, body)], &[]);
        part.system_version_info = all.to_string();
        part.resources[0].metadata.as_mut().unwrap().version = version(body).to_string();
        assert_eq!(play.say(&part), "ACK");
        assert_eq!(play.0.is_synced(), is_synced);
    }
    // Once there it stays so, and a source that counts otherwise is believed.
    let mut part = more("2", &[("n/3", "z")], &[]);
    part.system_version_info = all.to_string();
    play.say(&part);
    assert!(play.0.is_synced());
    for system in ["7".to_owned(), all.to_string()] {
        let mut play = Play::new();
        play.say(&other);
        let mut part = more("1", &[("n/1", "x")], &[]);
        part.system_version_info = system;
        play.say(&part);
        assert!(play.0.is_synced());
    }
}
