#!/usr/bin/env bash
# records.sh GPU_CHECK FOLDER: that gpu-check refuses stages whose data are not there; what gpu-check --records says of a folder without a record, of a record of other code, of one of
# this code, and of a file that is none.
set -euo pipefail

check=$1
folder=$(mktemp -d "$2/records.XXXXXX")
trap 'rm -rf "$folder"' EXIT

# Stages whose data are not there are refused before anything runs.
refuses() { # TEXT OPTION...
    local text=$1 out rc=0
    shift
    out=$("$check" "$@" 2>&1) || rc=$?
    if [[ $rc -ne 2 || $out != *"$text"* ]]; then
        printf 'expected: 2, %s\nfound: %s, %s\n' "$text" "$rc" "$out"
        exit 1
    fi
}
refuses "the stage mnist needs --data DIR, with DIR/mnist/train-images-idx3-ubyte" mnist
refuses "the stage cifar10 needs $folder/cifar10/data_batch_1.bin, which is not there" --data "$folder" cifar10
refuses "the stage imagenette needs $folder/imagenette" --data "$folder" suite imagenette
refuses '"cats": no such option or stage' cats

says() { # TEXT
    local out
    out=$("$check" --records "$folder" 2>&1) || true
    if [[ $out != *"$1"* ]]; then
        printf 'expected: %s\nfound: %s\n' "$1" "$out"
        exit 1
    fi
}

record() { # HASH RC
    printf '{"device":"a GPU, 1.0","date":"2026-01-01T00:00:00Z","gpu_code":"%s","stages":[{"stage":"suite","rc":%d,"seconds":1}]}\n' \
        "$1" "$2" >"$folder/one.json"
}

says "has no record: the GPU code has not run on a GPU"
record 0000 0
says "a GPU, 1.0, 2026-01-01T00:00:00Z: 1 stages passed; the GPU code has CHANGED since"
code=$(cd "$(dirname "$check")/.." && find nets/cuda client/memory/cuda -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d' ' -f1)
record "$code" 0
says "1 stages passed; is this code"
record "$code" 9
says "FAILED: suite; is this code"
"$check" --records "$folder" >/dev/null
echo '{"device":1}' >"$folder/one.json"
says "one.json is no record: KeyError('stages')"
if "$check" --records "$folder" >/dev/null 2>&1; then
    echo "a file that is no record passed"
    exit 1
fi
