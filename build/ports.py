"""Free TCP ports of loopback, for the scripts of this folder: prints one."""

import contextlib
import random
import socket


def free_port():
    """A port below the range of outgoing connections, one of which could take it before its user does."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(20000, 32000)))
            return probe.getsockname()[1]


if __name__ == "__main__":
    print(free_port())
