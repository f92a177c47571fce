//! `pintle proxy` and `pintle run`: the flags as typed, and their help.
//!
//! Every value is kept as text: what it means, and whether it may be, is for `config`, which also knows the variables.
//! A structure with a field for each flag was 11 kB; the table that the normaliser knows does as well.

#![forbid(unsafe_code)]

use super::flags::{PROXY, PROXY_HELP};
use super::{Word, normalise};
use crate::values::Role;

/// The arguments of `proxy` or `run`, in one spelling.
#[derive(Debug, Default)]
pub struct ProxyArgs {
    /// The first word, checked.
    pub role: Role,
    pub(crate) flags: ProxyFlags,
    /// The arguments behind the `--` of `proxy`, checked and split.
    pub extra: Vec<Word>,
    /// The command behind the `--` of `run`; empty for `proxy`.
    pub command: Vec<Word>,
    /// Flags of history that were given.
    pub warnings: Vec<String>,
}

/// Names of `flags::PROXY` and values, a scalar once.
#[derive(Debug, Default)]
pub(crate) struct ProxyFlags(pub(super) Vec<(&'static str, &'static str)>);

impl ProxyFlags {
    /// The flags that say where and how to log, of arguments that as a whole may not be understood.
    pub(super) fn of_log(arguments: &[Word]) -> Self {
        let mut flags = Vec::new();
        let mut words = arguments
            .iter()
            .map(|word| word.to_str().unwrap_or_default());
        while let Some(word) = words.next().filter(|word| *word != "--") {
            let (flag, value) = match word.split_once('=') {
                Some((flag, value)) => (flag, Some(value)),
                None => (word, None),
            };
            match normalise::kebab(flag).as_str() {
                "--log-target" => {
                    flags.extend(value.or_else(|| words.next()).map(|v| ("log-target", v)));
                }
                // The last one wins, so it is the first.
                "--log-as-json" => flags.insert(0, ("log-as-json", value.unwrap_or("true"))),
                _ => {}
            }
        }
        Self(flags)
    }

    /// The value of a scalar flag.
    pub(crate) fn scalar(&self, name: &str) -> Option<&'static str> {
        self.list(name).next()
    }

    /// The values of a flag that may be repeated.
    pub(crate) fn list(&self, name: &str) -> impl Iterator<Item = &'static str> {
        let given = self.0.iter().filter(move |(flag, _)| *flag == name);
        given.map(|(_, value)| *value)
    }
}

/// The help of `proxy`.
pub(super) fn help() -> String {
    help_with(ABOUT)
}

/// `about` and the flags, in the form of the others' help.
pub(super) fn help_with(about: &str) -> String {
    let mut help = [about, ROLE].concat();
    for (flag, described) in PROXY.flags().zip(PROXY_HELP.split_terminator('\n')) {
        help.push_str("  --");
        help.push_str(flag.name);
        // Where the line ends; beyond it, a word begins the next one.
        let mut column = flag.name.len() + 4;
        if column >= INDENT {
            column = WIDTH;
        }
        let default = match flag.default {
            _ if described.ends_with(')') => "",
            "" => " (default: none)",
            _ => " (default ",
        };
        let end = if default.ends_with(' ') { ")" } else { "" };
        let value = if end.is_empty() { "" } else { flag.default };
        for word in [described, default, value, end].concat().split(' ') {
            // The first one, and whatever does not fit.
            if column >= INDENT && column + 1 + word.len() > WIDTH {
                help.push('\n');
                column = 0;
            }
            let gap = INDENT.saturating_sub(column).max(1);
            help.extend(std::iter::repeat_n(' ', gap));
            help.push_str(word);
            column += gap + word.len();
        }
        help.push('\n');
    }
    help.push_str(NOTES);
    help
}

/// The column at which descriptions begin.
const INDENT: usize = 20;
/// The width of a terminal.
const WIDTH: usize = 80;

const ABOUT: &str = "Usage: pintle proxy [sidecar|router|ingress] [flags] [-- ENVOY ARGS...]

run Envoy: write its bootstrap, hot-restart it when certificates change, drain it on SIGTERM

";

const ROLE: &str = "Positional Arguments:
  role              sidecar (the default), router or ingress

Options:
";

const NOTES: &str = "  --help, -h        display usage information

Notes:
  Flags are written --config-path X, --config-path=X or --configPath X. Booleans take --flag,
  --flag=true or --flag=false; durations are Go's: 500ms, 45s, 1m0s. A scalar flag given twice: the
  last one wins. Order: defaults, PROXY_CONFIG, other variables, flags. Flags that another
  pilot-agent had and that mean nothing here are accepted with a warning.
  A companion's CMD ARGS is split at blanks. '...' is literal; \"...\" takes \\\" and \\\\; elsewhere \\ takes
  the next character. Nothing is expanded: no variables, patterns or redirections.
  Exit code N or 128+n: the retry budget is spent and nothing serves: the proxy's own code (127 not
  found, 126 not executable), or 128 + its signal.

Error codes:
  0 stopped on request and all ended in time, or a clean exit of the last proxy
  1 request, wait or probe failed
  64 usage: unknown command, flag or role, an argument too many, too few or refused
  71 the operating system refused something that the start needs
  78 a value or a file is malformed, missing, out of range or contradicts another
  137 on request, but a process had to be killed
  143 TERM, INT or QUIT before any epoch was LIVE
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::LogTarget;

    #[test]
    fn log_flags_are_understood_beside_unknown_ones() {
        let chosen = |line: &str| {
            let words = super::super::words(line.split_whitespace());
            ProxyFlags::of_log(&words).log(LogTarget::Stderr)
        };
        let file = |name: &str| LogTarget::File(name.into());
        let table = [
            ("--nonsense --x=1", false, vec![LogTarget::Stderr]),
            (
                "--logTarget stdout --nonsense",
                false,
                vec![LogTarget::Stdout],
            ),
            (
                "x --log_target=/a --log-target /b --log-target=/a",
                false,
                vec![file("/a"), file("/b")],
            ),
            ("--logAsJson --log-target", true, vec![LogTarget::Stderr]),
            (
                "--log-as-json --log-as-json=false",
                false,
                vec![LogTarget::Stderr],
            ),
            (
                "--log-as-json=false --log-as-json=true",
                true,
                vec![LogTarget::Stderr],
            ),
            ("--log-as-json=maybe", false, vec![LogTarget::Stderr]),
            (
                "-- --log-target /a --log-as-json",
                false,
                vec![LogTarget::Stderr],
            ),
        ];
        for (line, json, targets) in table {
            let log = chosen(line);
            assert_eq!((log.json, log.targets), (json, targets), "{line}");
        }
    }

    /// The table and the help know the same flags, with the same defaults.
    #[test]
    fn table_and_help_agree() {
        let help = help();
        let text = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for flag in PROXY.flags().filter(|flag| !flag.kind.is_history()) {
            let typed = ["--", flag.name].concat();
            let at = text
                .find(&format!(" {typed} "))
                .unwrap_or_else(|| panic!("{typed} in the help"));
            let until = text[at + 3..]
                .find(" --")
                .map_or(text.len(), |end| at + 3 + end);
            if !flag.default.is_empty() {
                let expected = format!("(default {}", flag.default);
                let described = &text[at..];
                assert!(
                    described
                        .find(&expected)
                        .is_some_and(|d| at + d < until + 80),
                    "{typed} {expected}"
                );
            }
        }
        let (listed, _) = help.split_once("Notes:").unwrap();
        let options = listed
            .lines()
            .filter(|line| line.starts_with("  --"))
            .count();
        let known = PROXY.flags().filter(|flag| !flag.kind.is_history()).count();
        assert_eq!(options, known + 1, "one line each, and --help");
        for code in [
            "0 ",
            "1 ",
            "64 ",
            "71 ",
            "78 ",
            "137 ",
            "143 ",
            "N or 128+n",
        ] {
            assert!(
                help.contains(&format!("  {code}")) || text.contains(code),
                "{code}"
            );
        }
    }

    /// History comes last, so that what the help says of the others stands beside them.
    #[test]
    fn every_flag_but_history_is_described() {
        let mut described = PROXY_HELP.split_terminator('\n');
        for flag in PROXY.flags() {
            let is_history = flag.kind.is_history();
            assert_eq!(described.next().is_none(), is_history, "{}", flag.name);
        }
    }

    #[test]
    fn lines_are_broken_where_they_must_be() {
        let help = help();
        let (_, options) = help.split_once("Options:\n").unwrap();
        let (options, _) = options.split_once("\n\nNotes").unwrap();
        assert!(options.lines().all(|line| line.len() <= 80), "{options}");
        assert!(options.contains(
            "  --stat-name-length\n                    the proxy's --max-obj-name-len, before Envoy 1.11 \
             (default:\n                    none)\n"
        ));
        assert!(
            options.contains(
                "\n  --service-cluster service cluster of the node (default istio-proxy)\n"
            )
        );
    }
}
