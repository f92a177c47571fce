//! `pintle init`: flags, then a command whose words are any bytes.

#![forbid(unsafe_code)]

use std::ffi::OsString;

use argh::FromArgs;

use super::Word;

/// What was typed after `init`.
#[derive(Debug, PartialEq, Eq)]
pub struct InitArgs {
    /// `-g`: signals go to the command's process group.
    pub group: bool,
    /// `-v`: says what it does.
    pub verbose: bool,
    /// The command and its arguments; never empty.
    pub command: Vec<OsString>,
}

/// run any program as its init: forward signals, reap orphans, end with its exit code
#[derive(Debug, FromArgs)]
#[argh(
    name = "init",
    help_triggers("--help", "-h"),
    usage = "[-g] [-v] [--] CMD [ARGS...]",
    error_code(64, "usage"),
    error_code(126, "CMD cannot be executed"),
    error_code(127, "CMD is not found"),
    note = "Else the exit code is CMD's own, or 128 + the signal that ended it."
)]
struct InitFlags {
    /// forward signals to the process group of CMD
    #[argh(switch, short = 'g')]
    group: bool,
    /// say what is done
    #[argh(switch, short = 'v')]
    verbose: bool,
}

/// `Err`: help.
pub(super) fn parse(arguments: &[Word]) -> Result<InitArgs, argh::EarlyExit> {
    let mut flags = Vec::new();
    let mut arguments = arguments;
    while let Some((argument, rest)) = arguments.split_first() {
        if *argument == "--" {
            arguments = rest;
            break;
        }
        match argument.to_str() {
            Some(flag) if flag.starts_with('-') && flag.len() > 1 => split(flag, &mut flags),
            // The first word that is no flag begins the command.
            Some(_) | None => break,
        }
        arguments = rest;
    }
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let flags = InitFlags::from_args(&["pintle", "init"], &flags)?;
    if arguments.is_empty() {
        return Err("a command is missing, as in pintle init -- CMD ARGS\n"
            .to_owned()
            .into());
    }
    Ok(InitArgs {
        group: flags.group,
        verbose: flags.verbose,
        command: arguments.iter().map(OsString::from).collect(),
    })
}

pub(super) fn help() -> String {
    let exit = InitFlags::from_args(&["pintle", "init"], &["--help"]).err();
    exit.map(|exit| exit.output).unwrap_or_default()
}

/// `-gv` is `-g -v`, and `-h` is `--help`.
fn split(flag: &str, flags: &mut Vec<String>) {
    if flag.starts_with("--") {
        flags.push(flag.to_owned());
        return;
    }
    for letter in flag.chars().skip(1) {
        flags.push(match letter {
            'h' => "--help".to_owned(),
            other => ['-', other].iter().collect(),
        });
    }
}

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
    fn where_the_command_begins() {
        let table = [
            ("-- a b", Some((false, false, "a b"))),
            ("-g -- a -v", Some((true, false, "a -v"))),
            ("-v a -g -- b", Some((false, true, "a -g -- b"))),
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
    fn words_are_bytes() {
        let odd = OsStr::from_bytes(&[0xff]);
        let args = parse(&[odd, "-g".as_ref()]).unwrap();
        assert_eq!(args.command, [odd, "-g".as_ref()]);
    }
}
