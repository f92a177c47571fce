//! Codes of what is found.

use crate::cli::Level;

/// A kind of finding.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Code {
    /// The code of `istioctl analyze` (its `messages.yaml`), or `GDN` if it has none.
    pub(super) name: &'static str,
    pub(super) level: Level,
    /// One line for `--list-analyzers`.
    pub(super) about: &'static str,
}

macro_rules! codes {
    ($($constant:ident $name:literal $level:ident $about:literal)*) => {
        $(pub(super) static $constant: Code = Code { name: $name, level: Level::$level, about: $about };)*

        /// All codes.
        pub(super) static ALL: &[&Code] = &[$(&$constant,)*];
    };
}

codes! {
    DEPRECATED "IST0002" Warning "a field or a kind that a later one has replaced"
    NOT_FOUND "IST0101" Error "a gateway, host, port, subset, workload, namespace, secret or delegate that does not exist"
    INVALID "IST0106" Error "an invalid object"
    MESH_HOSTS "IST0109" Error "VirtualServices with one host for sidecars"
    SIDECARS_SELECT "IST0110" Error "Sidecars that select one workload"
    SIDECARS_WITHOUT_SELECTOR "IST0111" Error "Sidecars of one namespace without a selector"
    PORT_WANTED "IST0112" Error "a destination without a port, of a service with several"
    PORT_NAME "IST0118" Info "a port whose name declares no protocol"
    SELECTS_NOTHING "IST0127" Warning "a selector, or a namespace of a policy, that matches no workload, or none that the object is for"
    UNREACHABLE "IST0130" Warning "a route that no request reaches"
    HOST_NOT_IN_GATEWAY "IST0132" Warning "a host of a VirtualService that its gateway does not serve"
    NOTED "IST0133" Warning "an object of which something has no effect"
    ADDRESSES_WANTED "IST0134" Warning "a port of a ServiceEntry whose connections its addresses alone can tell from others"
    USER_ID "IST0144" Warning "a container that runs as the user of the proxy, whose connections bypass the proxy"
    GATEWAYS "IST0145" Error "Gateways with one host, or other connections, on one port of one workload"
    CLAIMS_WITHOUT_TOKENS "IST0149" Error "routes by claims at a gateway that verifies no tokens"
    RELATIVE_PATCH "IST0151" Warning "an EnvoyFilter without priority that depends on filters of others"
    GATEWAY_PORT "IST0104" Warning "a port of a Gateway that no service of its workload has"
    SUBSET_EMPTY "IST0173" Error "a subset that no workload of the service is in"
    RULE_WITHOUT_HOST "IST0174" Warning "a DestinationRule for a host that no service has"
    WITHOUT_ENDPOINTS "GDN0001" Warning "a service without endpoints"
    RULES_FOR_HOST "GDN0002" Warning "DestinationRules with the same settings of one host in one namespace"
    PEERS_SELECT "GDN0003" Error "PeerAuthentications of one namespace for the same workloads"
    IDLE_ROUTES "GDN0004" Warning "routes or matches of a VirtualService for sidecars that no port of its hosts is for"
    IDLE_POLICIES "GDN0005" Warning "settings of a DestinationRule that no port of its host is for"
    ROUTES_BY_MADE_HEADERS "GDN0006" Warning "routes at a gateway by a header that is made of a claim, which clients can write themselves"
}

/// The code of a selector that matches no workload: that of a Sidecar is a reference, as istioctl has it.
pub(super) fn of_selector(kind: &str) -> &'static Code {
    match kind {
        "Sidecar" => &NOT_FOUND,
        _ => &SELECTS_NOTHING,
    }
}
