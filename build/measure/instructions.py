"""Counts the instructions of a review and of a push, for build/promises.

Unlike a time, a count is hardly moved by neighbours, so that a tenth more is seen. Each server runs under valgrind, which counts
for the whole life of a process: what one review costs is the difference between a run with many and a run with few.
"""

import concurrent.futures
import multiprocessing
import re
import signal
import tempfile
import time
from functools import partial

import discovery
import galley
import gudgeon
import measure

# Reviews and changes, with few and with many.
REVIEWS, CHANGES = (100, 400), (2, 10)
# Services and proxies: what one more proxy costs does not depend on how many there are.
SERVICES, PROXIES = 100, (10, 50)
VALGRIND = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]


def instructions(server, work):
    """Of all of the server's life, with that work of its clients in it."""
    log = f"{server.folder}/instructions"
    # Each look whether it is ready is counted, too.
    server.PAUSE = 1
    server.command = [*VALGRIND, f"--log-file={log}", *server.command]
    with server:
        work()
        # The second signal cuts the drain short: two that come at once are one.
        server.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + measure.DEADLINE_SECONDS
        while "draining" not in measure.contents(server.log.name):
            if time.monotonic() > deadline:
                measure.fail(f"end {server.name}")
            time.sleep(0.05)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(measure.DEADLINE_SECONDS)
        found = re.search(r"I +refs: +([\d,]+)", measure.contents(log))
    return int(found[1].replace(",", "")) if found else measure.fail(f"count the instructions of {server.name}")


def work_of(folder):
    """By what is counted: servers with their work, few and much of it, and how often it is done more."""
    pod = gudgeon.review(folder, "instructions", gudgeon.pod())
    rule = galley.review(folder, "instructions of a rule", galley.rule())
    few, many = REVIEWS
    for name, config in ("built-in", []), ("fragment", gudgeon.FRAGMENT):
        servers = [gudgeon.Injector(folder, f"{name}, counted", *config) for _ in REVIEWS]
        yield f"review, {name} template", [(server, partial(server.load, pod, count)) for server, count in zip(servers, REVIEWS)], many - few
    servers = [galley.Galley(folder, 1) for _ in REVIEWS]
    yield "review of a rule", [(server, partial(server.reviews, rule, count)) for server, count in zip(servers, REVIEWS)], many - few
    few, many = CHANGES
    for variant in "state", "delta":
        for proxies in PROXIES:
            servers = [discovery.Discovery(folder, SERVICES) for _ in CHANGES]
            loads = [(server, partial(server.load, proxies, count, variant=variant)) for server, count in zip(servers, CHANGES)]
            yield (variant, proxies), loads, many - few


def counted():
    """Instructions of each review, and of each push of an endpoint to one more proxy."""
    with tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE) as folder:
        galley.certificates(folder)
        # Processes, for each starts others on a core of their own: Python may not do that beside threads.
        with concurrent.futures.ProcessPoolExecutor(4, multiprocessing.get_context("fork")) as pool:
            running = [(what, [pool.submit(instructions, *one) for one in pair], more) for what, pair, more in work_of(folder)]
            each = {what: (many.result() - few.result()) / more for what, (few, many), more in running}
    few, many = PROXIES
    pushes = {
        f"push of an endpoint, {variant}": (each.pop((variant, many)) - each.pop((variant, few))) / (many - few)
        for variant in ("state", "delta")
    }
    return each | pushes
