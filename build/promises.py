"""Measures the release binary for build/promises: [--quick] [--check]."""

import os
import signal
import sys
import tempfile

import measure

STARTS, SIGNALS, STORMS, ORPHANS = 200, 1500, 15, 1000


def row(what, measured, promise, verdict):
    print(f"| {what:60} | {measured:>10} | {promise:>8} | {verdict:6} |")


def against(figures, name, base):
    found = measure.medians(figures)
    return found[name] / found[base]


def starts(folder, static):
    """The paired ratio on each medium."""
    found = {}
    for name, medium in measure.MEDIA.items():
        os.mkdir(f"{folder}/{name}")
        proxy = measure.Proxy("pintle proxy", f"{folder}/{name}", medium=medium)
        found[f"start_{name}"] = measure.paired(measure.start(STARTS, [proxy, static], medium), proxy.name, static.name)
    return found


def ratios(folder, proxy):
    """What is timed, each once: what is over is over."""
    init = measure.Manager("pintle init", [measure.PINTLE, "init", "--"])
    static = measure.Manager("tini-static", ["tini-static", "--"])
    tini = measure.Manager("tini", ["tini", "--"])
    found = starts(folder, static)
    found["signal"] = against(measure.signals(SIGNALS, [proxy, tini], signal.SIGUSR1), proxy.name, tini.name)
    orphans = measure.orphans(STORMS, [proxy, init, tini], ORPHANS)
    found["orphans"] = against(orphans, proxy.name, tini.name)
    found["orphans_init"] = against(orphans, init.name, tini.name)
    return found


def judged(value, limit, room=1.0):
    if value is None:
        return "none"
    if value <= limit:
        return "holds"
    return "close" if value <= limit * room else "OVER"


def main():
    quiet = 5 if "--quick" in sys.argv else 60
    promised = measure.promises()
    limits, bounds = promised["limits"], promised["ratios"]
    with tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE) as folder:
        proxy = measure.Proxy("pintle proxy", folder)
        found = measure.idle([proxy], quiet)[proxy.name]
        found["binary"] = os.path.getsize(measure.PINTLE) / 1024
        took = ratios(folder, proxy)
    counted = {
        "binary": ("binary", " kB"),
        "resident": ("resident, idle, all features on, a LIVE Envoy", " kB"),
        "private": ("private dirty", " kB"),
        "threads": ("threads", ""),
        "descriptors": ("descriptors", ""),
        "calls": (f"system calls in {quiet} quiet seconds", ""),
        "probe": ("system calls of a readiness probe", ""),
    }
    timed = {
        "start_memory": "exec to the proxy's main in memory, ratio to tini-static",
        "start_disk": "exec to the proxy's main on a disk, ratio to tini-static",
        "signal": "USR1 to the proxy, ratio to tini",
        "orphans": f"{ORPHANS} orphans reaped, ratio to tini",
        "orphans_init": f"{ORPHANS} orphans reaped by pintle init, ratio to tini",
    }
    verdicts = []
    row("what", "measured", "promise", "")
    print("|" + "|".join("-" * width for width in (62, 12, 10, 8)) + "|")
    for key, (what, unit) in counted.items():
        verdicts.append(judged(found[key], limits[key]))
        shown = "none" if found[key] is None else f"{found[key]:.0f}{unit}"
        row(what, shown, f"{limits[key]}{unit}", verdicts[-1])
    for key, what in timed.items():
        verdicts.append(judged(took[key], bounds[key], bounds["room"]))
        row(what, f"{took[key]:.2f}", f"{bounds[key]:.2f}", verdicts[-1])
    broken = [verdict for verdict in verdicts if verdict in ("OVER", "none")]
    return 1 if "--check" in sys.argv and broken else 0


sys.exit(main())
