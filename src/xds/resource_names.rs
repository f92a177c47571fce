//! The names of one request, in the message that brought them.
//!
//! An acknowledgement repeats all names of its type: a thousand strings for each proxy and push, made, compared once and thrown
//! away. So names stay in the memory that they came in, and each is looked at where it is; and those that a stream has
//! already do not even stay ([`RequestReader`]).

mod request_reader;

use std::fmt;
use std::sync::Arc;

use bytes::{BufMut, Bytes};
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};

pub use self::request_reader::RequestReader;

/// `resource_names` of `DiscoveryRequest`, and `resource_names_subscribe` of `DeltaDiscoveryRequest`.
const FIELD: u32 = 3;

/// A request whose names cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes are not a protobuf message.
    Message(DecodeError),
    /// A name is not a string: the field has another type, ends behind the message, or is not UTF-8.
    Name(&'static str),
}

impl fmt::Display for Malformed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message(cause) => cause.fmt(to),
            Self::Name(cause) => to.write_str(cause),
        }
    }
}

impl std::error::Error for Malformed {}

impl From<DecodeError> for Malformed {
    fn from(cause: DecodeError) -> Self {
        Self::Message(cause)
    }
}

/// Names that a stream has, sorted, each once.
pub trait NameList: fmt::Debug + Send + Sync {
    /// Returns how many there are.
    fn count(&self) -> usize;

    /// Returns the name at this place.
    fn name(&self, at: usize) -> Option<&str>;
}

/// Names, in the order in which the client wrote them; those that a stream has, in the order of its list.
#[derive(Clone, Default)]
pub struct ResourceNames {
    names: NameSource,
    count: usize,
}

#[derive(Clone)]
enum NameSource {
    /// The [`FIELD`] of a message of protobuf.
    Message(Bytes),
    /// The first ones of a list.
    List(Arc<dyn NameList>),
}

impl Default for NameSource {
    fn default() -> Self {
        Self::Message(Bytes::new())
    }
}

impl ResourceNames {
    /// Finds the names of an encoded request of either protocol.
    ///
    /// # Errors
    /// It is not a message of protobuf, or a name is not UTF-8.
    pub fn of_request(message: Bytes) -> Result<Self, Malformed> {
        let mut rest = &*message;
        let mut count = 0;
        while next(&mut rest)?.is_some() {
            count += 1;
        }
        Ok(Self {
            names: NameSource::Message(message),
            count,
        })
    }

    /// The first ones of a list, so many.
    fn first_of(list: Arc<dyn NameList>, count: usize) -> Self {
        Self {
            names: NameSource::List(list),
            count,
        }
    }

    /// Returns true if they are all of this list, and came from it. If not, they may still be equal.
    pub fn is_list<L: NameList>(&self, list: &Arc<L>) -> bool {
        let is_of_it = match &self.names {
            NameSource::Message(_) => false,
            // The address alone says which list it is: pointers to one object may have different vtables.
            NameSource::List(of) => Arc::as_ptr(of).cast::<()>() == Arc::as_ptr(list).cast::<()>(),
        };
        is_of_it && self.count == list.count()
    }

    /// Returns how many there are; one that is repeated counts each time.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns them one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let (mut message, list) = match &self.names {
            NameSource::Message(message) => (&**message, None),
            NameSource::List(list) => (&[][..], Some(list)),
        };
        (0..self.count).map_while(move |at| match list {
            // The message was read once from its beginning to its end, so it has no error.
            None => next(&mut message).ok().flatten(),
            Some(list) => list.name(at),
        })
    }
}

/// Returns true if two names are equal. They begin alike, and the C library compares bytes one by one.
pub fn equal(one: &[u8], other: &[u8]) -> bool {
    let ((one, rest), (other, end)) = (one.as_chunks(), other.as_chunks());
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    one.len() == other.len()
        && rest == end
        && one
            .iter()
            .zip(other)
            .all(|(one, other)| word(one) == word(other))
}

/// Adds a name to a message.
fn put(name: &str, message: &mut impl BufMut) {
    prost::encoding::encode_key(FIELD, WireType::LengthDelimited, message);
    prost::encoding::encode_varint(name.len().try_into().unwrap_or(u64::MAX), message);
    message.put_slice(name.as_bytes());
}

/// Takes the message up to the end of the next name.
fn next<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a str>, Malformed> {
    while !rest.is_empty() {
        let (field, kind) = decode_key(rest)?;
        if field != FIELD {
            skip_field(kind, field, rest, DecodeContext::default())?;
            continue;
        }
        if kind != WireType::LengthDelimited {
            return Err(Malformed::Name("a name is not a string"));
        }
        let length = usize::try_from(decode_varint(rest)?).unwrap_or(usize::MAX);
        let (name, behind) = rest
            .split_at_checked(length)
            .ok_or(Malformed::Name("a name ends behind its message"))?;
        *rest = behind;
        return std::str::from_utf8(name)
            .map(Some)
            .map_err(|_| Malformed::Name("a name is not UTF-8"));
    }
    Ok(None)
}

impl<S: AsRef<str>> FromIterator<S> for ResourceNames {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        let mut message = Vec::new();
        let mut count = 0;
        for name in names {
            put(name.as_ref(), &mut message);
            count += 1;
        }
        Self {
            names: NameSource::Message(message.into()),
            count,
        }
    }
}

impl<S: AsRef<str>> From<Vec<S>> for ResourceNames {
    fn from(names: Vec<S>) -> Self {
        names.into_iter().collect()
    }
}

impl<S: AsRef<str>, const COUNT: usize> From<[S; COUNT]> for ResourceNames {
    fn from(names: [S; COUNT]) -> Self {
        names.into_iter().collect()
    }
}

impl PartialEq for ResourceNames {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.iter().eq(other.iter())
    }
}

impl Eq for ResourceNames {}

impl fmt::Debug for ResourceNames {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Request {
        #[prost(string, tag = "1")]
        version: String,
        #[prost(string, repeated, tag = "3")]
        names: Vec<String>,
        #[prost(string, tag = "5")]
        nonce: String,
        #[prost(fixed64, tag = "9")]
        other: u64,
    }

    proptest! {
        #[test]
        fn names_of_a_request_are_those_that_a_decoder_finds(
            version in "\\PC{0,5}",
            names in prop::collection::vec("\\PC{0,9}", 0..9),
            other: u64,
        ) {
            let request = Request { version, names: names.clone(), nonce: "7".into(), other };
            let found = ResourceNames::of_request(request.encode_to_vec().into()).unwrap();
            prop_assert_eq!(found.len(), names.len());
            prop_assert!(found.iter().eq(&names));
            prop_assert_eq!(found, ResourceNames::from(names));
        }

        /// Neither a panic nor a verdict of its own: prost reads the same bytes, or refuses them.
        #[test]
        fn names_are_read_as_a_decoder_reads_them(bytes: Vec<u8>) {
            #[derive(Clone, PartialEq, Message)]
            struct Only {
                #[prost(string, repeated, tag = "3")]
                names: Vec<String>,
            }
            let decoded = Only::decode(&*bytes).ok().map(|decoded| decoded.names);
            let found = ResourceNames::of_request(bytes.into()).ok();
            let found = found.map(|found| found.iter().map(str::to_owned).collect());
            prop_assert_eq!(found, decoded);
        }
    }

    #[test]
    fn names_are_equal_in_every_byte() {
        let name = b"outbound|8080||a.demo";
        assert!(equal(name, name) && equal(b"", b""));
        for at in 0..name.len() {
            let mut other = name.to_vec();
            other[at] = b'_';
            assert!(!equal(name, &other), "{other:?}");
            assert!(!equal(name, &name[at..]) || at == 0);
            assert!(!equal(&name[..at], name));
        }
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        for (bytes, part) in [
            (&b"\x1a\x02\xff\xfe"[..], "UTF-8"),
            (b"\x1a\x05ab", "behind its message"),
            (b"\x18\x05", "not a string"),
            (b"\x1a", ""),
        ] {
            let cause = ResourceNames::of_request(Bytes::from_static(bytes)).unwrap_err();
            assert!(cause.to_string().contains(part), "{cause}");
        }
    }
}
