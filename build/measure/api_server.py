"""A Kubernetes API server with Services, their Endpoints and Pods, for what gudgeon takes when it reads one."""

import base64
import concurrent.futures
import http.client
import itertools
import json
import pathlib
import ssl
import subprocess
import urllib.parse

import gudgeon
import measure

NAMESPACE, PORT, TOKEN = "demo", 8080, "admin-token"
# Requests at a time.
CLIENTS = 4
# Zones of its Nodes, each of which has one Pod of every service.
ZONES = 3
# What etcd writes at once.
WRITES = 128
# A user's cluster: the mesh's kinds, its webhooks and its Services.
INSTALLED = ["build/kubernetes/crds.yaml", "build/kubernetes/all.yaml"]


class ApiServer:
    """A running server with that many services, each endpoint of which is a Pod once these are written. It ends with this program,
    however that ends."""

    def __init__(self, services=0, endpoints=0):
        self.services, self.endpoints = services, endpoints

    def __enter__(self):
        # `cat` ends when nobody holds the other end of its stdin.
        command = ["build/kube", "up", "--", "sh", "-c", 'echo "$KUBE_RUN" && exec cat']
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.run = pathlib.Path(self.process.stdout.readline().decode().strip() or measure.fail("start an API server"))
        self.host = urllib.parse.urlsplit((self.run / "url").read_text().strip()).netloc
        self.tls = ssl.create_default_context(cafile=self.run / "ca.crt")
        with self.connection() as send:
            send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            for at in range(self.endpoints):
                labels = {"topology.kubernetes.io/region": "eu", "topology.kubernetes.io/zone": f"eu-{at % ZONES}"}
                send("POST", "/api/v1/nodes", {"metadata": {"name": node(at), "labels": labels}})
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(self.fill, range(CLIENTS)))
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def connection(self):
        https = http.client.HTTPSConnection(self.host, context=self.tls, timeout=measure.DEADLINE_SECONDS)
        return Connection(https, {"Authorization": f"Bearer {TOKEN}"})

    def fill(self, first):
        """Every so manieth service."""
        path = f"/api/v1/namespaces/{NAMESPACE}"
        with self.connection() as send:
            for service in range(first, self.services, CLIENTS):
                ports = [{"name": "http", "port": PORT}]
                send("POST", f"{path}/services", {"metadata": {"name": name(service)}, "spec": {"ports": ports}})
                send("POST", f"{path}/endpoints", self.endpoints_of(service))

    def write_pods(self):
        """Writes them as the API server keeps them: by its API each takes a request to be made and another one to run, and 10,000
        of them most of a minute."""
        command = (self.run / "etcd.command").read_text().split("\0")
        etcd = urllib.parse.urlsplit(command[command.index("--advertise-client-urls") + 1]).netloc
        places = itertools.product(range(self.services), range(self.endpoints))
        with Connection(http.client.HTTPConnection(etcd, timeout=measure.DEADLINE_SECONDS)) as send:
            while batch := list(itertools.islice(places, WRITES)):
                puts = [{"requestPut": self.stored_pod(service, at)} for service, at in batch]
                send("POST", "/v3/kv/txn", {"success": puts})

    def stored_pod(self, service, at):
        """The key and the value of a service's Pod in etcd."""
        pod = json.dumps(running_pod(service, at, address(service, at)))
        texts = {"key": f"/registry/pods/{NAMESPACE}/{pod_name(service, at)}", "value": pod}
        return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}

    def install(self):
        """Installs gudgeon as its users do; nothing runs there."""
        files = [word for path in INSTALLED for word in ("-f", path)]
        for command in ["apply", *files], ["wait", "--for=condition=established", "-f", INSTALLED[0]]:
            kubectl = ["target/kube/kubectl", f"--kubeconfig={self.run}/kubeconfig", *command]
            subprocess.run(kubectl, check=True, stdout=subprocess.DEVNULL)

    def change(self, service, last):
        """Gives a service's last endpoint that address; `None`: the one that it had at first."""
        with self.connection() as send:
            send("PUT", f"/api/v1/namespaces/{NAMESPACE}/endpoints/{name(service)}", self.endpoints_of(service, last))

    def endpoints_of(self, service, last=None):
        addresses = [
            {
                "ip": address(service, at),
                "nodeName": node(at),
                "targetRef": {"kind": "Pod", "namespace": NAMESPACE, "name": pod_name(service, at)},
            }
            for at in range(self.endpoints)
        ]
        if last:
            addresses[-1] = {"ip": last}
        subsets = [{"addresses": addresses, "ports": [{"name": "http", "port": PORT}]}]
        return {"metadata": {"name": name(service)}, "subsets": subsets}


class Connection:
    """A connection that is kept; in a `with`, the function that sends a request over it."""

    def __init__(self, connection, headers=None):
        self.http, self.headers = connection, {"Content-Type": "application/json", **(headers or {})}

    def __enter__(self):
        return self.send

    def __exit__(self, *_):
        self.http.close()

    def send(self, method, path, body):
        self.http.request(method, path, json.dumps(body), self.headers)
        answer = self.http.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            measure.fail(f"{method} {path}: {answer.status} {text}")


def name(service):
    """As tests/mesh-load names it."""
    return f"svc-{service:05}"


def address(service, at):
    number = service * 64 + at
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def node(at):
    return f"node-{at}"


def pod_name(service, at):
    return f"{name(service)}-6d4cf56db6-{at:05}"


def running_pod(service, at, ip):
    """A Pod as its Deployment's ReplicaSet and kubelet leave it."""
    pod = gudgeon.pod()
    metadata, spec = pod["metadata"], pod["spec"]
    del metadata["generateName"]
    metadata |= {"name": pod_name(service, at), "namespace": NAMESPACE, "uid": f"{service:08}-0000-4000-8000-{at:012}"}
    metadata["labels"] |= {"app": name(service)}
    metadata["ownerReferences"][0] |= {"name": f"{name(service)}-6d4cf56db6"}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    spec |= {"nodeName": node(at), "serviceAccountName": name(service)}
    conditions = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    status = {
        "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}], "hostIP": "10.255.0.1",
        "conditions": [{"type": condition, "status": "True"} for condition in conditions],
    }
    return pod | {"status": status}
