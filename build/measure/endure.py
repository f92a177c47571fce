"""A long life for build/measure/endure; the arguments are numbers of epochs, rotations and orphans.

The proxy is build/measure/bench.c, which starts and ends at once, so that a thousand epochs take a minute; each stops the one before.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import measure
from ports import free_port

EPOCHS, ROTATIONS, ORPHANS = (int(argument) for argument in sys.argv[1:4])
# Orphans that are left at once: their number is rounded up to it.
STORM = 1000
# Between two links: longer than no time, so that most of them are looked at.
PAUSE = 0.003
PROXY_STARTED = re.compile(r"epoch \d+ started: pid (\d+)")


class Life:
    """An agent whose certificate is kubelet's: a link to a directory, of which there are two with the same bytes."""

    def __init__(self, folder, admin):
        self.status = free_port()
        self.folder = folder
        for name in "1", "2":
            os.makedirs(f"{folder}/certs/..{name}")
            with open(f"{folder}/certs/..{name}/tls.crt", "w") as file:
                file.write("the same")
        os.symlink("..1", f"{folder}/certs/..data")
        os.symlink("..data/tls.crt", f"{folder}/certs/tls.crt")
        with open(f"{folder}/log", "w") as log:
            self.agent = subprocess.Popen(
                [measure.PINTLE, "proxy", "--binary-path", measure.CHILD, "--config-path", f"{folder}/run"]
                + ["--disable-hot-restart", "--base-id", "auto", "--proxy-admin-port", str(admin)]
                + ["--status-port", str(self.status), "--status-address", "127.0.0.1", "--cert-debounce", "2ms"]
                + ["--watch", f"{folder}/certs/tls.crt", "--watch-certificates=false", "--rescan-interval", "0"]
                + ["--termination-drain-duration", "0s"],
                env=measure.environment("leave", ORPHANS=str(STORM)), stdout=log, stderr=log,
            )

    def counted(self, name):
        url = f"http://127.0.0.1:{self.status}/metrics"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
            return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))
        return 0

    def until(self, name, number):
        deadline = time.monotonic() + measure.DEADLINE_SECONDS
        while (found := self.counted(name)) < number:
            if time.monotonic() > deadline or self.agent.poll() is not None:
                measure.fail(f"wait for {name} {number:.0f}, it is {found:.0f}:\n{self.log_text()[-2000:]}")
            time.sleep(0.02)

    def log_text(self):
        return measure.contents(f"{self.folder}/log")

    def epochs(self, number):
        """One after the other: several orders that wait are one."""
        name = "pintle_epochs_started_total"
        began = self.counted(name)
        for n in range(number):
            self.agent.send_signal(signal.SIGHUP)
            self.until(name, began + n + 1)
            self.until('pintle_proxy_processes{state="live"}', 1)

    def rotations(self, number):
        for n in range(number):
            os.symlink(f"..{n % 2 + 1}", f"{self.folder}/certs/..tmp")
            os.rename(f"{self.folder}/certs/..tmp", f"{self.folder}/certs/..data")
            time.sleep(PAUSE)

    def orphans(self, number):
        name = "pintle_orphans_reaped_total"
        proxy = int(PROXY_STARTED.findall(self.log_text())[-1])
        for _ in range(-(-number // STORM)):
            began = self.counted(name)
            os.kill(proxy, signal.SIGUSR1)
            self.until(name, began + STORM)

    def measured(self, what):
        time.sleep(1)
        found = measure.counted(self.agent.pid)
        print(f"| {what:33} | {found['resident']:>8} | {found['private']:>13} | {found['descriptors']:>11} | {found['threads']:>7} |", flush=True)
        return found


def main():
    print(f"| {'after':33} | resident | private dirty | descriptors | threads |")
    print("|" + "|".join("-" * width for width in (35, 10, 15, 13, 9)) + "|")
    admin = free_port()
    with tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE) as folder, measure.live(admin):
        measure.on_disk(measure.PINTLE)
        life = Life(folder, admin)
        try:
            life.until("pintle_epochs_started_total", 1)
            checks = live(life)
        finally:
            life.agent.terminate()
            code = life.agent.wait()
    checks[f"it ended with code {code}"] = code == 0
    for what, holds in checks.items():
        print(f"{'ok' if holds else 'FAILED'}: {what}")
    passed = sum(checks.values())
    print(f"{passed} passed, {len(checks) - passed} failed")
    return int(passed < len(checks))


def live(life):
    life.epochs(1)
    life.rotations(1)
    life.orphans(STORM)
    before = life.measured("one epoch, one rotation, a storm")
    looks = []
    life.epochs(EPOCHS)
    looks.append(life.measured(f"{EPOCHS} epochs"))
    epochs = life.counted("pintle_epochs_started_total")
    life.rotations(ROTATIONS)
    looks.append(life.measured(f"{ROTATIONS} rotations of the same bytes"))
    life.orphans(ORPHANS)
    reaped = life.counted("pintle_orphans_reaped_total") - STORM
    looks.append(life.measured(f"{reaped:.0f} orphans"))
    most = {name: max(look[name] for look in looks) - before[name] for name in before}
    return {
        "the same bytes have started nothing": life.counted("pintle_epochs_started_total") == epochs,
        f"resident: {most['resident']:+} kB at most": most["resident"] <= 0,
        f"private dirty: {most['private']:+} kB at most": most["private"] <= 0,
        "the descriptors are those of before": most["descriptors"] == 0,
        "one thread": before["threads"] == 1 and most["threads"] == 0,
    }


sys.exit(main())
