"""Measures gudgeon discovery for build/promises: its memory, how soon it is ready and how soon the last proxy has a change, and,
unless it is to be quick, how these grow.

The proxies are those of tests/mesh-load, half of them in each variant of the protocol; each has a connection of its own, as
Envoys do, and looks at every answer. The server has one core and they have another, where there are two. What a change costs is
processor time of the server: until the last proxy has it, the proxies work as well, and on a shared machine neighbours do.
"""

import contextlib
import os
import statistics
import subprocess
import tempfile

import gudgeon
import measure
from api_server import NAMESPACE, ApiServer

MESH_LOAD = os.path.abspath(f"{os.environ.get('CARGO_TARGET_DIR', 'target')}/gudgeon-dev/mesh-load")
# What is promised, and how many proxies there are when nobody asks for all of it: what one more costs is measured, too.
SERVICES, ENDPOINTS, PROXIES, FEWER = 1000, 10, 2000, 500
# Rules of each kind, at most.
RULES = {"VirtualService": 500, "DestinationRule": 500, "Sidecar": 100}
# So many for a median.
CHANGES = 15
# What the proxies of one of them see alone costs the others nothing.
NAMESPACES = 20


class Discovery(gudgeon.Server):
    """A running `gudgeon discovery` with that many services in a directory, or with those of an API server."""

    PAUSE = 0.002

    def __init__(self, folder, services, program=gudgeon.GUDGEON, rules=None, api_server=None):
        super().__init__(folder, "gudgeon discovery")
        self.services, self.api_server = services, api_server
        self.directory, mesh = f"{self.folder}/services", f"{self.folder}/mesh.yaml"
        os.mkdir(self.directory)
        if services and not api_server:
            write = [MESH_LOAD, "write", "--dir", self.directory, "--services", str(services), "--endpoints", str(ENDPOINTS)]
            subprocess.run(write, check=True, stdout=subprocess.DEVNULL)
        for kind, count in (rules or {}).items():
            for number in range(count):
                with open(f"{self.directory}/{kind.lower()}-{number}.yaml", "w") as file:
                    file.write(rule(kind, number))
        with open(mesh, "w") as file:
            file.write("{}\n")
        source = [f"--configDir={self.directory}"]
        if api_server:
            source = [f"--kubeconfig={api_server.run}/kubeconfig", f"--appNamespace={NAMESPACE}"]
        self.command = [program, "discovery", *source, f"--meshConfig={mesh}", "--secureGrpcAddr="]
        self.command += [f"--{flag}=127.0.0.1:0" for flag in ("grpcAddr", "httpAddr", "monitoringAddr")]

    def loading(self, proxies, changes, exchanges=0, connections=20, variant="both", namespaces=0, rules=0):
        """The proxies at work."""
        command = [MESH_LOAD, "run", "--address", f"127.0.0.1:{self.port('grpc')}"]
        command += [] if self.api_server else ["--dir", self.directory]
        command += ["--services", str(self.services), "--endpoints", str(ENDPOINTS)]
        command += ["--proxies", str(proxies), "--changes", str(changes), "--exchanges", str(exchanges)]
        command += ["--connections", str(connections), "--variant", variant, "--namespaces", str(namespaces), "--rules", str(rules)]
        return self.asking(command)

    def output(self, client):
        """Its last line. Where no directory is served, each line before it asks for a change."""
        last = b""
        for line in client.stdout:
            if self.api_server and line.startswith(b"change "):
                _, service, address = line.decode().split()
                try:
                    self.api_server.change(int(service), address)
                except BaseException:
                    # It would wait two minutes for the change.
                    client.kill()
                    raise
            else:
                last = line
        return last

    def load(self, *what, **more):
        """Returns the results of the proxies; a wrong answer ends the measurement."""
        return self.answered(self.loading(*what, **more))


def rule(kind, number):
    """A rule of the usual size, for a service of its own or for a namespace of proxies."""
    namespace, host = "demo", f"svc-{number:05}"
    if kind == "VirtualService":
        to = f"route: [{{destination: {{host: {host}}}}}]"
        spec = f"{{hosts: [{host}], http: [{{match: [{{uri: {{prefix: /a}}, headers: {{x: {{exact: b}}}}}}], timeout: 3s, {to}}}, {{{to}}}]}}"
    elif kind == "DestinationRule":
        spec = f"{{host: {host}, trafficPolicy: {{loadBalancer: {{simple: RANDOM}}, connectionPool: {{http: {{maxRequestsPerConnection: 7}}}}}}}}"
    else:
        namespace, spec = f"n{number}", "{egress: [{hosts: ['demo/*']}]}"
    head = f"apiVersion: networking.istio.io/v1\nkind: {kind}\nmetadata: {{name: r{number}, namespace: {namespace}}}"
    return f"{head}\nspec: {spec}\n"


def starts(folder, rounds):
    """Milliseconds from exec until it is ready, with all services."""
    found = []
    for _ in range(rounds):
        with Discovery(folder, SERVICES) as discovery:
            found.append(discovery.start * 1000)
    return statistics.median(found)


def least_start(folder, server):
    """Milliseconds from exec until it is ready, with the objects of an API server: in the round that was disturbed least."""
    found = []
    for _ in range(3):
        with Discovery(folder, SERVICES, api_server=server) as discovery:
            found.append(discovery.start * 1000)
    return min(found)


def settled(folder, services, proxies):
    """kB resident when that many of them have everything."""
    with Discovery(folder, services) as discovery:
        return discovery.load(proxies, 0)["resident"]


def changes(folder, sizes, limit):
    """µs of processor time that one change of an endpoint costs, by size, of which each stands for so many services and proxies:
    the medians. All sizes at the same time, so that a neighbour slows each of them as much; the least of each would bend the
    line, for a short change is more often left alone. Where it looks bent there are up to three times as many changes."""
    found = {size: [] for size in sizes}
    for turn in range(3):
        if turn == 0 or gudgeon.bend(medians(found)) > limit:
            with contextlib.ExitStack() as stack:
                running = {size: stack.enter_context(Discovery(folder, services)) for size, (services, _) in sizes.items()}
                clients = {size: running[size].loading(proxies, CHANGES) for size, (_, proxies) in sizes.items()}
                for size, client in clients.items():
                    took = running[size].answered(client)["changes"]
                    found[size] += [change["processor_ms"] * 1000 for change in took]
    return medians(found)


def medians(found):
    return {size: statistics.median(costs) for size, costs in found.items()}


def whole(folder, changes):
    """What all proxies that are promised found with that many changes, by the variant of the protocol."""
    found = {}
    for variant in "state", "delta":
        with Discovery(folder, SERVICES) as discovery:
            found[variant] = discovery.load(PROXIES, changes, connections=PROXIES, variant=variant)
    return found


def from_api_server(folder, changes):
    """The same and the bytes that a proxy was sent at first, with services and Pods of a Kubernetes API server; and the
    milliseconds from exec to ready with the services, and with the Pods, too."""
    found = {}
    with ApiServer(SERVICES, ENDPOINTS) as server:
        start = least_start(folder, server)
        server.write_pods()
        starts = {"services": start, "Pods": least_start(folder, server)}
        for variant in "state", "delta":
            with Discovery(folder, SERVICES, api_server=server) as discovery:
                load = discovery.load(PROXIES, changes, connections=PROXIES, variant=variant)
            found[variant] = {**load, "sent": load["bytes"] / PROXIES}
            for change in range(1, changes + 1):
                server.change(change % SERVICES, None)
    return found, starts


def one_namespace(folder, proxies, turns):
    """ms of processor time that the change of a rule costs which the proxies of one namespace see alone: without those of others,
    and with them; the medians. At the same time, so that a neighbour slows both as much."""
    with contextlib.ExitStack() as stack:
        alone, among = (stack.enter_context(Discovery(folder, SERVICES)) for _ in range(2))
        clients = {
            alone: alone.loading(proxies // NAMESPACES, 0, namespaces=1, rules=turns),
            among: among.loading(proxies, 0, namespaces=NAMESPACES, rules=turns),
        }
        found = [server.answered(client)["rules"] for server, client in clients.items()]
    return [statistics.median(turn["processor_ms"] for turn in turns) for turns in found]


def together(folder, proxies):
    """kB resident when many of them share a connection: what their connections do not take."""
    with Discovery(folder, SERVICES) as discovery:
        return discovery.load(proxies, 0)["resident"]


def growth(folder, most):
    """Memory and what a change costs, each at three sizes, against services and against proxies."""
    services = (SERVICES // 4, SERVICES // 2, SERVICES)
    # Up to all that are promised: what a few hundred of them take is lost in what the start has left free.
    proxies = (PROXIES // 4, PROXIES // 2, PROXIES)
    # Of fewer the cost is lost in that of the change itself.
    most = max(most, PROXIES // 2)
    changed = (most // 4, most // 2, most)
    limit = measure.promises()["discovery"]["growth"]
    memory = {
        "service, kB": {size: lambda size=size: settled(folder, size, FEWER // 10) for size in services},
        "proxy, kB": {size: lambda size=size: settled(folder, SERVICES // 4, size) for size in proxies},
    }
    # Of few proxies: what the file, the snapshot and its comparison with the last one cost.
    cost = {
        "proxy, µs of a change": {size: (SERVICES // 4, size) for size in changed},
        "service, µs of a change": {size: (size, PROXIES // 40) for size in services},
    }
    return gudgeon.grown(memory, 1, limit) | {what: changes(folder, sizes, limit) for what, sizes in cost.items()}


def by_rules(folder):
    """kB resident and ms of processor time of a service's exchange, which is a push of everything, by how many rules of each kind
    there are: the least memory, and the medians of the rest. All sizes at the same time, as in `changes`. A Sidecar is of a
    namespace of its own, with its share of a hundred proxies; of other rules the cost of more proxies would hide theirs."""
    limit = measure.promises()["discovery"]["growth"]
    worlds = {kind: [(kind, size) for size in (0, most // 2, most)] for kind, most in RULES.items()}
    memory, cost = ({world: [] for all in worlds.values() for world in all} for _ in range(2))

    def growth():
        for kind, all in worlds.items():
            yield f"{kind}, kB", {world[1]: min(memory[world]) for world in all}
            yield f"{kind}, ms of a push", {world[1]: statistics.median(cost[world]) for world in all}

    for turn in range(3):
        if turn == 0 or any(gudgeon.bend(costs) > limit for _, costs in growth()):
            with contextlib.ExitStack() as stack:
                clients = []
                for kind, size in cost:
                    server = stack.enter_context(Discovery(folder, SERVICES, rules={kind: size}))
                    is_sidecar = kind == "Sidecar"
                    proxies, namespaces = (RULES[kind], size) if is_sidecar else (PROXIES // 80, 0)
                    clients.append(((kind, size), server, server.loading(proxies, 0, 2, namespaces=namespaces)))
                for world, server, client in clients:
                    took = server.answered(client)
                    memory[world].append(took["resident"])
                    cost[world] += [exchange["processor_ms"] for exchange in took["exchanges"]]
    return dict(growth())


def all_rules(folder, lines):
    """kB resident and ms of processor time of a push with all rules of all kinds, each beside the sum of what the lines of
    `by_rules` say."""
    most = RULES["Sidecar"]
    with Discovery(folder, SERVICES, rules=RULES) as discovery:
        took = discovery.load(most, 0, 3, namespaces=most)

    def total(unit):
        costs = {kind: lines[f"{kind}, {unit}"] for kind in RULES}
        return costs["Sidecar"][0] + sum(costs[kind][count] - costs[kind][0] for kind, count in RULES.items())

    push = statistics.median(exchange["processor_ms"] for exchange in took["exchanges"])
    return {"all_rules_memory": (took["resident"], total("kB")), "all_rules_push": (push, total("ms of a push"))}


def all_of_it(quick, proxies):
    """Every figure, by the keys of build/promises.toml."""
    with tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE) as folder:
        found = {"start": starts(folder, 3 if quick else 10)}
        with Discovery(folder, SERVICES) as discovery:
            found["load"] = discovery.load(proxies, 5 if quick else 20, 2, connections=proxies)
        found["changes"] = 10 if quick else 100
        found["whole"] = whole(folder, found["changes"])
        found["from an API server"], found["starts from it"] = from_api_server(folder, found["changes"])
        found["together"] = together(folder, proxies)
        found["one namespace"] = one_namespace(folder, proxies, 5 if quick else CHANGES)
        # A third of the time, so not where every commit waits for it; build/long measures it.
        if not quick:
            found |= lines(folder, proxies)
    return found


def lines(folder, proxies):
    """Measures costs that would bend the line if they grew faster than their cause."""
    rules = by_rules(folder)
    return {"growth": growth(folder, proxies) | rules, **all_rules(folder, rules)}
