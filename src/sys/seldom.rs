//! Code that an agent at rest does not need, half of all: for the start, for an epoch, for a page or a scrape. Its pages are
//! given back after use; when they are needed again the kernel maps them from its cache, without a copy.
//!
//! `build/seldom.ld` puts it together in the release binary. Elsewhere, there is nothing to do here.

#[cfg(seldom_apart)]
use std::ffi::c_int;

/// Sets the code apart, once: the kernel maps sixteen pages around one that is touched, but none of another mapping.
pub fn set_apart() {
    #[cfg(seldom_apart)]
    // A core holds no code anyway; what matters is that the two mappings differ.
    advise(libc::MADV_DONTDUMP);
}

/// Gives its pages back.
pub fn give_back() {
    #[cfg(seldom_apart)]
    advise(libc::MADV_DONTNEED);
}

#[cfg(seldom_apart)]
fn advise(advice: c_int) {
    unsafe extern "C" {
        // Where it begins and ends; addresses, not values.
        static pintle_seldom_begin: u8;
        static pintle_seldom_end: u8;
    }
    let page = super::page_size();
    let begin = (&raw const pintle_seldom_begin)
        .addr()
        .next_multiple_of(page);
    let end = (&raw const pintle_seldom_end).addr() / page * page;
    let start = (&raw const pintle_seldom_begin)
        .with_addr(begin)
        .cast_mut()
        .cast();
    // SAFETY: whole pages of the program's own code, which the linker has put between the two symbols; read from the
    // file again when it is needed. A refusal changes nothing.
    let _: c_int = unsafe { libc::madvise(start, end.saturating_sub(begin), advice) };
}
