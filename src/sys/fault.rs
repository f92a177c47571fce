//! The last line of a process that has run into a fault.
//!
//! The release build turns a panic into an illegal instruction: what prints panics weighs more than all of `config`. So
//! this says where it was, as offsets from the load address, which `build/where` turns into functions and lines. Then
//! the default action is put back and the instruction runs again, so that the exit status is the truth.
//!
//! Everything here runs inside a signal handler: no allocation, no lock, nothing that waits.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use super::outlet::{self, Outlet};

/// Signals that the processor raises. TRAP is the abort instruction of aarch64.
const FAULTS: [(c_int, &[u8]); 5] = [
    (libc::SIGILL, b"SIGILL"),
    (libc::SIGTRAP, b"SIGTRAP"),
    (libc::SIGBUS, b"SIGBUS"),
    (libc::SIGFPE, b"SIGFPE"),
    (libc::SIGSEGV, b"SIGSEGV"),
];
/// The commit of this program; the build says it.
const REVISION: &str = match option_env!("PINTLE_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};
/// The termination log: where Kubernetes reads why a container ended (its default `terminationMessagePath`).
const TERMINATION_LOG: &CStr = c"/dev/termination-log";
/// The longest line, in bytes. Chosen: room for the fault, the revision and `CALLERS` addresses.
const LINE_BYTES: usize = 256;
/// Return addresses that are named. Chosen: what fits the line.
const CALLERS: usize = 8;
/// Words of the stack that are looked at for them. Chosen: some pages, of which the innermost frames are the first.
const WORDS: usize = 1024;
/// Bytes of the handler's stack: more than the kernel asks for with the widest registers (11 kB with AMX). They cost
/// nothing until a fault.
const STACK_BYTES: usize = 32 * 1024;

/// A stack of its own, for the fault may be that the other one has ended.
struct FaultStack(UnsafeCell<[u8; STACK_BYTES]>);

// SAFETY: only the kernel writes to it, for the handler, and one thread has it.
unsafe impl Sync for FaultStack {}

#[cfg_attr(seldom_apart, unsafe(link_section = ".bss.fault_stack"))]
static STACK: FaultStack = FaultStack(UnsafeCell::new([0; STACK_BYTES]));

unsafe extern "C" {
    /// The beginning of the file, as the linker placed it.
    static __ehdr_start: u8;
    /// The beginning of the code.
    static _start: u8;
    /// The end of the code.
    static etext: u8;
}

/// Installs the handlers. A signal that somebody has sent ends nobody: it is one of `handled_signals`.
pub(crate) fn report_faults() {
    let stack = libc::stack_t {
        ss_sp: STACK.0.get().cast(),
        ss_flags: 0,
        ss_size: STACK_BYTES,
    };
    // SAFETY: the memory is static; a refusal leaves the handlers on the stack that there is.
    let _: c_int = unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let action = unsafe { action.assume_init_mut() };
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    for (number, _) in FAULTS {
        // SAFETY: the handler has the signature that SA_SIGINFO asks for and makes only async-signal-safe calls.
        let _: c_int = unsafe { libc::sigaction(number, action, ptr::null_mut()) };
    }
}

extern "C" fn handle(number: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes it, and it lives as long as the handler runs.
    if unsafe { (*info).si_code } <= 0 {
        // Sent by `kill`: nothing is wrong.
        // SAFETY: no arguments; the place is this thread's own.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: as above, for as long as the thread lives.
        let before = unsafe { errno.read() };
        super::handled::note(number);
        // SAFETY: as above.
        unsafe { errno.write(before) };
        return;
    }
    // SAFETY: as above, and it is of this type.
    let context = unsafe { &*context.cast::<libc::ucontext_t>() };
    let (at, stack) = registers(context);
    let mut line = Line::new();
    line.put(b"pintle: fault ");
    let name = FAULTS.iter().find(|(known, _)| *known == number);
    line.put(name.map_or(b"", |(_, name)| name));
    line.put(b" at ");
    line.put_offset(at);
    line.put(b" (pintle ");
    line.put(env!("CARGO_PKG_VERSION").as_bytes());
    line.put(b", ");
    line.put(REVISION.as_bytes());
    line.put(b"), called from");
    callers(stack, &mut line);
    line.put(b"\n");
    let line = line.bytes.get(..line.length).unwrap_or_default();
    drop(Outlet::shared(super::stderr()).write(line));
    // The file exists where somebody reads it.
    if let Some(file) = outlet::open(TERMINATION_LOG, libc::O_TRUNC) {
        drop(Outlet::own(file).write(line));
    }
    // SAFETY: `signal` takes an integer and a constant. The instruction runs again and now ends the process.
    let _: libc::sighandler_t = unsafe { libc::signal(number, libc::SIG_DFL) };
}

/// Returns the place of the fault, and its stack.
#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t) -> (usize, usize) {
    let register = |number: c_int| {
        let number = usize::try_from(number).unwrap_or(0);
        let value = context.uc_mcontext.gregs.get(number).copied();
        usize::try_from(value.unwrap_or(0)).unwrap_or(0)
    };
    (register(libc::REG_RIP), register(libc::REG_RSP))
}

/// Returns the place of the fault, and its stack.
#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t) -> (usize, usize) {
    let number = |value: u64| usize::try_from(value).unwrap_or(0);
    let machine = &context.uc_mcontext;
    (number(machine.pc), number(machine.sp))
}

/// Words of the stack that point into the code: return addresses, and now and then one that was left there. No frame
/// pointers and no unwind tables are kept, so this is what there is.
fn callers(stack: usize, line: &mut Line) {
    unsafe extern "C" {
        static environ: *const *const u8;
    }
    // SAFETY: one thread, and nobody writes to it.
    let end = unsafe { environ } as usize;
    let code = (&raw const _start) as usize..(&raw const etext) as usize;
    let mut found = 0;
    for at in (stack..end).step_by(size_of::<usize>()).take(WORDS) {
        // SAFETY: between the stack pointer and the environment, which the kernel put above the first frame, all is
        // the stack.
        let word = unsafe { ptr::read_volatile(ptr::with_exposed_provenance::<usize>(at)) };
        if code.contains(&word) && found < CALLERS {
            line.put(b" ");
            line.put_offset(word);
            found += 1;
        }
    }
}

/// A line being made, cut at its length.
struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl Line {
    const fn new() -> Self {
        Self {
            bytes: [0; LINE_BYTES],
            length: 0,
        }
    }

    fn put(&mut self, text: &[u8]) {
        for byte in text {
            // The last place is for the end of the line.
            let room = self.length + 1 < LINE_BYTES || *byte == b'\n';
            if let Some(place) = self.bytes.get_mut(self.length).filter(|_| room) {
                *place = *byte;
                self.length += 1;
            }
        }
    }

    /// In hexadecimal, from where the file was loaded.
    fn put_offset(&mut self, address: usize) {
        let offset = address.wrapping_sub((&raw const __ehdr_start) as usize);
        self.put(b"0x");
        let digits = (usize::BITS - offset.leading_zeros()).div_ceil(4).max(1);
        for digit in (0..digits).rev() {
            let value = (offset >> (4 * digit)) & 0xf;
            self.put(b"0123456789abcdef".get(value..=value).unwrap_or(b"?"));
        }
    }
}
