//! `request`, `wait`, `probe`, `status`, `drain` and `quit`: a few flags each. Their help is written here as it is
//! printed.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;
use std::time::Duration;

use super::flags::{self, Table};
use super::normalise::Normal;
use super::{EXIT_CONFIG, Stop, Word, normalised};
use crate::url::{Url, UrlError, path};
use crate::values;

/// One of the commands that ask from outside, with what was typed.
#[derive(Debug)]
pub enum ClientArgs {
    Request(RequestArgs),
    Wait(WaitArgs),
    Probe(ProbeArgs),
    Status(StatusArgs),
    Order(OrderArgs),
}

/// What was typed after `request`.
#[derive(Debug)]
pub struct RequestArgs {
    pub(crate) url: Url,
    /// In upper case.
    pub(crate) method: String,
    pub(crate) body: Option<&'static str>,
}

/// What was typed after `wait`.
#[derive(Debug)]
pub struct WaitArgs {
    pub(crate) url: Url,
    /// In all, in whole seconds.
    pub(crate) timeout: Duration,
    pub(crate) period: Duration,
    /// Of one try.
    pub(crate) request_timeout: Duration,
}

/// What was typed after `probe`.
#[derive(Debug)]
pub struct ProbeArgs {
    pub(crate) url: Url,
}

/// What was typed after `status`.
#[derive(Debug)]
pub struct StatusArgs {
    pub(crate) url: Url,
    pub(crate) json: bool,
    pub(crate) watch: bool,
}

/// What was typed after `drain` or `quit`.
#[derive(Debug)]
pub struct OrderArgs {
    pub(crate) url: Url,
}

/// The longest wait and the longest period: any number that fits 32 bits, 49 days in milliseconds.
const LONGEST: u32 = u32::MAX;

/// The arguments of `command`, or help.
pub(super) fn parse(command: &str, arguments: &[Word]) -> Result<ClientArgs, Box<Stop>> {
    let table = match command {
        "request" => flags::REQUEST,
        "wait" => flags::WAIT,
        "probe" => flags::PROBE,
        "status" => flags::STATUS,
        _ => flags::ORDER,
    };
    let mut normal = normalised(command, table, arguments)?;
    if normal.help {
        return Err(Stop::done(help(command)));
    }
    let words = words(command, &mut normal)?;
    let given = Given {
        command,
        table,
        normal,
    };
    if command == "request" {
        return given.request(words).map(ClientArgs::Request);
    }
    if let Some(extra) = words.first() {
        return Err(Stop::usage(command, &["extra argument ", extra].concat()));
    }
    match command {
        "wait" => given.wait().map(ClientArgs::Wait),
        "probe" => given.url().map(|url| ClientArgs::Probe(ProbeArgs { url })),
        "status" => given.status().map(ClientArgs::Status),
        "drain" => given.order("/drain"),
        _ => given.order("/quitquitquit"),
    }
}

/// The words, those after `--` among them: a body may begin with a dash.
fn words(command: &str, normal: &mut Normal) -> Result<Vec<&'static str>, Box<Stop>> {
    let mut words = std::mem::take(&mut normal.words);
    for word in &normal.rest {
        let Some(word) = word.to_str() else {
            let shown = word.to_string_lossy();
            return Err(Stop::usage(command, &[&shown, " is not UTF-8"].concat()));
        };
        words.push(word);
    }
    Ok(words)
}

/// The flags as typed, and their defaults.
struct Given<'a> {
    command: &'a str,
    table: Table,
    normal: Normal,
}

impl Given<'_> {
    fn request(&self, words: Vec<&'static str>) -> Result<RequestArgs, Box<Stop>> {
        let mut words = words.into_iter();
        let (Some(method), Some(written)) = (words.next(), words.next()) else {
            return Err(self.usage("METHOD and PATH are needed, as in GET /stats"));
        };
        let body = words.next();
        if let Some(extra) = words.next() {
            return Err(self.usage(&["extra argument ", extra].concat()));
        }
        let is_method = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-';
        if method.is_empty() || !method.bytes().all(is_method) {
            return Err(self.usage("METHOD is a word like GET or POST"));
        }
        let path = path(written).ok_or_else(|| self.usage("PATH has a control character"))?;
        Ok(RequestArgs {
            url: Url::here(self.port("debug-port")?, path),
            method: method.to_ascii_uppercase(),
            body,
        })
    }

    fn wait(&self) -> Result<WaitArgs, Box<Stop>> {
        let millis = |name| self.number(name, 1..=LONGEST);
        Ok(WaitArgs {
            url: self.url()?,
            timeout: Duration::from_secs(self.number("timeout-seconds", 0..=LONGEST)?.into()),
            period: Duration::from_millis(millis("period-millis")?.into()),
            request_timeout: Duration::from_millis(millis("request-timeout-millis")?.into()),
        })
    }

    fn status(&self) -> Result<StatusArgs, Box<Stop>> {
        Ok(StatusArgs {
            url: self.status_url()?,
            json: self.switch("json")?,
            watch: self.switch("watch")?,
        })
    }

    fn order(&self, path: &str) -> Result<ClientArgs, Box<Stop>> {
        let url = Url::here(self.port("status-port")?, path.to_owned());
        Ok(ClientArgs::Order(OrderArgs { url }))
    }

    /// `--url`, whose path may be left out, or `--status-port`.
    fn status_url(&self) -> Result<Url, Box<Stop>> {
        let here = Url::here(self.port("status-port")?, STATUS_PATH.to_owned());
        if self.text("url").is_empty() {
            return Ok(here);
        }
        if self
            .normal
            .flags
            .iter()
            .any(|(flag, _)| *flag == "status-port")
        {
            return Err(self.bad("url", "--status-port is given, too"));
        }
        let mut url = self.parsed_url()?;
        if url.path == "/" {
            url.path = here.path;
        }
        Ok(url)
    }

    fn url(&self) -> Result<Url, Box<Stop>> {
        if Some(self.text("url")) == self.default("url") {
            // Nobody asked for one family of addresses.
            return Ok(Url::here(15_020, "/healthz/ready".to_owned()));
        }
        self.parsed_url()
    }

    fn parsed_url(&self) -> Result<Url, Box<Stop>> {
        let text = self.text("url");
        Url::parse(text).map_err(|error| match error {
            UrlError::Tls => self.usage(&["cannot use --url ", text, ": ", TLS].concat()),
            UrlError::Form => self.bad(
                "url",
                "its form is http://HOST:PORT/PATH, where HOST is an address or localhost",
            ),
        })
    }

    fn port(&self, name: &str) -> Result<u16, Box<Stop>> {
        let number = self.number(name, 1..=u32::from(u16::MAX))?;
        Ok(u16::try_from(number).unwrap_or(u16::MAX))
    }

    fn number(&self, name: &str, allowed: RangeInclusive<u32>) -> Result<u32, Box<Stop>> {
        let number = self.text(name).parse().ok();
        number
            .filter(|number| allowed.contains(number))
            .ok_or_else(|| {
                let (least, most) = (allowed.start().to_string(), allowed.end().to_string());
                self.bad(name, &["a number from ", &least, " to ", &most].concat())
            })
    }

    fn switch(&self, name: &str) -> Result<bool, Box<Stop>> {
        values::switch(self.text(name)).map_err(|cause| self.bad(name, cause))
    }

    fn text(&self, name: &str) -> &str {
        let mut typed = self.normal.flags.iter();
        typed
            .find(|(flag, _)| *flag == name)
            .map(|(_, value)| *value)
            .or_else(|| self.default(name))
            .unwrap_or_default()
    }

    fn default(&self, name: &str) -> Option<&'static str> {
        self.table.find(name).map(|flag| flag.default)
    }

    fn usage(&self, what: &str) -> Box<Stop> {
        Stop::usage(self.command, what)
    }

    /// A value that its flag does not take.
    fn bad(&self, name: &str, wanted: &str) -> Box<Stop> {
        let value = self.text(name);
        let parts = [
            "pintle: cannot use --",
            name,
            " \"",
            value,
            "\": ",
            wanted,
            "\n",
        ];
        Stop::failed(EXIT_CONFIG, parts.concat())
    }
}

/// Where the agent tells.
const STATUS_PATH: &str = "/status";
const TLS: &str = "only http is spoken here, no https";

/// The help of one of the commands.
pub(super) fn help(command: &str) -> String {
    let text = match command {
        "request" => REQUEST,
        "wait" => WAIT,
        "probe" => PROBE,
        "status" => STATUS,
        "drain" => DRAIN,
        _ => QUIT,
    };
    ["Usage: pintle ", command, text, HELP].concat()
}

const HELP: &str = "  --help, -h        display usage information

Error codes:
  1 it failed; stderr says why
  64 usage
  78 a value is malformed or out of range
";

const REQUEST: &str = " [--debug-port N] METHOD PATH [BODY]

ask Envoy's admin port of this machine; the answer goes to stdout, and nothing else does

A status above 399 is a failure, but for 404, whose body is an answer. The server is waited for 60 s at most.
A BODY that begins with a dash stands after --.

Options:
  --debug-port      the port (default 15000); 15020 is the status port
";

const WAIT: &str = " [flags]

wait until a URL answers 200: until the proxy is ready

Options:
  --url             what to ask (default http://127.0.0.1:15020/healthz/ready): http only,
                    and an address or localhost
  --timeout-seconds
                    how long to wait in all (default 60)
  --period-millis   the pause between two tries (default 500)
  --request-timeout-millis
                    how long one try may take (default 500)
";

const PROBE: &str = " [--url U]

ask a URL once; 200 is success: for exec probes in images without a shell

Options:
  --url             what to ask (default http://127.0.0.1:15020/healthz/ready): http only,
                    and an address or localhost
";

const STATUS: &str = " [--status-port N | --url U] [--json] [--watch]

show what the running agent is doing: epochs, companions, the last events

Options:
  --status-port     the agent's status port (default 15020)
  --url             an agent elsewhere, as in http://10.0.0.1:15020
  --json            print what the agent says as it is, for programs
  --watch           look again every second, until interrupted
";

const DRAIN: &str = " [--status-port N]

drain the proxy without stopping it: it is not ready from then on, and a later TERM does not drain again

Options:
  --status-port     the agent's status port (default 15020)
";

const QUIT: &str = " [--status-port N]

stop the proxy and the agent at once, without a drain

Options:
  --status-port     the agent's status port (default 15020)
";

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<ClientArgs, Box<Stop>> {
        let (command, rest) = words.split_first().unwrap();
        parse(command, &super::super::words(rest))
    }

    fn request(words: &[&str]) -> RequestArgs {
        match run(words) {
            Ok(ClientArgs::Request(args)) => args,
            other => panic!("{words:?}: {other:?}"),
        }
    }

    #[test]
    fn a_request_as_it_is_typed() {
        let args = request(&["request", "get", "stats"]);
        assert_eq!((args.url.port, args.method.as_str()), (15000, "GET"));
        assert_eq!((args.url.path.as_str(), args.body), ("/stats", None));
        for words in [
            [
                "request",
                "POST",
                "/x",
                "--debugPort",
                "15020",
                "--",
                "-body",
            ],
            [
                "request",
                "--debug-port",
                "15020",
                "POST",
                "/x",
                "--",
                "-body",
            ],
        ] {
            let args = request(&words);
            assert_eq!((args.url.port, args.method.as_str()), (15020, "POST"));
            assert_eq!(args.body, Some("-body"));
        }
        assert_eq!(request(&["request", "POST", "x", ""]).body, Some(""));
    }

    #[test]
    fn a_wait_as_it_is_typed() {
        let wait = |words: &[&str]| match run(words) {
            Ok(ClientArgs::Wait(args)) => (
                args.url.to_string(),
                args.timeout.as_secs(),
                args.period.as_millis(),
                args.request_timeout.as_millis(),
            ),
            other => panic!("{words:?}: {other:?}"),
        };
        let (url, timeout, period, request) = wait(&["wait"]);
        assert_eq!(url, "http://localhost:15020/healthz/ready");
        assert_eq!((timeout, period, request), (60, 500, 500));
        let (url, timeout, period, request) = wait(&[
            "wait",
            "--url=http://10.1.2.3/",
            "--timeoutSeconds=5",
            "--periodMillis",
            "20",
            "--request-timeout-millis",
            "30",
        ]);
        assert_eq!(url, "http://10.1.2.3:80/");
        assert_eq!((timeout, period, request), (5, 20, 30));
    }

    #[test]
    fn a_status_or_an_order_as_it_is_typed() {
        let url = |words: &[&str]| match run(words) {
            Ok(ClientArgs::Status(args)) => args.url.to_string(),
            Ok(ClientArgs::Order(args)) => args.url.to_string(),
            other => panic!("{words:?}: {other:?}"),
        };
        for (words, expected) in [
            (&["status"][..], "http://localhost:15020/status"),
            (
                &["status", "--status-port", "1"],
                "http://localhost:1/status",
            ),
            (
                &["status", "--url", "http://10.0.0.1:15020"],
                "http://10.0.0.1:15020/status",
            ),
            (&["status", "--url=http://[::1]/x?y"], "http://[::1]:80/x?y"),
            (&["drain"], "http://localhost:15020/drain"),
            (&["drain", "--statusPort=2"], "http://localhost:2/drain"),
            (&["quit"], "http://localhost:15020/quitquitquit"),
        ] {
            assert_eq!(url(words), expected);
        }
    }

    #[test]
    fn exit_codes() {
        let table: [(&[&str], u8, &str); 30] = [
            (&["request"], 64, "METHOD and PATH"),
            (&["request", "GET"], 64, "METHOD and PATH"),
            (
                &["request", "GET", "/", "body", "more"],
                64,
                "extra argument more",
            ),
            (&["request", "G T", "/"], 64, "METHOD"),
            (&["request", "GET\r\nX: y", "/"], 64, "METHOD"),
            (&["request", "", "/"], 64, "METHOD"),
            (&["request", "GET", "/\r\nX: y"], 64, "control character"),
            (&["request", "GET", "/", "-1"], 64, "unknown flag -1"),
            (
                &["request", "--debg-port", "1"],
                64,
                "did you mean --debug-port?",
            ),
            (
                &["request", "--debug-port", "0", "GET", "/"],
                78,
                "1 to 65535",
            ),
            (
                &["request", "--debug-port", "65536", "GET", "/"],
                78,
                "1 to 65535",
            ),
            (&["wait", "extra"], 64, "extra argument extra"),
            (&["wait", "--url"], 64, "needs a value"),
            (&["wait", "--url", "https://x/"], 64, "no https"),
            (&["wait", "--url", "x"], 78, "http://HOST:PORT/PATH"),
            (&["wait", "--timeout-seconds", "1s"], 78, "number"),
            (&["wait", "--period-millis", "0"], 78, "1 to"),
            (&["wait", "--timeout-seconds", "-1"], 78, "number"),
            (&["probe", "--", "extra"], 64, "extra argument extra"),
            (&["probe", "--timeout-seconds", "1"], 64, "unknown flag"),
            (
                &["wait", "--timeout", "1"],
                64,
                "did you mean --timeout-seconds or --request-timeout-millis?",
            ),
            (&["drain", "now"], 64, "extra argument now"),
            (&["quit", "--status-port", "0"], 78, "1 to 65535"),
            (&["drain", "--port", "1"], 64, "did you mean --status-port?"),
            (&["status", "--url", "x"], 78, "http://HOST:PORT/PATH"),
            (&["status", "--url", "https://x"], 64, "no https"),
            (
                &["status", "--url", "http://1.1.1.1", "--status-port", "1"],
                78,
                "--status-port is given, too",
            ),
            (&["wait", "--help=never"], 78, "true or false"),
            (&["status", "--json=maybe"], 78, "true or false"),
            (&["status", "--status-port", "x"], 78, "number"),
        ];
        for (words, code, hint) in table {
            let stop = run(words).unwrap_err();
            assert_eq!(stop.code, code, "{words:?}");
            assert!(stop.stderr.contains(hint), "{words:?}: {}", stop.stderr);
            assert!(stop.stdout.is_empty());
        }
    }

    /// The table and the help know the same flags, with the same defaults.
    #[test]
    fn table_and_help_agree() {
        for (command, table) in [
            ("request", flags::REQUEST),
            ("wait", flags::WAIT),
            ("probe", flags::PROBE),
            ("status", flags::STATUS),
            ("drain", flags::ORDER),
            ("quit", flags::ORDER),
        ] {
            let stop = run(&[command, "--help"]).unwrap_err();
            assert_eq!(stop.code, 0);
            let help = stop.stdout;
            assert!(
                help.starts_with(&format!("Usage: pintle {command} ")),
                "{help}"
            );
            let options = help.lines().filter(|line| line.starts_with("  --")).count();
            assert_eq!(
                options,
                table.flags().count() + 1,
                "one line each, and --help: {help}"
            );
            let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
            for flag in table.flags() {
                let (_, at) = help.split_once(&format!(" --{} ", flag.name)).unwrap();
                let (described, _) = at.split_once(" --").unwrap();
                let default = format!("(default {})", flag.default);
                let has_none = flag.kind.is_bool() || flag.default.is_empty();
                assert!(has_none || described.contains(&default), "{}", flag.name);
            }
        }
    }
}
