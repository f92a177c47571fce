//! A request of state of the world, read while it comes.
//!
//! An acknowledgement repeats all names of its type: some 40 kB, and two thousand proxies acknowledge a push at the same time.
//! So names are compared with those that the stream has as they come, and equal ones are not kept. They come in whatever order a
//! client has them in: Envoy's is that of hash sets.

mod received_names;

use std::mem;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};

use self::received_names::ReceivedNames;
use super::{FIELD, NameList, ResourceNames};

/// Bytes of the other fields that are kept apart. A request with more, which has a refusal's words, is read whole.
const REST_BYTES: usize = 4 << 10;

/// The reader of one request after the other.
#[derive(Debug, Default)]
pub struct RequestReader {
    /// The fields that are not names, as they came.
    rest: Vec<u8>,
    /// The names that came, all of one list.
    names: ReceivedNames,
    /// A field is not what an acknowledgement has: it and what follows it stay in the bytes that are not taken.
    differs: bool,
}

/// The field at the beginning of some bytes, and how many of them it has.
enum WireField<'a> {
    Name(&'a [u8], usize),
    Other(usize),
    /// The message is incomplete.
    Partial,
    /// A decoder says what is wrong with it, if anything is.
    Strange,
}

impl RequestReader {
    /// Takes whole fields of a request that has begun; returns how many bytes they have. Given are all bytes that have come
    /// and were not taken before. `list` finds a list that has a name.
    pub fn take(&mut self, come: &[u8], list: impl Fn(&str) -> Option<Arc<dyn NameList>>) -> usize {
        let mut bytes = come;
        while !self.differs && !bytes.is_empty() {
            let length = match field(bytes) {
                WireField::Name(name, length) if self.repeats(name, &list) => length,
                WireField::Other(length) if self.rest.len() + length <= REST_BYTES => {
                    self.rest.extend(bytes.iter().take(length));
                    length
                }
                WireField::Partial => break,
                WireField::Name(..) | WireField::Other(_) | WireField::Strange => {
                    self.differs = true;
                    break;
                }
            };
            bytes = bytes.get(length..).unwrap_or_default();
        }
        come.len() - bytes.len()
    }

    /// Returns true if the name belongs to the list of the names before it, and is new.
    fn repeats(&mut self, name: &[u8], list: impl Fn(&str) -> Option<Arc<dyn NameList>>) -> bool {
        if self.names.is_empty()
            && let Ok(name) = std::str::from_utf8(name)
            && let Some(list) = list(name)
        {
            self.names = ReceivedNames::of(list);
        }
        self.names.insert(name)
    }

    /// Bytes that it keeps of the request.
    #[must_use]
    pub fn retained(&self) -> usize {
        self.rest.len() + self.names.bytes()
    }

    /// Ends the request, of which these bytes were not taken: returns the message, and its names where the message is
    /// without them.
    pub fn finish(&mut self, bytes: Bytes) -> (Bytes, Option<ResourceNames>) {
        let Self { rest, names, .. } = mem::take(self);
        if bytes.is_empty()
            && let Some(names) = names.all()
        {
            return (rest.into(), Some(names));
        }
        if rest.is_empty() && names.is_empty() {
            return (bytes, None);
        }
        // The order of fields has no meaning but among names.
        let mut message = BytesMut::from(&*rest);
        names.iter().for_each(|name| super::put(name, &mut message));
        message.put(bytes);
        (message.freeze(), None)
    }
}

/// Looks at the first field. Strange is what a client does not write: groups, and numbers in more bytes than they need.
fn field(bytes: &[u8]) -> WireField<'_> {
    let (key, start) = match varint(bytes) {
        Ok(Some(found)) => found,
        Ok(None) => return WireField::Partial,
        Err(Overlong) => return WireField::Strange,
    };
    let behind = bytes.get(start..).unwrap_or_default();
    let value = match key & 7 {
        0 => varint(behind).map(|found| found.map(|(_, size)| (size, 0))),
        1 => Ok(Some((0, 8))),
        2 => varint(behind).map(|found| found.map(|(length, size)| (size, length))),
        5 => Ok(Some((0, 4))),
        _ => Err(Overlong),
    };
    let (size, length) = match value {
        Ok(Some(value)) => value,
        Ok(None) => return WireField::Partial,
        Err(Overlong) => return WireField::Strange,
    };
    let Some(value) = behind.get(size..).and_then(|behind| behind.get(..length)) else {
        return WireField::Partial;
    };
    let whole = start + size + length;
    match key {
        NAME => WireField::Name(value, whole),
        // A decoder has to refuse these: a name that is no string, and field 0.
        _ if key >> 3 == FIELD as usize || key >> 3 == 0 => WireField::Strange,
        _ => WireField::Other(whole),
    }
}

/// The key of a name: its field, and that its length is before it.
const NAME: usize = (FIELD as usize) << 3 | 2;

/// A number is longer than any in an acknowledgement.
struct Overlong;

/// Reads a number of up to 28 bits, and how many bytes it has; `None`: it has not come to its end.
fn varint(bytes: &[u8]) -> Result<Option<(usize, usize)>, Overlong> {
    let mut number = 0;
    for (at, byte) in bytes.iter().enumerate().take(4) {
        number |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((number, at + 1)));
        }
    }
    if bytes.len() < 4 {
        Ok(None)
    } else {
        Err(Overlong)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[derive(Debug)]
    struct List(Vec<String>);

    impl NameList for List {
        fn count(&self) -> usize {
            self.0.len()
        }

        fn name(&self, at: usize) -> Option<&str> {
            self.0.get(at).map(String::as_str)
        }
    }

    #[derive(Clone, PartialEq, Message)]
    struct Request {
        #[prost(string, tag = "1")]
        version: String,
        #[prost(bytes, tag = "2")]
        node: Vec<u8>,
        #[prost(string, repeated, tag = "3")]
        names: Vec<String>,
        #[prost(string, tag = "4")]
        url: String,
        #[prost(uint32, tag = "7")]
        number: u32,
        #[prost(fixed64, tag = "9")]
        other: u64,
    }

    /// The request that a reader makes of bytes in pieces, and the most that was kept before the end.
    struct ReadRequest {
        /// With its names sorted: they are a set.
        request: Option<Request>,
        names_apart: bool,
        max: usize,
    }

    fn sorted(mut request: Request) -> Request {
        request.names.sort();
        request
    }

    fn hear(
        reader: &mut RequestReader,
        list: &Arc<List>,
        bytes: &[u8],
        sizes: &[usize],
    ) -> ReadRequest {
        let find = |first: &str| {
            let list: Arc<dyn NameList> = list.clone();
            let mut names = (0..list.count()).map_while(|at| list.name(at));
            names.any(|name| name == first).then(|| Arc::clone(&list))
        };
        let (mut left, mut come) = (bytes, Vec::new());
        let mut max = 0;
        for size in sizes.iter().cycle() {
            let (piece, behind) = left.split_at((*size).min(left.len()));
            left = behind;
            come.extend_from_slice(piece);
            let taken = reader.take(&come, find);
            come.drain(..taken);
            if left.is_empty() {
                break;
            }
            max = max.max(come.len() + reader.retained());
        }
        let (message, names) = reader.finish(come.into());
        assert!(!reader.differs && reader.rest.is_empty() && reader.names.is_empty());
        let names_apart = names.is_some();
        let names = names.map_or_else(|| ResourceNames::of_request(message.clone()).ok(), Some);
        let request = Request::decode(message).ok().zip(names);
        let request = request.map(|(mut request, names)| {
            request.names = names.iter().map(str::to_owned).collect();
            sorted(request)
        });
        ReadRequest {
            request,
            names_apart,
            max,
        }
    }

    fn sizes() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(1..40_usize, 1..9)
    }

    prop_compose! {
        /// An acknowledgement of the list in any order, or one that differs from it in one name, or has more or fewer.
        fn names()(
            (list, shuffled) in prop::collection::btree_set("[ab]{0,9}", 0..9)
                .prop_map(Vec::from_iter)
                .prop_flat_map(|list| (Just(list.clone()), Just(list).prop_shuffle())),
            in_order: bool,
            other in "[ab]{0,9}",
            at in 0..9_usize,
            change in 0..5,
        ) -> (Arc<List>, Vec<String>) {
            let mut names = if in_order { list.clone() } else { shuffled };
            match change {
                0 => {}
                1 => names.truncate(at),
                2 => names.insert(at.min(list.len()), other),
                3 => names.extend(list.get(at).cloned()),
                _ => names.iter_mut().skip(at).take(1).for_each(|name| name.clone_from(&other)),
            }
            (Arc::new(List(list)), names)
        }
    }

    proptest! {
        #[test]
        fn a_request_in_pieces_is_what_a_decoder_reads(
            (list, names) in names(),
            version in "\\PC{0,5}",
            node in prop::collection::vec(any::<u8>(), 0..20),
            number: u32,
            other: u64,
            sizes in sizes(),
        ) {
            let request = Request { version, node, names, url: "type".into(), number, other };
            let mut reader = RequestReader::default();
            let bytes = request.encode_to_vec();
            for _ in 0..2 {
                let read = hear(&mut reader, &list, &bytes, &sizes);
                prop_assert_eq!(read.request, Some(sorted(request.clone())));
            }
        }

        /// Neither a panic nor a verdict of its own.
        #[test]
        fn pieces_are_read_as_a_decoder_reads_the_whole(
            (list, names) in names(),
            begin in prop::collection::vec(any::<u8>(), 0..20),
            end in prop::collection::vec(any::<u8>(), 0..20),
            sizes in sizes(),
        ) {
            let named = Request { names, ..Request::default() }.encode_to_vec();
            let bytes = [begin, named, end].concat();
            let read = hear(&mut RequestReader::default(), &list, &bytes, &sizes);
            prop_assert_eq!(read.request, Request::decode(&*bytes).ok().map(sorted));
        }
    }

    fn acknowledgement(names: usize) -> (Arc<List>, Request) {
        let names: Vec<_> = (0..names)
            .map(|at| format!("outbound|80||svc-{at:05}.demo"))
            .collect();
        let request = Request {
            version: "7".into(),
            names: names.clone(),
            url: "type".into(),
            ..Request::default()
        };
        (Arc::new(List(names)), request)
    }

    #[test]
    fn known_names_take_no_memory() {
        let (list, request) = acknowledgement(1000);
        let bytes = request.encode_to_vec();
        for size in [1, 7, 1000, 8183] {
            let read = hear(&mut RequestReader::default(), &list, &bytes, &[size]);
            assert_eq!(read.request.as_ref(), Some(&request));
            assert!(read.names_apart && read.max < 64, "{}", read.max);
        }
    }

    #[test]
    fn names_in_another_order_take_a_bit() {
        let (list, mut request) = acknowledgement(1000);
        let orders: [fn(&mut Vec<String>); 3] = [
            |names| names.reverse(),
            |names| names.rotate_left(300),
            |names| names.sort_by_key(|name| name.bytes().rev().collect::<Vec<_>>()),
        ];
        for order in orders {
            order(&mut request.names);
            let bytes = request.encode_to_vec();
            for size in [1, 7, 1000, 8183] {
                let read = hear(&mut RequestReader::default(), &list, &bytes, &[size]);
                assert_eq!(read.request, Some(sorted(request.clone())));
                let max = 64 + 1000_usize.div_ceil(64) * 8;
                assert!(read.names_apart && read.max < max, "{}", read.max);
            }
        }
    }

    #[test]
    fn names_of_which_some_are_missing_are_put_together() {
        let (list, mut request) = acknowledgement(100);
        request.names.reverse();
        request.names.remove(50);
        let bytes = request.encode_to_vec();
        let read = hear(&mut RequestReader::default(), &list, &bytes, &[100]);
        assert_eq!(read.request, Some(sorted(request)));
        assert!(!read.names_apart);
    }

    #[test]
    fn names_that_end_early_are_the_first_ones() {
        let (list, mut request) = acknowledgement(100);
        request.names.pop();
        let bytes = request.encode_to_vec();
        let read = hear(&mut RequestReader::default(), &list, &bytes, &[100]);
        assert_eq!(read.request, Some(request));
        assert!(read.names_apart);
    }

    #[test]
    fn other_fields_take_little_memory() {
        let (list, mut request) = acknowledgement(100);
        request.node = vec![0; 2 * REST_BYTES];
        let bytes = request.encode_to_vec();
        let mut reader = RequestReader::default();
        assert_eq!(reader.take(&bytes, |_| None), 3);
        assert_eq!(reader.retained(), 3);
        let read = hear(&mut RequestReader::default(), &list, &bytes, &[100]);
        assert_eq!(read.request, Some(request));
        assert!(!read.names_apart);
    }
}
