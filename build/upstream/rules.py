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


def revision(want, got, _):
    return want in ("", ABSENT) and got == "default"


RULES = [
    Rule("§7 restartPolicy trap", r"initContainers\[(istio-init|istio-validation|enable-core-dump)\]\.restartPolicy$", left_out),
    Rule("§18 fsGroup is added", r"securityContext$", lambda want, got, _: isinstance(got, dict) and isinstance(want, dict)),
    Rule("§18 probe operations after the removals", r"Probe", lambda want, got, golden: golden.broken),
    Rule("§18 inject false is honoured", r"^Deployment/spec\.template\.", forbidden),
    Rule("§18 CronJob: the pod template", r"^CronJob/spec\.jobTemplate\.(metadata|spec\.template\.metadata)"),
    Rule("§8.5 overrides keep what the user wrote", r"overrides\.JSON\.\w+\[.*\]\.image$", lambda want, got, _: want is ABSENT and got == "auto"),
    Rule("§4 drain shorter than the shutdown", r"^refused", lambda _, got, __: "want less than parentShutdownDuration" in got),
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
