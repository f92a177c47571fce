//! The data of one rendering, put together from the configuration and the pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::mesh::ProxyConfig;
use gotmpl::Value;
use serde_json::{Map, Value as Json, json};

use super::{Owner, message, part, record, root};
use crate::config::Configuration;
use crate::pod;
use crate::schema;
use crate::surface::{Origin, Request};
use crate::template::Data;

/// User and group of the proxy.
const PROXY_ID: i64 = 1337;

/// What the data is made of, beside the configuration.
pub(crate) struct View<'a> {
    pub(crate) configuration: &'a Configuration,
    pub(crate) request: &'a Request,
    /// Without what an earlier injection put in.
    pub(crate) pod: &'a Json,
    pub(crate) namespace: &'a str,
    pub(crate) owner: &'a Owner,
    pub(crate) proxy: &'a ProxyConfig,
    pub(crate) native: bool,
}

impl View<'_> {
    pub(crate) fn data(&self) -> Result<Data, String> {
        let configuration = self.configuration;
        let revision = Some(configuration.parameters.revision.as_str())
            .filter(|revision| !revision.is_empty());
        let spec = self.pod.get("spec").cloned().unwrap_or_default();
        let mut fields = BTreeMap::from([
            ("MeshConfig", configuration.mesh_value.clone()),
            ("ProxyConfig", proxy_config(self.proxy)?),
            ("Values", configuration.values.clone()),
            ("Revision", Value::from(revision.unwrap_or("default"))),
            ("NativeSidecars", Value::Bool(self.native)),
            (
                "ProxyImage",
                Value::from(self.image("proxy", configuration.parameters.proxy_image.as_deref())),
            ),
            (
                "ProxyInitImage",
                Value::from(
                    self.image("proxy_init", configuration.parameters.init_image.as_deref()),
                ),
            ),
            ("ProxyUID", Value::Int(PROXY_ID)),
            ("ProxyGID", Value::Int(PROXY_ID)),
            ("InboundTrafficPolicyMode", Value::from("passthrough")),
            ("CompliancePolicy", Value::from("")),
            (
                "TypeMeta",
                record(
                    "TypeMeta",
                    BTreeMap::from([
                        ("APIVersion", Value::from(self.owner.api_version.as_str())),
                        ("Kind", Value::from(self.owner.kind.as_str())),
                    ]),
                ),
            ),
        ]);
        for (name, kind, json) in [
            ("ObjectMeta", "ObjectMeta", self.metadata()),
            ("DeploymentMeta", "ObjectMeta", self.deployment()),
            ("Spec", "PodSpec", spec),
        ] {
            let kind =
                schema::object(kind).ok_or_else(|| format!("the table of types has no {kind}"))?;
            fields.insert(name, part(json, kind));
        }
        Ok(Data {
            root: root(fields),
            environment: Arc::clone(&configuration.environment),
        })
    }

    fn metadata(&self) -> Json {
        let mut metadata = pod::object(self.pod, "metadata")
            .cloned()
            .unwrap_or_default();
        if metadata
            .get("namespace")
            .and_then(Json::as_str)
            .is_none_or(str::is_empty)
        {
            metadata.insert("namespace".to_owned(), Json::from(self.namespace));
        }
        Json::Object(metadata)
    }

    fn deployment(&self) -> Json {
        let (labels, annotations) = match &self.request.origin {
            Origin::Manifest(outer) => (
                Json::Object(outer.labels.clone()),
                Json::Object(outer.annotations.clone()),
            ),
            Origin::Webhook => {
                let map = |key: &str| {
                    self.pod
                        .get("metadata")
                        .and_then(|metadata| pod::object(metadata, key))
                        .cloned()
                        .unwrap_or_else(Map::new)
                };
                (
                    Json::Object(map("labels")),
                    Json::Object(map("annotations")),
                )
            }
        };
        json!({"name": self.owner.name, "namespace": self.owner.namespace, "labels": labels, "annotations": annotations})
    }

    /// HUB/IMAGE:TAG[-VARIANT] of `.Values.global`, else what the command line says.
    fn image(&self, of: &str, parameter: Option<&str>) -> String {
        let global = self.configuration.values_json.get("global");
        let text = |value: Option<&Json>| match value {
            Some(Json::String(text)) if !text.is_empty() => Some(text.clone()),
            Some(Json::Number(number)) => Some(number.to_string()),
            _ => None,
        };
        let of_global = |key: &str| text(global.and_then(|global| global.get(key)));
        let image = text(
            global
                .and_then(|global| global.get(of))
                .and_then(|image| image.get("image")),
        );
        if let Some(image) = image.as_ref().filter(|image| image.contains('/')) {
            return image.clone();
        }
        let (Some(hub), Some(tag)) = (of_global("hub"), of_global("tag")) else {
            return parameter.unwrap_or_default().to_owned();
        };
        let kind = self
            .proxy
            .image
            .as_ref()
            .map(|image| image.image_type.clone())
            .filter(|kind| !kind.is_empty());
        let variant = kind
            .or_else(|| of_global("variant"))
            .filter(|variant| variant != "default");
        let suffix = variant
            .filter(|variant| !tag.ends_with(&format!("-{variant}")))
            .map(|variant| format!("-{variant}"))
            .unwrap_or_default();
        format!(
            "{hub}/{}:{tag}{suffix}",
            image.as_deref().unwrap_or("proxyv2")
        )
    }
}

fn proxy_config(config: &ProxyConfig) -> Result<Value, String> {
    let fields = api::mesh::json(config).map_err(|error| error.to_string())?;
    let shown = api::mesh::chosen(config).map_err(|error| error.to_string())?;
    Ok(message(
        &api::schema::ISTIO_MESH_V1ALPHA1_PROXYCONFIG,
        fields,
        Some(shown),
    ))
}
