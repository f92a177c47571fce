"""The functions of Helm's templates that Istio's charts call."""

import base64
import json
import re

from documents import compact, copied, dump, load
from gotemplate import Broken, printed, true


def formatted(form, *values):
    rest = iter(values)

    def one(found):
        if found[0] == "%%":
            return "%"
        value = next(rest)
        if found[1] == "q":
            return json.dumps(printed(value), ensure_ascii=False)
        return printed(value)

    return re.sub(r"%([%a-z])", one, form)


def joined(*values):
    """Go's print: blanks between two that are both no strings."""
    out = ""
    for at, value in enumerate(values):
        if at and not isinstance(value, str) and not isinstance(values[at - 1], str):
            out += " "
        out += printed(value)
    return out


def indented(count, text):
    return "\n".join(" " * count + line for line in text.split("\n"))


def indexed(value, *keys):
    for key in keys:
        if value is None:
            raise Broken("index of nil")
        value = value.get(key) if isinstance(value, dict) else value[key]
    return value


def merged(target, *others):
    """The first word wins."""
    for other in others:
        for key, value in (other or {}).items():
            if isinstance(target.get(key), dict) and isinstance(value, dict):
                merged(target[key], value)
            elif not true(target.get(key)):
                target[key] = value
    return target


def overwritten(target, *others):
    """The last word wins, also one of nothing."""
    for other in others:
        for key, value in (other or {}).items():
            if isinstance(target.get(key), dict) and isinstance(value, dict):
                overwritten(target[key], value)
            else:
                target[key] = value
    return target


def made(*pairs):
    return dict(zip(pairs[::2], pairs[1::2]))


def placed(target, key, value):
    target[key] = value
    return target


def dropped(target, key):
    target.pop(key, None)
    return target


def failed(text):
    raise Broken(text)


def from_yaml(text):
    found = load(text)
    return found if isinstance(found, dict) else {}


def version(text):
    return [int(one) for one in re.findall(r"\d+", text)[:3]]


def fits(wanted, text):
    found = re.fullmatch(r"(>=|<=|>|<|=)?\s*v?([\d.]+)(?:-0)?", wanted.strip())
    if not found:
        raise Broken(f"semverCompare {wanted!r}")
    have, want = version(text), version(found[2])
    return {">=": have >= want, "<=": have <= want, ">": have > want, "<": have < want}.get(found[1], have == want)


def equal(first, *others):
    return any(first == one and isinstance(first, bool) == isinstance(one, bool) for one in others)


def kind(value):
    names = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int", float: "float64", type(None): "invalid"}
    return names[type(value)]


FUNCTIONS = {
    "eq": equal,
    "ne": lambda a, b: not equal(a, b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "not": lambda a: not true(a),
    "len": len,
    "index": indexed,
    "print": joined,
    "printf": formatted,
    "default": lambda other, value=None: value if true(value) else other,
    "quote": lambda *values: " ".join(json.dumps(printed(one), ensure_ascii=False) for one in values if one is not None),
    "squote": lambda *values: " ".join(f"'{printed(one)}'" for one in values if one is not None),
    "trim": lambda text: text.strip(),
    "indent": indented,
    "nindent": lambda count, text: "\n" + indented(count, text),
    "contains": lambda needle, text: needle in text,
    "hasPrefix": lambda needle, text: text.startswith(needle),
    "hasSuffix": lambda needle, text: text.endswith(needle),
    "replace": lambda old, new, text: text.replace(old, new),
    "trunc": lambda count, text: text[:count],
    "trimSuffix": lambda end, text: text.removesuffix(end),
    "trimPrefix": lambda start, text: text.removeprefix(start),
    "lower": str.lower,
    "upper": str.upper,
    "cat": lambda *values: " ".join(printed(one) for one in values),
    "join": lambda between, values: between.join(printed(one) for one in values),
    "splitList": lambda between, text: text.split(between),
    "toString": printed,
    "int": lambda value: int(value or 0),
    "b64enc": lambda text: base64.b64encode(text.encode()).decode(),
    "toYaml": lambda value: dump(value).removesuffix("\n").removesuffix("\n..."),
    "fromYaml": from_yaml,
    "toJson": compact,
    "toPrettyJson": lambda value: json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False),
    "list": lambda *values: list(values),
    "tuple": lambda *values: list(values),
    "dict": made,
    "has": lambda value, values: value in (values or []),
    "hasKey": lambda target, key: key in (target or {}),
    "pick": lambda target, *keys: {key: target[key] for key in keys if key in target},
    "omit": lambda target, *keys: {key: value for key, value in target.items() if key not in keys},
    "set": placed,
    "unset": dropped,
    "merge": merged,
    "mergeOverwrite": overwritten,
    "mustMergeOverwrite": overwritten,
    "deepCopy": copied,
    "coalesce": lambda *values: next((one for one in values if true(one)), None),
    "empty": lambda value: not true(value),
    "ternary": lambda yes, no, condition: yes if condition else no,
    "required": lambda text, value: value if value not in (None, "") else failed(text),
    "fail": failed,
    "semverCompare": fits,
    "kindIs": lambda name, value: kind(value) == name,
    "kindOf": kind,
    "lookup": lambda *_: {},
    "until": lambda count: list(range(count)),
}
