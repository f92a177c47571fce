"""The tables of Go's tests, read as text: there need not be a Go on the machine, and each release writes its own a little differently.

A field or a statement that is not understood is an error with its text: a case must not be run as another one.
"""

import re

SKIPPED = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|`[^`]*`|\'(?:\\.|[^\'\\])+\'', re.S)
STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|`[^`]*`')
CLOSES = {"{": "}", "(": ")", "[": "]"}


class Unread(Exception):
    pass


def bare(text):
    """The text without comments, of the same meaning."""
    return SKIPPED.sub(lambda found: "" if found[0].startswith("/") else found[0], text)


def blinded(text):
    """The text with blanks in place of strings: brackets in it are brackets."""
    return SKIPPED.sub(lambda found: " " * len(found[0]), text)


def closing(blind, at):
    """Returns the index at which the bracket that opens at `at` is closed."""
    depth, closes = 0, CLOSES[blind[at]]
    for here in range(at, len(blind)):
        if blind[here] == blind[at]:
            depth += 1
        elif blind[here] == closes:
            depth -= 1
            if not depth:
                return here
    raise Unread("a bracket is not closed")


def split(text, between=","):
    """Cut where `between` stands outside of brackets and strings."""
    blind, depth, start, found = blinded(text), 0, 0, []
    for at, letter in enumerate(blind):
        depth += letter in "{(["
        depth -= letter in "})]"
        if letter == between and not depth:
            found.append(text[start:at].strip())
            start = at + 1
    return [one for one in [*found, text[start:].strip()] if one]


def function(text, name):
    """The body of a function, without comments, or nothing."""
    text = bare(text)
    found = re.search(rf"^func {name}\(", text, re.M)
    if not found:
        return None
    blind = blinded(text)
    opens = blind.index("{\n", found.end())
    return text[opens + 1 : closing(blind, opens)]


def function_with_receiver(text, name):
    """The body of a method."""
    return function(re.sub(r"^func \([^)]*\) ", "func ", text, flags=re.M), name)


def table(body, name="cases"):
    """The cases of a table, each a map of its fields' texts."""
    blind = blinded(body)
    found = re.search(rf"\b{name} := \[\]", blind)
    if not found:
        return []
    at = found.end()
    if blind[at:].startswith("struct"):
        at = closing(blind, blind.index("{", at)) + 1
    opens = blind.index("{", at)
    return [fields(one) for one in split(body[opens + 1 : closing(blind, opens)])]


def fields(text):
    if not text.startswith("{"):
        raise Unread(f"a case {text[:60]!r}")
    found = {}
    for one in split(text[1 : text.rindex("}")]):
        key, colon, value = one.partition(":")
        if not colon or not key.strip().isidentifier():
            raise Unread(f"a field {one[:60]!r}")
        found[key.strip()] = value.strip()
    return found


def text_of(value):
    """Returns the text of a Go string, with its concatenations."""
    found = [one.strip() for one in split(value, "+")]
    if not all(STRING.fullmatch(one) for one in found):
        raise Unread(f"a string {value[:60]!r}")
    return "".join(one[1:-1] if one[0] == "`" else unescaped(one[1:-1]) for one in found)


def unescaped(text):
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text)


def strings(value):
    """Returns the texts of a list of strings."""
    if value == "nil":
        return []
    found = re.fullmatch(r"\[\]string\s*\{(.*)\}", value, re.S)
    if not found:
        raise Unread(f"a list {value[:60]!r}")
    return [text_of(one) for one in split(found[1])]


def statements(value):
    """The statements of a function that a case holds."""
    opens = blinded(value).index("{", value.index(")"))
    body = value[opens + 1 : closing(blinded(value), opens)]
    blind, depth, start, found = blinded(body), 0, 0, []
    for at, letter in enumerate(blind):
        depth += letter in "{(["
        depth -= letter in "})]"
        if letter == "\n" and not depth:
            found.append(body[start:at].strip())
            start = at + 1
    return [one for one in [*found, body[start:].strip()] if one]


def constants(text):
    """Returns the values of the package's own names: strings and numbers."""
    found = {}
    for name, value in re.findall(r"^\s+(\w+)\s*=\s*(?:u?int\d*\()?(\"[^\"]*\"|-?\d+)\)?\s*$", bare(text), re.M):
        found[name] = value[1:-1] if value.startswith('"') else int(value)
    return found
