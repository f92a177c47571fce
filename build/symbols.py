"""Refuses a binary for its symbols: `symbols.py BINARY SCRIPT`. The binary still has its names.

* A name pattern of the linker script that has matched nothing: a module that was renamed would else stay resident without
  anybody noticing. A pattern that stands for code that only one architecture has would be refused there, too: there is none.
* A function that starts a thread. The heap has no lock, and Envoy dies with the thread that has forked it. All of std's and
  of musl's ways (`thrd_create`, SIGEV_THREAD, `aio_read`) lead to `pthread_create`, which is linked only where it is
  called; the only other one is `clone` with CLONE_THREAD, which tests/layout.rs looks for in the sources.
"""

import fnmatch
import re
import struct
import sys

SHT_SYMTAB = 2
THREADS = {"pthread_create", "__pthread_create"}


def symbols(binary):
    """Names and addresses, of an ELF file of 64 bits, little-endian."""
    at, = struct.unpack_from("<Q", binary, 40)
    size, count = struct.unpack_from("<HH", binary, 58)
    # Name, type, flags, address, offset, size, link, info, alignment, size of an entry.
    sections = [struct.unpack_from("<IIQQQQIIQQ", binary, at + number * size) for number in range(count)]
    table = next(section for section in sections if section[1] == SHT_SYMTAB)
    names = sections[table[6]][4]
    for entry in range(table[4], table[4] + table[5], table[9]):
        name, _, _, _, address, _ = struct.unpack_from("<IBBHQQ", binary, entry)
        start = names + name
        yield binary[start:binary.index(b"\0", start)].decode(), address


def main():
    path, script = sys.argv[1:]
    with open(path, "rb") as file:
        found = list(symbols(file.read()))
    with open(script) as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    patterns = re.findall(r"\.text\.(\*[^\s)]+)", text)
    if len(patterns) < 2:
        sys.exit(f"cannot find the name patterns in {script}")
    addresses = dict(found)
    if "main" not in addresses:
        sys.exit(f"cannot find the names of {path}")
    threads = THREADS & addresses.keys()
    for name in sorted(threads):
        print(f"cannot accept {path}: it starts threads, by {name}", file=sys.stderr)
    begin, end = (addresses.get(f"pintle_seldom_{edge}", 0) for edge in ("begin", "end"))
    inside = [name for name, address in found if begin <= address < end]
    missed = [pattern for pattern in patterns if not fnmatch.filter(inside, pattern)]
    for pattern in missed:
        print(f"cannot accept {script}: no function is called {pattern}", file=sys.stderr)
    return 1 if threads or missed else 0


sys.exit(main())
