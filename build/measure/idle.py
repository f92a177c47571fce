"""Measures what each role of gudgeon takes when it rests: after ten requests, over a quiet minute.

All of them run at the same time, since who rests disturbs nobody. Nothing is unmapped, locked or trimmed for the figure: what the
kernel counts as resident is what is promised, the pages of the program's file among it.
"""

import contextlib
import functools
import shutil
import tempfile
import time

import discovery
import galley
import gudgeon
import measure

REQUESTS = 10
# A minute in which nobody asks; a part of it where a figure is to be had soon.
QUIET, QUIET_QUICKLY = 60, 10


def processor(pid):
    """Milliseconds that its threads have run, also those that have ended: the kernel's clock of a process has the number of its
    process, inverted, and 2 for what the scheduler counted."""
    return time.clock_gettime_ns(~pid << 3 | 2) / 1e6


def pages(server, paths):
    """Ten requests of somebody who looks in."""
    for number in range(REQUESTS):
        server.get(paths[number % len(paths)])


@functools.cache
def roles(quick):
    """Of each role the kB that are resident, and the ms of processor time that a quiet minute takes.

    The program lies in memory: from a disk the kernel maps whole blocks of its cache around each page that is needed, large or
    small as the file happened to be written or read (7.1 to 7.9 MB for copies of one program)."""
    with contextlib.ExitStack() as stack:
        memory = stack.enter_context(tempfile.TemporaryDirectory(dir=measure.POD_MEMORY))
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE))
        program = shutil.copy(gudgeon.GUDGEON, memory)
        injection = gudgeon.review(folder, "idle review", gudgeon.pod())
        galley.certificates(folder)
        validation = galley.review(folder, "idle rule", galley.rule())
        running = {
            "injector": gudgeon.Injector(folder, "idle", program=program),
            "injector, fragment": gudgeon.Injector(folder, "idle fragment", *gudgeon.FRAGMENT, program=program),
            "discovery": discovery.Discovery(folder, 0, program),
            "galley": galley.Galley(folder, 0, program),
            "all": gudgeon.All(folder, "idle all", program),
        }
        for server in running.values():
            stack.enter_context(server)
        for kind in "injector", "injector, fragment":
            running[kind].load(injection, REQUESTS)
        running["galley"].reviews(validation, REQUESTS)
        pages(running["discovery"], ["/ready", "/debug/registryz", "/debug/configz"])
        pages(running["all"], ["/ready", "/metrics", "/debug"])
        seconds = QUIET_QUICKLY if quick else QUIET
        # The first second after a request is not a quiet one.
        time.sleep(1)
        before = {name: processor(server.process.pid) for name, server in running.items()}
        time.sleep(seconds)
        return {
            name: {
                "resident": server.resident(),
                "processor": (processor(server.process.pid) - before[name]) * QUIET / seconds,
            }
            for name, server in running.items()
        }
