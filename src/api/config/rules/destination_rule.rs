//! DestinationRule: a host, its subsets, and how it is talked to.

use std::collections::HashSet;

use super::context::Context;
use super::cursor::Cursor;
use super::{client_tls, locality, parts, pool, predicates as is};
use crate::finding::quoted;

pub(in crate::config) fn check(context: &Context<'_>) {
    let spec = &context.spec;
    let host = spec.get("host");
    if host.not_empty() {
        host.check(is::wild(host.text()));
    }
    let policy = spec.get("trafficPolicy");
    if policy.is_set() {
        traffic_policy(&policy);
        failover(&policy, None);
    }
    subsets(&spec.get("subsets"), &policy);
    let selector = spec.get("workloadSelector");
    parts::selector(&selector, "matchLabels");
    let export = spec.get("exportTo");
    parts::export_to(&export, context.namespace, parts::ExportToNone::Refused);
    if selector.is_set() {
        for entry in export.items() {
            if entry.text() != "." && entry.text() != context.namespace {
                entry.fail("only the own namespace with workloadSelector");
            }
        }
    }
}

/// `inherited`: the policy of the rule, whose settings a subset has where it has none.
fn subsets<'a>(subsets: &Cursor<'a>, inherited: &Cursor<'a>) {
    let mut names = HashSet::new();
    for subset in subsets.items() {
        if !subset.is_set() {
            subset.fail("must not be null");
            continue;
        }
        let name = subset.get("name");
        if name.not_empty() && name.check(is::label(name.text())) && !names.insert(name.text()) {
            name.fail(format!("duplicate subset {}", quoted(name.text())));
        }
        parts::labels(&subset.get("labels"));
        let policy = subset.get("trafficPolicy");
        if policy.is_set() {
            traffic_policy(&policy);
            failover(&policy, Some(inherited));
        }
    }
}

fn traffic_policy(at: &Cursor<'_>) {
    let all = [
        "loadBalancer",
        "connectionPool",
        "outlierDetection",
        "tls",
        "portLevelSettings",
        "tunnel",
        "proxyProtocol",
        "retryBudget",
    ];
    if at.lacks(&all) {
        at.fail("needs at least one setting");
    }
    at.apart("tunnel", "proxyProtocol");
    parts::duration_bound(&at.to(["retryBudget", "budgetInterval"]));
    settings(at);
    let mut ports = HashSet::new();
    for port in at.get("portLevelSettings").items() {
        let selector = port.get("port");
        if selector.required() {
            let number = selector.get("number");
            let is_valid = number.check(is::port(number.number()));
            if is_valid && !ports.insert(number.number()) {
                let number = number.number();
                port.warn(format!(
                    "has no effect: an earlier entry is for port {number}"
                ));
            }
        }
        let own = ["loadBalancer", "connectionPool", "outlierDetection", "tls"];
        if port.lacks(&own) {
            port.fail("needs at least one setting");
        }
        settings(&port);
        // It takes the place of the policy, and inherits nothing.
        failover(&port, None);
    }
    let tunnel = at.get("tunnel");
    if tunnel.is_set() {
        let protocol = tunnel.get("protocol");
        if !matches!(protocol.text(), "" | "CONNECT" | "POST") {
            protocol.fail(format!(
                "{} is neither CONNECT nor POST",
                quoted(protocol.text())
            ));
        }
        let host = tunnel.get("targetHost");
        host.check(is::fqdn_or_ip(host.text()));
        let port = tunnel.get("targetPort");
        port.check(is::port(port.number()));
    }
}

/// Settings of a policy that a port may have of its own, too.
fn settings(at: &Cursor<'_>) {
    for (name, rule) in [
        ("loadBalancer", load_balancer as fn(&Cursor<'_>)),
        ("connectionPool", pool::check),
        ("outlierDetection", outlier_detection),
        ("tls", client_tls::check),
    ] {
        let part = at.get(name);
        if part.is_set() {
            rule(&part);
        }
    }
}

/// Warns of regions that take over where nothing finds out that endpoints fail.
fn failover<'a>(at: &Cursor<'a>, inherited: Option<&Cursor<'a>>) {
    let failover = at.to(["loadBalancer", "localityLbSetting", "failover"]);
    let mut policies = [Some(at), inherited].into_iter().flatten();
    if !failover.is_empty() && policies.all(|policy| policy.lacks(&["outlierDetection"])) {
        failover.warn(
            "without outlierDetection a region takes over only from one without ready endpoints; in Istio it has no effect",
        );
    }
}

fn outlier_detection(at: &Cursor<'_>) {
    parts::duration(&at.get("interval"));
    parts::duration(&at.get("baseEjectionTime"));
    parts::pct(&at.get("maxEjectionPercent"));
    parts::pct(&at.get("minHealthPercent"));
    let errors = at.get("consecutiveErrors");
    // On the wire 0 stands for an absent field.
    if errors.number() != 0 {
        errors.check(is::not_negative(errors.number()));
        let apart = ["consecutive5xxErrors", "consecutiveGatewayErrors"]
            .map(|other| at.apart("consecutiveErrors", other));
        if apart == [true, true] {
            errors.deprecated("use consecutive5xxErrors or consecutiveGatewayErrors");
        }
    }
    let local = at.get("consecutiveLocalOriginFailures");
    let split = at.get("splitExternalLocalOriginErrors");
    if local.number() > 0 && !split.flag() && !split.is_broken() {
        local.fail("has no effect without splitExternalLocalOriginErrors");
    }
}

fn load_balancer(at: &Cursor<'_>) {
    let hash = at.get("consistentHash");
    hash_key(&hash);
    cookie(&hash.get("httpCookie"));
    let minimum = hash.get("minimumRingSize");
    if minimum.number() != 0 {
        let apart = ["ringHash", "maglev"].map(|other| hash.apart("minimumRingSize", other));
        if apart == [true, true] {
            minimum.deprecated("use ringHash.minimumRingSize");
        }
    }
    let table = hash.to(["maglev", "tableSize"]);
    // On the wire 0 stands for an absent field, and Envoy's own size, 65537.
    if table.number() != 0 && !is_table_size(table.number()) {
        table.fail(format!("{} is not a prime below 5000011", table.digits()));
    }
    parts::duration_bound(&at.get("warmupDurationSecs"));
    let warmup = at.get("warmup");
    if warmup.is_set() {
        let duration = warmup.get("duration");
        if duration.required() {
            parts::duration(&duration);
        }
        let min = warmup.get("minimumPercent");
        if min.is_set() {
            min.check(is::share(min.float()));
        }
        let aggression = warmup.get("aggression");
        if aggression.is_set() && aggression.float() < 1.0 {
            aggression.fail(format!("{} is less than 1", aggression.float()));
        }
    }
    let locality = at.get("localityLbSetting");
    if locality.is_set() {
        locality::check(&locality);
    }
}

/// A ring without a key spreads requests at random.
fn hash_key(hash: &Cursor<'_>) {
    let keys = [
        "httpHeaderName",
        "httpCookie",
        "httpQueryParameterName",
        "useSourceIp",
    ];
    let by_source = hash.get("useSourceIp");
    let is_off = by_source.is_set() && !by_source.is_broken() && !by_source.flag();
    let [others @ .., _] = keys;
    if hash.is_set() && (hash.lacks(&keys) || is_off && hash.lacks(&others)) {
        let keys = keys.join(", ");
        hash.warn(format!(
            "has no effect: no hash key is set; want one of {keys}"
        ));
    }
}

fn cookie(at: &Cursor<'_>) {
    if !at.is_set() {
        return;
    }
    at.get("name").not_empty();
    parts::duration_bound(&at.get("ttl"));
    let mut names = HashSet::new();
    for attribute in at.get("attributes").items() {
        let name = attribute.get("name");
        if name.not_empty() && !names.insert(name.text()) {
            name.fail(format!("duplicate attribute {}", quoted(name.text())));
        }
    }
}

fn is_table_size(number: i64) -> bool {
    const BEYOND: u64 = 5_000_011;
    u64::try_from(number).is_ok_and(|number| number < BEYOND && is_prime(number))
}

/// Decides by the test of Miller and Rabin, to which 31 and 73 are enough for numbers below nine million. One rule may hold
/// thousands of sizes, and dividing would take two thousand divisions for each.
fn is_prime(number: u64) -> bool {
    if number < 2 || number.is_multiple_of(2) {
        return number == 2;
    }
    let halvings = (number - 1).trailing_zeros();
    let odd = (number - 1) >> halvings;
    [31, 73].into_iter().all(|base| {
        let mut rest = power(base, odd, number);
        // The base is the number itself.
        if rest <= 1 {
            return true;
        }
        for _ in 1..halvings {
            if rest == number - 1 {
                break;
            }
            // Numbers are below 5,000,011 (`is_table_size`): no product overflows.
            rest = rest * rest % number;
        }
        rest == number - 1
    })
}

fn power(base: u64, mut exponent: u64, modulus: u64) -> u64 {
    let mut square = base % modulus;
    let mut power = 1;
    while exponent > 0 {
        if exponent % 2 == 1 {
            // Factors are below 5,000,011, so their product fits into 64 bits.
            power = power * square % modulus;
        }
        square = square * square % modulus;
        exponent /= 2;
    }
    power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_tables_are_the_primes() {
        const BEYOND: usize = 5_000_100;
        let mut is_composite = vec![false; BEYOND];
        is_composite[..2].fill(true);
        for number in 2..=BEYOND.isqrt() {
            if !is_composite[number] {
                for multiple in (number * number..BEYOND).step_by(number) {
                    is_composite[multiple] = true;
                }
            }
        }
        // All of them take seconds, which were spent once.
        let numbers = (0..100_000).chain(4_950_000..BEYOND);
        for number in numbers {
            let expected = number < 5_000_011 && !is_composite[number];
            let is_size = is_table_size(i64::try_from(number).unwrap());
            assert_eq!(is_size, expected, "{number}");
        }
        assert!(!is_table_size(-7) && !is_table_size(i64::MAX));
    }
}
