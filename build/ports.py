"""Free TCP ports of loopback, for the scripts of this folder: prints one.

What takes port 0 and says what it got needs none of these.
"""

import contextlib
import fcntl
import os
import socket

# Below the range of outgoing connections, one of which could take a port before its user does. The tests have those above.
FIRST, COUNT = 20000, 6000
LAST_GIVEN = f"{os.environ.get('CARGO_TARGET_DIR', 'target')}/last-port"


def free_port():
    """One after the other, whoever asks: the user of the port before may not have bound it yet."""
    os.makedirs(os.path.dirname(LAST_GIVEN), exist_ok=True)
    with open(LAST_GIVEN, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        given = file.read()
        step = int(given) if given.isdecimal() else os.getpid()
        for _ in range(COUNT):
            step = (step + 1) % COUNT
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", FIRST + step))
                file.truncate(0)
                file.write(str(step))
                return FIRST + step
    raise OSError(f"cannot find a free port of {FIRST} to {FIRST + COUNT - 1}")


if __name__ == "__main__":
    print(free_port())
