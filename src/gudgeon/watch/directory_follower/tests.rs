//! A real directory with real inotify, below a reader that does as a script says. Time is tokio's, which passes as soon as
//! everybody waits for it.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber, span};

use super::super::DEBOUNCE;
use super::*;

/// A step of the script: the result of one scan.
enum Step {
    Finds(Vec<PathBuf>),
    Hangs,
    Fails(&'static str),
    Panics,
}

/// The number of the reader, and whether the scan was its first.
type Found = (usize, bool);

struct ScriptedReader {
    number: usize,
    steps: Arc<Mutex<VecDeque<Step>>>,
    has_forgotten: bool,
}

impl DirectoryReader for ScriptedReader {
    type Found = Found;

    fn scan(&mut self, is_first: bool) -> io::Result<Scan<Found>> {
        let step = self.steps.lock().unwrap().pop_front();
        let (folders, hangs) = match step.unwrap_or(Step::Finds(Vec::new())) {
            Step::Finds(folders) => (folders, false),
            Step::Hangs => (Vec::new(), true),
            Step::Fails(cause) => return Err(io::Error::other(cause)),
            Step::Panics => panic!("as the script says"),
        };
        Ok(Scan {
            found: (self.number, is_first),
            folders,
            hangs,
        })
    }

    fn forget_stamps(&mut self) {
        self.has_forgotten = true;
    }
}

/// A follower of a directory whose scans do these steps, and then find nothing.
async fn follower(path: &Path, steps: Vec<Step>) -> DirectoryFollower<ScriptedReader> {
    let steps = Arc::new(Mutex::new(VecDeque::from(steps)));
    let opened = Mutex::new(0);
    DirectoryFollower::new(path, Some(DEBOUNCE), move || {
        let mut opened = opened.lock().unwrap();
        *opened += 1;
        ScriptedReader {
            number: *opened,
            steps: Arc::clone(&steps),
            has_forgotten: false,
        }
    })
    .await
}

/// The seconds until the follower is due.
async fn due(follower: &mut DirectoryFollower<ScriptedReader>) -> u64 {
    let begun = Instant::now();
    follower.due().await;
    begun.elapsed().as_secs()
}

/// Lines of the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn capture() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let guard = tracing::subscriber::set_default(lines.clone());
        (lines, guard)
    }

    /// The lines since the last call.
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("gudgeon")
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_scan_that_panics_is_made_anew_by_a_fresh_reader() {
    let root = tempfile::tempdir().unwrap();
    let (lines, _guard) = Lines::capture();
    let steps = vec![
        Step::Finds(Vec::new()),
        Step::Panics,
        Step::Panics,
        Step::Fails("gone"),
    ];
    let mut follower = follower(root.path(), steps).await;
    assert_eq!(follower.scan().await.unwrap(), (1, true));
    // Without the panic's message, which may contain a secret.
    let panicked = "internal error, see the panic in the log";
    for cause in [panicked, panicked, "gone"] {
        let error = follower.scan().await.unwrap_err().to_string();
        assert_eq!(error, cause);
        assert_eq!(due(&mut follower).await, 1);
    }
    assert_eq!(follower.scan().await.unwrap(), (4, true));
    assert_eq!(follower.scan().await.unwrap(), (4, false));
    assert_eq!(due(&mut follower).await, 60);
    let path = root.path().display();
    let [unreadable, again] = &lines.take()[..] else {
        panic!("two lines are told");
    };
    assert_eq!(
        *unreadable,
        format!("cannot read {path}: {panicked}; serving the last good content")
    );
    assert_eq!(*again, format!("{path} can be read again"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_the_kernel_refuses_is_logged_once_and_polled_for() {
    let root = tempfile::tempdir().unwrap();
    let (lines, _guard) = Lines::capture();
    let file = root.path().join("a.yaml");
    std::fs::write(&file, "").unwrap();
    // Only a directory can be watched.
    let refused = || Step::Finds(vec![file.clone()]);
    let mut follower = follower(root.path(), vec![refused(), refused()]).await;
    for seconds in [1, 1, 60] {
        follower.scan().await.unwrap();
        assert_eq!(due(&mut follower).await, seconds);
    }
    let (path, file) = (root.path().display(), file.display());
    let logged = lines.take();
    assert_eq!(logged.len(), 1, "{logged:?}");
    let message = format!("polling {path} every second: cannot watch {file}: ");
    assert!(logged[0].starts_with(&message), "{logged:?}");
}

#[tokio::test(start_paused = true)]
async fn a_directory_is_scanned_again_once_it_is_watched_and_soon_where_a_path_hangs() {
    let root = tempfile::tempdir().unwrap();
    let (lines, _guard) = Lines::capture();
    let below = root.path().join("below");
    std::fs::create_dir(&below).unwrap();
    let watched = || Step::Finds(vec![below.clone()]);
    let mut follower = follower(root.path(), vec![watched(), watched(), Step::Hangs]).await;
    for seconds in [0, 60, 1] {
        follower.scan().await.unwrap();
        assert_eq!(due(&mut follower).await, seconds);
    }
    assert_eq!(lines.take(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_request_to_read_all_files_again_makes_the_reader_forget_their_stamps() {
    let root = tempfile::tempdir().unwrap();
    let mut follower = follower(root.path(), Vec::new()).await;
    let (requests, again) = watch::channel(0);
    follower.again = again;
    for is_watched in [true, false] {
        follower.scan().await.unwrap();
        if !is_watched {
            follower.watcher = None;
        }
        follower.reader().unwrap().has_forgotten = false;
        requests.send_replace(1);
        assert_eq!(due(&mut follower).await, 0);
        assert!(follower.reader().unwrap().has_forgotten);
    }
    // Whoever does not wait for changes scans for nothing else.
    let waits = tokio::time::timeout(Duration::from_secs(1000), follower.due());
    assert!(waits.await.is_err());
}
