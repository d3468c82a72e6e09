#!/usr/bin/env bash
# cut_step: psd ends before it has a worker's step. That step does not count, and a resumed run makes it, with the same
# batch: its center ends with the bytes of a run that nobody ended. Of a worker that waits for another one psd takes
# nothing either. Parts of a step that have arrived stay, and psd says so. The net has batch normalisation. $1: psd,
# $2: psworker, $3: psctl.
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

train() { # STATE_DIR PSWORKER_OPTION...
    local rank slow=("${@:2}")
    workers=()
    for ((rank = 0; rank < n; rank++)); do
        "$psworker" --server @endpoint --net resnet8 --data synthetic:3x32x32:10 --batch 4 --threads 1 --steps 6 --seed 3 \
            "${whole[@]}" --rank "$rank" --state "$1/worker-$rank" "${slow[@]}" >"worker-$rank.log" 2>&1 &
        workers+=($!)
        slow=()
    done
}

join() {
    local rank
    for rank in "${!workers[@]}"; do
        wait "${workers[rank]}" || fail "worker $rank failed"
    done
}

finish() { # STATE_DIR; sum: of the last center's values
    join
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

# Ends psd while worker 0 computes, when COMMAND says so.
cut() { # COMMAND...
    rm -rf cut psd.log
    mkdir -m 0700 cut
    start cut
    train cut --step-ms 1500
    await "$@"
    kill -TERM "$server"
    await grep -q job.draining psd.log
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" || fail "psd did not end well"
    join
}

# False: psd had taken a step, and was about to answer it, which a worker will make again.
took_as_many() {
    local rank
    for ((rank = 0; rank < n; rank++)); do
        [[ $(steps_of 'stopped after' "worker-$rank.log") == "$(steps_of 'stops at version' psd.log)" ]] || return 1
    done
}

check() { # METHOD WORKERS PSD_OPTION...
    local tries unbroken
    method=$1 n=$2
    more=("${@:3}")
    rm -rf unbroken
    mkdir -m 0700 unbroken
    start unbroken
    train unbroken
    finish unbroken
    unbroken=$sum
    for ((tries = 0; tries < 5; tries++)); do
        cut has_begun cut
        ! took_as_many || break
    done
    [[ $tries -lt 5 ]] || fail "psd never ended within a step"
    grep -q 'within the next' worker-0.log || fail "the worker does not say that its step was not taken"
    ! grep -q checkpoint.parts psd.log || fail "psd says that it has parts of a step"
    start cut --resume
    train cut
    finish cut
    grep -q state.loaded worker-0.log || fail "the worker did not go on from its state"
    [[ $unbroken == "$sum" ]] || fail "the center differs from that of a run that nobody ended"
}

chunks() { # STATE_DIR: that the rule has moved
    "$psctl" --socket "$1/psd.sock" metrics | sed -n 's/^psd_chunks_applied_total.* //p' | awk '{ n += $1 } END { print n }'
}

has_parts() { # CHUNKS: more than so many
    has_begun cut && [[ $(chunks cut) -gt $1 ]]
}

# A clipping that never clips makes a gradient leave whole.
whole=(--clip-norm 1e30)
check sync-sgd 1
check sync-sgd 2 --set workers=2
check async-sgd 1
check async-easgd 1 --set period=1

# Else the chunks of the last layers have arrived and moved the center before the first layers' are computed.
whole=()
method=sync-sgd n=1 more=(--set chunk_floats=1024)
rm -rf one
mkdir -m 0700 one
start one
train one --steps 1
join
a_step=$(chunks one)
kill -TERM "$server"
wait "$server" || fail "psd did not end well"
cut has_parts "$a_step"
grep -q checkpoint.parts psd.log || fail "psd does not say that it has parts of a step"
