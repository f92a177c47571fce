"""Two manifests by meaning: what differs is a list of (path, wanted, got), with lists of named things by name."""

import decimal
import json
import re

from documents import compact, load, parts

# Written by Go's types although nobody set them.
EMPTY = ("status", "strategy", "updateStrategy", "resources")
SWITCHES = ("test", "paused", "minReadySeconds")
# What the API server takes for absent: what holds it, key, value.
DEFAULTS = (
    ("env", "value", ""),
    ("fieldRef", "apiVersion", "v1"),
    ("resourceFieldRef", "divisor", "0"),
    ("readinessProbe", "initialDelaySeconds", 0),
    ("startupProbe", "initialDelaySeconds", 0),
    ("livenessProbe", "initialDelaySeconds", 0),
)
# Lists in whose order nothing is said.
SETS = ("volumes", "volumeMounts")
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
OVERRIDES = "proxy.istio.io/overrides"


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


class Meaning:
    """Values without what says nothing. `defaults` is what this release's agent has before it reads PROXY_CONFIG."""

    def __init__(self, defaults):
        self.defaults = defaults

    def of(self, value, path=()):
        if isinstance(value, dict):
            found = {key: self.of(one, (*path, key)) for key, one in value.items() if not self.nothing(value, key, one, path)}
            # A list of what says nothing says nothing either.
            found = {key: one for key, one in found.items() if one != []}
            return self.variable(found) if path[-1:] == ("env",) else found
        if isinstance(value, list):
            # Of variables those with something to say.
            return [one for one in (self.of(one, path) for one in value) if one]
        if path[-2:-1] in (("limits",), ("requests",)) or path[-1:] == ("sizeLimit",):
            return quantity(value)
        if isinstance(value, str) and value[:1] in ("{", "[") and (path[-1:] == ("value",) or "annotations" in path):
            try:
                read = json.loads(value)
                return {"JSON": status(read) if path[-1] == STATUS else self.of(read) if path[-1] == OVERRIDES else read}
            except ValueError:
                return value
        return value

    @staticmethod
    def nothing(whole, key, one, path):
        """Null, an empty list, what Go's types write although nobody set it."""
        if one is None or one == [] or (key in EMPTY and (one == {} or (key == "status" and not path))):
            return True
        if path == ("spec",) and key in SWITCHES and not one:
            return True
        return not isinstance(one, (dict, list)) and (path[-1] if path else "", key, one) in DEFAULTS

    def variable(self, one):
        """A variable, or nothing where it says nothing to the agent: no probes, or what is its default already."""
        parsed = one.get("value")
        if not isinstance(parsed, dict) or not isinstance(parsed["JSON"], dict):
            return one
        if one["name"] == "ISTIO_KUBE_APP_PROBERS" and not parsed["JSON"]:
            return None
        if one["name"] == "PROXY_CONFIG":
            left = {key: value for key, value in parsed["JSON"].items() if self.defaults.get(key) != value}
            return {**one, "value": {"JSON": left}}
        return one


def status(value):
    """The names in a status: its hash, and all else of upstream's in it, its tests strip too; `replaced` is gudgeon's own."""
    if isinstance(value, dict):
        more = ("version", "revision", "labels", "annotations", "replaced")
        return {key: one for key, one in value.items() if key not in more}
    return value


def documents(text, defaults):
    """The meaning of each object, in a list or not."""
    found = []
    for one in map(load, parts(text)):
        if one not in (None, {}):
            found += (one.get("items") or []) if one.get("kind") == "List" else [one]
    return [Meaning(defaults).of(one) for one in found]


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
            ordered = common[0] == common[1] or path.endswith(SETS) or (path.endswith("env") and not overtaken(got))
            return found + ([] if ordered else [(f"{path} order", *common)])
    if len(want) == len(got):
        return [one for at, (a, b) in enumerate(zip(want, got)) for one in differences(a, b, f"{path}[{at}]")]
    return [] if want == got else [(path, want, got)]


def overtaken(variables):
    """Returns true if a variable names another that comes after it: the order of others has no meaning."""
    names = [one["name"] for one in variables]
    for at, one in enumerate(variables):
        if set(re.findall(r"\$\((\w+)\)", compact(one.get("value") or ""))) & set(names[at + 1 :]):
            return True
    return False


def manifests(want, got, defaults):
    """Returns the differences of two files, each path behind the kind and name of its document."""
    left, right = documents(want, defaults), documents(got, defaults)
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
