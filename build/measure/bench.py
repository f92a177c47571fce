"""Measures pintle beside other managers for build/measure/bench: [--minute] [--readme], and PEER in the environment."""

import datetime
import json
import os
import platform
import shlex
import signal
import statistics
import sys
import tempfile
import textwrap

import measure
import plot

STARTS, SIGNALS, STORMS, ORPHANS = 200, 1500, 15, 1000
README, PLOT = "README.md", "tests/data/bench.svg"
BEGIN, END = "<!-- build/measure/bench --readme writes from here -->", "<!-- to here -->"
NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()

# What is measured: its name, its unit and digits, what a ratio is to, and its key in build/promises.toml.
MEASURES = {
    "binary": ("size of the binary", "kB", 0, None),
    "resident": ("resident memory, idle", "kB", 0, None),
    "private": ("private dirty memory, idle", "kB", 0, None),
    "threads": ("threads", "", 0, None),
    "descriptors": ("open descriptors", "", 0, None),
    "calls": ("system calls in {quiet} quiet seconds", "", 0, None),
    "probe": ("system calls of a readiness probe", "", 0, None),
    "start_memory": ("exec to the child's main, in memory", "ms", 2, "tini-static"),
    "start_disk": ("exec to the child's main, on a disk", "ms", 2, "tini-static"),
    "signal": ("USR1 received by the child", "µs", 0, "tini"),
    "orphans": ("1,000 orphans reaped", "ms", 1, "tini"),
}
SCALE = {"ms": 1e6, "µs": 1e3}


def managers(folder, medium=measure.POD_MEMORY):
    """pintle in its two forms, then the others."""
    found = [
        measure.Proxy("pintle proxy", folder, medium=medium),
        measure.Manager("pintle init", [measure.PINTLE, "init", "--"]),
        measure.Manager("tini-static", ["tini-static", "--"]),
        measure.Manager("tini", ["tini", "--"]),
        measure.Manager("dumb-init", ["dumb-init", "--"]),
        measure.Manager("catatonit", ["catatonit", "--"]),
    ]
    peer = shlex.split(os.environ.get("PEER", ""))
    if peer:
        name = os.path.basename(peer[0])
        taken = name in [manager.name for manager in found]
        found.append(measure.Manager(f"PEER {name}" if taken else name, peer))
    return found


def progress(what):
    print(what, file=sys.stderr, flush=True)


def measured(quiet):
    """The figures of each measure by manager; a list where it was taken in turns."""
    with tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE) as folder:
        every = managers(folder)
        figures = {"binary": {one.name: os.path.getsize(one.binary()) / 1024 for one in every}}
        progress(f"counting, {quiet} quiet seconds")
        counts = measure.idle(every, quiet)
        for key in ("resident", "private", "threads", "descriptors", "calls", "probe"):
            figures[key] = {name: of[key] for name, of in counts.items() if of.get(key) is not None}
        for name, medium in measure.MEDIA.items():
            progress(f"starting, {STARTS} rounds, files in {medium}")
            os.mkdir(f"{folder}/{name}")
            starting = managers(f"{folder}/{name}", medium)
            bare = measure.Proxy("bare proxy", f"{folder}/{name}", bare=True, medium=medium)
            figures[f"start_{name}"] = measure.start(STARTS, [*starting, bare], medium)
        progress(f"signals, {SIGNALS} rounds")
        figures["signal"] = measure.signals(SIGNALS, every, signal.SIGUSR1)
        progress(f"orphans, {STORMS} rounds")
        figures["orphans"] = measure.orphans(STORMS, every, ORPHANS)
    return [one.name for one in every], figures


def spread(of):
    low, middle, high = statistics.quantiles(of, n=4)
    return {"median": statistics.median(of), "quartiles": [low, middle, high], "least": min(of), "rounds": len(of)}


def summed(figures):
    """Medians and ratios."""
    found = {}
    for key, of in figures.items():
        base = MEASURES[key][3]
        if base is None:
            found[key] = {name: {"value": value} for name, value in of.items()}
            continue
        scale = SCALE[MEASURES[key][1]]
        found[key] = {name: {"value": statistics.median(all_of) / scale, "nanoseconds": spread(all_of)}
                      for name, all_of in of.items()}
        for name, one in found[key].items():
            one["ratio"] = measure.paired(of, name, base) if key.startswith("start") else one["value"] / found[key][base]["value"]
    return found


def cell(key, one):
    """A value with its unit, and the ratio where there is one."""
    if one is None:
        return ""
    _, unit, digits, base = MEASURES[key]
    text = f"{one['value']:,.{digits}f} {unit}".strip()
    return f"{text} ({one['ratio']:.2f})" if base else text


def promise(key, promised):
    unit, base = MEASURES[key][1], MEASURES[key][3]
    if base:
        return f"{promised['ratios'][key]:.2f} × {base}"
    return f"{promised['limits'][key]} {unit}".strip() if key in promised["limits"] else ""


def title(key, quiet):
    return MEASURES[key][0].format(quiet=quiet)


def table(names, found, quiet, promised):
    """Markdown whose columns also stand below each other in a terminal."""
    rows = [["", *names, "promise of pintle proxy"]]
    for key, of in found.items():
        rows.append([title(key, quiet), *(cell(key, of.get(name)) for name in names), promise(key, promised)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        first, *rest = (text.ljust(width) if i == 0 else text.rjust(width) for i, (text, width) in enumerate(zip(row, widths)))
        lines.append("| " + " | ".join([first, *rest]) + " |")
    lines.insert(1, "|" + "|".join("-" * (width + 1) + (":" if i else "-") for i, width in enumerate(widths)) + "|")
    return "\n".join(lines)


def machine():
    """This machine in words; nobody's host name."""
    cores = len(os.sched_getaffinity(0))
    counted = NUMBERS[cores] if cores < len(NUMBERS) else str(cores)
    with open("/proc/cpuinfo") as file:
        virtual = "hypervisor" in file.read()
    plural = "core" if cores == 1 else "cores"
    where = f"{counted} shared {plural} of a virtual machine" if virtual else f"{counted} {plural}"
    release = ".".join(platform.release().split("-")[0].split(".")[:2])
    return f"{where}, {platform.machine()}, Linux {release}"


def method(found, day):
    bare = found["start_memory"]["bare proxy"]
    return textwrap.fill(
        f"Measured with `build/measure/bench` on {day}, on {machine()}. Times are medians of {STARTS} single starts, {SIGNALS:,} "
        f"signals and {STORMS} storms of {ORPHANS:,} orphans, all programs in turns, each as PID 1 of a namespace of its own; in "
        "brackets the ratio to tini-static (starts: the median of the ratios of each round) or tini (the others). Each start "
        "is that of a file that was copied for it, in memory or on a disk. `pintle proxy` wrote its bootstrap beside it, "
        "hashed six certificates and opened its status port before the child started; without these three it took, in "
        f"memory, {bare['value']:.2f} ms ({bare['ratio']:.2f}). Its memory, calls and descriptors are those with all features on "
        "beside a LIVE Envoy: two companions, say, and a log file. The others are Debian's packages. kB is 1024 bytes.",
        120, break_on_hyphens=False, break_long_words=False,
    )


def panels(names, found, promised):
    """Returns the rows of the plot."""
    for key in ("binary", "resident", "private", "start_memory", "start_disk", "signal", "orphans"):
        what, unit, digits, base = MEASURES[key]
        limit = promised["limits"].get(key)
        if base:
            limit = promised["ratios"][key] * found[key][base]["value"]
        bars = [(name, found[key][name]["value"]) for name in names]
        yield plot.Panel(f"{what}, {unit}", bars, limit, digits)


def into_readme(text):
    with open(README) as file:
        readme = file.read()
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        measure.fail(f"find the place in {README}: {BEGIN}")
    before, rest = readme.split(BEGIN)
    _, after = rest.split(END)
    with open(README, "w") as file:
        file.write(f"{before}{BEGIN}\n{text}\n{END}{after}")


def main():
    known = {"--minute", "--readme"}
    if unknown := set(sys.argv[1:]) - known:
        measure.fail(f"understand {' '.join(sorted(unknown))}: build/measure/bench [--minute] [--readme]")
    if "--readme" in sys.argv and os.environ.get("PEER"):
        measure.fail(f"write {README} with PEER: it names only what everybody can install")
    load, cores = os.getloadavg()[0], os.cpu_count()
    if load > cores / 2:
        progress(f"others are busy here (load {load:.1f} on {cores} cores): times will be noisy, also their ratios")
    quiet = 60 if "--minute" in sys.argv else 10
    promised = measure.promises()
    names, figures = measured(quiet)
    found = summed(figures)
    day = datetime.date.today().isoformat()
    shown, how = table(names, found, quiet, promised), method(found, day)
    drawn = plot.svg(f"pintle beside other inits, {day}, {machine()}", list(panels(names, found, promised)))
    with open("target/bench/bench.json", "w") as file:
        json.dump({"date": day, "machine": machine(), "quiet_seconds": quiet, "managers": names, "measures": found}, file,
                  indent=1, ensure_ascii=False)
    with open("target/bench/bench.svg", "w") as file:
        file.write(drawn)
    print(f"{shown}\n\n{how}\n\ntarget/bench/bench.svg target/bench/bench.json")
    if "--readme" in sys.argv:
        with open(PLOT, "w") as file:
            file.write(drawn)
        into_readme(f"![Bars of the table below: {', '.join(names)}]({PLOT})\n\n{shown}\n\n{how}")


main()
