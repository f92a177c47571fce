//! The answer to a request of a row, and the comparison with the words that the row expects.

use std::time::Duration;

/// The answer to one request or connection.
pub struct RequestOutcome {
    status: u16,
    pub headers: Vec<(String, String)>,
    /// The application, and what it was asked.
    pub from: String,
    seen: String,
    session: Session,
    took: Duration,
}

/// The TLS session of the connection, if it had one.
#[derive(Default)]
pub struct Session {
    pub certificate: Vec<u8>,
    pub cipher: String,
}

impl RequestOutcome {
    pub fn read(response: &[u8], is_http: bool, session: Session, took: Duration) -> Option<Self> {
        let response = String::from_utf8_lossy(response).into_owned();
        let (head, body) = match is_http {
            true => response.split_once("\r\n\r\n")?,
            false => ("", response.as_str()),
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
            session,
            took,
        })
    }

    fn describe(&self) -> String {
        format!(
            "{} {} {:?} {:?} after {:?}",
            self.status, self.from, self.seen, self.headers, self.took
        )
    }

    pub fn differs(&self, word: &str) -> Option<String> {
        let spaced = |text: &str| text.replace('+', " ");
        let millis = |text: &str| Duration::from_millis(text.parse().unwrap());
        // `location:https://a?b=c` is a header, `saw=a: b` is none.
        let is_header = word.find(':').is_some_and(|at| !word[..at].contains('='));
        let holds = if let Ok(status) = word.parse::<u16>() {
            self.status == status
        } else if let Some((name, value)) = word.split_once('=').filter(|_| !is_header) {
            match (name, value.strip_prefix('!')) {
                ("saw", Some(text)) => !self.seen.contains(&spaced(text)),
                ("saw", None) => self.seen.contains(&spaced(value)),
                ("after", _) => self.took >= millis(value),
                ("within", _) => self.took < millis(value),
                ("cert", _) => {
                    let mut parts = self.session.certificate.windows(value.len());
                    parts.any(|part| part == value.as_bytes())
                }
                ("cipher", _) => self.session.cipher == value,
                _ => panic!("{word}"),
            }
        } else if let Some((name, value)) = word.split_once(':') {
            let value = spaced(value);
            let mut found = self.headers.iter().filter(|(found, _)| found == name);
            found.any(|(_, found)| match value.strip_suffix('*') {
                Some(begin) => found.starts_with(begin),
                None => *found == value,
            })
        } else if let Some(name) = word.strip_prefix('!') {
            self.headers.iter().all(|(found, _)| found != name)
        } else {
            word.split('|').any(|name| spaced(name) == self.from)
        };
        (!holds).then(|| format!("{word}: {}", self.describe()))
    }
}
