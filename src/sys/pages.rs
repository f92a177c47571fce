//! Pages of memory: their size, and what is asked of the kernel for the heap and for the stack.

use std::ptr;

#[cfg(not(miri))]
pub(crate) use kernel::{allow, discard, map, reserve, unmap};
#[cfg(miri)]
pub(crate) use simulated::{allow, discard, map, reserve, unmap};

/// Bytes of the largest page that Linux uses here (aarch64); a multiple of all smaller ones.
pub(crate) const MAX_PAGE_BYTES: usize = 64 * 1024;
/// Bytes of the smallest, which is x86_64's.
pub(crate) const MIN_PAGE_BYTES: usize = 4096;

/// Bytes of a page of memory, as the kernel was built.
#[must_use]
pub fn page_size() -> usize {
    if cfg!(miri) {
        return MIN_PAGE_BYTES;
    }
    // SAFETY: `getauxval` takes an integer, and reads a list that the kernel has put there before the first instruction.
    match unsafe { libc::getauxval(libc::AT_PAGESZ) } {
        0 => MAX_PAGE_BYTES,
        #[allow(clippy::cast_possible_truncation, reason = "both have 64 bits")]
        size => size as usize,
    }
}

/// Gives the stack back that the deepest calls have used, down from here. They come at a start and at each epoch; what
/// remains is what a turn takes.
///
/// Not inlined, so that here is below all that its caller has. Measured from the stack pointer: where a local variable
/// stands in its frame is the compiler's affair.
#[inline(never)]
pub fn release_stack() {
    /// Bytes of stack below this call that are given back. Chosen: no call goes deeper.
    const MAX_STACK_BYTES: usize = 128 * 1024;
    let page = page_size();
    // A page is left for the call below and for what the processor's convention lets a function use beyond the pointer.
    let top = (stack_pointer() - page) & !(page - 1);
    let from = ptr::with_exposed_provenance_mut(top - MAX_STACK_BYTES);
    // Where there is no stack yet, it says so after it has done the rest.
    // SAFETY: below the stack pointer, with room for a signal's frame left, is nothing of anybody's.
    unsafe { discard(from, MAX_STACK_BYTES) };
}

#[inline(always)]
#[allow(clippy::inline_always, reason = "an instruction")]
fn stack_pointer() -> usize {
    let pointer;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: it copies a register.
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    };
    #[cfg(target_arch = "aarch64")]
    // SAFETY: it copies a register.
    unsafe {
        std::arch::asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    };
    pointer
}

#[cfg(not(miri))]
mod kernel {
    use std::ffi::c_int;
    use std::ptr;

    /// Pages of their own; null when there are none.
    pub(crate) fn map(size: usize) -> *mut u8 {
        mapping(size, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Addresses without memory; null when there are none.
    pub(crate) fn reserve(size: usize) -> *mut u8 {
        mapping(size, libc::PROT_NONE)
    }

    fn mapping(size: usize, access: c_int) -> *mut u8 {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, where the kernel likes.
        let memory = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
        if memory == libc::MAP_FAILED {
            return ptr::null_mut();
        }
        memory.cast()
    }

    /// Makes memory of reserved addresses.
    ///
    /// # Safety
    /// They are a part of a reserve.
    pub(crate) unsafe fn allow(from: *mut u8, size: usize) -> bool {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the caller's.
        unsafe { libc::mprotect(from.cast(), size, access) == 0 }
    }

    /// Gives pages back: they read as zeros from now on.
    ///
    /// # Safety
    /// They are memory of this process, and nobody needs what is there.
    pub(crate) unsafe fn discard(from: *mut u8, size: usize) {
        // SAFETY: the caller's.
        let _: c_int = unsafe { libc::madvise(from.cast(), size, libc::MADV_DONTNEED) };
    }

    /// # Safety
    /// It is a mapping of that size, and nobody has it any more.
    pub(crate) unsafe fn unmap(from: *mut u8, size: usize) {
        // SAFETY: the caller's.
        let _: c_int = unsafe { libc::munmap(from.cast(), size) };
    }
}

/// Miri, which checks every access of the heap to its blocks, knows none of these calls.
#[cfg(miri)]
mod simulated {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr;

    fn layout(size: usize) -> Option<Layout> {
        Layout::from_size_align(size, super::MIN_PAGE_BYTES).ok()
    }

    pub(crate) fn map(size: usize) -> *mut u8 {
        // SAFETY: nobody asks for no bytes.
        layout(size).map_or(ptr::null_mut(), |layout| unsafe { alloc_zeroed(layout) })
    }

    pub(crate) fn reserve(size: usize) -> *mut u8 {
        map(size)
    }

    pub(crate) unsafe fn allow(from: *mut u8, _: usize) -> bool {
        !from.is_null()
    }

    pub(crate) unsafe fn discard(from: *mut u8, size: usize) {
        // SAFETY: the caller's.
        unsafe { ptr::write_bytes(from, 0, size) };
    }

    pub(crate) unsafe fn unmap(from: *mut u8, size: usize) {
        if let Some(layout) = layout(size) {
            // SAFETY: it is of `map`, by the caller.
            unsafe { dealloc(from, layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// Whether there is memory at this address.
    fn is_resident(address: usize) -> bool {
        let page = page_size();
        let mut state = 0_u8;
        let place = ptr::with_exposed_provenance_mut(address & !(page - 1));
        // SAFETY: one byte for one page, and it lives.
        let told = unsafe { libc::mincore(place, page, &raw mut state) };
        assert_eq!(told, 0);
        state & 1 == 1
    }

    /// Uses this much stack, and says where its far end is.
    #[inline(never)]
    fn dig() -> usize {
        let mut hole = [0x5A_u8; 96 * 1024];
        black_box(&mut hole).as_ptr().expose_provenance()
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows neither the stack pointer nor residency")]
    fn the_stack_below_a_call_is_given_back_and_nothing_above_it() {
        let own: Vec<u8> = (0..=255).collect();
        let above: [u8; 256] = black_box(own.clone()).try_into().unwrap();
        for _ in 0..3 {
            let deep = dig();
            assert!(is_resident(deep));
            release_stack();
            assert!(!is_resident(deep));
            assert_eq!(black_box(above)[..], own[..]);
        }
    }

    #[test]
    fn a_page_is_what_the_kernel_says() {
        let page = page_size();
        assert!(page.is_power_of_two());
        assert!((MIN_PAGE_BYTES..=MAX_PAGE_BYTES).contains(&page), "{page}");
        let block = map(page);
        assert!(!block.is_null() && block.addr().is_multiple_of(page));
        // SAFETY: it has just been mapped.
        unsafe { unmap(block, page) };
    }
}
