"""The goldens of a release: each a configuration, an input and what upstream's injector made of it."""

import dataclasses
import re

import gotest
import settings
from charts import Chart
from compare import differences, shown
from documents import compact, copied, dump, laid_over, load, parts, put
from gotemplate import Broken, Run, parse
from sprig import FUNCTIONS

# The path of the pod in each kind of object.
POD = {"Pod": (), "CronJob": ("spec", "jobTemplate", "spec", "template")}
INJECTED = {"Deployment", "DeploymentConfig", "DaemonSet", "StatefulSet", "Job", "ReplicaSet", "ReplicationController", "CronJob", "Pod"}


@dataclasses.dataclass
class Golden:
    name: str
    config: str
    values: str
    mesh: str
    given: str
    # A manifest, or the words that a refusal must have.
    wanted: str = ""
    refusal: str = ""
    native: str = "off"
    variables: dict = dataclasses.field(default_factory=dict)
    # The paths that this release's own test leaves out when it compares.
    loose: bool = False
    # A patch of upstream's that does not apply to its own input.
    broken: bool = False


class Release:
    def __init__(self, repository, name):
        self.repository, self.name = repository, name
        self.minor = 1000 if name == "master" else int(name.split(".")[1])
        self.folder = "pilot/pkg/kube/inject" if self.minor <= 3 else "pkg/kube/inject"
        self.files = set(repository.files(name, f"{self.folder}/testdata"))
        self.tests = self.source("inject_test.go")
        self.webhook = self.source("webhook_test.go")
        # The folder from which this release's test takes its charts.
        found = re.search(r'Join\(wd, "\.\./\.\./\.\./([^"]*)"\)', self.webhook)
        self.chart = Chart(repository, name, self.minor, found[1].rstrip("/") if found else "manifests")
        self.defaults = self.of_the_agent()
        self.made = {}

    def of_the_agent(self):
        """Returns the defaults of this release's agent."""
        body = gotest.function(self.repository.read(self.name, "pkg/config/mesh/mesh.go") or "", "DefaultProxyConfig")
        found = {}
        if address := re.search(r'DiscoveryAddress:\s*"([^"]*)"', body or ""):
            found["discoveryAddress"] = address[1]
        if zipkin := re.search(r'Tracing_Zipkin\{\s*Address:\s*"([^"]*)"', body or ""):
            found["tracing"] = {"zipkin": {"address": zipkin[1]}}
        return found

    def source(self, name):
        return self.repository.must(self.name, f"{self.folder}/{name}")

    def data(self, path):
        return self.repository.must(self.name, f"{self.folder}/testdata/{path}")

    def injection(self, spec):
        """The chart's files, once for each set of settings."""
        key = compact(spec)
        if key not in self.made:
            self.made[key] = self.chart.injection(spec)
        return self.made[key]

    def check(self):
        """Checks the release's own renderings of its chart: ours must be the same."""
        for name, made in zip(("template", "values"), self.injection({})):
            path = f"inputs/default.{name}.gen.yaml"
            if path in self.files:
                # The operator of then wrote two values more, which no template asks for.
                found = [one for one in differences(load(self.data(path)), load(made)) if one[0] not in ("global.enabled", "global.namespace")]
                if found:
                    raise Broken(f"the chart is rendered otherwise than by Helm: {shown(found[0])[:300]}")

    def goldens(self):
        found = []
        for name, folder in (
            ("TestIntoResourceFile", "inject"),
            ("TestInjection", "inject"),
            ("TestInjectionOlderVersion", "inject"),
            ("TestRewriteAppProbe", "inject/app_probe"),
            ("TestInvalidAnnotations", "inject"),
        ):
            body = gotest.function(self.tests, name)
            if body is not None:
                found += self.of_table(name, body, folder)
        body = gotest.function(self.webhook, "TestHelmInject")
        if body is not None:
            found += self.of_webhook(body)
        body = gotest.function(self.webhook, "TestWebhookInject")
        if body is not None:
            found += self.of_patches(body)
        return found

    def of_table(self, test, body, folder):
        cases = gotest.table(body)
        if "os.ReadDir(" in body or "ioutil.ReadDir(" in body:
            cases += self.unnamed(cases, folder)
        params = None
        if self.minor <= 4:
            params = self.params(body if "params := &Params{" in body else gotest.function(self.tests, "newTestParams"))
        return [self.of_case(test, case, folder, params, "c.mesh(" in body) for case in cases]

    def params(self, body):
        body = body if "params := &Params{" in body else body.replace("return &Params{", "params := &Params{")
        source = self.source("inject.go")
        known = gotest.constants(source) | gotest.constants(self.tests)
        return settings.Params(body, source, known)

    def unnamed(self, cases, folder):
        """Inputs that have a golden of their name and no case."""
        named = {gotest.text_of(case["want"]) if "want" in case else gotest.text_of(case["in"]) + ".injected" for case in cases}
        found = []
        for path in sorted(self.files):
            name = path.removeprefix(f"{folder}/")
            if "/" in name or not name.endswith(".yaml") or re.search(r"iop\.yaml$", name):
                continue
            if f"{name}.injected" not in named:
                found.append({"in": f'"{name}"', "want": f'"{name}.injected"'})
        return found

    def of_case(self, test, case, folder, params, changes_mesh):
        given = gotest.text_of(case["in"])
        wanted = gotest.text_of(case["want"]) if "want" in case else ""
        refusal = next((gotest.text_of(case[one]) for one in ("expectedError", "annotation") if one in case), "")
        spec = settings.set_flags(gotest.strings(case.get("setFlags", "nil")))
        if "inFilePath" in case:
            spec = laid_over(load(self.data(f"inject/{gotest.text_of(case['inFilePath'])}"))["spec"], spec)
        if "values" in case:
            spec = load(gotest.text_of(case["values"])) or {}
        switched = settings.features(case["setup"]) if "setup" in case else {}
        native = switched.pop("native", "on" if self.minor >= 27 and test == "TestInjection" else "off")
        config, values, mesh = self.by_params(params, case) if params else self.injection(spec)
        mesh = self.mesh(mesh, case, changes_mesh)
        return Golden(
            name=f"{test}: {wanted or given}" + (" (old)" if "Older" in test else ""),
            config=config,
            values=values,
            mesh=mesh,
            given=self.data(f"{folder}/{given}"),
            wanted=self.data(f"{folder}/{wanted}") if wanted and not refusal else "",
            refusal=refusal,
            native=native,
            variables=switched,
        )

    def by_params(self, params, case):
        if self.minor > 1:
            return self.injection(params.helm(case))
        # 1.1's own template of kube-inject, rendered with its parameters.
        text = re.search(r"parameterizedTemplate = `(.*?)`\n\)", self.source("mesh.go"), re.S)
        template = text[1].replace('` + "`" + `', "`")
        made = Run({}, FUNCTIONS)
        return dump({"policy": "enabled", "template": made.render(parse(template, made.defined), params.of(case))}), "{}", "{}"

    def mesh(self, text, case, changes):
        mesh = load(text)
        if self.minor == 6:
            # What the test's defaults have and ours have not.
            mesh = {"trustDomain": "cluster.local", "enablePrometheusMerge": False}
        if "mesh" in case and changes:
            for path, value in settings.mesh_overrides(case["mesh"]):
                put(mesh, path, value)
        if "duration" in case:
            for name in ("drainDuration", "parentShutdownDuration", "connectTimeout"):
                put(mesh, ["defaultConfig", name], f"{re.search('[0-9]+', case['duration'])[0]}s")
        if case.get("tproxy") == "true":
            put(mesh, ["defaultConfig", "interceptionMode"], "TPROXY")
        return dump(mesh)

    def of_webhook(self, body):
        config, values, _ = self.injection({})
        found = []
        for case in gotest.table(body):
            given, wanted = (gotest.text_of(case[one]) for one in ("inputFile", "wantFile"))
            left, right = (bare_pods(self.data(f"webhook/{one}")) for one in (given, wanted))
            # Upstream's test passes over a golden that is empty, as those of 1.6 are. Its mesh is the default one.
            if right:
                found.append(Golden(f"TestHelmInject: {wanted}", config, values, self.mesh("{}", {}, False), left, right, loose=True))
        return found

    def of_patches(self, body):
        found, only = [], re.search(r'if c\.inputFile != "([^"]*)" \{\s*continue', body)
        for case in gotest.table(body):
            given, wanted = (gotest.text_of(case[one]) for one in ("inputFile", "wantFile"))
            if only and given != only[1]:
                # What the test itself passes over may be stale.
                continue
            template = self.data(f"webhook/{gotest.text_of(case.get('templateFile', chr(34) + 'TestWebhookInject_template.yaml' + chr(34)))}")
            config = template if self.minor >= 4 else dump({"policy": "enabled", "template": template})
            pod = load(self.data(f"webhook/{given}"))
            pod = {**pod, "metadata": pod.get("metadata") or {}, "spec": pod.get("spec") or {}}
            after = copied(pod)
            broken = patched(after, load(self.data(f"webhook/{wanted}")) or [])
            whole = [dump({"apiVersion": "v1", "kind": "Pod", **one}) for one in (pod, after)]
            found.append(Golden(f"TestWebhookInject: {wanted}", config, "{}", self.mesh("{}", {}, False), *whole, broken=broken))
        return found


def bare_pods(text):
    """Each pod template of a manifest as a pod of no owner, as upstream's test of the webhook sends them."""
    found = []
    for one in map(load, parts(text)):
        items = one.get("items", []) if one and "items" in one else [one]
        for item in items:
            # A golden may be without its kind.
            kind = (item or {}).get("kind", "Deployment")
            if item and kind in INJECTED:
                pod = item
                for key in POD.get(kind, ("spec", "template")):
                    pod = pod[key]
                found.append(dump({"apiVersion": "v1", "kind": "Pod", "metadata": pod.get("metadata") or {}, "spec": pod["spec"]}))
    return "---\n".join(found)


def patched(tree, operations):
    """RFC 6902's add, replace and remove, in place; whether one of them had nothing to work on."""
    broken = False
    for one in operations:
        try:
            apply(tree, one)
        except (KeyError, IndexError):
            broken = True
    return broken


def apply(tree, one):
    *keys, last = [key.replace("~1", "/").replace("~0", "~") for key in one["path"].split("/")[1:]]
    for key in keys:
        tree = tree[int(key)] if isinstance(tree, list) else tree[key]
    if isinstance(tree, list):
        if one["op"] == "add":
            tree.insert(len(tree) if last == "-" else int(last), one["value"])
            return
        last = int(last)
    if one["op"] == "remove":
        del tree[last]
    elif one["op"] == "replace" and isinstance(tree, dict) and last not in tree:
        raise KeyError(last)
    else:
        tree[last] = one["value"]
