//! The agent's heap: an allocator for one thread that returns free memory to the kernel at once.
//!
//! The first free block that fits is taken, in the order of their addresses, and neighbours are joined. So blocks that were
//! allocated together become one piece again, and a long life leaves no holes that grow. Free memory at the top is given back.
//! Sizes are not stored: Rust passes the layout when it frees.
//!
//! The free blocks are a treap: a search tree by address, balanced by a hash of the address, in which each node knows the
//! largest block below it. So taking and giving are steps in the logarithm of their number, whatever a document does.
//!
//! Why not musl's: it maps and unmaps pages one group at a time, some ninety system calls and as many page faults in a
//! start, and a rendered bootstrap leaves it with 60 kB that stay dirty. Why no lock: there is one thread.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr;

use super::pages::{self, MAX_PAGE_BYTES, MIN_PAGE_BYTES};

/// Bytes; sizes and addresses of blocks are multiples of it. Source: the size of `Free`, and the widest alignment in use.
const UNIT: usize = 16;
/// Bytes from which on a block is a mapping of its own, unmapped when it is freed. Chosen: few blocks of a turn are that
/// large.
const LARGE: usize = 64 * 1024;
/// Bytes of address space that are reserved, not memory. Chosen: more than the largest documents take; beyond it, mappings.
const RESERVED: usize = if cfg!(miri) { 1 << 20 } else { 256 << 20 };
/// Bytes by which the usable part of the reserve grows. Chosen: a start fits one step.
const STEP: usize = 512 * 1024;
/// Bytes of memory above the top that are kept for the next turn. Chosen: more than a probe takes.
const SLACK: usize = 2 * 1024;

/// A place in the reserve or a size, in units.
type Units = u32;
/// The null of `Units`: no block.
const NONE: Units = Units::MAX;

/// The content of a free block: a node of the treap.
#[derive(Clone, Copy)]
struct Free {
    /// The trees of those at lower and at higher addresses.
    left: Units,
    right: Units,
    size: Units,
    /// The size of the largest block of this tree.
    largest: Units,
}

/// A node's priority in the treap: the finaliser of MurmurHash3, so that it depends on every bit of the address.
const fn rank(place: Units) -> u32 {
    let mixed = (place ^ place >> 16).wrapping_mul(0x85eb_ca6b);
    (mixed ^ mixed >> 13).wrapping_mul(0xc2b2_ae35)
}

/// See the module.
#[derive(Debug)]
pub struct Heap(());

/// The one heap of the process; untouched where another allocator serves.
static SHARED: Shared = Shared(UnsafeCell::new(State::new()));

struct Shared(UnsafeCell<State>);

struct State {
    /// The reserve's address; null before the first allocation.
    base: *mut u8,
    /// Above it nothing is allocated. This and the next two are offsets in the reserve.
    top: usize,
    /// Up to here memory was touched since the last `trim`.
    used: usize,
    /// Up to here the reserve is readable and writable.
    usable: usize,
    /// The tree of the free blocks.
    free: Units,
    /// Bytes of a page, or a multiple of it.
    page: usize,
}

// SAFETY: the binary has one thread (the tests, which have more, do not use this); no signal handler allocates.
unsafe impl Sync for Shared {}

/// Returns the free memory above the last block, all but `SLACK`: for after work that is rare.
pub fn release_heap() {
    // SAFETY: one thread, and no call within a call. Where this heap is not in use there is nothing to give back.
    let state = unsafe { &mut *SHARED.0.get() };
    if !state.base.is_null() {
        state.trim(0);
    }
}

/// Whether `release_heap` has memory to return.
pub fn heap_is_high() -> bool {
    // SAFETY: as above.
    let state = unsafe { &*SHARED.0.get() };
    state.used > state.kept()
}

impl Heap {
    /// For the one thread of the binary.
    ///
    /// # Safety
    /// A program that allocates with it has one thread.
    #[must_use]
    pub const unsafe fn new() -> Self {
        Self(())
    }

    #[allow(clippy::mut_from_ref, reason = "one thread, and no call within a call")]
    fn state(&self) -> &mut State {
        // SAFETY: one thread, and the state is borrowed for one call only.
        unsafe { &mut *SHARED.0.get() }
    }
}

// SAFETY: blocks do not overlap, are as large and aligned as asked for, and stay until they are freed.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.state().allocate(layout)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { self.state().free(block, layout) };
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { self.state().resize(block, layout, new_size) }
    }
}

const fn rounded(size: usize) -> usize {
    size.saturating_add(UNIT - 1) & !(UNIT - 1)
}

/// Returns the units of a size within the reserve, which has far fewer than 2^32.
#[allow(clippy::cast_possible_truncation, reason = "see above")]
const fn units(bytes: usize) -> Units {
    (bytes / UNIT) as Units
}

const fn bytes(units: Units) -> usize {
    units as usize * UNIT
}

impl State {
    const fn new() -> Self {
        Self {
            base: ptr::null_mut(),
            top: 0,
            used: 0,
            usable: 0,
            free: NONE,
            // Until there is a reserve.
            page: MAX_PAGE_BYTES,
        }
    }

    /// A block; null where there is no memory for it, and for an alignment that no mapping has on every kernel.
    fn allocate(&mut self, layout: Layout) -> *mut u8 {
        let size = rounded(layout.size());
        if layout.align() > MIN_PAGE_BYTES {
            return ptr::null_mut();
        }
        if size >= LARGE || layout.align() > UNIT {
            return pages::map(size);
        }
        if self.base.is_null() {
            // As a place, and not as memory: nobody may touch it yet.
            self.base = pages::reserve(RESERVED);
            self.page = pages::page_size();
        }
        self.take(size)
    }

    /// # Safety
    /// The block was allocated with this layout, and nobody has it any more.
    unsafe fn free(&mut self, block: *mut u8, layout: Layout) {
        let size = rounded(layout.size());
        if self.holds(block) {
            self.give(block, size);
        } else {
            // SAFETY: it is not in the reserve, so it is a mapping of its own.
            unsafe { pages::unmap(block, size) };
        }
    }

    /// # Safety
    /// The block was allocated with this layout, and with the new size that is still one.
    unsafe fn resize(&mut self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let (old, new) = (rounded(layout.size()), rounded(new_size));
        if old == new || (new < LARGE && self.stretch(block, old, new)) {
            return block;
        }
        // SAFETY: the alignment is that of a layout, and the caller keeps the size within its limit.
        let wanted = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let moved = self.allocate(wanted);
        if !moved.is_null() {
            // SAFETY: both are at least that large, and are not the same block.
            unsafe { ptr::copy_nonoverlapping(block, moved, layout.size().min(new_size)) };
            // SAFETY: the caller's.
            unsafe { self.free(block, layout) };
        }
        moved
    }

    fn holds(&self, block: *mut u8) -> bool {
        block.addr().wrapping_sub(self.base.addr()) < RESERVED && !self.base.is_null()
    }

    /// The first free block that fits, or what is above the top.
    fn take(&mut self, size: usize) -> *mut u8 {
        let wanted = units(size);
        if self.largest(self.free) < wanted {
            let block = self.place(self.top);
            return if self.raise(size) {
                block
            } else {
                pages::map(size)
            };
        }
        let mut block = self.free;
        let found = loop {
            let free = self.read(block);
            block = if self.largest(free.left) >= wanted {
                free.left
            } else if free.size >= wanted {
                break free.size;
            } else {
                free.right
            };
        };
        let (below, rest) = self.part(self.free, block);
        let (_, mut above) = self.part(rest, block + 1);
        if found > wanted {
            let rest = block + wanted;
            self.write(rest, NONE, NONE, found - wanted);
            above = self.join(rest, above);
        }
        self.free = self.join(below, above);
        self.block(block)
    }

    /// Puts a block back in its place and joins it to its neighbours.
    fn give(&mut self, block: *mut u8, size: usize) {
        let mut block = units(block.addr() - self.base.addr());
        let mut size = units(size);
        let (mut below, mut above) = self.part(self.free, block);
        let (after, found) = self.outermost(above, |free| free.left);
        if after == block + size {
            size += found;
            (_, above) = self.part(above, after + 1);
        }
        let (before, found) = self.outermost(below, |free| free.right);
        if before != NONE && before + found == block {
            block = before;
            size += found;
            (below, _) = self.part(below, before);
        }
        if self.block(block + size) == self.place(self.top) {
            self.free = below;
            self.lower(bytes(size));
        } else {
            self.write(block, NONE, NONE, size);
            let above = self.join(block, above);
            self.free = self.join(below, above);
        }
    }

    /// The last block of a tree on the side that `next` leads to, and its size.
    fn outermost(&self, tree: Units, next: fn(Free) -> Units) -> (Units, Units) {
        let (mut found, mut size, mut block) = (NONE, 0, tree);
        while block != NONE {
            let free = self.read(block);
            (found, size, block) = (block, free.size, next(free));
        }
        (found, size)
    }

    /// Splits a tree at `place`: the nodes below it, and the rest.
    fn part(&self, tree: Units, place: Units) -> (Units, Units) {
        if tree == NONE {
            return (NONE, NONE);
        }
        let free = self.read(tree);
        if tree < place {
            let (below, above) = self.part(free.right, place);
            self.write(tree, free.left, below, free.size);
            (tree, above)
        } else {
            let (below, above) = self.part(free.left, place);
            self.write(tree, above, free.right, free.size);
            (below, tree)
        }
    }

    /// Joins two trees; all addresses of the first are below the second's.
    fn join(&self, below: Units, above: Units) -> Units {
        if below == NONE {
            return above;
        }
        if above == NONE {
            return below;
        }
        if rank(below) > rank(above) {
            let free = self.read(below);
            let right = self.join(free.right, above);
            self.write(below, free.left, right, free.size);
            below
        } else {
            let free = self.read(above);
            let left = self.join(below, free.left);
            self.write(above, left, free.right, free.size);
            above
        }
    }

    /// The size of the largest block of a tree.
    fn largest(&self, tree: Units) -> Units {
        if tree == NONE {
            0
        } else {
            self.read(tree).largest
        }
    }

    /// A block of the tree.
    fn read(&self, block: Units) -> Free {
        // SAFETY: it is in the tree, so it is free, of at least a unit, and was written by `write`.
        unsafe { *self.block(block).cast() }
    }

    /// Makes a block of the tree of memory that nobody has.
    fn write(&self, block: Units, left: Units, right: Units, size: Units) {
        let largest = size.max(self.largest(left)).max(self.largest(right));
        // SAFETY: it is free, of at least a unit, and aligned to one.
        let free: &mut Free = unsafe { &mut *self.block(block).cast() };
        (free.left, free.right, free.size, free.largest) = (left, right, size, largest);
    }

    fn block(&self, block: Units) -> *mut u8 {
        self.place(bytes(block))
    }

    /// Makes the last block longer in place, if this is the last.
    fn stretch(&mut self, block: *mut u8, old: usize, new: usize) -> bool {
        new > old
            && block.wrapping_add(old) == self.place(self.top)
            && self.holds(block)
            && self.raise(new - old)
    }

    fn place(&self, offset: usize) -> *mut u8 {
        self.base.wrapping_add(offset)
    }

    /// Moves the top up by `size` bytes.
    fn raise(&mut self, size: usize) -> bool {
        let top = self.top + size;
        if top > self.usable && !self.extend(top) {
            return false;
        }
        self.top = top;
        self.used = self.used.max(top);
        true
    }

    fn extend(&mut self, top: usize) -> bool {
        let usable = top.next_multiple_of(STEP);
        if usable > RESERVED {
            return false;
        }
        // SAFETY: these pages of the reserve have not been in use.
        if !unsafe { pages::allow(self.place(self.usable), usable - self.usable) } {
            return false;
        }
        self.usable = usable;
        true
    }

    /// Moves the top down by `size` bytes, and returns memory when much is free.
    fn lower(&mut self, size: usize) {
        self.top -= size;
        self.trim(LARGE);
    }

    /// Offset up to which memory is kept: the top and `SLACK`.
    const fn kept(&self) -> usize {
        (self.top + SLACK + self.page - 1) & !(self.page - 1)
    }

    /// Gives back what is free above the top, if that is more than so many bytes.
    fn trim(&mut self, tolerated: usize) {
        let keep = self.kept();
        if self.used > keep + tolerated {
            // SAFETY: nothing above the top is in use.
            unsafe { pages::discard(self.place(keep), self.used - keep) };
            self.used = keep;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    /// A state with a reserve of its own, which goes with it.
    struct Own(State);

    impl Own {
        fn new() -> Self {
            Self(State {
                base: pages::reserve(RESERVED),
                page: pages::page_size(),
                ..State::new()
            })
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            // SAFETY: it is that large, and no test reads a block after its heap.
            unsafe { pages::unmap(self.0.base, RESERVED) };
        }
    }

    impl Deref for Own {
        type Target = State;

        fn deref(&self) -> &State {
            &self.0
        }
    }

    impl DerefMut for Own {
        fn deref_mut(&mut self) -> &mut State {
            &mut self.0
        }
    }

    /// An allocation: its place, its size, and the byte that it is filled with.
    struct Block(*mut u8, usize, u8);

    impl Block {
        fn fill(&self) {
            // SAFETY: the block belongs to the caller and is that large.
            unsafe { ptr::write_bytes(self.0, self.2, self.1) };
        }

        fn check(&self) {
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(self.0, self.1) };
            assert!(bytes == vec![self.2; self.1], "written by another");
        }
    }

    /// Found the long way round.
    fn first_fit(state: &State, blocks: &[Block], size: usize) -> *mut u8 {
        let mut taken: Vec<_> = blocks.iter().map(|block| (block.0, block.1)).collect();
        taken.sort_unstable();
        let mut free = state.base;
        for (block, length) in taken {
            if block.addr() - free.addr() >= size {
                break;
            }
            free = block.wrapping_add(rounded(length));
        }
        free
    }

    /// The longest story. Miri takes a hundred times as long for each step.
    const STEPS: usize = if cfg!(miri) { 60 } else { 300 };

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Step {
        Allocate,
        Resize,
        Free,
    }

    /// A step, its size, its alignment, and the block that it concerns. Most are small, as a document's are.
    fn step() -> impl Strategy<Value = (Step, usize, usize, prop::sample::Index)> {
        let what = prop_oneof![Just(Step::Allocate), Just(Step::Resize), Just(Step::Free)];
        let size =
            prop_oneof![8 => 1..300_usize, 2 => 300..9000_usize, 1 => LARGE - 100..LARGE + 9000];
        let align = prop_oneof![12 => Just(1), 4 => Just(16), 1 => Just(64), 1 => Just(4096), 1 => Just(8192)];
        (what, size, align, any::<prop::sample::Index>())
    }

    fn are_apart(blocks: &[(Block, Layout)]) -> bool {
        let mut taken: Vec<_> = blocks
            .iter()
            .map(|(block, _)| (block.0.addr(), block.1))
            .collect();
        taken.sort_unstable();
        taken.is_sorted_by(|(place, size), (next, _)| place + size <= *next)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// No block overlaps another, whatever the order, and each is where the first hole was that takes it; when all
        /// are free nothing is left but the top.
        #[test]
        fn blocks_are_apart_and_all_comes_back(steps in proptest::collection::vec((0..3_u8, 1..5000_usize, any::<prop::sample::Index>()), 0..STEPS)) {
            let mut state = Own::new();
            let mut blocks: Vec<Block> = Vec::new();
            for (number, (what, size, which)) in steps.into_iter().enumerate() {
                let mark = u8::try_from(number % 256).unwrap();
                if what < 2 || blocks.is_empty() {
                    let expected = first_fit(&state, &blocks, rounded(size));
                    let block = Block(state.take(rounded(size)), size, mark);
                    prop_assert_eq!(block.0, expected);
                    prop_assert!(state.holds(block.0) && block.0.addr().is_multiple_of(UNIT));
                    block.fill();
                    blocks.push(block);
                } else {
                    let block = blocks.swap_remove(which.index(blocks.len()));
                    block.check();
                    state.give(block.0, rounded(block.1));
                }
                if number % 8 == 0 {
                    blocks.iter().for_each(Block::check);
                }
            }
            for block in blocks.drain(..) {
                block.check();
                state.give(block.0, rounded(block.1));
            }
            prop_assert!(state.free == NONE && state.top == 0);
            state.trim(0);
            prop_assert!(state.used <= SLACK.next_multiple_of(state.page));
        }

        /// An allocator's duties, whatever is asked in whatever order: blocks are aligned and apart, keep their content when
        /// they are resized, and all of them come back. A size that cannot be aligned is refused.
        #[test]
        fn content_is_kept_and_alignment_is_right_or_refused(steps in proptest::collection::vec(step(), 0..STEPS / 2)) {
            let mut state = Own::new();
            let mut blocks: Vec<(Block, Layout)> = Vec::new();
            for (number, (what, size, align, which)) in steps.into_iter().enumerate() {
                let mark = u8::try_from(number % 256).unwrap();
                let layout = Layout::from_size_align(size, align).unwrap();
                if what == Step::Allocate || blocks.is_empty() {
                    let place = state.allocate(layout);
                    prop_assert_eq!(place.is_null(), align > MIN_PAGE_BYTES);
                    if place.is_null() {
                        continue;
                    }
                    blocks.push((Block(place, size, mark), layout));
                } else {
                    let (block, old) = blocks.swap_remove(which.index(blocks.len()));
                    block.check();
                    if what == Step::Free {
                        // SAFETY: it was allocated with this layout, and is forgotten.
                        unsafe { state.free(block.0, old) };
                        continue;
                    }
                    // SAFETY: as above; sizes are far below the limit.
                    let place = unsafe { state.resize(block.0, old, size) };
                    prop_assert!(!place.is_null());
                    Block(place, size.min(block.1), block.2).check();
                    let layout = Layout::from_size_align(size, old.align()).unwrap();
                    blocks.push((Block(place, size, mark), layout));
                }
                let (block, layout) = blocks.last().unwrap();
                prop_assert!(block.0.addr().is_multiple_of(layout.align()));
                block.fill();
                prop_assert!(are_apart(&blocks));
            }
            for (block, layout) in blocks {
                block.check();
                // SAFETY: as above.
                unsafe { state.free(block.0, layout) };
            }
            prop_assert!(state.free == NONE && state.top == 0);
        }
    }

    #[test]
    fn the_last_block_grows_in_place_and_no_other() {
        let mut state = Own::new();
        let (first, last) = (state.take(32), state.take(32));
        assert!(!state.stretch(first, 32, 64));
        assert!(state.stretch(last, 32, 4096));
        assert_eq!(state.top, 32 + 4096);
    }

    #[test]
    fn sizes_beyond_the_reserve_are_mappings_of_their_own() {
        let mut state = Own::new();
        state.usable = RESERVED;
        state.top = RESERVED;
        let block = state.take(64);
        assert!(!block.is_null() && !state.holds(block));
        // SAFETY: it is a mapping of that size.
        unsafe { pages::unmap(block, 64) };
    }

    #[test]
    fn without_a_reserve_there_are_mappings() {
        let mut state = State::new();
        let block = state.take(64);
        assert!(!block.is_null() && !state.holds(block));
        // SAFETY: it is a mapping of that size.
        unsafe { pages::unmap(block, 64) };
    }

    /// Frees every second of so many blocks in any order, then takes as many again that fit into no hole.
    fn scattered(count: usize) -> Duration {
        let mut state = Own::new();
        let mut blocks: Vec<*mut u8> = (0..2 * count).map(|_| state.take(32)).collect();
        let mut holes: Vec<*mut u8> = blocks.iter().copied().step_by(2).collect();
        holes.sort_by_key(|block| block.addr().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let begun = cpu_time();
        for hole in holes {
            state.give(hole, 32);
        }
        blocks.extend((0..count).map(|_| state.take(48)));
        cpu_time().saturating_sub(begun)
    }

    /// The time of this thread: other work of the machine is not counted.
    fn cpu_time() -> Duration {
        let mut time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the structure is live.
        let got = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        assert_eq!(got, 0);
        Duration::new(
            u64::try_from(time.tv_sec).unwrap(),
            u32::try_from(time.tv_nsec).unwrap(),
        )
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri's time says nothing of the processor's")]
    fn the_time_grows_with_the_blocks_and_not_with_their_square() {
        const FEW: usize = 2_000;
        const TIMES: u32 = 16;
        let best = |count| (0..3).map(|_| scattered(count)).min().unwrap();
        let (few, many) = (best(FEW), best(FEW * TIMES as usize));
        // A square would be 16 times as much again.
        assert!(
            many < few * TIMES * 5,
            "{few:?}, and {many:?} for {TIMES} times as many"
        );
    }
}
