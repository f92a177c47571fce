//! Metadata of a node, which may be malformed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use api::model::Labels;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::google::protobuf::{Value, value::Kind as Json};

use super::{Files, MetadataPairs, Mode, clipped};

/// Metadata, by key; all of it may be of another type than is wanted.
pub(super) struct NodeMetadata<'node>(Option<&'node HashMap<String, Value>>);

impl<'node> NodeMetadata<'node> {
    pub(super) fn of(node: &'node core::Node) -> Self {
        Self(node.metadata.as_ref().map(|metadata| &metadata.fields))
    }

    pub(super) fn json(&self, key: &str) -> Option<&'node Json> {
        self.0?.get(key)?.kind.as_ref()
    }

    /// Text that is not empty; numbers and booleans as they are written.
    pub(super) fn text(&self, key: &str) -> Option<Arc<str>> {
        let text = scalar(self.json(key)?)?;
        (!text.is_empty()).then(|| text.into())
    }

    /// `a,b` or a list.
    pub(super) fn list(&self, key: &str) -> Vec<String> {
        match self.json(key) {
            Some(Json::ListValue(list)) => list
                .values
                .iter()
                .filter_map(|value| scalar(value.kind.as_ref()?))
                .collect(),
            Some(json) => scalar(json)
                .unwrap_or_default()
                .split(',')
                .map(|part| part.trim().to_owned())
                .collect(),
            None => Vec::new(),
        }
    }

    pub(super) fn namespace(&self) -> Option<Arc<str>> {
        self.text("NAMESPACE")
            .or_else(|| self.text("CONFIG_NAMESPACE"))
    }

    pub(super) fn pairs(&self) -> MetadataPairs {
        let all = self.0.into_iter().flatten();
        MetadataPairs::new(all.filter_map(|(key, value)| {
            let text = scalar(value.kind.as_ref()?)?;
            Some((key.as_str(), text))
        }))
    }

    /// Returns the string members of `LABELS`; other members are left out.
    pub(super) fn labels(&self) -> Labels {
        let Some(Json::StructValue(labels)) = self.json("LABELS") else {
            return Labels::new();
        };
        labels
            .fields
            .iter()
            .filter_map(|(name, value)| match value.kind.as_ref() {
                Some(Json::StringValue(text)) => Some((name.as_str().into(), text.as_str().into())),
                _ => None,
            })
            .collect()
    }

    pub(super) fn mode(&self, warnings: &mut Vec<String>) -> Mode {
        match self.text("INTERCEPTION_MODE").as_deref() {
            None | Some("REDIRECT") => Mode::Redirect,
            Some("TPROXY") => Mode::Tproxy,
            Some("NONE") => Mode::None,
            Some(other) => {
                warnings.push(format!(
                    "INTERCEPTION_MODE: want REDIRECT, TPROXY or NONE, got {:?}: REDIRECT",
                    clipped(other)
                ));
                Mode::Redirect
            }
        }
    }

    /// The configuration that it runs with.
    fn proxy_config(&self) -> Option<&'node HashMap<String, Value>> {
        fields(self.json("PROXY_CONFIG")?)
    }

    pub(super) fn trusted_proxies(&self) -> Option<u32> {
        let topology = self.proxy_config()?.get("gatewayTopology")?;
        let number = fields(topology.kind.as_ref()?)?.get("numTrustedProxies")?;
        scalar(number.kind.as_ref()?)?.parse().ok()
    }

    /// Ports of the configuration that it runs with, and of Istio's own agent.
    pub(super) fn ports(&self) -> Vec<u16> {
        let port = |value: &Value| scalar(value.kind.as_ref()?)?.parse::<u16>().ok();
        let config = self.proxy_config();
        let of = |fields: Option<&HashMap<String, Value>>, keys: [&str; 2]| {
            keys.map(|key| fields?.get(key).and_then(port))
        };
        of(config, ["proxyAdminPort", "statusPort"])
            .into_iter()
            .chain(of(self.0, ["ENVOY_STATUS_PORT", "ENVOY_PROMETHEUS_PORT"]))
            .flatten()
            .filter(|port| *port > 0)
            .collect()
    }

    pub(super) fn duration(&self, key: &str, warnings: &mut Vec<String>) -> Option<Duration> {
        let text = self.text(key)?;
        let read = api::duration::parse(&text).and_then(|read| {
            let seconds = u64::try_from(read.seconds).ok()?;
            Some(Duration::new(seconds, u32::try_from(read.nanos).ok()?))
        });
        if read.is_none() {
            let got = clipped(&text);
            warnings.push(format!("{key}: want a duration, got {got:?}: ignored"));
        }
        read
    }

    pub(super) fn files(&self, side: &str) -> Files {
        let file = |what: &str, usual: &str| {
            self.text(&format!("TLS_{side}_{what}"))
                .unwrap_or_else(|| format!("/etc/certs/{usual}.pem").into())
        };
        Files {
            chain: file("CERT_CHAIN", "cert-chain"),
            key: file("KEY", "key"),
            root: file("ROOT_CERT", "root-cert"),
        }
    }
}

fn fields(json: &Json) -> Option<&HashMap<String, Value>> {
    match json {
        Json::StructValue(object) => Some(&object.fields),
        Json::StringValue(_)
        | Json::NumberValue(_)
        | Json::BoolValue(_)
        | Json::NullValue(_)
        | Json::ListValue(_) => None,
    }
}

fn scalar(json: &Json) -> Option<String> {
    match json {
        Json::StringValue(text) => Some(text.clone()),
        // A whole number has no point here, so that ports written as numbers are read.
        Json::NumberValue(number) => Some(number.to_string()),
        Json::BoolValue(value) => Some(value.to_string()),
        Json::NullValue(_) | Json::StructValue(_) | Json::ListValue(_) => None,
    }
}

/// Labels of a node. Proxies of old say the label that Gateways find them by beside the others, and those of Ingresses have it.
pub(super) fn labels(metadata: &NodeMetadata<'_>, proxy_type: &str) -> Labels {
    const ISTIO: &str = "istio";
    let mut labels = metadata.labels();
    let of_ingress = || (proxy_type == "ingress").then(|| proxy_type.into());
    let value = metadata.text(ISTIO).or_else(of_ingress);
    if let Some(value) = value.filter(|_| !labels.contains_key(ISTIO)) {
        labels.insert(ISTIO.into(), value);
    }
    labels
}
