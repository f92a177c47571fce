"""Where `gudgeon validate` says something else than the release's own validation, each by the sentence that wants it."""

import re

# (set, file, message, sentence)
RULES = []


def sentence(kind, name, message):
    for of, file, text, found in RULES:
        if re.search(of, kind) and re.search(file, name) and re.search(text, message):
            return found
    return None
