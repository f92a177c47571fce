//! The arguments behind `--`, for Envoy, looked at first.
//!
//! Envoy ends with 1 on a flag that stands twice, and a flag that pintle writes itself would stand twice or break the
//! epochs; so both are refused here, with the setting to use instead. Envoy does not know `--x=y`, so it is split.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::Word;
use crate::search;

/// Checks and splits the arguments.
pub(super) fn check(arguments: &[Word]) -> Result<Vec<Word>, String> {
    let mut checked = Vec::with_capacity(arguments.len());
    let mut seen: Vec<Word> = Vec::new();
    for argument in arguments {
        let bytes = argument.as_bytes();
        if !bytes.starts_with(b"--") {
            // `-linfo` is `-l info`.
            if let Some(short) = bytes.get(..2) {
                refuse_owned(OsStr::from_bytes(short))?;
            }
            checked.push(*argument);
            continue;
        }
        let mut parts = bytes.splitn(2, |byte| *byte == b'=').map(OsStr::from_bytes);
        let name = parts.next().unwrap_or_default();
        refuse_owned(name)?;
        if seen.contains(&name) && name != REPEATABLE {
            return Err([&name.to_string_lossy(), " stands twice after --"].concat());
        }
        seen.push(name);
        checked.push(name);
        checked.extend(parts);
    }
    Ok(checked)
}

/// Whether Envoy was told not to ask its parent for statistics, so that the generation does not count.
#[must_use]
pub fn skips_parent_stats(extra: &[Word]) -> bool {
    extra
        .iter()
        .any(|word| *word == "--skip-hot-restart-parent-stats")
}

fn refuse_owned(name: &OsStr) -> Result<(), String> {
    // What is not UTF-8 is none of them.
    let name = name.to_str().unwrap_or_default();
    let mut owned = OWNED
        .split('\n')
        .filter_map(|line| search::split_once(line, ": "));
    match owned.find(|(owned, _)| search::is_one_of(name, owned)) {
        Some((_, instead)) => Err(["cannot pass ", name, " to the proxy: ", instead].concat()),
        None => Ok(()),
    }
}

/// Envoy's one flag that may stand more than once.
const REPEATABLE: &str = "--stats-tag";

/// Envoy's flags that pintle owns, and behind a colon what to use instead.
const OWNED: &str = "\
--: what follows it would be ignored
-c --config-path: use --custom-config-file or --template-file
--config-yaml: use the variable ISTIO_BOOTSTRAP_OVERRIDE, a JSON file
--restart-epoch: pintle counts the epochs
--base-id --disable-hot-restart --service-cluster --local-address-ip-version --concurrency: \
    use pintle's of that name, before the --
--use-dynamic-base-id --base-id-path: use --base-id auto, before the --
--socket-path --socket-mode: pintle answers on the hot-restart sockets; use --base-id
--drain-time-s: use --drain-duration
--parent-shutdown-time-s: use --parent-shutdown-duration
--service-node: use --ip, --id and --domain
--max-obj-name-len: use --stat-name-length
--allow-unknown-fields: use --legacy-envoy-args
--allow-unknown-static-fields: pintle always sets it
-l --log-level: use --proxy-log-level
--component-log-level: use --proxy-component-log-level
--mode: use --validate
--version --hot-restart-version -h --help: it would end the proxy; run the proxy by itself
";

#[cfg(test)]
mod tests {
    use super::super::words;
    use super::*;

    fn checked(line: &str) -> Result<Vec<Word>, String> {
        check(&words(line.split_whitespace()))
    }

    #[test]
    fn equals_signs_are_split() {
        let expected = words(["--log-format", "a=b", "--skip-deprecated-logs", "-x=y"]);
        assert_eq!(
            checked("--log-format=a=b --skip-deprecated-logs -x=y"),
            Ok(expected)
        );
        assert_eq!(checked("--log-path="), Ok(words(["--log-path", ""])));
    }

    #[test]
    fn every_owned_flag_is_refused_in_every_form() {
        let owned = OWNED.lines().filter_map(|line| line.split_once(": "));
        for owned in owned.flat_map(|(owned, _)| owned.split(' ')) {
            for form in ["", "=1", " 1"] {
                let line = format!("--log-path x {owned}{form}");
                assert!(checked(&line).is_err(), "{line}");
            }
        }
        for form in ["-linfo", "-cfile", "-l=info"] {
            assert!(checked(form).is_err(), "{form}");
        }
        assert_eq!(
            checked("--drain-time-s 5"),
            Err("cannot pass --drain-time-s to the proxy: use --drain-duration".into())
        );
    }

    #[test]
    fn a_flag_stands_once() {
        assert_eq!(
            checked("--log-path a --log-path=b"),
            Err("--log-path stands twice after --".into())
        );
        assert!(checked("--a -1 --b -1 x x").is_ok());
        assert!(checked("--stats-tag a:b --stats-tag=c:d").is_ok());
    }

    #[test]
    fn bytes_pass_through() {
        let odd = OsStr::from_bytes(&[b'-', b'-', b'x', 0xff, b'=', 0xfe]);
        let split = check(&[odd]).unwrap();
        assert_eq!(split.len(), 2);
        assert_eq!(split[1].as_bytes(), [0xfe]);
    }
}
