//! Writing that never waits, into whatever the agent was given to write to.
//!
//! `O_NONBLOCK` belongs to the open file description. That of an inherited stdout or stderr is shared with the proxy, with
//! the command of `run` and with the shell, whose writes would fail where they now wait; so it is left alone, and each kind
//! has a way of its own:
//!
//! - A regular file is written to as it is: it takes what there is disk for, and a second description would have another
//!   position in it.
//! - A socket is asked for each call (`MSG_DONTWAIT`).
//! - A pipe, a terminal or another device is opened a second time, by its link in /proc, which gives the same pipe and a
//!   description of the agent's own. To look first with `poll` would not do: a terminal that has room may not have enough,
//!   and another writer may take the room of a pipe between the look and the write.
//! - Where /proc is missing, or the pipe belongs to another user: a pipe is asked for each call (`RWF_NOWAIT`, of Linux 6.4),
//!   or gets the line moved from a private pipe by `splice`, which can be told not to wait since Linux 2.6. A terminal is
//!   opened as /dev/tty, if that is the one. What is left, a terminal of another user's that is not the controlling one, is
//!   looked at with `poll` first.

use std::ffi::{CStr, c_int, c_ulong, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

/// The means by which a write does not block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// By `write`: a regular file, or a description that does not wait.
    Plain,
    Socket,
    Pipe,
    /// By `write`, after `poll` has said that there is room.
    Asked,
}

/// A descriptor to write log lines to.
#[derive(Debug)]
pub struct Outlet {
    to: To,
    way: Way,
}

#[derive(Debug)]
enum To {
    /// One of the first three descriptors.
    Given(BorrowedFd<'static>),
    Own(OwnedFd),
}

/// Flags of a separate open file description: writes do not block, and a terminal does not become the controlling one.
const OWN: c_int = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
/// Asks a terminal for its device number: `_IOR('T', 0x32, unsigned int)`, the same on x86-64 and aarch64.
const TIOCGDEV: c_ulong = 0x8004_5432;

impl Outlet {
    /// For a descriptor that others share.
    pub fn shared(fd: BorrowedFd<'static>) -> Self {
        let given = |way| Self {
            to: To::Given(fd),
            way,
        };
        let kind = kind(fd);
        match kind {
            libc::S_IFREG => return given(Way::Plain),
            libc::S_IFSOCK => return given(Way::Socket),
            _ => {}
        }
        let mut link = *b"/proc/self/fd/0\0";
        if let (Some(digit), Ok(number)) = (link.get_mut(14), u8::try_from(fd.as_raw_fd())) {
            // A single digit: the first three are meant.
            *digit = b'0' + number % 10;
        }
        let own = CStr::from_bytes_with_nul(&link)
            .ok()
            .and_then(|link| open(link, 0));
        match own.or_else(|| controlling_terminal(fd)) {
            Some(own) => Self::own(own),
            None if kind == libc::S_IFIFO => given(Way::Pipe),
            None => given(Way::Asked),
        }
    }

    /// For a descriptor that was opened without waiting.
    pub const fn own(fd: OwnedFd) -> Self {
        Self {
            to: To::Own(fd),
            way: Way::Plain,
        }
    }

    /// Writes what there is room for; at most `PIPE_BUF` bytes go into a pipe whole or not at all.
    ///
    /// # Errors
    /// `WouldBlock`, or what else the kernel says.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let fd = match &self.to {
            To::Given(fd) => *fd,
            To::Own(fd) => fd.as_fd(),
        };
        match self.way {
            Way::Plain => super::write(fd, bytes),
            Way::Socket => send(fd, bytes),
            Way::Pipe => match write_to_pipe(fd, bytes) {
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => splice(fd, bytes),
                result => result,
            },
            Way::Asked if super::is_writable(fd) => super::write(fd, bytes),
            Way::Asked => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

/// The type bits of the file's mode; 0 if it is not known.
fn kind(fd: BorrowedFd<'_>) -> libc::mode_t {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `fstat` writes to live memory of the right type.
    let _: c_int = unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) };
    // SAFETY: all-zero bytes are a valid `stat`, and the call may have filled it.
    unsafe { stat.assume_init() }.st_mode & libc::S_IFMT
}

/// Opens what exists, for writing without waiting.
pub(super) fn open(path: &CStr, flags: c_int) -> Option<OwnedFd> {
    // SAFETY: the path is a C string.
    let fd = unsafe { libc::openat(libc::AT_FDCWD, path.as_ptr(), OWN | flags) };
    if fd < 0 {
        return None;
    }
    // SAFETY: the descriptor is new and nobody else's.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The controlling terminal, if that is what `fd` is: everybody may open it.
fn controlling_terminal(fd: BorrowedFd<'_>) -> Option<OwnedFd> {
    let device = device(fd)?;
    let own = open(c"/dev/tty", 0)?;
    (self::device(own.as_fd()) == Some(device)).then_some(own)
}

/// A terminal's device number.
fn device(fd: BorrowedFd<'_>) -> Option<u32> {
    let mut device = 0_u32;
    // The C libraries differ in the type of the second argument.
    // SAFETY: this `ioctl` writes a number to a live one; what is no terminal refuses it.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), TIOCGDEV as _, &raw mut device) };
    (result == 0).then_some(device)
}

fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the pointer and the length describe `bytes`, which outlives the call.
    let sent = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// `EOPNOTSUPP`: a kernel before 6.4.
fn write_to_pipe(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: bytes.len(),
    };
    let (number, here) = (fd.as_raw_fd(), -1_isize);
    // The system call: not every C library has it. The position is in two halves, of which 64 bits need the first.
    // SAFETY: one part, which describes `bytes` and is only read; all outlive the call.
    let written = unsafe {
        libc::syscall(
            libc::SYS_pwritev2,
            number,
            &raw const part,
            1,
            here,
            0,
            libc::RWF_NOWAIT,
        )
    };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Moves `bytes` in by way of a private pipe, which is empty and so has room for them.
fn splice(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let (read, write) = io::pipe()?;
    let length = super::write(write.as_fd(), bytes)?;
    let (from, nowhere) = (read.as_raw_fd(), ptr::null_mut());
    let (to, flags) = (fd.as_raw_fd(), libc::SPLICE_F_NONBLOCK);
    // SAFETY: no offsets, as for all pipes, so these may be null.
    let moved = unsafe { libc::splice(from, nowhere, to, nowhere, length, flags) };
    usize::try_from(moved).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{PipeReader, PipeWriter, Read as _};
    use std::os::fd::IntoRawFd as _;

    /// A pipe that is full but for `room` pages, and whose own description waits.
    fn full(room: usize) -> (PipeReader, PipeWriter, BorrowedFd<'static>) {
        let (reader, writer) = io::pipe().unwrap();
        let page = [b'x'; 4096];
        let mut pages = 0;
        while super::super::is_writable(writer.as_fd()) {
            pages += super::super::write(writer.as_fd(), &page).unwrap() / page.len();
        }
        let mut reader = reader;
        for _ in 0..room.min(pages) {
            reader.read_exact(&mut [0; 4096]).unwrap();
        }
        // Leaked: descriptors of the test's process.
        let number = writer.try_clone().unwrap().into_raw_fd();
        // SAFETY: open until the test's process ends.
        (reader, writer, unsafe { BorrowedFd::borrow_raw(number) })
    }

    /// In every way that is for pipes: a pipe that is full takes nothing and holds up nobody, and one with room takes all.
    #[test]
    fn a_full_pipe_is_not_waited_for() {
        type Write = fn(BorrowedFd<'_>, &[u8]) -> io::Result<usize>;
        let own: Write = |fd, bytes| {
            let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let own = open(&std::ffi::CString::new(link).unwrap(), 0);
            Outlet::own(own.unwrap()).write(bytes)
        };
        for write in [own, write_to_pipe as Write, splice as Write] {
            let line = [b'l'; 4096];
            let (mut reader, _writer, fd) = full(0);
            match write(fd, &line) {
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => continue,
                result => assert_eq!(result.unwrap_err().kind(), io::ErrorKind::WouldBlock),
            }
            let mut pages = 0;
            reader.read_exact(&mut [0; 4096]).unwrap();
            assert_eq!(write(fd, &line).unwrap(), line.len());
            assert!(write(fd, &line).is_err());
            let mut page = [0; 4096];
            while page != line {
                reader.read_exact(&mut page).unwrap();
                pages += 1;
            }
            assert!(pages > 1, "the others' bytes are there still");
        }
    }

    #[test]
    fn the_descriptor_of_others_stays_as_it_is() {
        let (_reader, writer, fd) = full(1);
        // SAFETY: two integers.
        let flags = || unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETFL) };
        let before = flags();
        assert_eq!(before & libc::O_NONBLOCK, 0);
        let outlet = Outlet {
            to: To::Given(fd),
            way: Way::Pipe,
        };
        assert_eq!(outlet.write(b"line\n").unwrap(), 5);
        assert_eq!(flags(), before);
    }

    #[test]
    fn a_socket_that_nobody_reads_is_not_waited_for() {
        let (own, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let number = own.into_raw_fd();
        // SAFETY: open until the test's process ends.
        let outlet = Outlet::shared(unsafe { BorrowedFd::borrow_raw(number) });
        assert_eq!(outlet.way, Way::Socket);
        let error = (0..10_000).find_map(|_| outlet.write(&[b'l'; 4096]).err());
        assert_eq!(error.unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(other);
        assert!(outlet.write(b"l").is_err());
    }

    /// A second description would write over what is there.
    #[test]
    fn a_regular_file_keeps_its_position() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, b"before ").unwrap();
        let number = file.try_clone().unwrap().into_raw_fd();
        // SAFETY: open until the test's process ends.
        let outlet = Outlet::shared(unsafe { BorrowedFd::borrow_raw(number) });
        assert_eq!(outlet.write(b"after").unwrap(), 5);
        io::Seek::rewind(&mut file).unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before after");
    }
}
