"""Measures gudgeon galley for build/promises: its memory, what a review costs, how soon a directory is served and a change of it
has reached its sinks, and how these grow.

The sinks are those of tests/mesh-load, each with a connection of its own, half of them incremental; each looks at every
response. The server has one core and they have another, where there are two.
"""

import os
import shutil
import statistics
import subprocess
import tempfile

import discovery
import gudgeon
import measure
from ports import free_port

FILES, SINKS, CHANGES, MANIFESTS = 10_000, 200, 1000, 1000


class Galley(gudgeon.Server):
    """A running `gudgeon galley` over a directory with that many rules, or an API server."""

    PAUSE = 0.01

    def __init__(self, folder, rules, program=gudgeon.GUDGEON, api_server=None):
        super().__init__(folder, "gudgeon galley")
        self.rules, self.ca = rules, f"{folder}/ca.pem"
        self.directory, mesh = f"{self.folder}/rules", f"{self.folder}/mesh.yaml"
        monitoring = free_port()
        write(self.directory, rules)
        with open(mesh, "w") as file:
            file.write("{}\n")
        source = f"--kubeconfig={api_server.run}/kubeconfig" if api_server else f"--configPath={self.directory}"
        self.command = [
            program, "galley", source, f"--meshConfigFile={mesh}", "--insecure",
            "--server-address=tcp://127.0.0.1:0", "--validation-port=0", "--enable-validation",
            f"--validation.tls.clientCertificate={folder}/leaf.pem", f"--validation.tls.privateKey={folder}/leaf-key.pem",
            *gudgeon.UNPROBED,
            f"--monitoringPort={monitoring}", "--ctrlz_port=0", "--livenessProbePath=", "--readinessProbePath=",
        ]

    def sinks(self, sinks, changes, turns):
        """Returns the results of the sinks; a wrong response ends the measurement."""
        command = [discovery.MESH_LOAD, "sinks", "--address", f"127.0.0.1:{self.port('mcp')}"]
        command += ["--dir", self.directory, "--rules", str(self.rules), "--sinks", str(sinks)]
        command += ["--changes", str(changes), "--turns", str(turns)]
        return self.asked(command)

    def reviews(self, asked, count):
        """Returns the cost of one answer, in µs."""
        command = [gudgeon.LOAD, "--address", f"127.0.0.1:{self.port('https')}", "--ca", self.ca, "--path", "/validate"]
        command += ["--pid", str(self.process.pid), "--review", asked, "--wanted", "none", "--count", str(count), "--warm", "200"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=gudgeon.on(gudgeon.CLIENT_CORE)) as client:
            return gudgeon.figures(client)["cost"]


def certificates(folder):
    """An authority, and a certificate of localhost."""
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-days", "1", "-subj", "/CN=bench", "-keyout", "ca-key.pem", "-out", "ca.pem")
    openssl("req", "-new", *key, "-subj", "/CN=localhost", "-keyout", "leaf-key.pem", "-out", "leaf.csr")
    with open(f"{folder}/leaf.ext", "w") as file:
        file.write("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca-key.pem", "-days", "1", "-extfile", "leaf.ext",
            "-out", "leaf.pem")


def write(directory, rules):
    command = [discovery.MESH_LOAD, "rules", "--dir", directory, "--rules", str(rules)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def rule(routes=2):
    """A VirtualService with that many routes, each with what people write in them."""
    http = [
        {
            "match": [{"uri": {"prefix": f"/shop/{number}/"}, "headers": {"x-team": {"exact": f"team-{number}"}}}],
            "route": [
                {"destination": {"host": f"shop-{number}.demo.svc.cluster.local", "subset": subset}, "weight": 50}
                for subset in ("v1", "v2")
            ],
            "timeout": "5s", "retries": {"attempts": 3, "perTryTimeout": "2s", "retryOn": "5xx,connect-failure"},
        }
        for number in range(routes)
    ]
    metadata = {"name": "shop", "namespace": "demo", "uid": gudgeon.UID[::-1], "generation": 7}
    spec = {"hosts": ["shop.demo.svc.cluster.local"], "http": http}
    return {"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": metadata, "spec": spec}


def review(folder, name, of):
    """A review as the API server writes it, in a file."""
    group = {"group": "networking.istio.io", "version": "v1"}
    kind, resource = group | {"kind": "VirtualService"}, group | {"resource": "virtualservices"}
    return gudgeon.written(f"{folder}/{name}.json", {
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": gudgeon.UID, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": "shop", "namespace": "demo", "operation": "UPDATE", "object": of, "oldObject": of, "dryRun": False,
            "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
            "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })


def validated(folder, files):
    """Processor milliseconds of `gudgeon validate` on that many files."""
    directory = f"{folder}/validate-{files}"
    write(directory, files)
    process = subprocess.Popen(
        [gudgeon.GUDGEON, "validate", "-f", directory], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        preexec_fn=gudgeon.on(gudgeon.SERVER_CORE),
    )
    output = process.stdout.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    shutil.rmtree(directory)
    if process.returncode != 0 or not output.startswith(f"{files} objects, {files} valid"):
        measure.fail(f"validate {files} files: {output}")
    return (used.ru_utime + used.ru_stime) * 1000


def reviewed(galley, asked, rounds, count):
    """What a review costs, in µs, in each round. There are up to three times as many where it looks too dear: see
    `gudgeon.costs`."""
    limit = measure.promises()["galley"]["review"]
    took = []
    while len(took) < rounds or (min(took) > limit and len(took) < 3 * rounds):
        took.append(galley.reviews(asked, count))
    return took


def point(folder, rules, sinks):
    """kB resident when the sinks have everything."""
    with Galley(folder, rules) as galley:
        return galley.sinks(sinks, 1, 0)["resident"]


def growth(folder, rounds):
    """How memory grows with objects and sinks, and a review with the routes of its object."""
    limit = measure.promises()["galley"]["growth"]
    memory = {
        "rule, kB": {rules: lambda rules=rules: point(folder, rules, 1) for rules in (FILES // 10, FILES // 5, FILES // 2)},
        "sink, kB": {sinks: lambda sinks=sinks: point(folder, FILES // 10, sinks) for sinks in (SINKS // 4, SINKS // 2, SINKS)},
    }
    with Galley(folder, 0) as galley:
        routes = {}
        for count in (1, 50, 100):
            asked = review(folder, f"routes-{count}", rule(count))
            routes[count] = lambda asked=asked: galley.reviews(asked, 200)
        cost = gudgeon.grown({"route, µs of a review": routes}, rounds, limit)
    return gudgeon.grown(memory, 1, limit) | cost


def all_of_it(quick):
    """Every figure, by the keys of build/promises.toml."""
    rounds = 3 if quick else 5
    with tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE) as folder:
        certificates(folder)
        found = {}
        with Galley(folder, 0) as galley:
            asked = review(folder, "review", rule())
            found["review"] = reviewed(galley, asked, rounds, 1500 if quick else 5000)
        with Galley(folder, FILES) as galley:
            found["start"], found["files"] = galley.start * 1000, galley.resident()
            found["one"] = galley.sinks(1, 1, rounds)
        with Galley(folder, CHANGES) as galley:
            found["sinks"] = galley.sinks(SINKS, CHANGES, rounds)
        found["validate"] = statistics.median(validated(folder, MANIFESTS) for _ in range(rounds))
        found["growth"] = growth(folder, rounds)
    return found
