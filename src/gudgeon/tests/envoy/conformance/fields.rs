//! Case 45: the fields of rules that discovery serves, each by a request, and where conflicts are told.

use crate::table::exists;

/// Below each kind its fields.
const FIELDS: &str = "
VirtualService
  gateways, of two rules for a host => virtual-service/oldest-wins.yaml, gateways.rs requests_go_by_the_host_that_they_ask_for
  a host without a service => virtual-service/wildcard-host.yaml
  match.uri, ignoreUriCase => virtual-service/strings.yaml, virtual-service/header-and-path.yaml
  match.headers => virtual-service/strings.yaml, virtual-service/method-scheme-authority.yaml
  match.withoutHeaders, queryParams => virtual-service/query-and-without-headers.yaml
  match.port, sourceLabels, sourceNamespace, gateways => virtual-service/sources.yaml
  name => rules.rs requests_go_where_a_virtual_service_says
  route.weight => virtual-service/weights.yaml, virtual-service/weights-between-hosts.yaml
  route.destination, unknown => virtual-service/unknown-destinations.yaml
  redirect.uri, authority, port, scheme, redirectCode => virtual-service/redirects.yaml
  redirect.derivePort, prefixRewrite => virtual-service/redirects.yaml
  directResponse => virtual-service/direct-response.yaml
  rewrite => virtual-service/rewrites.yaml, virtual-service/prefix-and-rewrite.yaml
  timeout => virtual-service/short-hosts-and-a-timeout.yaml, virtual-service/timeout-of-an-entry.yaml
  retries.attempts, perTryTimeout, retryOn => virtual-service/retries.yaml
  retries.retryRemoteLocalities => virtual-service/retries-elsewhere.yaml
  fault.delay => virtual-service/fault-delay.yaml, virtual-service/fault-of-sources.yaml
  fault.abort.httpStatus, grpcStatus => virtual-service/fault-abort.yaml
  mirror, mirrors, mirrorPercentage => virtual-service/mirrors.yaml
  corsPolicy => virtual-service/cors.yaml
  headers => virtual-service/headers.yaml, virtual-service/host-header.yaml
  delegate => virtual-service/delegates.yaml, virtual-service/delegates-of-namespaces.yaml
  tls.match.sniHosts, port => virtual-service/tls-by-name.yaml
  tls.match.destinationSubnets => virtual-service/destination-subnets.yaml
  tcp.match.port => virtual-service/tcp-by-port.yaml
  tcp.match.destinationSubnets => virtual-service/destination-subnets.yaml
  tcp.match.sourceLabels => virtual-service/tcp-source-labels.yaml
  tcp.route.weight => virtual-service/tcp-weights.yaml
  a route that is never reached => virtual-service/first-match.yaml
  exportTo => virtual-service/export-to.yaml
DestinationRule
  the closest host, and the namespace => destination-rule/wildcard-and-closer.yaml, destination-rule/root-namespace.yaml
  two rules of one namespace => destination-rule/merged.yaml
  subsets, and their policy => destination-rule/subsets.yaml
  portLevelSettings => destination-rule/port-settings.yaml, destination-rule/port-credentials.yaml
  loadBalancer.simple, ROUND_ROBIN and LEAST_REQUEST => destination-rule/balancers.yaml
  loadBalancer.simple, RANDOM => destination-rule/random.yaml
  loadBalancer.simple, PASSTHROUGH => redirect.rs redirected_traffic_reaches_its_destination
  consistentHash.httpHeaderName => destination-rule/port-settings.yaml
  consistentHash.httpCookie => destination-rule/cookie.yaml
  consistentHash.useSourceIp, minimumRingSize => destination-rule/source-address.yaml
  consistentHash.httpQueryParameterName, maglev => destination-rule/query-and-maglev.yaml
  connectionPool.tcp.maxConnections => destination-rule/pool.yaml
  connectionPool.tcp.connectTimeout => destination-rule/connect-timeout.yaml
  connectionPool.tcp.idleTimeout, maxConnectionDuration => traffic.rs connections_pass_through_tunnels_and_end_when_idle
  connectionPool.http.http1MaxPendingRequests, http2MaxRequests => destination-rule/pool.yaml
  connectionPool.http.maxRequestsPerConnection, maxRetries, idleTimeout => destination-rule/pool.yaml
  connectionPool.http.h2UpgradePolicy, useClientProtocol => destination-rule/http2.yaml
  connectionPool, at the server => destination-rule/pool-of-the-server.yaml, sidecar/limits.yaml
  outlierDetection.consecutive5xxErrors => destination-rule/ejection.yaml
  outlierDetection.consecutiveGatewayErrors, minHealthPercent => destination-rule/ejection-of-gateways.yaml
  localityLbSetting.distribute => destination-rule/localities-distribute.yaml
  localityLbSetting.failover => destination-rule/localities-failover.yaml
  localityLbSetting.failoverPriority => destination-rule/zones-and-labels.yaml
  localityLbSetting.enabled: false => locality.rs shares_are_those_that_the_mesh_names_and_a_service_may_prefer_the_near
  tls.mode, DISABLE => destination-rule/tls-off.yaml
  tls.mode, SIMPLE => destination-rule/tls-simple.yaml, destination-rule/tls-host-as-name.yaml, traffic.rs a_server_that_no_root_knows_is_not_called
  tls.mode, MUTUAL, and subjectAltNames => destination-rule/tls-mutual.yaml
  tls.mode, ISTIO_MUTUAL => destination-rule/tls-of-the-mesh.yaml
  tls.credentialName => destination-rule/port-credentials.yaml, traffic.rs clients_present_certificates_that_rules_name
  workloadSelector => destination-rule/workload-selector.yaml
Gateway
  selector => gateway/selector.yaml
  gateways of the own namespace alone => gateways.rs tls_ends_at_a_router_or_goes_on_by_its_name
  servers of one port => gateway/merged-by-port.yaml, gateways.rs requests_go_by_the_host_that_they_ask_for
  the port of the gateway's own service => gateways.rs ingresses_are_served_by_the_role_of_that_name
  tls.mode, PASSTHROUGH => gateway/passthrough.yaml
  tls.mode, AUTO_PASSTHROUGH => gateways.rs tls_ends_at_a_router_or_goes_on_by_its_name
  tls.mode, SIMPLE => gateway/redirect-to-https.yaml, gateway/credentials.yaml
  tls.mode, MUTUAL => gateway/credentials.yaml, destination-rule/tls-mutual.yaml
  tls.mode, ISTIO_MUTUAL => gateway/istio-mutual.yaml
  tls.httpsRedirect => gateway/redirect-to-https.yaml
  tls.minProtocolVersion, maxProtocolVersion, cipherSuites => gateway/versions-and-ciphers.yaml
  what a client says of itself => gateway/what-the-client-says-of-itself.yaml
  hosts of namespaces => gateway/hosts-of-namespaces.yaml, gateway/servers-of-all-kinds.yaml
  a gateway without rules => gateway/without-rules.yaml
  credentialName => gateways.rs certificates_come_by_name_and_rotate_without_a_lost_request, gateways.rs a_certificate_that_a_router_does_not_have_holds_back_its_own_server
  Ingress => gateways.rs ingresses_are_served_by_the_role_of_that_name
  a router that leads by server names => gateway/sni-dnat.yaml
Sidecar
  the one that selects, of the namespace, of the root => sidecar/oldest-selector.yaml, sidecar/root-namespace.yaml
  egress.hosts => sidecar/one-host.yaml, sidecar/own-namespace.yaml, sidecar/nobody.yaml, sidecar/rules-too.yaml, sidecar/exclusion.yaml
  egress.port, bind, captureMode => sidecar/egress-listeners.yaml, sockets.rs applications_call_services_through_a_socket
  ingress => sidecar/ingress.yaml, sidecar/ingress-tls.yaml, sidecar/limits.yaml
  outboundTrafficPolicy.mode => redirect.rs redirected_traffic_reaches_its_destination
  outboundTrafficPolicy.egressProxy => sidecar/egress-proxy.yaml
security
  PeerAuthentication of each width => peer-authentication/strict-namespace.yaml, peer-authentication/workload-over-namespace.yaml, peer-authentication/port-over-workload.yaml
  PeerAuthentication.mode => peer-authentication/disabled.yaml, peer-authentication/permissive.yaml, peer-authentication/unset-inherits.yaml, peer-authentication/unset-with-a-port.yaml
  jwtRules.issuer, audiences, jwks => request-authentication/issuer.yaml, request-authentication/audiences.yaml, request-authentication/two-issuers.yaml
  jwtRules.jwksUri => tokens.rs keys_of_an_issuer_are_exchanged_without_a_lost_request
  jwtRules.fromHeaders, fromParams => request-authentication/where-the-token-is.yaml
  jwtRules.outputPayloadToHeader, forwardOriginalToken => request-authentication/what-the-application-sees.yaml
  jwtRules.spaceDelimitedClaims => request-authentication/lists-in-a-text.yaml
  CUSTOM => custom.rs services_of_the_mesh_are_asked_about_what_a_custom_policy_matches
  DENY before ALLOW => authorization-policy/deny.yaml
  AUDIT => authorization-policy/audit.yaml
  from, to and when, of requests and of connections => policies.rs authorization_policies_decide_which_clients_come_in
  ALLOW without rules => authorization-policy/nothing.yaml
  fields of requests on connections => authorization-policy/requests-on-tcp.yaml
EnvoyFilter
  context, workloadSelector => envoy-filter/lua-inbound.yaml
  priority => envoy-filter/priority.yaml
  LISTENER, ROUTE_CONFIGURATION => conformance.rs the_examples_of_each_kind_do_what_its_documentation_says
  FILTER_CHAIN, MERGE and REMOVE, by sni => envoy-filter/filter-chains.yaml
  NETWORK_FILTER => envoy-filter/network-filter.yaml, envoy-filter/connection-manager.yaml
  NETWORK_FILTER by sni => envoy-filter/by-name-of-a-chain.yaml
  LISTENER_FILTER => envoy-filter/listener-filter.yaml
  HTTP_FILTER => envoy-filter/lua-inbound.yaml, envoy-filter/rate-limit.yaml, envoy-filter/filter-class.yaml
  VIRTUAL_HOST, HTTP_ROUTE => envoy-filter/virtual-host-and-route.yaml, envoy-filter/virtual-host-by-domain.yaml
  CLUSTER => envoy-filter/cluster.yaml, envoy-filter/new-cluster-and-gateway.yaml, envoy-filter/lua-asks-a-cluster.yaml
  each operation => patches.rs filters_routes_clusters_and_listeners_are_as_patches_say
  proxyVersion, metadata => envoy-filter/proxy-version.yaml
  a patch that Envoy refuses => patches.rs a_nack_is_reported_at_its_envoy_filters_and_others_stay_in_use
conflicts
  the page of an object, and a metric => redirect.rs redirected_traffic_reaches_its_destination
  the page of a push, and the log => gudgeon/tests/discovery/reports.rs conflicts_of_one_key_are_all_on_the_page
  the status of an object => gudgeon/tests/real/statuses.rs messages_of_an_object_are_in_its_status_until_their_cause_ends
  a refusal of Envoy's => gudgeon/tests/discovery/reports.rs a_nack_is_reported_at_the_objects_that_the_resource_was_made_from
";

/// Fails for a field that nothing shows.
pub fn check() {
    for line in FIELDS.lines().filter(|line| line.starts_with(' ')) {
        let (what, coverage) = line.split_once(" => ").expect(line);
        assert!(!coverage.starts_with("not served"), "{what}");
        exists(what, coverage);
    }
}
