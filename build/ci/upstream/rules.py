"""Differences from upstream's goldens that the contract of the injector wants, each by the sentence that wants it.

A rule holds for a path, for the releases that it names, and where its condition does: a difference that no rule wants is a failure.
"""

import dataclasses
import re

from compare import ABSENT


@dataclasses.dataclass
class Rule:
    sentence: str
    path: str
    # Of (wanted, got, golden).
    holds: object = None
    releases: range = range(1, 10000)


def left_out(_, got, __):
    return got is ABSENT


def forbidden(_, got, golden):
    return got is ABSENT and re.search(r"sidecar\.istio\.io/inject: [\"']?false", golden.given)


def again(_, __, golden):
    return "sidecar.istio.io/status" in golden.given


def switched(name):
    return lambda _, __, golden: name in golden.variables


def kubectl(_, got, golden):
    """Upstream's kube-inject up to 1.7 left out what its webhook added, and the other way round; ours is one code."""
    return got is not ABSENT and golden.name.startswith(("TestIntoResourceFile", "TestRewriteAppProbe", "TestHelmInject", "TestWebhookInject"))


def unnamed(_, __, golden):
    """Images of the webhook's own test data name no release, and their templates are no release's."""
    return golden.name.startswith("TestWebhookInject")


def openshift(_, __, golden):
    return golden.variables.get("PLATFORM") == "openshift" or "openshift" in golden.name


def threads(_, __, golden):
    return golden.name.endswith(("resource_annotations.yaml.injected", "traffic-annotations.yaml.injected"))


def earlier(want, got, _):
    """batch/v1beta1 is gone from Kubernetes since 1.25: what made the pod is a CronJob of batch/v1."""
    return want is not ABSENT and got == want.replace("apis/batch/v1beta1/", "apis/batch/v1/") != want


def merged(want, got, golden):
    """Up to 1.8 a pod's own proxyMetadata took the mesh's away."""
    return want is ABSENT and got is not ABSENT and "traffic-annotations.yaml" in golden.name


def zero(want, got, golden):
    """Concurrency was a plain number in 1.6, of which 0 is not written; since 1.7 upstream writes it, too."""
    return want is ABSENT and got == 0 and "concurrency: 0" in golden.given


def stale(want, got, golden):
    """A golden's status that names a volume which the golden's pod has not: upstream's test passes over it."""
    return got == [one for one in want if f"name: {one}\n" in golden.wanted] != want


def twice(_, __, golden):
    """The template makes an init container istio-proxy, and one without an image for a volume of it: upstream keeps both."""
    return golden.name == "TestInjection: sidecar-spire.yaml.injected" and golden.native == "on"


def port_of_the_pod(_, got, golden):
    return got is not ABSENT and re.search(rf"status\.sidecar\.istio\.io/port: [\"']?{re.escape(got)}[\"']?\n", golden.given)


PROXY = r"(initContainers|containers)\[istio-proxy\]\."
RULES = [
    Rule("§4 agents by the image's tag", r"annotations\.prometheus\.io|securityContext$|labels(\.|$)|ISTIO_PROMETHEUS|istio\.io/rev|PROBERS", unnamed, range(5, 9)),
    Rule("§4 drain shorter than the shutdown", r"^refused", lambda _, got, __: "want less than parentShutdownDuration" in got),
    Rule("§6.2 otelResourceAttributes", PROXY + r"env\[OTEL_RESOURCE_ATTRIBUTES\]$", left_out),
    # Multus looks for a network of the whole name, slash included, where there is no namespace beside it.
    Rule("§6.2 appendMultusNetwork", r"cni\.cncf\.io/networks\.JSON\[\d+\]\.name(space)?$", None, range(19, 23)),
    Rule("§4 connectTimeout, at most 30s", r"^refused$", lambda _, got, __: "connectTimeout" in got and got.endswith("is more than 30s"), range(1, 5)),
    # The test of the webhook has upstream's default mesh in 1.7, whose concurrency is 2.
    Rule("§4 concurrency 0", PROXY + r"args\[\d+\]$", lambda want, _, golden: want == "2" and golden.name == "TestHelmInject: resource_annotations.yaml.injected", range(7, 8)),
    Rule("§5 proxyMetadata merges by key", PROXY + r"env\[PROXY_CONFIG\]\.value\.JSON\.proxyMetadata\.DNS_AGENT$", merged, range(7, 9)),
    Rule("§5 proxyMetadata merges by key", r"initContainers\[istio-init\]\.env\[DNS_AGENT\]$", merged, range(7, 9)),
    Rule("§5 proxyMetadata merges by key", PROXY + r"env\[DNS_AGENT\]$", merged, range(7, 9)),
    Rule("§6.1 CronJob: batch/v1", PROXY + r"env\[ISTIO_META_OWNER\]\.value$", earlier, range(6, 9)),
    Rule("§6.2 protoToJSON: what the pod wrote", PROXY + r"env\[PROXY_CONFIG\]\.value\.JSON\.concurrency$", zero, range(6, 7)),
    Rule("§7 Concurrency", PROXY + r"args(\[\d+\])?$", threads, range(8, 11)),
    Rule("§7 restartPolicy trap", r"initContainers\[(istio-init|istio-validation|enable-core-dump)\]\.restartPolicy$", left_out),
    Rule("§6.1 the two IDs are 1337", r"runAs(User|Group)$|args\[\d+\]$", openshift),
    Rule("§8.1 podRedirectAnnot", r"annotations\.(sidecar\.istio\.io/interceptionMode|traffic\.sidecar\.istio\.io/\w+)$", kubectl, range(2, 8)),
    Rule("§8.5 the user's own settings", PROXY + r"securityContext\.runAsUser$", lambda want, got, golden: want == 0 and "tproxy" in golden.name),
    Rule("§8.7 labels of the webhook", r"labels(\.(security|service|topology)\.istio\.io/[\w-]+)?$", kubectl, range(2, 8)),
    Rule("§8.5 rights of istio-init", r"initContainers\[istio-init\]\.(args|image)$", lambda want, _, golden: "fake/custom-image" in golden.given),
    Rule("§8.5 the proxy's group", r"initContainers\[istio-init\]\.args$", lambda want, got, _: got[:-2] == want and got[-2] == "-g"),
    Rule("§8.5 overrides keep what the user wrote", r"proxy\.istio\.io/overrides\.JSON\."),
    Rule("§8.6 the status port", r"annotations\.prometheus\.io/port$", port_of_the_pod),
    Rule("§8.6 the status port", r"annotations\.prometheus\.io/\w+$", lambda _, got, golden: got is ABSENT and 'sidecar.istio.io/port: "0"' in golden.given),
    Rule("§8.6 no istio-proxy", r"annotations\.prometheus\.io/\w+$", lambda _, got, golden: got is ABSENT and "grpc-simple" in golden.name),
    Rule("§9 which probes", r"Probe|ISTIO_KUBE_APP_PROBERS", switched("REWRITE_TCP_PROBES")),
    Rule("§8.9 one istio-proxy", r"status\.JSON\.containers$|\.containers\[istio-proxy\]$|\[/var/run/secrets/workload-spiffe-uds\]\.readOnly$", twice, range(27, 10000)),
    Rule("§11 status names what is there", r"sidecar\.istio\.io/status\.JSON\.volumes$", stale, range(25, 27)),
    Rule("§11 second pass", r".", again),
    Rule("§18 CronJob: the pod template", r"^CronJob/spec\.jobTemplate\.(metadata|spec\.template\.metadata)"),
    Rule("§18 inject false is honoured", r"^Deployment/spec\.template\.", forbidden),
    Rule("§18 probe operations after the removals", r"Probe", lambda want, got, golden: golden.broken),
]

# What the test of the webhook up to 1.7 makes equal, or takes away, before it compares.
LOOSE = re.compile(
    r"annotations\.sidecar\.istio\.io/status|\[istio-(init|proxy)\]\.(image|terminationMessage\w+)$|\[istio-init\]\.securityContext\.privileged$"
    r"|env\[ISTIO_METAJSON_\w+\]|volumes\[istio-certs\]\.secret\.defaultMode$",
)


def loose(difference):
    return bool(LOOSE.search(difference[0]))


def sentence(difference, golden, minor):
    path, want, got = difference
    for rule in RULES:
        if minor in rule.releases and re.search(rule.path, path) and (rule.holds is None or rule.holds(want, got, golden)):
            return rule.sentence
    return None
