#!/usr/bin/env bash
# buckets: workers of one clique send their gradients in parts while they compute the rest; their states end with the bytes
# of a job that sent them whole. The net has batch normalisation, whose statistics travel with the parts. $1: psworker.
set -euo pipefail

psworker=$(realpath "$1")
folder=$(mktemp -d)
cd "$folder"
trap 'kill -KILL $(jobs -rp) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1

train() { # NAME OPTION...
    local name=$1 member workers=()
    shift
    for member in 0 1 2; do
        "$psworker" --net resnet8 --data synthetic:3x32x32:10 --batch 4 --threads 1 --steps 8 --seed 3 --warmup 0 \
            --clique ring --members 3 --member "$member" --rendezvous "file:$folder/$name-ring" \
            --state "$name-$member" "$@" >"$name-$member.log" 2>&1 &
        workers+=($!)
    done
    for member in 0 1 2; do
        wait "${workers[member]}" || fail "member $member failed"
    done
}

fail() {
    echo "buckets: $*" >&2
    tail -n 5 ./*.log >&2
    exit 1
}

check() { # OPTION...
    local member
    train whole --bucket-floats 1000000000 "$@"
    train parts --bucket-floats 1 --links 3 "$@"
    for member in 0 1 2; do
        cmp "whole-$member" "parts-$member" || fail "$*: member $member ends with other bytes"
    done
    rm -f whole-* parts-*
}

check --method d-sync
check --method pipe-sgd --pipeline-warmup 2
check --method d-sync --codec int8
check --method d-sync --accumulate 2 --clip-norm 0.5
