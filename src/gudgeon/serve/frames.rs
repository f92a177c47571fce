//! The borders of HTTP/2 frames: hyper has no timeout for a frame that has come in part.
//!
//! Only the nine bytes before each frame are read. Their meaning is hyper's business, and so is their order.

use tokio::time::Instant;

/// The client's preface.
const PREFACE: usize = 24;
/// Length (3), type, flags, stream (4).
const HEAD: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
/// The flag of a header block's last frame.
const END_HEADERS: u8 = 4;

/// The position in a connection's bytes.
#[derive(Debug, Default)]
pub(super) struct Frames {
    preface: usize,
    head: [u8; HEAD],
    /// Bytes of `head` that have arrived.
    have: usize,
    /// The missing bytes of the frame.
    missing: usize,
    /// A header block goes on in the next frame.
    block: bool,
    /// The time at which the present incomplete frame began.
    since: Option<Instant>,
}

impl Frames {
    /// Processes received bytes.
    pub(super) fn take(&mut self, mut bytes: &[u8], now: Instant) {
        while !bytes.is_empty() {
            bytes = self.step(bytes);
            if self.is_between() {
                self.since = None;
            } else {
                self.since.get_or_insert(now);
            }
        }
    }

    /// Returns the time since which a frame or a header block is incomplete. Bodies have a timeout of their own.
    pub(super) fn open_since(&self) -> Option<Instant> {
        // DATA inside a header block is hyper's to refuse; it must not stop the block's clock.
        let is_body = self.missing > 0 && !self.block && self.kind() == DATA;
        self.since.filter(|_| !is_body)
    }

    fn kind(&self) -> u8 {
        let [.., kind, _, _, _, _, _] = self.head;
        kind
    }

    fn is_between(&self) -> bool {
        self.have == 0 && self.missing == 0 && !self.block
    }

    /// Processes one piece: the preface, the head of a frame, or its payload. Returns the rest.
    fn step<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        if self.preface < PREFACE {
            let (part, rest) = bytes.split_at(bytes.len().min(PREFACE - self.preface));
            self.preface += part.len();
            return rest;
        }
        if self.missing > 0 {
            let (part, rest) = bytes.split_at(bytes.len().min(self.missing));
            self.missing -= part.len();
            self.end();
            return rest;
        }
        let (part, rest) = bytes.split_at(bytes.len().min(HEAD - self.have));
        for (place, byte) in self.head.iter_mut().skip(self.have).zip(part) {
            *place = *byte;
        }
        self.have += part.len();
        if self.have == HEAD {
            let [high, middle, low, ..] = self.head;
            self.missing = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            self.end();
        }
        rest
    }

    /// Handles the end of a frame, which may be empty.
    fn end(&mut self) {
        if self.missing > 0 {
            return;
        }
        self.have = 0;
        let [.., kind, flags, _, _, _, _] = self.head;
        if matches!(kind, HEADERS | CONTINUATION) {
            self.block = flags & END_HEADERS == 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn frame(kind: u8, flags: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, kind, flags, 0, 0, 0, 1];
        bytes.resize(HEAD + usize::from(length), 7);
        bytes
    }

    /// Returns the time since which a frame is open after these pieces, which follow a preface, a second apart.
    fn after(pieces: &[&[u8]]) -> Option<u64> {
        let start = Instant::now();
        let mut frames = Frames::default();
        frames.take(&[b'P'; PREFACE], start);
        for (second, piece) in (0..).zip(pieces) {
            frames.take(piece, start + Duration::from_secs(second));
        }
        frames.open_since().map(|since| (since - start).as_secs())
    }

    #[test]
    fn whole_frames_leave_nothing_open() {
        assert_eq!(after(&[]), None);
        let all = [
            frame(HEADERS, END_HEADERS, 5),
            frame(DATA, 0, 9),
            frame(6, 0, 8),
            frame(4, 1, 0),
        ]
        .concat();
        assert_eq!(after(&[&all]), None);
        // Byte by byte.
        let pieces: Vec<&[u8]> = all.chunks(1).collect();
        assert_eq!(after(&pieces), None);
    }

    #[test]
    fn a_part_counts_from_its_first_byte() {
        let head = frame(HEADERS, END_HEADERS, 5);
        for cut in [1, HEAD - 1, HEAD, HEAD + 4] {
            let (first, second) = head.split_at(cut);
            assert_eq!(after(&[&frame(6, 0, 8), first]), Some(1), "{cut}");
            assert_eq!(
                after(&[first, &second[..second.len() - 1]]),
                Some(0),
                "{cut}"
            );
            assert_eq!(after(&[first, second]), None, "{cut}");
        }
        // One ends and another begins: a new time.
        let both = [&head[7..], &head[..3]].concat();
        assert_eq!(after(&[&head[..7], &both]), Some(1));
    }

    #[test]
    fn a_header_block_is_open_until_its_last_frame() {
        let (begin, goes_on) = (frame(HEADERS, 0, 5), frame(CONTINUATION, 0, 0));
        let end = frame(CONTINUATION, END_HEADERS, 2);
        assert_eq!(after(&[&begin]), Some(0));
        assert_eq!(after(&[&begin, &goes_on, &goes_on]), Some(0));
        assert_eq!(after(&[&begin, &goes_on, &end]), None);
        assert_eq!(after(&[&begin, &end, &begin]), Some(2));
    }

    #[test]
    fn bodies_have_their_own_time() {
        assert_eq!(after(&[&frame(DATA, 0, 9)[..12]]), None);
        // The nine bytes before it are no body yet.
        assert_eq!(after(&[&frame(DATA, 0, 9)[..8]]), Some(0));
    }

    #[test]
    fn the_preface_is_no_frame() {
        let mut frames = Frames::default();
        frames.take(b"PRI * HTTP/2.0", Instant::now());
        frames.take(b"\r\n\r\nSM\r\n\r\n", Instant::now());
        frames.take(&frame(4, 0, 6), Instant::now());
        assert_eq!(frames.open_since(), None);
    }

    /// Returns true if a frame or a header block is open after these bytes, which begin behind the preface.
    fn is_open(mut bytes: &[u8]) -> bool {
        let mut block = false;
        loop {
            let &[high, middle, low, kind, flags, _, _, _, _, ref rest @ ..] = bytes else {
                return block || !bytes.is_empty();
            };
            let length = u32::from_be_bytes([0, high, middle, low]) as usize;
            let Some(after) = rest.get(length..) else {
                return block || kind != DATA;
            };
            if matches!(kind, HEADERS | CONTINUATION) {
                block = flags & END_HEADERS == 0;
            }
            bytes = after;
        }
    }

    /// Three frames of any kind and length, in pieces of any size, whole or not.
    #[test]
    fn pieces_make_no_difference() {
        const SIZES: [usize; 5] = [1, 2, 7, 13, 40];
        let kinds = [
            (DATA, 0),
            (HEADERS, 0),
            (HEADERS, END_HEADERS),
            (CONTINUATION, 0),
            (CONTINUATION, END_HEADERS),
            (4, END_HEADERS),
        ];
        let all = kinds.map(|(kind, flags)| [0, 1, 11].map(|length| frame(kind, flags, length)));
        let all = all.as_flattened();
        let now = Instant::now();
        for (first, second, third) in all.iter().flat_map(|a| {
            all.iter()
                .flat_map(move |b| all.iter().map(move |c| (a, b, c)))
        }) {
            let bytes = [first.as_slice(), second, third].concat();
            for size in SIZES {
                let mut taken = Frames::default();
                taken.take(&[b'P'; PREFACE], now);
                let mut end = 0;
                for piece in bytes.chunks(size) {
                    taken.take(piece, now);
                    end += piece.len();
                    let so_far = &bytes[..end];
                    assert_eq!(taken.open_since().is_some(), is_open(so_far), "{so_far:?}");
                }
            }
        }
    }
}
