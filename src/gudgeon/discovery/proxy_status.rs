//! `proxy-status`: who is in sync with a running discovery, as a table for a person.

use std::fmt::Write as _;

use api::text::is_control;
use hyper::Method;
use serde_json::Value;

use super::request::request;
use crate::cli::{ProxyStatusFlags, RequestFlags};
use crate::exit::{Exit, Failure};

/// Columns of the types, with the words of the document, in the order of the original's table.
const TYPES: [(&str, &str); 4] = [
    ("CDS", "cluster"),
    ("LDS", "listener"),
    ("EDS", "endpoint"),
    ("RDS", "route"),
];

/// Reads `/debug/syncz` of a running discovery and returns the table to print.
///
/// # Errors
/// The server does not answer, or is another program.
pub(crate) fn proxy_status(flags: &ProxyStatusFlags) -> Result<String, Failure> {
    let asks = RequestFlags {
        method: Method::GET.to_string(),
        path: "/debug/syncz".to_owned(),
        body: None,
        http_addr: flags.http_addr.clone(),
        log: flags.log.clone(),
    };
    let body = request(&asks)?;
    if flags.output == "json" {
        return Ok(String::from_utf8_lossy(&body).into_owned());
    }
    let rows: Option<Vec<Value>> = serde_json::from_slice(&body).ok();
    rows.map(|rows| table(&rows)).ok_or_else(|| Failure {
        exit: Exit::Failed,
        message: format!(
            "cannot read http://{}/debug/syncz: not a response of discovery; check --http-addr",
            flags.http_addr
        ),
    })
}

fn table(proxies: &[Value]) -> String {
    if proxies.is_empty() {
        return "no proxy is connected\n".to_owned();
    }
    let head = ["PROXY", "CDS", "LDS", "EDS", "RDS", "PROTOCOL", "VERSION"];
    let mut rows: Vec<Vec<String>> = vec![head.map(ToOwned::to_owned).to_vec()];
    let mut refusals = String::new();
    for proxy in proxies {
        let name = name(text(proxy, "proxy"));
        let mut row = vec![name.clone()];
        for (column, key) in TYPES {
            let refusal = proxy.get("errors").and_then(|errors| errors.get(key));
            row.push(state(proxy, key, refusal.is_some()).to_owned());
            if let Some(refusal) = refusal {
                let message = printable(text(refusal, "message"));
                let at = printable(text(refusal, "at"));
                // Writing to a string cannot fail.
                let _written = writeln!(refusals, "{name} refused {column} at {at}: {message}");
            }
        }
        row.push(printable(text(proxy, "protocol")));
        row.push(match text(proxy, "istio_version") {
            "" => "-".to_owned(),
            version => printable(version),
        });
        rows.push(row);
    }
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _written = write!(line, "{cell:<width$}   ");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out + &refusals
}

/// Returns the state of a proxy in Istio's words, and in a word of our own for a state that Istio did not know.
fn state(proxy: &Value, key: &str, refused: bool) -> &'static str {
    let sent = text(proxy, &format!("{key}_sent"));
    if refused {
        "REFUSED"
    } else if sent.is_empty() {
        "NOT SENT"
    } else if sent == text(proxy, &format!("{key}_acked")) {
        "SYNCED"
    } else {
        "STALE"
    }
}

/// `sidecar~10.0.0.1~web.demo~demo.svc.cluster.local` → `web.demo`.
fn name(id: &str) -> String {
    printable(
        id.split('~')
            .nth(2)
            .filter(|name| !name.is_empty())
            .unwrap_or(id),
    )
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// Replaces control characters: a text that a proxy sends must neither move the cursor nor colour a terminal.
fn printable(text: &str) -> String {
    let replaced = |letter: char| {
        if is_control(letter) {
            '\u{fffd}'
        } else {
            letter
        }
    };
    text.chars().map(replaced).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_proxy_has_a_row_and_each_refusal_a_line() {
        let proxies = [
            json!({
                "proxy": "sidecar~10.0.0.1~web.demo~demo.svc.cluster.local", "istio_version": "1.5.0", "protocol": "delta",
                "cluster_sent": "aa", "cluster_acked": "aa", "listener_sent": "bb", "listener_acked": "aa",
                "endpoint_sent": "", "endpoint_acked": "",
                "errors": {"route": {"version": "cc", "message": "no\u{1b}[31m route\nat all", "at": "T"}},
            }),
            json!({"proxy": "alone", "protocol": "sotw", "errors": {}}),
        ];
        assert_eq!(
            table(&proxies),
            "PROXY      CDS        LDS        EDS        RDS        PROTOCOL   VERSION\n\
             web.demo   SYNCED     STALE      NOT SENT   REFUSED    delta      1.5.0\n\
             alone      NOT SENT   NOT SENT   NOT SENT   NOT SENT   sotw       -\n\
             web.demo refused RDS at T: no\u{fffd}[31m route\u{fffd}at all\n"
        );
        assert_eq!(table(&[]), "no proxy is connected\n");
    }
}
