#!/usr/bin/env bash
# tensorboard.sh PSD PSWORKER PSCTL: the event files of a job of two workers and an evaluator, also across a kill of psd and a
# resume, read by TensorBoard itself. PSD_TEST_PYTHON names a Python that has it; else python3 and /usr/bin/python3 are looked at.
set -euo pipefail

reader=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/read_events.py
python=
for candidate in ${PSD_TEST_PYTHON:-python3 /usr/bin/python3}; do
    if "$candidate" -c "import tensorboard.backend.event_processing.event_accumulator" 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [[ -z $python ]]; then
    echo "skipped: no python3 has tensorboard; PSD_TEST_PYTHON names one that does"
    exit 77
fi
psd=$(realpath "$1") psworker=$(realpath "$2") psctl=$(realpath "$3")
folder=$(mktemp -d)
cd "$folder"
trap 'kill -KILL $(jobs -rp) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT

fail() {
    echo "wrong: $*"
    tail -n 5 ./*.log
    exit 1
}

until_true() { # COMMAND...
    local end=$((SECONDS + 120 * ${PSD_TEST_SLOW:-1}))
    until "$@"; do
        ((SECONDS < end)) || fail "never: $*"
        sleep 0.05
    done
}

version_is_above() { # N
    local status version
    status=$("$psctl" --socket state/psd.sock status --json 2>/dev/null) || return 1
    version=$(jq .center.version <<<"$status")
    ((version > $1))
}

read_all() {
    "$python" "$reader" board 2>reader.log
}

wanted=("psd loss scalars" "psd distance scalars" "psd staleness scalars" "psd center_norm scalars" "psd test_accuracy scalars"
    "psd staleness_of_exchanges histograms" "psd distance_of_exchanges histograms" "worker-0 loss scalars"
    "worker-1 images_per_s scalars" "worker-1 seconds/exchange scalars" "evaluator test_accuracy scalars")

shows_all() {
    local line
    read_all >read.txt || fail "$(cat reader.log)"
    for line in "${wanted[@]}"; do
        grep -q "^$line " read.txt || return 1
    done
}

serve() { # OPTION...
    rm -f endpoint
    "$psd" --method async-easgd --set period=4 --set alpha=0.1 --set checkpoint.every_s=0 --state-dir state \
        --endpoint-file endpoint --tensorboard board "$@" 2>>psd.log &
    server=$!
    until_true test -s endpoint
}

serve
for rank in 0 1; do
    "$psworker" --server @endpoint --net linear --data digits --batch 8 --steps 1000000000 --step-ms 1 --rank "$rank" \
        --tensorboard board >"worker-$rank.log" 2>&1 &
done
"$psworker" --server @endpoint --net linear --data digits --evaluate --every 0.5 --tensorboard board >evaluator.log 2>&1 &
until_true version_is_above 20
"$psctl" --socket state/psd.sock checkpoint >checkpoint.txt || fail "no checkpoint"
checkpointed=$("$psctl" --socket state/psd.sock status --json | jq .checkpoint.last_version)
until_true version_is_above $((checkpointed + 100))
until_true shows_all
kill -KILL "$server"
wait "$server" 2>/dev/null || true

# What psd goes back to, TensorBoard shows from the second file.
serve --resume
until_true version_is_above $((checkpointed + 100))
until_true shows_all
"$psctl" --socket state/psd.sock drain >/dev/null || fail "no drain"
wait || true
shows_all || fail "TensorBoard does not show all: $(cat read.txt)"
"$python" - board "$checkpointed" <<'END' || fail "steps that were given up are shown, or are out of order"
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(sys.argv[1] + "/psd", size_guidance={"scalars": 0})
events.Reload()
steps = [e.step for e in events.Scalars("workers")]
assert steps == sorted(steps), steps
assert steps[-1] > int(sys.argv[2]) + 100, steps
END
