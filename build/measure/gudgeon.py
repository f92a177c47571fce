"""Measures gudgeon for build/promises: its size, its memory, what a review costs, and how that grows.

The server has one core and the client another, where there are two. What a review costs is processor time of the server, as
the kernel counts it: a neighbour on a shared machine takes none of that, unlike the time on the wall.
"""

import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import measure

GUDGEON = os.path.abspath(f"target/dist/{os.uname().machine}/gudgeon")
LOAD = os.path.abspath(f"{os.environ.get('CARGO_TARGET_DIR', 'target')}/gudgeon-dev/load")
SERVER_CORE, CLIENT_CORE = (lambda cores: (cores[0], cores[-1]))(sorted(os.sched_getaffinity(0)))
# A template of Istio 1.1's kind and its values; without a configuration the built-in template works.
FRAGMENT = ["tests/data/fragment-template.yaml", "tests/data/fragment-values.yaml"]
METER = os.path.join(os.path.dirname(__file__), "stalls.py")
UID = "00000000-0000-4000-8000-ffffffffffff"
# No webhook is reached by its Service's address here: galley would wait for its first answer, and ask for it every second.
UNPROBED = ["--enable-reconcileWebhookConfiguration=false"]
# The pod's workload, in its label.
WORKLOAD = "web00000000"
RATE = 500
# Reviews of 1 MB a second, and the environment variables that make a pod as large: near to what is read of values, which are bounded.
LARGE_RATE, LARGE_VARIABLES, LARGE_BYTES = 10, 5000, 1_000_000
# The share of a round that the machine may have held up the server or its client: 99 of 100 is what the worst hundredth met.
STALLED = 0.01
# The share of a round that others may have run on the server's core, the meter of stalls among them.
OTHERS = 0.05


def busy(core):
    """Milliseconds that the core has run anything."""
    _name, *ticks = next(line.split() for line in measure.contents("/proc/stat").splitlines() if line.startswith(f"cpu{core} "))
    user, nice, system, _idle, _iowait, *interrupts = (int(tick) for tick in ticks[:8])
    return (user + nice + system + sum(interrupts)) * 1000 / os.sysconf("SC_CLK_TCK")


def on(core):
    return lambda: os.sched_setaffinity(0, {core})


class Server:
    """A running role of gudgeon, by its `command`: it is ready when `/ready` says so, which is asked every `PAUSE` seconds. Its
    folder goes with it."""

    PAUSE = 0.0005

    def __init__(self, folder, name):
        self.name = name
        self.folder = tempfile.mkdtemp(dir=folder)

    def __enter__(self):
        self.log = open(f"{self.folder}/log", "wb")
        began = time.monotonic()
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=self.log, preexec_fn=on(SERVER_CORE))
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > began + measure.DEADLINE_SECONDS:
                measure.fail(f"start {self.name}:\n{measure.contents(self.log.name)}")
            time.sleep(self.PAUSE)
        self.start = time.monotonic() - began
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder)

    def port(self, scheme):
        """The last that it has announced, where its log begins; the port of nobody before it has."""
        with open(self.log.name) as log:
            ports = re.findall(rf" on {scheme}://\S+:(\d+)\n", log.read(1 << 14))
        return int(ports[-1]) if ports else 0

    def ready(self):
        try:
            return bool(self.get("/ready"))
        except OSError:
            return False

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port('http')}{path}", timeout=10) as answer:
            return answer.read().decode()

    def metric(self, name):
        found = [line.split()[-1] for line in self.get("/metrics").splitlines() if line.startswith(f"{name} ")]
        return float(found[0]) if found else 0.0

    def resident(self):
        return measure.memory(self.process.pid)["resident"]

    def processor(self):
        """Milliseconds that its threads have run, also those that have ended: the kernel's clock of a process has the number of its
        process, inverted, and 2 for what the scheduler counted."""
        return time.clock_gettime_ns(~self.process.pid << 3 | 2) / 1e6

    def asking(self, command):
        """A client of it at work, with its process in the client's words."""
        return subprocess.Popen([*command, "--pid", str(self.process.pid)], stdout=subprocess.PIPE, preexec_fn=on(CLIENT_CORE))

    def answered(self, client):
        """Returns its output; a client that fails ends the measurement."""
        with client:
            output = self.output(client)
        if client.returncode != 0:
            measure.fail(f"go on without clients of {self.name}: {measure.contents(self.log.name)[-2000:]}")
        return json.loads(output)

    def output(self, client):
        return client.stdout.read()

    def asked(self, command):
        return self.answered(self.asking(command))


class Injector(Server):
    """A running `gudgeon injector` with a certificate of its own; the name says which configuration it has."""

    def __init__(self, folder, name, config=None, values=None, program=GUDGEON, api_server=None):
        super().__init__(folder, name)
        cluster = f"--kubeconfig={api_server.run}/kubeconfig" if api_server else "--reconcileWebhookConfig=false"
        self.command = [program, "injector", "--selfSigned", f"--caOut={self.folder}/ca.pem", cluster]
        self.command += ["--port=0", "--monitoringPort=0"]
        self.command += [f"--{flag}={path}" for flag, path in (("injectConfig", config), ("injectValues", values)) if path]

    def loading(self, review, count, **more):
        """A client at work: a review, or GET /ready where there is none."""
        command = [LOAD, f"--address=127.0.0.1:{self.port('https')}", f"--ca={self.folder}/ca.pem", f"--pid={self.process.pid}"]
        command = [word for part in command for word in part.split("=", 1)]
        command += ["--count", str(count)] + (["--review", review] if review else [])
        command += ["--http2"] if more.pop("http2", False) else []
        command += ["--vary", WORKLOAD] if more.pop("vary", False) else []
        command += [word for key, value in more.items() for word in (f"--{key}", str(value))]
        return subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=on(CLIENT_CORE))

    def load_beside(self, large, review, count):
        """The figures of that many reviews at their rate beside large ones, and the seconds that others ran on the server's core: its
        own threads wait for each other there. The client of the large ones gives way to the other, whose delays would look like the
        server's."""
        before = busy(SERVER_CORE) - self.processor()
        with self.loading(large, count * LARGE_RATE // RATE, rate=LARGE_RATE, connections=1) as client:
            os.setpriority(os.PRIO_PROCESS, client.pid, 19)
            run = self.load(review, count, rate=RATE, warm=200, connections=16)
            figures(client)
        return run, (busy(SERVER_CORE) - self.processor() - before) / 1000

    def load(self, review, count, **more):
        """Its figures, with what one answer cost in µs."""
        with self.loading(review, count, **more) as client:
            return figures(client)


class All(Server):
    """A running `gudgeon all` over an empty directory, or an API server."""

    def __init__(self, folder, name, program=GUDGEON, api_server=None):
        super().__init__(folder, name)
        config = os.path.join(self.folder, "config")
        os.makedirs(config, exist_ok=True)
        source = [f"--kubeconfig={api_server.run}/kubeconfig", *UNPROBED] if api_server else [f"--configDir={config}"]
        self.command = [program, "all", "--selfSigned", *source, "--port=0", "--httpAddr=127.0.0.1:0"]
        self.command += ["--monitoringAddr=", "--grpcAddr=127.0.0.1:0", "--secureGrpcAddr="]


def figures(client):
    output = client.communicate()[0]
    if client.returncode != 0:
        measure.fail("go on without a client")
    found = json.loads(output)
    found["cost"] = found["processor_seconds"] / found["answers"] * 1e6
    return found


def container(number):
    probe = {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 2}
    token = {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}
    return {
        "name": f"web-{number}", "image": f"registry.example/shop/web-{number}:1.7.3", "imagePullPolicy": "IfNotPresent",
        "args": ["--listen", f":{8000 + number}"],
        "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}},
            {"name": "LEVEL", "value": "info"},
            {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "web", "key": "password"}}},
        ],
        "ports": [{"name": "http", "containerPort": 8000 + number, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "readinessProbe": probe, "livenessProbe": probe, "volumeMounts": [token],
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
    }


def pod(containers=2, annotations=0):
    """A pod as a Deployment's ReplicaSet makes it, with so many containers and so many kB in a note of its own."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-6d4cf56db6", "uid": UID[::-1], "controller": True}
    metadata = {
        "generateName": "web-6d4cf56db6-", "namespace": "shop", "ownerReferences": [owner],
        "labels": {"app": WORKLOAD, "version": "v1", "tier": "front", "team": "shop", "pod-template-hash": "6d4cf56db6"},
        "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8000"},
    }
    if annotations:
        metadata["annotations"]["example.com/note"] = "a word and 'another' \"one\"\n"[:32].ljust(32) * 32 * annotations
    seconds = {"effect": "NoExecute", "operator": "Exists", "tolerationSeconds": 300}
    spec = {
        "containers": [container(number) for number in range(containers)],
        "volumes": [{"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]}}],
        "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "web", "serviceAccount": "web", "securityContext": {}, "schedulerName": "default-scheduler",
        "tolerations": [{"key": f"node.kubernetes.io/{key}", **seconds} for key in ("not-ready", "unreachable")],
        "priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
    }
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": {}}


def large_pod():
    of, value = pod(), "a" * (LARGE_BYTES // LARGE_VARIABLES)
    variables = ({"name": f"NAME_{number}", "value": value} for number in range(LARGE_VARIABLES))
    of["spec"]["containers"][0]["env"].extend(variables)
    return of


def written(path, value):
    with open(path, "w") as file:
        json.dump(value, file, separators=(",", ":"))
    return path


def review(folder, name, of):
    """A review as the API server writes it, in a file."""
    groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"]
    kind, resource = ({"group": "", "version": "v1", key: value} for key, value in (("kind", "Pod"), ("resource", "pods")))
    return written(f"{folder}/{name}.json", {
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": UID, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "namespace": "shop", "operation": "CREATE", "object": of, "oldObject": None, "dryRun": False,
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller", "groups": groups},
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })


def costs(injectors, asked, rounds, count):
    """What a review costs each of them, in µs of its processor: of one workload's replicas over HTTP/1.1 and HTTP/2, and where
    each pod is of another workload; what `/ready` does; and answers a second on the wall. Medians, and of costs the least of
    all rounds beside: neighbours on the same core and its caches make a review dearer, and never cheaper. A neighbour may stay
    for all rounds: where a review looks too dear there are up to three times as many, as for the lines of `grown`."""
    found = {injector.name: {"cost": [], "http2": [], "new": [], "ready": [], "wall": []} for injector in injectors}
    limit = measure.promises()["gudgeon"]["review"]
    for turn in range(3 * rounds):
        for injector in injectors:
            took = found[injector.name]
            if turn >= rounds and max(min(took[of]) for of in ("cost", "http2", "new")) <= limit:
                continue
            run = injector.load(asked, count, warm=200)
            took["cost"].append(run["cost"])
            took["wall"].append(run["answers"] / run["seconds"])
            took["http2"].append(injector.load(asked, count, warm=200, http2=True)["cost"])
            took["new"].append(injector.load(asked, count, warm=200, vary=True)["cost"])
            took["ready"].append(injector.load(None, count, warm=200)["cost"])
    return {name: {**measure.medians(took), "least": measure.least(took)} for name, took in found.items()}


class Stalls:
    """How long this machine lets nobody run on the two cores: what waits then says nothing about a server.

    A hypervisor need not say what it takes (`steal` in /proc/stat is 0 on many), so it is measured as jHiccup does: a program
    on each core sleeps for a millisecond, again and again, and adds up by how much more than a millisecond it wakes up late.
    It goes before everything else there, where the kernel allows that."""

    def __enter__(self):
        self.meters = [
            subprocess.Popen([sys.executable, METER, str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for core in {SERVER_CORE, CLIENT_CORE}
        ]
        self.seconds()
        return self

    def __exit__(self, *_):
        for meter in self.meters:
            meter.kill()
            meter.wait()

    def seconds(self):
        """Since the last time that it was asked."""
        for meter in self.meters:
            meter.stdin.write("?\n")
            meter.stdin.flush()
        return sum(float(meter.stdout.readline()) for meter in self.meters)


def latencies(injectors, asked, rounds, count, large=None):
    """From when a review was due until its answer was there, 99 of 100, in µs, and half of them; with a `large` review, beside
    that one. A round in which the server had to wait for its core, or nobody could run, says little about the server: its 99 of
    100 are told, and not judged, when there was no other. On a busy machine that takes four times the rounds."""
    found = {}
    with Stalls() as stalls:
        for injector in injectors:
            alone, noisy = [], []
            while len(alone) < rounds and len(alone) + len(noisy) < 4 * rounds:
                stalls.seconds()
                if large:
                    run, stalled = injector.load_beside(large, asked, count)
                else:
                    run = injector.load(asked, count, rate=RATE, warm=200, connections=16)
                    stalled = run["waiting_seconds"]
                stalled += stalls.seconds()
                (alone if stalled < (OTHERS if large else STALLED) * run["seconds"] else noisy).append(run)
            taken = alone or noisy
            found[injector.name] = {key: statistics.median(run[key] for run in taken) for key in ("p50", "p99")}
            found[injector.name]["alone"] = len(alone)
    return found


def kept(folder, asked, reviews, reloads):
    """kB resident before that many reviews with that many reloads among them, and after."""
    config = f"{folder}/kept.yaml"
    text = measure.contents(FRAGMENT[0])

    def reload(number):
        with open(f"{config}.new", "w") as file:
            file.write(text.replace("# A configuration", f"# {number}").replace("memory: 50Mi", f"memory: {50 + number % 2}Mi"))
        os.rename(file.name, config)

    def reloaded(number):
        deadline = time.monotonic() + measure.DEADLINE_SECONDS
        name = 'gudgeon_config_reloads_total{file="injectConfig",result="ok"}'
        while injector.metric(name) < number:
            if time.monotonic() > deadline:
                measure.fail(f"see reload {number}: {measure.contents(injector.log.name)[-2000:]}")
            time.sleep(0.01)

    reload(0)
    with Injector(folder, "reloads", config, FRAGMENT[1]) as injector:
        # Code is mapped when it runs for the first time: what reviews and a reload need is resident before the comparison.
        injector.load(asked, 1000)
        reload(1)
        reloaded(1)
        injector.load(asked, 1000)
        time.sleep(0.5)
        before = injector.resident()
        with injector.loading(asked, reviews) as client:
            for number in range(2, reloads + 2):
                reload(number)
                reloaded(number)
            figures(client)
        time.sleep(0.5)
        return before, injector.resident()


def starts(folder, rounds):
    """Milliseconds from exec until it is ready, in the round that was disturbed least: what a disk or a neighbour takes makes
    a start longer, and never shorter. The first reads the program from the disk; there are up to three times as many rounds
    where a start looks too long."""
    limit = measure.promises()["gudgeon"]["start"]
    found = []
    while len(found) <= rounds or (min(found[1:]) > limit and len(found) <= 3 * rounds):
        with Injector(folder, f"start {len(found)}") as injector:
            found.append(injector.start * 1000)
    return min(found[1:])


def manifests(folder, count):
    """Processor seconds and kB of `gudgeon inject` on that many Deployments."""
    path, out = f"{folder}/deployments-{count}.yaml", f"{folder}/injected.yaml"
    of = pod()
    template = {"metadata": {"labels": of["metadata"]["labels"]}, "spec": of["spec"]}
    with open(path, "w") as file:
        for number in range(count):
            deployment = {
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"web-{number}", "namespace": "shop"},
                "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template},
            }
            file.write("---\n" + json.dumps(deployment, indent=1) + "\n")
    with open(f"{folder}/mesh.yaml", "w") as file:
        file.write("{}\n")
    command = [GUDGEON, "inject", "-f", path, "-o", out, "--meshConfigFile", file.name]
    command += ["--injectConfigFile", FRAGMENT[0], "--valuesFile", FRAGMENT[1]]
    process = subprocess.Popen(command, preexec_fn=on(SERVER_CORE))
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or measure.contents(out).count("name: istio-proxy\n") != count:
        measure.fail(f"inject {count} Deployments")
    return used.ru_utime + used.ru_stime, used.ru_maxrss


def selectors(folder, count):
    """A configuration with that many selectors, none of which matches."""
    never = [{"matchExpressions": [{"key": "team", "operator": "In", "values": [f"team-{number}"]}]} for number in range(count)]
    text = measure.contents(FRAGMENT[0]).replace("neverInjectSelector: []", f"neverInjectSelector: {json.dumps(never)}")
    with open(f"{folder}/selectors-{count}.yaml", "w") as file:
        file.write(text)
    return file.name


# Sizes that are compared: what one more costs between the last two, to what it costs between the first two. Kubernetes takes
# 256 kB of annotations with their keys, and that many selectors are most of what a ConfigMap holds; so far apart, because buffers grow by steps.
GROWTH = {
    "containers of the pod": [1, 16, 32],
    "kB of annotations": [0, 120, 240],
    "selectors": [0, 4000, 8000],
}


def growth(folder, rounds, count):
    """Returns the cost of a review at each size, in µs."""
    lines = {what: {} for what in GROWTH}
    with contextlib.ExitStack() as stack:
        plain = stack.enter_context(Injector(folder, "grows", *FRAGMENT))
        for what, sizes in GROWTH.items():
            for size in sizes:
                injector, of = plain, pod()
                if what == "selectors":
                    config = selectors(folder, size)
                    injector = stack.enter_context(Injector(folder, f"selectors {size}", config, FRAGMENT[1]))
                elif what.startswith("containers"):
                    of = pod(containers=size)
                else:
                    of = pod(annotations=size)
                asked = review(folder, f"{what}-{size}".replace(" ", "-"), of)
                lines[what][size] = lambda by=injector, asked=asked: by.load(asked, count, warm=20)["cost"]
        return grown(lines, rounds, measure.promises()["gudgeon"]["growth"])


def grown(lines, rounds, limit):
    """What each size of each line costs, by functions that measure it: the least of all rounds, to which no neighbour has added
    anything. Of two differences, a median leaves little but noise. A neighbour may stay for all rounds: where a line looks bent
    there are up to three times as many. More rounds hide no bend: they only lower each size to what it
    costs."""
    found = {what: {size: [] for size in sizes} for what, sizes in lines.items()}
    for turn in range(3 * rounds):
        for what, sizes in lines.items():
            # All sizes in turns: a noisy minute meets each of them.
            if turn < rounds or bend(measure.least(found[what])) > limit:
                for size, one in sizes.items():
                    found[what][size].append(one())
    return {what: measure.least(costs) for what, costs in found.items()}


# Of a cost: what is less cannot be told from noise.
NOISE = 0.1


def bend(costs):
    """How much more one more costs at the end of a line than at its begin: 1 when it is straight, less where it costs nothing
    that can be seen."""
    (a, at_a), (b, at_b), (c, at_c) = costs.items()
    return ((at_c - at_b) / (c - b)) / (max(at_b - at_a, NOISE * at_b) / (b - a))


def all_of_it(quick):
    """Every figure, by the keys of build/promises.toml."""
    reviews, reloads, rounds, count = (20_000, 20, 3, 1500) if quick else (100_000, 100, 5, 3000)
    with tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE) as folder, contextlib.ExitStack() as stack:
        asked = review(folder, "review", pod())
        found = {"binary": os.path.getsize(GUDGEON) / 1024, "start": starts(folder, 5 if quick else 20)}
        kinds = [Injector(folder, "built-in"), Injector(folder, "fragment", *FRAGMENT)]
        kinds = [stack.enter_context(injector) for injector in kinds]
        found["costs"] = costs(kinds, asked, rounds, count)
        found["latencies"] = latencies(kinds, asked, 3, 1500)
        large = review(folder, "large", large_pod())
        found["latencies beside"] = latencies(kinds, asked, *((2, 750) if quick else (3, 1500)), large)
        found["kept"] = kept(folder, asked, reviews, reloads)
        found["reviews"], found["reloads"] = reviews, reloads
        found["growth"] = growth(folder, rounds, 100 if quick else 200)
        found["manifests"] = measure.medians({"of": [manifests(folder, 1000)[0] for _ in range(rounds)]})["of"]
        found["manifests_kb"] = manifests(folder, 1000)[1]
    return found
