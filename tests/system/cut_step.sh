#!/usr/bin/env bash
# cut_step: psd ends before it has a worker's step. That step does not count, and a resumed run makes it, with the same
# batch: its center ends with the bytes of a run that nobody ended. The net has batch normalisation. $1: psd, $2: psworker,
# $3: psctl.
set -euo pipefail

psd=$(realpath "$1")
psworker=$(realpath "$2")
psctl=$(realpath "$3")
folder=$(mktemp -d)
cd "$folder"
trap 'kill -KILL $(jobs -rp) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1

fail() {
    echo "cut_step: $method: $*" >&2
    tail -n 5 ./*.log >&2
    exit 1
}

# await COMMAND...: until it succeeds; a minute at most, which ends a hang
await() {
    local waited
    for ((waited = 0; waited < 3000; waited++)); do
        ! "$@" || return 0
        sleep 0.02
    done
    fail "$* is not so"
}

start() { # STATE_DIR PSD_OPTION...
    rm -f endpoint
    "$psd" --method "$method" --set checkpoint.every_s=0 --endpoint-file endpoint --state-dir "$@" \
        "${more[@]}" >>psd.log 2>&1 &
    server=$!
    await test -s endpoint
}

# A clipping that never clips makes a gradient leave whole: psd keeps the parts of one that have arrived.
train() { # STATE_DIR PSWORKER_OPTION...
    "$psworker" --server @endpoint --net resnet8 --data synthetic:3x32x32:10 --batch 4 --threads 1 --steps 6 --seed 3 --clip-norm 1e30 \
        --state "$1/worker" "${@:2}" >worker.log 2>&1 &
    worker=$!
}

finish() { # STATE_DIR; sum: of the last center's values
    wait "$worker" || fail "the worker failed"
    kill -TERM "$server"
    wait "$server" || fail "psd did not end well"
    local files=("$1"/checkpoints/center-*.safetensors) header
    header=$(od -An -tu8 -N8 "${files[-1]}") # its length, in eight bytes; it has the time
    sum=$(tail -c +$((header + 9)) "${files[-1]}" | sha256sum)
}

has_begun() { # STATE_DIR
    [[ $("$psctl" --socket "$1/psd.sock" status 2>/dev/null) =~ version\ [1-9] ]]
}

steps_of() { # PATTERN FILE
    grep -o "$1 [0-9]*" "$2" | tail -n 1 | grep -o '[0-9]*$'
}

# Ends psd while the worker computes. 1: it was about to answer a step, which the worker will make again.
cut() {
    rm -rf cut psd.log
    mkdir -m 0700 cut
    start cut
    train cut --step-ms 1500
    await has_begun cut
    kill -TERM "$server"
    await grep -q job.draining psd.log
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" || fail "psd did not end well"
    wait "$worker" || fail "the worker failed as psd ended"
    [[ $(steps_of 'stops at version' psd.log) == "$(steps_of 'stopped after' worker.log)" ]]
}

check() { # METHOD PSD_OPTION...
    local tries whole
    method=$1
    more=("${@:2}")
    rm -rf whole
    mkdir -m 0700 whole
    start whole
    train whole
    finish whole
    whole=$sum
    for ((tries = 0; tries < 5; tries++)); do
        ! cut || break
    done
    [[ $tries -lt 5 ]] || fail "psd never ended within a step"
    grep -q 'within the next' worker.log || fail "the worker does not say that its step was not taken"
    start cut --resume
    train cut
    finish cut
    grep -q state.loaded worker.log || fail "the worker did not go on from its state"
    [[ $whole == "$sum" ]] || fail "the center differs from that of a run that nobody ended"
}

check sync-sgd
check async-sgd
check async-easgd --set period=1
