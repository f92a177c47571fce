//! PeerAuthentication and RequestAuthentication.

pub(super) mod peer {
    rows! { "PeerAuthentication" "x"
        selector {
            + "{selector: {matchLabels: {a: b}}}";
            - "{selector: {matchLabels: {'': b}}}" => ["spec.selector.matchLabels[\"\"]: empty key"];
            - "{selector: {}}" => ["warning: spec.selector: selects every workload in the namespace"];
        }
        port_level_mtls {
            + "{selector: {matchLabels: {a: b}}, portLevelMtls: {'80': {mode: DISABLE}}}";
            - "{portLevelMtls: {}}" => ["spec.portLevelMtls: must not be empty"];
            - "{selector: {matchLabels: {a: b}}, portLevelMtls: {x: {mode: STRICT}}}" => [
                "spec.portLevelMtls.x: the key is not in 0..4294967295"
            ];
            - "{portLevelMtls: {'80': {}}}" => ["spec.portLevelMtls: needs a selector"];
            - "{selector: {matchLabels: {a: b}}, portLevelMtls: {'0': {}, '65536': {}}}" => [
                "spec.portLevelMtls.0: port 0 is not in 1..65535",
                "spec.portLevelMtls.65536: port 65536 is not in 1..65535",
            ];
        }
    }
}

pub(super) mod request {
    fn rule(rest: &str) -> String {
        format!("{{jwtRules: [{{{rest}}}]}}")
    }

    rows! { "RequestAuthentication" "x"
        selector_and_targets {
            + "{targetRef: {kind: Gateway, group: gateway.networking.k8s.io, name: g}}";
            - "{selector: {matchLabels: {a: '*'}}, targetRef: {kind: Service, group: core, name: g}, targetRefs: [{kind: Service, name: g}]}" => [
                "spec: only one of selector, targetRef, targetRefs",
                "spec.selector.matchLabels.a: no wildcards here",
            ];
        }
        jwt_rules {
            + rule("issuer: i, audiences: [a], fromParams: [p], fromCookies: [c], jwksUri: 'https://a:443/x', fromHeaders: [{name: x}], outputClaimToHeaders: [{header: x-a, claim: c}], timeout: 5s");
            + rule("jwksUri: 'http://a'");
            + rule("issuer: i, presence: REQUIRED, spaceDelimitedClaims: [scope]");
            + rule("issuer: i, jwks: '{\"keys\": [{\"kty\": \"EC\", \"crv\": \"P-256\", \"x\": \"AQAB\", \"y\": \"AQAB\"}]}'");
            - rule("audiences: [''], fromParams: [''], fromCookies: [''], spaceDelimitedClaims: ['']") => [
                "spec.jwtRules[0]: needs issuer or jwksUri",
                "spec.jwtRules[0].audiences[0]: must not be empty",
                "spec.jwtRules[0].fromParams[0]: must not be empty",
                "spec.jwtRules[0].fromCookies[0]: must not be empty",
                "spec.jwtRules[0].spaceDelimitedClaims[0]: must not be empty",
            ];
            - rule("jwksUri: 'https://a:x', fromHeaders: [{prefix: p}], outputClaimToHeaders: [{header: 'x y'}], timeout: 0s, jwks: '{}'") => [
                "spec.jwtRules[0].jwksUri: \"https://a:x\" is not an http or https URL",
                "spec.jwtRules[0].fromHeaders[0].name: must not be empty",
                "spec.jwtRules[0].outputClaimToHeaders[0].claim: must not be empty",
                "spec.jwtRules[0].outputClaimToHeaders[0].header: \"x y\" is not a header name",
                "spec.jwtRules[0].timeout: duration 0s is less than 1ms",
                "spec.jwtRules[0].jwks: not a JSON key set with keys",
            ];
            - rule("issuer: i, jwks: '{\"keys\": [{\"kty\": \"EC\", \"crv\": \"P-256\", \"x\": \"AQAB\", \"y\": \"AQAB\", \"d\": \"secret\"}]}'") => ["warning: spec.jwtRules[0].jwks: holds private key material"];
            - rule("issuer: i, jwks: '{\"keys\": [{\"kty\": \"RSA\", \"d\": \"secret\"}]}'") => [
                "spec.jwtRules[0].jwks: has no key that proxies can use",
                "warning: spec.jwtRules[0].jwks: holds private key material",
            ];
            - rule("issuer: i, jwks: '{\"keys\": []}'") => ["spec.jwtRules[0].jwks: has no key that proxies can use"];
        }
    }
}
