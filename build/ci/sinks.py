"""gRPC for Python against gudgeon galley: build/ci/mcp-test runs it.

`sinks.py PROGRAM FOLDER`: a galley over a directory of YAML, sinks that dial it, plain and with certificates, and a sink that it dials,
all of loopback. Messages are made from src/api/proto; each check is what a sink hears.
"""

import concurrent.futures
import os
import queue
import signal
import subprocess
import sys
import tempfile
import time

from checks import DEADLINE, FOLDER, PROGRAM, check, contents, end, replace, start

# What it logs of a client without a certificate is what is wanted. Read when the library is loaded: before the import.
os.environ["GRPC_VERBOSITY"] = "NONE"

import grpc  # noqa: E402
import grpc_tools  # noqa: E402
from grpc_tools import protoc  # noqa: E402

QUIET = 1.0  # seconds: longer than galley takes to publish
ENTRIES = "istio/networking/v1alpha3/serviceentries"
GATEWAYS = "istio/networking/v1alpha3/gateways"
SOURCE = "/istio.mcp.v1alpha1.ResourceSource/EstablishResourceStream"
KNOWN = "spiffe://cluster.local/ns/istio-system/sa/pilot"
OTHER = "spiffe://cluster.local/ns/default/sa/other"

os.mkdir(f"{FOLDER}/python")
FILES = ["mcp/v1alpha1/mcp.proto", "google/rpc/status.proto", "networking/v1alpha3/service_entry.proto", "networking/v1alpha3/sidecar.proto"]
with os.scandir("src/api/proto/networking/v1alpha3") as found:
    FILES += [f"networking/v1alpha3/{one.name}" for one in found if f"networking/v1alpha3/{one.name}" not in FILES]
with os.scandir("src/api/proto/type/v1beta1") as found:
    FILES += [f"type/v1beta1/{one.name}" for one in found]
WELL_KNOWN = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
if protoc.main(["protoc", "-Isrc/api/proto", f"-I{WELL_KNOWN}", f"--python_out={FOLDER}/python", *FILES]):
    sys.exit("cannot make messages")
sys.path.insert(0, f"{FOLDER}/python")

from google.rpc import status_pb2  # noqa: E402
from mcp.v1alpha1 import mcp_pb2  # noqa: E402
from networking.v1alpha3 import service_entry_pb2  # noqa: E402


def entry(name, host):
    replace(
        f"{FOLDER}/config/{name}.yaml",
        f"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: shop}}\nspec:\n"
        f"  hosts: [{host}]\n  resolution: DNS\n  ports: [{{number: 80, name: http, protocol: HTTP}}]\n",
    )


class Galley:
    def __init__(self, *flags):
        self.log = tempfile.mkstemp(dir=FOLDER)[1]
        command = [PROGRAM, "galley", "--configPath", f"{FOLDER}/config", "--server-address=tcp://127.0.0.1:0", *flags]
        command += ["--monitoringPort=0", "--ctrlz_port=0", "--livenessProbePath=", "--readinessProbePath=", "--drainDuration=0s"]
        self.process = start(command, self.log, self.address)

    def address(self):
        for line in contents(self.log).splitlines():
            for scheme in ("mcp://", "mcps://"):
                if f"listening on {scheme}" in line:
                    return "localhost:" + line.strip().rsplit(":", 1)[1]
        return None

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE)


class Sink:
    """One stream: what is said on it, and what is heard."""

    def __init__(self, channel, path=SOURCE):
        self.requests, self.responses = queue.Queue(), queue.Queue()
        call = channel.stream_stream(
            path,
            request_serializer=mcp_pb2.RequestResources.SerializeToString,
            response_deserializer=mcp_pb2.Resources.FromString,
        )
        self.call = call(iter(self.requests.get, None))
        concurrent.futures.ThreadPoolExecutor(1).submit(self.listen)

    def listen(self):
        try:
            for response in self.call:
                self.responses.put(response)
        except grpc.RpcError:
            pass
        self.responses.put(self.call.code())

    def say(self, **fields):
        self.requests.put(mcp_pb2.RequestResources(sink_node=mcp_pb2.SinkNode(id="python"), **fields))

    def answer(self, response, error=None):
        detail = status_pb2.Status(code=3, message=error) if error else None
        self.say(collection=response.collection, response_nonce=response.nonce, incremental=response.incremental, error_detail=detail)

    def next(self):
        return self.responses.get(timeout=DEADLINE)

    def is_quiet(self):
        time.sleep(QUIET)
        return self.responses.empty()

    def close(self):
        self.requests.put(None)
        self.call.cancel()


def names(response):
    return [resource.metadata.name for resource in response.resources]


def hosts(response):
    found = []
    for resource in response.resources:
        body = service_entry_pb2.ServiceEntry()
        assert resource.body.Unpack(body), resource.body.type_url
        found += body.hosts
    return found


def plain():
    entry("a", "a.example")
    galley = Galley("--insecure")
    channel = grpc.insecure_channel(galley.address())
    sink = Sink(channel)
    sink.say(collection=ENTRIES)
    first = sink.next()
    check("the full state comes first", names(first) == ["shop/a"] and first.nonce == "1", first)
    check("a body is the message that it says", hosts(first) == ["a.example"])
    check("metadata has a version", "version" in dict(sink.call.initial_metadata()))
    sink.say(collection=GATEWAYS)
    empty = sink.next()
    check("an empty collection is answered", empty.collection == GATEWAYS and not empty.resources)
    sink.answer(first)
    check("after an ACK nothing is sent", sink.is_quiet())
    entry("a", "b.example")
    second = sink.next()
    check("a change is one response", hosts(second) == ["b.example"] and second.nonce == "3", second)
    sink.answer(second, "no")
    check("after a NACK nothing is sent", sink.is_quiet())
    sink.answer(first)
    entry("a", "c.example")
    third = sink.next()
    check("until there is something else", hosts(third) == ["c.example"], third)
    sink.close()
    differences(channel)
    for path, words in [(SOURCE, grpc.StatusCode.INVALID_ARGUMENT),
                        ("/istio.mcp.v1alpha1.AggregatedMeshConfigService/StreamAggregatedResources", grpc.StatusCode.UNIMPLEMENTED)]:
        bad = Sink(channel, path)
        bad.say(collection="istio/none")
        check(f"{path} of what is not there: {words.name}", bad.next() == words)
    last = Sink(channel)
    last.say(collection=ENTRIES)
    last.next()
    check("at the end it says 0", galley.end() == 0)
    check("and streams hear UNAVAILABLE", last.next() == grpc.StatusCode.UNAVAILABLE)


def differences(channel):
    sink = Sink(channel)
    sink.say(collection=ENTRIES, incremental=True)
    everything = sink.next()
    sink.answer(everything)
    entry("b", "b.example")
    added = sink.next()
    check("an object more is one resource", names(added) == ["shop/b"] and added.incremental, added)
    sink.answer(added)
    os.remove(f"{FOLDER}/config/b.yaml")
    gone = sink.next()
    check("an object fewer is one name", not gone.resources and list(gone.removed_resources) == ["shop/b"], gone)
    sink.close()
    again = Sink(channel)
    held = {resource.metadata.name: resource.metadata.version for resource in everything.resources}
    again.say(collection=ENTRIES, incremental=True, initial_resource_versions={**held, "shop/b": "0123456789abcdef"})
    difference = again.next()
    check("who comes back gets the difference", not difference.resources and list(difference.removed_resources) == ["shop/b"], difference)
    again.close()


def openssl(*words):
    subprocess.run(["openssl", *words], check=True, cwd=FOLDER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def certificates():
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    openssl("req", "-x509", *curve, "-subj", "/CN=root", "-keyout", "root.key", "-out", "root.pem")
    for name, alternative in [("server", "DNS:localhost"), ("known", f"URI:{KNOWN}"), ("other", f"URI:{OTHER}")]:
        openssl("req", "-x509", *curve, "-subj", f"/CN={name}", "-addext", f"subjectAltName={alternative}", "-addext",
                "basicConstraints=critical,CA:FALSE", "-CA", "root.pem", "-CAkey", "root.key", "-keyout", f"{name}.key", "-out", f"{name}.pem")


def read(name):
    with open(f"{FOLDER}/{name}", "rb") as file:
        return file.read()


def secured():
    certificates()
    replace(f"{FOLDER}/list.yaml", f"allowed: ['{KNOWN}']\n")
    flags = {"tlsCertFile": "server.pem", "tlsKeyFile": "server.key", "caCertFile": "root.pem", "accessListFile": "list.yaml"}
    galley = Galley(*[f"--{flag}={FOLDER}/{name}" for flag, name in flags.items()])

    def connected(*pair):
        credentials = grpc.ssl_channel_credentials(read("root.pem"), *[read(name) for name in pair])
        sink = Sink(grpc.secure_channel(galley.address(), credentials))
        sink.say(collection=ENTRIES)
        return sink, sink.next()

    known, first = connected("known.key", "known.pem")
    check("who is on the list is served", names(first) == ["shop/a"], first)
    check("who is not is told so", connected("other.key", "other.pem")[1] == grpc.StatusCode.UNAUTHENTICATED)
    check("without a certificate nobody comes in", connected()[1] == grpc.StatusCode.UNAVAILABLE)
    replace(f"{FOLDER}/list.yaml", f"allowed: ['{OTHER}']\n")
    check("who is no longer on the list is let go", known.next() == grpc.StatusCode.UNAUTHENTICATED)
    galley.end()


def called():
    """A sink that is dialled."""
    received, requests = queue.Queue(), queue.Queue()

    def serve(responses, context):
        received.put(dict(context.invocation_metadata()))

        def listen():
            for response in responses:
                received.put(response)

        concurrent.futures.ThreadPoolExecutor(1).submit(listen)
        yield from iter(requests.get, None)

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
    handler = grpc.stream_stream_rpc_method_handler(
        serve,
        request_deserializer=mcp_pb2.Resources.FromString,
        response_serializer=mcp_pb2.RequestResources.SerializeToString,
    )
    service = grpc.method_handlers_generic_handler("istio.mcp.v1alpha1.ResourceSink", {"EstablishResourceStream": handler})
    server.add_generic_rpc_handlers([service])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    galley = Galley("--insecure", f"--sinkAddress=127.0.0.1:{port}", "--sinkMeta=who=galley")
    metadata = received.get(timeout=DEADLINE)
    check("it says who it is", metadata.get("who") == "galley" and "version" in metadata, metadata)
    trigger = received.get(timeout=DEADLINE)
    check("it says first that it is a source", trigger.collection == "$triggerCollection" and not trigger.nonce, trigger)
    refusal = status_pb2.Status(code=12, message="unsupported collection")
    requests.put(mcp_pb2.RequestResources(collection=trigger.collection, error_detail=refusal))
    requests.put(mcp_pb2.RequestResources(collection=ENTRIES))
    first = received.get(timeout=DEADLINE)
    check("a refusal of that is ignored", names(first) == ["shop/a"], first)
    galley.end()
    requests.put(None)
    server.stop(None)


os.mkdir(f"{FOLDER}/config")
plain()
secured()
called()
end()
