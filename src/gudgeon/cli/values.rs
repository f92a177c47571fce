//! Values of flags, as Go programs read them.

use std::path::PathBuf;
use std::time::Duration;

use api::config::rules::is_agent_address;
use api::model::Network;
use clap::ValueEnum;

/// The longest time that is of use here, far below what overflows when it is added to a clock.
const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The gravity of a finding of `analyze`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Info,
    Warning,
    Error,
}

impl Level {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "Info",
            Self::Warning => "Warning",
            Self::Error => "Error",
        }
    }

    /// In any case, `warn` too.
    pub(super) fn read(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "info" => Ok(Self::Info),
            "warn" | "warning" => Ok(Self::Warning),
            "error" => Ok(Self::Error),
            _ => Err("want Info, Warning or Error".to_owned()),
        }
    }
}

/// Returns the text of a flag. An empty one is none: charts pass `""` where the original's default is empty.
pub(crate) fn given(flag: Option<&str>) -> Option<&str> {
    flag.filter(|text| !text.is_empty())
}

/// The setting of `--nativeSidecars`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NativeSetting {
    Off,
    On,
    // By the version of the API server.
    Auto,
    Jobs,
}

/// The form in which `analyze` prints its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MessageFormat {
    Log,
    // Another name of it.
    Text,
    Json,
    Yaml,
}

/// The form in which `validate` prints its findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    Text,
    Json,
}

/// A duration as Go prints it: `45s`, `1m0s`, `1.5s`, `500ms`, `0`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "want a duration such as 10s, 1m30s or 500ms".to_owned();
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let letters = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())?;
        total = total.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    if total > MAX_DURATION {
        return Err("want less than a hundred years".to_owned());
    }
    Ok(total)
}

/// A range of addresses, or one of them.
pub(crate) fn network(text: &str) -> Result<Network, String> {
    let wrong = |()| "want an address or a range of them, such as 10.1.0.0/16".to_owned();
    text.trim().parse().map_err(wrong)
}

/// A duration, or `infinity`: the longest that is of use is as good.
pub(crate) fn age(text: &str) -> Result<Duration, String> {
    if text == "infinity" {
        return Ok(MAX_DURATION);
    }
    match duration(text) {
        Err(_) if hours(text).is_some_and(|hours| hours > MAX_DURATION.as_secs() / 3600) => {
            Ok(MAX_DURATION)
        }
        read => read,
    }
}

/// Parses a time of pings, of one second at least, as gRPC allows: without any time between them, pings would follow each other as
/// fast as the peer answers, and without time for an answer the first one would end the connection.
pub(crate) fn ping_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time < Duration::from_secs(1) {
        return Err("want 1s or more".to_owned());
    }
    Ok(time)
}

/// Parses a time between two writes of a file. Without any the process would do nothing else.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time.is_zero() {
        return Err("want more than 0s".to_owned());
    }
    Ok(time)
}

/// The address of discovery as proxies want it; an empty one is that of the mesh configuration.
pub(crate) fn host_port(text: &str) -> Result<String, String> {
    match is_agent_address(text) || text.is_empty() {
        true => Ok(text.to_owned()),
        false => Err("want HOST:PORT".to_owned()),
    }
}

/// The name of a container's image.
pub(crate) fn image(text: &str) -> Result<String, String> {
    let is_fit = |letter: char| letter.is_ascii_alphanumeric() || "._-:/@".contains(letter);
    match !text.is_empty() && text.chars().all(is_fit) {
        true => Ok(text.to_owned()),
        false => Err("want the name of an image, such as HUB/NAME:TAG".to_owned()),
    }
}

/// The domain of a cluster, and the trust domain of a mesh, that say none.
pub(super) const DOMAIN: &str = "cluster.local";

/// Parses a domain. An empty one, as of a variable that is not set, is the usual one, as pilot takes it: without a domain no
/// host and no identity would be right.
pub(crate) fn domain(text: &str) -> Result<String, String> {
    match text {
        "" => Ok(DOMAIN.to_owned()),
        text if api::names::is_name(text) => Ok(text.to_owned()),
        _ => Err("want a DNS name".to_owned()),
    }
}

/// Whole hours that a duration begins with.
fn hours(text: &str) -> Option<u64> {
    text.split_once('h')?.0.parse().ok()
}

/// A path that may be empty: what that means is not clap's business.
#[expect(clippy::unnecessary_wraps, reason = "what a parser of values returns")]
pub(crate) fn path(text: &str) -> Result<PathBuf, String> {
    Ok(PathBuf::from(text))
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("want true or false".to_owned()),
    }
}

/// `injectConfig` → `inject-config`, `selfSignedTTL` → `self-signed-ttl`, `log_as_json` → `log-as-json`.
pub(crate) fn kebab(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::with_capacity(name.len() + 4);
    for (at, &letter) in letters.iter().enumerate() {
        if letter == '_' {
            out.push('-');
            continue;
        }
        let before = at.checked_sub(1).and_then(|at| letters.get(at)).copied();
        let after = letters.get(at + 1).copied();
        let begins = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                !before.is_ascii_uppercase()
                    || after.is_some_and(|after| after.is_ascii_lowercase())
            });
        if begins && before != Some('-') {
            out.push('-');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}

/// `probe-path` → `probePath`, `log_as_json` → `logAsJson`.
pub(crate) fn camel(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut upper = false;
    for letter in name.chars() {
        if letter == '-' || letter == '_' {
            upper = true;
        } else if upper {
            out.push(letter.to_ascii_uppercase());
            upper = false;
        } else {
            out.push(letter);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_domain_is_the_usual_one() {
        assert_eq!(domain(""), Ok("cluster.local".to_owned()));
        assert_eq!(domain("td.example"), Ok("td.example".to_owned()));
        for text in [" ", "a..b", "a/b", "spiffe://a"] {
            assert!(domain(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pings_leave_a_second_at_least() {
        for text in ["0", "0s", "1ms", "999ms"] {
            assert_eq!(ping_time(text), Err("want 1s or more".to_owned()), "{text}");
        }
        assert_eq!(ping_time("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(ping_time("2h"), Ok(Duration::from_secs(7200)));
        assert!(ping_time("x").is_err());
    }

    #[test]
    fn durations_are_gos() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("45s", 45_000),
            ("1m0s", 60_000),
            ("1.5s", 1_500),
            ("500ms", 500),
            ("720h", 720 * 3_600_000),
            ("1h2m3s", 3_723_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "-5s", "5d", "s", "1..5s", "1e400h", "1000000h1"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(duration("9999999h").is_err());
    }

    #[test]
    fn an_age_may_be_endless() {
        for text in ["infinity", "2562047h47m16.854775807s"] {
            // Jitter lengthens the age, and the sum is added to a clock.
            let longest = age(text).unwrap().mul_f64(2.0);
            assert!(std::time::Instant::now().checked_add(longest).is_some());
        }
        assert_eq!(age("30m"), Ok(Duration::from_secs(1800)));
        assert!(age("forever").is_err() && age("h").is_err());
    }

    #[test]
    fn booleans_are_gos() {
        assert_eq!(boolean("T"), Ok(true));
        assert_eq!(boolean("0"), Ok(false));
        assert!(boolean("yes").is_err());
    }

    #[test]
    fn both_spellings() {
        for (one, other) in [
            ("injectConfig", "inject-config"),
            ("selfSignedTTL", "self-signed-ttl"),
            ("includeIPRanges", "include-ip-ranges"),
            ("sidecarProxyUID", "sidecar-proxy-uid"),
            ("log_output_level", "log-output-level"),
            ("cni", "cni"),
            ("probe-path", "probe-path"),
        ] {
            assert_eq!(kebab(one), other);
        }
        assert_eq!(camel("probe-path"), "probePath");
        assert_eq!(camel("log_as_json"), "logAsJson");
    }
}
