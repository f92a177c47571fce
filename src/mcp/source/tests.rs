//! One stream, request by request.

use bytes::Bytes;
use prost::Message as _;

use super::*;
use crate::message::{Resources, SinkNode};
use crate::snapshot::{GroupSnapshot, Origin, Resource};

const NOW: Duration = Duration::from_secs(7);

struct Play {
    shelf: GroupSnapshot,
    source: Source,
}

fn request(collection: &str, nonce: &str) -> RequestResources {
    RequestResources {
        collection: collection.to_owned(),
        response_nonce: nonce.to_owned(),
        ..RequestResources::default()
    }
}

fn incremental(collection: &str, nonce: &str) -> RequestResources {
    RequestResources {
        incremental: true,
        ..request(collection, nonce)
    }
}

fn refusal(collection: &str, nonce: &str) -> RequestResources {
    RequestResources {
        error_detail: Some(api::google::rpc::Status {
            code: 3,
            message: "no".to_owned(),
            details: Vec::new(),
        }),
        ..request(collection, nonce)
    }
}

fn resource(name: &str, body: Vec<u8>) -> Arc<Resource> {
    Arc::new(Resource::new(Origin {
        name: name.to_owned(),
        body: body.into(),
        ..Origin::default()
    }))
}

/// As a sink reads it.
fn read(response: &Response) -> Resources {
    let bytes: Vec<u8> = response.pieces().concat();
    assert_eq!(bytes.len(), response.encoded_len());
    Resources::decode(Bytes::from(bytes)).unwrap()
}

/// `COLLECTION#NONCE +NAME… -NAME…`, with `i` before the names when it is incremental.
fn text(response: &Response) -> String {
    let read = read(response);
    let mut text = format!("{}#{}", read.collection, read.nonce);
    if read.incremental {
        text.push_str(" i");
    }
    for resource in &read.resources {
        text.push_str(&format!(" +{}", resource.metadata.as_ref().unwrap().name));
    }
    for name in &read.removed_resources {
        text.push_str(&format!(" -{name}"));
    }
    text
}

impl Play {
    fn new() -> Self {
        let collections = Arc::new(Collections::new(["a", "b"]));
        Self {
            shelf: GroupSnapshot::new(&collections, Group::Default),
            source: Source::new(collections, Dialer::Sink),
        }
    }

    /// One that was published, with `a` holding `1` and `2`.
    fn published() -> Self {
        let mut play = Self::new();
        play.put("1", 0);
        play.put("2", 0);
        play.publish();
        play
    }

    fn put(&mut self, name: &str, body: u8) {
        self.shelf.set("a", resource(name, vec![body]));
    }

    fn publish(&mut self) -> Vec<String> {
        let snapshot = self.shelf.snapshot();
        self.source.snapshot(snapshot);
        self.sent()
    }

    fn sent(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.source.due())
            .map(|response| text(&response))
            .collect()
    }

    fn hear(&mut self, request: &RequestResources) -> RequestKind {
        self.source.request(NOW, request).unwrap()
    }

    fn say(&mut self, request: &RequestResources) -> Vec<String> {
        self.hear(request);
        self.sent()
    }
}

#[test]
fn a_request_before_the_first_snapshot_waits_for_it() {
    let mut play = Play::new();
    assert_eq!(play.say(&request("a", "")), [""; 0]);
    assert_eq!(play.say(&request("b", "")), [""; 0]);
    play.put("1", 0);
    // An empty collection is an answer, too.
    assert_eq!(play.publish(), ["a#1 +1", "b#2"]);
    assert_eq!(play.publish(), [""; 0]);
}

#[test]
fn groups_are_published_by_themselves() {
    let mut play = Play::published();
    play.hear(&request("a", ""));
    assert_eq!(
        play.say(&request(crate::collections::SYNTHETIC, "")),
        ["a#1 +1 +2"]
    );
    let mut shelf = GroupSnapshot::new(&Collections::new(["a"]), Group::SyntheticServiceEntry);
    play.source.snapshot(shelf.snapshot());
    assert_eq!(
        play.sent(),
        ["istio/networking/v1alpha3/synthetic/serviceentries#2"]
    );
}

#[test]
fn the_version_is_that_of_the_collection() {
    let mut play = Play::published();
    play.hear(&request("a", ""));
    let first = read(&play.source.due().unwrap());
    let other = Play::published().shelf.snapshot();
    let version = other.get("a").unwrap().version().to_string();
    assert_eq!(first.system_version_info, version);
    assert!(!first.incremental);
}

#[test]
fn after_an_ack_a_change_is_one_response_with_the_next_nonce() {
    let mut play = Play::published();
    assert_eq!(play.say(&request("a", "")), ["a#1 +1 +2"]);
    assert_eq!(play.hear(&request("a", "1")), RequestKind::Acked);
    assert_eq!(play.sent(), [""; 0]);
    play.put("2", 1);
    assert_eq!(play.publish(), ["a#2 +1 +2"]);
    assert_eq!(play.publish(), [""; 0]);
}

#[test]
fn after_a_nack_nothing_is_sent_until_something_changes() {
    let mut play = Play::published();
    play.say(&request("a", ""));
    assert_eq!(play.hear(&refusal("a", "1")), RequestKind::Nacked(3));
    assert_eq!(play.sent(), [""; 0]);
    assert_eq!(play.publish(), [""; 0]);
    play.shelf.set("b", resource("1", vec![0]));
    assert_eq!(play.publish(), [""; 0]);
    play.put("2", 1);
    assert_eq!(play.publish(), ["a#2 +1 +2"]);
    let status: Vec<_> = play.source.status().collect();
    let (collection, status) = &status[0];
    assert_eq!((&***collection, status.nacks), ("a", 1));
    assert_eq!(status.pending_nonce, Some(2));
    let nack = status.last_nack.unwrap();
    assert_eq!((nack.at, nack.nonce, nack.code), (NOW, 1, 3));
    assert_eq!(&*nack.message, "no");
}

#[test]
fn other_nonces_are_stale_and_change_nothing() {
    let mut play = Play::published();
    play.hear(&request("a", ""));
    assert_eq!(play.say(&request("b", "")), ["a#1 +1 +2", "b#2"]);
    for nonce in ["2", "0", "3", "01", " 1", "x", "-1", "99999999999999999999"] {
        assert_eq!(
            play.hear(&request("a", nonce)),
            RequestKind::Stale,
            "{nonce}"
        );
        assert_eq!(
            play.hear(&refusal("a", nonce)),
            RequestKind::Stale,
            "{nonce}"
        );
    }
    // Never asked for.
    assert_eq!(
        play.hear(&request("k8s/core/v1/pods", "1")),
        RequestKind::Stale
    );
    assert_eq!(play.hear(&request("a", "1")), RequestKind::Acked);
    assert_eq!(play.hear(&request("a", "1")), RequestKind::Stale);
    assert_eq!(play.hear(&request("b", "2")), RequestKind::Acked);
    play.put("1", 9);
    assert_eq!(play.publish(), ["a#3 +1 +2"]);
}

#[test]
fn the_newest_of_ten_changes_is_sent_after_a_response_on_its_way() {
    let mut play = Play::published();
    play.say(&incremental("a", ""));
    for body in 1..=10 {
        play.put("1", body);
        assert_eq!(play.publish(), [""; 0]);
    }
    play.hear(&incremental("a", "1"));
    let response = play.source.due().unwrap();
    let read = read(&response);
    assert_eq!(text(&response), "a#2 i +1");
    assert_eq!(read.resources[0].body.as_ref().unwrap().value, vec![10]);
    assert!(play.source.due().is_none());
}

#[test]
fn a_change_that_is_taken_back_is_not_sent() {
    let mut play = Play::published();
    play.say(&request("a", ""));
    play.put("1", 1);
    play.publish();
    play.put("1", 0);
    play.publish();
    assert_eq!(play.say(&request("a", "1")), [""; 0]);
}

#[test]
fn an_unknown_collection_ends_the_stream() {
    let mut play = Play::published();
    let message = |play: &mut Play, name: &str, nonce: &str| {
        let fault = play.source.request(NOW, &request(name, nonce));
        fault.unwrap_err().to_string()
    };
    assert_eq!(message(&mut play, "X", ""), "unsupported collection \"X\"");
    assert_eq!(message(&mut play, "X", "1"), "unsupported collection \"X\"");
    // Only a source that has sent a trigger accepts the response to it.
    assert_eq!(
        message(&mut play, TRIGGER, ""),
        "unsupported collection \"$triggerCollection\""
    );
    assert!(message(&mut play, &"é".repeat(9999), "").len() < 300);
}

#[test]
fn incremental_gives_what_came_changed_and_went() {
    let mut play = Play::published();
    assert_eq!(play.say(&incremental("a", "")), ["a#1 i +1 +2"]);
    play.hear(&incremental("a", "1"));
    play.put("3", 0);
    assert_eq!(play.publish(), ["a#2 i +3"]);
    play.hear(&incremental("a", "2"));
    play.put("1", 1);
    assert_eq!(play.publish(), ["a#3 i +1"]);
    play.hear(&incremental("a", "3"));
    play.shelf.remove("a", "2");
    assert_eq!(play.publish(), ["a#4 i -2"]);
    // The sink still lacks the refused version.
    play.hear(&RequestResources {
        incremental: true,
        ..refusal("a", "4")
    });
    play.put("4", 0);
    assert_eq!(play.publish(), ["a#5 i +4 -2"]);
    // The sink asks for the whole collection.
    assert_eq!(play.say(&request("a", "5")), [""; 0]);
    play.put("4", 1);
    assert_eq!(play.publish(), ["a#6 +1 +3 +4"]);
}

#[test]
fn a_sink_that_comes_back_gets_the_difference_only() {
    let mut play = Play::published();
    let snapshot = play.shelf.snapshot();
    let version = |name: &str| snapshot.get("a").unwrap().get(name).unwrap().version;
    let mut back = incremental("a", "");
    for (name, version) in [
        ("0", version("1").to_string()),
        ("1", version("1").to_string()),
        ("2", "17".to_owned()),
    ] {
        let versions = &mut back.initial_resource_versions;
        versions.insert(name.to_owned(), version);
    }
    assert_eq!(play.say(&back), ["a#1 i +2 -0"]);
    // Another first request: the response in flight is forgotten.
    let versions = &mut back.initial_resource_versions;
    versions.remove("0");
    versions.insert("2".to_owned(), version("2").to_string());
    assert_eq!(play.say(&back), ["a#2 i"]);
    assert_eq!(play.hear(&incremental("a", "1")), RequestKind::Stale);
    assert_eq!(play.say(&incremental("a", "2")), [""; 0]);
    // Without incremental the whole collection is sent, whatever the sink has.
    back.incremental = false;
    assert_eq!(play.say(&back), ["a#3 +1 +2"]);
    assert_eq!(play.say(&incremental("a", "")), ["a#4 i +1 +2"]);
}

#[test]
fn a_superseded_response_may_still_arrive() {
    let mut play = Play::published();
    assert_eq!(play.say(&incremental("a", "")), ["a#1 i +1 +2"]);
    play.shelf.remove("a", "1");
    play.publish();
    // The sink has not seen the response when it asks, and then it does.
    assert_eq!(play.say(&incremental("a", "")), ["a#2 i +2 -1"]);
    assert_eq!(play.say(&incremental("a", "")), ["a#3 i +2 -1"]);
    play.hear(&incremental("a", "3"));
    assert_eq!(play.say(&incremental("a", "")), ["a#4 i +2"]);
    // The sink has applied the response, and its versions say so.
    let mut seen = incremental("a", "");
    let version = play.shelf.get("a", "2").unwrap().version.to_string();
    let versions = &mut seen.initial_resource_versions;
    versions.insert("2".to_owned(), version);
    assert_eq!(play.say(&seen), ["a#5 i"]);
    // A full response would remove the sink's other members.
    assert_eq!(play.say(&request("a", "")), ["a#6 +2"]);
    let versions = &mut seen.initial_resource_versions;
    versions.insert("9".to_owned(), String::new());
    assert_eq!(play.say(&seen), ["a#7 i -9"]);
    play.put("9", 0);
    play.publish();
    let version = play.shelf.get("a", "9").unwrap().version.to_string();
    let versions = &mut seen.initial_resource_versions;
    versions.insert("9".to_owned(), version);
    assert_eq!(play.say(&seen), ["a#8 i +9"]);
}

#[test]
fn versions_count_in_a_first_request_only() {
    let mut play = Play::published();
    play.say(&incremental("a", ""));
    let mut ack = incremental("a", "1");
    let versions = &mut ack.initial_resource_versions;
    versions.insert("9".to_owned(), "9".to_owned());
    assert_eq!(play.say(&ack), [""; 0]);
    play.put("1", 1);
    assert_eq!(play.publish(), ["a#2 i +1"]);
}

/// Twenty of this size.
fn large(play: &mut Play, bytes: usize) {
    for n in 0..20_u8 {
        let body = vec![n; bytes];
        play.shelf.set("a", resource(&format!("{n:02}"), body));
    }
}

/// A small version of [`large`], four resources to a part.
fn four_in_a_part() -> Play {
    let mut play = Play::new();
    play.source = play.source.with_parts_of(4400);
    large(&mut play, 1000);
    play.publish();
    play
}

#[test]
fn a_long_difference_comes_in_parts() {
    let mut play = Play::published();
    play.shelf.remove("a", "1");
    large(&mut play, (1 << 20) - 100);
    play.publish();
    let mut first = incremental("a", "");
    let versions = &mut first.initial_resource_versions;
    versions.insert("gone".to_owned(), String::new());
    play.hear(&first);
    let (mut parts, mut names) = (0, Vec::new());
    while let Some(response) = play.source.due() {
        parts += 1;
        assert!(response.encoded_len() <= PART_BYTES && response.oversized.is_none());
        let message = read(&response);
        let removed: &[&str] = if parts == 1 { &["gone"] } else { &[] };
        assert_eq!(message.removed_resources, removed);
        let members = message.resources.into_iter();
        names.extend(members.map(|one| one.metadata.unwrap().name));
        // Each is acknowledged before the next.
        assert!(play.source.due().is_none());
        assert_eq!(
            play.hear(&incremental("a", &message.nonce)),
            RequestKind::Acked
        );
    }
    assert_eq!((parts, names.len()), (5, 21));
    assert!(names.is_sorted());
    // From then on the sink is treated as any other.
    play.put("2", 7);
    assert_eq!(play.publish(), ["a#6 i +2"]);
}

#[test]
fn a_change_between_parts_goes_into_the_next() {
    let mut play = four_in_a_part();
    assert_eq!(play.say(&incremental("a", "")), ["a#1 i +00 +01 +02 +03"]);
    play.put("00", 9);
    for n in 5..20 {
        play.shelf.remove("a", &format!("{n:02}"));
    }
    play.shelf.remove("a", "01");
    play.publish();
    assert_eq!(play.say(&incremental("a", "1")), ["a#2 i +00 +04 -01"]);
    assert_eq!(play.say(&incremental("a", "2")), [""; 0]);
}

/// A sink may have more than it has listed: only the version of the last response tells it that the collection is complete.
#[test]
fn a_final_response_follows_though_a_change_left_nothing_to_send() {
    let mut play = four_in_a_part();
    play.say(&incremental("a", ""));
    let keep = |play: &mut Play, count: u8| {
        for n in count..20 {
            play.shelf.remove("a", &format!("{n:02}"));
        }
        play.publish()
    };
    keep(&mut play, 4);
    let version = play.shelf.snapshot().get("a").unwrap().version();
    assert_eq!(play.say(&incremental("a", "1")), ["a#2 i"]);
    assert_eq!(play.say(&incremental("a", "2")), [""; 0]);
    // Once it is complete, an empty difference causes no response.
    for n in 4..12 {
        let name = format!("{n:02}");
        play.shelf.set("a", resource(&name, vec![n; 1000]));
    }
    assert_eq!(play.publish(), ["a#3 i +04 +05 +06 +07"]);
    keep(&mut play, 8);
    assert_eq!(play.say(&incremental("a", "3")), [""; 0]);
    assert_eq!(keep(&mut play, 4), ["a#4 i -04 -05 -06 -07"]);
    play.say(&incremental("a", "4"));
    let (_, status) = play.source.status().next().unwrap();
    assert_eq!((status.acked, status.pending_nonce), (Some(version), None));
}

#[test]
fn a_final_response_follows_after_a_nack_too() {
    let mut play = four_in_a_part();
    play.say(&incremental("a", ""));
    let mut nack = refusal("a", "1");
    nack.incremental = true;
    assert_eq!(play.say(&nack), [""; 0]);
    assert_eq!(play.publish(), [""; 0]);
    for n in 0..20 {
        play.shelf.remove("a", &format!("{n:02}"));
    }
    assert_eq!(play.publish(), ["a#2 i"]);
    assert_eq!(play.say(&incremental("a", "2")), [""; 0]);
}

#[test]
fn a_refused_part_is_not_sent_again() {
    let mut play = four_in_a_part();
    play.say(&incremental("a", ""));
    play.say(&incremental("a", "1"));
    let mut nack = refusal("a", "2");
    nack.incremental = true;
    assert_eq!(play.say(&nack), [""; 0]);
    assert_eq!(play.publish(), [""; 0]);
    for n in 6..20 {
        play.shelf.remove("a", &format!("{n:02}"));
    }
    assert_eq!(play.publish(), ["a#3 i +04 +05"]);
}

#[test]
fn a_large_object_goes_alone_and_many_removals_in_parts() {
    let mut play = Play::new();
    play.source =
        Source::new(Arc::new(Collections::new(["a", "b"])), Dialer::Sink).with_parts_of(150);
    for name in ["1", "2"] {
        play.shelf.set("a", resource(name, vec![0; 300]));
    }
    play.publish();
    play.hear(&incremental("a", ""));
    let first = play.source.due().unwrap();
    assert_eq!(text(&first), "a#1 i +1");
    assert_eq!(first.oversized, Some(first.encoded_len()));
    play.hear(&incremental("a", "1"));
    let second = play.source.due().unwrap();
    assert_eq!(
        (text(&second).as_str(), second.oversized),
        ("a#2 i +2", None)
    );
    let mut first = incremental("a", "");
    for n in 0..3 {
        let versions = &mut first.initial_resource_versions;
        versions.insert(format!("{n}{}", "x".repeat(39)), String::new());
    }
    play.hear(&first);
    let mut counts = Vec::new();
    while let Some(response) = play.source.due() {
        counts.push((response.removed.len(), response.resources.members().len()));
        play.hear(&incremental("a", &response.nonce.to_string()));
    }
    assert_eq!(counts, [(2, 0), (1, 0), (0, 1), (0, 1)]);
}

#[test]
fn the_whole_of_a_long_collection_is_sent_at_once_with_one_warning() {
    let mut play = four_in_a_part();
    play.hear(&request("a", ""));
    let response = play.source.due().unwrap();
    assert_eq!(response.resources.members().len(), 20);
    assert_eq!(response.oversized, Some(response.encoded_len()));
    play.put("x", 0);
    play.publish();
    play.hear(&request("a", "1"));
    assert_eq!(play.source.due().unwrap().oversized, None);
}

#[test]
fn a_source_that_dials_says_so_first_and_minds_no_answer() {
    let mut play = Play::published();
    let collections = Arc::new(Collections::new(["a"]));
    play.source = Source::new(collections, Dialer::Source);
    assert_eq!(play.publish(), ["$triggerCollection#"]);
    assert_eq!(play.hear(&refusal(TRIGGER, "")), RequestKind::Ignored);
    assert_eq!(play.say(&request("a", "")), ["a#1 +1 +2"]);
}

#[test]
fn the_sink_s_name_is_its_first_one_cut() {
    let mut play = Play::published();
    assert_eq!(play.source.node(), None);
    for id in ["x".repeat(9999), "other".to_owned()] {
        let node = SinkNode {
            id,
            ..SinkNode::default()
        };
        play.hear(&RequestResources {
            sink_node: Some(node),
            ..request("a", "")
        });
    }
    assert_eq!(play.source.node().unwrap().len(), NAME);
}

#[test]
fn a_response_shares_its_resources_with_all_others() {
    let mut play = Play::published();
    play.hear(&request("a", ""));
    let one = play.source.due().unwrap().pieces();
    play.hear(&incremental("a", ""));
    let other = play.source.due().unwrap().pieces();
    assert_eq!(one.len(), 4);
    for at in [1, 2] {
        assert_eq!(one[at].as_ptr(), other[at].as_ptr());
    }
}

/// A field with bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u8::try_from(bytes.len()).unwrap();
    [&[number << 3 | 2, length], bytes].concat()
}

#[test]
fn names_and_numbers_are_those_of_the_wire() {
    let pair = |number| field(number, &[field(1, b"k"), field(2, b"v")].concat());
    let map: BTreeMap<_, _> = [("k".to_owned(), "v".to_owned())].into();
    let any = [field(1, b"type"), field(2, b"value")].concat();
    let metadata = [
        field(1, b"name"),
        field(2, &[8, 5]),
        field(3, b"version"),
        pair(4),
        pair(5),
    ];
    let member = [field(1, &metadata.concat()), field(2, &any)].concat();
    let response = [
        field(1, b"system"),
        field(2, b"collection"),
        field(3, &member),
        field(4, b"removed"),
        field(5, b"nonce"),
        vec![6 << 3, 1],
    ];
    let read = Resources::decode(response.concat().as_slice()).unwrap();
    assert_eq!(read.encode_to_vec(), response.concat());
    assert_eq!(
        (&*read.system_version_info, &*read.collection),
        ("system", "collection")
    );
    assert_eq!(
        (&*read.removed_resources[0], &*read.nonce),
        ("removed", "nonce")
    );
    assert!(read.incremental);
    let member = &read.resources[0];
    let metadata = member.metadata.as_ref().unwrap();
    assert_eq!((&*metadata.name, &*metadata.version), ("name", "version"));
    assert_eq!(metadata.create_time.as_ref().unwrap().seconds, 5);
    assert_eq!((&metadata.labels, &metadata.annotations), (&map, &map));
    assert_eq!(member.body.as_ref().unwrap().type_url, "type");

    let error = [vec![8, 3], field(2, b"no"), field(3, &any)].concat();
    let request = [
        field(1, &[field(1, b"id"), pair(2)].concat()),
        field(2, b"collection"),
        pair(3),
        field(4, b"nonce"),
        field(5, &error),
        vec![6 << 3, 1],
    ];
    let read = RequestResources::decode(request.concat().as_slice()).unwrap();
    assert_eq!(read.encode_to_vec(), request.concat());
    let node = read.sink_node.unwrap();
    assert_eq!((&*node.id, node.annotations), ("id", map.clone()));
    assert_eq!(
        (&*read.collection, &*read.response_nonce),
        ("collection", "nonce")
    );
    assert_eq!(read.initial_resource_versions, map);
    let error = read.error_detail.unwrap();
    assert_eq!(
        (error.code, &*error.message, error.details.len()),
        (3, "no", 1)
    );
    assert!(read.incremental);
}
