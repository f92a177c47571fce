"""Prints the number of each signal that comes, one a line, and ends with 7 at TERM. By bare system calls: the C library keeps
some numbers from 32 on to itself."""

import ctypes
import platform

PROCMASK, TIMEDWAIT = {"x86_64": (14, 128), "aarch64": (135, 137)}[platform.machine()]
call = ctypes.CDLL(None).syscall
every = ctypes.c_uint64(2**64 - 1)
assert call(PROCMASK, 0, ctypes.byref(every), None, 8) == 0
print("waiting", flush=True)
while True:
    number = call(TIMEDWAIT, ctypes.byref(every), None, None, 8)
    print("got", number, flush=True)
    if number == 15:
        raise SystemExit(7)
