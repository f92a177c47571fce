//! The states from the first event of a source to its transforms. The result of a transform depends on the mesh
//! configuration: objects are buffered until it is there, and when it changes all of them are transformed again. The
//! published snapshots stay meanwhile.
//!
//! Each event carries the number of its session; events of an earlier session are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Before the first session, and between two.
    Inactive,
    /// Sources connect.
    Starting,
    /// All sources are read; the mesh configuration or a full list is missing.
    Buffering,
    /// Transforms run.
    Processing,
    /// Transforms end.
    Terminating,
}

impl State {
    pub const ALL: [Self; 5] = [
        Self::Inactive,
        Self::Starting,
        Self::Buffering,
        Self::Processing,
        Self::Terminating,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Starting => "starting",
            Self::Buffering => "buffering",
            Self::Processing => "processing",
            Self::Terminating => "terminating",
        }
    }
}

/// The cause of the last transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Start,
    /// All sources are connected.
    Connected,
    /// The mesh configuration and all full lists have arrived.
    Complete,
    MeshConfig,
    /// The transforms have ended.
    Ended,
    Shutdown,
}

impl fmt::Display for Reason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Start => "start",
            Self::Connected => "sources are connected",
            Self::Complete => "mesh configuration and a full list of every source are there",
            Self::MeshConfig => "the mesh configuration changed",
            Self::Ended => "transforms have ended",
            Self::Shutdown => "shutdown",
        })
    }
}

/// The caller's next step.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<K, V, M> {
    Nothing,
    /// Every source sends all its objects to this session.
    Replay(u64),
    /// Transforms begin anew, with this configuration and these objects.
    Begin(M, Vec<(K, V)>),
    /// An object has changed, or is gone.
    Apply(K, Option<V>),
    /// Transforms end; then [`Session::ended`] is called.
    End,
}

/// The session of all sources: objects `V` by name `K`, and the mesh configuration `M`.
#[derive(Debug)]
pub struct Session<K, V, M> {
    state: State,
    number: u64,
    since: Duration,
    reason: Reason,
    sources: BTreeSet<Box<str>>,
    connected: BTreeSet<Box<str>>,
    complete: BTreeSet<Box<str>>,
    mesh: Option<M>,
    /// The newest of each name only.
    buffered: BTreeMap<K, V>,
    /// No new session follows.
    shutdown: bool,
}

impl<K: Ord, V, M: Clone + PartialEq> Session<K, V, M> {
    /// Creates a session of sources with these names.
    pub fn new<'a>(sources: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            state: State::Inactive,
            number: 0,
            since: Duration::ZERO,
            reason: Reason::Start,
            sources: sources.into_iter().map(Box::from).collect(),
            connected: BTreeSet::new(),
            complete: BTreeSet::new(),
            mesh: None,
            buffered: BTreeMap::new(),
            shutdown: false,
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the number of the current or last session; the first is 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn since(&self) -> Duration {
        self.since
    }

    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the number of buffered objects.
    pub fn buffered(&self) -> usize {
        self.buffered.len()
    }

    /// The sources whose first full list is missing.
    pub fn missing(&self) -> impl Iterator<Item = &str> {
        self.sources.difference(&self.complete).map(|name| &**name)
    }

    fn go(&mut self, now: Duration, state: State, reason: Reason) {
        self.state = state;
        self.since = now;
        self.reason = reason;
    }

    /// The first session begins.
    pub fn start(&mut self, now: Duration) -> Step<K, V, M> {
        if self.state != State::Inactive || self.shutdown {
            return Step::Nothing;
        }
        self.begin(now, Reason::Start)
    }

    fn begin(&mut self, now: Duration, reason: Reason) -> Step<K, V, M> {
        self.number = self.number.saturating_add(1);
        // The mesh configuration stays: a new session begins because of a newer one.
        self.connected.clear();
        self.complete.clear();
        self.buffered.clear();
        self.go(now, State::Starting, reason);
        Step::Replay(self.number)
    }

    /// Returns true if the event belongs to the current session.
    fn is_current(&self, number: u64) -> bool {
        number == self.number
            && matches!(
                self.state,
                State::Starting | State::Buffering | State::Processing
            )
    }

    /// A source reads.
    pub fn connected(&mut self, now: Duration, number: u64, source: &str) -> Step<K, V, M> {
        if self.is_current(number) && self.sources.contains(source) {
            self.connected.insert(source.into());
        }
        self.proceed(now)
    }

    /// Marks a source's full list as received.
    pub fn complete(&mut self, now: Duration, number: u64, source: &str) -> Step<K, V, M> {
        if self.is_current(number) && self.sources.contains(source) {
            // A full list shows that its source reads, even if that was not told.
            self.connected.insert(source.into());
            self.complete.insert(source.into());
        }
        self.proceed(now)
    }

    /// Sets an object or, with `None`, deletes it.
    pub fn object(&mut self, number: u64, name: K, object: Option<V>) -> Step<K, V, M> {
        if !self.is_current(number) {
            return Step::Nothing;
        }
        if self.state == State::Processing {
            // Transforms keep their own objects; the next session replays all.
            return Step::Apply(name, object);
        }
        match object {
            Some(object) => self.buffered.insert(name, object),
            None => self.buffered.remove(&name),
        };
        Step::Nothing
    }

    /// The mesh configuration was read, for the first time or again.
    pub fn mesh(&mut self, now: Duration, mesh: M) -> Step<K, V, M> {
        if self.mesh.as_ref() == Some(&mesh) {
            return Step::Nothing;
        }
        self.mesh = Some(mesh);
        if self.state == State::Processing {
            // All results depend on the configuration, so none of the transforms can go on.
            self.go(now, State::Terminating, Reason::MeshConfig);
            return Step::End;
        }
        // Buffered objects were not transformed yet, so they are as good for this configuration.
        self.proceed(now)
    }

    /// Ends the present session, and starts no new one.
    pub fn shutdown(&mut self, now: Duration) -> Step<K, V, M> {
        self.shutdown = true;
        match self.state {
            State::Processing => {
                self.go(now, State::Terminating, Reason::Shutdown);
                Step::End
            }
            State::Starting | State::Buffering => {
                // No transform runs, so there is no end to wait for.
                self.buffered.clear();
                self.go(now, State::Inactive, Reason::Shutdown);
                Step::Nothing
            }
            State::Inactive | State::Terminating => Step::Nothing,
        }
    }

    /// The transforms have ended.
    pub fn ended(&mut self, now: Duration) -> Step<K, V, M> {
        if self.state != State::Terminating {
            return Step::Nothing;
        }
        if self.shutdown {
            self.go(now, State::Inactive, Reason::Shutdown);
            return Step::Nothing;
        }
        self.go(now, State::Inactive, Reason::Ended);
        self.begin(now, Reason::MeshConfig)
    }

    fn proceed(&mut self, now: Duration) -> Step<K, V, M> {
        if self.state == State::Starting && self.connected == self.sources {
            self.go(now, State::Buffering, Reason::Connected);
        }
        if self.state != State::Buffering || self.complete != self.sources {
            return Step::Nothing;
        }
        let Some(mesh) = self.mesh.clone() else {
            return Step::Nothing;
        };
        self.go(now, State::Processing, Reason::Complete);
        Step::Begin(
            mesh,
            std::mem::take(&mut self.buffered).into_iter().collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Play = Session<&'static str, u8, char>;

    const NOW: Duration = Duration::from_secs(1);

    fn started() -> Play {
        let mut play = Session::new(["files", "crds"]);
        assert_eq!(play.state(), State::Inactive);
        assert_eq!(play.start(NOW), Step::Replay(1));
        play
    }

    #[test]
    fn objects_are_kept_until_all_is_there() {
        let mut play = started();
        assert_eq!(play.object(1, "a", Some(1)), Step::Nothing);
        assert_eq!(play.connected(NOW, 1, "files"), Step::Nothing);
        assert_eq!(play.state(), State::Starting);
        play.connected(NOW, 1, "crds");
        assert_eq!(
            (play.state(), play.reason()),
            (State::Buffering, Reason::Connected)
        );
        play.object(1, "b", Some(1));
        play.object(1, "a", Some(2));
        play.object(1, "c", Some(1));
        play.object(1, "c", None);
        // The newest of each name only.
        assert_eq!(play.buffered(), 2);
        play.complete(NOW, 1, "files");
        assert_eq!(play.mesh(NOW, 'm'), Step::Nothing);
        assert_eq!(play.missing().collect::<Vec<_>>(), ["crds"]);
        let begin = Step::Begin('m', vec![("a", 2), ("b", 1)]);
        assert_eq!(play.complete(NOW, 1, "crds"), begin);
        assert_eq!(
            (play.state(), play.reason()),
            (State::Processing, Reason::Complete)
        );
        assert_eq!((play.number(), play.since(), play.buffered()), (1, NOW, 0));
        assert_eq!(play.object(1, "a", None), Step::Apply("a", None));
        // A later relist causes no step.
        assert_eq!(play.complete(NOW, 1, "crds"), Step::Nothing);
    }

    #[test]
    fn the_mesh_configuration_may_come_last_and_change_before() {
        let mut play = started();
        play.mesh(NOW, 'm');
        play.mesh(NOW, 'n');
        play.complete(NOW, 1, "files");
        assert_eq!(play.complete(NOW, 1, "crds"), Step::Begin('n', vec![]));
        let mut play = started();
        play.complete(NOW, 1, "files");
        play.complete(NOW, 1, "crds");
        assert_eq!(play.state(), State::Buffering);
        assert_eq!(play.mesh(NOW, 'm'), Step::Begin('m', vec![]));
    }

    #[test]
    fn a_changed_mesh_configuration_is_a_new_session() {
        let mut play = started();
        play.mesh(NOW, 'm');
        play.complete(NOW, 1, "files");
        play.complete(NOW, 1, "crds");
        assert_eq!(play.mesh(NOW, 'm'), Step::Nothing);
        let later = NOW * 2;
        assert_eq!(play.mesh(later, 'n'), Step::End);
        assert_eq!((play.state(), play.since()), (State::Terminating, later));
        // Too late, and again too early.
        assert_eq!(play.object(1, "a", Some(1)), Step::Nothing);
        assert_eq!(play.mesh(later, 'o'), Step::Nothing);
        assert_eq!(play.ended(later), Step::Replay(2));
        assert_eq!(
            (play.state(), play.reason()),
            (State::Starting, Reason::MeshConfig)
        );
        for source in ["files", "crds"] {
            assert_eq!(play.complete(later, 1, source), Step::Nothing);
        }
        assert_eq!(play.object(1, "a", Some(1)), Step::Nothing);
        play.object(2, "b", Some(1));
        play.complete(later, 2, "files");
        assert_eq!(play.complete(later, 2, "unknown"), Step::Nothing);
        assert_eq!(
            play.complete(later, 2, "crds"),
            Step::Begin('o', vec![("b", 1)])
        );
        assert_eq!(play.ended(later), Step::Nothing);
    }

    #[test]
    fn after_the_shutdown_there_is_no_session() {
        let mut play = started();
        play.object(1, "a", Some(1));
        assert_eq!(play.shutdown(NOW), Step::Nothing);
        assert_eq!((play.state(), play.buffered()), (State::Inactive, 0));
        assert_eq!(play.start(NOW), Step::Nothing);
        let mut play = started();
        play.mesh(NOW, 'm');
        play.complete(NOW, 1, "files");
        play.complete(NOW, 1, "crds");
        assert_eq!(play.shutdown(NOW), Step::End);
        assert_eq!(play.ended(NOW), Step::Nothing);
        assert_eq!(
            (play.state(), play.reason()),
            (State::Inactive, Reason::Shutdown)
        );
    }

    proptest! {
        /// Transforms begin and end in turn, and get exactly the objects that the sources have sent to their session.
        #[test]
        fn transforms_know_what_was_said(script in prop::collection::vec((0..7_u8, 0..3_usize, 0..3_u8), 0..80)) {
            const NAMES: [&str; 3] = ["a", "b", "c"];
            let mut play: Play = Session::new(["files", "crds"]);
            play.start(NOW);
            // The sources' objects now, those sent to this session, and those that the transforms know while they run.
            let mut reported: BTreeMap<&str, u8> = BTreeMap::new();
            let mut known: Option<BTreeMap<&str, u8>> = None;
            let mut mesh = None;
            for (kind, at, value) in script {
                let number = play.number();
                let step = match kind {
                    0 | 1 if play.is_current(number) => {
                        let object = (kind == 0).then_some(value);
                        match object {
                            Some(object) => reported.insert(NAMES[at], object),
                            None => reported.remove(NAMES[at]),
                        };
                        play.object(number, NAMES[at], object)
                    }
                    2 => play.complete(NOW, number, "files"),
                    3 => play.complete(NOW, number, "crds"),
                    4 => {
                        mesh = Some(char::from(b'm' + value));
                        play.mesh(NOW, char::from(b'm' + value))
                    }
                    5 => play.ended(NOW),
                    // To an earlier session.
                    _ => play.object(number.wrapping_sub(1), NAMES[at], Some(9)),
                };
                match step {
                    Step::Nothing => {}
                    Step::Replay(number) => {
                        prop_assert_eq!(number, play.number());
                        prop_assert!(known.is_none());
                        reported.clear();
                    }
                    Step::Begin(with, objects) => {
                        prop_assert_eq!(Some(with), mesh);
                        prop_assert!(known.replace(objects.into_iter().collect()).is_none());
                    }
                    Step::Apply(name, object) => {
                        let known = known.as_mut().unwrap();
                        match object {
                            Some(object) => known.insert(name, object),
                            None => known.remove(name),
                        };
                    }
                    Step::End => prop_assert!(known.take().is_some()),
                }
                prop_assert_eq!(known.is_some(), play.state() == State::Processing);
                if let Some(known) = &known {
                    prop_assert_eq!(known, &reported);
                }
            }
        }
    }
}
