#!/usr/bin/env bash
# over_links: psbench step over paced links: each member in a network namespace of its own, its link paced at both ends
# (scripts/link.sh), d-sync and pipe-sgd, whole and in parts, raw and int8, beside PyTorch's DDP over gloo where a Python with
# torch is given. One JSON object a line. Needs root, iproute2 and jq.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
# shellcheck source=scripts/job.sh
source "$root/scripts/job.sh"
# shellcheck source=scripts/link.sh
source "$root/scripts/link.sh"

usage() {
    cat <<END
usage: tests/bench/step/over_links.sh BUILD NET STEP_MS RATE MEMBERS [PYTHON]
  RATE: of tc, such as 1gbit. PYTHON: one that has torch
END
}

[[ $# -ge 5 ]] || { usage && exit 2; }
build=$1 net=$2 step_ms=$3 rate=$4 workers=$5 python=${6-}
steps=${STEPS:-10}
link_check_rate RATE "$rate"
folder=$(mktemp -d)
drop_folder() { rm -rf "$folder"; }
at_end+=(drop_folder)
trap_ends
link_up "$rate"

# As member K: place K COMMAND...
in_place() {
    local -a place
    read -ra place <<<"${worker_place[$1]}"
    "${place[@]}" "${@:2}"
}

step() { # OPTION...
    local k pids=() rc=0
    rm -f "$folder"/ring*
    for ((k = 0; k < workers; k++)); do
        in_place "$k" "$build/tests/bench/psbench" step --net "$net" --step-ms "$step_ms" --steps "$steps" \
            --members "$workers" --member "$k" --rendezvous "file:$folder/ring" --listen "tcp://10.0.0.$((k + 2))" \
            --json "$@" >"$folder/out-$k" &
        pids+=($!)
    done
    for k in "${pids[@]}"; do
        wait "$k" || rc=1
    done
    ((rc == 0)) || die "psbench step $*: failed"
    jq -c --arg rate "$rate" '. + {rate: $rate}' "$folder/out-0"
}

ddp() {
    local k pids=()
    "$build/nets/worker/psworker" --describe "$net" --json |
        jq -c '[.layers[] | {params: .parameters, forward_flops, backward_flops}]' >"$folder/layers.json"
    for ((k = 0; k < workers; k++)); do
        RANK=$k WORLD_SIZE=$workers MASTER_ADDR=10.0.0.2 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=psd OMP_NUM_THREADS=1 \
            in_place "$k" "$python" "$root/tests/bench/step/ddp.py" "$folder/layers.json" "$step_ms" "$steps" \
            >"$folder/out-$k" 2>"$folder/err-$k" &
        pids+=($!)
    done
    for k in "${pids[@]}"; do
        wait "$k" || { cat "$folder"/err-* >&2 && die "DDP: a rank failed"; }
    done
    jq -c --arg rate "$rate" --arg net "$net" '. + {net: $net, rate: $rate}' "$folder/out-0"
}

for codec in raw int8; do
    step --method d-sync --codec "$codec" --whole
    step --method d-sync --codec "$codec"
    step --method pipe-sgd --codec "$codec"
done
[[ -z $python ]] || ddp
