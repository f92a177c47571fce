"""Sends probes for build/measure/soak; the arguments are pintle, Envoy and the number of readiness probes."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from ports import free_port

PINTLE, ENVOY = (os.path.abspath(path) for path in sys.argv[1:3])
PROBES = int(sys.argv[3])
# Seconds of one wrk, between two looks at the counters.
SLICE = 5
# At least so many of them.
LOOKS = 6
# The pages that are requested beside the probes, one after the other.
OTHERS = ["/status", "/metrics", "/", "/healthz/live", "/stats/prometheus?usedonly", "/nothing"]
COUNTER = 'pintle_probes_total{kind="readiness",result="%s"} '
BAD = re.compile(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)")


def fetch(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read().decode()


def answered(port):
    """Readiness probes that passed and that failed, so far."""
    lines = fetch(port, "/metrics").splitlines()
    def of(result):
        name = COUNTER % result
        return next(int(line[len(name):]) for line in lines if line.startswith(name))
    return of("passed"), of("failed")


def measure(pid):
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        text = rollup.read()
    fields = [int(re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE).group(1)) for field in ("Rss", "Private_Dirty")]
    with open(f"/proc/{pid}/stat") as stat:
        ticks = sum(int(word) for word in stat.read().rsplit(")", 1)[1].split()[11:13])
    counts = [len(os.listdir(f"/proc/{pid}/{folder}")) for folder in ("fd", "task")]
    return fields + counts + [ticks / os.sysconf("SC_CLK_TCK")]


def at_rest(pid, status, others=()):
    """Measured after a probe, once that is closed."""
    for path in [*others, "/healthz/ready"]:
        try:
            fetch(status, path)
        except urllib.error.HTTPError:
            pass
    looks = []
    for _ in range(10):
        time.sleep(0.1)
        looks.append(measure(pid))
    return min(looks, key=lambda look: look[2])


def start(folder, status):
    admin = free_port()
    address = {"socket_address": {"address": "127.0.0.1", "port_value": admin}}
    with open(folder + "/envoy.json", "w") as file:
        json.dump({"admin": {"address": address}}, file)
    with open(folder + "/log", "w") as out:
        agent = subprocess.Popen(
            [PINTLE, "proxy", "--binary-path", ENVOY, "--custom-config-file", folder + "/envoy.json"]
            + ["--config-path", folder + "/run", "--base-id", "auto", "--proxy-admin-port", str(admin)]
            + ["--status-port", str(status), "--status-address", "127.0.0.1"]
            + ["--termination-drain-duration", "0s", "--rescan-interval", "0"],
            env={}, stdout=out, stderr=out,
        )
    deadline = time.monotonic() + 60
    while True:
        try:
            fetch(status, "/healthz/ready")
            return agent
        except OSError:
            if time.monotonic() > deadline or agent.poll() is not None:
                sys.exit("cannot soak: Envoy is not ready\n" + open(folder + "/log").read())
            time.sleep(0.1)


def others_script(folder):
    """For wrk: the other paths in turn."""
    paths = ", ".join(f'"{path}"' for path in OTHERS)
    script = f"""
local paths, at = {{ {paths} }}, 0
function request()
    at = at % #paths + 1
    return wrk.format("GET", paths[at])
end
"""
    with open(folder + "/others.lua", "w") as file:
        file.write(script)
    return file.name


def load(folder, status):
    """One slice of probes and of everything else; what went wrong with the probes."""
    base = f"http://127.0.0.1:{status}"
    common = ["wrk", "-t1", f"-d{SLICE}s", "--timeout", "5s", "-H", "Connection: close"]
    beside = subprocess.Popen(
        common + ["-c2", "-s", folder + "/others.lua", base + "/"], stdout=subprocess.DEVNULL
    )
    probes = subprocess.run(common + ["-c32", base + "/healthz/ready"], stdout=subprocess.PIPE, check=True, text=True)
    beside.wait()
    wrong = sum(int(count) for count in BAD.search(probes.stdout).groups()) if BAD.search(probes.stdout) else 0
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", probes.stdout)
    slowest = re.search(r"Latency\s+(\S+)\s+\S+\s+(\S+)", probes.stdout)
    return wrong + (int(refused.group(1)) if refused else 0), slowest.group(2)


def row(probes, found):
    resident, private, descriptors, threads, seconds = found
    print(f"| {probes:>9} | {resident:>8} | {private:>13} | {descriptors:>11} | {threads:>7} | {seconds:>9.1f} |", flush=True)


def main():
    with tempfile.TemporaryDirectory(dir="target/soak") as folder:
        folder = os.path.abspath(folder)
        status = free_port()
        agent = start(folder, status)
        try:
            others_script(folder)
            run(folder, status, agent)
        finally:
            agent.terminate()
            agent.wait()


def run(folder, status, agent):
    print(f"| {'probes':>9} | {'resident':>8} | {'private dirty':>13} | descriptors | threads | CPU, in s |")
    print("|" + "|".join("-" * width for width in (11, 10, 15, 13, 9, 11)) + "|")
    # After one of everything; later nobody asks for a page first, which would give back what there is.
    before = at_rest(agent.pid, status, OTHERS)
    began = time.monotonic()
    # Before it was ready it was asked, too.
    done, early = answered(status)
    row(done, before)
    wrong, slowest, looks, shown = 0, [], [], 0
    while done < PROBES or len(looks) < LOOKS:
        failed, slow = load(folder, status)
        wrong += failed
        slowest.append(slow)
        looks.append(at_rest(agent.pid, status))
        done = answered(status)[0]
        if done >= shown or done >= PROBES:
            row(done, looks[-1])
            shown = done + PROBES // 8
    took = time.monotonic() - began
    print(f"{took:.0f} s, {done / took:.0f} probes each second; the slowest of each {SLICE} s: {', '.join(slowest[:12])}")
    resident, private, descriptors, threads = ({look[n] - before[n] for look in looks} for n in range(4))
    checks = {
        "every probe was answered with 200": wrong == 0 and answered(status)[1] == early,
        # The kernel may take pages of the file.
        f"resident: {max(resident):+} kB at most": max(resident) <= 0,
        f"private dirty: {max(private):+} kB at most": max(private) <= 0,
        "the descriptors are those of before": descriptors == {0},
        "one thread": threads == {0} and before[3] == 1,
    }
    for what, holds in checks.items():
        print(f"{'ok' if holds else 'FAILED'}: {what}")
    passed = sum(checks.values())
    print(f"{passed} passed, {len(checks) - passed} failed")
    if passed < len(checks):
        sys.exit(1)


main()
