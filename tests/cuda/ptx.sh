#!/bin/sh
# ptx.sh NVCC ROOT SOURCE: passes if the kernels of SOURCE, compiled as the build does, round every product and sum. PTX without
# ".rn" leaves it to ptxas to fuse them, and then the bits are not those of the CPU.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1" -std=c++17 -O2 -fmad=false -I "$2" -ptx "$2/$3" -o "$folder/kernels.ptx"
if grep -nE '\b(fma|mad)\.|\b(add|sub|mul)\.f32|\.ftz|\.approx' "$folder/kernels.ptx" | grep -vE 'mad\.(lo|hi|wide)\.[su](32|64)'; then
    echo "ptx.sh: $3: these operations are not rounded one by one"
    exit 1
fi
kernels=$(grep -c '^\.visible \.entry' "$folder/kernels.ptx")
rounded=$(grep -cE '\b(add|sub|mul)\.rn\.f32' "$folder/kernels.ptx")
echo "$kernels kernels, $rounded products and sums, each rounded"
[ "$kernels" -ge 9 ] && [ "$rounded" -ge 30 ]
