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


RULES = [
    Rule("§7 restartPolicy trap", r"initContainers\[(istio-init|istio-validation|enable-core-dump)\]\.restartPolicy$", left_out),
    Rule("§18 fsGroup is added", r"securityContext$", lambda want, got, _: isinstance(got, dict) and isinstance(want, dict)),
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
