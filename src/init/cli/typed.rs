//! The values of the flags of every command but `proxy` and `run`: argh parses what `normalise` has brought to one
//! spelling. One structure for all, because each one that argh derives weighs 1 kB, without the help.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;

use argh::FromArgs;

use super::normalise::Normal;
use super::{EXIT_CONFIG, EarlyExit};
use crate::values;

/// The flags of all of them, with their defaults; `flags` says which command has which.
#[derive(Debug, FromArgs)]
#[argh(help_triggers())]
#[expect(clippy::struct_excessive_bools, reason = "switches of four commands")]
pub(crate) struct Typed {
    /// what to ask
    #[argh(option)]
    pub(crate) url: Option<String>,
    /// the agent's port
    #[argh(option, from_str_fn(port))]
    pub(crate) status_port: Option<u32>,
    /// the port of `request`
    #[argh(option, from_str_fn(port), default = "15_000")]
    pub(crate) debug_port: u32,
    /// how long to wait in all; u32::MAX is 136 years
    #[argh(option, from_str_fn(any), default = "60")]
    pub(crate) timeout_seconds: u32,
    /// the pause between two tries; u32::MAX is 49 days
    #[argh(option, from_str_fn(positive), default = "500")]
    pub(crate) period_millis: u32,
    /// how long one try may take
    #[argh(option, from_str_fn(positive), default = "500")]
    pub(crate) request_timeout_millis: u32,
    /// the agent's own words
    #[argh(option, from_str_fn(switch), default = "false")]
    pub(crate) json: bool,
    /// again and again
    #[argh(option, from_str_fn(switch), default = "false")]
    pub(crate) watch: bool,
    /// signals go to the process group
    #[argh(option, from_str_fn(switch), default = "false")]
    pub(crate) group: bool,
    /// say what is done
    #[argh(option, from_str_fn(switch), default = "false")]
    pub(crate) verbose: bool,
    /// the number only
    #[argh(option, from_str_fn(switch), default = "false")]
    pub(crate) short: bool,
    /// json or yaml
    #[argh(option)]
    pub(crate) output: Option<String>,
}

impl Typed {
    pub(super) fn of(normal: &Normal) -> Result<Self, Box<EarlyExit>> {
        let mut words = Vec::new();
        for (name, value) in &normal.flags {
            // The few that there are may stay: most of the commands end soon.
            words.push(&*["--", name].concat().leak());
            words.push(value);
        }
        Self::from_args(&[], &words).map_err(|exit| {
            let what = exit.output.strip_prefix("Error parsing option ");
            let what = ["pintle: cannot use ", what.unwrap_or(&exit.output)];
            EarlyExit::failed(EXIT_CONFIG, what.concat())
        })
    }
}

fn switch(value: &str) -> Result<bool, String> {
    values::switch(value).map_err(str::to_owned)
}

fn port(value: &str) -> Result<u32, String> {
    number(value, 1..=u32::from(u16::MAX))
}

fn any(value: &str) -> Result<u32, String> {
    number(value, 0..=u32::MAX)
}

fn positive(value: &str) -> Result<u32, String> {
    number(value, 1..=u32::MAX)
}

fn number(value: &str, allowed: RangeInclusive<u32>) -> Result<u32, String> {
    let number = value.parse().ok();
    number
        .filter(|number| allowed.contains(number))
        .ok_or_else(|| {
            let (min, max) = (allowed.start().to_string(), allowed.end().to_string());
            ["a number from ", &min, " to ", &max].concat()
        })
}
