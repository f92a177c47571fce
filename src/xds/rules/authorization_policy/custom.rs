//! CUSTOM: a service of the mesh is asked about requests and connections that a policy matches.
//!
//! RBAC does not decide there but leaves what it would have, and `ext_authz` behind it asks where that is a refusal. Each
//! provider has a pair of such filters, with keys of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use api::config::discovery_notes::{is_header_value, is_output_header};
use api::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use api::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    EnvoyExternalAuthorizationGrpcProvider as GrpcProvider,
    EnvoyExternalAuthorizationHttpProvider as HttpProvider,
    EnvoyExternalAuthorizationRequestBody as RequestBody, Provider as Kind,
};
use api::mesh::MeshConfig;
use api::security::authorization_policy::{Action, ActionDetail};
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::listener::v3::Filter;
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3::{
    AuthorizationRequest, AuthorizationResponse, BufferSettings, ExtAuthz, HttpService,
    ext_authz::Services,
};
use envoy_types::pb::envoy::extensions::filters::network::ext_authz::v3::ExtAuthz as NetworkExtAuthz;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter;
use envoy_types::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    ListStringMatcher, MetadataMatcher, StringMatcher,
};
use envoy_types::pb::envoy::r#type::v3::{HttpStatus, StatusCode};

use super::matching::{Pattern, string};
use super::message::{self, Rbac};
use crate::common::conflict::{Conflict, Conflicts, NOT_ENFORCED_AS_WRITTEN};
use crate::common::metadata_value::{path, text};
use crate::common::service_ports::{ServicePort, ServicePorts, cluster_name};
use crate::common::wire;
use crate::scope::policies::Policies;

/// The timeout of the provider, as in Istio.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The key under which RBAC's shadow leaves its result, and the result of a refusal.
const RESULT: &str = "shadow_engine_result";
const REFUSED: &str = "denied";

/// Services of the mesh that may be asked, and ports of services that the proxy has clusters of.
#[derive(Clone, Copy)]
pub(crate) struct Providers<'a> {
    pub(crate) mesh: &'a MeshConfig,
    pub(crate) service_ports: &'a ServicePorts,
}

impl fmt::Debug for Providers<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_list()
            .entries(self.mesh.extension_providers.iter().map(|one| &one.name))
            .finish()
    }
}

/// A provider of external authorization that a policy can use.
#[derive(Clone, Debug)]
pub(super) struct Provider<'a> {
    name: &'a str,
    kind: ProviderKind<'a>,
    host: &'a str,
    cluster: Arc<str>,
    status: Option<HttpStatus>,
    body: Option<BufferSettings>,
}

#[derive(Clone, Copy, Debug)]
enum ProviderKind<'a> {
    Http(&'a HttpProvider),
    Grpc(&'a GrpcProvider),
}

/// Tells of policies that ask a provider which the mesh has not, before a proxy for which they hold is there.
pub(crate) fn without_provider(mesh: &MeshConfig, policies: &Policies) -> Vec<Conflict> {
    let mut lost = Conflicts::default();
    for policy in policies.all_authorization() {
        let spec = policy.spec();
        let asked = match &spec.action_detail {
            Some(ActionDetail::Provider(provider)) => &provider.name,
            None => continue,
        };
        if policy.object.dry_run || spec.action() != Action::Custom {
            continue;
        }
        if let Err(why) = named(mesh, asked) {
            lost.push(NOT_ENFORCED_AS_WRITTEN, Some(&policy.from), || {
                (policy.from.to_string(), denies_all(&why))
            });
        }
    }
    lost.finish()
}

/// Says that a policy denies all, because it has no provider that can be asked.
pub(super) fn denies_all(why: &str) -> String {
    format!("denies all requests and connections: {why}")
}

/// The first provider of this name in a mesh.
///
/// # Errors
///
/// There is none: why.
fn named<'a>(mesh: &'a MeshConfig, name: &str) -> Result<&'a ExtensionProvider, String> {
    let mut all = mesh.extension_providers.iter();
    all.find(|one| one.name == name)
        .ok_or_else(|| format!("the mesh has no extensionProviders named {name:?}"))
}

impl<'a> Providers<'a> {
    /// The first of this name.
    ///
    /// # Errors
    ///
    /// The provider cannot be asked: why.
    pub(super) fn named(self, name: &str) -> Result<Provider<'a>, String> {
        self.usable(named(self.mesh, name)?)
            .map_err(|why| format!("provider {name:?}: {why}"))
    }

    fn usable(self, provider: &'a ExtensionProvider) -> Result<Provider<'a>, String> {
        let (asked, service, port, status, body) = match &provider.provider {
            Some(Kind::EnvoyExtAuthzHttp(http)) => {
                check(http)?;
                let body = &http.include_request_body_in_check;
                let status = &http.status_on_error;
                (
                    ProviderKind::Http(http),
                    &http.service,
                    http.port,
                    status,
                    body,
                )
            }
            Some(Kind::EnvoyExtAuthzGrpc(grpc)) => {
                let body = &grpc.include_request_body_in_check;
                let status = &grpc.status_on_error;
                (
                    ProviderKind::Grpc(grpc),
                    &grpc.service,
                    grpc.port,
                    status,
                    body,
                )
            }
            _ => return Err("neither envoyExtAuthzHttp nor envoyExtAuthzGrpc is there".to_owned()),
        };
        let service_port = self.service_port(service, port)?;
        // gRPC needs HTTP/2, and the provider's cluster speaks what its port declares.
        if matches!(asked, ProviderKind::Grpc(_)) && !service_port.protocol.is_http2() {
            return Err(format!("port {port} speaks neither GRPC nor HTTP2"));
        }
        Ok(Provider {
            name: &provider.name,
            kind: asked,
            host: service_port.host(),
            cluster: service_port.name.clone(),
            status: status_of(status)?,
            body: body.as_ref().map(buffered).transpose()?,
        })
    }

    /// `[NAMESPACE/]HOST`.
    fn service_port(self, service: &str, port: u32) -> Result<&'a ServicePort, String> {
        let missing = || format!("the proxy sees no service {service:?} with port {port}");
        let (namespace, host) = match service.split_once('/') {
            Some((namespace, host)) => (Some(namespace), host),
            None => (None, service),
        };
        let port = u16::try_from(port).map_err(|_| missing())?;
        let name = cluster_name(port, &host.to_ascii_lowercase());
        let found = self.service_ports.by_name(&name);
        let found = found.filter(|service_port| {
            namespace.is_none_or(|namespace| *service_port.service.key.namespace == *namespace)
        });
        found
            .map(|service_port| &**service_port)
            .ok_or_else(missing)
    }
}

fn check(http: &HttpProvider) -> Result<(), String> {
    if !http.path_prefix.is_empty() && !http.path_prefix.starts_with('/') {
        return Err("pathPrefix does not begin with a slash".to_owned());
    }
    let mut added = http.include_additional_headers_in_check.iter();
    // Where a request goes is not theirs to say: Envoy refuses it.
    let is_header = |(name, value): (&String, &String)| {
        is_output_header(name)
            && !name.eq_ignore_ascii_case("host")
            && is_header_value(&escaped(value))
    };
    if !added.all(is_header) {
        return Err("includeAdditionalHeadersInCheck has what is no header".to_owned());
    }
    Ok(())
}

/// Envoy reads operators in values: `%` stands for itself where it stands twice.
fn escaped(value: &str) -> String {
    value.replace('%', "%%")
}

fn status_of(text: &str) -> Result<Option<HttpStatus>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let code = text.parse::<i32>().ok();
    let code = code.and_then(|code| StatusCode::try_from(code).ok());
    let code = code.filter(|code| *code != StatusCode::Empty);
    let code = code.ok_or_else(|| format!("statusOnError {text:?} is no status"))?;
    Ok(Some(HttpStatus { code: code.into() }))
}

fn buffered(body: &RequestBody) -> Result<BufferSettings, String> {
    if body.max_request_bytes == 0 {
        return Err("maxRequestBytes is 0".to_owned());
    }
    Ok(BufferSettings {
        max_request_bytes: body.max_request_bytes,
        allow_partial_message: body.allow_partial_message,
        pack_as_bytes: body.pack_as_bytes,
    })
}

impl Provider<'_> {
    pub(super) const fn name(&self) -> &str {
        self.name
    }

    /// Returns true if the provider can decide about connections without requests.
    pub(super) const fn takes_connections(&self) -> bool {
        matches!(self.kind, ProviderKind::Grpc(_))
    }

    /// Returns the prefix of the keys under which its shadow leaves its results.
    fn prefix(&self) -> String {
        format!("ext_authz_{}_", self.name)
    }

    fn where_refused(&self, filter: &str) -> MetadataMatcher {
        let key = format!("{}{RESULT}", self.prefix());
        MetadataMatcher {
            filter: filter.to_owned(),
            path: path(&[&key]),
            value: Some(text(string(MatchPattern::Exact(REFUSED.to_owned())))),
            invert: false,
        }
    }

    fn timeout(&self) -> Duration {
        let duration = match self.kind {
            ProviderKind::Http(http) => http.timeout.as_ref(),
            ProviderKind::Grpc(grpc) => grpc.timeout.as_ref(),
        };
        let nanos = duration.map(api::duration::nanos);
        let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
        nanos
            .filter(|nanos| *nanos > 0)
            .map_or(TIMEOUT, Duration::from_nanos)
    }

    fn grpc(&self) -> core::GrpcService {
        core::GrpcService {
            target_specifier: Some(core::grpc_service::TargetSpecifier::EnvoyGrpc(
                core::grpc_service::EnvoyGrpc {
                    cluster_name: self.cluster.to_string(),
                    // Envoy would say the cluster's name, which is no authority to many servers.
                    authority: self.host.to_owned(),
                    ..core::grpc_service::EnvoyGrpc::default()
                },
            )),
            timeout: Some(wire::duration(self.timeout())),
            ..core::GrpcService::default()
        }
    }

    pub(super) fn http(&self, rules: Rbac) -> [HttpFilter; 2] {
        let common = ExtAuthz {
            transport_api_version: core::ApiVersion::V3.into(),
            filter_enabled_metadata: Some(self.where_refused(message::HTTP)),
            status_on_error: self.status,
            with_request_body: self.body,
            ..ExtAuthz::default()
        };
        let filter = match self.kind {
            ProviderKind::Grpc(grpc) => ExtAuthz {
                services: Some(Services::GrpcService(self.grpc())),
                failure_mode_allow: grpc.fail_open,
                clear_route_cache: grpc.clear_route_cache,
                ..common
            },
            ProviderKind::Http(http) => ExtAuthz {
                services: Some(Services::HttpService(self.service(http))),
                failure_mode_allow: http.fail_open,
                clear_route_cache: http.clear_route_cache,
                // The older field counts only where the newer is not written: a header that an operator takes out of the newer one is not sent.
                allowed_headers: headers(&http.include_request_headers_in_check)
                    .or_else(|| headers(&http.include_headers_in_check)),
                ..common
            },
        };
        let shadow = message::http_shadow(rules, &self.prefix());
        let asking = wire::http_filter("envoy.filters.http.ext_authz", wire::any(&filter));
        [shadow, asking]
    }

    fn service(&self, http: &HttpProvider) -> HttpService {
        let added = http.include_additional_headers_in_check.iter();
        let added = added.map(|(name, value)| core::HeaderValue {
            key: name.clone(),
            value: escaped(value),
            ..core::HeaderValue::default()
        });
        HttpService {
            server_uri: Some(core::HttpUri {
                uri: format!("http://{}:{}", self.host, http.port),
                timeout: Some(wire::duration(self.timeout())),
                http_upstream_type: Some(core::http_uri::HttpUpstreamType::Cluster(
                    self.cluster.to_string(),
                )),
            }),
            path_prefix: http.path_prefix.clone(),
            authorization_request: Some(AuthorizationRequest {
                headers_to_add: added.collect(),
                ..AuthorizationRequest::default()
            }),
            authorization_response: Some(AuthorizationResponse {
                allowed_upstream_headers: headers(&http.headers_to_upstream_on_allow),
                allowed_client_headers: headers(&http.headers_to_downstream_on_deny),
                allowed_client_headers_on_success: headers(&http.headers_to_downstream_on_allow),
                ..AuthorizationResponse::default()
            }),
            ..HttpService::default()
        }
    }

    /// Builds the filters for connections; none if the provider cannot decide about them.
    pub(super) fn tcp(&self, rules: Rbac) -> Vec<Filter> {
        let ProviderKind::Grpc(grpc) = self.kind else {
            return Vec::new();
        };
        let filter = NetworkExtAuthz {
            stat_prefix: "tcp.".to_owned(),
            grpc_service: Some(self.grpc()),
            failure_mode_allow: grpc.fail_open,
            transport_api_version: core::ApiVersion::V3.into(),
            filter_enabled_metadata: Some(self.where_refused(message::TCP)),
            ..NetworkExtAuthz::default()
        };
        let asking = wire::filter("envoy.filters.network.ext_authz", &filter);
        vec![message::tcp_shadow(rules, &self.prefix()), asking]
    }
}

/// Names of headers, each alone, or with what it begins or ends with. `None`: nothing is said of any.
fn headers<'a>(names: impl IntoIterator<Item = &'a String>) -> Option<ListStringMatcher> {
    let names = names.into_iter();
    let patterns: Vec<_> = names
        .map(|name| StringMatcher {
            // A regular expression says it itself.
            ignore_case: name != "*",
            ..Pattern::of(name).matcher()
        })
        .collect();
    (!patterns.is_empty()).then_some(ListStringMatcher { patterns })
}
