"""Writes build/resident.txt, by which build/link-ordered links gudgeon: the large functions that its roles run from their start
until the end of a quiet minute, with ten requests of each.

    cargo build --locked --profile gudgeon-dev -p gudgeon-load -p gudgeon-mesh-load
    build/dist x86_64 gudgeon && PYTHONPATH=build python3 build/measure/resident.py

It takes valgrind, which tells which functions a program calls, and a few minutes. A list that is old costs memory and nothing
else; the rows of roles at rest in build/promises say when it is too old.
"""

import contextlib
import os
import re
import subprocess
import tempfile
import time

import galley
import gudgeon
import idle
import measure
from api_server import ApiServer
from functions import LARGE, functions, lasting

LIST = "build/resident.txt"


def called(profile):
    """The functions that a profile of callgrind has a cost of."""
    named = re.findall(r"^(?:c?fn)=\((\d+)\)(?: (.*))?$", measure.contents(profile), re.MULTILINE)
    names = {number: name for number, name in named if name}
    ran = re.findall(r"^fn=\((\d+)\)", measure.contents(profile), re.MULTILINE)
    # A function that calls itself has a name for each depth.
    return {names[number].partition("'")[0] for number in ran}


def profiles(program):
    """The profile of each role, once it has rested."""
    with (
        tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE) as folder,
        ApiServer() as api_server,
        contextlib.ExitStack() as stack,
    ):
        api_server.install()
        galley.certificates(folder)
        running = idle.beside_each_other(folder, program, api_server)
        for server in running.values():
            profile = f"--callgrind-out-file={server.folder}/profile"
            server.command = ["valgrind", "--tool=callgrind", "--demangle=no", profile, *server.command]
            server.PAUSE = 1
            stack.enter_context(server)
        idle.look_in(folder, running)
        time.sleep(idle.QUIET)
        for server in running.values():
            # The end of a role is no part of it.
            subprocess.run(["callgrind_control", "--dump", str(server.process.pid)], check=True, stdout=subprocess.DEVNULL)
            yield called(f"{server.folder}/profile.1")


def ordered(found, roles):
    """The large ones of functions that run, those of most roles first, and those of the same roles beside each other. Functions
    whose code is the same are one, which has a place and all of their names. Those of C lie apart."""
    places = [{place for name, place, _ in found if name in ran} for ran in roles]
    runs = {lasting(name): [place in role for role in places] for name, place, size in found if size >= LARGE and name.startswith("_R")}
    return sorted((name for name in runs if any(runs[name])), key=lambda name: (-sum(runs[name]), runs[name], name))


def main():
    with tempfile.TemporaryDirectory(dir=measure.QUIET_PLACE) as folder:
        program = f"{folder}/gudgeon"
        subprocess.run(["objcopy", "--strip-debug", f"{gudgeon.GUDGEON}.debug", program], check=True)
        os.chmod(program, 0o755)
        names = ordered(list(functions(program)), list(profiles(program)))
    with open(LIST, "w") as file:
        file.writelines(f"{name}\n" for name in names)
    print(f"{LIST}: {len(names)} functions")


if __name__ == "__main__":
    main()
