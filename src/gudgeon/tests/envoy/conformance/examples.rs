//! The examples of the documentation of each kind, and what shows that they do what it says.

use crate::table::exists;

/// Below each kind its examples, in the order of its documentation.
const EXAMPLES: &str = "
VirtualService
  two prefixes that are rewritten => virtual-service/prefix-and-rewrite.yaml
  subsets that a rule names => virtual-service/prefix-and-rewrite.yaml
  the same by a short host => virtual-service/header-and-path.yaml
  subsets by a short host => virtual-service/header-and-path.yaml
  a timeout by a full host => virtual-service/short-hosts-and-a-timeout.yaml
  a timeout of a host outside => virtual-service/timeout-of-an-entry.yaml
  two delegates in other namespaces => virtual-service/delegates-of-namespaces.yaml
  a delegate with two routes => virtual-service/delegates-of-namespaces.yaml
  a delegate with one route => virtual-service/delegates-of-namespaces.yaml
  headers of a route and of a destination => virtual-service/headers.yaml
  TLS by name at a gateway => gateway/passthrough.yaml
  connections to another port => virtual-service/tcp-by-port.yaml
  a header and a path of any case => virtual-service/header-and-path.yaml
  shares of two subsets => virtual-service/weights.yaml
  the subsets of the shares => virtual-service/weights.yaml
  shares of two hosts => virtual-service/weights-between-hosts.yaml
  a redirect to a path and a host => virtual-service/redirects.yaml
  a redirect that exchanges a prefix => virtual-service/redirects.yaml
  an answer with a text => virtual-service/direct-response.yaml
  an answer with bytes => virtual-service/direct-response.yaml
  an answer with a content type => virtual-service/direct-response.yaml
  a prefix that is rewritten => virtual-service/rewrites.yaml
  retries with a time for each => virtual-service/retries.yaml
  origins that may ask => virtual-service/cors.yaml
  a delay for clients with a label => virtual-service/fault-of-sources.yaml
  some requests that fail => virtual-service/fault-abort.yaml
DestinationRule
  the fewest requests => destination-rule/balancers.yaml
  a subset with a balancer of its own => destination-rule/subsets.yaml
  a balancer for each port => destination-rule/port-settings.yaml
  a certificate by name, for a port and some workloads => destination-rule/port-credentials.yaml
  the policy of a subset => destination-rule/subsets.yaml
  one after the other => destination-rule/balancers.yaml
  one endpoint for a cookie => destination-rule/cookie.yaml
  limits of connections => destination-rule/pool.yaml
  limits of requests, and endpoints that fail => destination-rule/pool.yaml, destination-rule/ejection.yaml
  TLS with a certificate of the client => destination-rule/tls-mutual.yaml
  TLS to all hosts below a name => destination-rule/tls-wildcard.yaml
  TLS of the mesh => destination-rule/tls-of-the-mesh.yaml
  zones => destination-rule/zones-and-labels.yaml
  zones, and regions after them => destination-rule/zones-and-labels.yaml
Gateway
  servers of all kinds => gateway/servers-of-all-kinds.yaml
  shares at a gateway and in the mesh => gateway/weights-for-all.yaml
  connections of a port => gateway/tcp.yaml
  hosts of two namespaces => gateway/hosts-of-namespaces.yaml
  HTTP/2 for all hosts => gateway/protocols.yaml
  a database's port => gateway/tcp.yaml
  TLS for all hosts => gateway/protocols.yaml
ServiceEntry
  three hosts by their names in TLS => service-entry/tls-by-name-and-dns.yaml
  a database by its addresses => service-entry/tcp.yaml
  TLS to that database => service-entry/tcp-mutual.yaml
  a wildcard that is not looked up => service-entry/tls-by-a-firewall.yaml
  its connections by a firewall => service-entry/tls-by-a-firewall.yaml
  a host of the egress namespace alone => service-entry/of-the-egress-namespace.yaml
  a gateway for what leaves => service-entry/of-the-egress-namespace.yaml
  the way through that gateway => service-entry/of-the-egress-namespace.yaml
  all hosts below a name => service-entry/wildcard.yaml
  a socket => bare.rs each_kind_of_port_is_reached_by_its_number
  endpoints by their names => service-entry/dns.yaml
  identities of endpoints => service-entry/identities.yaml
  two machines => service-entry/workloads.yaml
  the service of the machines => service-entry/workloads.yaml
Sidecar
  the own namespace and that of the mesh => sidecar/root-namespace.yaml
  three namespaces => sidecar/own-namespace.yaml
  all hosts but some => sidecar/exclusion.yaml
  a socket of the application => inbound_listeners.rs a_sidecar_takes_what_its_ingress_says_and_logs_it
  ports without interception => sidecar/egress-listeners.yaml, sidecar/ingress.yaml
  the entry for one of these ports => sidecar/egress-listeners.yaml
  a port of its own beside interception => redirect.rs redirected_traffic_reaches_its_destination
  TLS that ends at the sidecar => sidecar/ingress-tls.yaml
  limits of what comes in => sidecar/limits.yaml
WorkloadEntry
  a machine by its address => workload-entry/address-and-ports.yaml
  its service => workload-entry/address-and-ports.yaml
  a machine by its name => workload-entry/dns.yaml
  its service, looked up => workload-entry/dns.yaml
  a network without an address => locality.rs another_network_is_reached_by_its_gateways
EnvoyFilter
  a filter of connections, and an idle timeout => envoy-filter/network-filter.yaml, envoy-filter/by-name-of-a-chain.yaml
  a script and its cluster => envoy-filter/lua-asks-a-cluster.yaml
  a connection manager by a name in TLS => envoy-filter/by-name-of-a-chain.yaml
  a filter beside those of statistics => envoy-filter/filter-class.yaml
  a filter beside those of policies => envoy-filter/filter-class.yaml
  a filter in another's place => not served: REPLACE wants the name of the filter in its match
  an extension by its name => not served: discovery serves no configuration of extensions
  a filter of a listener => envoy-filter/listener-filter.yaml
  a virtual host by its domain => envoy-filter/virtual-host-by-domain.yaml
AuthorizationPolicy
  sources, operations and a claim => authorization-policy/sources-operations-and-a-claim.yaml
  a method that a namespace is denied => authorization-policy/deny.yaml
  a method that is denied on a port => authorization-policy/deny-method-and-port.yaml
  an audit => authorization-policy/audit.yaml
  nothing is allowed => authorization-policy/nothing.yaml
  everything is allowed => authorization-policy/everything.yaml
  a policy for a workload => authorization-policy/selector.yaml
  a policy for workloads of all namespaces => authorization-policy/root-namespace-selector.yaml
  a policy that is tried => policies.rs dry_run_policies_deny_nothing_and_are_logged
  a provider that is asked => edge_security.rs tokens_admit_and_askers_decide_at_a_router
PeerAuthentication
  a strict namespace => peer-authentication/strict-namespace.yaml
  a strict workload in another one => peer-authentication/workload-over-namespace.yaml
  a port without TLS => peer-authentication/port-over-workload.yaml
  a mode of the namespace, and a port without => peer-authentication/unset-with-a-port.yaml
RequestAuthentication
  keys of an issuer, and a token that is wanted => tokens.rs keys_of_an_issuer_are_exchanged_without_a_lost_request
  tokens that all workloads want => request-authentication/root-namespace.yaml
  two issuers, each for a host => request-authentication/two-issuers.yaml
  a path without a token => request-authentication/required.yaml
  routes by a claim => edge_security.rs routes_of_a_router_go_by_claims_of_tokens
";

/// Returns the number of examples, each of which is shown by what exists.
pub fn check() -> usize {
    let examples = EXAMPLES.lines().filter(|line| line.starts_with(' '));
    let examples = examples.map(|line| {
        let (what, coverage) = line.split_once(" => ").expect(line);
        exists(what, coverage);
    });
    examples.count()
}
