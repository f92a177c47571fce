//! Signals as events: signal-hook's handlers write to a socket pair, the loop reads it.
//!
//! Order: the pair is emptied first, then the flags are read; the reverse would lose a signal that comes in between.
//! Equal signals that come together are one, as in the kernel.

#![forbid(unsafe_code)]

use std::io;

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::sys;
use crate::sys::signal::{self, LAST};

/// Not caught: KILL and STOP cannot be; ILL, BUS, FPE and SEGV come from a fault, after which a handler must not return.
const NOT_CAUGHT: [i32; 6] = [4, 7, 8, 9, 11, 19];

/// What the agent acts upon.
const AT_ONCE: [i32; 6] = [
    signal::SIGTERM,
    signal::SIGINT,
    signal::SIGQUIT,
    signal::SIGHUP,
    signal::SIGUSR1,
    signal::SIGCHLD,
];
/// musl keeps 32 to 34 for itself, glibc 32 and 33.
const FIRST_FREE: i32 = 34;

/// Every signal that can be caught, as a readable source.
#[derive(Debug)]
pub(crate) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    /// Installs the handlers of the signals that mean something from the first moment on.
    ///
    /// # Errors
    /// No descriptor or no memory left.
    pub(crate) fn install() -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, AT_ONCE)?;
        sys::unblock_signals();
        Ok(Self(delivery))
    }

    /// Installs the others. From here on no signal ends or stops this process by accident.
    ///
    /// Each handler costs signal-hook a copy of its table, which is most of a start's time: so this comes after the
    /// child has been started.
    pub(crate) fn catch_the_rest(&self) {
        let standard = (1..32).filter(|number| !NOT_CAUGHT.contains(number));
        for number in standard.chain(FIRST_FREE..=LAST) {
            // Those that are caught already are no error; those that the C library keeps it refuses, how many it does
            // not say before.
            drop(self.0.handle().add_signal(number));
        }
    }

    /// # Errors
    /// What epoll says.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.0.get_read_mut(), token, Interest::READABLE)
    }

    /// The signals that came since the last call, each once, in the order of their numbers.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = i32> {
        self.0.pending()
    }
}
