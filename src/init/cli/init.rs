//! `pintle init`: flags, then a command whose words are any bytes.

#![forbid(unsafe_code)]

use std::ffi::OsString;

use super::flags::INIT;
use super::typed::Typed;
use super::{EarlyExit, Word, normalised};

/// The arguments of `init`.
#[derive(Debug, PartialEq, Eq)]
pub struct InitArgs {
    /// `-g`: signals go to the command's process group.
    pub group: bool,
    /// `-v`: says what it does.
    pub verbose: bool,
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
}

/// Parses the arguments; asked for help, it stops.
pub(super) fn parse(arguments: &[Word]) -> Result<InitArgs, Box<EarlyExit>> {
    // The first word that is no flag begins the command; it may be any bytes.
    let is_flag = |word: &&Word| {
        word.to_str()
            .is_some_and(|word| word.starts_with('-') && word.len() > 1 && word != "--")
    };
    let flags = arguments.iter().take_while(is_flag).count();
    let (flags, mut command) = arguments
        .split_at_checked(flags)
        .unwrap_or((&[], arguments));
    if command.first().is_some_and(|word| *word == "--") {
        command = command.get(1..).unwrap_or_default();
    }
    let normal = normalised("init", INIT, flags)?;
    if command.is_empty() {
        return Err(EarlyExit::usage(
            "init",
            "a command is missing, as in pintle init -- CMD ARGS",
        ));
    }
    let typed = Typed::of(&normal)?;
    Ok(InitArgs {
        group: typed.group,
        verbose: typed.verbose,
        command: command.iter().map(OsString::from).collect(),
    })
}

pub(super) fn help() -> String {
    HELP.to_owned()
}

const HELP: &str = "Usage: pintle init [-g] [-v] [--] CMD [ARGS...]

run any program as its init: forward signals, reap orphans, end with its exit code

Options:
  -g, --group       forward signals to the process group of CMD
  -v, --verbose     say what is done
  --help, -h        display usage information

Notes:
  Else the exit code is CMD's own, or 128 + the signal that ended it.

Error codes:
  64 usage
  71 the system refused something
  78 a value is malformed
  126 CMD cannot be executed
  127 CMD is not found
";

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::super::words;
    use super::*;

    fn init(line: &str) -> Option<(bool, bool, String)> {
        let args = parse(&words(line.split_whitespace())).ok()?;
        let command: Vec<_> = args
            .command
            .iter()
            .filter_map(|word| word.to_str())
            .collect();
        Some((args.group, args.verbose, command.join(" ")))
    }

    #[test]
    fn the_command_begins_behind_the_flags() {
        let table = [
            ("-- a b", Some((false, false, "a b"))),
            ("-g -- a -v", Some((true, false, "a -v"))),
            ("-v a -g -- b", Some((false, true, "a -g -- b"))),
            ("--group=false --verbose=true a", Some((false, true, "a"))),
            ("--group=maybe a", None),
            ("-gx a", None),
            ("-gv a", Some((true, true, "a"))),
            ("--group --verbose a", Some((true, true, "a"))),
            ("-- -g", Some((false, false, "-g"))),
            ("-- --", Some((false, false, "--"))),
            ("", None),
            ("--", None),
            ("-x a", None),
            ("-g -g a", Some((true, false, "a"))),
        ];
        for (line, expected) in table {
            let expected =
                expected.map(|(group, verbose, command)| (group, verbose, command.to_owned()));
            assert_eq!(init(line), expected, "{line}");
        }
    }

    #[test]
    fn an_unknown_flag_names_the_nearest() {
        for (line, expected) in [
            ("--grup -- a", "unknown flag --grup; did you mean --group?"),
            ("-gx a", "unknown flag -gx; did you mean --group?"),
            (
                "--Verbse a",
                "unknown flag --Verbse; did you mean --verbose?",
            ),
        ] {
            let stop = parse(&words(line.split_whitespace())).unwrap_err();
            assert_eq!(stop.code, 64, "{line}");
            assert!(stop.stderr.contains(expected), "{line}: {}", stop.stderr);
        }
        let stop = parse(&words(["--help=true"])).unwrap_err();
        assert_eq!((stop.code, stop.stdout), (0, help()));
    }

    #[test]
    fn words_are_bytes() {
        let odd = OsStr::from_bytes(&[0xff]);
        let args = parse(&[odd, "-g".as_ref()]).unwrap();
        assert_eq!(args.command, [odd, "-g".as_ref()]);
    }
}
