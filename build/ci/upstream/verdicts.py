"""Verdicts of `gudgeon validate` that differ from the release's own validation, each by the sentence that wants it."""

import re

NOTHING = "^nothing is wrong with it$"

# (set, file, message, sentence)
RULES = [
    ("dataset", r"config-v1alpha2-\w+-invalid", NOTHING, "Mixer's kinds are told apart and not judged"),
    ("dataset", r"(?i)(wasm|telemetry|proxyconfig|workloadgroup)(plugin)?-invalid", NOTHING, "§4 kinds of later releases: a warning"),
    ("dataset", r"VirtualService-invalid", NOTHING, "§3.2 without hosts it is a delegate"),
    ("dataset", r"meshconfig\.yaml$", r"^ (apiVersion|kind): is required|there is no object", "input of a conversion, no object"),
    ("dataset", r"-invalid-skipped\.", "^ServiceEntry ", "upstream skips it"),
    ("dataset", r"WithUnsupported|PeerAuthentication-valid", "unknown field", "§4 unknown fields are errors"),
    ("samples", r"/templates/", "it is a template: render it first", "a template of Helm is to be rendered first"),
]


def sentence(kind, name, message):
    for of, file, text, found in RULES:
        if re.search(of, kind) and re.search(file, name) and re.search(text, message):
            return found
    return None
