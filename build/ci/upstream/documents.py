"""YAML as Go's libraries read it, and back."""

import json

import yaml

BASE = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(BASE):
    """Dates stay text, as in Kubernetes."""


Loader.yaml_implicit_resolvers = {
    first: [one for one in found if one[0] not in ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")]
    for first, found in BASE.yaml_implicit_resolvers.items()
}


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


def load(text):
    return yaml.load(text, Loader)


def dump(value):
    return yaml.dump(value, Dumper=Dumper, default_flow_style=False, sort_keys=True, width=1 << 20, allow_unicode=True)


def parts(text):
    """The documents of a manifest, as text, cut where lines say so."""
    found, now = [], []
    for line in text.splitlines(keepends=True):
        if line.rstrip() == "---" or line.startswith("--- "):
            found.append("".join(now))
            now = []
        else:
            now.append(line)
    return [*found, "".join(now)]


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def copied(value):
    if isinstance(value, dict):
        return {key: copied(one) for key, one in value.items()}
    if isinstance(value, list):
        return [copied(one) for one in value]
    return value


def laid_over(base, top):
    """A map with what another one says in its place, at any depth; both stay as they were."""
    found = copied(base)
    for key, value in (top or {}).items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            found[key] = laid_over(found[key], value)
        else:
            found[key] = copied(value)
    return found


def put(tree, path, value):
    """Sets what stands at a path, and makes the maps on the way."""
    for key in path[:-1]:
        if not isinstance(tree.get(key), dict):
            tree[key] = {}
        tree = tree[key]
    tree[path[-1]] = value
