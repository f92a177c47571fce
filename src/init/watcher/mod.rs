//! Notices that something on the watched paths may have changed, by inotify. It knows no policy and hashes nothing.
//!
//! Every directory along the symlink chain of each path is watched for the names that matter in it, and the file at the
//! end for its bytes. After each relevant event the chains are walked again, so no rotation leaves a watch on something
//! that nobody uses any more. The kernel can refuse: then `degraded` says why, and the caller has to look by itself.
//!
//! A folder may be busy, with a log for example: an event that changes nothing more wakes nobody. What was noticed is
//! followed by a pause, during which the kernel keeps the events: until the files are hashed, if it mattered.
//!
//! Not seen: a file system mounted over a watched directory, and writes from another machine on a network file system.
//! A slow re-hash with `refresh` is for those.

#![forbid(unsafe_code)]

mod chain;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use inotify::{EventMask, Inotify};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use chain::{Chain, InotifyWatch};

/// Walks per `drain`. Chosen: a tree that changes as fast as it is walked must not hold up the loop.
const MAX_WALKS: usize = 8;
/// From so many watches on a walk takes milliseconds, and a `drain` makes only one. Chosen.
const MANY_WATCHES: usize = 512;
/// Reads per walk, for the same reason.
const MAX_READS: usize = 256;
/// Room for 15 events with the longest names; the kernel never splits one.
const BUFFER_BYTES: usize = 4096;

/// Watches the directories along the chains of some paths.
#[derive(Debug)]
pub struct Watcher {
    paths: Vec<PathBuf>,
    /// `None`: the kernel gave none; `degraded` says why.
    inotify: Option<Inotify>,
    /// Sorted by id.
    watches: Vec<InotifyWatch>,
    degraded: Option<String>,
    /// Kept because an instance that is had later must be registered then.
    registration: Option<(Registry, Token)>,
    /// The loop is not woken until `resume`.
    paused: bool,
}

/// The content of the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noticed {
    /// Something on a watched path may have changed.
    pub changed: bool,
    /// The kernel lost events; `changed` as well.
    pub overflowed: bool,
}

impl Watcher {
    /// Watches `paths` from now on; look at them after this, not before, and no change is missed.
    #[must_use]
    pub fn new(paths: Vec<PathBuf>) -> Self {
        let mut this = Self::not_yet(paths);
        this.refresh();
        this
    }

    /// Will watch `paths` from the first `refresh` on.
    #[must_use]
    pub const fn not_yet(paths: Vec<PathBuf>) -> Self {
        Self {
            paths,
            inotify: None,
            watches: Vec::new(),
            degraded: None,
            registration: None,
            paused: false,
        }
    }

    /// Has the loop woken by `token` when there is something to drain, now or once inotify is to be had.
    ///
    /// # Errors
    /// What epoll says.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        self.registration = Some((registry.try_clone()?, token));
        self.inotify
            .as_ref()
            .map_or(Ok(()), |inotify| self.wake_by(inotify))
    }

    /// Why the watch has holes, so that looking regularly is the only way; `None`: it has none.
    #[must_use]
    pub fn degraded(&self) -> Option<&str> {
        self.degraded.as_deref()
    }

    /// Takes all events there are and follows the chains anew where they changed. Nothing wakes the loop any more until
    /// `resume` or `catch_up`.
    // Not inlined: the caller's frame must not hold its locals.
    #[inline(never)]
    pub fn drain(&mut self) -> Noticed {
        let mut noticed = Noticed::default();
        for _ in 0..MAX_WALKS {
            let (seen, emptied) = self.read();
            noticed.overflowed |= seen.overflowed;
            if seen.changed {
                noticed.changed = true;
                self.follow();
                if self.watches.len() > MANY_WATCHES {
                    break;
                }
            } else if emptied {
                break;
            }
        }
        if let (Some(inotify), Some((registry, _))) = (&self.inotify, &self.registration) {
            let fd = inotify.as_raw_fd();
            self.paused |= registry.deregister(&mut SourceFd(&fd)).is_ok();
        }
        noticed
    }

    /// Has the loop woken again, by what is in the queue as well.
    pub fn resume(&mut self) {
        if std::mem::take(&mut self.paused)
            && let Some(inotify) = &self.inotify
            && let Err(error) = self.wake_by(inotify)
        {
            self.give_up(&error);
        }
    }

    /// After a pause, forgets what has happened in it and follows all chains anew; look at the paths after this.
    pub fn catch_up(&mut self) {
        if self.paused {
            let _: (Noticed, bool) = self.read();
            self.follow();
            self.resume();
        }
    }

    /// Follows all chains anew, with a new inotify instance if there is none; look at the paths after this.
    pub fn refresh(&mut self) {
        if self.inotify.is_none() {
            match self.open() {
                Ok(inotify) => self.inotify = Some(inotify),
                Err(error) => {
                    self.degraded = Some(format!("cannot start inotify: {error}"));
                }
            }
        }
        self.follow();
    }

    fn open(&self) -> io::Result<Inotify> {
        let inotify = Inotify::init()?;
        if !self.paused {
            self.wake_by(&inotify)?;
        }
        Ok(inotify)
    }

    fn wake_by(&self, inotify: &Inotify) -> io::Result<()> {
        if let Some((registry, token)) = &self.registration {
            let fd = inotify.as_raw_fd();
            registry.register(&mut SourceFd(&fd), *token, Interest::READABLE)?;
        }
        Ok(())
    }

    /// Reads until the queue is empty (then true) or the turn's share is used up.
    fn read(&mut self) -> (Noticed, bool) {
        let mut noticed = Noticed::default();
        let mut buffer = [0; BUFFER_BYTES];
        for _ in 0..MAX_READS {
            let Some(inotify) = &self.inotify else {
                return (noticed, true);
            };
            match sys::read(inotify.as_fd(), &mut buffer) {
                Ok(read) => {
                    let mut bytes = buffer.get(..read).unwrap_or_default();
                    while let Some(event) = take_event(&mut bytes) {
                        noticed.overflowed |= event.mask & EventMask::Q_OVERFLOW.bits() != 0;
                        noticed.changed |= noticed.overflowed || is_relevant(&self.watches, &event);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (noticed, true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.give_up(&error);
                    noticed.changed = true;
                }
            }
        }
        (noticed, false)
    }

    /// The instance is of no use any more; `refresh` makes another.
    fn give_up(&mut self, error: &io::Error) {
        self.inotify = None;
        self.watches.clear();
        self.degraded = Some(format!("cannot read inotify events: {error}"));
    }

    /// Makes the watches those that the chains need now.
    fn follow(&mut self) {
        let Some(inotify) = &self.inotify else { return };
        let mut kernel = inotify.watches();
        let mut chain = Chain::new(&mut kernel);
        for path in &self.paths {
            chain.follow(path);
        }
        let (wanted, failure) = chain.finish();
        for old in std::mem::replace(&mut self.watches, wanted) {
            if find(&self.watches, old.id()).is_none() {
                sys::remove_watch(inotify.as_fd(), old.id());
            }
        }
        self.degraded = failure;
    }
}

/// An event of a watch, as the kernel writes it.
struct InotifyEvent<'a> {
    id: i32,
    mask: u32,
    /// Empty: of what is watched itself.
    name: &'a [u8],
}

/// The next event, as inotify(7) lays it out: the watch, the mask, a cookie and the length of the name, then the name with NULs
/// behind it. Read by hand because the crate's errors are texts, which take 4 kB (`sys::error`).
fn take_event<'a>(bytes: &mut &'a [u8]) -> Option<InotifyEvent<'a>> {
    let (id, rest) = bytes.split_first_chunk()?;
    let (mask, rest) = rest.split_first_chunk()?;
    let (_cookie, rest) = rest.split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
    let (name, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    Some(InotifyEvent {
        id: i32::from_ne_bytes(*id),
        mask: u32::from_ne_bytes(*mask),
        name: name.split(|byte| *byte == 0).next().unwrap_or_default(),
    })
}

/// Whether an event is about a name that matters, or about a watched directory or file itself.
fn is_relevant(watches: &[InotifyWatch], event: &InotifyEvent<'_>) -> bool {
    // Of a watch that we removed, events may still be in the queue.
    let watch = find(watches, event.id);
    watch.is_some_and(|watch| event.name.is_empty() || watch.matters(OsStr::from_bytes(event.name)))
}

fn find(watches: &[InotifyWatch], id: i32) -> Option<&InotifyWatch> {
    let at = watches.binary_search_by_key(&id, InotifyWatch::id).ok()?;
    watches.get(at)
}
