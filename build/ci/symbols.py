"""Refuses a binary for its symbols: `symbols.py BINARY SCRIPT`. The binary still has its names.

* A name pattern of the linker script that has matched nothing: a module that was renamed would else stay resident without
  anybody noticing. A pattern that stands for code that only one architecture has would be refused there, too: there is none.
* A function that starts a thread. The heap has no lock, and Envoy dies with the thread that has forked it. All of std's and
  of musl's ways (`thrd_create`, SIGEV_THREAD, `aio_read`) lead to `pthread_create`, which is linked only where it is
  called; the only other one is `clone` with CLONE_THREAD, which tests/layout.rs looks for in the sources.
* A weak name that nothing defines: as the init is compiled, whoever asks whether it is there is told so, and jumps to the
  file's first byte. Those of the C library's beginning are asked for by C.
"""

import fnmatch
import re
import struct
import sys

SHT_SYMTAB = 2
STB_WEAK = 2
THREADS = {"pthread_create", "__pthread_create"}
ASKED_BY_C = {"__cxa_finalize", "__deregister_frame_info", "__register_frame_info"}


def symbols(binary):
    """Names, addresses, and which are weak and nowhere, of an ELF file of 64 bits, little-endian."""
    at, = struct.unpack_from("<Q", binary, 40)
    size, count = struct.unpack_from("<HH", binary, 58)
    # Name, type, flags, address, offset, size, link, info, alignment, size of an entry.
    sections = [struct.unpack_from("<IIQQQQIIQQ", binary, at + number * size) for number in range(count)]
    table = next(section for section in sections if section[1] == SHT_SYMTAB)
    names = sections[table[6]][4]
    for entry in range(table[4], table[4] + table[5], table[9]):
        name, info, _, section, address, _ = struct.unpack_from("<IBBHQQ", binary, entry)
        start = names + name
        absent = section == 0 and info >> 4 == STB_WEAK
        yield binary[start:binary.index(b"\0", start)].decode(), address, absent


def main():
    path, script = sys.argv[1:]
    with open(path, "rb") as file:
        found = list(symbols(file.read()))
    with open(script) as file:
        text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.DOTALL)
    patterns = re.findall(r"\.text\.(\*[^\s)]+)", text)
    if len(patterns) < 2:
        sys.exit(f"cannot find the name patterns in {script}")
    addresses = {name: address for name, address, _ in found}
    if "main" not in addresses:
        sys.exit(f"cannot find the names of {path}")
    threads = THREADS & addresses.keys()
    for name in sorted(threads):
        print(f"cannot accept {path}: it starts threads, by {name}", file=sys.stderr)
    absent = {name for name, _, absent in found if absent} - ASKED_BY_C
    for name in sorted(absent):
        print(f"cannot accept {path}: {name} is weak, and nothing defines it", file=sys.stderr)
    begin, end = (addresses.get(f"pintle_seldom_{edge}", 0) for edge in ("begin", "end"))
    inside = [name for name, address, _ in found if begin <= address < end]
    missed = [pattern for pattern in patterns if not fnmatch.filter(inside, pattern)]
    for pattern in missed:
        print(f"cannot accept {script}: no function is called {pattern}", file=sys.stderr)
    return 1 if threads or absent or missed else 0


sys.exit(main())
