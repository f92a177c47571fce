"""Measures the release binary for build/promises: [--quick] [--check]."""

import os
import signal
import sys
import tempfile

import measure

STARTS, SIGNALS, STORMS, ORPHANS = 400, 1500, 15, 1000
# A ratio that is over is measured again, so often in all: a neighbour who comes for some seconds breaks no promise.
TRIES = 3


def row(what, measured, promise, verdict):
    print(f"| {what:56} | {measured:>10} | {promise:>8} | {verdict:6} |")


def against(figures, name, base):
    found = measure.medians(figures)
    return found[name] / found[base]


def ratios(proxy, static, tini, bounds):
    """The least of the tries."""
    each = {
        "start": lambda: against(measure.start(STARTS, [proxy, static]), proxy.name, static.name),
        "signal": lambda: against(measure.signals(SIGNALS, [proxy, tini], signal.SIGUSR1), proxy.name, tini.name),
        "orphans": lambda: against(measure.orphans(STORMS, [proxy, tini], ORPHANS), proxy.name, tini.name),
    }
    found = {}
    for name, measured in each.items():
        found[name] = measured()
        for _ in range(1, TRIES):
            if judged(found[name], bounds[name]) == "holds":
                break
            found[name] = min(found[name], measured())
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
        static = measure.Manager("tini-static", ["tini-static", "--"])
        tini = measure.Manager("tini", ["tini", "--"])
        found = measure.idle([proxy], quiet)[proxy.name]
        found["binary"] = os.path.getsize(measure.PINTLE) / 1024
        took = ratios(proxy, static, tini, bounds)
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
        "start": "exec to the proxy's main, ratio to tini-static",
        "signal": "USR1 to the proxy, ratio to tini",
        "orphans": f"{ORPHANS} orphans reaped, ratio to tini",
    }
    verdicts = []
    row("what", "measured", "promise", "")
    print("|" + "|".join("-" * width for width in (58, 12, 10, 8)) + "|")
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
