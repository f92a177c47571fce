//! `memcpy` and `memmove` for x86-64 with musl, whose own begin a string instruction for every few bytes: thirty cycles,
//! ten thousand times in a start, a fifth of its time.
//!
//! Up to 64 bytes all is loaded before anything is stored, so that it does not matter whether the places overlap.

/// The two functions under these names.
#[cfg(all(target_arch = "x86_64", any(target_env = "musl", test)))]
macro_rules! define {
    ($memcpy:literal, $memmove:literal) => {
        std::arch::global_asm!(
            concat!(".pushsection .text.", $memcpy, ",\"ax\",@progbits"),
            concat!(".globl ", $memcpy, ", ", $memmove),
            concat!(".type ", $memcpy, ",@function"),
            concat!(".type ", $memmove, ",@function"),
            concat!($memmove, ":"),
            "mov rax, rdi",
            "cmp rdx, 64",
            "jbe 20f",
            "mov rcx, rdi",
            "sub rcx, rsi",
            "cmp rcx, rdx",
            "jae 30f",
            // The end first. The first bytes may be overwritten on the way, so they are kept.
            "movdqu xmm0, [rsi]",
            "10:",
            "movdqu xmm1, [rsi + rdx - 16]",
            "movdqu [rdi + rdx - 16], xmm1",
            "sub rdx, 16",
            "cmp rdx, 16",
            "ja 10b",
            "movdqu [rdi], xmm0",
            "ret",
            concat!($memcpy, ":"),
            "mov rax, rdi",
            "cmp rdx, 64",
            "ja 30f",
            "20:",
            "cmp edx, 16",
            "jb 21f",
            "cmp edx, 32",
            "ja 22f",
            "movdqu xmm0, [rsi]",
            "movdqu xmm1, [rsi + rdx - 16]",
            "movdqu [rdi], xmm0",
            "movdqu [rdi + rdx - 16], xmm1",
            "ret",
            "22:",
            "movdqu xmm0, [rsi]",
            "movdqu xmm1, [rsi + 16]",
            "movdqu xmm2, [rsi + rdx - 32]",
            "movdqu xmm3, [rsi + rdx - 16]",
            "movdqu [rdi], xmm0",
            "movdqu [rdi + 16], xmm1",
            "movdqu [rdi + rdx - 32], xmm2",
            "movdqu [rdi + rdx - 16], xmm3",
            "ret",
            "21:",
            "cmp edx, 8",
            "jb 23f",
            "mov rcx, [rsi]",
            "mov r8, [rsi + rdx - 8]",
            "mov [rdi], rcx",
            "mov [rdi + rdx - 8], r8",
            "ret",
            "23:",
            "cmp edx, 4",
            "jb 24f",
            "mov ecx, [rsi]",
            "mov r8d, [rsi + rdx - 4]",
            "mov [rdi], ecx",
            "mov [rdi + rdx - 4], r8d",
            "ret",
            "24:",
            "test edx, edx",
            "je 25f",
            // One to three: the first, the middle, the last.
            "mov r10, rdx",
            "shr r10, 1",
            "movzx ecx, byte ptr [rsi]",
            "movzx r9d, byte ptr [rsi + r10]",
            "movzx r8d, byte ptr [rsi + rdx - 1]",
            "mov [rdi], cl",
            "mov [rdi + r10], r9b",
            "mov [rdi + rdx - 1], r8b",
            "25:",
            "ret",
            "30:",
            "mov rcx, rdx",
            "rep movsb",
            "ret",
            ".popsection",
        );
    };
}

#[cfg(all(target_arch = "x86_64", target_env = "musl", not(test)))]
define!("memcpy", "memmove");

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use proptest::prelude::*;

    define!("pintle_test_memcpy", "pintle_test_memmove");

    unsafe extern "C" {
        fn pintle_test_memcpy(to: *mut u8, from: *const u8, count: usize) -> *mut u8;
        fn pintle_test_memmove(to: *mut u8, from: *const u8, count: usize) -> *mut u8;
    }

    fn bytes() -> Vec<u8> {
        (0..600_u32).map(|n| (n * 7 % 251) as u8).collect()
    }

    /// `count` bytes from one place to another of the same memory, copied by Rust and by the function under test.
    fn moved(from: usize, to: usize, count: usize) {
        let (mut expected, mut found) = (bytes(), bytes());
        expected.copy_within(from..from + count, to);
        let place = found.as_mut_ptr();
        let (target, source) = (place.wrapping_add(to), place.wrapping_add(from));
        // SAFETY: both ranges lie within the 600 bytes.
        let returned = unsafe { pintle_test_memmove(target, source, count) };
        assert_eq!(returned, place.wrapping_add(to));
        assert_eq!(found, expected, "{count} from {from} to {to}");
    }

    #[test]
    fn every_length_is_copied_and_nothing_beside_it() {
        for count in 0..=300 {
            let (from, mut expected) = (bytes(), vec![0xEE; 400]);
            let mut found = expected.clone();
            expected[50..50 + count].copy_from_slice(&from[3..3 + count]);
            let (target, source) = (
                found.as_mut_ptr().wrapping_add(50),
                from.as_ptr().wrapping_add(3),
            );
            // SAFETY: both are that large, and apart.
            let returned = unsafe { pintle_test_memcpy(target, source, count) };
            assert_eq!(returned, found.as_mut_ptr().wrapping_add(50));
            assert_eq!(found, expected, "{count}");
        }
    }

    #[test]
    fn every_length_is_moved_over_itself() {
        for count in 0..=200 {
            for distance in [1, 2, 7, 8, 15, 16, 17, 31, 33, 64, 100] {
                moved(150, 150 - distance, count);
                moved(150, 150 + distance, count);
            }
            moved(150, 150, count);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_move_is_that_of_rust(from in 0..300_usize, to in 0..300_usize, count in 0..300_usize) {
            moved(from, to, count);
        }
    }
}
