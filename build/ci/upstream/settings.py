"""The settings of a case of upstream's table: the operator's flags and files, the mesh, the parameters of old, features of istiod."""

import re

import gotest
from documents import load, put
from gotest import Unread

STRINGS = {"string": "", "[]string": []}
LITERAL = re.compile(r"&?[\w.]+\{(.*)\}", re.S)


def lowered(name):
    return name[0].lower() + name[1:]


def set_flags(flags):
    """The operator's spec that `--set` words make."""
    spec = {}
    for flag in flags:
        path, _, value = flag.partition("=")
        put(spec, path.split("."), load(value) if value else "")
    return spec


def of_mesh(value):
    """A value of Go as the mesh's JSON has it."""
    if gotest.STRING.fullmatch(value):
        return gotest.text_of(value)
    if re.fullmatch(r"-?\d+", value):
        return int(value)
    if found := re.fullmatch(r"\w+\.(?:DurationProto|New)\((?:time\.Second \* (\d+)|(\d+) \* time\.Second)\)", value):
        return f"{found[1] or found[2]}s"
    if found := re.fullmatch(r"[\w.]+?_([A-Z][A-Z0-9_]*)", value):
        return found[1]
    if found := LITERAL.fullmatch(value):
        made = {}
        for key, text in gotest.fields("{" + found[1] + "}").items():
            inner = of_mesh(text)
            # A choice of several messages is not written itself.
            made.update(inner) if key in ("Provider", "Tracer") else made.update({lowered(key): inner})
        return made
    raise Unread(f"a value of the mesh {value[:80]!r}")


def mesh_overrides(text):
    """[(path, value)] of a function that changes the mesh; a list for what is appended."""
    found = []
    for statement in gotest.statements(text):
        if re.match(r"if [\w.]+ == nil \{", statement):
            continue
        match = re.fullmatch(r'm\.([\w.]+)(?:\["([^"]*)"\])?\s*=\s*(.*)', statement, re.S)
        if not match:
            raise Unread(f"a statement {statement[:80]!r}")
        path = [lowered(one) for one in match[1].split(".")] + ([match[2]] if match[2] else [])
        appended = re.fullmatch(r"append\(m\.\w+, (.*)\)", match[3], re.S)
        found.append((path, [of_mesh(appended[1])] if appended else of_mesh(match[3])))
    return found


# Switches of istiod in a test, each with the injector's flag or variable of the same effect.
FEATURES = {
    r'SetEnvForTest\(t, features\.EnableNativeSidecars\.Name, "true"\)': ("native", "on"),
    r'SetEnvForTest\(t, features\.EnableNativeSidecars\.Name, "false"\)': ("native", "off"),
    r"EnableNativeSidecars, features\.NativeSidecarModeDisabled": ("native", "off"),
    r"EnableNativeSidecars, features\.NativeSidecarModeEnabled": ("native", "on"),
    r"platform\.Platform\.Name, platform\.OpenShift": ("PLATFORM", "openshift"),
    r'"ENABLE_LEGACY_FSGROUP_INJECTION", "false"': ("ENABLE_LEGACY_FSGROUP_INJECTION", "false"),
    r"EnableLegacyFSGroupInjection(, | = )false": ("ENABLE_LEGACY_FSGROUP_INJECTION", "false"),
    r"RewriteTCPProbes(, | = )false": ("REWRITE_TCP_PROBES", "false"),
    r'CompliancePolicy, "fips-140-3"': ("COMPLIANCE_POLICY", "fips-140-3"),
}


def features(text):
    found = {}
    for statement in gotest.statements(text):
        known = [made for pattern, made in FEATURES.items() if re.search(pattern, statement)]
        if not known:
            raise Unread(f"a feature {statement[:80]!r}")
        found.update(known)
    return found


class Params:
    """The parameters of 1.1 to 1.4: what a test makes of a case, and how they become Helm's values."""

    def __init__(self, body, source, constants):
        found = re.search(r"params := &Params\{", body)
        blind = gotest.blinded(body)
        self.fields = gotest.fields(body[found.end() - 1 : gotest.closing(blind, found.end() - 1) + 1])
        self.types = dict(re.findall(r"^\s+(\w+)\s+(string|bool|int|uint32|\[\]string|time\.Duration)$", body, re.M))
        self.conditional = re.findall(r'if c\.(\w+) != "" \{\s*params\.(\w+) = c\.\w+\s*\}', body)
        self.types_of_params = dict(re.findall(r"^\s+(\w+)\s+(string|bool|int|uint32|uint64|\[\]string)\b", source, re.M))
        self.paths = re.findall(r'^\s+"([\w.]+)":\s*(.*),$', gotest.function_with_receiver(source, "intoHelmValues") or "", re.M)
        self.constants = constants

    def zero(self, kind):
        return STRINGS.get(kind, False if kind == "bool" else 0)

    def value(self, text, case):
        if text.startswith("c."):
            name = text[2:]
            return self.value(case[name], {}) if name in case else self.zero(self.types[name])
        if text in ("true", "false"):
            return text == "true"
        if re.fullmatch(r"\d+", text):
            return int(text)
        if text.startswith("[]string"):
            return gotest.strings(text)
        if gotest.STRING.match(text):
            return gotest.text_of(text)
        if found := re.fullmatch(r"(Init|Proxy)ImageName\((.*)\)", text):
            hub, tag, *debug = [self.value(one, case) for one in gotest.split(found[2])]
            name = "proxy_init" if found[1] == "Init" else "proxy_debug" if debug == [True] else "proxyv2"
            return f"{hub}/{name}:{tag}"
        if text in self.constants:
            return self.constants[text]
        raise Unread(f"a parameter {text[:60]!r}")

    def of(self, case):
        found = {name: self.zero(kind) for name, kind in self.types_of_params.items()}
        found.update({name: self.value(text, case) for name, text in self.fields.items() if name != "Mesh"})
        for name, field in self.conditional:
            if name in case:
                found[field] = self.value(case[name], case)
        return found

    def helm(self, case):
        """Helm's values: numbers as texts, as that release's test says them."""
        params, spec = self.of(case), {}
        for path, expression in self.paths:
            value = params[re.search(r"p\.(\w+)", expression)[1]]
            put(spec, path.split("."), value if isinstance(value, (bool, list)) else str(value))
        return spec
