//! Unmaps the code of a program that rests. What a start has run is needed once; when anything of it is called again, the
//! kernel maps it from its page cache, without a copy.
//!
//! [`crate::give_back`] is finer, and takes a linker script: of the init only what is needed seldom goes, because it has
//! something to do every second. This is for a program that may rest for hours.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;

use super::page_size;

/// Returns all pages of the program's own code, those of shared libraries not included.
pub fn give_back_code() {
    let mut found: Option<Range<usize>> = None;
    // SAFETY: `first_program` has the signature that is asked for, and gets the address of `found`, which outlives the call.
    let _: c_int =
        unsafe { libc::dl_iterate_phdr(Some(first_program), (&raw mut found).cast::<c_void>()) };
    let Some(code) = found else {
        return;
    };
    let page = page_size();
    let begin = code.start.next_multiple_of(page);
    let end = code.end / page * page;
    let start = ptr::with_exposed_provenance_mut::<c_void>(begin);
    // SAFETY: whole pages of a segment that can be executed and not written: they are as they were in the file, and are read
    // from there when they are needed. A refusal changes nothing.
    let _: c_int = unsafe { libc::madvise(start, end.saturating_sub(begin), libc::MADV_DONTNEED) };
}

/// Takes the code of the first object, which is the program itself, and ends the walk.
extern "C" fn first_program(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the C library passes a description that is valid during this call.
    let object = unsafe { &*object };
    let mut code = None;
    for number in 0..usize::from(object.dlpi_phnum) {
        // SAFETY: the table has `dlpi_phnum` entries.
        let header = unsafe { object.dlpi_phdr.add(number) };
        // SAFETY: the table stays where it is.
        let header = unsafe { &*header };
        let executable = header.p_flags & (libc::PF_X | libc::PF_W) == libc::PF_X;
        if header.p_type == libc::PT_LOAD && executable {
            #[allow(clippy::cast_possible_truncation, reason = "both have 64 bits")]
            let (offset, size) = (header.p_vaddr as usize, header.p_memsz as usize);
            #[allow(clippy::cast_possible_truncation, reason = "both have 64 bits")]
            let begin = (object.dlpi_addr as usize).wrapping_add(offset);
            code = Some(begin..begin.wrapping_add(size));
        }
    }
    // SAFETY: `give_back_code` passes the address of its variable.
    unsafe { *found.cast::<Option<Range<usize>>>() = code };
    1
}

#[cfg(all(test, not(miri)))]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test may panic"
)]
mod tests {
    use super::*;

    /// kB of resident code of this program.
    fn resident() -> usize {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let program = std::env::current_exe().unwrap();
        let mut own = false;
        let mut sum = 0;
        for line in maps.lines() {
            if line.contains(" r-xp ") || line.contains(" r--p ") || line.contains(" rw-p ") {
                own = line.contains(" r-xp ") && line.ends_with(program.to_str().unwrap());
            } else if let Some(rest) = line.strip_prefix("Rss:").filter(|_| own) {
                let words: Vec<&str> = rest.split_whitespace().collect();
                sum += words[0].parse::<usize>().unwrap();
            }
        }
        sum
    }

    #[test]
    fn code_that_was_given_back_runs() {
        // Other tests may run meanwhile and need some of it at once: the first of many tries that shows less will do.
        let less = (0..100).any(|_| {
            let before = resident();
            give_back_code();
            resident() < before
        });
        assert!(less);
    }
}
