"""Compares the goldens of upstream's test of proxies without interception with `gudgeon discovery` over the same directory.

Its clusters, assignments, listeners and routes are of Envoy's v2 API, written by Go's own JSON; ours are of v3, from
`/debug/config_dump`. So what is compared is what both can say: names, types, addresses, where a listener leads, domains of virtual
hosts and their clusters.
"""

import collections
import dataclasses
import json
import os
import queue
import re
import subprocess
import time
import urllib.request

import gotest
from compare import ABSENT, differences, shown
from documents import load, parts

# Its log lines about a server that has ended are noise: the variable is read when the library is loaded.
os.environ["GRPC_VERBOSITY"] = "NONE"

import grpc  # noqa: E402

FOLDER = "pilot/pkg/proxy/envoy/v2"
INPUT = "tests/testdata/config"
GOLDENS = ("cds", "ecds", "eds", "lds_tcp", "lds_http", "rds")
# Asked for whole, and by the names that those have.
FIRST = ("cluster.v3.Cluster", "listener.v3.Listener")
LATER = ("route.v3.RouteConfiguration", "endpoint.v3.ClusterLoadAssignment")
METHOD = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
# By number in v2's JSON.
KINDS = ("STATIC", "STRICT_DNS", "LOGICAL_DNS", "EDS", "ORIGINAL_DST")
# Of upstream's defaults the one that the test's proxy shows.
MESH = "proxyHttpPort: 15002\n"
DEADLINE = 30  # seconds


def goldens(repository, release):
    """What is there by kind and name, who asks, and the input; nothing for releases of v3 alone, whose test compares nothing."""
    test = repository.read(release, f"{FOLDER}/lds_test.go")
    if test is None:
        return None
    case = gotest.function(test, "TestLDSIsolated").split('t.Run("sidecar_none"', 1)[1]
    address, namespace = (re.search(rf'\b{name}:\s*"([^"]*)"', case)[1] for name in ("IP", "Namespace"))
    read = {name: json.loads(repository.must(release, f"{FOLDER}/testdata/none_{name}.json")) for name in GOLDENS}
    cds, ecds, eds, tcp, http, rds = (list(read[name].values()) for name in GOLDENS)
    files = [path for path in repository.files(release, INPUT) if path.endswith(".yaml")]
    return facts(cds + ecds, eds, tcp + http, rds), (address, namespace), {path: repository.must(release, f"{INPUT}/{path}") for path in files}


def plain(value):
    """Without the wrappers that Go's JSON shows: of a choice what is chosen, of a Struct what it holds."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"fields"}:
        return plain(value["fields"])
    found = {}
    for key, one in value.items():
        is_choice = key[0].isupper() and isinstance(one, dict) and len(one) == 1 and next(iter(one))[0].isupper()
        if is_choice and key == "Kind":
            (inner,) = one.values()
            return [plain(item) for item in inner["values"]] if isinstance(inner, dict) and set(inner) == {"values"} else plain(inner)
        found.update({snake(name): inner for name, inner in plain(one).items()} if is_choice else {key: plain(one)})
    return found


def snake(name):
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def at(value, *keys):
    """Returns the value below, or nothing."""
    for key in keys:
        value = (value or {}).get(key)
    return value


def endpoints(assignment):
    found = []
    for group in at(assignment, "endpoints") or []:
        for one in group.get("lb_endpoints") or []:
            address = at(one, "endpoint", "address")
            socket = at(address, "socket_address") or {}
            found.append(at(address, "pipe", "path") or f"{socket['address']}:{socket['port_value']}")
    return sorted(found)


def facts(clusters, assignments, listeners, routes):
    """What both APIs can say, by kind and name; a listener by its port, of which it alone has each here."""
    found = {}
    for one in map(plain, clusters):
        kind = one.get("type", 0)
        kind = kind if isinstance(kind, str) else KINDS[kind]
        found[f"cluster {one['name']}"] = {"type": kind, "endpoints": endpoints(one.get("load_assignment"))}
    for one in map(plain, assignments):
        found[f"assignment {one['cluster_name']}"] = {"endpoints": endpoints(one)}
    for one in map(plain, listeners):
        socket = one["address"]["socket_address"]
        made = {"name": one["name"], "address": socket["address"], "to": {}}
        chains = [(chain, False) for chain in one["filter_chains"]] + [(one.get("default_filter_chain"), True)]
        for chain, is_rest in chains:
            target, route = led(chain)
            if target:
                made["to"][f"the rest: {target}" if is_rest else target] = True
            found.update(hosts(route))
        found[f"listener {socket['port_value']}"] = made
    for one in map(plain, routes):
        found.update(hosts(one))
    return found


def led(chain):
    """Returns the destination of a chain, and its routes."""
    for one in at(chain, "filters") or []:
        config = one.get("typed_config") or one.get("config") or {}
        if "tcp_proxy" in one["name"]:
            return f"cluster {config.get('cluster')}", None
        if "http_connection_manager" in one["name"]:
            inner = config.get("route_config")
            return f"route {inner['name'] if inner else at(config, 'rds', 'route_config_name')}", inner
    return None, None


def hosts(route):
    found = {}
    for host in at(route, "virtual_hosts") or []:
        to = [at(one, "route", "cluster") or "a response" for one in host.get("routes") or []]
        found[f"virtual host {route['name']} {host['name']}"] = {"domains": {domain: True for domain in host["domains"]}, "to": to}
    return found


def varint(number):
    head = bytearray()
    while number > 0x7F:
        head.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*head, number])


def field(number, value):
    """A text, or a message, as protobuf has it."""
    body = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(body)) + body


def request(node, kind, names=()):
    resource_names = b"".join(field(3, name) for name in names)
    return field(2, node) + resource_names + field(4, f"type.googleapis.com/envoy.config.{kind}")


class Discovery:
    """A running `gudgeon discovery` over files."""

    def __init__(self, program, folder, files):
        self.folder = folder
        os.makedirs(f"{folder}/config")
        for path, text in [*((f"config/{path}", text) for path, text in files.items()), ("mesh.yaml", MESH)]:
            with open(f"{folder}/{path}", "w", encoding="utf-8") as out:
                out.write(text)
        flags = {"configDir": f"{folder}/config", "meshConfig": f"{folder}/mesh.yaml", "secureGrpcAddr": "", "monitoringAddr": ""}
        flags.update(grpcAddr="127.0.0.1:0", httpAddr="127.0.0.1:0", drainDuration="0s")
        self.command = [program, "discovery", *(f"--{name}={value}" for name, value in flags.items())]

    def __enter__(self):
        with open(f"{self.folder}/log", "wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        end = time.monotonic() + DEADLINE
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.__exit__()
                raise SystemExit(f"cannot start gudgeon discovery: {self.log()[-2000:]}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def log(self):
        with open(f"{self.folder}/log", encoding="utf-8") as log:
            return log.read()

    def address(self, scheme):
        found = re.findall(rf" on {scheme}://(\S+)\n", self.log())
        return found[-1] if found else "127.0.0.1:0"

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.address('http')}{path}", timeout=DEADLINE) as answer:
            return answer.read()

    def ready(self):
        try:
            return bool(self.get("/ready")) and not self.address("grpc").endswith(":0")
        except OSError:
            return False

    def resources(self, address, namespace):
        """All that a sidecar without interception is sent."""
        name = f"test-1.{namespace}"
        metadata = {"INTERCEPTION_MODE": "NONE", "HTTP10": "1"}.items()
        metadata = b"".join(field(1, field(1, key) + field(2, field(3, value))) for key, value in metadata)
        node = field(1, f"sidecar~{address}~{name}~{namespace}.svc.cluster.local") + field(3, metadata)
        requests = queue.Queue()
        with grpc.insecure_channel(self.address("grpc")) as channel:
            responses = channel.stream_stream(METHOD)(iter(requests.get, None), timeout=DEADLINE)
            for kind in FIRST:
                requests.put(request(node, kind))
                next(responses)
            clusters, _, listeners, _ = self.dump(name)
            targets = [led(chain) for one in listeners for chain in one["filter_chains"]]
            assignments = {one["name"] for one in clusters if one.get("type") == "EDS"}
            routes = {to.removeprefix("route ") for to, inner in targets if to and to.startswith("route ") and not inner}
            for kind, names in zip(LATER, (routes, assignments)):
                requests.put(request(node, kind, sorted(names)))
                next(responses)
            found = facts(*self.dump(name))
            requests.put(None)
        return found

    def dump(self, name):
        """Clusters, assignments, listeners and routes."""
        all_of_it = json.loads(self.get(f"/debug/config_dump?proxyID={name}"))["configs"]
        found = collections.defaultdict(list)
        for one in all_of_it:
            for key, items in one.items():
                if isinstance(items, list):
                    found[key] += items
        return (
            [one["cluster"] for one in found["dynamic_active_clusters"]],
            [one["endpoint_config"] for one in found["dynamic_endpoint_configs"]],
            [one["active_state"]["listener"] for one in found["dynamic_listeners"]],
            [one["route_config"] for one in found["dynamic_route_configs"]],
        )


class Input:
    """Who wrote what a host or a port is of, as the proxy's namespace sees it."""

    def __init__(self, files, address, namespace):
        self.address, self.sidecars = address, set()
        # Hosts, and ports as texts: of which entries and Services they are.
        self.owners = collections.defaultdict(set)
        for one in (load(part) for text in files.values() for part in parts(text)):
            of, kind = at(one, "metadata", "namespace") or "default", at(one, "kind")
            name = f"{at(one, 'metadata', 'name')}.{of}"
            if kind == "Sidecar":
                self.sidecars.add(name)
            elif kind in ("ServiceEntry", "Service"):
                owner = kind if kind == "Service" or of == namespace else "of others"
                hosts = one["spec"]["hosts"] if kind == "ServiceEntry" else [f"{name}.svc.cluster.local"]
                for key in (*hosts, *(str(port.get("number") or port.get("port")) for port in one["spec"]["ports"])):
                    self.owners[key].add(owner)

    def only(self, name, *owners):
        """Returns true if a resource is of no other namespace."""
        kind, _, rest = name.rpartition(" ")
        key = rest.rsplit("|", 1)[-1] if "outbound|" in rest else rest.rsplit(":", 1)[0] if kind.startswith("virtual host") else rest
        return bool(self.owners[key]) and self.owners[key] <= set(owners)


def alone(check):
    return lambda want, got, *more: want is ABSENT and check(got, *more)


# (sentence of the contract of discovery, path, condition of (wanted, got, name, input))
RULES = [
    ("§10.4 NONE: no virtual listeners", r"^listener 15001$", lambda want, got, *_: got is ABSENT and want["name"] == "virtual"),
    ("§10.6 bind: the primary address", r"^listener \d+\.(name|address)$", lambda want, got, _, given: got == want.replace("0.0.0.0", given.address) != want),
    ("§10.6 HOST, else the Sidecar's name", r"inbound\|", alone(lambda got, name, given: any(f"|{one}" in name for one in given.sidecars))),
    ("§10.6 HOST, else the Sidecar's name", r"^listener \d+$", alone(lambda got, _, given: all(to.endswith(tuple(given.sidecars)) for to in got["to"]))),
    ("§10.4 what matches no server name", r"^listener \d+\.to\.the rest: cluster BlackHoleCluster$", alone(lambda *_: True)),
    ("§10.3 last: block_all", r"^virtual host \w+ block_all$", alone(lambda got, *_: got == {"domains": {"*": True}, "to": ["a response"]})),
    ("§5.2 Services in files", r".", alone(lambda got, name, given: given.only(name, "Service"))),
    ("§10.6 of a Sidecar the ingress alone", r".", alone(lambda got, name, given: given.only(name, "of others"))),
    ("§10.6 of a Sidecar the ingress alone", r"^listener \d+$", alone(lambda got, name, given: given.only(name, "of others", "Service"))),
]


def sentence(difference, name, given):
    path, want, got = difference
    return next((text for text, pattern, holds in RULES if re.search(pattern, path) and holds(want, got, name, given)), None)


@dataclasses.dataclass
class Judged:
    name: str
    # Of upstream's, and not of ours alone.
    kept: bool
    # Differences that no rule explains, as text.
    failed: list
    sentences: set
    differences: list

    @property
    def word(self):
        return "failed" if self.failed else "different" if self.sentences else "equal"


def judge(repository, release, program, folder):
    """Each resource, first those that upstream keeps, or nothing where it keeps none."""
    kept = goldens(repository, release)
    if not kept:
        return []
    want, (address, namespace), files = kept
    with Discovery(program, f"{folder}/xds-{release}", files) as discovery:
        got = discovery.resources(address, namespace)
    given, found = Input(files, address, namespace), []
    for name in [*want, *sorted(name for name in got if name not in want)]:
        differ = differences({name: want.get(name, ABSENT)}, {name: got.get(name, ABSENT)})
        one = Judged(name, name in want, [], set(), [shown(difference) for difference in differ])
        for difference, text in zip(differ, one.differences):
            reason = sentence(difference, name, given)
            one.sentences.add(reason) if reason else one.failed.append(text)
        found.append(one)
    return found
