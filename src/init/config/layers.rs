//! Who gave a value: defaults < `PROXY_CONFIG` < other variables < flags.

#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::proxy_config::ProxyConfig;
use super::{ConfigError, duration, values};
use crate::cli::ProxyArgs;
use crate::cli::flags::{Flag, PROXY};
use crate::environment::Environment;

/// The shortest that is a duration at all: shorter ones would spin.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// All that may give a value.
#[derive(Debug)]
pub(super) struct Layers<'a> {
    pub(super) args: &'a ProxyArgs,
    /// With `proxyMetadata` under it.
    pub(super) environment: Environment,
    pub(super) config: ProxyConfig,
}

/// Higher wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    Default,
    ProxyConfig,
    Variable,
    Flag,
}

/// A value and who gave it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'l> {
    pub(super) text: &'l str,
    pub(super) layer: Layer,
    /// Of the flag, the variable or the key.
    name: &'static str,
}

impl<'l> Given<'l> {
    pub(super) fn origin(&self) -> String {
        match self.layer {
            Layer::Default | Layer::Flag => ["--", self.name].concat(),
            Layer::Variable => self.name.to_owned(),
            Layer::ProxyConfig => ["PROXY_CONFIG ", self.name].concat(),
        }
    }

    pub(super) fn wrong(&self, cause: &str) -> ConfigError {
        ConfigError::value(&self.origin(), self.text, cause)
    }

    pub(super) fn some(self) -> Option<Self> {
        (!self.text.is_empty()).then_some(self)
    }

    /// The value, unless it is empty.
    pub(super) fn required(self) -> Result<&'l str, ConfigError> {
        self.some()
            .map(|given| given.text)
            .ok_or_else(|| self.wrong("it must not be empty"))
    }

    pub(super) fn parse<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, &'static str>,
    ) -> Result<T, ConfigError> {
        parse(self.text).map_err(|cause| self.wrong(cause))
    }
}

impl<'a> Layers<'a> {
    pub(super) fn new(args: &'a ProxyArgs, environment: &Environment) -> Result<Self, ConfigError> {
        let mut environment = environment.clone();
        let text = variable(&environment, "PROXY_CONFIG")?;
        let config = text.map_or_else(|| Ok(ProxyConfig::default()), ProxyConfig::parse)?;
        for (name, value) in &config.metadata {
            environment.stand_in(name, value);
        }
        let layers = Self {
            args,
            environment,
            config,
        };
        for flag in PROXY.flags() {
            layers.check(&flag)?;
        }
        Ok(layers)
    }

    /// What `given` then does not need to look at any more.
    fn check(&self, flag: &Flag) -> Result<(), ConfigError> {
        if !flag.variable.is_empty() {
            self.variable(flag.variable)?;
        }
        let given = self.given(flag.name);
        if given.text.contains('\0') {
            return Err(given.wrong("it holds a NUL byte"));
        }
        Ok(())
    }

    /// The value of a scalar flag, from the highest layer that has one.
    ///
    /// An empty text counts as one only where the default is not empty: `--proxyLogLevel ""` says something, `--ip ""`
    /// does not.
    pub(super) fn given(&self, name: &'static str) -> Given<'_> {
        let flag = PROXY.find(name);
        debug_assert!(flag.is_some(), "{name} is a flag");
        let (default, stand_in) = flag.map_or(("", ""), |flag| (flag.default, flag.variable));
        let of = |layer, name, text| Given { text, layer, name };
        if let Some(text) = self.args.flags.scalar(name)
            && (!text.is_empty() || !default.is_empty())
        {
            return of(Layer::Flag, name, text);
        }
        if !stand_in.is_empty()
            && let Ok(Some(text)) = self.variable(stand_in)
        {
            return of(Layer::Variable, stand_in, text);
        }
        let mut values = self.config.values.iter().rev();
        if let Some((_, key, text)) =
            values.find(|(flag, _, text)| *flag == name && !text.is_empty())
        {
            return of(Layer::ProxyConfig, key, text);
        }
        of(Layer::Default, name, default)
    }

    /// A variable that no flag stands for.
    pub(super) fn variable(&self, name: &str) -> Result<Option<&str>, ConfigError> {
        variable(&self.environment, name)
    }

    pub(super) fn switch(&self, name: &'static str) -> Result<bool, ConfigError> {
        self.given(name).parse(values::switch)
    }

    /// A number; the caller says which ones are good.
    pub(super) fn number(
        &self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<i64, ConfigError> {
        let given = self.given(name);
        number(&given, range)
    }

    pub(super) fn port(&self, name: &'static str) -> Result<u16, ConfigError> {
        let number = self.number(name, 0..=i64::from(u16::MAX))?;
        Ok(u16::try_from(number).unwrap_or(0))
    }

    /// A duration of at least `least`.
    pub(super) fn duration(
        &self,
        name: &'static str,
        least: Duration,
    ) -> Result<Duration, ConfigError> {
        let given = self.given(name);
        let duration = given.parse(duration::parse)?;
        if duration < least {
            return Err(given.wrong(&["it must be at least ", &duration::proto(least)].concat()));
        }
        Ok(duration)
    }

    pub(super) fn address(&self, name: &'static str) -> Result<IpAddr, ConfigError> {
        self.given(name).parse(values::address)
    }
}

/// A whole number within `range`.
pub(super) fn number(given: &Given<'_>, range: RangeInclusive<i64>) -> Result<i64, ConfigError> {
    let number: i64 = given
        .text
        .parse()
        .map_err(|_| given.wrong("not a whole number"))?;
    if range.contains(&number) {
        return Ok(number);
    }
    let (low, high) = (range.start().to_string(), range.end().to_string());
    Err(given.wrong(&["out of range, ", &low, " to ", &high].concat()))
}

fn variable<'e>(environment: &'e Environment, name: &str) -> Result<Option<&'e str>, ConfigError> {
    environment
        .get(name)
        .map_err(|_| ConfigError::unreadable(name, "it is not UTF-8"))
}
