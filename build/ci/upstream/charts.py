"""The injector's configuration as a release's own chart writes it: config map, values and mesh, from its profile and settings.

Where charts were: install/kubernetes/helm/istio up to 1.4, manifests/istio-control/istio-discovery in 1.5, below manifests/charts
since. What installs them is the operator since 1.5: a profile, settings with `values.` before them, and the operator's own
words (`components.cni.enabled`), translated. Since 1.22 the chart lays its defaults, a profile and the user's values over
each other by itself (its zz* templates), which is done here by rendering them.
"""

import json

from documents import copied, laid_over, load, parts, put
from gotemplate import Run, parse
from sprig import FUNCTIONS

NAMESPACE = "istio-system"


class Chart:
    def __init__(self, repository, release, minor, base):
        self.repository, self.release, self.minor, self.base = repository, release, minor, base
        if minor <= 4:
            self.folder = "install/kubernetes/helm/istio"
        elif minor == 5:
            self.folder = "manifests/istio-control/istio-discovery"
        else:
            self.folder = f"{base}/charts/istio-control/istio-discovery"
        self.parsed = {}

    def text(self, path):
        return self.repository.must(self.release, f"{self.folder}/{path}")

    def defaults(self):
        """The chart's values, and up to 1.4 those of the charts in it, each below its name."""
        found = load(self.text("values.yaml"))
        if self.minor > 4:
            return found
        for path in self.repository.files(self.release, f"{self.folder}/charts"):
            name, _, rest = path.partition("/")
            if rest == "values.yaml":
                own = load(self.text(f"charts/{path}")) or {}
                found[name] = laid_over(own, found.get(name))
        return found

    def profile(self):
        """Returns the operator's `spec` without any values of the user."""
        folder = "operator/data/profiles" if self.minor == 5 else f"{self.base}/profiles"
        found = load(self.repository.must(self.release, f"{folder}/default.yaml"))["spec"]
        if self.minor >= 9:
            found = laid_over(found, load(self.repository.must(self.release, f"{folder}/empty.yaml"))["spec"])
            found["components"]["pilot"]["enabled"] = True
        return found

    def values(self, spec):
        """Helm's values: up to 1.4 what is given, later what the operator makes of its `spec`."""
        if self.minor <= 4:
            return coalesced(self.defaults(), spec)
        whole = laid_over(self.profile(), spec)
        values = laid_over(whole.get("values") or {}, whole.get("unvalidatedValues"))
        for name in ("hub", "tag"):
            if whole.get(name) and not (values.get("global") or {}).get(name):
                put(values, ["global", name], whole[name])
        put(values, ["global", "istioNamespace"], (values.get("global") or {}).get("istioNamespace") or NAMESPACE)
        if self.minor <= 8:
            put(values, ["global", "telemetryNamespace"], NAMESPACE)
        if whole.get("meshConfig"):
            values["meshConfig"] = laid_over(whole["meshConfig"], values.get("meshConfig"))
        cni = bool(((whole.get("components") or {}).get("cni") or {}).get("enabled"))
        put(values, ["pilot", "cni", "enabled"] if self.minor >= 24 else ["istio_cni", "enabled"], cni)
        return coalesced(self.defaults(), values)

    def context(self, values):
        def get(path):
            return self.repository.read(self.release, f"{self.folder}/{path}") or ""

        root = {
            "Values": copied(values),
            "Release": {"Name": "istio", "Namespace": NAMESPACE, "Service": "Helm", "IsInstall": True, "IsUpgrade": False},
            "Chart": {"Name": "istiod", "Version": self.release, "AppVersion": self.release},
            "Files": {"Get": get},
            "Capabilities": {"KubeVersion": {"Version": "v1.34.0", "GitVersion": "v1.34.0", "Major": "1", "Minor": "34"}},
            "Template": {"BasePath": "istio/templates"},
        }
        run = Run({}, FUNCTIONS)
        names = [one for one in self.repository.files(self.release, f"{self.folder}/templates") if "/" not in one]
        for name in sorted(names):
            if name.endswith(".tpl"):
                parse(self.text(f"templates/{name}"), run.defined)
        # The last by name first, as Helm does it.
        for name in sorted((one for one in names if one.startswith("zz")), reverse=True):
            run.render(parse(self.text(f"templates/{name}"), run.defined), root)
        return run, root

    def render(self, values, name):
        run, root = self.context(values)
        text = run.render(parse(self.text(f"templates/{name}"), run.defined), root)
        return next(found for found in map(load, parts(text)) if found)

    def injection(self, spec):
        """(config, values, mesh), as texts."""
        values = self.values(spec)
        old = self.minor <= 4
        data = self.render(values, "sidecar-injector-configmap.yaml" if old else "istiod-injector-configmap.yaml")["data"]
        mesh = "{}" if self.minor <= 6 else self.render(values, "configmap.yaml")["data"]["mesh"]
        return data["config"], data.get("values") or json.dumps(values), mesh


def coalesced(defaults, values):
    """As Helm: the user's word wins, and null takes the chart's away."""
    found = copied(defaults)
    for key, value in values.items():
        if value is None and key in found:
            del found[key]
        elif isinstance(value, dict) and isinstance(found.get(key), dict):
            found[key] = coalesced(found[key], value)
        else:
            found[key] = copied(value)
    return found
