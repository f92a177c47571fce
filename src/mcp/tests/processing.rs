//! From the words of sources to what a sink sees: sessions, publisher and a stream together.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::sync::Arc;
use std::time::Duration;

use mcp::collections::Collections;
use mcp::message::RequestResources;
use mcp::publish::Publisher;
use mcp::session::{Session, State, Step};
use mcp::snapshot::{Origin, Resource};
use mcp::source::{Dialer, Source};

/// The transform's result depends on the mesh configuration: its letter goes into the body.
fn resource(name: &str, mesh: char) -> Arc<Resource> {
    Arc::new(Resource::new(Origin {
        name: name.to_owned(),
        body: mesh.to_string().into_bytes().into(),
        ..Origin::default()
    }))
}

struct Play {
    now: Duration,
    session: Session<&'static str, (), char>,
    mesh: char,
    publisher: Publisher,
    source: Source,
    states: Vec<&'static str>,
}

impl Play {
    fn new() -> Self {
        let collections = Arc::new(Collections::new(["a"]));
        let mut source = Source::new(collections.clone(), Dialer::Sink);
        let request = RequestResources {
            collection: "a".to_owned(),
            ..RequestResources::default()
        };
        source.request(Duration::ZERO, &request).unwrap();
        Self {
            now: Duration::ZERO,
            session: Session::new(["files"]),
            mesh: '?',
            publisher: Publisher::new(collections),
            source,
            states: Vec::new(),
        }
    }

    /// As the program does it.
    fn act(&mut self, step: Step<&'static str, (), char>) {
        let mut steps = vec![step];
        while let Some(step) = steps.pop() {
            self.states.push(self.session.state().as_str());
            match step {
                Step::Nothing => {}
                Step::Replay(_) => self.publisher.begin(),
                Step::Begin(mesh, objects) => {
                    self.mesh = mesh;
                    for (name, ()) in objects {
                        self.publisher.set(self.now, "a", resource(name, mesh));
                    }
                    self.publisher.open(self.now);
                }
                Step::Apply(name, Some(())) => {
                    self.publisher.set(self.now, "a", resource(name, self.mesh));
                }
                Step::Apply(name, None) => {
                    self.publisher.remove(self.now, "a", name);
                }
                Step::End => steps.push(self.session.ended(self.now)),
            }
        }
        self.states.dedup();
    }

    /// Sends all objects of the source to the current session.
    fn say(&mut self, names: &[&'static str]) {
        let number = self.session.number();
        let step = self.session.connected(self.now, number, "files");
        self.act(step);
        for name in names {
            let step = self.session.object(number, name, Some(()));
            self.act(step);
        }
        let step = self.session.complete(self.now, number, "files");
        self.act(step);
    }

    fn mesh(&mut self, mesh: char) {
        let step = self.session.mesh(self.now, mesh);
        self.act(step);
    }

    /// Ten seconds later: what the sink got, a response a word, each name with its letter.
    fn wait(&mut self) -> Vec<String> {
        self.now += Duration::from_secs(10);
        let mut got = Vec::new();
        for published in self.publisher.due(self.now) {
            self.source.snapshot(published.snapshot);
        }
        while let Some(response) = self.source.due() {
            let members = response.resources.members().iter();
            let names: Vec<_> = members
                .map(|one| {
                    let mut meshes = ('m'..='z')
                        .filter(|mesh| resource(&one.name, *mesh).version == one.version);
                    format!("{}{}", one.name, meshes.next().unwrap())
                })
                .collect();
            got.push(names.join(","));
            let ack = RequestResources {
                collection: "a".to_owned(),
                response_nonce: response.nonce.to_string(),
                ..RequestResources::default()
            };
            self.source.request(self.now, &ack).unwrap();
        }
        got
    }
}

#[test]
fn sinks_keep_their_objects_when_the_mesh_configuration_changes() {
    let mut play = Play::new();
    let step = play.session.start(play.now);
    play.act(step);
    play.say(&["1", "2"]);
    // A missing and an invalid configuration are the same to a waiting sink.
    assert_eq!(play.wait(), [""; 0]);
    assert_eq!(play.session.state(), State::Buffering);
    play.mesh('m');
    assert_eq!(play.wait(), ["1m,2m"]);
    // Changed while objects are served: the old snapshot stays until all objects are sent again.
    play.mesh('n');
    assert_eq!(play.wait(), [""; 0]);
    play.say(&["2", "3"]);
    assert_eq!(play.wait(), ["2n,3n"]);
    // Rewritten without a change: nothing happens.
    play.mesh('n');
    let number = play.session.number();
    let step = play.session.object(number, "3", None);
    play.act(step);
    assert_eq!(play.wait(), ["2n"]);
    assert_eq!(
        play.states,
        [
            "starting",
            "buffering",
            "processing",
            "terminating",
            "starting",
            "buffering",
            "processing"
        ]
    );
}

#[test]
fn a_new_session_with_the_same_objects_tells_nothing_twice() {
    let mut play = Play::new();
    let step = play.session.start(play.now);
    play.act(step);
    play.mesh('m');
    play.say(&["1"]);
    assert_eq!(play.wait(), ["1m"]);
    for mesh in ['n', 'm'] {
        play.mesh(mesh);
    }
    play.say(&["1"]);
    assert_eq!(play.wait(), [""; 0]);
}
