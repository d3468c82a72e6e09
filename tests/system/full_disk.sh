#!/usr/bin/env bash
# full_disk.sh BUILD: a full disk at each kind of save: who says it, how, and which exit codes come, as a table. It compares each
# with what docs/FAULTS.md promises. The last rows are of a limit on the size of files (`ulimit -f`). The disk is a small tmpfs in a
# mount namespace of its own, which needs root: else skipped.
# shellcheck disable=SC2317 # called by `row`
set -uo pipefail

if [[ ${2-} != inside ]]; then
    unshare --mount true 2>/dev/null || {
        echo "skipped: no right to make a mount namespace"
        exit 77
    }
    exec unshare --mount bash "$0" "$(realpath "$1")" inside
fi
psd=$1/server/psd psctl=$1/server/ctl/psctl psworker=$1/nets/worker/psworker
psrun=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/scripts/psrun
export PSD_BUILD=$1
dir=$(mktemp -d)
disk=$dir/disk
hang_s=$((120 * ${PSD_TEST_SLOW:-1}))
failed=0 code=0 rows=()
trap 'cd /; kill -KILL $(jobs -rp) 2>/dev/null; umount "$disk" 2>/dev/null; rm -rf "$dir"' EXIT
mkdir "$disk"
mount -t tmpfs -o size=1m tmpfs "$disk" || exit 77
cd "$dir" || exit 1

until_true() { # COMMAND...
    local end=$((SECONDS + hang_s))
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

fill() {
    dd if=/dev/zero of="$disk/fill" bs=4k 2>/dev/null
    dd if=/dev/zero of="$disk/fill-2" bs=1 count=1 2>/dev/null
}

serve() { # STATE-DIR OPTION...
    local state=$1
    shift
    "$psd" --method async-sgd --state-dir "$state" --endpoint-file "$dir/endpoint" --set checkpoint.every_s=0 "$@" 2>"$dir/psd.log" &
    psd_pid=$!
    until_true "$psctl" --socket "$state/psd.sock" status
}

train() { # OPTION...
    "$psworker" --server "@$dir/endpoint" --net linear --data digits --batch 16 --steps 20 "$@" >"$dir/psworker.log" 2>&1
}

end_of() { # PID: its exit status in $code
    code=0
    wait "$1" || code=$?
}

in_log() { # LOG EVENT: the sentence
    grep "\"event\":\"$2\"" "$dir/$1" | tail -n 1 | sed -E 's/.*"msg":"(.*)"\}$/\1/; s/^[0-9:.]+ [a-z]+ +[a-z]+ +//'
}

row() { # WHAT EXIT-CODES EXPECTED-CODES SENTENCE PART...: of the sentence, all of these
    local what=$1 codes=$2 expected=$3 sentence=$4 part
    shift 4
    sentence=${sentence//$dir\//}
    rows+=("$what|$codes|${sentence:0:230}")
    [[ $codes == "$expected" ]] || { echo "wrong: $what: $codes, not $expected" >&2; failed=1; }
    for part in "$@"; do
        [[ $sentence == *"$part"* ]] || { echo "wrong: $what: \"$sentence\" lacks \"$part\"" >&2; failed=1; }
    done
}

a_checkpoint() {
    local said status=0
    serve "$disk/state"
    train
    fill
    said=$("$psctl" --socket "$disk/state/psd.sock" checkpoint 2>&1) || status=$?
    rm "$disk"/fill*
    "$psctl" --socket "$disk/state/psd.sock" drain >/dev/null || said="no drain once there is room"
    end_of "$psd_pid"
    row "a checkpoint" "psctl $status, psd $code" "psctl 1, psd 0" "$said" "No space left on device"
}

the_last_one() {
    local said status=0
    serve "$disk/state"
    train
    fill
    said=$("$psctl" --socket "$disk/state/psd.sock" drain 2>&1) || status=$?
    end_of "$psd_pid"
    row "the last checkpoint" "psctl $status, psd $code" "psctl 1, psd 7" "$said" \
        "the last checkpoint was not written" "are lost" "No space left on device"
}

the_last_one_of_psrun() {
    local pid
    "$psrun" --workers 1 --every 0 --method async-sgd --set checkpoint.every_s=0 --run-dir "$disk/run" -- \
        psworker --net linear --data digits --steps 1000000000 --step-ms 20 >"$dir/psrun.log" 2>&1 &
    pid=$!
    until_true "$psctl" --socket "$disk/run/state-0/psd.sock" status
    until_true moved
    fill
    "$psctl" --socket "$disk/run/state-0/psd.sock" drain >/dev/null 2>&1
    end_of "$pid"
    row "the last checkpoint, under psrun" "psrun $code" "psrun 1" "$(grep "has not saved" "$dir/psrun.log")" "psd-0 has not saved the center"
}

moved() {
    "$psctl" --socket "$disk/run/state-0/psd.sock" status --json | jq -e '.center.version > 0'
}

a_workers_state() {
    serve "$dir/state"
    fill
    local status=0
    train --state "$disk/w.state" || status=$?
    "$psctl" --socket "$dir/state/psd.sock" drain >/dev/null
    end_of "$psd_pid"
    row "a worker's last state" "psworker $status, psd $code" "psworker 1, psd 0" \
        "$(in_log psworker.log state.not_saved); $(in_log psworker.log state.lost)" "No space left on device" "is not saved"
}

a_workers_history() {
    serve "$dir/state"
    train
    fill
    local status=0
    "$psworker" --server "@$dir/endpoint" --net linear --data digits --evaluate --once --history "$disk/history.jsonl" \
        >"$dir/psworker.log" 2>&1 || status=$?
    "$psctl" --socket "$dir/state/psd.sock" drain >/dev/null
    end_of "$psd_pid"
    row "an evaluator's history" "psworker $status, psd $code" "psworker 1, psd 0" \
        "$(in_log psworker.log history.failed); $(in_log psworker.log history.lacks)" "No space left on device" "incomplete"
    [[ ! -s $disk/history.jsonl ]] || { echo "wrong: a line in part" >&2; failed=1; }
}

psds_history() {
    mkdir "$dir/state"
    : >"$disk/history.jsonl"
    fill
    ln -s "$disk/history.jsonl" "$dir/state/history.jsonl"
    serve "$dir/state"
    train
    "$psctl" --socket "$dir/state/psd.sock" drain >/dev/null
    end_of "$psd_pid"
    row "psd's history" "psd $code" "psd 0" "$(in_log psd.log history.write); $(in_log psd.log history.lacks)" \
        "No space left on device" "lacks"
}

psds_events() {
    fill # folders and the names of files take no room there
    serve "$dir/state" --tensorboard "$disk"
    train
    "$psctl" --socket "$dir/state/psd.sock" drain >/dev/null
    end_of "$psd_pid"
    row "psd's events (--tensorboard)" "psd $code" "psd 0" "$(in_log psd.log tensorboard.write); $(in_log psd.log tensorboard.lacks)" \
        "No space left on device" "lacks"
}

a_workers_events() {
    serve "$dir/state"
    fill
    local status=0
    train --tensorboard "$disk" || status=$?
    "$psctl" --socket "$dir/state/psd.sock" drain >/dev/null
    end_of "$psd_pid"
    row "a worker's events (--tensorboard)" "psworker $status, psd $code" "psworker 0, psd 0" \
        "$(in_log psworker.log tensorboard.write); $(in_log psworker.log tensorboard.lacks)" "No space left on device" "lacks"
}

the_endpoint_file() {
    fill
    local status=0
    "$psd" --method async-sgd --state-dir "$dir/state" --endpoint-file "$disk/endpoint" 2>"$dir/psd.log" || status=$?
    row "the endpoint file" "psd $status" "psd 4" "$(in_log psd.log start.endpoint_file)" "endpoint file" "No space left on device"
    [[ ! -s $disk/endpoint ]] || { echo "wrong: an endpoint file in part" >&2; failed=1; }
}

a_checkpoint_over_the_limit() {
    local said status=0
    serve "$dir/state"
    train
    prlimit --pid "$psd_pid" --fsize=1024: # as `ulimit -S -f 1` before its start
    said=$("$psctl" --socket "$dir/state/psd.sock" checkpoint 2>&1) || status=$?
    prlimit --pid "$psd_pid" --fsize=unlimited:
    "$psctl" --socket "$dir/state/psd.sock" drain >/dev/null || said="no drain without the limit"
    end_of "$psd_pid"
    row "a checkpoint over \`ulimit -f\`" "psctl $status, psd $code" "psctl 1, psd 0" "$said" "File too large"
}

a_workers_state_over_the_limit() {
    serve "$dir/state"
    local status=0
    # Its log is a pipe: a file would have the same limit.
    (
        ulimit -S -f 1
        "$psworker" --server "@$dir/endpoint" --net linear --data digits --batch 16 --steps 20 --state "$disk/w.state" 2>&1
        echo "exit status $?"
    ) | cat >"$dir/psworker.log"
    status=$(sed -n 's/^exit status //p' "$dir/psworker.log")
    "$psctl" --socket "$dir/state/psd.sock" drain >/dev/null
    end_of "$psd_pid"
    row "a worker's last state over \`ulimit -f\`" "psworker $status, psd $code" "psworker 1, psd 0" \
        "$(in_log psworker.log state.not_saved); $(in_log psworker.log state.lost)" "File too large" "is not saved"
}

for save in a_checkpoint the_last_one the_last_one_of_psrun a_workers_state a_workers_history psds_history psds_events a_workers_events the_endpoint_file \
    a_checkpoint_over_the_limit a_workers_state_over_the_limit; do
    "$save"
    rm -rf "${disk:?}"/* "$dir/state" "$dir/endpoint"
done
{
    echo "a full disk at|exit codes|what is said"
    printf '%s\n' "${rows[@]}"
} | column -t -s '|' -c 300
exit "$failed"
