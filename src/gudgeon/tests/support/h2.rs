//! Frames of HTTP/2 by hand, for what no library sends.

use std::io::Read as _;

use super::Client;

/// A frame: type, flags, stream, payload.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The preface, and a window for each answer.
pub fn hello(window: u32) -> Vec<u8> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut setting = vec![0, 4];
    setting.extend(window.to_be_bytes());
    bytes.extend(frame(4, 0, 0, &setting));
    bytes
}

/// Headers of a review.
pub fn block(path: &str) -> Vec<u8> {
    head(path, "application/json")
}

/// Encodes the headers of a POST: the static table by index, the rest as literals without indexing.
pub fn head(path: &str, content_type: &str) -> Vec<u8> {
    let literal = |name: &[u8], value: &str| {
        let mut bytes = name.to_vec();
        bytes.push(u8::try_from(value.len()).unwrap());
        bytes.extend_from_slice(value.as_bytes());
        bytes
    };
    let mut block = vec![0x83, 0x87];
    block.extend(literal(&[0x04], path));
    block.extend(literal(&[0x01], "localhost"));
    block.extend(literal(&[0x0f, 0x10], content_type));
    block
}

/// A whole request; its body in frames that any peer takes.
pub fn request(stream: u32, path: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = frame(1, 4, stream, &block(path));
    let mut parts = body.chunks(16_000).peekable();
    while let Some(part) = parts.next() {
        let end = u8::from(parts.peek().is_none());
        bytes.extend(frame(0, end, stream, part));
    }
    bytes
}

pub fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &8_u32.to_be_bytes())
}

fn next(client: &mut Client) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 9];
    client.stream.read_exact(&mut head).ok()?;
    let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
    let mut payload = vec![0; length];
    client.stream.read_exact(&mut payload).ok()?;
    Some((head[3], payload))
}

/// The code of the farewell.
pub fn goaway(client: &mut Client) -> Option<u32> {
    let mut last = None;
    while let Some((kind, payload)) = next(client) {
        if kind == 7 {
            last = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            if last != Some(0) {
                break;
            }
        }
    }
    last
}

/// Reads until a frame of each of these types has come; returns false if one does not come, or a farewell is for an error.
pub fn sees(client: &mut Client, kinds: &[u8]) -> bool {
    let mut missing = kinds.to_vec();
    while !missing.is_empty() {
        let Some((kind, payload)) = next(client) else {
            return false;
        };
        if kind == 7 && payload[4..8] != [0; 4] {
            return false;
        }
        missing.retain(|wanted| *wanted != kind);
    }
    true
}

/// The status of the next answer, where it is one that the static table has or a literal.
pub fn status(client: &mut Client) -> Option<u16> {
    while let Some((kind, payload)) = next(client) {
        if kind == 1 {
            return match payload[0] {
                0x88 => Some(200),
                0x8d => Some(404),
                // A literal with the name `:status`, three digits, maybe in Huffman's code.
                0x48 if payload[1] == 3 => std::str::from_utf8(&payload[2..5]).ok()?.parse().ok(),
                // 4: 011010, 3: 011001, 1: 00001, the rest ones.
                0x48 if payload[1..5] == [0x83, 0x69, 0x90, 0xff] => Some(431),
                _ => panic!("another form of a status: {payload:02x?}"),
            };
        }
    }
    None
}
