//! The data of one rendering, put together from the configuration and the pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::Value;
use serde_json::{Value as Json, json};

use crate::concurrency;
use crate::config::Configuration;
use crate::data::{Owner, Proxy, part, part_of, record, root};
use crate::interface::{Origin, Request};
use crate::schema;
use crate::template::Data;

/// The sources of the data, beside the configuration.
pub(crate) struct TemplateData<'a> {
    pub(crate) configuration: &'a Configuration,
    pub(crate) request: &'a Request,
    /// The pod without elements of an earlier injection.
    pub(crate) pod: &'a Arc<Json>,
    pub(crate) namespace: &'a str,
    pub(crate) owner: &'a Owner,
    pub(crate) proxy: &'a Proxy,
    pub(crate) native: bool,
}

impl TemplateData<'_> {
    pub(crate) fn data(&self) -> Result<Data, String> {
        let configuration = self.configuration;
        let mut fields = BTreeMap::from([
            ("MeshConfig", configuration.mesh_value.clone()),
            ("ProxyConfig", self.proxy.value.clone()),
            ("Values", configuration.values.clone()),
            ("Revision", Value::from(configuration.revision())),
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
            ("EstimatedConcurrency", Value::Int(self.concurrency())),
            ("ProxyUID", Value::Int(self.request.ids.uid)),
            ("ProxyGID", Value::Int(self.request.ids.gid)),
            (
                "InboundTrafficPolicyMode",
                Value::from(configuration.inbound_traffic_policy()),
            ),
            (
                "CompliancePolicy",
                Value::from(configuration.compliance_policy()),
            ),
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
        let kind = |name: &str| {
            schema::object(name).ok_or_else(|| format!("the table of types has no {name}"))
        };
        let metadata = kind("ObjectMeta")?;
        fields.insert(
            "ObjectMeta",
            part_of(self.pod, "metadata", metadata, self.namespace_said()),
        );
        fields.insert("DeploymentMeta", self.deployment(metadata));
        fields.insert(
            "Spec",
            part_of(self.pod, "spec", kind("PodSpec")?, Vec::new()),
        );
        Ok(Data {
            root: root(fields),
            environment: Arc::clone(match self.native {
                true => &configuration.native_environment,
                false => &configuration.environment,
            }),
        })
    }

    fn concurrency(&self) -> i64 {
        let said = self.proxy.config.concurrency.as_ref();
        let said = said.map(|said| i64::from(said.value));
        concurrency::estimated(said, self.pod, &self.configuration.values_json)
    }

    /// Returns the request's namespace if the pod has none.
    fn namespace_said(&self) -> Vec<(&'static str, String)> {
        let own = self
            .pod
            .get("metadata")
            .and_then(|metadata| metadata.get("namespace"));
        if own
            .and_then(Json::as_str)
            .is_some_and(|own| !own.is_empty())
        {
            return Vec::new();
        }
        vec![("namespace", self.namespace.to_owned())]
    }

    fn deployment(&self, kind: schema::ObjectType) -> Value {
        let (name, namespace) = (self.owner.name.clone(), self.owner.namespace.clone());
        match &self.request.origin {
            Origin::Manifest(outer) => part(
                json!({"name": name, "namespace": namespace, "labels": outer.labels, "annotations": outer.annotations}),
                kind,
            ),
            Origin::Webhook => {
                let said = vec![("name", name), ("namespace", namespace)];
                part_of(self.pod, "metadata", kind, said)
            }
        }
    }

    /// Returns HUB/IMAGE:TAG[-VARIANT] of `.Values.global`, else the command line's image.
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
            .config
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
