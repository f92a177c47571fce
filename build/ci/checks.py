"""Shared by build/ci/proxyless.py and build/ci/sinks.py: checks that are counted, and a program with its log."""

import os
import subprocess
import sys
import time

PROGRAM, FOLDER = sys.argv[1:]
DEADLINE = 40  # seconds: each wait takes one
counts = {"passed": 0, "failed": 0}


def check(what, done, more=""):
    counts["passed" if done else "failed"] += 1
    print(f"  ok      {what}" if done else f"  FAILED  {what} {more}", flush=True)


def until(true):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.01)
    return False


def contents(path):
    with open(path) as file:
        return file.read()


def replace(path, text):
    """In one step, as editors do it."""
    with open(f"{FOLDER}/.new", "w") as file:
        file.write(text)
    os.rename(file.name, path)


def start(command, log, ready):
    """Returns the process, once it is ready; its output is appended to a file."""
    with open(log, "ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    if not until(ready):
        process.kill()
        sys.exit(f"cannot start {command[1]}: {contents(log)}")
    return process


def end():
    """With the counts; without the end of gRPC's library, whose threads and channels still wait for something."""
    print(f"{counts['passed']} passed, {counts['failed']} failed", flush=True)
    sys.stderr.flush()
    os._exit(1 if counts["failed"] else 0)
