//! Rows in the comments of a file:
//!
//! ```text
//! #> [eventually] PROXY[:PORT] METHOD PATH [WORD...] [NAME:VALUE...] => EXPECTED...
//! #> [eventually] PROXY[:PORT] line|hello [WORD...] => EXPECTED...
//! ```
//!
//! A request of HTTP, a line on a connection, or the first words of a client of TLS; `+` is a space in values. Words: `host=H`,
//! `times=N`, `tls=NAME` (by TLS, with that name), `with=NAME` (and this client certificate), `version=1.2` or `1.3` (of TLS),
//! `as=IDENTITY` (by mutual TLS of the mesh), `sni=NAME` of `hello`, `proxied=ADDRESS` (behind a proxy that says so by the PROXY
//! protocol), `held=N` (while N more of them are under way), `queued=N` (and N more wait for a connection).
//!
//! Expected are a status, `closed` or `nobody` (no application answered), the application that answered (several: `a|b`), shares
//! in percent (`a~25`), `same` (always the same one), `turns` (one after the other, over and over) and `no-turns`, `uneven` (one of
//! two far more often), `name:value` (a header of the answer; `name:begin*`), `!name` (no such one), `saw=WORDS` and `saw=!WORDS`
//! (of what the application was asked), `cert=NAME`, `cipher=NAME`, `after=MS`, `within=MS`, `copy=APPLICATION` (that got the
//! request, too), `counts=PART+PART` (a counter of the proxy whose name has these parts grew by the row).

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::answer::{RequestOutcome, Session};
use super::application::Application;
use super::unchunked;
use crate::bare::hello;
use crate::place::{SOON, until};
use crate::policies::Clients;
use crate::proxy::Proxy;

/// A row.
pub struct Row {
    pub line: usize,
    pub text: String,
    pub who: String,
    pub is_eventual: bool,
    port: u16,
    request: Vec<String>,
    options: BTreeMap<String, String>,
    headers: Vec<(String, String)>,
    expected: Vec<String>,
}

impl Row {
    fn is_http(&self) -> bool {
        self.request.len() > 1
    }
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
        options: BTreeMap::new(),
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
                row.options.insert(name.to_owned(), value.to_owned());
            }
            _ => row.request.push((*word).to_owned()),
        }
    }
    row
}

/// The request of a row.
pub struct Ask<'a> {
    pub proxy: &'a Proxy,
    pub clients: &'a mut Clients,
    pub variables: &'a BTreeMap<String, String>,
    pub applications: &'a BTreeMap<String, Application>,
    /// All that is answered now has this mark.
    pub mark: &'a str,
}

impl Ask<'_> {
    /// Why the row does not hold, if it does not.
    pub fn fails(&mut self, row: &Row) -> Option<String> {
        let times = row
            .options
            .get("times")
            .map_or(1, |text| text.parse().unwrap());
        let counters = row
            .expected
            .iter()
            .filter_map(|word| word.strip_prefix("counts="));
        let before: Vec<_> = counters
            .map(|name| (name, counted(self.proxy, name)))
            .collect();
        let requests = self.hold(row);
        let answers: Vec<Option<RequestOutcome>> = (0..times).map(|_| self.answer(row)).collect();
        self.release(requests);
        let failed = row
            .expected
            .iter()
            .filter(|word| !word.starts_with("counts="))
            .find_map(|word| self.differs(row, word, &answers));
        failed.or_else(|| {
            before
                .into_iter()
                .find_map(|(name, count)| self.stays(name, count))
        })
    }

    /// Why a counter has not grown, if it does not soon.
    fn stays(&self, name: &str, before: u64) -> Option<String> {
        let end = Instant::now() + SOON;
        while counted(self.proxy, name) <= before {
            if Instant::now() > end {
                return Some(format!("{name} is still {before}"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    }

    /// Requests or connections as the row's, which are under way until they are released.
    fn hold(&self, row: &Row) -> Vec<(u32, TcpStream)> {
        let number = |name: &str| {
            row.options
                .get(name)
                .map_or(0, |text| text.parse().unwrap())
        };
        let (active, queued): (u64, u64) = (number("held"), number("queued"));
        let mut all = Vec::new();
        for at in 0..active + queued {
            let waiting = || counted(self.proxy, "upstream_rq_pending_active") > at - active;
            all.push(until(&row.text, || {
                let number = next_number();
                let mut stream = self.begin(row, number);
                if !row.is_http() {
                    return exchange(&mut stream, b"", false).map(|_| (number, stream));
                }
                let is_under_way = || match at < active {
                    true => self.is_held(number),
                    false => waiting(),
                };
                // What was answered has come by a connection that has not what the proxies have now.
                let end = Instant::now() + SOON;
                let is_silent = || {
                    let peeked = stream.peek(&mut [0]);
                    matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
                };
                while !is_under_way() && is_silent() && Instant::now() < end {}
                stream.set_read_timeout(Some(SOON)).unwrap();
                is_under_way().then_some((number, stream))
            }));
        }
        all
    }

    /// A request or a line that is sent, and looked at for an answer from time to time.
    fn begin(&self, row: &Row, number: u32) -> TcpStream {
        let mut stream = TcpStream::connect((self.proxy.ip, row.port)).unwrap();
        let wait = if row.is_http() { 20 } else { 2000 };
        let wait = Duration::from_millis(wait);
        stream.set_read_timeout(Some(wait)).unwrap();
        stream.write_all(&self.text(row, Some(number))).unwrap();
        stream
    }

    /// Ends them, and waits until no proxy has them any more.
    fn release(&self, requests: Vec<(u32, TcpStream)>) {
        let numbers: Vec<u32> = requests.iter().map(|(number, _)| *number).collect();
        drop(requests);
        until("the end of what was held", || {
            let mut numbers = numbers.iter();
            numbers.all(|number| !self.is_held(*number)).then_some(())
        });
    }

    fn is_held(&self, number: u32) -> bool {
        let mut all = self.applications.values();
        all.any(|application| application.holds(number))
    }

    fn differs(&self, row: &Row, word: &str, answers: &[Option<RequestOutcome>]) -> Option<String> {
        if let Some((name, percent)) = word.split_once('~') {
            let name = name.replace('+', " ");
            let is_it = |answer: &&Option<RequestOutcome>| {
                answer.as_ref().is_some_and(|one| one.from == name)
            };
            let share = 100 * answers.iter().filter(is_it).count() / answers.len();
            let wanted: usize = percent.parse().unwrap();
            return (share.abs_diff(wanted) > 12).then(|| format!("{name} answered {share} %"));
        }
        if word == "same" {
            let from =
                |answer: &Option<RequestOutcome>| answer.as_ref().map(|one| one.from.clone());
            let first = answers.first().and_then(from);
            let differs = answers.iter().any(|answer| from(answer) != first);
            return differs.then(|| "several answered".to_owned());
        }
        if let "turns" | "no-turns" | "uneven" = word {
            let names = answers.iter().flatten().map(|one| one.from.as_str());
            return is_spread(word, &names.collect::<Vec<_>>()).err();
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
        if word == "nobody" {
            let mut answered = answers.iter().flatten();
            let known = answered.find(|one| self.applications.contains_key(&one.from));
            return known.map(|one| format!("{} answered", one.from));
        }
        answers.iter().find_map(|answer| match answer {
            None => (word != "closed").then(|| "the connection was closed".to_owned()),
            Some(answer) => answer.differs(word),
        })
    }

    /// The answer by what the proxies have now: a connection between two of them may be older.
    fn answer(&mut self, row: &Row) -> Option<RequestOutcome> {
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

    fn answered(&mut self, row: &Row) -> Option<RequestOutcome> {
        let begun = Instant::now();
        let stream = TcpStream::connect((self.proxy.ip, row.port)).ok()?;
        stream.set_read_timeout(Some(SOON)).unwrap();
        let text = self.text(row, None);
        let is_http = row.is_http();
        let mut session = Session::default();
        let response = match (row.options.get("tls"), row.options.get("as")) {
            (Some(name), _) => {
                let with = row.options.get("with").map(String::as_str);
                let version = row.options.get("version").map(String::as_str);
                let mut stream = self.clients.anybody(stream, with, name, version);
                let response = exchange(&mut stream, &text, is_http);
                let certificates = stream.conn.peer_certificates().unwrap_or_default();
                session.certificate = certificates
                    .first()
                    .map(|one| one.to_vec())
                    .unwrap_or_default();
                let suite = stream.conn.negotiated_cipher_suite();
                session.cipher = suite.map_or_else(String::new, |one| format!("{:?}", one.suite()));
                response
            }
            (None, Some(identity)) => {
                let mut stream = self.clients.secured(stream, identity, "web");
                exchange(&mut stream, &text, is_http)
            }
            (None, None) => exchange(&mut { stream }, &text, is_http),
        }?;
        RequestOutcome::read(&response, is_http, session, begun.elapsed())
    }

    fn text(&self, row: &Row, hold: Option<u32>) -> Vec<u8> {
        let [method, path] = row.request.as_slice() else {
            return match row.request[0].as_str() {
                "hello" => hello(&row.options["sni"]),
                _ => b"hello\n".to_vec(),
            };
        };
        let host = row.options.get("host").map_or("web", String::as_str);
        let number = next_number();
        let mut text = String::new();
        if let Some(address) = row.options.get("proxied") {
            text.push_str(&format!("PROXY TCP4 {address} 127.0.0.1 40000 80\r\n"));
        }
        text.push_str(&format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nx-row: {number}\r\n"
        ));
        if let Some(number) = hold {
            text.push_str(&format!("x-hold: {number}\r\n"));
        }
        for (name, value) in &row.headers {
            let mut value = value.clone();
            for (name, word) in self.variables.iter().rev() {
                value = value.replace(&format!("${{{name}}}"), word);
            }
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.into_bytes()
    }
}

/// Fails with the names, if they do not come as the word says.
fn is_spread(word: &str, names: &[&str]) -> Result<(), String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    let period = counts.len();
    let has_turns = period > 1
        && names
            .windows(period + 1)
            .all(|part| part[0] == part[period]);
    let max = counts.values().max().copied().unwrap_or_default();
    let holds = match word {
        "turns" => has_turns,
        "no-turns" => !has_turns,
        _ => period == 2 && 100 * max > 63 * names.len(),
    };
    holds
        .then_some(())
        .ok_or_else(|| format!("{word}: {counts:?}"))
}

fn next_number() -> u32 {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// The sum of what a proxy counts by all names with these parts.
fn counted(proxy: &Proxy, parts: &str) -> u64 {
    let parts: Vec<&str> = parts.split('+').collect();
    let text = unchunked(&proxy.ask(&format!("/stats?filter={}", parts[parts.len() - 1])));
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    let named = lines.filter(|(name, _)| parts.iter().all(|part| name.contains(part)));
    named
        .filter_map(|(_, value)| value.parse::<u64>().ok())
        .sum()
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
