//! A server that lies about one kind for as long as the test wants, and is honest about all others.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::wire::{FakeRequest, answer, chunk, respond, status, value};
use super::{Fake, Fault, misbehave};

/// A false response to every list, or to every watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// A Status with this code.
    Status(u16),
    /// This text, as a complete response.
    Says(&'static str),
    /// The connection closes in the middle.
    Cut,
    /// The server sends no byte.
    Silence,
    /// A body without an end, and without a line.
    Endless,
    /// Bytes that are declared as compressed.
    Compressed,
    /// For lists: pages of so many objects, each with a `continue` token.
    Pages(usize),
    /// Always the same next page.
    SamePage,
    /// An object of a wrong type between good ones.
    WrongItem,
    /// One object, repeated.
    Twice,
    /// For watches: the stream ends at once.
    Ends,
    /// The stream sends this line, and ends.
    Line(&'static str),
    /// The stream sends this line repeatedly.
    Lines(&'static str),
    /// A line by its bytes, one by one.
    Trickle,
    /// Versions that go back.
    Back,
}

impl Lie {
    /// Returns true if the lie replaces a watch.
    pub(crate) const fn is_of_watches(self) -> bool {
        matches!(
            self,
            Self::Ends | Self::Line(_) | Self::Lines(_) | Self::Trickle | Self::Back
        )
    }
}

const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";

fn thing(name: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "resourceVersion": version.to_string()}, "value": 1})
}

fn page(items: &[Value], next: &str) -> Value {
    json!({"metadata": {"resourceVersion": "10", "continue": next}, "items": items})
}

impl Fake {
    /// Sets the lie for a kind and verb; `None` ends it.
    pub(crate) fn lies(&self, verb: &'static str, kind: &'static str, lie: Option<Lie>) {
        self.change(|state| {
            state
                .lies
                .retain(|(known, of, _)| (*known, *of) != (verb, kind));
            state.lies.extend(lie.map(|lie| (verb, kind, lie)));
            // Ends open watches, so that clients connect again.
            state.ended += 1;
        });
    }

    pub(super) fn lie_of(&self, asked: &FakeRequest) -> Option<Lie> {
        let state = self.state.lock().unwrap();
        let mut lies = state.lies.iter();
        let found = lies.find(|(verb, kind, _)| *verb == asked.verb && *kind == asked.kind);
        found.map(|(.., lie)| *lie)
    }

    /// Answers with the lie; `None` if the connection is not reusable.
    pub(super) async fn lie(
        &self,
        to: &mut TcpStream,
        asked: &FakeRequest,
        lie: Lie,
    ) -> Option<()> {
        match lie {
            Lie::Status(code) => answer(to, code, "", &status(code)).await,
            Lie::Says(text) => respond(to, 200, "application/json", "", text).await,
            Lie::Cut => misbehave(to, Fault::Cut).await,
            Lie::Silence => misbehave(to, Fault::Silence).await,
            Lie::Endless => misbehave(to, Fault::Endless).await,
            Lie::Compressed => {
                let more = "Content-Encoding: gzip\r\n";
                respond(to, 200, "application/json", more, "\u{1f}\u{8b}\u{8}").await
            }
            Lie::Pages(count) => {
                let token = value(&asked.query, "continue").unwrap_or_default();
                let from: usize = token.parse().unwrap_or_default();
                let items: Vec<_> = (0..count)
                    .map(|at| thing(&format!("page-{from}-{at}"), 10))
                    .collect();
                answer(to, 200, "", &page(&items, &(from + 1).to_string())).await
            }
            Lie::SamePage => answer(to, 200, "", &page(&[thing("again", 10)], "same")).await,
            Lie::WrongItem => {
                let wrong = json!({"metadata": {"name": "wrong"}, "value": {"secret": "x"}});
                let items = [
                    thing("a", 10),
                    wrong,
                    Value::Null,
                    json!({"metadata": 7}),
                    thing("z", 10),
                ];
                answer(to, 200, "", &page(&items, "")).await
            }
            Lie::Twice => {
                let items = vec![thing("a", 10); 1000];
                answer(to, 200, "", &page(&items, "")).await
            }
            Lie::Ends | Lie::Line(_) | Lie::Lines(_) | Lie::Trickle | Lie::Back => {
                to.write_all(STREAM).await.ok()?;
                self.stream(to, asked, lie).await
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the others say nothing")]
    async fn stream(&self, to: &mut TcpStream, asked: &FakeRequest, lie: Lie) -> Option<()> {
        match lie {
            Lie::Line(line) => {
                let line = format!("{line}\n");
                let chunk = format!("{:x}\r\n{line}\r\n", line.len());
                to.write_all(chunk.as_bytes()).await.ok()?;
                to.write_all(b"0\r\n\r\n").await.ok()
            }
            Lie::Lines(line) => {
                let lines = format!("{line}\n").repeat(100);
                let chunk = format!("{:x}\r\n{lines}\r\n", lines.len());
                while to.write_all(chunk.as_bytes()).await.is_ok() && self.lie_of(asked).is_some() {
                    // A disk is not faster.
                    sleep(Duration::from_millis(1)).await;
                }
                None
            }
            Lie::Trickle => {
                let line = json!({"type": "MODIFIED", "object": thing("a", 11)}).to_string();
                for byte in line.bytes().cycle() {
                    let chunk = format!("1\r\n{}\r\n", char::from(byte));
                    to.write_all(chunk.as_bytes()).await.ok()?;
                    sleep(Duration::from_millis(1)).await;
                    if self.lie_of(asked).is_none() {
                        break;
                    }
                }
                None
            }
            Lie::Back => {
                for version in (1..10).rev() {
                    let event = json!({"type": "MODIFIED", "object": thing("a", version)});
                    chunk(to, &event).await?;
                }
                to.write_all(b"0\r\n\r\n").await.ok()
            }
            _ => to.write_all(b"0\r\n\r\n").await.ok(),
        }
    }
}
