//! The whole connection managers, routes and clusters of a mesh without rules: what no request shows (discovery.md §10).

use serde_json::{Value, json};

use crate::client::*;
use crate::place::{Place, documents, entry};

/// The first object in a dump of which this is true, without its type.
fn find(value: &Value, is_it: &dyn Fn(&Value) -> bool) -> Option<Value> {
    if is_it(value) {
        let mut found = value.clone();
        found.as_object_mut()?.remove("@type");
        return Some(found);
    }
    match value {
        Value::Array(all) => all.iter().find_map(|one| find(one, is_it)),
        Value::Object(all) => all.values().find_map(|one| find(one, is_it)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn filter(name: &str, message: &str) -> Value {
    let kind = format!("type.googleapis.com/envoy.extensions.filters.http.{message}");
    json!({"name": format!("envoy.filters.http.{name}"), "typed_config": {"@type": kind}})
}

/// Members of both connection managers. `codec_type` is AUTO, which proto JSON leaves out.
fn manager(mut own: Value) -> Value {
    let common = json!({
        "http_filters": [
            filter("cors", "cors.v3.Cors"),
            filter("fault", "fault.v3.HTTPFault"),
            filter("router", "router.v3.Router"),
        ],
        "tracing": {
            "client_sampling": {"value": 100.0},
            "random_sampling": {"value": 1.0},
            "overall_sampling": {"value": 100.0},
        },
        "http2_protocol_options": {"allow_connect": true, "override_stream_error_on_invalid_http_message": true},
        "use_remote_address": false,
        "generate_request_id": true,
        "upgrade_configs": [{"upgrade_type": "websocket"}],
        "stream_idle_timeout": "0s",
        "normalize_path": true,
    });
    let all = own.as_object_mut().unwrap();
    all.extend(common.as_object().unwrap().clone());
    own
}

fn routes() -> Value {
    json!({
        "name": "8080",
        "virtual_hosts": [
            {
                "name": "a.demo.svc.cluster.local:8080",
                "domains": [
                    "a.demo.svc.cluster.local",
                    "a.demo.svc.cluster.local:8080",
                    "a",
                    "a:8080",
                    "a.demo",
                    "a.demo:8080",
                    "a.demo.svc",
                    "a.demo.svc:8080",
                    "a.demo.svc.cluster",
                    "a.demo.svc.cluster:8080"
                ],
                "routes": [
                    {
                        "match": {
                            "prefix": "/"
                        },
                        "route": {
                            "cluster": "outbound|8080||a.demo.svc.cluster.local",
                            "timeout": "0s",
                            "retry_policy": {
                                "retry_on": "connect-failure,refused-stream,unavailable,cancelled,resource-exhausted,retriable-status-codes",
                                "num_retries": 2,
                                "retry_host_predicate": [
                                    {
                                        "name": "envoy.retry_host_predicates.previous_hosts",
                                        "typed_config": {
                                            "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
                                        }
                                    }
                                ],
                                "host_selection_retry_max_attempts": "5",
                                "retriable_status_codes": [
                                    503
                                ]
                            },
                            "max_stream_duration": {
                                "max_stream_duration": "0s",
                                "grpc_timeout_header_max": "0s"
                            }
                        },
                        "decorator": {
                            "operation": "a.demo.svc.cluster.local:8080/*"
                        },
                        "name": "default"
                    }
                ]
            },
            {
                "name": "allow_any",
                "domains": [
                    "*"
                ],
                "routes": [
                    {
                        "match": {
                            "prefix": "/"
                        },
                        "route": {
                            "cluster": "PassthroughCluster",
                            "timeout": "0s"
                        },
                        "name": "allow_any"
                    }
                ]
            }
        ],
        "validate_clusters": false
    })
}

fn inbound_routes() -> Value {
    json!({
        "name": "inbound|8080|main|a.demo.svc.cluster.local",
        "virtual_hosts": [
            {
                "name": "inbound|http|8080",
                "domains": [
                    "*"
                ],
                "routes": [
                    {
                        "match": {
                            "prefix": "/"
                        },
                        "route": {
                            "cluster": "inbound|8080|main|a.demo.svc.cluster.local",
                            "timeout": "0s"
                        },
                        "decorator": {
                            "operation": "a.demo.svc.cluster.local:8080/*"
                        },
                        "name": "default"
                    }
                ]
            }
        ],
        "validate_clusters": false
    })
}

fn cluster() -> Value {
    json!({
        "name": "outbound|8080||a.demo.svc.cluster.local",
        "type": "EDS",
        "eds_cluster_config": {
            "eds_config": {
                "ads": {},
                "initial_fetch_timeout": "0s",
                "resource_api_version": "V3"
            },
            "service_name": "outbound|8080||a.demo.svc.cluster.local"
        },
        "connect_timeout": "1s",
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": 4_294_967_295_u32,
                    "max_pending_requests": 4_294_967_295_u32,
                    "max_requests": 4_294_967_295_u32,
                    "max_retries": 4_294_967_295_u32
                }
            ]
        }
    })
}

#[tokio::test]
async fn a_mesh_without_rules_has_these_resources() {
    let grpc = entry(&host("g"), 9090, "GRPC", &[("10.0.0.2", 80)]);
    let discovery = Place::new()
        .with(
            "config/a.yaml",
            &documents(&[service("a", &["10.0.0.1"]), grpc]),
        )
        .with("mesh", "enableTracing: true\n")
        .start();
    let mut node = node_of("sidecar~10.0.0.1~a-1.demo~demo.svc.cluster.local");
    node.metadata = None;
    let mut stream = Sotw::open(discovery.address().port()).await;
    for (url, names) in [(CDS, &[][..]), (EDS, &[A]), (LDS, &[]), (RDS, &["8080"])] {
        stream.ask_as(node.clone(), url, names);
        let response = stream.hear(url).await;
        stream.ack(&response, names);
    }
    let dump = discovery.json("/debug/config_dump?proxyID=a-1.demo");
    let of = |member: &'static str, value: &str| {
        let found = find(&dump, &|one| one[member] == value);
        found.unwrap_or_else(|| panic!("{member} {value}"))
    };
    let outbound = json!({
        "stat_prefix": "outbound_0.0.0.0_8080",
        "rds": {
            "config_source": {"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"},
            "route_config_name": "8080",
        },
    });
    assert_eq!(
        of("stat_prefix", "outbound_0.0.0.0_8080"),
        manager(outbound)
    );
    let inbound = json!({
        "stat_prefix": "inbound_10.0.0.1_80",
        "route_config": inbound_routes(),
        "forward_client_cert_details": "APPEND_FORWARD",
        "set_current_client_cert_details": {"subject": true, "dns": true, "uri": true},
    });
    assert_eq!(of("stat_prefix", "inbound_10.0.0.1_80"), manager(inbound));
    assert_eq!(of("name", "8080"), routes());
    assert_eq!(of("name", A), cluster());
    let of_grpc = of("name", "outbound|9090||g.demo.svc.cluster.local");
    assert_eq!(of_grpc["circuit_breakers"], cluster()["circuit_breakers"]);
    let name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    assert_eq!(
        of_grpc["typed_extension_protocol_options"],
        json!({name: {
            "@type": format!("type.googleapis.com/{name}"),
            "explicit_http_config": {"http2_protocol_options": {"max_concurrent_streams": 1_073_741_824}},
        }})
    );
}
