//! The origin of a value: defaults < `PROXY_CONFIG` < other variables < flags.
//!
//! Faults are noted here, and the first one counts: a caller that asks for a value gets one in any case, and looks once, at the
//! end. Two hundred `?`, each with the values that it drops, were 8 kB of code.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use super::ConfigError;
use super::proxy_config::ProxyConfig;
use crate::cli::ProxyArgs;
use crate::cli::flags::{Flag, FlagKind, PROXY};
use crate::environment::Environment;
use crate::values::{self, duration};

/// The shortest that is a duration at all: shorter ones would spin.
pub(super) const MIN_DURATION: Duration = Duration::from_millis(1);

/// All that may give a value.
#[derive(Debug)]
pub(super) struct Layers<'a> {
    pub(super) args: &'a ProxyArgs,
    /// With `proxyMetadata` under it.
    pub(super) environment: Environment,
    pub(super) config: ProxyConfig,
    /// The first one.
    error: Cell<Option<ConfigError>>,
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
    /// The name of the flag, the variable or the key.
    name: &'static str,
    error: &'l Cell<Option<ConfigError>>,
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

    /// Notes that it is wrong.
    pub(super) fn refuse(&self, cause: &str) {
        note(self.error, self.wrong(cause));
    }

    pub(super) fn some(self) -> Option<Self> {
        (!self.text.is_empty()).then_some(self)
    }
}

/// The first one counts.
#[cold]
#[inline(never)]
fn note(noted: &Cell<Option<ConfigError>>, error: ConfigError) {
    if noted.get().is_none() {
        noted.set(Some(error));
    }
}

impl<'a> Layers<'a> {
    pub(super) fn new(args: &'a ProxyArgs, environment: Environment) -> Self {
        let mut layers = Self {
            args,
            environment,
            config: ProxyConfig::default(),
            error: Cell::new(None),
        };
        let config = layers.variable("PROXY_CONFIG").map(ProxyConfig::parse);
        layers.config = config
            .and_then(|config| layers.noted(config))
            .unwrap_or_default();
        for (name, value) in &layers.config.metadata {
            layers.environment.stand_in(name, value);
        }
        layers
    }

    /// The first thing that was wrong.
    pub(super) fn error(&self) -> Option<ConfigError> {
        self.error.get()
    }

    pub(super) fn refuse(&self, error: ConfigError) {
        note(&self.error, error);
    }

    /// `None` has been noted.
    pub(super) fn noted<T>(&self, result: Result<T, ConfigError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.refuse(error);
                None
            }
        }
    }

    /// The value of a scalar flag, from the highest layer that has one.
    ///
    /// An empty text counts as one only where the default is not empty: `--proxyLogLevel ""` says something, `--ip ""`
    /// does not.
    pub(super) fn given(&self, name: &'static str) -> Given<'_> {
        let flag = PROXY.find(name);
        debug_assert!(flag.is_some(), "{name} is a flag");
        let nothing = Flag {
            name,
            kind: FlagKind::Text,
            default: "",
            variable: "",
        };
        self.given_for(&flag.unwrap_or(nothing))
    }

    fn given_for(&self, flag: &Flag) -> Given<'_> {
        let (name, default, stand_in) = (flag.name, flag.default, flag.variable);
        let error = &self.error;
        let of = |layer, name, text| Given {
            text,
            layer,
            name,
            error,
        };
        // Also where a flag wins, it must be good.
        let variable = match stand_in {
            "" => None,
            _ => self.variable(stand_in),
        };
        if let Some(text) = self.args.flags.scalar(name)
            && (!text.is_empty() || !default.is_empty())
        {
            return of(Layer::Flag, name, text);
        }
        if let Some(text) = variable {
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

    /// The text alone, where nobody asks who gave it.
    #[inline(never)]
    pub(super) fn text(&self, name: &'static str) -> &str {
        self.given(name).text
    }

    /// The text, unless it is empty.
    pub(super) fn some(&self, name: &'static str) -> Option<&str> {
        Some(self.text(name)).filter(|text| !text.is_empty())
    }

    /// The text, which must not be empty.
    pub(super) fn required(&self, name: &'static str) -> &str {
        let text = self.text(name);
        if text.is_empty() {
            self.wrong(name, "it must not be empty");
        }
        text
    }

    /// Parses a flag's value; `None` has been noted.
    pub(super) fn parse<'l, T>(
        &'l self,
        name: &'static str,
        parse: impl FnOnce(&'l str) -> Result<T, &'static str>,
    ) -> Option<T> {
        parse(self.text(name))
            .map_err(|cause| self.wrong(name, cause))
            .ok()
    }

    /// Notes that the value of a flag is wrong.
    #[cold]
    #[inline(never)]
    pub(super) fn wrong(&self, name: &'static str, cause: &str) {
        self.refuse(self.given(name).wrong(cause));
    }

    /// A variable that no flag stands for.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        let variable = self.environment.get(name);
        variable.unwrap_or_else(|_| {
            self.refuse(ConfigError::unreadable(name, "it is not UTF-8"));
            None
        })
    }

    pub(super) fn switch(&self, name: &'static str) -> bool {
        self.parse(name, values::switch).unwrap_or_default()
    }

    /// A number; the caller says which ones are good.
    pub(super) fn number(&self, name: &'static str, range: RangeInclusive<i64>) -> i64 {
        let Ok(number) = self.text(name).parse() else {
            self.wrong(name, "not a whole number");
            return 0;
        };
        if !range.contains(&number) {
            let (low, high) = (range.start().to_string(), range.end().to_string());
            self.wrong(name, &["out of range, ", &low, " to ", &high].concat());
        }
        number
    }

    pub(super) fn port(&self, name: &'static str) -> u16 {
        let number = self.number(name, 0..=i64::from(u16::MAX));
        u16::try_from(number).unwrap_or(0)
    }

    /// A duration of at least `min`.
    pub(super) fn duration(&self, name: &'static str, min: Duration) -> Duration {
        let duration = self.parse(name, duration::parse).unwrap_or(min);
        if duration < min {
            self.wrong(
                name,
                &["it must be at least ", &duration::proto(min)].concat(),
            );
        }
        duration
    }

    pub(super) fn address(&self, name: &'static str) -> IpAddr {
        let address = self.parse(name, values::address);
        address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }
}
