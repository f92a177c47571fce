//! The objects that Envoy's hot restart keeps outside its processes, and the two repairs that it needs: the stuck flag and the
//! stand-in parent.
//!
//! All facts here were measured with Envoy 1.40.0 on x86-64, a small static configuration, by starting epochs by hand and
//! killing them at each step; what concerns aarch64 was read in Envoy's source. Flags: `children`. The order of a
//! hand-over, start-up outcomes and exit codes: `supervisor/epoch.rs`. Parents: `supervisor/parent.rs`. Admin endpoints:
//! `admin/call.rs`.
//!
//! # Objects
//!
//! - `/dev/shm/envoy_shared_memory_B`, B = base id * 10: 104 bytes on x86-64, 120 on aarch64. Words of 8 bytes: its size
//!   first, then its version (11), two mutexes, flags last; bit 0 is INITIALIZING. Epoch 0 removes it and makes it anew;
//!   nobody removes it at the end. On one of another user, which the sticky /dev/shm keeps, Envoy panics ("File exists").
//!   It can outlive a restart of the container, so the agent always begins at epoch 0.
//! - Datagram sockets with abstract names: `envoy_domain_socket_child_E`, `..._parent_E`, and `..._udp_...` of both; E = B +
//!   epoch % 3, padded with NULs to 108 bytes. So three epochs can live, and N + 3 collides with N. Abstract names are one
//!   set per network namespace: two Envoys in a pod, or on the host's network, collide with the same base id. The later
//!   one exits 1 with errno 98 before it touches the file, the first one is unharmed: looking for a free id is safe.
//!
//! # The stuck flag (envoy#33446)
//!
//! A child sets INITIALIZING when it attaches, and clears it when it is LIVE. One that dies in between leaves it set, and
//! every later child exits 1 after 0.06 s: "previous envoy process is still initializing". Clearing the last 8 bytes once
//! the dead child is reaped makes the next epoch succeed. Safe only while the parent is known LIVE and no other child
//! lives, in a file of the known size, version and owner.
//!
//! # The stand-in parent
//!
//! A child asks its parent for statistics every 5 s and waits for the answer with its main thread. A parent that has died
//! never answers: the child's admin port is silent from then on, and it aborts about 15.5 s after the parent's death. So
//! the agent binds the dead parent's name and answers: the child lives, and its own hot restart works. A message is its
//! length, 8 bytes big-endian, and a protobuf: Stats request 0a021a00, empty Stats reply 12021a00, Terminate 0a022a00. A
//! parent that hangs (silent, not dead) is killed first; one reply that nobody asked for frees the child in about 2 s.
//! The child looks at no reply's sender: where another process has taken the parent's name, such replies, now and then,
//! do as well.
//! Shown with no UDP listeners; `--no-parent-stand-in` turns it off. `tests/reload.rs` kills a draining parent.

#![forbid(unsafe_code)]

mod holder;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::{Path, PathBuf};

use crate::regular;
use crate::supervisor::Epoch;
use crate::values::BaseId;
pub(crate) use holder::Holder;

/// `auto` tries that many ids. Chosen: more than the Envoys of any network namespace.
const MAX_AUTO_TRIES: u32 = 4096;
/// The version of the shared memory that this code knows, Envoy 1.40's: `--hot-restart-version` begins with it (11.104).
const VERSION: u64 = 11;
/// Its sizes on x86-64 and aarch64.
const SIZES: [u64; 2] = [104, 120];
/// Bit 0 of the flags: a child initialises.
const INITIALIZING: u64 = 1;
/// An abstract name fills `sun_path`, but for the leading NUL.
const NAME_BYTES: usize = 107;
/// Messages are shorter than a datagram of Envoy's, 4096 bytes.
const DATAGRAM_BYTES: usize = 4096;
/// Datagrams that the stand-in takes in one turn. Chosen: a child sends one every five seconds.
const DATAGRAMS_PER_TURN: usize = 8;
/// A message: its length as 8 bytes, then a `HotRestartMessage` of protobuf.
const LENGTH_BYTES: usize = 8;
/// The kinds of sockets that an Envoy binds; one tells as well as all where another Envoy has them.
const SOCKETS: &str = "child parent udp_child udp_parent";
const CHILD: &str = "child";
const STATS_REQUEST: &[u8] = &[0x0a, 0x02, 0x1a, 0x00];
/// The length and an empty Stats reply.
const STATS_REPLY: &[u8] = &[0, 0, 0, 0, 0, 0, 0, 4, 0x12, 0x02, 0x1a, 0x00];

/// The base id, the same for all epochs.
#[derive(Debug)]
pub(crate) struct HotRestart {
    base_id: u32,
    /// Held while we live, so that no other pintle's `auto` picks the same id between two epochs.
    _lock: Option<UnixDatagram>,
    /// The file in /dev/shm that was there before epoch 0 was started last.
    before: Option<FileId>,
    /// The one that a proxy of this agent has made. Only that is ever removed or changed.
    made: Option<FileId>,
}

/// Device and inode: what a file is, whatever its name leads to by now.
type FileId = (u64, u64);

impl HotRestart {
    /// Settles the base id, for proxies that run as `owner`.
    ///
    /// # Errors
    /// `auto` found none.
    pub(crate) fn new(base_id: BaseId, owner: u32) -> io::Result<Self> {
        match base_id {
            BaseId::Fixed(base_id) => Ok(Self::with(base_id, None)),
            // 0 is left to those who do not choose.
            BaseId::Auto => (1..=MAX_AUTO_TRIES)
                .find_map(|base_id| {
                    let lock = bind(&format!("pintle_base_id_{base_id}")).ok()?;
                    let mut candidate = Self::with(base_id, Some(lock));
                    let free = candidate.taken(Epoch(0)).is_none()
                        && candidate.remove_stale(owner).is_ok();
                    free.then_some(candidate)
                })
                .ok_or_else(|| io::ErrorKind::AddrInUse.into()),
        }
    }

    const fn with(base_id: u32, lock: Option<UnixDatagram>) -> Self {
        Self {
            base_id,
            _lock: lock,
            before: None,
            made: None,
        }
    }

    #[must_use]
    pub(crate) const fn base_id(&self) -> u32 {
        self.base_id
    }

    /// The name of a socket that `epoch` could not have: another Envoy uses the id, or whoever else has taken the name.
    /// Asked while no proxy of this agent has it; for epoch 0 while none runs, so that any epoch's name tells.
    #[must_use]
    pub(crate) fn taken(&self, epoch: Epoch) -> Option<String> {
        let asks = UnixDatagram::unbound().ok()?;
        for whose in SOCKETS.split(' ') {
            let others = whose == CHILD && epoch == Epoch(0);
            for turn in 0..if others { 3 } else { 1 } {
                let name = self.name(whose, epoch.0.wrapping_add(turn));
                if is_there(&asks, &name) {
                    return Some(name);
                }
            }
        }
        None
    }

    pub(crate) fn name(&self, whose: &str, epoch: u32) -> String {
        format!(
            "envoy_domain_socket_{whose}_{}",
            self.base_id.saturating_mul(10) + epoch % 3
        )
    }

    fn shared_memory(&self) -> PathBuf {
        PathBuf::from(format!(
            "/dev/shm/envoy_shared_memory_{}",
            self.base_id.saturating_mul(10)
        ))
    }

    /// The file that has the name now.
    fn memory(&self) -> Option<FileId> {
        let metadata = fs::symlink_metadata(self.shared_memory()).ok()?;
        metadata
            .is_file()
            .then_some((metadata.dev(), metadata.ino()))
    }

    /// A proxy of this agent is LIVE: it uses the file that is there.
    pub(crate) fn proxy_is_live(&mut self) {
        self.made = self.memory();
    }

    /// Epoch 0 has ended, maybe before it was LIVE. A file that was not there before is what it has made, unless another
    /// Envoy took the id: then it was refused, and the file is the other's.
    pub(crate) fn first_epoch_ended(&mut self) {
        let unknown = self.made.is_none() || self.made == self.before;
        if unknown && self.taken(Epoch(0)).is_none() {
            self.made = self
                .memory()
                .filter(|file| Some(*file) != self.before)
                .or(self.made);
        }
    }

    /// Clears the INITIALIZING flag, if this agent's proxies have made the file, its layout is known and it is `owner`'s.
    /// Whether it was set.
    ///
    /// INVARIANT: called when the failed child has been reaped, its parent was LIVE and no other child lives.
    ///
    /// # Errors
    /// What reading and writing the file says; `InvalidData` for a file that we do not know.
    pub(crate) fn clear_initializing(&self, owner: u32) -> io::Result<bool> {
        if self.memory() != self.made {
            return Err(io::ErrorKind::InvalidData.into());
        }
        clear_flag(&self.shared_memory(), owner)
    }

    /// Whether `epoch` has attached to the memory, and Envoy's own flag says that no process of `owner`'s initialises any
    /// more. The flag alone says nothing of a child that has not come so far: it is clear while only the parent is there.
    ///
    /// Envoy binds its sockets, as a parent to come the last of them, attaches, and sets the flag, one right after the other.
    ///
    /// # Errors
    /// What reading the file says; `InvalidData` for a file that we do not know.
    pub(crate) fn has_initialised(&self, epoch: Epoch, owner: u32) -> io::Result<bool> {
        if !is_there(&UnixDatagram::unbound()?, &self.name("parent", epoch.0)) {
            return Ok(false);
        }
        let file = regular::open(&self.shared_memory())?;
        let at = flags_at(&file, owner)?;
        Ok(word(&file, at)? & INITIALIZING == 0)
    }

    /// Removes a file that another user's Envoy has left: `owner`'s would panic on it. Asked before epoch 0, when no Envoy
    /// uses the id; what `owner` itself has left, Envoy replaces.
    ///
    /// # Errors
    /// It may not be removed; with its name.
    pub(crate) fn remove_stale(&mut self, owner: u32) -> Result<(), (PathBuf, io::Error)> {
        let path = self.shared_memory();
        let removed = match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.uid() != owner => {
                fs::remove_file(&path).map_err(|error| (path, error))
            }
            Ok(_) | Err(_) => Ok(()),
        };
        self.before = self.memory();
        removed
    }

    /// Removes the file that this agent's proxies have made, on which another user's next Envoy would panic. Another
    /// Envoy's, which could never be restarted again without it, stays.
    pub(crate) fn remove_shared_memory(&self) {
        if self.made.is_some() && self.made == self.memory() && self.taken(Epoch(0)).is_none() {
            drop(fs::remove_file(self.shared_memory()));
        }
    }

    /// Answers `child` for its dead `parent`: once, and from now on if the name can be had.
    ///
    /// # Errors
    /// The name is taken, by a parent that is not as dead as it seemed or by somebody who was quicker.
    pub(crate) fn stand_in(&self, parent: Epoch, child: Epoch) -> io::Result<StandIn> {
        // The child may wait for an answer that the parent owed it when it hung or died, and for nothing else any more. To
        // one that does not it is the answer to its next question. It needs no name for that.
        let unnamed = UnixDatagram::unbound()?;
        unnamed.set_nonblocking(true)?;
        let child = address(&self.name("child", child.0))?;
        drop(unnamed.send_to_addr(STATS_REPLY, &child));
        let socket = bind(&self.name("parent", parent.0))?;
        socket.set_nonblocking(true)?;
        Ok(StandIn { socket })
    }
}

fn clear_flag(path: &Path, owner: u32) -> io::Result<bool> {
    let file = regular::open_to_change(path)?;
    let at = flags_at(&file, owner)?;
    let flags = word(&file, at)?;
    if flags & INITIALIZING == 0 {
        return Ok(false);
    }
    file.write_all_at(&(flags & !INITIALIZING).to_ne_bytes(), at)?;
    Ok(true)
}

/// Returns the position of the flags, in a file that we know and that is `owner`'s.
fn flags_at(file: &File, owner: u32) -> io::Result<u64> {
    let metadata = file.metadata()?;
    let size = metadata.len();
    let known = metadata.is_file()
        && metadata.uid() == owner
        && SIZES.contains(&size)
        && word(file, 0)? == size
        && word(file, 8)? == VERSION;
    if known {
        Ok(size.saturating_sub(8))
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

fn word(file: &File, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, at)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// An abstract name as Envoy has it: padded with NULs to the full length.
fn address(name: &str) -> io::Result<SocketAddr> {
    let mut padded = [0; NAME_BYTES];
    for (slot, byte) in padded.iter_mut().zip(name.bytes()) {
        *slot = byte;
    }
    SocketAddr::from_abstract_name(padded)
}

fn bind(name: &str) -> io::Result<UnixDatagram> {
    UnixDatagram::bind_addr(&address(name)?)
}

/// Whether a socket has that name: it can be connected to, or not by us (EPERM: it has a peer of its own). Its owner
/// hears nothing of that.
fn is_there(asks: &UnixDatagram, name: &str) -> bool {
    match address(name).and_then(|address| asks.connect_addr(&address)) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
    }
}

/// Answers a child in place of its dead parent, as long as the child lives. Ignores other senders.
#[derive(Debug)]
pub(crate) struct StandIn {
    socket: UnixDatagram,
}

impl AsRawFd for StandIn {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl StandIn {
    /// Answers some of what has arrived; the rest, if any, in the next turn.
    // Not inlined: the caller's frame must not hold its locals.
    #[inline(never)]
    pub(crate) fn serve(&self) {
        let mut datagram = [0; DATAGRAM_BYTES];
        for _ in 0..DATAGRAMS_PER_TURN {
            let Ok((length, child)) = self.socket.recv_from(&mut datagram) else {
                return;
            };
            if datagram.get(LENGTH_BYTES..length) == Some(STATS_REQUEST) {
                // A child that has gone, or that does not read, gets none.
                drop(self.socket.send_to_addr(STATS_REPLY, &child));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use sys::effective_uid;

    fn memory(size: usize, version: u64, flags: u64) -> tempfile::NamedTempFile {
        let mut bytes = vec![0_u8; size];
        bytes[..8].copy_from_slice(&(size as u64).to_ne_bytes());
        bytes[8..16].copy_from_slice(&version.to_ne_bytes());
        bytes[size - 8..].copy_from_slice(&flags.to_ne_bytes());
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        file
    }

    #[test]
    fn only_the_flag_is_cleared() {
        for size in [104, 120] {
            let file = memory(size, 11, 0b101);
            assert!(clear_flag(file.path(), effective_uid()).unwrap());
            let bytes = fs::read(file.path()).unwrap();
            assert_eq!(bytes, fs::read(memory(size, 11, 0b100).path()).unwrap());
            assert!(
                !clear_flag(file.path(), effective_uid()).unwrap(),
                "already clear"
            );
        }
    }

    #[test]
    fn memory_that_is_not_known_is_left_alone() {
        let uid = effective_uid();
        for (file, owner) in [
            (memory(104, 12, 1), uid),
            (memory(112, 11, 1), uid),
            (memory(104, 11, 1), uid + 1),
        ] {
            let before = fs::read(file.path()).unwrap();
            assert!(clear_flag(file.path(), owner).is_err());
            assert_eq!(fs::read(file.path()).unwrap(), before);
        }
    }

    /// An id of this test's own, without what a test that was killed may have left behind.
    fn own_id() -> HotRestart {
        let id = HotRestart::new(BaseId::Auto, effective_uid()).unwrap();
        drop(fs::remove_file(id.shared_memory()));
        id
    }

    #[test]
    fn memory_that_has_become_a_fifo_is_not_waited_for() {
        let own = own_id();
        let path = own.shared_memory();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let _attached = bind(&own.name("parent", 0));
        let (asked, cleared) = (
            own.has_initialised(Epoch(0), effective_uid()),
            own.clear_initializing(effective_uid()),
        );
        fs::remove_file(path).unwrap();
        assert!(asked.is_err());
        assert!(cleared.is_err());
    }

    #[test]
    fn auto_skips_ids_that_are_taken_and_names_the_holder() {
        let first = HotRestart::new(BaseId::Auto, effective_uid()).unwrap();
        let second = HotRestart::new(BaseId::Auto, effective_uid()).unwrap();
        assert_ne!(first.base_id(), second.base_id());
        let envoys = bind(&first.name("child", 1)).unwrap();
        let name = first.taken(Epoch(0)).unwrap();
        let holder = Holder::of(&name).to_string();
        assert!(
            holder.contains(&format!("process {} ", std::process::id())),
            "{holder}"
        );
        drop(envoys);
        assert_eq!(first.taken(Epoch(0)), None);
    }

    #[test]
    fn auto_skips_ids_whose_memory_is_another_users_and_cannot_be_removed() {
        let somebody = effective_uid() + 1;
        let id = HotRestart::new(BaseId::Auto, somebody).unwrap();
        // What is no file cannot be removed by root either.
        fs::create_dir(id.shared_memory()).unwrap();
        let (file, base_id) = (id.shared_memory(), id.base_id());
        drop(id);
        let next = HotRestart::new(BaseId::Auto, somebody);
        fs::remove_dir(file).unwrap();
        assert_ne!(next.unwrap().base_id(), base_id);
    }

    const TERMINATE_REQUEST: &[u8] = &[0x0a, 0x02, 0x2a, 0x00];

    #[test]
    fn the_stand_in_answers_stats_and_nobody_dismisses_it() {
        let own = own_id();
        let child = bind(&own.name("child", 5)).unwrap();
        child.set_nonblocking(true).unwrap();
        let stand_in = own.stand_in(Epoch(4), Epoch(5)).unwrap();
        assert!(
            own.stand_in(Epoch(1), Epoch(2)).is_err(),
            "epochs 1 and 4 share a name"
        );
        let mut reply = [0; 64];
        let mut replied = || {
            let length = child.recv(&mut reply).ok()?;
            assert_eq!(&reply[..length], STATS_REPLY);
            Some(())
        };
        // What the parent owed; and what the second one has sent without a name.
        replied().unwrap();
        replied().unwrap();
        assert_eq!(replied(), None);
        let parent = stand_in.socket.local_addr().unwrap();
        let send = |message: &[u8]| {
            let mut datagram = 4_u64.to_be_bytes().to_vec();
            datagram.extend_from_slice(message);
            child.send_to_addr(&datagram, &parent).unwrap();
        };
        for message in [TERMINATE_REQUEST, b"else", STATS_REQUEST] {
            send(message);
        }
        stand_in.serve();
        replied().unwrap();
        assert_eq!(replied(), None);
        send(STATS_REQUEST);
        stand_in.serve();
        replied().unwrap();
    }

    /// Only the file of this agent's proxies is removed and changed: not that of another Envoy which came before, came later,
    /// or lives.
    #[test]
    fn only_memory_that_own_proxies_have_made_is_removed_and_changed() {
        let owner = effective_uid();
        let mut own = HotRestart::new(BaseId::Auto, owner).unwrap();
        let path = own.shared_memory();
        let make = || {
            drop(fs::remove_file(&path));
            fs::copy(memory(104, 11, 1).path(), &path).unwrap();
        };
        let clears_and_removes = |own: &HotRestart| {
            let cleared = own.clear_initializing(owner).is_ok();
            own.remove_shared_memory();
            let removed = !path.exists();
            (cleared, removed)
        };
        make();
        assert_eq!(
            clears_and_removes(&own),
            (false, false),
            "nothing was started"
        );
        own.remove_stale(owner).unwrap();
        own.first_epoch_ended();
        assert_eq!(clears_and_removes(&own), (false, false), "it made nothing");
        // Held, so that the next file cannot be the same one.
        let _before = File::open(&path).unwrap();
        make();
        let envoy = bind(&own.name("child", 0)).unwrap();
        own.first_epoch_ended();
        assert_eq!(
            clears_and_removes(&own),
            (false, false),
            "another's, which lives"
        );
        drop(envoy);
        own.first_epoch_ended();
        assert_eq!(clears_and_removes(&own), (true, true));
        make();
        own.proxy_is_live();
        let _held = File::open(&path).unwrap();
        make();
        assert_eq!(
            clears_and_removes(&own),
            (false, false),
            "another's, which came later"
        );
        own.proxy_is_live();
        assert_eq!(clears_and_removes(&own), (true, true));
    }

    #[test]
    fn a_flag_that_is_clear_says_nothing_of_a_child_that_has_not_attached() {
        let owner = effective_uid();
        let own = own_id();
        let path = own.shared_memory();
        fs::copy(memory(104, 11, 0).path(), &path).unwrap();
        let parent = bind(&own.name("parent", 0));
        assert!(!own.has_initialised(Epoch(1), owner).unwrap());
        let child = bind(&own.name("parent", 1));
        assert!(own.has_initialised(Epoch(1), owner).unwrap());
        fs::copy(memory(104, 11, 1).path(), &path).unwrap();
        assert!(!own.has_initialised(Epoch(1), owner).unwrap());
        fs::remove_file(&path).unwrap();
        drop((parent, child));
    }
}
