#!/usr/bin/env bash
# resume: psd and its workers are killed some time after a checkpoint and started again; under rounds the center then
# ends with the bytes of a run that nobody killed. $1: psd, $2: psworker, $3: psctl.
set -euo pipefail

psd=$(realpath "$1")
psworker=$(realpath "$2")
psctl=$(realpath "$3")
steps=600
folder=$(mktemp -d)
cd "$folder"
trap 'kill -KILL $(jobs -rp) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT

# await COMMAND...: until it succeeds; a minute at most, which ends a hang
await() {
    local waited
    for ((waited = 0; waited < 3000; waited++)); do
        ! "$@" || return 0
        sleep 0.02
    done
    return 1
}

moves() { # STATE_DIR: the center is through ten rounds
    [[ $("$psctl" --socket "$1/psd.sock" status 2>/dev/null) =~ version\ [0-9]{2} ]]
}

has_checkpoint() { # STATE_DIR
    compgen -G "$1/checkpoints/*.safetensors" >/dev/null
}

start() { # STATE_DIR PSD_OPTION...
    local state=$1 rank given=(--method "$method" --set workers=3)
    shift
    [[ ${more[0]-} != --config ]] || given=() # an option would go over the file for good
    rm -f endpoint
    "$psd" "${given[@]}" --set checkpoint.every_s=0 --set chunk_floats=16384 --state-dir "$state" \
        --endpoint-file endpoint "${more[@]}" "$@" >>psd.log 2>&1 &
    server=$!
    await test -s endpoint || fail "psd did not start"
    workers=()
    for rank in 0 1 2; do
        "$psworker" --server @endpoint --net linear --data digits --batch 16 --steps "$steps" --seed 7 --rank "$rank" \
            --state "$state/worker-$rank" >>"worker-$rank.log" 2>&1 &
        workers+=($!)
    done
}

finish() { # STATE_DIR; sum: of the last center's values
    local worker
    for worker in "${workers[@]}"; do
        wait "$worker" || fail "a worker failed"
    done
    kill -TERM "$server"
    wait "$server" || fail "psd did not end well"
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

# The workers' most steps when they went on from their states.
gone_on_after() {
    local rank
    for rank in 0 1 2; do
        grep -o 'resuming after [0-9]*' "worker-$rank.log" | tail -n 1
    done | awk '{ most = $3 > most ? $3 : most } END { print most + 0 }'
}

# The workers' states: a file that is saved again is another one.
states() { # STATE_DIR
    stat -c '%n %i' "$1"/worker-[012] 2>/dev/null || true
}

all_saved_again() { # STATE_DIR STATES_BEFORE
    [[ $(states "$1" | grep -vxFc "$2") -eq 3 ]]
}

# Kills a job after a checkpoint, and resumes it to its end. 1: the checkpoint came behind that end already.
cut_and_resume() {
    local steps_wanted=$steps before
    rm -rf cut worker-?.log
    mkdir -m 0700 cut
    steps=1000000 # as long as it takes
    start cut
    await moves cut || fail "nothing moves"
    before=$(states cut)
    "$psctl" --socket cut/psd.sock checkpoint >/dev/null
    await has_checkpoint cut || fail "no checkpoint was written"
    await all_saved_again cut "$before" || fail "the workers did not save their states"
    kill -KILL "$server" "${workers[@]}"
    wait "$server" "${workers[@]}" 2>/dev/null || true
    steps=$steps_wanted
    start cut --resume
    finish cut
    grep -q state.loaded worker-0.log || fail "worker 0 did not go on from its state"
    [[ $(gone_on_after) -lt $steps ]]
}

check() { # METHOD PSD_OPTION...
    local whole tries
    method=$1
    shift
    more=("$@")
    rm -rf whole
    mkdir -m 0700 whole
    start whole
    finish whole
    whole=$sum
    for ((tries = 0; tries < 5; tries++)); do
        ! cut_and_resume || break
    done
    [[ $tries -lt 5 ]] || fail "this machine is too slow to cut a job of $steps steps"
    [[ $whole == "$sum" ]] || fail "the center differs from that of a run without a kill"
}

has_all_states() { # STATE_DIR: what a resume needs
    has_checkpoint "$1" && [[ -s $1/worker-0 && -s $1/worker-1 && -s $1/worker-2 ]]
}

# Methods that wait for nobody refuse to be told for how many.
configure() { # METHOD
    echo "method: $1" >job.yaml
    [[ $1 == async-* || $1 == hogwild-* ]] || echo "workers: 3" >>job.yaml
}

# Changes the method in the middle of a job, and copies a checkpoint of it. 1: the job was over before.
swap_and_copy() { # METHOD NEXT_METHOD
    local changed=0
    rm -rf swapped copy
    mkdir -m 0700 swapped
    configure "$1"
    start swapped
    await moves swapped || fail "nothing moves"
    configure "$2"
    "$psctl" --socket swapped/psd.sock reload >/dev/null || changed=1
    "$psctl" --socket swapped/psd.sock checkpoint >/dev/null || true
    await has_all_states swapped || true
    if [[ $(jobs -rp | wc -l) -lt 4 ]]; then # psd and three workers
        # shellcheck disable=SC2046 # several
        kill -KILL $(jobs -rp) 2>/dev/null || true
        wait "$server" "${workers[@]}" 2>/dev/null || true
        return 1
    fi
    [[ $changed -eq 0 ]] || fail "the method did not change to $2"
    mkdir -m 0700 copy
    cp -r swapped/checkpoints swapped/worker-[012] copy
}

# The method changes in the middle; the job goes on to its end, and so does one resumed from a checkpoint of it.
check_swapped() { # METHOD NEXT_METHOD PSD_OPTION...
    local next=$2 steps_wanted=$steps whole
    method=$1
    shift 2
    more=(--config job.yaml "$@")
    steps=1500
    while ! swap_and_copy "$method" "$next"; do
        steps=$((2 * steps))
        [[ $steps -le 200000 ]] || fail "this machine is too slow to change the method of a job in time"
    done
    finish swapped
    whole=$sum
    start copy --resume
    finish copy
    grep -q 'copy/worker-0: resuming' worker-0.log || fail "worker 0 did not go on from its state"
    [[ $whole == "$sum" ]] || fail "after a change to $next the center of a resumed run differs"
    steps=$steps_wanted
}

check sync-sgd
check sync-easgd
check sync-easgd --set overlap=true
check sync-easgd --set period=8 --set overlap=8
check diloco --set period=1 --set overlap=true
check diloco --set period=10 --set overlap=8 --set codec.message=int8 --set codec.error_feedback=true
check original-easgd
check original-easgd --set serial=false --set period=4
check diloco --set period=8 --set fragments=4 --set chunk_floats=1024
check diloco --set period=9 --set fragments=4 --set overlap=9 --set chunk_floats=1024 --set mix=0.5
check diloco --set period=5 --set codec.message=int4 --set codec.error_feedback=true
check diloco --set period=8 --set fragments=4 --set overlap=5 --set chunk_floats=1024 --set codec.message=topk:0.05 \
    --set codec.answer=int4 --set codec.error_feedback=true
check backup-sgd --set backup=0
check diloco --set admission=quorum --set quorum=3 --set period=5
check_swapped async-easgd sync-sgd
check_swapped sync-sgd diloco --set chunk_floats=1024
check_swapped hogwild-sgd sync-easgd
steps=3000
check diloco --set period=64 --set overlap=64
echo "resume: same bytes"
