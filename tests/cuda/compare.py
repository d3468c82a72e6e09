#!/usr/bin/env python3
"""compare.py CENTER CENTER: fails unless the float32 values of two safetensors files are within 1e-5 of the largest."""
import array
import json
import struct
import sys


def values(path):
    with open(path, "rb") as f:
        length = struct.unpack("<Q", f.read(8))[0]
        tensors = {k: v for k, v in json.loads(f.read(length)).items() if k != "__metadata__"}
        data = f.read()
    out = {}
    for name, t in tensors.items():
        first, end = t["data_offsets"]
        if t["dtype"] == "F32":
            out[name] = array.array("f", data[first:end])
    return out


def main():
    a, b = values(sys.argv[1]), values(sys.argv[2])
    if a.keys() != b.keys() or not a:
        sys.exit(f"other tensors: {sorted(a)} and {sorted(b)}")
    largest = max(abs(v) for t in a.values() for v in t)
    apart = max(abs(v - w) for k in a for v, w in zip(a[k], b[k]))
    if not apart <= 1e-5 * largest:
        sys.exit(f"{apart} apart, where the largest value is {largest}")


main()
