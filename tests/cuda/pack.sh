#!/usr/bin/env bash
# pack.sh GPU_PACK BUILD FOLDER: that what gpu-pack packs needs nothing of the build, that its programs start and find the cuda
# backend, and what it refuses.
set -euo pipefail

pack=$1 build=$2
folder=$(mktemp -d "$3/pack.XXXXXX")
trap 'rm -rf "$folder"' EXIT

fail() {
    printf '%s\n' "$*"
    exit 1
}

refuses() { # TEXT ARGUMENT...
    local text=$1 out
    shift
    ! out=$("$pack" "$@" 2>&1) || fail "gpu-pack $* is not refused"
    [[ $out == *"$text"* ]] || fail "expected: $text; found: $out"
}
refuses usage "$build"
refuses "must be a compiled build with the cuda backend" "$folder" "$folder/new"
refuses "$folder exists" "$build" "$folder"

"$pack" "$build" "$folder/packed" >/dev/null
export LD_LIBRARY_PATH=$folder/packed/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
libraries=$(find "$folder/packed" -type f -exec ldd {} + 2>/dev/null)
outside=$(grep -F "$(realpath "$build")/" <<<"$libraries" | grep -vF "$(realpath "$folder")/") || true
[[ -z $outside ]] || fail "taken from the build: $outside"
missing=$(awk '/not found/ && !/lib(cuda|cudart|cublas|cublasLt|cudnn|nccl)\.so/' <<<"$libraries")
[[ -z $missing ]] || fail "not packed: $missing"

"$folder/packed/server/psd" --version >/dev/null
"$folder/packed/tests/bench/psbench" --help >/dev/null
# Where there is no GPU, the module itself says so.
if ! out=$("$folder/packed/nets/worker/psworker" --describe linear --batch 1 --backend cuda 2>&1); then
    [[ $out == *CUDA* || $out == *GPU* ]] || fail "psworker: $out"
    [[ $out != *"cannot open"* && $out != *"No such file"* ]] || fail "psworker: $out"
fi
