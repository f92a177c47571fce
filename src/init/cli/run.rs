//! `pintle run`: what `proxy` takes, and a command after `--`.

#![forbid(unsafe_code)]

use std::ffi::OsString;

/// What followed `--`, which must be something.
pub(super) fn command(rest: Vec<OsString>) -> Result<Vec<OsString>, &'static str> {
    if rest.is_empty() {
        return Err("a command is missing, as in pintle run [flags] -- CMD ARGS");
    }
    Ok(rest)
}

/// The help of `proxy`, whose flags these are, with another usage. One help for both is one copy of it in the binary.
pub(super) fn help(proxy: &str) -> String {
    // The usage and the description are its first two paragraphs.
    let mut paragraphs = proxy.splitn(3, "\n\n");
    let flags = paragraphs.nth(2).unwrap_or(proxy);
    [ABOUT, flags].concat()
}

/// How the command and the proxy live together.
const ABOUT: &str = "Usage: pintle run [sidecar|router|ingress] [flags] -- CMD [ARGS...]

run CMD beside Envoy: start it once Envoy is ready, stop Envoy when it ends, drain and all; for Jobs

The exit code is CMD's own, or 128 + the signal that ended it; 127: CMD is not found, 126: it cannot be executed;
143: TERM, INT or QUIT came before CMD was started.

HUP and USR1 mean what they mean to the proxy command. While CMD runs, every other signal goes to it, and a third TERM
or INT kills it; after its end they mean what they mean to the proxy command. CMD should end on TERM.

When Envoy fails for good, CMD gets TERM, after --kill-timeout KILL, and the exit code is as below. When Envoy exits
with 0, or quit is posted, CMD first has --kill-timeout to end by itself, with its own code.

The log is on stdout, beside CMD's output; --log-target stderr moves it. The flags are those of the proxy command:

";

#[cfg(test)]
mod tests {
    use argh::FromArgs as _;

    use super::super::proxy::ProxyFlags;
    use super::*;

    #[test]
    fn the_help_has_its_own_usage_and_the_flags_of_proxy() {
        let proxy = ProxyFlags::from_args(&["pintle", "run"], &["--help"]).unwrap_err();
        let help = help(&proxy.output);
        assert!(help.starts_with("Usage: pintle run [sidecar"), "{help}");
        assert_eq!(help.matches("Usage:").count(), 1, "{help}");
        assert!(!help.contains("ENVOY ARGS"), "{help}");
        let (_, options) = proxy.output.split_once("Options:").unwrap();
        assert!(help.ends_with(options), "{help}");
    }
}
