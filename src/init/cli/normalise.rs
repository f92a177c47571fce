//! Brings pilot-agent's spellings to one: every flag becomes `--kebab-case value`, each scalar once.
//!
//! Its output has one spelling. Nothing here knows the meaning of a flag.

#![forbid(unsafe_code)]

use super::flags::{Flag, FlagKind, Table};
use super::{Word, nearest};
use crate::values;

/// An argument list in one spelling.
#[derive(Debug, Default)]
pub(super) struct Normal {
    /// Name and value, a scalar once, in the order of first appearance.
    pub(super) flags: Vec<(&'static str, &'static str)>,
    /// Words that belong to no flag.
    pub(super) words: Vec<&'static str>,
    /// The arguments behind `--`.
    pub(super) rest: Vec<Word>,
    /// `--help` or `-h` was among them.
    pub(super) help: bool,
    /// One for each flag of history, in the order of appearance.
    pub(super) warnings: Vec<String>,
}

/// Why an argument list cannot be understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// A usage error.
    Usage(String),
    /// A value that cannot be used, or a flag that nothing can honour any more.
    Value(String),
}

/// Sorts `arguments` into flags, words and the rest.
pub(super) fn normalise(table: Table, arguments: &[Word]) -> Result<Normal, Refusal> {
    let mut normal = Normal::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        if *argument == "--" {
            normal.rest = arguments.as_slice().to_vec();
            break;
        }
        let argument = text(argument)?;
        if argument == "--help" {
            normal.help = true;
        } else if let Some(value) = argument.strip_prefix("--help=") {
            normal.help = switch("help", value)?;
        } else if let Some(flag) = argument.strip_prefix("--") {
            let (flag, value) = one(table, flag, &mut arguments)?;
            normal.add(flag, value)?;
        } else if argument.starts_with('-') && argument.len() > 1 {
            normal.letters(table, argument, &mut arguments)?;
        } else {
            normal.words.push(argument);
        }
    }
    Ok(normal)
}

/// The flag written as `name` or `name=value`, with its value, which may be the next argument.
fn one(
    table: Table,
    written: &'static str,
    arguments: &mut std::slice::Iter<'_, Word>,
) -> Result<(Flag, &'static str), Refusal> {
    let (name, value) = match written.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (written, None),
    };
    let Some(flag) = table.find(&kebab(name)) else {
        return Err(unknown(table, &["--", name].concat(), name));
    };
    let value = match value {
        Some(value) => value,
        // As in cobra, a bare switch leaves the next word alone.
        None if flag.kind.is_bool() => "true",
        None => next(flag, arguments)?,
    };
    Ok((flag, value))
}

/// The value that is the next argument.
fn next(flag: Flag, arguments: &mut std::slice::Iter<'_, Word>) -> Result<&'static str, Refusal> {
    match arguments.next() {
        Some(next) => text(next),
        None => {
            let missing = ["--", flag.name, " needs a value"];
            Err(Refusal::Usage(missing.concat()))
        }
    }
}

impl Normal {
    /// `-gv` is `--group --verbose`; `-o X`, `-oX` and `-o=X` are `--output X`.
    fn letters(
        &mut self,
        table: Table,
        argument: &'static str,
        arguments: &mut std::slice::Iter<'_, Word>,
    ) -> Result<(), Refusal> {
        for (at, letter) in argument.bytes().enumerate().skip(1) {
            let name = match letter {
                b'h' => {
                    self.help = true;
                    continue;
                }
                b'g' => "group",
                b'o' => "output",
                b's' => "short",
                b'v' => "verbose",
                _ => "",
            };
            let Some(flag) = table.find(name) else {
                return Err(unknown(table, argument, argument.trim_start_matches('-')));
            };
            if flag.kind.is_bool() {
                self.replace(flag.name, "true");
                continue;
            }
            let value = match argument.get(at + 1..).unwrap_or_default() {
                "" => next(flag, arguments)?,
                value => value.strip_prefix('=').unwrap_or(value),
            };
            self.replace(flag.name, value);
            break;
        }
        Ok(())
    }

    fn add(&mut self, flag: Flag, value: &'static str) -> Result<(), Refusal> {
        match flag.kind {
            FlagKind::List => {
                for item in value.split(',').map(str::trim) {
                    if !item.is_empty() {
                        self.flags.push((flag.name, item));
                    } else if flag.name == "watch" {
                        // `--application-ports ""` says that there are none; a path has a name.
                        return Err(wrong(flag.name, value, "a path must not be empty"));
                    }
                }
            }
            FlagKind::Repeated => self.flags.push((flag.name, value)),
            FlagKind::Legacy | FlagKind::LegacyBool => {
                let warning = ["--", flag.name, " is accepted and means nothing here"].concat();
                if !self.warnings.contains(&warning) {
                    self.warnings.push(warning);
                }
            }
            FlagKind::Gone | FlagKind::GoneBool => {
                let asks = if flag.kind == FlagKind::Gone {
                    !value.is_empty()
                } else {
                    switch(flag.name, value)?
                };
                if asks {
                    let cause = ": Envoy has no Lightstep tracer any more";
                    let gone = ["cannot use --", flag.name, cause];
                    return Err(Refusal::Value(gone.concat()));
                }
            }
            FlagKind::Bool | FlagKind::Text | FlagKind::Number | FlagKind::Duration => {
                self.replace(flag.name, value);
            }
        }
        Ok(())
    }

    /// The last one wins.
    fn replace(&mut self, name: &'static str, value: &'static str) {
        match self.flags.iter_mut().find(|(flag, _)| *flag == name) {
            Some(given) => given.1 = value,
            None => self.flags.push((name, value)),
        }
    }

    /// All of it in its one spelling, for tests.
    #[cfg(test)]
    pub(super) fn canonical(&self) -> Vec<String> {
        let mut canonical = Vec::with_capacity(self.flags.len() * 2 + self.words.len() + 1);
        for (flag, value) in &self.flags {
            canonical.push(["--", flag].concat());
            canonical.push((*value).to_owned());
        }
        // So that no word is taken for a flag or for a cry for help.
        canonical.push("--".to_owned());
        canonical.extend(self.words.iter().map(ToString::to_string));
        canonical
    }
}

fn text(argument: Word) -> Result<&'static str, Refusal> {
    argument.to_str().ok_or_else(|| {
        let shown = argument.to_string_lossy();
        Refusal::Usage([&shown, " is not UTF-8"].concat())
    })
}

#[cold]
fn unknown(table: Table, written: &str, name: &str) -> Refusal {
    let near = nearest::did_you_mean(table, &kebab(name));
    Refusal::Usage(["unknown flag ", written, &near].concat())
}

/// True or false, as every other switch takes it.
pub(super) fn switch(name: &str, value: &str) -> Result<bool, Refusal> {
    values::switch(value).map_err(|cause| wrong(name, value, cause))
}

#[cold]
fn wrong(name: &str, value: &str, cause: &str) -> Refusal {
    let what = ["cannot use --", name, " \"", value, "\": ", cause];
    Refusal::Value(what.concat())
}

/// `configPath`, `config_path` and `config-path` are one flag.
pub(crate) fn kebab(name: &str) -> String {
    let mut kebab = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            kebab.push('-');
            kebab.push(letter.to_ascii_lowercase());
        } else if letter == '_' {
            kebab.push('-');
        } else {
            kebab.push(letter);
        }
    }
    kebab
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::flags;
    use super::*;

    fn words(line: &str) -> Vec<Word> {
        let words = line.split_whitespace();
        super::super::words(words.map(|word| if word == "''" { "" } else { word }))
    }

    fn normal(line: &str) -> Result<String, Refusal> {
        normalise(flags::PROXY, &words(line)).map(|normal| normal.canonical().join(" "))
    }

    #[test]
    fn spellings_become_one() {
        let table = [
            ("--config-path X", "--config-path X --"),
            ("--config-path=X", "--config-path X --"),
            ("--configPath X", "--config-path X --"),
            ("--configPath=X", "--config-path X --"),
            ("--config_path X", "--config-path X --"),
            (
                "--log_output_level=default:info",
                "--log-output-level default:info --",
            ),
            ("--statsdUdpAddress=a:1", "--statsd-udp-address a:1 --"),
            ("--discoveryAddress=a=b", "--discovery-address a=b --"),
            ("--validate router", "--validate true -- router"),
            ("--validate=false router", "--validate false -- router"),
            (
                "--applicationPorts 80,81 --applicationPorts=82",
                "--application-ports 80 --application-ports 81 --application-ports 82 --",
            ),
            ("--applicationPorts ''", "--"),
            (
                "--log_target a,b --log_target c",
                "--log-target a,b --log-target c --",
            ),
            ("--ip 1 --domain d --ip=2", "--ip 2 --domain d --"),
            ("--id --domain", "--id --domain --"),
            ("sidecar --stsPort=0 --profiling x", "-- sidecar x"),
        ];
        for (given, expected) in table {
            assert_eq!(normal(given).as_deref(), Ok(expected), "{given}");
        }
    }

    #[test]
    fn faults_are_named() {
        let table = [
            (
                "--confg-path X",
                "unknown flag --confg-path; did you mean --config-path?",
            ),
            (
                "--drainDurations=1s",
                "unknown flag --drainDurations; did you mean --drain-duration?",
            ),
            (
                "-confg-path",
                "unknown flag -confg-path; did you mean --config-path?",
            ),
            (
                "--logLevel debug",
                "unknown flag --logLevel; did you mean --proxy-log-level, --proxy-component-log-level or --log-output-level?",
            ),
            ("--", ""),
            ("--ip", "--ip needs a value"),
        ];
        for (given, expected) in table {
            match normal(given) {
                Ok(_) => assert_eq!(expected, "", "{given}"),
                Err(refusal) => assert_eq!(refusal, Refusal::Usage(expected.to_owned())),
            }
        }
    }

    #[test]
    fn help_is_a_switch_like_any_other() {
        let help = |line: &str| normalise(flags::PROXY, &words(line)).map(|normal| normal.help);
        for line in [
            "--help",
            "-h",
            "--help=true",
            "--help=1",
            "router --help=T --ip x",
        ] {
            assert_eq!(help(line), Ok(true), "{line}");
        }
        assert_eq!(help("--help=false"), Ok(false));
        let refused = Refusal::Value("cannot use --help \"maybe\": true or false".to_owned());
        assert_eq!(help("--help=maybe"), Err(refused));
    }

    #[test]
    fn history_warns_once_each() {
        let line = "--bootstrapv2 --availabilityZone z --bootstrapv2=false --controlPlaneBootstrap";
        let normal = normalise(flags::PROXY, &words(line)).unwrap();
        assert_eq!(normal.warnings.len(), 3);
        assert!(normal.flags.is_empty());
    }

    #[test]
    fn lightstep_is_refused_unless_it_asks_for_nothing() {
        assert!(matches!(
            normal("--lightstepAddress ls:80"),
            Err(Refusal::Value(_))
        ));
        assert!(matches!(
            normal("--lightstepSecure"),
            Err(Refusal::Value(_))
        ));
        assert!(normal("--lightstepSecure=false --lightstepAddress=").is_ok());
    }

    #[test]
    fn a_switch_takes_what_go_takes() {
        for no in ["0", "f", "F", "false", "False", "FALSE"] {
            assert!(normal(&["--lightstepSecure=", no].concat()).is_ok(), "{no}");
        }
        for yes in ["1", "t", "T", "true", "True", "TRUE"] {
            let refused = normal(&["--lightstepSecure=", yes].concat()).unwrap_err();
            let gone = "cannot use --lightstep-secure: Envoy has no Lightstep tracer any more";
            assert_eq!(refused, Refusal::Value(gone.to_owned()), "{yes}");
        }
        let odd = "cannot use --lightstep-secure \"no\": true or false";
        assert_eq!(
            normal("--lightstepSecure=no").unwrap_err(),
            Refusal::Value(odd.to_owned())
        );
    }

    #[test]
    fn a_path_to_watch_has_a_name() {
        for nameless in ["", ",", "/a,", "/a,,/b"] {
            let why = [
                "cannot use --watch \"",
                nameless,
                "\": a path must not be empty",
            ];
            assert_eq!(
                normal(&["--watch=", nameless].concat()),
                Err(Refusal::Value(why.concat()))
            );
        }
        for fine in [
            "--watch /a,/b --application-ports=",
            "--application-ports 80,",
        ] {
            assert!(normal(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn the_rest_may_be_any_bytes() {
        use std::os::unix::ffi::OsStrExt as _;
        let odd: Word = std::ffi::OsStr::from_bytes(b"-\xff");
        let rest = normalise(flags::PROXY, &["--".as_ref(), odd]).unwrap();
        assert_eq!(rest.rest, [odd]);
        assert!(normalise(flags::PROXY, &[odd]).is_err());
    }

    proptest! {
        #[test]
        fn any_strings_are_survived(strings in proptest::collection::vec(".{0,12}|--[a-zA-Z_=-]{0,20}", 0..8)) {
            if let Ok(normal) = normalise(flags::PROXY, &super::super::words(strings)) {
                // What came out goes through unchanged.
                let again = normal.flags.iter().map(|(flag, value)| format!("--{flag}={value}"));
                let again = normalise(flags::PROXY, &super::super::words(again)).unwrap();
                prop_assert_eq!(again.canonical().len(), normal.flags.len() * 2 + 1);
                prop_assert!(normal.canonical().starts_with(&again.canonical()));
            }
        }
    }
}
