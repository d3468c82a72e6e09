#!/bin/sh
# link_names.sh LIBRARY FOLDER STAMP: the library in FOLDER under the names of CUDA's three.
set -eu
mkdir -p "$2"
for name in libcudart.so.13 libcublasLt.so.13 libcudnn.so.9; do
    ln -sf "$1" "$2/$name"
done
touch "$3"
