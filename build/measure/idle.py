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
from api_server import ApiServer

REQUESTS = 10
# A minute in which nobody asks; a part of it where a figure is to be had soon.
QUIET, QUIET_QUICKLY = 60, 10
# The machine's share of a window is not told from the role's: in one run of CI all roles took six to ten times what they take in
# every other, those without a cluster too. So a window in which one exceeds its promise is followed by whole minutes, and the least
# that a role took in one of them counts: what it does every minute or more often, it does in each.
MINUTES = 2
# Roles that read one are named after it.
API_SERVER = "API server"


def pages(server, paths):
    """Ten requests of somebody who looks in."""
    for number in range(REQUESTS):
        server.get(paths[number % len(paths)])


@contextlib.contextmanager
def places():
    """A folder, and a copy of the program in memory: from a disk the kernel maps whole blocks of its cache around each page that is
    needed, large or small as the file happened to be written or read (7.1 to 7.9 MB for copies of one program)."""
    with (
        tempfile.TemporaryDirectory(dir=measure.POD_MEMORY) as memory,
        tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE) as folder,
    ):
        yield folder, shutil.copy(gudgeon.GUDGEON, memory)


def beside_each_other(folder, program, api_server):
    """The roles, each without a cluster and with an API server."""
    role = {"program": program}
    with_server = {"program": program, "api_server": api_server}
    return {
        "injector": gudgeon.Injector(folder, "idle", **role),
        "injector, fragment": gudgeon.Injector(folder, "idle fragment", *gudgeon.FRAGMENT, **role),
        f"injector, {API_SERVER}": gudgeon.Injector(folder, "idle", **with_server),
        "discovery": discovery.Discovery(folder, 0, **role),
        f"discovery, {API_SERVER}": discovery.Discovery(folder, 0, **with_server),
        "galley": galley.Galley(folder, 0, **role),
        f"galley, {API_SERVER}": galley.Galley(folder, 0, **with_server),
        "all": gudgeon.All(folder, "idle all", **role),
        f"all, {API_SERVER}": gudgeon.All(folder, "idle all", **with_server),
    }


def look_in(folder, running):
    """The ten requests to each."""
    injection = gudgeon.review(folder, "idle review", gudgeon.pod())
    validation = galley.review(folder, "idle rule", galley.rule())
    for name, server in running.items():
        match name.split(",")[0]:
            case "injector":
                server.load(injection, REQUESTS)
            case "discovery":
                pages(server, ["/ready", "/debug/registryz", "/debug/configz"])
            case "galley":
                server.reviews(validation, REQUESTS)
            case "all":
                pages(server, ["/ready", "/metrics", "/debug"])


def window(running, seconds):
    """Of each role the ms of processor time that a quiet minute takes, by so many seconds of it."""
    before = {name: server.processor() for name, server in running.items()}
    time.sleep(seconds)
    return {name: (server.processor() - before[name]) * QUIET / seconds for name, server in running.items()}


def processors(running, seconds):
    """The same, where one exceeds its promise in the minute that disturbed the role least."""
    promised = measure.promises()["idle"]["processor"]
    found = window(running, seconds)
    minutes = []
    while max(found.values()) > promised and len(minutes) < MINUTES:
        minutes.append(window(running, QUIET))
        found = {name: min(minute[name] for minute in minutes) for name in running}
    return found


@functools.cache
def roles(quick):
    """Of each role the kB that are resident, and the ms of processor time that a quiet minute takes."""
    with places() as (folder, program), ApiServer() as api_server, contextlib.ExitStack() as stack:
        api_server.install()
        galley.certificates(folder)
        running = beside_each_other(folder, program, api_server)
        for server in running.values():
            stack.enter_context(server)
        look_in(folder, running)
        # The first second after a request is not a quiet one.
        time.sleep(1)
        took = processors(running, QUIET_QUICKLY if quick else QUIET)
        return {name: {"resident": server.resident(), "processor": took[name]} for name, server in running.items()}
