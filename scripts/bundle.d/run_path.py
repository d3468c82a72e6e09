"""run_path.py FILE...: turns the DT_RUNPATH of 64-bit little-endian ELF files into a DT_RPATH.

The loader searches a program's DT_RPATH also for what its libraries need, and before LD_LIBRARY_PATH.
"""

import struct
import sys

PT_DYNAMIC = 2
DT_NULL, DT_RPATH, DT_RUNPATH = 0, 15, 29


def dynamic_section(data):
    """Offset and size of the dynamic entries."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no 64-bit little-endian ELF file")
    (at,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for header in range(at, at + size * count, size):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, header)
        if kind == PT_DYNAMIC:
            return offset, length
    raise ValueError("no dynamic section")


def turn(data):
    offset, length = dynamic_section(data)
    for at in range(offset, offset + length, 16):
        (tag,) = struct.unpack_from("<Q", data, at)
        if tag == DT_RPATH:
            return
        if tag == DT_RUNPATH:
            struct.pack_into("<Q", data, at, DT_RPATH)
            return
        if tag == DT_NULL:
            break
    raise ValueError("no run path")


for name in sys.argv[1:]:
    with open(name, "rb") as file:
        content = bytearray(file.read())
    if not content.startswith(b"\x7fELF"):
        continue  # a script
    try:
        turn(content)
    except (ValueError, struct.error) as error:
        sys.exit(f"run_path: {name}: {error}")
    with open(name, "r+b") as file:
        file.write(content)
