//! Signals as events: what the agent acts upon by signal-hook's handlers, which write to a socket pair; all others by a
//! descriptor of the kernel's that reads the blocked ones.
//!
//! Not all by handlers: each one costs signal-hook a copy of its table, and sixty of them cost half a start and 60 kB.
//! Not all by the descriptor: a handler ends what a blocking call waits for, and works before the loop does.
//!
//! Order: the pair is emptied first, then the flags are read; the reverse would lose a signal that comes in between.
//! Equal signals that come together are one, as in the kernel.

#![forbid(unsafe_code)]

use std::io;
use std::iter;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use mio::net::UnixStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::sys;
use crate::sys::signal;

/// Neither here nor there: KILL and STOP cannot be caught; ILL, BUS, FPE and SEGV come from a fault and are
/// `sys::report_faults`'.
const NOT_CAUGHT: [i32; 6] = [4, 7, 8, 9, 11, 19];

/// What the agent acts upon; and TRAP, which must not be blocked since it is a fault on some processors. signal-hook
/// calls the handler for faults first.
const AT_ONCE: [i32; 7] = [
    signal::SIGTERM,
    signal::SIGINT,
    signal::SIGQUIT,
    signal::SIGHUP,
    signal::SIGUSR1,
    signal::SIGCHLD,
    signal::SIGTRAP,
];

/// Every signal that can be caught, as a readable source.
#[derive(Debug)]
pub(crate) struct Signals {
    caught: SignalDelivery<UnixStream, SignalOnly>,
    /// Those that nobody handles.
    blocked: OwnedFd,
}

impl Signals {
    /// From here on no signal ends or stops this process by accident.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub(crate) fn install() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let caught = SignalDelivery::with_pipe(read, write, SignalOnly, AT_ONCE)?;
        // 32 to 34 among them, for which the C library allows no handler.
        let others = AT_ONCE
            .iter()
            .chain(&NOT_CAUGHT)
            .fold(u64::MAX, |set, number| set & !(1 << (number - 1)));
        let blocked = sys::signal_descriptor(others)?;
        Ok(Self { caught, blocked })
    }

    /// # Errors
    /// What epoll says.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.caught.get_read_mut(), token, Interest::READABLE)?;
        let number = self.blocked.as_raw_fd();
        let mut blocked = SourceFd(&number);
        registry.register(&mut blocked, token, Interest::READABLE)
    }

    /// The signals that came since the last call: first those that were handled, each once, in the order of their
    /// numbers.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = i32> {
        let blocked = &self.blocked;
        let read = move || sys::read_signal(blocked.as_fd());
        self.caught.pending().chain(iter::from_fn(read))
    }
}
