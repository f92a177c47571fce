//! `request`, `wait`, `probe`, `status`, `drain` and `quit`: a few flags each. Their help is written here as it is
//! printed.

#![forbid(unsafe_code)]

use super::flags;
use super::normalise::Normal;
use super::typed::Typed;
use super::{EXIT_CONFIG, EarlyExit, Word, extra_argument, normalised};
use crate::url::{Url, UrlError, path};

/// The arguments of a command that asks from outside.
#[derive(Debug)]
pub struct ClientArgs {
    pub(crate) task: Task,
    pub(crate) url: Url,
    /// In upper case.
    pub(crate) method: String,
    pub(crate) body: Option<&'static str>,
    pub(crate) flags: Typed,
}

/// The use of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Request,
    Wait,
    Probe,
    Status,
    /// `drain` or `quit`.
    Order,
}

/// The path at which the agent says whether the proxy is ready.
const READY: &str = "/healthz/ready";
/// The default of `--status-port`.
const STATUS_PORT: u32 = 15_020;

/// The arguments of `command`, or help.
pub(super) fn parse(command: &str, arguments: &[Word]) -> Result<ClientArgs, Box<EarlyExit>> {
    let (task, table, path) = match command {
        "request" => (Task::Request, flags::REQUEST, ""),
        "wait" => (Task::Wait, flags::WAIT, READY),
        "probe" => (Task::Probe, flags::PROBE, READY),
        "status" => (Task::Status, flags::STATUS, "/status"),
        "drain" => (Task::Order, flags::ORDER, "/drain"),
        _ => (Task::Order, flags::ORDER, "/quitquitquit"),
    };
    let mut normal = normalised(command, table, arguments)?;
    let mut words = words(command, &mut normal)?.into_iter();
    let flags = Typed::of(&normal)?;
    let (mut method, mut path, mut body) = ("POST", path, None);
    let mut port = flags.status_port.unwrap_or(STATUS_PORT);
    if task == Task::Request {
        let (Some(first), Some(second)) = (words.next(), words.next()) else {
            let what = "METHOD and PATH are needed, as in GET /stats";
            return Err(EarlyExit::usage(command, what));
        };
        let is_method = |byte: u8| byte.is_ascii_alphabetic() || byte == b'-';
        if first.is_empty() || !first.bytes().all(is_method) {
            return Err(EarlyExit::usage(
                command,
                "METHOD is a word like GET or POST",
            ));
        }
        (method, path, body) = (first, second, words.next());
        port = flags.debug_port;
    }
    extra_argument(command, words.next().as_ref())?;
    let port = u16::try_from(port).unwrap_or(u16::MAX);
    let Some(path) = self::path(path) else {
        return Err(EarlyExit::usage(command, "PATH has a control character"));
    };
    // Of this machine, by any family of addresses.
    let mut url = Url::here(port, path);
    let is_given = |url: &&String| task != Task::Status || !url.is_empty();
    if let Some(text) = flags.url.as_ref().filter(is_given) {
        let path = std::mem::take(&mut url.path);
        url = Url::parse(text).map_err(|error| bad(text, why(error)))?;
        if task == Task::Status {
            if flags.status_port.is_some() {
                return Err(bad(text, "--status-port is given, too"));
            }
            // It may be left out.
            if url.path == "/" {
                url.path = path;
            }
        }
    }
    Ok(ClientArgs {
        task,
        url,
        method: method.to_ascii_uppercase(),
        body,
        flags,
    })
}

/// The words, those after `--` among them: a body may begin with a dash.
fn words(command: &str, normal: &mut Normal) -> Result<Vec<&'static str>, Box<EarlyExit>> {
    let mut words = std::mem::take(&mut normal.words);
    for word in &normal.rest {
        let Some(word) = word.to_str() else {
            let shown = word.to_string_lossy();
            return Err(EarlyExit::usage(
                command,
                &[&shown, " is not UTF-8"].concat(),
            ));
        };
        words.push(word);
    }
    Ok(words)
}

const fn why(error: UrlError) -> &'static str {
    match error {
        UrlError::Tls => "only http is spoken here, no https",
        UrlError::Form => {
            "its form is http://HOST:PORT/PATH, where HOST is an address or localhost"
        }
    }
}

fn bad(url: &str, cause: &str) -> Box<EarlyExit> {
    let parts = ["pintle: cannot use --url \"", url, "\": ", cause, "\n"];
    EarlyExit::failed(EXIT_CONFIG, parts.concat())
}

/// The help of one of the commands.
pub(super) fn help(command: &str) -> String {
    let (about, option, more) = match command {
        "request" => (REQUEST, DEBUG_PORT, ""),
        "wait" => (WAIT, URL, WAIT_MORE),
        "probe" => (PROBE, URL, ""),
        "status" => (STATUS, STATUS_PORT_FLAG, STATUS_MORE),
        "drain" => (DRAIN, STATUS_PORT_FLAG, ""),
        _ => (QUIT, STATUS_PORT_FLAG, ""),
    };
    let parts = [
        "Usage: pintle ",
        command,
        about,
        OPTIONS,
        option,
        more,
        HELP,
    ];
    parts.concat()
}

const OPTIONS: &str = "\n\nOptions:\n";

const HELP: &str = "  --help, -h        display usage information

Error codes:
  1 it failed; stderr says why
  64 usage
  78 a value is malformed or out of range
";

const REQUEST: &str = " [--debug-port N] METHOD PATH [BODY]

ask Envoy's admin port of this machine; the answer goes to stdout, and nothing else does

A status above 399 is a failure, but for 404, whose body is an answer. The server is waited for 60 s at most.
A BODY that begins with a dash stands after --.";

const DEBUG_PORT: &str = "  --debug-port      the port (default 15000); 15020 is the status port\n";

const WAIT: &str = " [flags]

wait until a URL answers 200: until the proxy is ready";

const URL: &str =
    "  --url             what to ask (default http://127.0.0.1:15020/healthz/ready): http only,
                    and an address or localhost
";

const WAIT_MORE: &str = "  --timeout-seconds
                    how long to wait in all (default 60)
  --period-millis   the pause between two tries (default 500)
  --request-timeout-millis
                    how long one try may take (default 500)
";

const PROBE: &str = " [--url U]

ask a URL once; 200 is success: for exec probes in images without a shell";

const STATUS: &str = " [--status-port N | --url U] [--json] [--watch]

show what the running agent is doing: epochs, companions, the last events";

const STATUS_PORT_FLAG: &str = "  --status-port     the agent's status port (default 15020)\n";

const STATUS_MORE: &str = "  --url             an agent elsewhere, as in http://10.0.0.1:15020
  --json            print what the agent says as it is, for programs
  --watch           look again every second, until interrupted
";

const DRAIN: &str = " [--status-port N]

drain the proxy without stopping it: it is not ready from then on, and a later TERM does not drain again";

const QUIT: &str = " [--status-port N]

stop the proxy and the agent at once, without a drain";

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str]) -> Result<ClientArgs, Box<EarlyExit>> {
        let (command, rest) = words.split_first().unwrap();
        parse(command, &super::super::words(rest))
    }

    fn request(words: &[&str]) -> ClientArgs {
        let args = run(words).unwrap();
        assert_eq!(args.task, Task::Request);
        args
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
        let wait = |words: &[&str]| {
            let args = run(words).unwrap();
            assert_eq!(args.task, Task::Wait);
            let flags = args.flags;
            let (period, request) = (flags.period_millis, flags.request_timeout_millis);
            (args.url.to_string(), flags.timeout_seconds, period, request)
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
        let url = |words: &[&str]| run(words).unwrap().url.to_string();
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
            (&["wait", "--url", "https://x/"], 78, "no https"),
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
            (&["status", "--url", "https://x"], 78, "no https"),
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
        let flags = Typed::of(&Normal::default()).unwrap();
        let defaults = [
            ("status-port", STATUS_PORT),
            ("debug-port", flags.debug_port),
            ("timeout-seconds", flags.timeout_seconds),
            ("period-millis", flags.period_millis),
            ("request-timeout-millis", flags.request_timeout_millis),
        ];
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
                let default = defaults.iter().find(|(name, _)| *name == flag.name);
                let default = default.map(|(_, number)| format!("(default {number})"));
                let said = default.is_none_or(|default| described.contains(&default));
                assert!(said, "{}", flag.name);
            }
        }
    }
}
