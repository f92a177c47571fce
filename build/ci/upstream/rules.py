"""Differences from upstream's goldens that the contract of the injector wants, each by the sentence that wants it.

A rule applies to a path, in the releases that it names, if its condition is met: a difference that no rule wants is a failure.
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

    def __post_init__(self):
        if self.sentence not in SENTENCES:
            raise ValueError(f"cannot explain {self.sentence}: it is no name of a sentence")


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
    """batch/v1beta1 is gone from Kubernetes since 1.25: the owner of the pod is a CronJob of batch/v1."""
    return want is not ABSENT and got == want.replace("apis/batch/v1beta1/", "apis/batch/v1/") != want


def merged(want, got, golden):
    """Up to 1.8 a pod's own proxyMetadata took the mesh's away."""
    return want is ABSENT and got is not ABSENT and "traffic-annotations.yaml" in golden.name


def zero(want, got, golden):
    """Concurrency was a plain number in 1.6, of which 0 is not written; since 1.7 upstream writes it, too."""
    return want is ABSENT and got == 0 and "concurrency: 0" in golden.given


def stale(want, got, golden):
    """A golden's status names a volume that the golden's pod has not: upstream's test passes over it."""
    return got == [one for one in want if f"name: {one}\n" in golden.wanted] != want


def twice(_, __, golden):
    """The template makes an init container istio-proxy, and one without an image for a volume of it: upstream keeps both."""
    return golden.name == "TestInjection: sidecar-spire.yaml.injected" and golden.native == "on"


def port_of_the_pod(_, got, golden):
    return got is not ABSENT and re.search(rf"status\.sidecar\.istio\.io/port: [\"']?{re.escape(got)}[\"']?\n", golden.given)


# The sentences of the contract by their names, as the documentation explains them.
SENTENCES = {
    "§4 agents by the image's tag": "the version in the tag of the proxy's image decides on probes, labels and metrics; an image without a version is taken by the form of its template",
    "§4 concurrency 0": "`concurrency` is 0 by default, and 0 is not written into the arguments",
    "§4 connectTimeout, at most 30s": "a `connectTimeout` of more than 30 s makes the mesh configuration invalid",
    "§4 drain shorter than the shutdown": "a `drainDuration` that is not shorter than `parentShutdownDuration` makes the mesh configuration invalid",
    "§5 proxyMetadata merges by key": "`proxyMetadata` of a pod is merged with the mesh's, and does not replace it",
    "§6.1 CronJob: batch/v1": "the owner of a CronJob's pod is named in `batch/v1`, which alone exists since Kubernetes 1.25",
    "§6.1 the two IDs are 1337": "`ProxyUID` and `ProxyGID` are 1337, on OpenShift, too",
    "§6.2 appendMultusNetwork": "a network without a namespace beside it is named whole, as Multus looks for it",
    "§6.2 otelResourceAttributes": "`otelResourceAttributes` is empty",
    "§6.2 protoToJSON: what the pod wrote": "a value that the pod writes is printed, even if it is 0",
    "§7 Concurrency": "a proxy without `--concurrency` gets one thread for each core of its limit or request, with overlays of 1.9 and 1.10, too",
    "§7 restartPolicy trap": "`restartPolicy` is dropped from init containers that end: since Kubernetes 1.28 it would keep the pod from starting",
    "§8.1 podRedirectAnnot": "`kube-inject` sets the annotations of `podRedirectAnnot`, as the webhook does",
    "§8.5 overrides keep what the user wrote": "`proxy.istio.io/overrides` records the user's fields as written",
    "§8.5 rights of istio-init": "a container of the pod with the name of an init container of the template runs the template's image and arguments",
    "§8.5 the proxy's group": "`istio-iptables` gets `-g` with the group of the proxy that the user sets",
    "§8.5 the user's own settings": "the user's `runAsUser` of istio-proxy stays with TPROXY, too",
    "§8.6 no istio-proxy": "a pod without the container istio-proxy keeps its `prometheus.io` annotations",
    "§8.6 the status port": "`prometheus.io/port` names the status port of the pod, and a port of 0 leaves the metrics unmerged",
    "§8.7 labels of the webhook": "`kube-inject` sets the same labels as the webhook",
    "§8.9 one istio-proxy": "a pod has one container named istio-proxy, not one among both lists",
    "§9 which probes": "probes of TCP are rewritten for agents that know them, without `REWRITE_TCP_PROBES`",
    "§11 second pass": "an injection of an injected pod begins with the original pod",
    "§11 status names what is there": "the status names only volumes that the pod has",
    "§18 CronJob: the pod template": "annotations of a CronJob are read from and written to the pod template",
    "§18 inject false is honoured": "`kube-inject` honours `sidecar.istio.io/inject: \"false\"`",
    "§18 probe operations after the removals": "operations on probes use indices from after the removals",
}

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

# Paths that the test of the webhook up to 1.7 makes equal, or removes, before it compares.
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
