//! Rules of a VirtualService for HTTP.

fn http(rest: &str) -> String {
    format!("{{hosts: [a], http: [{{route: [{{destination: {{host: x}}}}], {rest}}}]}}")
}

fn alone(rest: &str) -> String {
    format!("{{hosts: [a], http: [{{{rest}}}]}}")
}

fn at_a_gateway(rest: &str) -> String {
    format!("{{hosts: [a], gateways: [g/w], http: [{{redirect: {{uri: /}}, {rest}}}]}}")
}

fn to(rest: &str) -> String {
    alone(&format!("route: [{{{rest}}}]"))
}

rows! { "VirtualService" "x"
    http_one_action {
        + alone("redirect: {uri: /}");
        + alone("redirect: {prefixRewrite: /}");
        + alone("redirect: {prefixRewrite: /}, match: [{uri: {prefix: /a}}, {method: {exact: GET}}]");
        + alone("redirect: {uri: /}, match: [{uri: {exact: /a}}]");
        + alone("directResponse: {status: 200}");
        + alone("delegate: {name: d}");
        + alone("redirect: {authority: '[::1]', port: 88}");
        + alone("redirect: {uri: '%PREFIX()%/a'}");
        - alone("redirect: {prefixRewrite: /}, match: [{uri: {prefix: /a}}, {uri: {exact: /b}}, {uri: {regex: /c}}]") => [
            "warning: spec.http[0].redirect.prefixRewrite: takes the place of the whole path: match[1].uri is no prefix but exact, with \
             which newer releases of Istio refuse it",
        ];
        - alone("redirect: {prefixRewrite: /}, match: [{uri: {regex: /c}}]") => [
            "warning: spec.http[0].redirect.prefixRewrite: takes the place of the whole path: match[0].uri is no prefix but regex, with \
             which newer releases of Istio refuse it",
        ];
        - alone("redirect: {uri: /}, timeout: 1s, retries: {attempts: 1}") => [
            "warning: spec.http[0].timeout: has no effect beside redirect: nothing is sent on",
            "warning: spec.http[0].retries: has no effect beside redirect: nothing is sent on",
        ];
        - alone("directResponse: {status: 200}, mirror: {host: m}") => [
            "warning: spec.http[0].mirror: has no effect beside directResponse: nothing is sent on",
        ];
        - alone("redirect: {authority: 'h:99', port: 88}") => [
            "warning: spec.http[0].redirect.port: authority has a port of its own: locations get both",
        ];
        - alone("redirect: {uri: '/n%PREFIX()%'}") => [
            "warning: spec.http[0].redirect.uri: %PREFIX()% stands for a part of the path only where the uri begins",
        ];
        - alone("redirect: {uri: /, prefixRewrite: /}") => ["spec.http[0].redirect: uri and prefixRewrite exclude each other"];
        - alone("timeout: 1s") => ["spec.http[0]: needs route, redirect, directResponse or delegate"];
        - http("redirect: {uri: /}, fault: {delay: {fixedDelay: 1s}}, rewrite: {uri: /}") => [
            "spec.http[0]: redirect and route exclude each other",
            "spec.http[0]: redirect and fault exclude each other",
            "spec.http[0]: redirect and rewrite exclude each other",
        ];
        - http("directResponse: {status: 200}, fault: {delay: {fixedDelay: 1s}}, rewrite: {uri: /}") => [
            "spec.http[0]: directResponse and route exclude each other",
            "spec.http[0]: directResponse and fault exclude each other",
            "spec.http[0]: directResponse and rewrite exclude each other",
        ];
        - alone("redirect: {uri: /}, directResponse: {status: 200}") => ["spec.http[0]: redirect and directResponse exclude each other"];
        - http("delegate: {}, redirect: {uri: /}, directResponse: {status: 200}") => [
            "spec.http[0]: redirect and route exclude each other",
            "spec.http[0]: redirect and directResponse exclude each other",
            "spec.http[0]: directResponse and route exclude each other",
            "spec.http[0]: delegate and route exclude each other",
            "spec.http[0]: delegate and redirect exclude each other",
            "spec.http[0]: delegate and directResponse exclude each other",
            "spec.http[0].delegate.name: must not be empty",
        ];
    }
    http_mirrors {
        + http("mirror: {host: m}, mirrorPercentage: {value: 0.5}");
        + http("mirrors: [{destination: {host: m}, percentage: {value: 100}}]");
        + "{hosts: [a], http: [{delegate: {name: d}, mirrorPercentage: {value: 1}}]}";
        - http("mirror: {host: '*'}, mirrors: [{}], mirrorPercentage: {value: 100.5}") => [
            "spec.http[0]: mirror and mirrors exclude each other",
            "spec.http[0].mirror.host: \"*\" is not a host name: it stands for all of them",
            "spec.http[0].mirrors[0].destination: is required",
            "spec.http[0].mirrorPercentage.value: 100.5 is not in 0..100",
        ];
        - http("mirror: {host: m}, mirrorPercent: 100") => ["warning: spec.http[0].mirrorPercent: use mirrorPercentage"];
        - http("mirror: {host: m}, mirrorPercent: 101") => [
            "warning: spec.http[0].mirrorPercent: use mirrorPercentage",
            "spec.http[0].mirrorPercent: 101 is not in 0..100",
        ];
        - http("mirrors: [{destination: {host: m, subset: a_}, percentage: {value: -1}}]") => [
            "spec.http[0].mirrors[0].destination.subset: \"a_\" is not a DNS label",
            "spec.http[0].mirrors[0].percentage.value: -1 is not in 0..100",
        ];
        - http("mirrorPercentage: {value: 1}") => ["warning: spec.http[0].mirrorPercentage: has no effect without mirror"];
        - http("mirrors: [{destination: {host: m}}], mirrorPercentage: {value: 1}") => [
            "warning: spec.http[0].mirrorPercentage: has no effect beside mirrors: each has a percentage of its own",
        ];
        - "{hosts: [a], http: [{directResponse: {status: 200}, mirrorPercentage: {value: 1}}]}" => [
            "warning: spec.http[0].mirrorPercentage: has no effect beside directResponse: nothing is sent on",
        ];
    }
    http_timeout {
        + http("timeout: 1ms");
        + http("timeout: 1h");
        - http("timeout: 0s") => ["spec.http[0].timeout: duration 0s is less than 1ms"];
        - http("timeout: 1.0005s") => ["spec.http[0].timeout: duration 1.000500s is not a whole number of milliseconds"];
    }
    http_match {
        + http("match: [{headers: {x-a: {}, ':path': {exact: a}}, withoutHeaders: {x-b: {regex: '*'}}, uri: {prefix: ''}, scheme: {exact: http}, method: {prefix: G}, authority: {regex: 'a.*'}, queryParams: {q: {exact: ''}}, port: 0, sourceLabels: {a: b}, gateways: [mesh], sourceNamespace: ns}]");
        + at_a_gateway("match: [{headers: {'@request.auth.claims.sub': {exact: a}, '@request.auth.claims[a.b][c]': {}}, withoutHeaders: {'@request.auth.claims[d]': {}}}]");
        + http("match: [{ignoreUriCase: true, uri: {prefix: /a}}, {ignoreUriCase: false, uri: {regex: /a}}]");
        - at_a_gateway("match: [{headers: {'@request.auth.claims[a][]': {exact: a}}, withoutHeaders: {'@request.auth.claims.a..b': {}}}]") => [
            "spec.http[0].match[0].headers[\"@request.auth.claims[a][]\"]: \"@request.auth.claims[a][]\" is not a header name",
            "spec.http[0].match[0].withoutHeaders[\"@request.auth.claims.a..b\"]: \"@request.auth.claims.a..b\" is not a header name",
        ];
        - http("match: [null]") => ["spec.http[0].match[0]: must not be null"];
        - http("match: [{ignoreUriCase: true, port: 80}]") => ["warning: spec.http[0].match[0].ignoreUriCase: has no effect without uri"];
        - http("match: [{ignoreUriCase: true, uri: {regex: /a}}]") => [
            "warning: spec.http[0].match[0].ignoreUriCase: has no effect on a regex",
        ];
        - http("match: [{headers: {'a b': {exact: x}, b: null, c: {regex: '*'}, d: {prefix: ''}, '@request.auth.claims.sub': {exact: a}}}]") => [
            "spec.http[0].match[0].headers[\"a b\"]: \"a b\" is not a header name",
            "spec.http[0].match[0].headers.b: must not be null",
            "spec.http[0].match[0].headers.c.regex: not a regular expression: repetition operator missing expression",
            "spec.http[0].match[0].headers.d.prefix: empty prefix",
            "spec.http[0].match[0].headers[\"@request.auth.claims.sub\"]: claim routing needs a gateway",
        ];
        - http("match: [{withoutHeaders: {a: {regex: 'x++'}}, uri: {regex: '('}, scheme: {prefix: ''}, method: {regex: ''}, authority: {regex: '[a'}, queryParams: {q: {prefix: ''}}, port: 65536, sourceLabels: {a: '-'}, gateways: ['a/'], sourceNamespace: '*'}]") => [
            "spec.http[0].match[0].withoutHeaders.a.regex: not a regular expression: repetition of a repetition",
            "spec.http[0].match[0].uri.regex: not a regular expression: unclosed group",
            "spec.http[0].match[0].scheme.prefix: empty prefix",
            "spec.http[0].match[0].method.regex: not a regular expression: it is empty",
            "spec.http[0].match[0].authority.regex: not a regular expression: unclosed character class",
            "spec.http[0].match[0].queryParams.q.prefix: empty prefix",
            "spec.http[0].match[0].port: port 65536 is not in 1..65535",
            "spec.http[0].match[0].sourceLabels.a: \"-\" is not a label value",
            "spec.http[0].match[0].gateways[0]: \"a/\" is not NAMESPACE/NAME",
            "spec.http[0].match[0].sourceNamespace: \"*\" is not a DNS label",
        ];
    }
    http_route {
        + to("destination: {host: x}, weight: 100, headers: {request: {set: {a: b}}}");
        - alone("route: [null]") => ["spec.http[0].route[0]: must not be null"];
        - to("weight: 101") => [
            "spec.http[0].route[0].destination: is required",
            "spec.http[0].route[0].weight: 101 is not in 0..100",
        ];
        - to("destination: {host: x}, headers: {response: {add: {'': b}}}") => ["spec.http[0].route[0].headers.response.add[\"\"]: must not be empty"];
    }
    dest {
        + to("destination: {host: '*.x', subset: v1, port: {number: 80}}");
        + to("destination: {host: x, subset: ''}");
        - to("destination: {host: '*', subset: a.b, port: {}}") => [
            "spec.http[0].route[0].destination.host: \"*\" is not a host name: it stands for all of them",
            "spec.http[0].route[0].destination.subset: \"a.b\" is not a DNS label",
            "spec.http[0].route[0].destination.port.number: port 0 is not in 1..65535",
        ];
        - to("destination: {}") => ["spec.http[0].route[0].destination.host: \"\" is not a host name: it is empty"];
    }
    http_headers {
        + http("headers: {request: {set: {':authority': a}, add: {x: '%REQ(Y):3%%%'}, remove: [b]}, response: {set: {c: \"d\\te\"}}}");
        + http("headers: {request: {add: {host: a}}}");
        + http("headers: {request: {set: {host: '%REQ(x-host)%'}}}");
        - http("headers: {request: {set: {':path': a, host: b}, add: {':authority': c, d: \"e\\nf\", g: '5%'}, remove: [host, '']}, response: {add: {Host: x}, remove: [':status']}}") => [
            "spec.http[0].headers.request.set[\":path\"]: no name starts with \":\" except \":authority\"",
            "spec.http[0].headers.request.add[\":authority\"]: authority is set twice",
            "spec.http[0].headers.request.add.d: no control characters here",
            "spec.http[0].headers.request.add.g: a % only doubled or as %COMMAND%",
            "spec.http[0].headers.request.remove[0]: the authority may only stand in request.set and request.add",
            "spec.http[0].headers.request.remove[1]: must not be empty",
            "spec.http[0].headers.response.add.Host: the authority may only stand in request.set and request.add",
            "spec.http[0].headers.response.remove[0]: no name starts with \":\" except \":authority\"",
        ];
        - http("headers: {request: {set: {Host: 'a b', 'x y': v}, remove: ['x(y)']}, response: {add: {'bad:name': v}}}") => [
            "warning: spec.http[0].headers.request.set.Host: \"a b\" is not a host: it has characters that RFC 3986 allows in none",
            "warning: spec.http[0].headers.request.set[\"x y\"]: \"x y\" is not a header name: requests and responses with it are refused",
            "warning: spec.http[0].headers.request.remove[0]: \"x(y)\" is not a header name: requests and responses with it are refused",
            "warning: spec.http[0].headers.response.add[\"bad:name\"]: \"bad:name\" is not a header name: requests and responses with it are refused",
        ];
        - http("rewrite: {authority: 'a b'}") => [
            "warning: spec.http[0].rewrite.authority: \"a b\" is not a host: it has characters that RFC 3986 allows in none",
        ];
        - http("rewrite: {authority: a}, headers: {request: {set: {host: b}}}") => ["spec.http[0].headers.request.set.host: authority is set twice"];
    }
    http_redirect {
        + alone("redirect: {port: 8080, redirectCode: 399, scheme: https}");
        + alone("redirect: {uri: /, redirectCode: 300}");
        + alone("redirect: {derivePort: FROM_REQUEST_PORT}");
        + alone("redirect: {authority: 'a_b.example:8443'}");
        + alone("redirect: {authority: '[2001:db8::1]:80'}");
        - alone("redirect: {authority: 'a b'}") => ["spec.http[0].redirect.authority: \"a b\" is not a host: it has characters that RFC 3986 allows in none"];
        - alone("redirect: {authority: 'a/b'}") => ["spec.http[0].redirect.authority: \"a/b\" is not a host: it has characters that RFC 3986 allows in none"];
        - alone("redirect: {uri: /, redirectCode: 299}") => ["spec.http[0].redirect.redirectCode: 299 is neither 0 nor in 300..399"];
        - alone("redirect: {uri: /, redirectCode: 400}") => ["spec.http[0].redirect.redirectCode: 400 is neither 0 nor in 300..399"];
        - alone("redirect: {redirectCode: 301}") => ["spec.http[0].redirect: needs uri, authority, scheme or port"];
        - alone("redirect: {redirectCode: 200, scheme: ftp, port: 0}") => [
            "spec.http[0].redirect.redirectCode: 200 is neither 0 nor in 300..399",
            "spec.http[0].redirect.scheme: \"ftp\" is neither http nor https",
            "spec.http[0].redirect.port: port 0 is not in 1..65535",
        ];
    }
    http_rewrite {
        + http("rewrite: {uriRegexRewrite: {match: 'a+', rewrite: b}, authority: a}");
        + http("rewrite: {uriRegexRewrite: {match: '/(a)(?:b)(?P<n>c)\\(', rewrite: '/\\2\\1\\0\\\\5'}}");
        - http("rewrite: {uriRegexRewrite: {match: '/(a)', rewrite: '/\\1\\5'}}") => ["spec.http[0].rewrite.uriRegexRewrite.rewrite: match has no group 5"];
        - http("rewrite: {uriRegexRewrite: {match: '/[(](?:a)\\(', rewrite: '\\1'}}") => ["spec.http[0].rewrite.uriRegexRewrite.rewrite: match has no group 1"];
        - http("rewrite: {uriRegexRewrite: {match: a, rewrite: 'x\\'}}") => [
            "spec.http[0].rewrite.uriRegexRewrite.rewrite: behind a backslash there is neither a digit nor another one",
        ];
        - http("rewrite: {}") => ["spec.http[0].rewrite: needs uri, uriRegexRewrite or authority"];
        - http("rewrite: {uri: /, uriRegexRewrite: {}}") => [
            "spec.http[0].rewrite: uri and uriRegexRewrite exclude each other",
            "spec.http[0].rewrite.uriRegexRewrite.match: not a regular expression: it is empty",
            "spec.http[0].rewrite.uriRegexRewrite.rewrite: must not be empty",
        ];
    }
    http_direct_response {
        + alone("directResponse: {status: 599, body: {string: ok}}");
        + alone(&format!("directResponse: {{status: 200, body: {{string: '{}'}}}}", "x".repeat(100 << 10)));
        - alone(&format!("directResponse: {{status: 200, body: {{string: '{}'}}}}", "x".repeat(1 << 20))) => ["warning: spec.http[0].directResponse.body: body is over 100 KiB"];
        - alone("directResponse: {status: 199}") => ["spec.http[0].directResponse.status: 199 is not in 200..599"];
        - alone("directResponse: {}") => ["spec.http[0].directResponse.status: 0 is not in 200..599"];
        - alone(&format!("directResponse: {{status: 600, body: {{string: '{}'}}}}", "x".repeat((1 << 20) + 1))) => [
            "spec.http[0].directResponse.status: 600 is not in 200..599",
            "spec.http[0].directResponse.body: body is over 1 MiB",
        ];
        - alone(&format!("directResponse: {{status: 200, body: {{bytes: '{}'}}}}", "AAAA".repeat(40_000))) => ["warning: spec.http[0].directResponse.body: body is over 100 KiB"];
    }
    http_retries {
        + http("retries: {attempts: 3, perTryTimeout: 2s, backoff: 1s, retryOn: '5xx, 503,reset'}");
        + http("retries: {attempts: 0}");
        + http("retries: {attempts: 1, retryOn: '100,599,5xx,gateway-error,reset,reset-before-request,connect-failure,retriable-4xx,refused-stream,retriable-status-codes,retriable-headers,envoy-ratelimited,http3-post-connect-failure,cancelled,deadline-exceeded,internal,resource-exhausted,unavailable'}");
        - http("retries: {attempts: -1, perTryTimeout: 0.5ms, backoff: 0s, retryOn: '5xx,,nope,99,600'}") => [
            "spec.http[0].retries.attempts: -1 is less than 0",
            "spec.http[0].retries.perTryTimeout: duration 0.000500s is less than 1ms",
            "spec.http[0].retries.backoff: duration 0s is less than 1ms",
            "spec.http[0].retries.retryOn: \"\" is not a retry condition",
            "spec.http[0].retries.retryOn: \"nope\" is not a retry condition",
            "spec.http[0].retries.retryOn: \"99\" is not a retry condition",
            "spec.http[0].retries.retryOn: \"600\" is not a retry condition",
        ];
        - http("retries: {attempts: 0, retryOn: 5xx}") => ["spec.http[0].retries: retries are off (attempts 0)"];
        - http("retries: {retryRemoteLocalities: false}") => ["spec.http[0].retries: retries are off (attempts 0)"];
        - http("retries: {attempts: 0, backoff: 1s, retryIgnorePreviousHosts: true}") => [
            "warning: spec.http[0].retries: no effect of backoff and retryIgnorePreviousHosts: retries are off (attempts 0)",
        ];
    }
    http_fault {
        + http("fault: {abort: {httpStatus: 503, percentage: {value: 0.0001}}, delay: {fixedDelay: 1s, percentage: {value: 0}, percent: 100}}");
        + http("fault: {abort: {grpcStatus: NOT_FOUND}}");
        + http("fault: {abort: {httpStatus: 200}}");
        - http("fault: {abort: {httpStatus: 199}}") => ["spec.http[0].fault.abort.httpStatus: 199 is not in 200..599"];
        - http("fault: {}") => ["spec.http[0].fault: needs abort or delay"];
        - http("fault: {abort: {httpStatus: 600, percentage: {value: 0.00001}}, delay: {fixedDelay: 0s, percent: 101, percentage: {value: 101}}}") => [
            "spec.http[0].fault.abort.httpStatus: 600 is not in 200..599",
            "spec.http[0].fault.abort.percentage.value: 0.00001 is neither 0 nor in 0.0001..100",
            "spec.http[0].fault.delay.fixedDelay: duration 0s is less than 1ms",
            "spec.http[0].fault.delay.percent: 101 is not in 0..100",
            "spec.http[0].fault.delay.percentage.value: 101 is neither 0 nor in 0.0001..100",
        ];
        - http("fault: {abort: {grpcStatus: not_found}, delay: {exponentialDelay: 1s}}") => [
            "spec.http[0].fault.abort.grpcStatus: \"not_found\" is not a gRPC status",
            "spec.http[0].fault.delay.exponentialDelay: not supported",
        ];
        - http("fault: {abort: {http2Error: x}}") => ["spec.http[0].fault.abort.http2Error: not supported"];
        - http("fault: {abort: {}}") => ["warning: spec.http[0].fault.abort: aborts nothing without httpStatus or grpcStatus"];
    }
    http_cors_policy {
        + http("corsPolicy: {allowOrigin: ['*', 'https://a.b:8443', a.b], allowOrigins: [{exact: a}, {regex: '.*'}], allowMethods: [GET, '*'], allowHeaders: [x-a, '*'], exposeHeaders: ['*'], maxAge: 24h}");
        - http("corsPolicy: {allowOrigin: ['ftp://a', 'a:x'], allowOrigins: [{}, {regex: '('}], allowMethods: [get], allowHeaders: ['a b'], exposeHeaders: [''], maxAge: 1.5s}") => [
            "spec.http[0].corsPolicy.allowOrigin[0]: \"ftp://a\" is not an origin",
            "spec.http[0].corsPolicy.allowOrigin[1]: \"a:x\" is not an origin",
            "spec.http[0].corsPolicy.allowOrigins[0]: must not be empty",
            "spec.http[0].corsPolicy.allowOrigins[1].regex: not a regular expression: unclosed group",
            "spec.http[0].corsPolicy.allowMethods[0]: \"get\" is not a method",
            "spec.http[0].corsPolicy.allowHeaders[0]: \"a b\" is not a header name",
            "spec.http[0].corsPolicy.exposeHeaders[0]: \"\" is not a header name",
            "spec.http[0].corsPolicy.maxAge: duration 1.500s is not whole seconds",
        ];
        - http("corsPolicy: {maxAge: 0s}") => ["spec.http[0].corsPolicy.maxAge: duration 0s is less than 1ms"];
    }
}
