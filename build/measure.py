"""Measures the release binary for build/promises; the arguments are pintle, Envoy, the clock program, [--quick]."""

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib

PINTLE, ENVOY, NOW = (os.path.abspath(path) for path in sys.argv[1:4])
QUIET_SECONDS = 5 if "--quick" in sys.argv else 60
STARTS = 300
PROBES = 50
TINI = "/usr/bin/tini-static"
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "promises.toml"), "rb") as file:
    PROMISES = tomllib.load(file)["init"]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listener(port):
    """An Envoy that has an admin port and nothing to do."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    return json.dumps({"admin": {"address": address}})


def started_after(command):
    """Nanoseconds from just before the exec to the child's main."""
    began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = subprocess.run(command, env={}, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, check=False)
    line = re.search(rb"^\d+$", done.stderr, re.MULTILINE)
    return int(line.group()) - began


def start_ratio(folder):
    pintle = [PINTLE, "proxy", "--binary-path", NOW, "--config-path", folder + "/run", "--base-id", "auto"]
    pintle += ["--status-port", "0", "--on-clean-exit", "exit"]
    tini = [TINI, "-s", "--", NOW]
    ours, theirs = [], []
    for _ in range(STARTS):
        ours.append(started_after(pintle))
        theirs.append(started_after(tini))
    return statistics.median(ours) / statistics.median(theirs)


def memory(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        text = rollup.read()
    return [int(re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE).group(1)) for field in ("Rss", "Private_Dirty")]


def status(pid, field):
    with open(f"/proc/{pid}/status") as lines:
        return int(re.search(rf"^{field}:\s+(\d+)", lines.read(), re.MULTILINE).group(1))


def quiet_calls(pid):
    """System calls in a quiet time; the one that it sleeps in ends when strace lets go."""
    with tempfile.NamedTemporaryFile() as trace:
        tracer = subprocess.Popen(["strace", "-q", "-p", str(pid), "-o", trace.name], stderr=subprocess.DEVNULL)
        time.sleep(QUIET_SECONDS)
        tracer.terminate()
        tracer.wait()
        lines = trace.read().decode().splitlines()
    return sum("resumed" not in line and "detached" not in line for line in lines)


def probe_calls(pid, port):
    """System calls from one readiness probe to the next; an answer of Envoy's that comes in two pieces is none of ours."""
    with tempfile.NamedTemporaryFile() as trace:
        tracer = subprocess.Popen(["strace", "-f", "-q", "-p", str(pid), "-o", trace.name], stderr=subprocess.DEVNULL)
        while status(pid, "TracerPid") == 0:
            time.sleep(0.01)
        for _ in range(PROBES):
            with socket.create_connection(("127.0.0.1", port)) as probe:
                probe.sendall(b"GET /healthz/ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
                answer = b"".join(iter(lambda: probe.recv(4096), b""))
                if not answer.startswith(b"HTTP/1.1 200 "):
                    sys.exit(f"cannot measure: the probe got {answer!r}")
        tracer.terminate()
        tracer.wait()
        lines = trace.read().decode().splitlines()
    accepted = [number for number, line in enumerate(lines) if "accept4(" in line]
    return statistics.median(after - before for before, after in zip(accepted, accepted[1:]))


def idle(folder):
    admin, port = free_port(), free_port()
    with open(folder + "/envoy.json", "w") as file:
        file.write(listener(admin))
    log = folder + "/log"
    with open(log, "w") as out:
        agent = subprocess.Popen(
            [PINTLE, "proxy", "--binary-path", ENVOY, "--custom-config-file", folder + "/envoy.json"]
            + ["--config-path", folder + "/run", "--base-id", "auto", "--proxy-admin-port", str(admin)]
            + ["--termination-drain-duration", "0s", "--rescan-interval", "0", "--status-port", str(port)],
            env={}, stdout=out, stderr=out,
        )
    deadline = time.monotonic() + 60
    while "epoch 0 is LIVE" not in open(log).read():
        if time.monotonic() > deadline or agent.poll() is not None:
            sys.exit("cannot measure: Envoy is not LIVE\n" + open(log).read())
        time.sleep(0.05)
    tini = subprocess.Popen([TINI, "-s", "--", "sleep", "1000"])
    time.sleep(0.5)
    resident, private = memory(agent.pid)
    figures = {
        "resident": resident,
        "private": private,
        "tini": memory(tini.pid)[0],
        "threads": status(agent.pid, "Threads"),
        "descriptors": len(os.listdir(f"/proc/{agent.pid}/fd")),
        "calls": quiet_calls(agent.pid),
        "probe": probe_calls(agent.pid, port),
    }
    agent.terminate()
    agent.wait()
    tini.terminate()
    tini.wait()
    return figures


def row(what, measured, promise, holds):
    print(f"| {what:52} | {measured:>12} | {promise:>28} | {holds:5} |")


def main():
    size = os.path.getsize(PINTLE) / 1024
    # Not in /tmp: the directories above what is watched are watched too, and others write there.
    with tempfile.TemporaryDirectory(dir="target/promises") as folder:
        folder = os.path.abspath(folder)
        found = idle(folder)
        ratio = start_ratio(folder)

    def judged(value, limit):
        return "holds" if value <= limit else "over"

    row("what", "measured", "promise", "")
    print("|" + "|".join("-" * width for width in (54, 14, 30, 7)) + "|")
    row("binary", f"{size:.0f} kB", "350 kB", judged(size, 350))
    row("resident, idle beside a LIVE Envoy", f"{found['resident']} kB", "380 kB", judged(found["resident"], 380))
    row("private dirty", f"{found['private']} kB", "64 kB", judged(found["private"], 64))
    row("threads", found["threads"], "1", judged(found["threads"], 1))
    row("descriptors", found["descriptors"], "", "")
    row(f"system calls in {QUIET_SECONDS} quiet seconds", found["calls"], "0", judged(found["calls"], 0))
    calls = PROMISES["probe_system_calls"]
    row("system calls of a readiness probe", f"{found['probe']:.0f}", calls, judged(found["probe"], calls))
    row("exec to the proxy's main, ratio to tini-static", f"{ratio:.2f}", "1.10", judged(ratio, 1.1))
    row("tini-static resident, for comparison", f"{found['tini']} kB", "", "")


main()
