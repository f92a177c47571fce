"""gRPC's own xDS client against gudgeon discovery: build/ci/proxyless-test runs it.

`proxyless.py PROGRAM FOLDER`: backends, a discovery with a directory of YAML, and channels to `xds:///` targets, all of loopback. Each
check is a call that arrives, or does not, where it should.
"""

import collections
import concurrent.futures
import contextlib
import json
import os
import sys
import threading
import time
import urllib.request

from checks import DEADLINE, FOLDER, PROGRAM, check, contents, counts, end, replace, start, until
from ports import free_port

NODE = {"id": "sidecar~127.0.0.1~client-1.demo~demo.svc.cluster.local", "cluster": "client"}
METHOD = "/demo.Demo/Name"

GRPC = free_port()
# Read when the library is loaded: before the import.
os.environ["GRPC_XDS_BOOTSTRAP"] = f"{FOLDER}/bootstrap.json"
with open(os.environ["GRPC_XDS_BOOTSTRAP"], "w") as file:
    servers = [{"server_uri": f"127.0.0.1:{GRPC}", "channel_creds": [{"type": "insecure"}], "server_features": ["xds_v3"]}]
    json.dump({"xds_servers": servers, "node": NODE}, file)

# Its log lines about a target that is not there are expected.
os.environ["GRPC_VERBOSITY"] = "NONE"

import grpc  # noqa: E402


class Backend:
    """Answers every call with its name."""

    def __init__(self, name):
        handler = grpc.unary_unary_rpc_method_handler(lambda request, context: name.encode())
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("demo.Demo", {"Name": handler})])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()


class Discovery:
    def __init__(self):
        self.http = free_port()
        os.mkdir(f"{FOLDER}/config")
        self.write("../mesh.yaml", "{}\n")

    def start(self):
        flags = {"configDir": f"{FOLDER}/config", "meshConfig": f"{FOLDER}/mesh.yaml", "grpcAddr": f"127.0.0.1:{GRPC}",
                 "httpAddr": f"127.0.0.1:{self.http}", "secureGrpcAddr": "", "monitoringAddr": ""}
        command = [PROGRAM, "discovery"] + [f"--{flag}={value}" for flag, value in flags.items()]
        self.process = start(command, f"{FOLDER}/log", self.ready)

    def log(self):
        return contents(f"{FOLDER}/log")

    def end(self):
        self.process.kill()
        self.process.wait()

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http}{path}", timeout=5) as answer:
            return answer.read()

    def ready(self):
        with contextlib.suppress(OSError):
            return self.get("/ready") is not None
        return False

    def write(self, name, text):
        replace(f"{FOLDER}/config/{name}", text)

    def rule(self, kind, spec):
        lines = ["apiVersion: networking.istio.io/v1", f"kind: {kind}", "metadata: {name: b, namespace: demo}", "spec:"]
        self.write(f"{kind}.yaml", "\n".join(lines + [f"  {line}" for line in spec.splitlines()]) + "\n")

    def serve(self, name, endpoints, namespace="demo", ports=(8080,), resolution="STATIC", address="127.0.0.1"):
        """A service of that name with these endpoints: backend, and what else stands there."""
        lines = ["apiVersion: networking.istio.io/v1", "kind: ServiceEntry",
                 f"metadata: {{name: {name}, namespace: {namespace}}}", "spec:",
                 f"  hosts: [{name}.{namespace}.svc.cluster.local]", "  location: MESH_INTERNAL",
                 f"  resolution: {resolution}", "  ports:"]
        lines += [f"  - {{number: {port}, name: grpc-{port}, protocol: GRPC}}" for port in ports]
        lines.append("  endpoints:")
        for backend, more in endpoints:
            to = ", ".join(f"grpc-{port}: {backend.port}" for port in ports)
            lines.append(f"  - {{address: {address}, ports: {{{to}}}{more}}}")
        self.write(f"{name}.yaml", "\n".join(lines) + "\n")


class Client:
    def __init__(self, target):
        self.channel = grpc.insecure_channel(f"xds:///{target}")
        self.call = self.channel.unary_unary(METHOD)

    def ask(self, timeout=DEADLINE, wait=False):
        """The name of who answered, or the failure's code."""
        try:
            return self.call(b"", timeout=timeout, wait_for_ready=wait).decode()
        except grpc.RpcError as error:
            return error.code()

    def details(self, timeout=DEADLINE):
        try:
            return None, self.call(b"", timeout=timeout).decode()
        except grpc.RpcError as error:
            return error.code(), error.details()

    def of(self, calls):
        return collections.Counter(self.ask() for _ in range(calls))


class Load(threading.Thread):
    """Calls without end, and what became of them."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.answers, self.on = client, collections.Counter(), True
        self.start()

    def run(self):
        while self.on:
            self.answers[self.client.ask()] += 1
            time.sleep(0.001)

    def end(self):
        self.on = False
        self.join()
        return {code.name: count for code, count in self.answers.items() if isinstance(code, grpc.StatusCode)}


def main(discovery):
    one, two, three = (Backend(name) for name in ("one", "two", "three"))
    discovery.serve("b", [(one, "")])
    discovery.serve("several", [(three, "")], ports=(80, 9090))
    discovery.start()

    nobody = Client("nobody:8080")
    absent = concurrent.futures.ThreadPoolExecutor(1).submit(nobody.details)
    late = Client("late:8080")
    awaited = concurrent.futures.ThreadPoolExecutor(1).submit(late.ask, DEADLINE, True)

    full = "b.demo.svc.cluster.local"
    for target in (f"{full}:8080", "b:8080", "b.demo:8080", "b.demo.svc:8080", full, "b"):
        answer = Client(target).ask()
        check(f"xds:///{target} reaches the backend", answer == "one", answer)
    for target in ("several", "several:80", "several:9090"):
        answer = Client(target).ask()
        check(f"xds:///{target}, one of several ports", answer == "three", answer)

    client = Client("b:8080")
    load = Load(client)
    discovery.serve("b", [(one, ""), (two, "")])
    check("an endpoint that is added is used", until(lambda: set(client.of(10)) == {"one", "two"}))
    discovery.serve("b", [(two, "")])
    check("an endpoint that is removed is left", until(lambda: set(client.of(30)) == {"two"}))
    check("and not asked again", set(client.of(200)) == {"two"})

    discovery.end()
    check("calls go on without discovery", set(client.of(100)) == {"two"})
    discovery.serve("b", [(one, "")])
    discovery.start()
    check("what changed meanwhile is known after its return", until(lambda: set(client.of(10)) == {"one"}))
    failures = load.end()
    check(f"none of {load.answers.total()} calls failed meanwhile", not failures and load.answers.total() > 100, failures)

    far, near = ', locality: "r/z/far", weight: 1', ', locality: "r/z/near", weight: 3'
    discovery.serve("b", [(one, far), (two, near)])
    until(lambda: set(client.of(20)) == {"one", "two"})
    # A share of 3/4 over so many calls is off by a tenth of itself once in 10^14 times.
    calls = 2000
    share = client.of(calls)["two"] / calls
    check("endpoints of weight 1 and 3 get as much", abs(share - 0.75) <= 0.075, share)

    discovery.serve("late", [(three, "")])
    check("a call that waits for a service gets it when it comes", awaited.result(DEADLINE) == "three")
    code, details = absent.result(DEADLINE)
    check("a target that nobody knows fails", code == grpc.StatusCode.UNAVAILABLE and "does not exist" in details, (code, details))

    discovery.serve("b", [])
    check("without endpoints calls fail", until(lambda: client.ask(5) == grpc.StatusCode.UNAVAILABLE))
    discovery.serve("b", [(three, "")])
    check("and reach the next one", until(lambda: client.ask(5) == "three"))
    os.remove(f"{FOLDER}/config/b.yaml")
    check("without the service they fail", until(lambda: client.ask(5) == grpc.StatusCode.UNAVAILABLE))
    discovery.serve("b", [(one, "")])
    check("and reach it when it is back", until(lambda: client.ask(5) == "one"))

    discovery.serve("b", [(one, ", labels: {version: v1}"), (two, ", labels: {version: v2}")])
    discovery.rule("DestinationRule", "host: b\nsubsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]\n"
                   "trafficPolicy: {loadBalancer: {simple: LEAST_REQUEST}, outlierDetection: {consecutive5xxErrors: 3},"
                   " connectionPool: {http: {http2MaxRequests: 1000, idleTimeout: 60s}}}")
    route = "  route: [{destination: {host: b, subset: v1}, weight: %d}, {destination: {host: b, subset: v2}, weight: %d}]"
    rest = ("  timeout: 5s\n  retries: {attempts: 2, perTryTimeout: 2s, retryOn: 'unavailable,503'}\n"
            "  fault: {abort: {grpcStatus: ABORTED, percentage: {value: 100}}}\n  corsPolicy: {allowOrigins: [{exact: a}]}\n"
            "  mirror: {host: several}")

    def weigh(first, second):
        discovery.rule("VirtualService", f"hosts: [b]\nhttp:\n- name: shares\n{route % (first, second)}\n{rest}")

    weigh(0, 100)
    check("a virtual service leads to a subset", until(lambda: set(client.of(30)) == {"two"}))
    load = Load(client)
    weigh(25, 75)
    check("and to two by their weights", until(lambda: set(client.of(20)) == {"one", "two"}))
    share = client.of(calls)["two"] / calls
    check("weights of 25 and 75 get as much", abs(share - 0.75) <= 0.075, share)
    weigh(100, 0)
    check("and to the other one alone", until(lambda: set(client.of(30)) == {"one"}))
    failures = load.end()
    check(f"none of {load.answers.total()} calls failed meanwhile", not failures and load.answers.total() > 100, failures)

    rows = json.loads(discovery.get("/debug/syncz"))
    check("its streams have its name", rows and all(row["proxy"] == NODE["id"] for row in rows), rows)
    check("it refused nothing", "refuses" not in discovery.log() and not any(row["errors"] for row in rows), rows)
    kinds = ("listener", "route", "cluster", "endpoint")

    def in_sync():
        pairs = [(row.get(f"{kind}_sent"), row.get(f"{kind}_acked")) for row in json.loads(discovery.get("/debug/syncz")) for kind in kinds]
        return all(sent == acked for sent, acked in pairs) and any(sent for sent, _ in pairs)

    check("it has accepted what it was sent", until(in_sync), rows)
    names(discovery, one, two)
    refused(discovery, three)


def names(discovery, one, two):
    """A service whose only endpoint is a name, and one that becomes so."""
    discovery.serve("named", [(one, "")], resolution="DNS", address="localhost")
    client = Client("named:8080")
    check("a name that is the only endpoint is resolved", until(lambda: client.ask(5) == "one"))
    discovery.serve("named", [(two, "")])
    check("an address in its place is called", until(lambda: client.ask(5) == "two"))
    discovery.serve("named", [(one, "")], resolution="DNS", address="localhost")
    check("and the name again", until(lambda: client.ask(5) == "one"))
    rows = json.loads(discovery.get("/debug/syncz"))
    check("it refused no cluster of a name", rows and not any(row["errors"] for row in rows), rows)


def refused(discovery, backend):
    """Mutual TLS, where the client's bootstrap names nobody who has certificates: nothing is sent in plain text instead."""
    discovery.serve("sealed", [(backend, "")])
    discovery.rule("DestinationRule", "host: sealed\ntrafficPolicy: {tls: {mode: ISTIO_MUTUAL}}")

    def errors():
        return [row["errors"].get("cluster", {}).get("message", "") for row in json.loads(discovery.get("/debug/syncz"))]

    until(lambda: b"ISTIO_MUTUAL" in discovery.get("/debug/configz?kind=DestinationRule"))
    # A service that no client calls is neither requested nor refused.
    client = Client("sealed:8080")
    code, details = client.details(10)
    check("a client without certificates calls nobody who wants mutual TLS", code == grpc.StatusCode.UNAVAILABLE, (code, details))
    words = "Cluster resource: [field:transport_socket.typed_config.value[envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext]"
    check("it refuses the cluster for its TLS", until(lambda: any("|sealed." in one and words in one for one in errors())), errors())
    check("discovery's log has the refusal and the rule", "DestinationRule demo/b" in discovery.log())
    check("others answer it", Client("several").ask() == "three")
    os.remove(f"{FOLDER}/config/DestinationRule.yaml")
    check("in plain text it is called", until(lambda: client.ask(5) == "three"))
    check("and has nothing to refuse", until(lambda: not any(errors())), errors())


discovery = Discovery()
try:
    main(discovery)
finally:
    discovery.end()
if counts["failed"]:
    print(discovery.log(), file=sys.stderr)
end()
