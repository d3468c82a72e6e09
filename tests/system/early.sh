#!/usr/bin/env bash
# early: workers of psd send their gradients chunk by chunk while they compute the rest; center and states end with the
# bytes of a job that sent them whole, which a clipping that never clips makes it do. The net has batch normalisation,
# whose statistics travel with the chunks. $1: psd, $2: psworker.
set -euo pipefail

psd=$(realpath "$1")
psworker=$(realpath "$2")
folder=$(mktemp -d)
cd "$folder"
trap 'kill -KILL $(jobs -rp) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1

fail() {
    echo "early: $*" >&2
    tail -n 5 ./*.log >&2
    exit 1
}

start() { # NAME PSD-OPTION...
    local name=$1 waited
    shift
    rm -f endpoint
    "$psd" --set lanes=2 --set chunk_floats=1024 --set checkpoint.every_s=0 --state-dir "$name" --endpoint-file endpoint \
        "$@" >"$name-psd.log" 2>&1 &
    server=$!
    for ((waited = 0; waited < 3000; waited++)); do
        [[ ! -s endpoint ]] || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.02
    done
    fail "psd did not start"
}

values() { # NAME: a sum of the last center's values
    local files=("$1"/checkpoints/center-*.safetensors) header
    header=$(od -An -tu8 -N8 "${files[-1]}") # its length, in eight bytes; it has the time
    tail -c +$((8 + header + 1)) "${files[-1]}" | sha256sum
}

train() { # NAME WORKERS PSD-OPTION... -- PSWORKER-OPTION...
    local name=$1 n=$2 rank given=() workers=()
    shift 2
    while [[ $1 != -- ]]; do
        given+=("$1")
        shift
    done
    shift
    start "$name" "${given[@]}"
    for ((rank = 0; rank < n; rank++)); do
        "$psworker" --server @endpoint --net resnet8 --data synthetic:3x32x32:10 --batch 4 --threads 1 --steps 6 --seed 3 \
            --rank "$rank" --state "$name-$rank" "$@" >"$name-$rank.log" 2>&1 &
        workers+=($!)
    done
    for rank in "${!workers[@]}"; do
        wait "${workers[rank]}" || fail "worker $rank of $name failed"
    done
    kill -TERM "$server"
    wait "$server" || fail "psd did not end well"
}

check() { # WORKERS PSD-OPTION...
    local n=$1 rank
    shift
    train whole "$n" "$@" -- --clip-norm 1e30
    train parts "$n" "$@" --
    [[ $(values whole) == "$(values parts)" ]] || fail "$*: the center has other bytes"
    for ((rank = 0; rank < n; rank++)); do
        cmp "whole-$rank" "parts-$rank" || fail "$*: worker $rank ends with other bytes"
    done
    rm -rf whole* parts*
}

check 1 --method async-msgd --set weight_decay=0.001
check 1 --method async-sgd --set 'codec={message: int8, answer: fp16, error_feedback: true}'
check 3 --method sync-sgd --set workers=3
