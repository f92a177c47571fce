//! Signals as events: by a descriptor of the kernel's that reads what is blocked, but for the end of a child, which comes
//! by signal-hook's handler and its socket pair, and for those that a fault raises, too, which come by the same pair when
//! somebody has sent them.
//!
//! Not all by handlers: a signal that a proxy waits for would pass through a handler, a socket and two calls to read it,
//! and arrive after twice the time that tini takes; and each handler costs signal-hook a copy of its table at the start.
//! Not the end of a child by the descriptor: a thousand ends are one byte in the pair.
//!
//! Order: the pair is emptied first, then the flags are read; the reverse would lose a signal that comes in between.
//! Equal signals that come together are one, as in the kernel.

#![forbid(unsafe_code)]

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use mio::net::UnixStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use sys::{Inherited, signal};

/// KILL and STOP cannot be caught.
const NOT_CAUGHT: [i32; 2] = [9, 19];

/// ILL, TRAP, BUS, FPE and SEGV are `sys::report_faults`': blocked, a fault would end the process without a word.
const FAULTS: [i32; 5] = [4, 5, 7, 8, 11];

/// Bytes of the pair that are read at once. Chosen: there is one for each signal, and few come in one turn.
const HANDLED_BYTES: usize = 256;

/// Every signal that can be caught: held back at first (`hold`), then a readable source.
#[derive(Debug, Default)]
pub(crate) struct Signals(Option<Caught>);

#[derive(Debug)]
struct Caught {
    /// The handlers write to the other end.
    handled: UnixStream,
    /// All others.
    blocked: OwnedFd,
    left: bool,
}

/// The signals that arrived since the last call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handled {
    /// Children have ended.
    pub(crate) ends: bool,
    came: u64,
}

impl Handled {
    /// Those of `FAULTS` that somebody has sent.
    pub(crate) fn sent(self) -> impl Iterator<Item = i32> {
        FAULTS
            .into_iter()
            .filter(move |number| self.came & bit(*number) != 0)
    }
}

impl Signals {
    /// Catches them, what was held back included. A token for those that are handled, and one for all others: only the
    /// source that is ready is read.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub(crate) fn catch(&mut self, registry: &Registry, tokens: [Token; 2]) -> io::Result<()> {
        let [ends, others] = tokens;
        let (mut handled, wake) = UnixStream::pair()?;
        sys::handle_signals(&[signal::SIGCHLD], wake.into())?;
        registry.register(&mut handled, ends, Interest::READABLE)?;
        let blocked = sys::signal_descriptor(blocked())?;
        let number = blocked.as_raw_fd();
        registry.register(&mut SourceFd(&number), others, Interest::READABLE)?;
        self.0 = Some(Caught {
            handled,
            blocked,
            left: false,
        });
        Ok(())
    }

    /// Takes the signals that arrived since the last call.
    pub(crate) fn handled(&mut self) -> Handled {
        if let Some(caught) = &mut self.0 {
            // Until it is empty: epoll tells of what comes after that.
            let mut bytes = [0; HANDLED_BYTES];
            while caught
                .handled
                .read(&mut bytes)
                .is_ok_and(|read| read == HANDLED_BYTES)
            {}
        }
        let came = sys::handled_signals();
        Handled {
            ends: came & bit(signal::SIGCHLD) != 0,
            came,
        }
    }

    /// The other signals that came since the last call, or some of them.
    pub(crate) fn others(&mut self) -> [Option<i32>; sys::SIGNALS_AT_ONCE] {
        let Some(caught) = &mut self.0 else {
            return [None; sys::SIGNALS_AT_ONCE];
        };
        let batch = sys::read_signals(caught.blocked.as_fd());
        caught.left = !batch.contains(&None);
        batch
    }

    /// There may be more: all places were taken. Else epoll tells of the next one, but not of these.
    pub(crate) fn are_left(&self) -> bool {
        self.0.as_ref().is_some_and(|caught| caught.left)
    }
}

/// From here on no signal ends or stops this process by accident: those that come wait for `Signals::catch`. The slow part
/// of catching them waits until the proxy has been started.
pub(crate) fn hold() {
    sys::hold_signals(blocked() | bit(signal::SIGCHLD));
}

/// Undoes `hold`, for a process that is nobody's init: what came meanwhile ends it.
pub(crate) fn release() {
    sys::hold_signals(Inherited::get().mask);
}

/// Returns true if a signal that is held back asks for the end.
pub(crate) fn end_is_asked() -> bool {
    let ends = bit(signal::SIGTERM) | bit(signal::SIGINT) | bit(signal::SIGQUIT);
    sys::pending_signals() & ends != 0
}

/// In a set of signals as the kernel has them.
const fn bit(number: i32) -> u64 {
    1 << (number - 1)
}

/// Returns the signals that have no handler: 32 to 34 are among them, for which the C library allows none.
fn blocked() -> u64 {
    let other_ways = FAULTS.iter().chain(&NOT_CAUGHT);
    other_ways.fold(!bit(signal::SIGCHLD), |set, number| set & !bit(*number))
}
