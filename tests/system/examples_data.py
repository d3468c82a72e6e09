"""examples_data.py DIR TRAIN TEST: the four files of MNIST in DIR, of images that a net learns: class c is a bright patch
at a place of its own, among noise."""
import os
import random
import struct
import sys


def write(folder, name, n):
    draw = random.Random(name)
    labels = bytes(draw.randrange(10) for _ in range(n))
    with open(os.path.join(folder, name + "-images-idx3-ubyte"), "wb") as images:
        images.write(struct.pack(">IIII", 0x803, n, 28, 28))
        for label in labels:
            image = bytearray(draw.randbytes(784).translate(bytes(v // 4 for v in range(256))))
            for y in range(7):
                start = (label // 4 * 9 + y) * 28 + label % 4 * 7
                image[start:start + 7] = b"\xe0" * 7
            images.write(image)
    with open(os.path.join(folder, name + "-labels-idx1-ubyte"), "wb") as out:
        out.write(struct.pack(">II", 0x801, n) + labels)


os.makedirs(sys.argv[1])
write(sys.argv[1], "train", int(sys.argv[2]))
write(sys.argv[1], "t10k", int(sys.argv[3]))
