//! The command line: from the argument list to a `Subcommand`, or to an `EarlyExit` with the text to print and the exit code.
//!
//! `normalise` brings every spelling of pilot-agent's to one. Values stay text; `config` says what they mean. Called by another name (`pilot-agent`) nothing changes.

#![forbid(unsafe_code)]

mod client;
mod extra;
pub mod flags;
mod init;
mod log;
mod nearest;
mod normalise;
mod proxy;
mod run;
mod typed;
mod version;

use std::ffi::OsStr;

pub use self::client::ClientArgs;
pub(crate) use self::client::Task;
pub use self::extra::skips_parent_stats;
pub use self::init::InitArgs;
pub(crate) use self::normalise::kebab;
use self::normalise::{Normal, Refusal};
pub use self::proxy::ProxyArgs;
pub(crate) use self::proxy::ProxyFlags;
use self::typed::Typed;
pub(crate) use self::version::{REVISION, VERSION};
use crate::log::{LogConfig, LogTarget};
use crate::values::Role;

/// Usage: unknown command, flag or role, a missing or extra argument, a refused argument after `--`.
pub const EXIT_USAGE: u8 = 64;
/// A value is malformed, out of range or contradicts another.
pub const EXIT_CONFIG: u8 = 78;

/// An argument: where the process has it, and never copied.
pub type Word = &'static OsStr;

/// A command to carry out.
#[derive(Debug)]
pub enum Subcommand {
    /// `proxy`, or `run` when there is a command in it.
    Proxy(Box<ProxyArgs>),
    Init(InitArgs),
    Client(ClientArgs),
}

/// Nothing more to do: what to print, and the exit code.
#[derive(Debug, PartialEq, Eq)]
pub struct EarlyExit {
    pub code: u8,
    pub stdout: String,
    pub stderr: String,
    /// The log in which `proxy` and `run` would have told it; the text of `stderr` goes there instead, in one line.
    pub log: Option<LogConfig>,
}

impl EarlyExit {
    fn done(stdout: String) -> Box<Self> {
        Box::new(Self {
            code: 0,
            stdout,
            stderr: String::new(),
            log: None,
        })
    }

    fn usage(command: &str, what: &str) -> Box<Self> {
        let help = if command.is_empty() { "help" } else { "--help" };
        let parts = ["pintle: ", what.trim_end(), "\ntry: pintle ", command];
        let space = if command.is_empty() { "" } else { " " };
        let stderr = [&parts.concat(), space, help, "\n"].concat();
        Self::failed(EXIT_USAGE, stderr)
    }

    fn failed(code: u8, stderr: String) -> Box<Self> {
        Box::new(Self {
            code,
            stdout: String::new(),
            stderr,
            log: None,
        })
    }
}

/// The argument list, its first item being the program's name.
///
/// # Errors
/// Help and version, which are done with code 0, and whatever cannot be understood.
// Not inlined: the caller's frame must not hold its locals.
#[inline(never)]
pub fn parse(arguments: &[Word]) -> Result<Subcommand, Box<EarlyExit>> {
    let Some((command, rest)) = arguments.get(1..).and_then(<[Word]>::split_first) else {
        return Err(EarlyExit::usage("", "a command is missing"));
    };
    match command.to_str() {
        Some(name @ ("proxy" | "run")) => {
            let args = proxy(name, rest).map_err(|stop| logged(stop, rest));
            args.map(|args| Subcommand::Proxy(Box::new(args)))
        }
        Some("init") => init::parse(rest).map(Subcommand::Init),
        Some(name @ ("request" | "wait" | "probe" | "status" | "drain" | "quit")) => {
            client::parse(name, rest).map(Subcommand::Client)
        }
        Some("version") => Err(version(rest).map_or_else(|stop| stop, EarlyExit::done)),
        Some("help" | "--help" | "--help=true" | "-h") => Err(help(rest)),
        Some("--version" | "-V") => parse(&["".as_ref(), "version".as_ref()]),
        Some(_) | None => {
            let name = command.to_string_lossy();
            // Flags stand behind the command; `--hlep` may have been meant as one.
            let plain = name.trim_start_matches('-');
            let near = nearest::nearest(plain, &mut commands());
            let mut what = ["unknown command ", &name].concat();
            if let Some(near) = near {
                what.push_str("; did you mean ");
                what.push_str(near);
                what.push('?');
            }
            Err(EarlyExit::usage("", &what))
        }
    }
}

/// `name` is `proxy` or `run`, which differ in what follows `--`.
fn proxy(name: &str, arguments: &[Word]) -> Result<ProxyArgs, Box<EarlyExit>> {
    let normal = normalised(name, flags::PROXY, arguments)?;
    let mut words = normal.words.into_iter();
    let role = match words.next() {
        None | Some("sidecar") => Role::Sidecar,
        Some("router") => Role::Router,
        Some("ingress") => Role::Ingress,
        Some(other) => {
            let what = ["unknown role ", other, ": sidecar, router or ingress"];
            return Err(EarlyExit::usage(name, &what.concat()));
        }
    };
    extra_argument(name, words.next().as_ref())?;
    let (extra, command) = if name == "run" {
        (Ok(Vec::new()), run::command(normal.rest))
    } else {
        (extra::check(&normal.rest), Ok(Vec::new()))
    };
    Ok(ProxyArgs {
        role,
        flags: ProxyFlags(normal.flags),
        extra: extra.map_err(|what| EarlyExit::usage(name, &what))?,
        command: command.map_err(|what| EarlyExit::usage(name, what))?,
        warnings: normal.warnings,
    })
}

/// Moves a fault into the log: in a pod's log and its termination message, it is one line.
fn logged(mut stop: Box<EarlyExit>, arguments: &[Word]) -> Box<EarlyExit> {
    if stop.code != 0 {
        let what = stop.stderr.trim_end();
        let what = what.strip_prefix("pintle: ").unwrap_or(what);
        let (what, help) = what.split_once('\n').unwrap_or((what, ""));
        let question = what.ends_with('?') || help.is_empty();
        stop.stderr = [what, if question { " " } else { "; " }, help].concat();
        let length = stop.stderr.trim_end().len();
        stop.stderr.truncate(length);
        // Not on stdout, where it is not asked for: that is the command's of `run`.
        let flags = ProxyFlags::of_log(arguments);
        stop.log = Some(flags.log(LogTarget::Stderr));
    }
    stop
}

fn version(arguments: &[Word]) -> Result<String, Box<EarlyExit>> {
    const NAME: &str = "version";
    let normal = normalised(NAME, flags::VERSION, arguments)?;
    if !normal.rest.is_empty() {
        return Err(EarlyExit::usage(NAME, "extra argument after --"));
    }
    extra_argument(NAME, normal.words.first())?;
    let typed = Typed::of(&normal)?;
    version::render(typed.short, typed.output.as_deref().unwrap_or_default())
        .map_err(|what| EarlyExit::failed(EXIT_CONFIG, what))
}

/// There is no word too many.
fn extra_argument(command: &str, extra: Option<&&str>) -> Result<(), Box<EarlyExit>> {
    match extra {
        Some(extra) => Err(EarlyExit::usage(
            command,
            &["extra argument ", extra].concat(),
        )),
        None => Ok(()),
    }
}

fn help(arguments: &[Word]) -> Box<EarlyExit> {
    match arguments.first().map(|name| name.to_string_lossy()) {
        None => help_of(""),
        Some(name) if commands().any(|command| command == name) => help_of(&name),
        Some(name) => EarlyExit::usage("", &["unknown command ", &name].concat()),
    }
}

fn help_of(command: &str) -> Box<EarlyExit> {
    EarlyExit::done(match command {
        "proxy" => proxy::help(),
        "run" => run::help(),
        "init" => init::help(),
        "version" => version::help(),
        "request" | "wait" | "probe" | "status" | "drain" | "quit" => client::help(command),
        _ => TOP.to_owned(),
    })
}

/// Help, where that is asked for, is an error here.
fn normalised(
    command: &str,
    table: flags::Table,
    arguments: &[Word],
) -> Result<Normal, Box<EarlyExit>> {
    match normalise::normalise(table, arguments) {
        Ok(normal) if normal.help => Err(help_of(command)),
        Ok(normal) => Ok(normal),
        Err(Refusal::Usage(what)) => Err(EarlyExit::usage(command, &what)),
        Err(Refusal::Value(what)) => Err(EarlyExit::failed(
            EXIT_CONFIG,
            ["pintle: ", &what, "\n"].concat(),
        )),
    }
}

/// The commands, as the help writes them.
fn commands() -> impl Iterator<Item = &'static str> {
    let lines = TOP.split('\n').filter_map(|line| line.strip_prefix("  "));
    lines.filter_map(|line| line.split(' ').next())
}

const TOP: &str = "Usage: pintle <command> [<args>]

PID 1 for Envoy.

Commands:
  proxy     run Envoy: bootstrap, certificates, hot restarts, drain
  run       run a command beside Envoy, and end with it (for Jobs)
  request   ask Envoy's admin port
  wait      wait until the proxy is ready
  probe     ask once whether the proxy is ready
  status    show what the running agent is doing
  drain     drain the proxy without stopping it
  quit      stop the proxy and the agent now, without a drain
  init      run any program as its init
  version   print the version
  help      print this

Help for one of them: pintle <command> --help
";

/// Arguments as the process would have them.
#[cfg(test)]
pub(crate) fn words<T: AsRef<OsStr>>(words: impl IntoIterator<Item = T>) -> Vec<Word> {
    let word = |word: T| -> Word { Box::leak(word.as_ref().into()) };
    words.into_iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> Result<Subcommand, Box<EarlyExit>> {
        parse(&words(line.split_whitespace()))
    }

    fn code(line: &str) -> Option<u8> {
        run(line).err().map(|stop| stop.code)
    }

    #[test]
    fn exit_codes() {
        let table = [
            ("pintle", Some(64)),
            ("", Some(64)),
            ("pintle proxy", None),
            ("pintle proxy sidecar", None),
            ("/usr/local/bin/pilot-agent proxy router", None),
            ("pintle proxy ingress", None),
            ("pintle proxy gateway", Some(64)),
            ("pintle proxy help", Some(64)),
            ("pintle proxy sidecar extra", Some(64)),
            ("pintle proxy --no-such-flag", Some(64)),
            ("pintle proxy --lightstepAddress x:1", Some(78)),
            ("pintle proxy -- --restart-epoch 1", Some(64)),
            ("pintle proxy -- --log-path x", None),
            ("pintle proxy --help", Some(0)),
            ("pintle proxy sidecar -h --bootstrapv2", Some(0)),
            ("pintle help", Some(0)),
            ("pintle --help", Some(0)),
            ("pintle help proxy", Some(0)),
            ("pintle help nothing", Some(64)),
            ("pintle run", Some(64)),
            ("pintle init", Some(64)),
            ("pintle init -- true", None),
            ("pintle init --help", Some(0)),
            ("pintle init --grup -- true", Some(64)),
            ("pintle --help=true", Some(0)),
            ("pintle proxy --help=true", Some(0)),
            ("pintle version --help=1", Some(0)),
            ("pintle proxy --help=maybe", Some(78)),
            ("pintle drain", None),
            ("pintle drain --help", Some(0)),
            ("pintle help quit", Some(0)),
            ("pintle quit now", Some(64)),
            ("pintle run", Some(64)),
            ("pintle run --", Some(64)),
            ("pintle run sidecar", Some(64)),
            ("pintle run curl", Some(64)),
            ("pintle run --no-such-flag -- true", Some(64)),
            ("pintle run -- true", None),
            ("pintle run -- --restart-epoch 1", None),
            ("pintle run router --base-id auto -- true --help", None),
            ("pintle run --help", Some(0)),
            ("pintle help run", Some(0)),
            ("pintle version", Some(0)),
            ("pintle version -s", Some(0)),
            ("pintle --version", Some(0)),
            ("pintle -V", Some(0)),
            ("pintle version --short=false -o json", Some(0)),
            ("pintle version -oyaml", Some(0)),
            ("pintle version --output=xml", Some(78)),
            ("pintle version --short=maybe", Some(78)),
            ("pintle version extra", Some(64)),
            ("pintle version --help", Some(0)),
        ];
        for (line, expected) in table {
            assert_eq!(code(line), expected, "{line}");
        }
    }

    #[test]
    fn help_goes_to_stdout_and_errors_to_stderr() {
        for line in ["pintle help", "pintle proxy --help", "pintle init -h"] {
            let stop = run(line).unwrap_err();
            assert!(
                stop.stdout.starts_with("Usage: pintle ") && stop.stderr.is_empty(),
                "{stop:?}"
            );
        }
        let stop = run("pintle porxy").unwrap_err();
        assert_eq!(
            stop.stderr,
            "pintle: unknown command porxy; did you mean proxy?\ntry: pintle help\n"
        );
        let stop = run("pintle proxy --confgPath x").unwrap_err();
        assert_eq!(
            stop.stderr,
            "unknown flag --confgPath; did you mean --config-path? try: pintle proxy --help"
        );
        let stop = run("pintle run router x -- true").unwrap_err();
        assert_eq!(stop.stderr, "extra argument x; try: pintle run --help");
        let stop = run("pintle proxy --lightstepAddress x:1").unwrap_err();
        assert!(stop.stderr.ends_with("any more"), "{}", stop.stderr);
        assert!(stop.stdout.is_empty());
    }

    #[test]
    fn version_as_pilot_agent_writes_it() {
        let json = run("pintle version -o json").unwrap_err().stdout;
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(value["clientVersion"]["version"], version);
        assert!(value["clientVersion"]["revision"].is_string());
        let short = run("pintle version --short").unwrap_err().stdout;
        assert_eq!(short, format!("{version}\n"));
    }

    #[test]
    fn words_that_are_not_utf8() {
        use std::os::unix::ffi::OsStrExt as _;
        let odd = OsStr::from_bytes(&[0xff]);
        for head in [
            vec!["p"],
            vec!["p", "proxy"],
            vec!["p", "proxy", "--id"],
            vec!["p", "version"],
        ] {
            let mut arguments = words(head);
            arguments.push(odd);
            assert_eq!(parse(&arguments).unwrap_err().code, 64);
        }
    }
}
