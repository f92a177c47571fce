"""Refuses a binary in which a name pattern of the linker script has matched nothing: `seldom.py BINARY SCRIPT`.

A module that was renamed would else stay resident without anybody noticing. A pattern that stands for code that only one
architecture has would be refused there, too: there is none. The binary still has its symbols.
"""

import fnmatch
import re
import struct
import sys

SHT_SYMTAB = 2


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
    begin, end = (addresses[f"pintle_seldom_{edge}"] for edge in ("begin", "end"))
    inside = [name for name, address in found if begin <= address < end]
    missed = [pattern for pattern in patterns if not fnmatch.filter(inside, pattern)]
    for pattern in missed:
        print(f"cannot accept {script}: no function is called {pattern}", file=sys.stderr)
    return 1 if missed else 0


sys.exit(main())
