//! The settings that the supervisor decides by.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::time::Duration;

use super::ConfigError;
use super::layers::{Layer, Layers, MIN_DURATION};
use crate::supervisor::{CleanExit, Policy};
use crate::values::duration;

/// A drain of more seconds than that, 68 years, is as long.
const MAX_SECONDS: i64 = 0x7fff_ffff;

#[inline(never)]
pub(super) fn policy(
    layers: &Layers<'_>,
    wait_for_certificates: bool,
    admin: SocketAddr,
    warnings: &mut Vec<String>,
) -> Policy {
    let rescan = layers.duration("rescan-interval", Duration::ZERO);
    if !rescan.is_zero() && rescan < Duration::from_secs(1) {
        layers.wrong("rescan-interval", "it must be 0 or at least 1s");
    }
    let hang = layers.duration("proxy-hang-timeout", Duration::ZERO);
    let (termination_drain, exit_on_zero) = drain(layers, warnings);
    let budget = layers.number("retry-budget", 0..=i64::from(u32::MAX));
    Policy {
        cert_debounce: layers.duration("cert-debounce", Duration::ZERO),
        rescan_interval: (!rescan.is_zero()).then_some(rescan),
        wait_for_certificates,
        termination_drain,
        exit_on_zero,
        pre_drain_delay: layers.duration("pre-drain-delay", Duration::ZERO),
        kill_timeout: layers.duration("kill-timeout", Duration::ZERO),
        retry_budget: u32::try_from(budget).unwrap_or(u32::MAX),
        retry_initial: layers.duration("retry-initial", MIN_DURATION),
        retry_reset: layers.duration("retry-reset", Duration::from_secs(1)),
        on_clean_exit: layers
            .parse("on-clean-exit", clean_exit)
            .unwrap_or(CleanExit::Exit),
        live_timeout: layers.duration("live-timeout", MIN_DURATION),
        admin: admin.to_string().leak(),
        hang_timeout: (!hang.is_zero()).then_some(hang),
        validate: layers.switch("validate"),
        hot_restart: !layers.switch("disable-hot-restart"),
        parent_stand_in: !layers.switch("no-parent-stand-in"),
        // Known later.
        parent_shutdown: Duration::ZERO,
        companions: 0,
        command: false,
    }
}

fn clean_exit(text: &str) -> Result<CleanExit, &'static str> {
    match text {
        "exit" => Ok(CleanExit::Exit),
        "restart" => Ok(CleanExit::Restart),
        "idle" => Ok(CleanExit::Idle),
        _ => Err("exit, restart or idle"),
    }
}

/// The longest drain, and the shortest where it ends with the last connection. A default gives way to a value that somebody
/// gave: with Istio's agent the longest means nothing where connections are counted.
fn drain(layers: &Layers<'_>, warnings: &mut Vec<String>) -> (Duration, Option<Duration>) {
    // Counts seconds and never stops the start, so it is read apart.
    const VARIABLE: &str = "TERMINATION_DRAIN_DURATION_SECONDS";
    let layer = layers.given("termination-drain-duration").layer;
    let mut longest = layers.duration("termination-drain-duration", Duration::ZERO);
    let mut is_given = layer != Layer::Default;
    if layer != Layer::Flag
        && let Some(text) = layers.variable(VARIABLE)
    {
        let seconds = text.parse::<i64>().ok();
        is_given = seconds.is_some();
        let cause = match seconds {
            None => "not a number of seconds, so 5 are taken",
            Some(0..) => "",
            Some(_) => "negative, so there is no drain",
        };
        let seconds = seconds.unwrap_or(5).clamp(0, MAX_SECONDS);
        longest = Duration::from_secs(seconds.unsigned_abs());
        if !cause.is_empty() {
            warnings.push(ConfigError::doubt(VARIABLE, text, cause));
        }
    }
    let mut shortest = layers.duration("minimum-drain-duration", Duration::ZERO);
    let given = layers.given("minimum-drain-duration");
    if !layers.switch("exit-on-zero-active-connections") {
        if given.layer != Layer::Default {
            let without = " means nothing without --exit-on-zero-active-connections";
            warnings.push([&given.origin(), without].concat());
        }
        return (longest, None);
    }
    if shortest <= longest {
        // Nothing gives way.
    } else if given.layer == Layer::Default {
        shortest = longest;
    } else if is_given {
        let longest = duration::proto(longest);
        let cause = "it must not be longer than --termination-drain-duration, ";
        given.refuse(&[cause, &longest].concat());
    } else {
        longest = shortest;
    }
    (longest, Some(shortest))
}
