//! Values as users write them, as bytes; and messages over others.

use serde_json::{Value as Json, json};

use super::*;

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";
const FILTER: &str = "envoy.config.listener.v3.Filter";
const LUA: &str = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";
const TYPED_STRUCT: &str = "type.googleapis.com/udpa.type.v1.TypedStruct";

fn bytes(message: &str, value: &Json) -> Vec<u8> {
    encode(message, value, "v").unwrap_or_else(|findings| panic!("{value}: {findings:?}"))
}

fn mistakes(message: &str, value: &Json) -> Vec<String> {
    let found = encode(message, value, "v").unwrap_err().into_iter();
    found
        .map(|one| format!("{}: {}", one.path, one.message))
        .collect()
}

#[test]
fn every_form_of_a_field_is_written_as_protobuf_does() {
    for (message, value, want) in [
        (CLUSTER, json!({"name": "a"}), &b"\x0a\x01a"[..]),
        // In either spelling.
        (
            CLUSTER,
            json!({"connectTimeout": "1.5s"}),
            b"\x22\x08\x08\x01\x10\x80\xca\xb5\xee\x01",
        ),
        (
            CLUSTER,
            json!({"connect_timeout": "0s"}),
            b"\x22\x04\x08\x00\x10\x00",
        ),
        // Of an enumeration its number, too.
        (CLUSTER, json!({"lb_policy": "RANDOM"}), b"\x30\x03"),
        (CLUSTER, json!({"lb_policy": 3}), b"\x30\x03"),
        // Structs have no whole numbers.
        (
            CLUSTER,
            json!({"per_connection_buffer_limit_bytes": 5.0}),
            b"\x2a\x02\x08\x05",
        ),
        (
            CLUSTER,
            json!({"per_connection_buffer_limit_bytes": "5"}),
            b"\x2a\x02\x08\x05",
        ),
        (
            CLUSTER,
            json!({"per_connection_buffer_limit_bytes": 0}),
            b"\x2a\x02\x08\x00",
        ),
        (CLUSTER, json!({"name": null, "lb_policy": null}), b""),
        (CLUSTER, json!({"respect_dns_ttl": false}), b"\xb8\x02\x00"),
        (
            "envoy.type.v3.Percent",
            json!({"value": 1}),
            b"\x09\0\0\0\0\0\0\xf0\x3f",
        ),
        (
            "envoy.config.core.v3.DataSource",
            json!({"inline_bytes": "_-8"}),
            b"\x12\x02\xff\xef",
        ),
        (
            "envoy.type.v3.Int64Range",
            json!({"start": "-1", "end": 2}),
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x02",
        ),
        (
            FILTER,
            json!({"typed_config": {"@type": LUA}}),
            &[b"\x22\x40\x0a\x3c", LUA.as_bytes(), b"\x12\x00"].concat(),
        ),
    ] {
        assert_eq!(bytes(message, &value), want, "{value}");
    }
    let metadata = json!({"filter_metadata": {"b": {"x": [1, null]}, "a": {}}});
    let written = bytes("envoy.config.core.v3.Metadata", &metadata);
    assert_eq!(
        written[..9],
        b"\x0a\x05\x0a\x01a\x12\x00\x0a\x1d"[..],
        "maps are sorted"
    );
}

#[test]
fn types_of_the_v2_api_are_read_as_those_of_today() {
    let old =
        |name: &str| json!({"typed_config": {"@type": format!("type.googleapis.com/{name}")}});
    for (old_name, today) in [
        (
            "envoy.config.filter.http.lua.v2.Lua",
            "envoy.extensions.filters.http.lua.v3.Lua",
        ),
        (
            "envoy.config.filter.network.http_connection_manager.v2.HttpConnectionManager",
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        ),
        (
            "envoy.config.filter.http.router.v2.Router",
            "envoy.extensions.filters.http.router.v3.Router",
        ),
        (
            "envoy.api.v2.auth.UpstreamTlsContext",
            "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        ),
        (
            "envoy.config.filter.http.ext_authz.v2.ExtAuthz",
            "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
        ),
    ] {
        assert_eq!(
            bytes(FILTER, &old(old_name)),
            bytes(FILTER, &old(today)),
            "{old_name}"
        );
    }
    let lua = json!({"typed_config": {"@type": "type.googleapis.com/envoy.config.filter.http.lua.v2.Lua", "inlineCode": "a"}});
    bytes(FILTER, &lua);
    for (earlier, today) in [
        ("envoy.router", "envoy.filters.http.router"),
        (
            "envoy.http_connection_manager",
            "envoy.filters.network.http_connection_manager",
        ),
        ("mine", "mine"),
    ] {
        assert_eq!(todays_name(earlier), today);
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table")]
fn an_error_names_the_place_of_an_unknown_field() {
    let nested = |depth: usize| {
        (0..depth).fold(
            json!({}),
            |inner, _| json!({"and_rules": {"rules": [inner]}}),
        )
    };
    for (message, value, want) in [
        (
            CLUSTER,
            json!({"nam": "a", "b": [{"c": 1}]}),
            &[
                "v.nam: unknown field of envoy.config.cluster.v3.Cluster, did you mean \"name\"?",
                "v.b: unknown field of envoy.config.cluster.v3.Cluster",
            ][..],
        ),
        (CLUSTER, json!({"name": 5}), &["v.name: want a text"]),
        (
            CLUSTER,
            json!([]),
            &["v: want an object, envoy.config.cluster.v3.Cluster"],
        ),
        (
            CLUSTER,
            json!({"connect_timeout": "soon"}),
            &["v.connect_timeout: want a duration such as \"1.5s\""],
        ),
        (
            CLUSTER,
            json!({"lb_policy": "RANDOMM"}),
            &["v.lb_policy: unknown value \"RANDOMM\", did you mean \"RANDOM\"?"],
        ),
        (
            CLUSTER,
            json!({"per_connection_buffer_limit_bytes": -1}),
            &["v.per_connection_buffer_limit_bytes: want a whole number from 0 to 4294967295"],
        ),
        (
            CLUSTER,
            json!({"per_connection_buffer_limit_bytes": 1.5}),
            &["v.per_connection_buffer_limit_bytes: want a whole number from 0 to 4294967295"],
        ),
        (
            CLUSTER,
            json!({"circuit_breakers": {"thresholds": {}}}),
            &["v.circuit_breakers.thresholds: want a list"],
        ),
        (
            CLUSTER,
            json!({"circuit_breakers": {"thresholds": [{}, {"x": 1}]}}),
            &[
                "v.circuit_breakers.thresholds[1].x: unknown field of envoy.config.cluster.v3.CircuitBreakers.Thresholds",
            ],
        ),
        (
            CLUSTER,
            json!({"type": "EDS", "cluster_type": {}}),
            &["v.cluster_type: only one of type, cluster_type may be set"],
        ),
        (
            CLUSTER,
            json!({"lb_policy": 1, "lbPolicy": 1}),
            &["v.lbPolicy: only one of lb_policy, lbPolicy may be set"],
        ),
        (
            FILTER,
            json!({"typed_config": {}}),
            &["v.typed_config: want \"@type\""],
        ),
        (
            FILTER,
            json!({"typed_config": {"@type": "type.googleapis.com/envoy.no.Such"}}),
            &["v.typed_config[\"@type\"]: no type of Envoy 1.40 is known as \"envoy.no.Such\""],
        ),
        (
            FILTER,
            json!({"typed_config": {"@type": TYPED_STRUCT, "type_url": "type.googleapis.com/envoy.no.Such"}}),
            &["v.typed_config.type_url: no type of Envoy 1.40 is known as \"envoy.no.Such\""],
        ),
        (
            FILTER,
            json!({"typed_config": {"@type": TYPED_STRUCT, "type_url": LUA, "values": {}}}),
            &[
                "v.typed_config.values: unknown field of udpa.type.v1.TypedStruct, did you mean \"value\"?",
            ],
        ),
        (
            FILTER,
            json!({"typed_config": {"@type": TYPED_STRUCT, "type_url": LUA, "value": [{}]}}),
            &["v.typed_config.value: want an object"],
        ),
        (
            FILTER,
            json!({"typed_config": {"@type": TYPED_STRUCT, "type_url": LUA, "typeUrl": LUA}}),
            &["v.typed_config.typeUrl: only one of type_url, typeUrl may be set"],
        ),
        (
            FILTER,
            json!({"typed_config": {"@type": TYPED_STRUCT, "type_url": LUA, "value": {"x": 1}}}),
            &["v.typed_config.value.x: unknown field of envoy.extensions.filters.http.lua.v3.Lua"],
        ),
        (
            "envoy.extensions.wasm.v3.VmConfig",
            json!({"runtime": "envoy.wasm.runtime.null"}),
            &[
                "v.runtime: Envoy 1.40 has no extension of that runtime; Istio's telemetry is built into its own Envoy alone",
            ],
        ),
        (
            CLUSTER,
            json!({"connect_timeout": "9223372036s"}),
            &["v.connect_timeout: a duration of Envoy has at most 9223372035s"],
        ),
        (
            FILTER,
            json!({"typed_config": {"@type": LUA, "x": 1}}),
            &["v.typed_config.x: unknown field of envoy.extensions.filters.http.lua.v3.Lua"],
        ),
        (
            "envoy.no.Such",
            json!({}),
            &["v: envoy.no.Such is not a message of Envoy 1.40"],
        ),
    ] {
        assert_eq!(mistakes(message, &value), want, "{value}");
    }
    let deep = mistakes("envoy.config.rbac.v3.Permission", &nested(60));
    assert!(deep[0].ends_with("is nested too deeply"), "{deep:?}");
    bytes("envoy.config.rbac.v3.Permission", &nested(20));
    let many: serde_json::Map<_, _> = (0..1000).map(|at| (format!("x{at}"), json!(1))).collect();
    assert_eq!(mistakes(CLUSTER, &Json::Object(many)).len(), 20);
}

/// Lays one value over another.
fn laid(message: &str, below: &Json, above: &Json, lists: Lists) -> (Vec<u8>, Vec<String>) {
    let mut replaced = Vec::new();
    let below = bytes(message, below);
    let merged = merge(
        message,
        &below,
        &bytes(message, above),
        lists,
        &mut replaced,
    );
    (merged.unwrap(), replaced)
}

#[test]
fn messages_are_merged_field_by_field() {
    let thresholds = |numbers: &[u32]| {
        let one = numbers
            .iter()
            .map(|number| json!({"max_connections": number}));
        json!({"circuit_breakers": {"thresholds": one.collect::<Vec<_>>()}})
    };
    let metadata = |pairs: &Json| json!({"metadata": {"filter_metadata": pairs}});
    for (below, above, want) in [
        (
            json!({"name": "a", "lb_policy": 1}),
            json!({"lb_policy": 3}),
            json!({"name": "a", "lb_policy": 3}),
        ),
        (
            json!({"lb_policy": 1}),
            json!({"lb_policy": 0}),
            json!({"lb_policy": 0}),
        ),
        // As one value, not as a sum of two.
        (
            json!({"connect_timeout": "1.5s"}),
            json!({"connect_timeout": "2s"}),
            json!({"connect_timeout": "2s"}),
        ),
        (
            json!({"per_connection_buffer_limit_bytes": 5}),
            json!({"per_connection_buffer_limit_bytes": 0}),
            json!({"per_connection_buffer_limit_bytes": 0}),
        ),
        (thresholds(&[1]), thresholds(&[2]), thresholds(&[1, 2])),
        // The later of a choice.
        (
            json!({"type": "EDS"}),
            json!({"cluster_type": {"name": "x"}}),
            json!({"cluster_type": {"name": "x"}}),
        ),
        (
            metadata(&json!({"a": {"x": 1}, "b": {}})),
            metadata(&json!({"a": {"y": 2}})),
            metadata(&json!({"a": {"y": 2}, "b": {}})),
        ),
        (
            json!({"upstream_connection_options": {"tcp_keepalive": {"keepalive_time": 1}}}),
            json!({"upstream_connection_options": {"tcp_keepalive": {"keepalive_probes": 2}}}),
            json!({"upstream_connection_options": {"tcp_keepalive": {"keepalive_time": 1, "keepalive_probes": 2}}}),
        ),
    ] {
        let (merged, replaced) = laid(CLUSTER, &below, &above, Lists::Joined);
        assert_eq!(merged, bytes(CLUSTER, &want), "{below} {above}");
        assert_eq!(replaced, [""; 0]);
    }
    let (merged, _) = laid(
        CLUSTER,
        &thresholds(&[1]),
        &thresholds(&[2]),
        Lists::Replaced,
    );
    assert_eq!(merged, bytes(CLUSTER, &thresholds(&[2])));
}

#[test]
fn packed_messages_are_merged_where_their_types_agree() {
    let lua = |fields: Json| {
        let mut packed = json!({"@type": LUA});
        packed
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        json!({"name": "x", "typed_config": packed})
    };
    let (merged, replaced) = laid(
        FILTER,
        &lua(json!({"inline_code": "a"})),
        &lua(json!({"stat_prefix": "b"})),
        Lists::Joined,
    );
    assert_eq!(
        merged,
        bytes(
            FILTER,
            &lua(json!({"inline_code": "a", "stat_prefix": "b"}))
        )
    );
    assert_eq!(replaced, [""; 0]);
    let echo = json!({"typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}});
    let (merged, replaced) = laid(
        FILTER,
        &lua(json!({"inline_code": "a"})),
        &echo,
        Lists::Joined,
    );
    let mut want = echo.clone();
    want["name"] = "x".into();
    assert_eq!(merged, bytes(FILTER, &want));
    assert_eq!(replaced.len(), 1, "{replaced:?}");
    // In maps, too.
    let options = |fields: &Json| json!({"typed_extension_protocol_options": {"a": fields}});
    let http = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let (merged, _) = laid(
        CLUSTER,
        &options(&json!({"@type": http, "use_downstream_protocol_config": {}})),
        &options(&json!({"@type": http, "common_http_protocol_options": {"idle_timeout": "1s"}})),
        Lists::Joined,
    );
    let both = json!({"@type": http, "use_downstream_protocol_config": {}, "common_http_protocol_options": {"idle_timeout": "1s"}});
    assert_eq!(merged, bytes(CLUSTER, &options(&both)));
}

#[test]
fn equal_messages_have_one_form() {
    let pairs = |names: &[&str]| -> Vec<u8> {
        let entries = names.iter().map(|name| {
            bytes(
                "envoy.config.core.v3.Metadata",
                &json!({"filter_metadata": {*name: {"x": 1}}}),
            )
        });
        entries.collect::<Vec<_>>().concat()
    };
    let name = "envoy.config.core.v3.Metadata";
    let (one, other) = (pairs(&["a", "b", "c"]), pairs(&["c", "a", "b"]));
    assert_ne!(one, other);
    assert_eq!(canonical(name, &one), canonical(name, &other));
    assert_eq!(canonical(name, &one), one);
    for broken in [&b"\x0a"[..], b"\x0a\xff\xff", b"\x0b\x0a"] {
        assert_eq!(canonical(name, broken), broken);
        let mut replaced = Vec::new();
        assert!(merge(name, broken, &one, Lists::Joined, &mut replaced).is_err());
        assert!(merge(name, &one, broken, Lists::Joined, &mut replaced).is_err());
    }
}

/// The types that Envoy 1.40 names to its management server, but for a few that nobody's crate describes.
#[test]
fn the_descriptions_have_what_filters_are_made_of() {
    let all = descriptors().unwrap();
    for name in [
        "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
        "envoy.extensions.filters.http.wasm.v3.Wasm",
        "envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication",
        "envoy.extensions.filters.network.local_ratelimit.v3.LocalRateLimit",
        "envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
        "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig",
        "envoy.extensions.compression.gzip.compressor.v3.Gzip",
        "xds.type.v3.TypedStruct",
        "udpa.type.v1.TypedStruct",
    ] {
        assert!(all.has(name), "{name}");
    }
    assert_eq!(all.successor("envoy.api.v2.Cluster"), Some(CLUSTER));
    assert_eq!(all.successor(CLUSTER), None);
}

/// JSON of a few words that messages of clusters know, and of others.
fn any_json() -> impl proptest::strategy::Strategy<Value = Json> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        "[a-z0-9_.@=]{0,12}".prop_map(Json::from),
        Just(json!("type.googleapis.com/envoy.config.cluster.v3.Cluster")),
        Just(json!("1.5s")),
    ];
    let key = prop_oneof![
        Just("name".to_owned()),
        Just("connectTimeout".to_owned()),
        Just("metadata".to_owned()),
        Just("filter_metadata".to_owned()),
        Just("typed_extension_protocol_options".to_owned()),
        Just("transport_socket".to_owned()),
        Just("typed_config".to_owned()),
        Just("@type".to_owned()),
        Just("value".to_owned()),
        "[a-z_]{0,8}",
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::btree_map(key.clone(), inner, 0..5)
                .prop_map(|fields| Json::Object(fields.into_iter().collect())),
        ]
    })
}

proptest::proptest! {
    #[test]
    fn any_text_is_read_or_told(value in any_json(), other in any_json()) {
        let bytes = encode(CLUSTER, &value, "v");
        if let (Ok(below), Ok(above)) = (&bytes, encode(CLUSTER, &other, "v")) {
            let mut replaced = Vec::new();
            let merged = merge(CLUSTER, below, &above, Lists::Joined, &mut replaced);
            // What is laid over it once more changes nothing but lists.
            let merged = merged.unwrap();
            let again = merge(CLUSTER, &merged, &above, Lists::Replaced, &mut replaced);
            proptest::prop_assert!(again.is_ok());
            proptest::prop_assert_eq!(canonical(CLUSTER, &merged).len(), merged.len());
        }
    }

    #[test]
    fn no_bytes_cause_a_panic(
        below in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60),
        above in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..60),
    ) {
        let mut replaced = Vec::new();
        drop(merge(CLUSTER, &below, &above, Lists::Joined, &mut replaced));
        drop(canonical(CLUSTER, &below));
    }
}

/// Envoy takes the type of the outer one alone: what is within is a struct like any other, however often.
#[test]
fn a_typed_struct_is_what_it_names_once() {
    let lua = json!({"default_source_code": {"inline_string": "a"}});
    let typed =
        |url: &str, value: Json| json!({"@type": TYPED_STRUCT, "type_url": url, "value": value});
    let of = |config: Json| bytes(FILTER, &json!({"typed_config": config}));
    let mut direct = lua.clone();
    direct["@type"] = json!(LUA);
    assert_eq!(of(typed(LUA, lua.clone())), of(direct));
    let within = of(typed(TYPED_STRUCT, typed(LUA, lua)));
    let is_in = |name: &str| {
        within
            .windows(name.len())
            .any(|part| part == name.as_bytes())
    };
    assert!(is_in(TYPED_STRUCT) && is_in("type_url") && is_in(LUA));
}

#[test]
fn an_extension_that_is_asked_of_discovery_is_refused() {
    const HTTP_FILTER: &str =
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter";
    const MANAGER: &str = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let config = |source: &Json| {
        let kinds = ["type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"];
        json!({"config_source": source, "type_urls": kinds})
    };
    let server = |cluster: &str| {
        let service = json!({"envoy_grpc": {"cluster_name": cluster}});
        json!({"api_config_source": {"api_type": "GRPC", "grpc_services": [service]}})
    };
    let refused = "discovery serves no extension configuration: write it in typed_config";
    for message in [
        FILTER,
        HTTP_FILTER,
        "envoy.config.listener.v3.ListenerFilter",
    ] {
        for source in [
            json!({"ads": {}}),
            json!({"ads": {}, "resource_api_version": "V3"}),
            json!({"self": {}}),
            json!({}),
            Json::Null,
            server("xds-grpc"),
        ] {
            let value = json!({"name": "x", "config_discovery": config(&source)});
            let found = mistakes(message, &value);
            assert_eq!(
                found,
                [format!("v.config_discovery: {refused}")],
                "{message} {source}"
            );
        }
        for source in [
            json!({"path_config_source": {"path": "/a.yaml"}}),
            server("other"),
        ] {
            bytes(
                message,
                &json!({"name": "x", "configDiscovery": config(&source)}),
            );
        }
    }
    // However deep.
    let filter = json!({"name": "x", "configDiscovery": config(&json!({"ads": {}}))});
    let manager = json!({"typed_config": {"@type": MANAGER, "http_filters": [filter]}});
    let path = "v.typed_config.http_filters[0].configDiscovery";
    assert_eq!(mistakes(FILTER, &manager), [format!("{path}: {refused}")]);
}

#[test]
fn an_internal_listener_is_refused() {
    const LISTENER: &str = "envoy.config.listener.v3.Listener";
    for field in ["internal_listener", "internalListener"] {
        let value = json!({"name": "x", field: {}, "filter_chains": []});
        let want = format!("v.{field}: the proxy's bootstrap has no internal listeners");
        assert_eq!(mistakes(LISTENER, &value), [want]);
    }
    bytes(LISTENER, &json!({"name": "x", "internal_listener": null}));
}

#[test]
fn a_field_of_the_earlier_api_names_its_successor() {
    let all = descriptors().unwrap();
    for (message, field, successor) in old_fields::SUCCESSORS {
        let descriptor = all.fields(message).unwrap().expect(message);
        let has = |name: &str| descriptor.fields.iter().any(|one| one.name == name);
        assert!(
            has(successor) && !has(field),
            "{message} {field} {successor}"
        );
        if ["hosts", "idle_timeout"].contains(&field) {
            continue;
        }
        let want = format!(
            "v.{field}: Envoy 1.40 has no such field of {message} any more: write {successor}"
        );
        assert_eq!(mistakes(message, &json!({ field: {} })), [want]);
    }
    for field in ["idle_timeout", "streamIdleTimeout", "http_filters"] {
        let want = format!(
            "v.{field}: a field of HttpConnectionManager: write it in typed_config, with its @type"
        );
        assert_eq!(mistakes(FILTER, &json!({ field: "5s" })), [want]);
    }
}

#[test]
fn hosts_and_idle_timeout_mean_what_took_their_place() {
    const MANAGER: &str =
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let address = |port: u32| json!({"socket_address": {"address": "a.b", "port_value": port}});
    let endpoint = |port: u32| json!({"endpoint": {"address": address(port)}});
    let endpoints = json!([{"lb_endpoints": [endpoint(1), endpoint(2)]}]);
    for (message, value, today) in [
        (
            CLUSTER,
            json!({"name": "x", "hosts": [address(1), address(2)]}),
            json!({"name": "x", "load_assignment": {"cluster_name": "x", "endpoints": endpoints}}),
        ),
        (
            MANAGER,
            json!({"idle_timeout": "5s"}),
            json!({"common_http_protocol_options": {"idle_timeout": "5s"}}),
        ),
        (
            MANAGER,
            json!({"idleTimeout": "5s", "commonHttpProtocolOptions": {"maxConnectionDuration": "9s"}}),
            json!({"common_http_protocol_options": {"idle_timeout": "5s", "max_connection_duration": "9s"}}),
        ),
    ] {
        assert_eq!(bytes(message, &value), bytes(message, &today), "{value}");
    }
    // Both of them are one too many.
    for (message, value) in [
        (CLUSTER, json!({"hosts": [], "load_assignment": {}})),
        (
            MANAGER,
            json!({"idle_timeout": "5s", "common_http_protocol_options": {"idle_timeout": "6s"}}),
        ),
        (CLUSTER, json!({"hosts": {}})),
    ] {
        let found = mistakes(message, &value);
        let [one] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(one.contains("has no such field of"), "{one}");
    }
}

/// Nothing is done for findings that nobody reads: neither for fields, nor for items, nor for values.
#[test]
fn work_ends_with_the_last_finding() {
    const MAX_FINDINGS: usize = 20;
    let named = |count: usize| -> Json {
        let names = (0..count).map(|at| (format!("unknown_field_of_{at}"), json!(1)));
        Json::Object(names.collect())
    };
    let listed = |count: usize| json!({"health_checks": vec![named(4); count]});
    let valued = |count: usize| {
        let endpoints = vec![json!({"health_status": "UNKNOWN_OF_ANY_KIND"}); count];
        json!({"load_assignment": {"cluster_name": "a", "endpoints": [{"lb_endpoints": endpoints}]}})
    };
    let makes: [&dyn Fn(usize) -> Json; 3] = [&named, &listed, &valued];
    for make in makes {
        let work = |count: usize| {
            let value = make(count);
            move || assert_eq!(mistakes(CLUSTER, &value).len(), MAX_FINDINGS)
        };
        crate::growth::assert_linear(1, work(2 * MAX_FINDINGS), work(20_000));
    }
}
