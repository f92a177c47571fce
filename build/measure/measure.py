"""What build/promises and build/measure/bench share: how a process manager is started, and what can be counted and timed of it.

Every manager is PID 1 of a namespace of its own, as in a container, and starts the same program, build/measure/bench.c.
"""

import atexit
import contextlib
import http.server
import json
import os
import pathlib
import random
import re
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

from ports import free_port

ENVOY = os.path.abspath("target/envoy/envoy-1.40.0")
PINTLE = os.path.abspath(f"target/dist/{os.uname().machine}/pintle")
CHILD = os.path.abspath("target/bench/child")
CERTIFICATE = os.path.abspath("target/bench/certificate.pem")
SCRATCH = "target/bench/scratch"
# For what is watched: the directories above it are watched too, and a name that others make there is a wake-up. So neither
# /tmp, nor this repository, which may be in it.
QUIET_PLACE = "/var/tmp"
# Where the bootstrap goes: in an injected pod /etc/istio/proxy is an emptyDir in memory.
POD_MEMORY = "/dev/shm"
# What a start is measured on: the program itself and its bootstrap lie there.
MEDIA = {"memory": POD_MEMORY, "disk": QUIET_PLACE}
DEADLINE_SECONDS = 60
LIVE = "epoch 0 is LIVE"
# A number of the outside's is needed for USR1 and for /proc; a manager that is left over dies with unshare.
CONTAINER = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
CONTAINER += ["--pid", "--fork", "--mount-proc", "--kill-child"]


def fail(what):
    sys.exit(f"cannot {what}")


def promises():
    """The limits that build/promises.toml names."""
    with open("build/promises.toml", "rb") as file:
        return tomllib.load(file)


def environment(mode, **more):
    return {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "BENCH": mode, **more}


class Manager:
    """A program that is told what to run: its name, and the command line that the child's is appended to."""

    def __init__(self, name, prefix):
        self.name = name
        self.prefix = prefix
        self.env = {}

    def command(self):
        return [*self.prefix, CHILD]

    def binary(self):
        return os.path.realpath(shutil.which(self.prefix[0]) or fail(f"find {self.prefix[0]}"))


class Proxy(Manager):
    """pintle proxy, whose proxy is the child: bootstrap written, certificates hashed and watched, the status port open."""

    def __init__(self, name, folder, bare=False, medium=POD_MEMORY):
        self.admin = free_port()
        # A number of its own, as the default has it; `auto` would look for one in every start.
        base_id = str(random.randrange(1000, 30000))
        # An agent that is killed leaves its Envoy's shared memory behind.
        memory = pathlib.Path(f"/dev/shm/envoy_shared_memory_{base_id}0")
        atexit.register(memory.unlink, missing_ok=True)
        super().__init__(name, [PINTLE, "proxy", "--base-id", base_id, "--proxy-admin-port", str(self.admin)])
        self.folder = folder = f"{folder}/{name.replace(' ', '-')}"
        os.mkdir(folder)
        self.run = tempfile.TemporaryDirectory(dir=medium)
        self.prefix += ["--config-path", self.run.name]
        if bare:
            with open(folder + "/envoy.json", "w") as file:
                file.write("{}")
            self.prefix += ["--custom-config-file", file.name, "--watch-certificates=false"]
            return
        self.port = free_port()
        self.prefix += ["--status-port", str(self.port)]
        for side in "SERVER", "CLIENT":
            for part in "CERT_CHAIN", "KEY", "ROOT_CERT":
                path = f"{folder}/{side}_{part}.pem"
                shutil.copy(CERTIFICATE, path)
                self.env[f"ISTIO_META_TLS_{side}_{part}"] = path

    def command(self):
        return [*self.prefix, "--binary-path", CHILD]

    def whole(self):
        """All that it has, beside the real Envoy: an override says that there is no control plane to wait for."""
        address = {"socket_address": {"address": "127.0.0.1", "port_value": free_port()}}
        kind = "envoy.extensions.filters.network.echo.v3.Echo"
        echo = {"name": "echo", "typed_config": {"@type": f"type.googleapis.com/{kind}"}}
        listener = {"name": "application", "address": address, "filter_chains": [{"filters": [echo]}]}
        override = f"{self.folder}/override.json"
        with open(override, "w") as file:
            json.dump({"dynamic_resources": None, "static_resources": {"listeners": [listener]}}, file)
        probers = {
            "/app-health/shop/livez": {"httpGet": {"port": 9080, "path": "/health"}, "timeoutSeconds": 1},
            "/app-health/shop/readyz": {"tcpSocket": {"port": 9080}, "timeoutSeconds": 1},
        }
        companion = f"{CHILD} beside"
        manager = Manager(self.name, self.prefix + [
            "--binary-path", ENVOY, "--companion", companion, "--companion", companion, "--validate", "--watch", self.folder,
            "--application-ports", str(address["socket_address"]["port_value"]), "--zipkin-address", "127.0.0.1:9",
            "--statsd-udp-address", "127.0.0.1:9", "--exit-on-zero-active-connections", "--log-as-json",
            "--log-target", "stdout", "--log-target", f"{self.run.name}/log",
        ])
        manager.command = lambda: manager.prefix
        manager.env = {
            **self.env,
            "ISTIO_BOOTSTRAP_OVERRIDE": override,
            "ISTIO_KUBE_APP_PROBERS": json.dumps(probers),
            "ISTIO_PROMETHEUS_ANNOTATIONS": json.dumps({"scrape": "true", "port": "9080", "path": "/metrics"}),
            "ISTIO_METAJSON_LABELS": json.dumps({"app": "shop", "version": "v1"}),
            "POD_NAME": "shop-v1-7d8f9", "POD_NAMESPACE": "shop", "INSTANCE_IP": "127.0.0.1",
        }
        return manager


class Live(http.server.BaseHTTPRequestHandler):
    """An admin port that says LIVE for a proxy that has none: before that, USR1 is kept from it."""

    def do_GET(self):
        body = b"listener_manager.workers_started: 1\nserver.hot_restart_generation: 1\n"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def live(port):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Live)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class Running:
    """A manager that runs in its container until the block ends."""

    def __init__(self, manager, mode):
        self.name = manager.name
        env = environment(mode, **manager.env)
        self.log = tempfile.NamedTemporaryFile(dir=SCRATCH)
        self.outer = subprocess.Popen(
            CONTAINER + manager.command(), env=env, stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=subprocess.PIPE, bufsize=0,
        )
        os.set_blocking(self.outer.stderr.fileno(), False)
        self.rest = b""
        children = f"/proc/{self.outer.pid}/task/{self.outer.pid}/children"
        self.pid = int(self.until(lambda: contents(children).split()[:1], "start")[0])
        # unshare itself until the exec.
        self.until(lambda: contents(f"/proc/{self.pid}/comm") != "unshare\n", "start")

    def until(self, found, what):
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (result := found()):
            if time.monotonic() > deadline or self.outer.poll() is not None:
                fail(f"{what} {self.name}:\n{self.rest.decode(errors='replace')}{contents(self.log.name)}")
            time.sleep(0.005)
        return result

    def line(self):
        """Returns the child's next line, without its first word."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            while b"\n" in self.rest:
                line, self.rest = self.rest.split(b"\n", 1)
                if line.startswith(b"bench "):
                    return line.split()[1].decode()
            select.select([self.outer.stderr], [], [], 1)
            more = self.outer.stderr.read()
            self.rest += more or b""
            if more == b"" or time.monotonic() > deadline:
                fail(f"hear the child of {self.name}: {self.rest.decode(errors='replace')}{contents(self.log.name)}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.outer.kill()
        self.outer.wait()
        # It dies with unshare, but a moment later; until then it has its port.
        deadline = time.monotonic() + DEADLINE_SECONDS
        while os.path.exists(f"/proc/{self.pid}/fd") and time.monotonic() < deadline:
            time.sleep(0.005)
        self.outer.stderr.close()
        self.log.close()


def contents(path):
    """A file of /proc, or nothing when its process is gone."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def on_disk(path):
    """Pages of a file that the kernel has still to write, fresh from the linker say, would be private dirty."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def memory(pid):
    """Resident and private dirty memory in kB of 1024 bytes."""
    text = contents(f"/proc/{pid}/smaps_rollup")
    found = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
    return {"resident": found["Rss"], "private": found["Private_Dirty"]}


def seldom(pid):
    """kB resident of the code that an agent at rest does not need: the only mapping of code that is left out of cores
    (sys::set_apart)."""
    text = contents(f"/proc/{pid}/smaps")
    mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE)
    apart = [one for one in mappings if " r-xp " in one.split("\n")[0] and re.search(r"^VmFlags:.* dd\b", one, re.MULTILINE)]
    if len(apart) != 1:
        fail(f"find the code of process {pid} that is set apart")
    return int(re.search(r"^Rss:\s+(\d+) kB", apart[0], re.MULTILINE).group(1))


def counted(pid):
    threads = re.search(r"^Threads:\s+(\d+)", contents(f"/proc/{pid}/status"), re.MULTILINE).group(1)
    return {**memory(pid), "threads": int(threads), "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}


class Trace:
    """Counts the system calls of a process."""

    def __init__(self, pid):
        self.file = tempfile.NamedTemporaryFile(dir=SCRATCH)
        self.strace = subprocess.Popen(
            ["strace", "-f", "-ttt", "-p", str(pid), "-o", self.file.name], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        # It says on its stderr when it has attached, and why when it cannot.
        line = self.strace.stderr.readline().decode()
        if "attached" not in line:
            fail(f"trace process {pid}: {line.strip()}")
        # Attaching is an interruption to some, and what they do then is not what they do by themselves.
        time.sleep(0.3)
        self.since = time.time()

    def calls(self):
        """Ends the trace. The call that the process slept in has no result: it is no call of this time."""
        self.strace.terminate()
        self.strace.wait()
        self.strace.stderr.close()
        lines = contents(self.file.name).splitlines()
        self.file.close()
        # PID TIME NAME(...; a signal has no such form.
        calls = (re.match(r"\d+ +([\d.]+) \w+\(", line) for line in lines if "<detached" not in line)
        return sum(call is not None and float(call.group(1)) >= self.since for call in calls)


def idle(managers, seconds):
    """Counts what each of them has and does while nothing happens, all at the same time."""
    with contextlib.ExitStack() as stack:
        running = []
        for manager in managers:
            on_disk(manager.binary())
            whole = isinstance(manager, Proxy)
            one = stack.enter_context(Running(manager.whole() if whole else manager, "idle"))
            if whole:
                one.until(lambda one=one: LIVE in contents(one.log.name), "wait for LIVE under")
                one.until(lambda port=manager.port: answers(port), "wait for readiness under")
            running.append(one)
        time.sleep(1)
        found = {one.name: counted(one.pid) for one in running}
        # Not at the same time as the memory: strace attaches, and that is noticed.
        traces = {one.name: Trace(one.pid) for one in running}
        time.sleep(seconds)
        for name, trace in traces.items():
            found[name]["calls"] = trace.calls()
        for manager, one in zip(managers, running):
            if isinstance(manager, Proxy):
                found[one.name]["probe"] = probe_calls(manager.port, one.pid)
                found[one.name]["seldom"] = seldom(one.pid)
    return found


def answers(port):
    """Returns true if a readiness probe is answered with 200; a connection of its own, as kubelet's."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as probe:
        probe.sendall(b"GET /healthz/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b""
        while more := probe.recv(65536):
            answer += more
        return answer.startswith(b"HTTP/1.1 200 ")
    return False


def probe_calls(port, pid, probes=100):
    """System calls of one readiness probe, the query of Envoy's admin port included; nothing where there is no port."""
    deadline = time.monotonic() + 10
    while not answers(port):
        if time.monotonic() > deadline:
            return None
        time.sleep(0.1)
    trace = Trace(pid)
    good = sum(answers(port) for _ in range(probes))
    calls = trace.calls()
    return calls / probes if good == probes else None


def once(manager, mode, **more):
    """Runs one manager with a child that says a number and ends: nanoseconds."""
    try:
        done = subprocess.run(
            CONTAINER + ([CHILD, "at"] if mode == "start" else []) + manager.command(),
            env=environment(mode, **manager.env, **more), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, check=False, timeout=DEADLINE_SECONDS,
        )
    except subprocess.TimeoutExpired as late:
        output = (late.stderr or b"") + (late.stdout or b"")
        fail(f"wait any longer for the child of {manager.name} ({mode}): {output.decode(errors='replace')}")
    found = re.search(rb"^bench (\d+)$", done.stderr, re.MULTILINE)
    if not found:
        fail(f"hear the child of {manager.name}: {(done.stderr + done.stdout).decode(errors='replace')}")
    return int(found.group(1))


def in_turns(rounds, managers, one):
    """The figures of each manager, taken in turns, so that a noisy neighbour meets all of them; the first round warms up."""
    figures = {manager.name: [] for manager in managers}
    for turn in range(rounds + 1):
        # Nobody always comes after the same one.
        for manager in random.sample(managers, len(managers)):
            figure = one(manager)
            if turn:
                figures[manager.name].append(figure)
    return figures


def start(rounds, managers, medium):
    """From exec of the manager to main of its child: one start of a file that nobody has run before."""
    with tempfile.TemporaryDirectory(dir=medium) as folder:
        return in_turns(rounds, managers, lambda manager: fresh_start(manager, folder))


def fresh_start(manager, folder):
    """One start of a fresh copy of the manager's binary, written to its medium before."""
    copy = shutil.copy(manager.binary(), f"{folder}/{os.path.basename(manager.binary())}")
    on_disk(copy)
    prefix, manager.prefix = manager.prefix, [copy, *manager.prefix[1:]]
    try:
        return once(manager, "start")
    finally:
        manager.prefix = prefix
        os.unlink(copy)


def start_calls(manager):
    """System calls of one start, by the manager and what it forks, until the child's program is executed. What is asked of each
    interface is left out."""
    with tempfile.NamedTemporaryFile(dir=SCRATCH) as file:
        manager.prefix, prefix = ["strace", "-f", "-o", file.name, *manager.prefix], manager.prefix
        try:
            once(manager, "start")
        finally:
            manager.prefix = prefix
        lines = contents(file.name).splitlines()
    # The first is strace's own exec of the manager; what resumes was counted where it began.
    begun = [line for line in lines[1:] if re.match(r"\d+ +(?!ioctl)\w+\(", line)]
    for at, line in enumerate(begun):
        if f'execve("{CHILD}"' in line:
            return at + 1
    fail(f"find the start of the child of {manager.name}")


def paired(figures, name, base):
    """The median of the ratios of both in the same round: what a neighbour does to one start it does to the other."""
    return statistics.median(one / other for one, other in zip(figures[name], figures[base], strict=True))


def orphans(rounds, managers, count):
    """From the end of that many adopted processes, all at once, until none is left to be seen."""
    return in_turns(rounds, managers, lambda manager: once(manager, "orphans", ORPHANS=str(count)))


@contextlib.contextmanager
def on_one_processor():
    """This process and what it starts share a processor. Else the scheduler may keep one manager beside its child and another on
    the other processor, where each wake-up is an interrupt that a hypervisor delivers: twice the time, for a whole run."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextlib.contextmanager
def signalled(managers):
    """All of them run, and the child of each waits for signals."""
    with contextlib.ExitStack() as stack:
        running = {}
        for manager in managers:
            if isinstance(manager, Proxy):
                stack.enter_context(live(manager.admin))
            running[manager.name] = stack.enter_context(Running(manager, "signal"))
        for manager in managers:
            one = running[manager.name]
            if one.line() != "ready":
                fail(f"hear the child of {one.name}")
            if isinstance(manager, Proxy):
                one.until(lambda one=one: LIVE in contents(one.log.name), "wait for LIVE under")
        time.sleep(0.5)
        yield running


def signals(rounds, managers, number):
    """From a signal to the manager until its child has it; all of them run meanwhile."""
    with on_one_processor(), signalled(managers) as running:

        def latency(manager):
            one = running[manager.name]
            # Asleep again after the last one.
            time.sleep(0.001)
            began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
            os.kill(one.pid, number)
            return int(one.line()) - began

        return in_turns(rounds, managers, latency)


def signal_calls(manager, number, count=100):
    """System calls of a manager for one signal that it passes on."""
    with signalled([manager]) as running:
        one = running[manager.name]
        trace = Trace(one.pid)
        for _ in range(count):
            os.kill(one.pid, number)
            one.line()
        return trace.calls() / count


def medians(figures):
    return {name: statistics.median(of) for name, of in figures.items()}


def tenths(figures):
    """The figure that a tenth of the rounds stays below: a neighbour who disturbs half of all rounds moves the median."""
    return {name: statistics.quantiles(of, n=10)[0] for name, of in figures.items()}


def least(figures):
    return {name: min(of) for name, of in figures.items()}
