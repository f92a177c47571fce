//! Unmaps code that an idle agent does not need, half of all: for the start, an epoch, a page or a scrape. The pages are
//! returned after use; when they are needed again, the kernel maps them from its page cache, without a copy.
//!
//! `build/seldom.ld` puts it together in the release binary. Elsewhere, there is nothing to do here.

#[cfg(seldom_apart)]
use std::ffi::c_int;

/// Makes this code a mapping of its own, once: on a fault the kernel maps the sixteen pages around the one that is touched,
/// but none of another mapping.
pub fn set_apart() {
    #[cfg(seldom_apart)]
    // Any flag that makes the mappings differ would do; a core dump holds no code anyway.
    advise(libc::MADV_DONTDUMP);
}

/// Returns its pages.
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
