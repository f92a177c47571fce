"""Parts of build/demos/mesh and build/demos/config: backends, a client that counts, and documents in few words.

`mesh.py backend ADDRESS PORT NAME` answers every request with NAME.
`mesh.py load ADDRESS PORT HOST [ROOTS]` asks until it gets TERM, and prints how many answers were good and what the others were;
to standard error it writes a line for each twenty good answers. With ROOTS, a file, it asks by TLS and believes those alone.
`mesh.py shares ADDRESS PORT HOST[/PATH] COUNT` asks so many times, and prints who answered how many, and how many failed.
`mesh.py first ADDRESS PORT HOST NAME FILE` asks until NAME has answered, and prints the milliseconds since FILE was written.
`mesh.py stat PORT NAME` prints a figure of an Envoy by its admin port, 0 where it has none.
`mesh.py received` prints how many resources discovery's /debug/sinkz, read from standard input, has taken.
`mesh.py rejected` prints what galley's /debug/configz, read from standard input, says of objects that are not served.
"""

import collections
import http.client
import http.server
import json
import os
import signal
import socket
import ssl
import sys
import time

DEADLINE = 30  # seconds: whatever is waited for takes one


class Answer(http.server.BaseHTTPRequestHandler):
    """The name of the backend, whatever was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):  # the name that the library looks for
        body = f"{self.server.label}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *arguments):
        pass


def backend(address, port, name):
    server = http.server.ThreadingHTTPServer((address, int(port)), Answer)
    server.daemon_threads = True
    server.label = name
    server.serve_forever()


def ask(address, port, host, context=None):
    """One request to HOST or HOST/PATH on a connection of its own, by TLS with a context: status and body."""
    host, _, path = host.partition("/")
    connection = http.client.HTTPConnection(address, int(port), timeout=5)
    try:
        if context:
            stream = socket.create_connection((address, int(port)), timeout=5)
            connection.sock = context.wrap_socket(stream, server_hostname=host)
        connection.request("GET", f"/{path}", headers={"Host": host})
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace").strip()
    finally:
        connection.close()


def load(address, port, host, roots=None):
    context = None
    if roots:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(roots)
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    good, bad = 0, []
    while not ended:
        try:
            status, body = ask(address, port, host, context)
        except (OSError, http.client.HTTPException) as error:
            status, body = 0, str(error)
        if status == 200:
            good += 1
            if good % 20 == 0:
                print(good, file=sys.stderr, flush=True)
        else:
            bad.append(f"{status} {body}")
        time.sleep(0.002)
    print(f"{good} answered, {len(bad)} failed", *bad[:3], sep="\n")


def shares(address, port, host, count):
    """Counts the answers of each backend to so many requests; the last number is that of failures, also if there are none."""
    answers, failed = collections.Counter(), 0
    for _ in range(int(count)):
        try:
            status, body = ask(address, port, host)
        except (OSError, http.client.HTTPException):
            status, body = 0, ""
        if status == 200:
            answers[body] += 1
        else:
            failed += 1
    print(*[f"{name} {count}" for name, count in sorted(answers.items())], f"failed {failed}", sep=", ")


def first(address, port, host, name, file):
    written = os.stat(file).st_mtime_ns
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        try:
            if ask(address, port, host) == (200, name):
                print((time.time_ns() - written) // 1_000_000)
                return
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.002)
    sys.exit(f"cannot see {name} answer within {DEADLINE} s")


def stat(port, name):
    connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=5)
    connection.request("GET", "/stats")
    for line in connection.getresponse().read().decode().splitlines():
        if line.startswith(name + ": "):
            print(line.removeprefix(name + ": "))
            return
    print(0)


def rejected():
    for one in json.load(sys.stdin)["rejected"]:
        what = [word for word in (one.get("collection"), one.get("name")) if word]
        for error in one["errors"]:
            print(f"{one['origin']}: {' '.join([*what, one['state']])}: {error['path']}: {error['message']}")


def received():
    print(sum(request["resources"] or 0 for source in json.load(sys.stdin) for request in source["requests"]))


if __name__ == "__main__":
    {"backend": backend, "load": load, "shares": shares, "first": first, "stat": stat, "rejected": rejected, "received": received}[sys.argv[1]](*sys.argv[2:])
