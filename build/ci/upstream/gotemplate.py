"""As much of Go's text/template as the charts of Istio need: there need not be a Helm on the machine that looks at them.

A template that asks for more ends with an error that names what: nothing is left out in silence.
"""

import re

TOKEN = re.compile(
    r"""\s+|(?P<string>"(?:\\.|[^"\\])*")|(?P<raw>`[^`]*`)|(?P<number>-?\d+(?:\.\d+)?)|(?P<assign>:=|=)|(?P<mark>[()|,])"""
    r"""|(?P<variable>\$\w*)|(?P<field>\.\w+)|(?P<dot>\.)|(?P<word>\w+)""",
)
PIECE = re.compile(r"\{\{(?P<left>-(?=\s))?(?P<body>(?:\s*/\*.*?\*/\s*|\"(?:\\.|[^\"\\])*\"|`[^`]*`|[^\"`])*?)(?P<right>(?<=\s)-)?\}\}", re.S)
OPEN = {"if", "range", "with", "define", "block"}


class Broken(Exception):
    pass


class Ended(Exception):
    """A loop's break or continue."""


def unquoted(text):
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t", "r": "\r"}.get(found[1], found[1]), text[1:-1])


def pieces(text):
    """Text and actions in turn, trimmed as their markers say."""
    found, at, trim = [], 0, False
    for match in PIECE.finditer(text):
        before = text[at : match.start()]
        if trim:
            before = before.lstrip(" \t\r\n")
        if match["left"]:
            before = before.rstrip(" \t\r\n")
        found.append(("text", before))
        body = match["body"].strip()
        if not body.startswith("/*"):
            found.append(("action", body))
        at, trim = match.end(), bool(match["right"])
    rest = text[at:]
    found.append(("text", rest.lstrip(" \t\r\n") if trim else rest))
    return found


def tokens(body):
    at, found = 0, []
    while at < len(body):
        match = TOKEN.match(body, at)
        if not match:
            raise Broken(f"cannot read {body[at:]!r}")
        if match.lastgroup:
            # A field that touches what stands before it belongs to it.
            near = at > 0 and not body[at - 1].isspace() and body[at - 1] not in "(|,"
            found.append((match.lastgroup, match[0], near))
        at = match.end()
    return found


class Expression:
    """Parses the text between the braces: ('pipe', names, assign, commands), each command a list of operands."""

    def __init__(self, body):
        self.tokens, self.at = tokens(body), 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else (None, None, False)

    def next(self):
        self.at += 1
        return self.tokens[self.at - 1]

    def pipe(self):
        names, assign, start = [], None, self.at
        while self.peek()[0] == "variable":
            names.append(self.next()[1])
            if self.peek()[1] == ",":
                self.next()
        if names and self.peek()[0] == "assign":
            assign = self.next()[1]
        else:
            names, self.at = [], start
        commands = [self.command()]
        while self.peek()[1] == "|":
            self.next()
            commands.append(self.command())
        return ("pipe", names, assign, commands)

    def command(self):
        found = []
        while self.peek()[0] and self.peek()[1] not in ("|", ")", ","):
            found.append(self.operand())
        return found

    def operand(self):
        kind, text, _ = self.next()
        if kind == "string":
            made = ("value", unquoted(text))
        elif kind == "raw":
            made = ("value", text[1:-1])
        elif kind == "number":
            made = ("value", float(text) if "." in text else int(text))
        elif kind == "variable":
            made = ("variable", text)
        elif kind == "field":
            made = ("fields", ("dot",), [text[1:]])
        elif kind == "dot":
            made = ("dot",)
        elif text == "(":
            made = self.pipe()
            if self.peek()[1] != ")":
                raise Broken("a parenthesis is not closed")
            self.next()
        elif kind == "word":
            made = ("value", {"true": True, "false": False, "nil": None}[text]) if text in ("true", "false", "nil") else ("call", text)
        else:
            raise Broken(f"unexpected {text!r}")
        fields = made[2] if made[0] == "fields" else []
        while self.peek()[0] == "field" and self.peek()[2]:
            fields.append(self.next()[1][1:])
        if fields and made[0] != "fields":
            made = ("fields", made, fields)
        return made


class Reader:
    """Nodes: ('text', t), ('do', pipe), ('if'|'with'|'range', pipe, nodes, else nodes), ('template', name, pipe), ('break',)…"""

    def __init__(self, text, defined):
        self.pieces, self.at, self.defined = pieces(text), 0, defined

    def nodes(self, ends=()):
        found = []
        while self.at < len(self.pieces):
            kind, body = self.pieces[self.at]
            self.at += 1
            if kind == "text":
                if body:
                    found.append(("text", body))
                continue
            word = re.match(r"\w*", body)[0]
            if word in ends:
                return found, word, body
            found.extend(self.node(word, body))
        if ends:
            raise Broken(f"no {ends[-1]}")
        return found, None, None

    def node(self, word, body):
        if word in ("end", "else"):
            raise Broken(f"unexpected {word}")
        rest = body[len(word) :]
        if word in ("if", "range", "with"):
            return [self.branch(word, rest)]
        if word == "define":
            self.defined[unquoted(rest.strip())], _, _ = self.nodes(("end",))
            return []
        if word in ("template", "block"):
            read = Expression(rest)
            name = unquoted(read.next()[1])
            pipe = read.pipe() if read.peek()[0] else None
            if word == "block":
                self.defined.setdefault(name, self.nodes(("end",))[0])
            return [("template", name, pipe)]
        if word in ("break", "continue"):
            return [(word,)]
        read = Expression(body)
        pipe = read.pipe()
        if read.peek()[0]:
            raise Broken(f"unexpected {read.peek()[1]!r} in {body!r}")
        return [("do", pipe)]

    def branch(self, word, rest):
        pipe = Expression(rest).pipe()
        body, end, text = self.nodes(("else", "end"))
        other = []
        if end == "else":
            chained = re.match(r"else\s+(if|with)\b(.*)", text, re.S)
            other = [self.branch(chained[1], chained[2])] if chained else self.nodes(("end",))[0]
        return (word, pipe, body, other)


def parse(text, defined):
    return Reader(text, defined).nodes()[0]


def true(value):
    return value is True or (value is not False and value is not None and value != 0 and value != "" and value != [] and value != {})


def printed(value):
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value == int(value) and abs(value) < 1e21:
        return str(int(value))
    if isinstance(value, list):
        return "[" + " ".join(printed(one) for one in value) + "]"
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{printed(value[key])}" for key in sorted(value)) + "]"
    return str(value)


class Run:
    """Renders parsed templates: `functions` take their arguments as they are, but `and` and `or`, which need not look at all."""

    def __init__(self, defined, functions):
        self.defined, self.functions = defined, functions

    def render(self, nodes, dot, variables=None):
        out = []
        self.all(nodes, dot, variables or [{"$": dot}], out)
        return "".join(out)

    def named(self, name, dot):
        if name not in self.defined:
            raise Broken(f"no template {name!r}")
        return self.render(self.defined[name], dot)

    def all(self, nodes, dot, scopes, out):
        for node in nodes:
            self.one(node, dot, scopes, out)

    def one(self, node, dot, scopes, out):
        kind = node[0]
        if kind == "text":
            out.append(node[1])
        elif kind == "do":
            value = self.pipe(node[1], dot, scopes)
            if not node[1][1]:
                out.append(printed(value))
        elif kind == "template":
            out.append(self.named(node[1], self.pipe(node[2], dot, scopes) if node[2] else None))
        elif kind in ("break", "continue"):
            raise Ended(kind)
        elif kind == "range":
            self.range(node, dot, scopes, out)
        else:
            inner = [*scopes, {}]
            value = self.pipe(node[1], dot, inner)
            if true(value):
                self.all(node[2], value if kind == "with" else dot, inner, out)
            else:
                self.all(node[3], dot, inner, out)

    def range(self, node, dot, scopes, out):
        _, (_, names, _, commands), body, other = node
        over = self.pipe(("pipe", [], None, commands), dot, scopes)
        if isinstance(over, int):
            over = list(range(over))
        items = [(key, over[key]) for key in sorted(over)] if isinstance(over, dict) else list(enumerate(over or []))
        for key, value in items:
            inner = {}
            if names:
                inner[names[-1]] = value
            if len(names) > 1:
                inner[names[0]] = key
            try:
                self.all(body, value, [*scopes, inner], out)
            except Ended as ended:
                if str(ended) == "break":
                    break
        if not items:
            self.all(other, dot, [*scopes, {}], out)

    def pipe(self, pipe, dot, scopes):
        _, names, assign, commands = pipe
        value = self.command(commands[0], dot, scopes, [])
        for command in commands[1:]:
            value = self.command(command, dot, scopes, [value])
        for name in names[:1]:
            home = scopes[-1]
            if assign == "=":
                home = next((scope for scope in reversed(scopes) if name in scope), home)
            home[name] = value
        return value

    def command(self, operands, dot, scopes, last):
        if not operands:
            raise Broken("an empty command")
        first, rest = operands[0], operands[1:]
        if first[0] == "call":
            if first[1] in ("and", "or"):
                return self.lazy(first[1], [lambda one=one: self.value(one, dot, scopes) for one in rest] + [lambda: one for one in last])
            arguments = [self.value(one, dot, scopes) for one in rest] + last
            return self.call(first[1], arguments, scopes)
        value = self.value(first, dot, scopes)
        if callable(value):
            return value(*[self.value(one, dot, scopes) for one in rest], *last)
        if rest or last:
            raise Broken(f"{first!r} is no function")
        return value

    def lazy(self, word, thunks):
        for thunk in thunks:
            value = thunk()
            if true(value) != (word == "and"):
                return value
        return value

    def call(self, name, arguments, scopes):
        if name == "include":
            return self.named(arguments[0], arguments[1])
        if name == "tpl":
            return self.render(parse(arguments[0], self.defined), arguments[1])
        if name not in self.functions:
            raise Broken(f"function {name!r} not defined")
        return self.functions[name](*arguments)

    def value(self, operand, dot, scopes):
        kind = operand[0]
        if kind == "value":
            return operand[1]
        if kind == "dot":
            return dot
        if kind == "pipe":
            return self.pipe(operand, dot, scopes)
        if kind == "call":
            return self.call(operand[1], [], scopes)
        if kind == "variable":
            for scope in reversed(scopes):
                if operand[1] in scope:
                    return scope[operand[1]]
            raise Broken(f"no variable {operand[1]}")
        value = self.value(operand[1], dot, scopes)
        behind = operand[1][0] == "pipe"
        for field in operand[2]:
            if value is None and behind:
                return None
            if not isinstance(value, dict):
                raise Broken(f"{value!r} has no field {field}")
            value, behind = value.get(field), False
        return value
