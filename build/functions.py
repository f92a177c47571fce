"""The functions of an ELF file, for the order in which gudgeon is linked."""

import re
import struct

SYMBOL_TABLE, FUNCTION = 2, 2
# Bytes from which on a function counts as large: build/resident.txt says whether it runs.
LARGE = 1024


def functions(path):
    """The name, address and size of each function that the file's symbol table has."""
    with open(path, "rb") as file:
        elf = file.read()
    if elf[:6] != b"\x7fELF\x02\x01":
        return
    at, entry, count = struct.unpack_from("<40xQ10xHH", elf)
    # More sections than the head can count: the first one says how many.
    count = count or struct.unpack_from("<32xQ", elf, at)[0]
    sections = [struct.unpack_from("<4xI16xQQI20x", elf, at + number * entry) for number in range(count)]
    for kind, begin, size, link in sections:
        if kind == SYMBOL_TABLE:
            names = sections[link][1]
            for name, info, address, length in struct.iter_unpack("<IB3xQQ", elf[begin : begin + size]):
                if info & 15 == FUNCTION and length:
                    end = elf.index(b"\0", names + name)
                    yield elf[names + name : end].decode(), address, length


def lasting(symbol):
    """A v0 mangled name without what another compiler or version changes in it: hashes of crates, and references to earlier
    bytes of the name, which are numbers of bytes."""
    return re.sub("B[0-9A-Za-z]{0,2}_", "B_", re.sub("Cs[0-9A-Za-z]{8,12}_", "C", symbol))
