"""Objects for build/demos/injector and build/demos/all: reviews of a pod and of a rule, what came of them, and two objects side by
side.

    beside.py review POD                 an AdmissionReview that asks about it
    beside.py patched POD ANSWER         the pod after it
    beside.py rule SUM                   an AdmissionReview of a VirtualService whose weights add up to SUM
    beside.py verdict ANSWER             what a webhook has said of a rule; one that is allowed is a failure
    beside.py containers POD             their names
    beside.py show TITLE BEFORE TITLE AFTER [WIDTH]
All are files with JSON. Of an object that a server kept only what somebody wrote is shown.
"""

import base64
import difflib
import json
import shutil
import sys

GREEN, YELLOW, DIM, OFF = "\033[32m", "\033[33m", "\033[2m", "\033[0m"
# A server's bookkeeping.
OURS = ("creationTimestamp", "managedFields", "resourceVersion", "uid", "selfLink", "namespace")


def review(pod):
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0b7d9a1e-demo",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "operation": "CREATE",
            "object": pod,
        },
    }


def rule(total):
    route = [{"destination": {"host": "cart"}, "weight": total - 50}, {"destination": {"host": "cart"}, "weight": 50}]
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0b7d9a1e-demo",
            "kind": {"group": "networking.istio.io", "version": "v1", "kind": "VirtualService"},
            "namespace": "demo",
            "operation": "CREATE",
            "object": {
                "apiVersion": "networking.istio.io/v1",
                "kind": "VirtualService",
                "metadata": {"name": "cart", "namespace": "demo"},
                "spec": {"hosts": ["cart"], "http": [{"route": route}]},
            },
        },
    }


def verdict(answer):
    response = answer["response"]
    if response["allowed"]:
        sys.exit("cannot see a refusal: the rule was allowed")
    return "denied: " + response["status"]["message"]


def patched(pod, answer):
    response = answer["response"]
    if not response["allowed"]:
        sys.exit("cannot inject the pod: " + response["status"]["message"])
    for operation in json.loads(base64.b64decode(response["patch"])):
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        parent = pod
        for part in way:
            parent = parent[int(part)] if isinstance(parent, list) else parent[part]
        if isinstance(parent, list):
            last = len(parent) if last == "-" else int(last)
        if operation["op"] == "remove":
            del parent[last]
        elif operation["op"] == "add" and isinstance(parent, list):
            parent.insert(last, operation["value"])
        else:
            parent[last] = operation["value"]
    return pod


def written(item):
    """Returns the fields that a user wrote, or the injector."""
    item.pop("status", None)
    for key in OURS:
        item.get("metadata", {}).pop(key, None)
    return item


def lines(value, indent=""):
    """YAML, near enough for eyes."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            if isinstance(inner, (dict, list)) and inner:
                yield f"{indent}{key}:"
                yield from lines(inner, indent + ("" if isinstance(inner, list) else "  "))
            else:
                yield f"{indent}{key}: {scalar(inner)}"
    elif isinstance(value, list) and value:
        for inner in value:
            first, *more = lines(inner, indent + "  ")
            yield f"{indent}- {first.lstrip()}"
            yield from more
    else:
        yield indent + scalar(value)


def scalar(value):
    plain = isinstance(value, str) and value and value.strip() == value and not value[0] in "{[*&!%@`'\"#-?:,|>"
    if plain and not value.isdigit():
        return value
    quotes = isinstance(value, str) and '"' in value and "'" not in value
    return f"'{value}'" if quotes else json.dumps(value)


def fold(text, width):
    """In pieces of that width, the later ones further in."""
    pieces = [text[:width]]
    rest = text[width:]
    step = max(width - 4, 1)
    pieces += ["    " + rest[at : at + step] for at in range(0, len(rest), step)]
    return pieces


def rows(before, after):
    """(left, right, colour of the right)"""
    matcher = difflib.SequenceMatcher(a=before, b=after, autojunk=False)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind == "equal":
            yield from ((line, line, "") for line in before[a:b])
            continue
        common = min(b - a, d - c)
        yield from ((before[a + at], after[c + at], YELLOW) for at in range(common))
        yield from ((line, "", "") for line in before[a + common : b])
        yield from (("", line, GREEN) for line in after[c + common : d])


def show(left_title, left, right_title, right, width=0):
    width = (width or shutil.get_terminal_size((150, 40)).columns) - 3
    right_width = max(width * 6 // 10, 20)
    left_width = max(width - right_width, 20)
    print(f"{DIM}{left_title:{left_width}} | {right_title}{OFF}")
    before, after = list(lines(written(left))), list(lines(written(right)))
    added = 0
    for a, b, colour in rows(before, after):
        added += colour == GREEN
        lefts, rights = fold(a, left_width), fold(b, right_width)
        for at in range(max(len(lefts), len(rights))):
            one = lefts[at] if at < len(lefts) else ""
            two = rights[at] if at < len(rights) else ""
            print(f"{one:{left_width}} {DIM}|{OFF} {colour}{two}{OFF if colour else ''}")
    print(f"{DIM}{added} lines added{OFF}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def main(words):
    match words:
        case ["review", pod]:
            json.dump(review(read(pod)), sys.stdout)
        case ["patched", pod, answer]:
            json.dump(patched(read(pod), read(answer)), sys.stdout)
        case ["rule", total]:
            json.dump(rule(int(total)), sys.stdout)
        case ["verdict", answer]:
            print(verdict(read(answer)))
        case ["containers", pod]:
            print(", ".join(one["name"] for one in read(pod)["spec"]["containers"]))
        case ["show", left_title, left, right_title, right, *width]:
            show(left_title, read(left), right_title, read(right), *map(int, width))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
