//! The command line, by argh. The starter is a program: there are no short forms but `-V`, and nothing is guessed.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use argh::FromArgs;

/// The time that a probe may take where no time is given, or 0. pilot-agent 1.1.5 waited as long.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// A gRPC service's name, in bytes. Chosen: longer than any name in use, and small beside the 8 KiB of a request's head.
const MAX_SERVICE_LENGTH: usize = 1024;
/// Options that take a value.
const OPTIONS: [&str; 2] = ["--service", "--timeout-millis"];
const NAME: &str = "pintle-probe";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The target of the probe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// The request is on stdin.
    Https {
        address: SocketAddr,
        timeout: Duration,
    },
    /// The standard health service, in plain text.
    Grpc {
        address: SocketAddr,
        service: String,
        timeout: Duration,
    },
}

impl Command {
    pub(crate) fn timeout(&self) -> Duration {
        match self {
            Self::Https { timeout, .. } | Self::Grpc { timeout, .. } => *timeout,
        }
    }
}

/// Why there is nothing to probe.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Help or the version, for stdout.
    Say(String),
    /// A fault of the arguments, for stderr.
    Usage(String),
}

/// One HTTPS or gRPC health probe; an HTTP/1.1 response goes to stdout
#[derive(FromArgs)]
struct Arguments {
    /// print the version
    #[argh(switch, short = 'V')]
    version: bool,
    #[argh(subcommand)]
    kind: Option<Kind>,
}

/// The two probes.
#[derive(FromArgs)]
#[argh(subcommand)]
enum Kind {
    Https(Https),
    Grpc(Grpc),
}

/// send the HTTP/1.1 request on stdin by TLS (HTTP/1.1 or HTTP/2, no certificate is verified)
#[derive(FromArgs)]
#[argh(subcommand, name = "https")]
struct Https {
    /// IP:PORT of the server
    #[argh(positional)]
    address: SocketAddr,
    /// for everything, 0 is 10000
    #[argh(option, default = "0", arg_name = "n")]
    timeout_millis: u32,
}

/// ask grpc.health.v1.Health, in plain text
#[derive(FromArgs)]
#[argh(subcommand, name = "grpc")]
struct Grpc {
    /// IP:PORT of the server
    #[argh(positional)]
    address: SocketAddr,
    /// the service to ask about, the server as a whole by default
    #[argh(option, default = "String::new()", arg_name = "name")]
    service: String,
    /// for everything, 0 is 10000
    #[argh(option, default = "0", arg_name = "n")]
    timeout_millis: u32,
}

/// The arguments without the program's name.
pub(crate) fn parse(given: impl Iterator<Item = OsString>) -> Result<Command, Stop> {
    let words = given
        .map(OsString::into_string)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|word| Stop::Usage(format!("cannot use {}: not UTF-8", word.display())))?;
    let words = apart(&words);
    let arguments = Arguments::from_args(&[NAME], &words).map_err(|exit| {
        let text = exit.output.trim_end().to_owned();
        match exit.status {
            Ok(()) => Stop::Say(text),
            Err(()) => Stop::Usage(text),
        }
    })?;
    if arguments.version {
        return Err(Stop::Say([NAME, " ", VERSION].concat()));
    }
    match arguments.kind {
        Some(Kind::Https(https)) => Ok(Command::Https {
            address: https.address,
            timeout: timeout(https.timeout_millis),
        }),
        Some(Kind::Grpc(grpc)) if grpc.service.len() > MAX_SERVICE_LENGTH => Err(Stop::Usage(
            format!("cannot use --service: more than {MAX_SERVICE_LENGTH} bytes"),
        )),
        Some(Kind::Grpc(grpc)) => Ok(Command::Grpc {
            address: grpc.address,
            service: grpc.service,
            timeout: timeout(grpc.timeout_millis),
        }),
        None => Err(Stop::Usage(
            "cannot probe nothing: https or grpc, see --help".to_owned(),
        )),
    }
}

/// `--option=value` as two words, which is what argh knows. A value is left alone, whatever it looks like.
fn apart(words: &[String]) -> Vec<&str> {
    let mut result = Vec::new();
    let mut is_value = false;
    for word in words {
        let pair = OPTIONS
            .iter()
            .find_map(|option| Some((*option, word.strip_prefix(option)?.strip_prefix('=')?)));
        match pair {
            Some((option, value)) if !is_value => result.extend([option, value]),
            Some(_) | None => result.push(word),
        }
        is_value = !is_value && OPTIONS.contains(&word.as_str());
    }
    result
}

fn timeout(millis: u32) -> Duration {
    match millis {
        0 => DEFAULT_TIMEOUT,
        millis => Duration::from_millis(millis.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, Stop> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn both_probes_are_understood() {
        assert_eq!(
            parsed("https [::1]:8443 --timeout-millis 250"),
            Ok(Command::Https {
                address: "[::1]:8443".parse().unwrap(),
                timeout: Duration::from_millis(250),
            })
        );
        assert_eq!(
            parsed("grpc --service a.b 127.0.0.1:9000"),
            Ok(Command::Grpc {
                address: "127.0.0.1:9000".parse().unwrap(),
                service: "a.b".to_owned(),
                timeout: DEFAULT_TIMEOUT,
            })
        );
    }

    #[test]
    fn a_value_may_follow_an_equals_sign() {
        let service = |line: &str| match parsed(line) {
            Ok(Command::Grpc { service, .. }) => service,
            other => panic!("{line}: {other:?}"),
        };
        for (line, expected) in [
            ("grpc 127.0.0.1:1 --service=a.b --timeout-millis=5", "a.b"),
            ("grpc 127.0.0.1:1 --service=", ""),
            ("grpc 127.0.0.1:1 --service=--help", "--help"),
            ("grpc 127.0.0.1:1 --service=a=b", "a=b"),
            ("grpc 127.0.0.1:1 --service --service=a", "--service=a"),
        ] {
            assert_eq!(service(line), expected);
        }
        assert!(parsed("https 127.0.0.1:1 --timeout-millis=").is_err());
        assert!(parsed("https 127.0.0.1:1 --timeout-millis=5").is_ok());
    }

    #[test]
    fn zero_is_the_default() {
        let command = parsed("https 127.0.0.1:1 --timeout-millis 0").unwrap();
        assert_eq!(command.timeout(), DEFAULT_TIMEOUT);
    }

    #[test]
    fn invalid_arguments_are_a_usage_error() {
        for line in [
            "",
            "tcp 127.0.0.1:1",
            "https",
            "https localhost:8443",
            "https 127.0.0.1",
            "https 127.0.0.1:70000",
            "https 127.0.0.1:1 --timeout-millis -1",
            "https 127.0.0.1:1 --timeout-millis 99999999999",
            "https 127.0.0.1:1 --service x",
            "https 127.0.0.1:1 127.0.0.1:2",
            "grpc --service",
        ] {
            assert!(
                matches!(parsed(line), Err(Stop::Usage(text)) if !text.is_empty()),
                "{line}"
            );
        }
        let long = format!(
            "grpc 127.0.0.1:1 --service {}",
            "x".repeat(MAX_SERVICE_LENGTH + 1)
        );
        assert!(matches!(parsed(&long), Err(Stop::Usage(_))));
    }

    #[test]
    fn help_and_version_are_said() {
        for line in ["--help", "https --help", "grpc --help", "--version"] {
            assert!(
                matches!(parsed(line), Err(Stop::Say(text)) if !text.is_empty()),
                "{line}"
            );
        }
        assert_eq!(
            parsed("-V"),
            Err(Stop::Say(["pintle-probe ", VERSION].concat()))
        );
        assert_eq!(
            parsed("--version"),
            Err(Stop::Say(format!("pintle-probe {VERSION}")))
        );
    }
}
