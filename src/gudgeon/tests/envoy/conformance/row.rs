//! Rows in the comments of a file:
//!
//! ```text
//! #> [eventually] PROXY[:PORT] METHOD PATH [WORD...] [NAME:VALUE...] => EXPECTED...
//! #> [eventually] PROXY[:PORT] line|hello [WORD...] => EXPECTED...
//! ```
//!
//! A request of HTTP, a line on a connection, or the first words of a client of TLS; `+` is a space in values. Words: `host=H`,
//! `times=N`, `tls=NAME` (by TLS, with that name), `with=NAME` (and this client certificate), `as=IDENTITY` (by mutual TLS of the
//! mesh), `sni=NAME` of `hello`.
//!
//! Expected are a status or `closed`, the application that answered (several: `a|b`), shares in percent (`a~25`), `same` (always
//! the same one), `name:value` (a header of the answer), `!name` (no such one), `saw=WORDS` and `saw=!WORDS` (of what the
//! application was asked), `cert=NAME`, `after=MS`, `within=MS`, `copy=APPLICATION` (that got the request, too).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::application::Application;
use crate::bare::hello;
use crate::place::{SOON, until};
use crate::policies::Clients;

/// A row.
pub struct Row {
    pub line: usize,
    pub text: String,
    pub who: String,
    pub is_eventual: bool,
    port: u16,
    request: Vec<String>,
    words: BTreeMap<String, String>,
    headers: Vec<(String, String)>,
    expected: Vec<String>,
}

pub fn rows(text: &str) -> Vec<Row> {
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(at, line)| Some((at + 1, line.strip_prefix("#> ")?)))
        .map(|(line, text)| read(line, text))
        .collect()
}

fn read(line: usize, text: &str) -> Row {
    let (asked, expected) = text.split_once(" => ").expect(text);
    let mut asked: Vec<&str> = asked.split_whitespace().collect();
    let is_eventual = asked[0] == "eventually";
    if is_eventual {
        asked.remove(0);
    }
    let (who, port) = asked[0].split_once(':').unwrap_or((asked[0], "9080"));
    let mut row = Row {
        line,
        text: text.to_owned(),
        who: who.to_owned(),
        is_eventual,
        port: port.parse().expect(text),
        request: Vec::new(),
        words: BTreeMap::new(),
        headers: Vec::new(),
        expected: expected.split_whitespace().map(str::to_owned).collect(),
    };
    for word in &asked[1..] {
        let is_path = word.starts_with('/');
        match (word.split_once('='), word.split_once(':')) {
            (_, Some((name, value))) if !is_path && !name.contains('=') => {
                row.headers.push((name.to_owned(), value.replace('+', " ")));
            }
            (Some((name, value)), _) if !is_path => {
                row.words.insert(name.to_owned(), value.to_owned());
            }
            _ => row.request.push((*word).to_owned()),
        }
    }
    row
}

/// What came back.
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    /// The application, and what it was asked.
    from: String,
    seen: String,
    certificate: Vec<u8>,
    took: Duration,
}

/// How a row asks.
pub struct Ask<'a> {
    pub ip: IpAddr,
    pub clients: &'a mut Clients,
    pub words: &'a BTreeMap<String, String>,
    pub applications: &'a BTreeMap<String, Application>,
    /// All that is answered now has this mark.
    pub mark: &'a str,
}

impl Ask<'_> {
    /// Why the row does not hold, if it does not.
    pub fn fails(&mut self, row: &Row) -> Option<String> {
        let times = row
            .words
            .get("times")
            .map_or(1, |text| text.parse().unwrap());
        let answers: Vec<Option<Answer>> = (0..times).map(|_| self.answer(row)).collect();
        row.expected
            .iter()
            .find_map(|word| self.differs(row, word, &answers))
    }

    fn differs(&self, row: &Row, word: &str, answers: &[Option<Answer>]) -> Option<String> {
        if let Some((name, percent)) = word.split_once('~') {
            let name = name.replace('+', " ");
            let is_it =
                |answer: &&Option<Answer>| answer.as_ref().is_some_and(|one| one.from == name);
            let share = 100 * answers.iter().filter(is_it).count() / answers.len();
            let wanted: usize = percent.parse().unwrap();
            return (share.abs_diff(wanted) > 12).then(|| format!("{name} answered {share} %"));
        }
        if word == "same" {
            let from = |answer: &Option<Answer>| answer.as_ref().map(|one| one.from.clone());
            let first = answers.first().and_then(from);
            let differs = answers.iter().any(|answer| from(answer) != first);
            return differs.then(|| "several answered".to_owned());
        }
        if let Some(name) = word.strip_prefix("copy=") {
            let path = row.request.last().unwrap();
            until(name, || {
                self.applications[name]
                    .saw(&format!(" {path} "))
                    .then_some(())
            });
            return None;
        }
        answers.iter().find_map(|answer| match answer {
            None => (word != "closed").then(|| "the connection was closed".to_owned()),
            Some(answer) => answer.differs(word),
        })
    }

    /// The answer by what the proxies have now: a connection between two of them may be older.
    fn answer(&mut self, row: &Row) -> Option<Answer> {
        let end = Instant::now() + SOON;
        loop {
            let answer = self.answered(row)?;
            let mut marks = answer.headers.iter().filter(|(name, _)| name == "x-mark");
            if marks.all(|(_, mark)| mark == self.mark) || Instant::now() > end {
                return Some(answer);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn answered(&mut self, row: &Row) -> Option<Answer> {
        let begun = Instant::now();
        let stream = TcpStream::connect((self.ip, row.port)).ok()?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        let text = self.text(row);
        let is_http = row.request.len() > 1;
        let mut certificate = Vec::new();
        let said = match (row.words.get("tls"), row.words.get("as")) {
            (Some(name), _) => {
                let with = row.words.get("with").map(String::as_str);
                let mut stream = self.clients.anybody(stream, with, name);
                let said = exchange(&mut stream, &text, is_http);
                let shown = stream.conn.peer_certificates().unwrap_or_default();
                certificate = shown.first().map(|one| one.to_vec()).unwrap_or_default();
                said
            }
            (None, Some(identity)) => {
                let mut stream = self.clients.secured(stream, identity, "web");
                exchange(&mut stream, &text, is_http)
            }
            (None, None) => exchange(&mut { stream }, &text, is_http),
        }?;
        Answer::read(&said, is_http, certificate, begun.elapsed())
    }

    fn text(&self, row: &Row) -> Vec<u8> {
        static ROW: AtomicU32 = AtomicU32::new(0);
        let [method, path] = row.request.as_slice() else {
            return match row.request[0].as_str() {
                "hello" => hello(&row.words["sni"]),
                _ => b"hello\n".to_vec(),
            };
        };
        let host = row.words.get("host").map_or("web", String::as_str);
        let number = ROW.fetch_add(1, Ordering::Relaxed);
        let mut text = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nx-row: {number}\r\n"
        );
        for (name, value) in &row.headers {
            let mut value = value.clone();
            for (name, word) in self.words.iter().rev() {
                value = value.replace(&format!("${{{name}}}"), word);
            }
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.into_bytes()
    }
}

/// All that is answered; of a line or a greeting, its first line.
fn exchange(stream: &mut (impl Read + Write), text: &[u8], is_http: bool) -> Option<Vec<u8>> {
    stream.write_all(text).ok()?;
    let mut all = Vec::new();
    let mut byte = [0; 1];
    // A listener of TCP does not act on `Connection: close`.
    while !(is_whole(&all) || !is_http && all.ends_with(b"\n")) {
        match stream.read(&mut byte) {
            Ok(1..) => all.push(byte[0]),
            _ => break,
        }
    }
    (!all.is_empty()).then_some(all)
}

/// Returns true if an answer has as many bytes as its head announces.
fn is_whole(text: &[u8]) -> bool {
    let Some(end) = text.windows(4).position(|part| part == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&text[..end]).to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1);
    let length = length.and_then(|rest| rest.lines().next()?.trim().parse().ok());
    length.is_some_and(|length: usize| text.len() >= end + 4 + length)
}

impl Answer {
    fn read(said: &[u8], is_http: bool, certificate: Vec<u8>, took: Duration) -> Option<Self> {
        let said = String::from_utf8_lossy(said).into_owned();
        let (head, body) = match is_http {
            true => said.split_once("\r\n\r\n")?,
            false => ("", said.as_str()),
        };
        let (from, seen) = body.split_once('\n').unwrap_or((body, ""));
        let from = if is_http {
            from
        } else {
            from.split(' ').next()?
        };
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
        let headers = head.lines().filter_map(|line| line.split_once(": "));
        Some(Self {
            status: status.unwrap_or(200),
            headers: headers
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect(),
            from: from.to_owned(),
            seen: seen.to_owned(),
            certificate,
            took,
        })
    }

    fn describe(&self) -> String {
        format!(
            "{} {} {:?} {:?} after {:?}",
            self.status, self.from, self.seen, self.headers, self.took
        )
    }

    fn differs(&self, word: &str) -> Option<String> {
        let spaced = |text: &str| text.replace('+', " ");
        let millis = |text: &str| Duration::from_millis(text.parse().unwrap());
        let holds = if let Ok(status) = word.parse::<u16>() {
            self.status == status
        } else if let Some((name, value)) = word.split_once('=') {
            match (name, value.strip_prefix('!')) {
                ("saw", Some(words)) => !self.seen.contains(&spaced(words)),
                ("saw", None) => self.seen.contains(&spaced(value)),
                ("after", _) => self.took >= millis(value),
                ("within", _) => self.took < millis(value),
                ("cert", _) => {
                    let mut parts = self.certificate.windows(value.len());
                    parts.any(|part| part == value.as_bytes())
                }
                _ => panic!("{word}"),
            }
        } else if let Some((name, value)) = word.split_once(':') {
            let wanted = (name.to_owned(), spaced(value));
            self.headers.contains(&wanted)
        } else if let Some(name) = word.strip_prefix('!') {
            self.headers.iter().all(|(found, _)| found != name)
        } else {
            word.split('|').any(|name| spaced(name) == self.from)
        };
        (!holds).then(|| format!("{word}: {}", self.describe()))
    }
}
