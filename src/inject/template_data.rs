//! The data of one rendering, put together from the configuration and the pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use gotmpl::Value;
use serde_json::{Value as Json, json};

use crate::annotations::IMAGE_TYPE;
use crate::concurrency;
use crate::config::Configuration;
use crate::data::{Owner, Proxy, part, part_of, record, root};
use crate::interface::{Origin, Request};
use crate::pod;
use crate::schema;
use crate::template::Data;
use crate::user_volumes;

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
        let pod = self.metadata();
        let pod = pod.as_ref().unwrap_or(self.pod);
        fields.insert(
            "ObjectMeta",
            part_of(pod, "metadata", metadata, self.namespace_override()),
        );
        fields.insert("DeploymentMeta", self.deployment(pod, metadata));
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
        let configured = self.proxy.config.concurrency.as_ref();
        let configured = configured.map(|number| i64::from(number.value));
        concurrency::estimated(configured, self.pod, &self.configuration.values_json)
    }

    /// Returns the request's namespace if the pod has none.
    fn namespace_override(&self) -> Vec<(&'static str, String)> {
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

    /// Returns the pod's metadata with maps in place of the lists that its annotations have; `None` if they have none. Templates
    /// range over names.
    fn metadata(&self) -> Option<Arc<Json>> {
        let lists = user_volumes::lists_by_name(self.pod);
        if lists.is_empty() {
            return None;
        }
        let mut metadata = self.pod.get("metadata")?.clone();
        pod::object_mut(&mut metadata, "annotations")?.extend(lists);
        Some(Arc::new(json!({"metadata": metadata})))
    }

    fn deployment(&self, pod: &Arc<Json>, kind: schema::ObjectType) -> Value {
        let (name, namespace) = (self.owner.name.clone(), self.owner.namespace.clone());
        match &self.request.origin {
            Origin::Manifest(outer) => part(
                json!({"name": name, "namespace": namespace, "labels": outer.labels, "annotations": outer.annotations}),
                kind,
            ),
            Origin::Webhook => {
                let overrides = vec![("name", name), ("namespace", namespace)];
                part_of(pod, "metadata", kind, overrides)
            }
        }
    }

    /// Returns HUB/IMAGE:TAG[-TYPE] of `.Values.global`, else the command line's image.
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
        // In Istio's templates an image with a slash is a whole one, without hub and tag.
        if let Some(image) = image.as_ref().filter(|image| image.contains('/')) {
            return image.clone();
        }
        let (Some(hub), Some(tag)) = (of_global("hub"), of_global("tag")) else {
            return parameter.unwrap_or_default().to_owned();
        };
        // The proxy's configuration says nothing of istio-init.
        let of_proxy = self.proxy.config.image.as_ref();
        let of_proxy = of_proxy.map(|image| image.image_type.clone());
        let kind = match pod::annotation(self.pod, IMAGE_TYPE) {
            Some(image_type) => Some(image_type.to_owned()),
            None => of_proxy
                .filter(|kind| of == "proxy" && !kind.is_empty())
                .or_else(|| of_global("variant")),
        };
        let tag = of_type(&tag, kind.as_deref().unwrap_or_default());
        format!("{hub}/{}:{tag}", image.as_deref().unwrap_or("proxyv2"))
    }
}

/// The types of images that Istio publishes, as tags end with them.
const PUBLISHED: [&str; 2] = ["-distroless", "-debug"];

/// The tag of an image of a type; the default type has no word in a tag.
fn of_type(tag: &str, kind: &str) -> String {
    if kind.is_empty() || tag.ends_with(&format!("-{kind}")) {
        return tag.to_owned();
    }
    let mut bare = PUBLISHED.iter().filter_map(|known| tag.strip_suffix(known));
    let bare = bare.next().unwrap_or(tag);
    match kind {
        "default" => bare.to_owned(),
        _ => format!("{bare}-{kind}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{Parameters, Sources};

    const HUB: &str = "hub: h, tag: ";

    /// The image of the proxy and of istio-init, by values, mesh configuration and annotation.
    fn images(global: &str, mesh: &str, annotation: Option<&str>) -> [String; 2] {
        let values = format!("global: {{{global}}}");
        let mesh = format!("defaultConfig: {{{mesh}}}");
        let sources = Sources {
            config: None,
            values: Some(&values),
            mesh: Some(&mesh),
        };
        let (configuration, _) = Configuration::load(sources, Parameters::default()).unwrap();
        let request = Request::default();
        let annotations =
            annotation.map(|image_type| json!({"sidecar.istio.io/proxyImageType": image_type}));
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {}});
        let owner = Owner::of(&pod, &request, "ns");
        let data = TemplateData {
            configuration: &configuration,
            request: &request,
            pod: &Arc::new(pod),
            namespace: "ns",
            owner: &owner,
            proxy: &configuration.proxy,
            native: false,
        };
        ["proxy", "proxy_init"].map(|of| data.image(of, Some("own")))
    }

    /// The annotation comes before the mesh configuration, and that before the values; a type that the tag ends with goes.
    #[test]
    fn the_type_of_an_image() {
        let rows = [
            ("", "", None, "own"),
            ("1.20.0", "", None, "h/proxyv2:1.20.0"),
            ("1.20.0, variant: debug", "", None, "h/proxyv2:1.20.0-debug"),
            ("1.20.0, variant: default", "", None, "h/proxyv2:1.20.0"),
            (
                "1.20.0-distroless, variant: debug",
                "",
                None,
                "h/proxyv2:1.20.0-debug",
            ),
            (
                "1.20.0-distroless, variant: distroless",
                "",
                None,
                "h/proxyv2:1.20.0-distroless",
            ),
            (
                "1.20.0-debug, variant: default",
                "",
                None,
                "h/proxyv2:1.20.0",
            ),
            ("1.20.0-debug", "", None, "h/proxyv2:1.20.0-debug"),
            ("1.20.0-own, variant: own", "", None, "h/proxyv2:1.20.0-own"),
            (
                "1.20.0, variant: debug",
                "image: {imageType: distroless}",
                None,
                "h/proxyv2:1.20.0-distroless",
            ),
            (
                "1.20.0, variant: debug",
                "image: {imageType: ''}",
                None,
                "h/proxyv2:1.20.0-debug",
            ),
            (
                "1.20.0-distroless",
                "image: {imageType: distroless}",
                Some("debug"),
                "h/proxyv2:1.20.0-debug",
            ),
            (
                "1.20.0, variant: debug",
                "image: {imageType: debug}",
                Some("default"),
                "h/proxyv2:1.20.0",
            ),
            // Empty is the tag as it is.
            (
                "1.20.0-distroless, variant: debug",
                "",
                Some(""),
                "h/proxyv2:1.20.0-distroless",
            ),
        ];
        for (tag, mesh, annotation, wanted) in rows {
            let global = match tag {
                "" => String::new(),
                tag => format!("{HUB}{tag}"),
            };
            let [proxy, _] = images(&global, mesh, annotation);
            assert_eq!(proxy, wanted, "{tag} {mesh} {annotation:?}");
        }
        // A proxy's configuration says nothing of istio-init.
        let of_mesh = "image: {imageType: debug}";
        let [_, init] = images("hub: h, tag: 1-distroless", of_mesh, None);
        assert_eq!(init, "h/proxyv2:1-distroless");
        let [_, init] = images("hub: h, tag: 1-distroless", of_mesh, Some("default"));
        assert_eq!(init, "h/proxyv2:1");
    }
}
