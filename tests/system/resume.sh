#!/usr/bin/env bash
# resume: psd and its workers are killed some time after a checkpoint and started again; under rounds the center then
# ends with the bytes of a run that nobody killed. $1: psd, $2: psworker, $3: psctl.
set -euo pipefail

psd=$(realpath "$1")
psworker=$(realpath "$2")
psctl=$(realpath "$3")
steps=1000
folder=$(mktemp -d)
cd "$folder"
trap 'kill -KILL $(jobs -rp) 2>/dev/null || true; rm -rf "$folder"' EXIT

start() { # STATE_DIR PSD_OPTION...
    local state=$1 rank waited given=(--method "$method" --set workers=3)
    shift
    [[ ${more[0]-} != --config ]] || given=() # an option would go over the file for good
    rm -f endpoint
    "$psd" "${given[@]}" --set checkpoint.every_s=0 --set chunk_floats=16384 --state-dir "$state" \
        --endpoint-file endpoint "${more[@]}" "$@" >>psd.log 2>&1 &
    server=$!
    for ((waited = 0; waited < 100; waited++)); do
        [[ ! -s endpoint ]] || break
        sleep 0.1
    done
    workers=()
    for rank in 0 1 2; do
        "$psworker" --server @endpoint --net linear --data digits --batch 16 --steps "$steps" --seed 7 --rank "$rank" \
            --state "$state/worker-$rank" >>"worker-$rank.log" 2>&1 &
        workers+=($!)
    done
}

finish() { # STATE_DIR; sum: of the last center's values
    wait "${workers[@]}"
    kill -TERM "$server"
    wait "$server"
    local files=("$1"/checkpoints/center-*.safetensors)
    local file=${files[-1]}
    # Eight bytes: the length of the header, which says when the file was written.
    local header
    header=$(od -An -tu8 -N8 "$file")
    sum=$(tail -c +$((header + 9)) "$file" | sha256sum)
}

fail() {
    echo "resume: $method ${more[*]}: $1" >&2
    tail -n 5 ./*.log >&2
    exit 1
}

check() { # METHOD PSD_OPTION...
    method=$1
    shift
    more=("$@")
    rm -rf whole cut
    mkdir -m 0700 whole cut
    start whole
    finish whole
    local whole=$sum waited

    steps_wanted=$steps
    steps=1000000 # as long as it takes
    start cut
    for ((waited = 0; waited < 500; waited++)); do
        [[ ! $("$psctl" --socket cut/psd.sock status 2>/dev/null) =~ version\ [0-9]{2} ]] || break
        sleep 0.02
    done
    "$psctl" --socket cut/psd.sock checkpoint >/dev/null
    for ((waited = 0; waited < 500; waited++)); do
        ! compgen -G 'cut/checkpoints/*.safetensors' >/dev/null || break
        sleep 0.02
    done
    kill -KILL "$server" "${workers[@]}"
    wait "$server" "${workers[@]}" || true
    steps=$steps_wanted
    compgen -G 'cut/checkpoints/*.safetensors' >/dev/null || fail "no checkpoint was written"
    start cut --resume
    finish cut
    grep -q state.loaded worker-0.log || fail "worker 0 did not go on from its state"
    [[ $whole == "$sum" ]] || fail "the center differs from that of a run without a kill"
}

# Everything of a checkpoint that a resume needs, as soon as it is there.
copy_checkpoint() { # FROM TO
    local waited
    for ((waited = 0; waited < 500; waited++)); do
        ! compgen -G "$1/checkpoints/*.safetensors" >/dev/null || [[ ! -s $1/worker-0 || ! -s $1/worker-1 || ! -s $1/worker-2 ]] ||
            break
        sleep 0.02
    done
    mkdir -m 0700 "$2"
    cp -r "$1/checkpoints" "$1"/worker-[012] "$2"
}

# Methods that wait for nobody refuse to be told for how many.
configure() { # METHOD
    echo "method: $1" >job.yaml
    [[ $1 == async-* || $1 == hogwild-* ]] || echo "workers: 3" >>job.yaml
}

# The method changes in the middle; the job goes on to its end, and so does one resumed from a checkpoint of it.
check_swapped() { # METHOD NEXT_METHOD PSD_OPTION...
    local next=$2 steps_wanted=$steps waited
    method=$1
    shift 2
    more=(--config job.yaml "$@")
    rm -rf swapped copy
    mkdir -m 0700 swapped
    steps=4000
    configure "$method"
    start swapped
    for ((waited = 0; waited < 500; waited++)); do
        [[ ! $("$psctl" --socket swapped/psd.sock status 2>/dev/null) =~ version\ [0-9]{2} ]] || break
        sleep 0.02
    done
    configure "$next"
    "$psctl" --socket swapped/psd.sock reload >/dev/null || fail "the method did not change to $next"
    "$psctl" --socket swapped/psd.sock checkpoint >/dev/null
    copy_checkpoint swapped copy
    finish swapped
    local whole=$sum
    start copy --resume
    finish copy
    grep -q 'copy/worker-0: going on' worker-0.log || fail "worker 0 did not go on from its state"
    [[ $whole == "$sum" ]] || fail "after a change to $next the center of a resumed run differs"
    steps=$steps_wanted
}

check sync-sgd
check sync-easgd
check sync-easgd --set overlap=true
check original-easgd
check diloco --set period=8 --set fragments=4 --set chunk_floats=1024
check diloco --set period=9 --set fragments=4 --set chunk_floats=1024 --set mix=0.5
check backup-sgd --set backup=0
check diloco --set admission=quorum --set quorum=3 --set period=5
check_swapped async-easgd sync-sgd
check_swapped sync-sgd diloco --set chunk_floats=1024
check_swapped hogwild-sgd sync-easgd
echo "resume: same bytes"
