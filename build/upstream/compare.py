"""Two manifests by meaning: what differs is a list of (path, wanted, got), with lists of named things by name."""

import decimal
import json
import re

from documents import compact, load, parts

# Written by Go's types although nobody set them.
EMPTY = ("status", "strategy", "updateStrategy", "resources")
KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}
QUANTITY = re.compile(r"([+-]?[\d.]+)([eE][+-]?\d+|[kKMGTPE]i?|[num])?")
POWERS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
ABSENT = type("Absent", (), {"__repr__": lambda _: "absent"})()
STATUS = "sidecar.istio.io/status"


def quantity(value):
    found = QUANTITY.fullmatch(str(value))
    if not found:
        return value
    number, unit = decimal.Decimal(found[1]), found[2] or ""
    if unit.endswith("i"):
        number *= 1024 ** (" KMGTPE".index(unit[0]))
    elif unit[:1] in ("e", "E") and len(unit) > 1:
        number = number.scaleb(int(unit[1:]))
    elif unit:
        number = number.scaleb(POWERS[unit])
    return f"quantity {number.normalize():f}"


def meaning(value, path=()):
    """The value without what says nothing."""
    if isinstance(value, dict):
        found = {}
        for key, one in value.items():
            if one is None or (key in EMPTY and (one == {} or (key == "status" and not path))):
                continue
            if key == "apiVersion" and path[-1:] == ("fieldRef",) and one == "v1":
                continue
            found[key] = meaning(one, (*path, key))
        return found
    if isinstance(value, list):
        return [meaning(one, path) for one in value]
    if path[-2:-1] in (("limits",), ("requests",)) or path[-1:] == ("sizeLimit",):
        return quantity(value)
    if isinstance(value, str) and value[:1] in "{[" and (path[-1:] == ("value",) or "annotations" in path):
        try:
            return {"JSON": status(json.loads(value)) if path[-1] == STATUS else json.loads(value)}
        except ValueError:
            return value
    return value


def status(value):
    """The status without the template's hash, which upstream's tests strip, and without the two lists that are ours alone (§11)."""
    if isinstance(value, dict):
        return {key: one for key, one in value.items() if key not in ("version", "labels", "annotations")}
    return value


def documents(text):
    """The meaning of each document that has one."""
    found = [load(one) for one in parts(text)]
    return [meaning(one) for one in found if one not in (None, {})]


def differences(want, got, path=""):
    if isinstance(want, dict) and isinstance(got, dict):
        found = []
        for key in [*want, *(key for key in got if key not in want)]:
            found += differences(want.get(key, ABSENT), got.get(key, ABSENT), f"{path}.{key}" if path else str(key))
        return found
    if isinstance(want, list) and isinstance(got, list):
        return in_lists(want, got, path)
    if type(want) is type(got) and want == got:
        return []
    return [(path, want, got)]


def in_lists(want, got, path):
    key = KEYS.get(path.rsplit(".", 1)[-1])
    if key and all(isinstance(one, dict) and key in one for one in want + got):
        names = [[one[key] for one in side] for side in (want, got)]
        if all(len(set(side)) == len(side) for side in names):
            left, right = ({one[key]: one for one in side} for side in (want, got))
            found = []
            for name in [*left, *(name for name in right if name not in left)]:
                found += differences(left.get(name, ABSENT), right.get(name, ABSENT), f"{path}[{name}]")
            common = [[name for name in side if name in left and name in right] for side in names]
            return found + ([(f"{path} order", *common)] if common[0] != common[1] else [])
    if len(want) == len(got):
        return [one for at, (a, b) in enumerate(zip(want, got)) for one in differences(a, b, f"{path}[{at}]")]
    return [] if want == got else [(path, want, got)]


def manifests(want, got):
    """What differs between two files, each path behind the kind and name of its document."""
    left, right = documents(want), documents(got)
    if len(left) != len(right):
        return [("documents", len(left), len(right))]
    found = []
    for a, b in zip(left, right):
        for path, one, other in differences(a, b):
            found.append((f"{a.get('kind')}/{path}", one, other))
    return found


def shown(difference):
    path, want, got = difference
    return f"{path}: want {text(want)}, got {text(got)}"


def text(value):
    return repr(value) if value is ABSENT else compact(value)
