//! Reads a message from its bytes, when all of it is there or while it comes.

use std::marker::PhantomData;

use bytes::Buf as _;
use hyper::body::Bytes;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};
use prost::{DecodeError, Message};
use tonic::Status;

/// A message that is read from a stream.
pub(crate) trait FromMessage: Sized {
    /// Decodes a whole message. The result may share its memory.
    ///
    /// # Errors
    /// It is malformed.
    fn from_message(message: Bytes) -> Result<Self, String>;
}

impl<M: Message + Default> FromMessage for M {
    fn from_message(message: Bytes) -> Result<Self, String> {
        Message::decode(message).map_err(|cause| cause.to_string())
    }
}

/// A reader of one message after the other.
pub(crate) trait MessageReader {
    type Message;

    /// Takes from the beginning of what has come of the message and was not taken before; returns how many bytes.
    fn take(&mut self, come: &[u8]) -> usize;

    /// Bytes that it keeps of the message.
    fn retained(&self) -> usize;

    /// Ends the message, of which these bytes were not taken.
    ///
    /// # Errors
    /// It is malformed, or a field has more values than these.
    fn finish(&mut self, bytes: Bytes, values: usize) -> Result<Self::Message, Status>;
}

/// Reads messages when they are whole.
pub(crate) struct WholeMessages<M>(PhantomData<fn() -> M>);

impl<M> Default for WholeMessages<M> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<M: FromMessage> MessageReader for WholeMessages<M> {
    type Message = M;

    fn take(&mut self, _come: &[u8]) -> usize {
        0
    }

    fn retained(&self) -> usize {
        0
    }

    fn finish(&mut self, bytes: Bytes, values: usize) -> Result<M, Status> {
        read(bytes, values)
    }
}

/// Decodes a message of which no field has more values than these.
pub(crate) fn read<M: FromMessage>(message: Bytes, max: usize) -> Result<M, Status> {
    let wrong = |cause: String| Status::invalid_argument(format!("cannot read a message: {cause}"));
    let values = most_values(message.clone()).map_err(|cause| wrong(cause.to_string()))?;
    if values > max {
        return Err(Status::resource_exhausted(format!(
            "cannot read a message with {values} values of one field: {max} are allowed"
        )));
    }
    M::from_message(message).map_err(wrong)
}

/// Returns the count of the most repeated field.
fn most_values(mut message: Bytes) -> Result<usize, DecodeError> {
    // The messages read here number their fields below 16, and prost skips other fields without allocating.
    let mut counts = [0_usize; 16];
    while message.has_remaining() {
        let (tag, kind) = decode_key(&mut message)?;
        skip_field(kind, tag, &mut message, DecodeContext::default())?;
        let slot = usize::try_from(tag)
            .ok()
            .and_then(|tag| counts.get_mut(tag));
        if let Some(count) = slot.filter(|_| kind == WireType::LengthDelimited) {
            *count += 1;
        }
    }
    Ok(counts.into_iter().max().unwrap_or_default())
}
