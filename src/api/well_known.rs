//! Names that Kubernetes, Istio and protobuf give to labels, annotations and types, where several crates read them.

/// The prefix of a message's name in the type URL of an `Any`.
pub const TYPE_URL_PREFIX: &str = "type.googleapis.com/";

/// The annotation in which `kubectl apply` keeps a copy of the whole object.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The annotation that named the class of an Ingress before `spec.ingressClassName` did.
pub const INGRESS_CLASS: &str = "kubernetes.io/ingress.class";

/// The annotation of a Service that names the namespaces which see it.
pub const EXPORT_TO: &str = "networking.istio.io/exportTo";

/// The label of pods and namespaces that names their network.
pub const NETWORK: &str = "topology.istio.io/network";

/// The annotation of an object that a webhook is to refuse: a token, which the refusal repeats.
pub const PROBE: &str = "gudgeon.io/probe";
