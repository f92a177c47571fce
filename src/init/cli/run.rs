//! `pintle run`: what `proxy` takes, and a command after `--`.

#![forbid(unsafe_code)]

use super::Word;

/// Returns the command behind `--`, which must not be empty.
pub(super) fn command(rest: Vec<Word>) -> Result<Vec<Word>, &'static str> {
    if rest.is_empty() {
        return Err("a command is missing, as in pintle run [flags] -- CMD ARGS");
    }
    Ok(rest)
}

/// The flags are those of `proxy`, and their help is.
pub(super) fn help() -> String {
    super::proxy::help_with(ABOUT)
}

/// The rules by which the command and the proxy live together.
const ABOUT: &str = "Usage: pintle run [sidecar|router|ingress] [flags] -- CMD [ARGS...]

run CMD beside Envoy: start it once Envoy is ready, stop Envoy when it ends, drain and all; for Jobs

The exit code is CMD's own, or 128 + the signal that ended it; 127: CMD is not found, 126: it cannot be executed;
143: TERM, INT or QUIT, or Envoy's own end with 0, came before CMD was started.

HUP and USR1 mean what they mean to the proxy command. While CMD runs, every other signal goes to it, and a third TERM
or INT kills it; after its end they mean what they mean to the proxy command. CMD should end on TERM.

When Envoy fails for good, CMD gets TERM, after --kill-timeout KILL, and the exit code is as below. When Envoy exits
with 0, or quit is posted, CMD first has --kill-timeout to end by itself. The exit code is CMD's, or 0 if quit had to
send TERM.

The log is on stdout, beside CMD's output; --log-target stderr moves it. The flags are those of the proxy command:

";

#[cfg(test)]
mod tests {
    use super::super::proxy;
    use super::*;

    #[test]
    fn the_help_has_its_own_usage_and_the_flags_of_proxy() {
        let proxy = proxy::help();
        let help = help();
        assert!(help.starts_with("Usage: pintle run [sidecar"), "{help}");
        assert_eq!(help.matches("Usage:").count(), 1, "{help}");
        assert!(!help.contains("ENVOY ARGS"), "{help}");
        let (_, options) = proxy.split_once("Options:").unwrap();
        assert!(help.ends_with(options), "{help}");
    }
}
