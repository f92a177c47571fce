"""A Kubernetes API server with Services and their Endpoints, for what gudgeon discovery takes when it reads one."""

import concurrent.futures
import http.client
import json
import pathlib
import ssl
import subprocess
import urllib.parse

import measure

NAMESPACE, PORT, TOKEN = "demo", 8080, "admin-token"
# Requests at a time.
CLIENTS = 4


class ApiServer:
    """A running server with that many services. It ends with this program, however that ends."""

    def __init__(self, services, endpoints):
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
        with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(self.fill, range(CLIENTS)))
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def connection(self):
        return Connection(self.host, self.tls)

    def fill(self, first):
        """Every so manieth service."""
        path = f"/api/v1/namespaces/{NAMESPACE}"
        with self.connection() as send:
            for service in range(first, self.services, CLIENTS):
                ports = [{"name": "http", "port": PORT}]
                send("POST", f"{path}/services", {"metadata": {"name": name(service)}, "spec": {"ports": ports}})
                send("POST", f"{path}/endpoints", self.endpoints_of(service))

    def change(self, service, last):
        """Gives a service's last endpoint that address; `None`: the one that it had at first."""
        with self.connection() as send:
            send("PUT", f"/api/v1/namespaces/{NAMESPACE}/endpoints/{name(service)}", self.endpoints_of(service, last))

    def endpoints_of(self, service, last=None):
        numbers = [service * 64 + at for at in range(self.endpoints)]
        addresses = [{"ip": f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"} for number in numbers]
        if last:
            addresses[-1] = {"ip": last}
        subsets = [{"addresses": addresses, "ports": [{"name": "http", "port": PORT}]}]
        return {"metadata": {"name": name(service)}, "subsets": subsets}


class Connection:
    """A connection that is kept; in a `with`, the function that sends a request over it."""

    def __init__(self, host, tls):
        self.https = http.client.HTTPSConnection(host, context=tls, timeout=measure.DEADLINE_SECONDS)

    def __enter__(self):
        return self.send

    def __exit__(self, *_):
        self.https.close()

    def send(self, method, path, body):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        self.https.request(method, path, json.dumps(body), headers)
        answer = self.https.getresponse()
        text = answer.read().decode()
        if answer.status >= 300:
            measure.fail(f"{method} {path}: {answer.status} {text}")


def name(service):
    """As tests/mesh-load names it."""
    return f"svc-{service:05}"
