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
  Environment: STEPS (10), RUNS (d-sync:raw d-sync:int8 pipe-sgd:raw pipe-sgd:int8 d-sync:raw:whole)
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

# shellcheck source=tests/bench/step/members.sh
source "$root/tests/bench/step/members.sh"

step() { # OPTION...
    step_members --step-ms "$step_ms" --steps "$steps" --both-only "$@" | jq -c --arg rate "$rate" '. + {rate: $rate}'
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

# GB/s of TCP's payload on a link of RATE, which tc counts in Ethernet frames: 1448 of 1514 bytes.
payload_gb_s() {
    case $rate in
    *kbit) echo "${rate%kbit} 1e3" ;;
    *mbit) echo "${rate%mbit} 1e6" ;;
    *gbit) echo "${rate%gbit} 1e9" ;;
    esac | LC_ALL=C awk '{ print $1 * $2 / 8 * 1448 / 1514 / 1e9 }'
}

# What the planner says of the same job, with the local update as long as it was: bound METHOD CODEC UPDATE_MS
bound() {
    "$build/tests/bench/psbench" plan --net "$net" --workers "$workers" --codec "$2" --gb-s "$(payload_gb_s)" --alpha-us 100 \
        --compute-ms "$step_ms" --update-ms "$3" --json |
        jq --arg method "$1" 'select(.method == $method and .workers > 1) | .bucketed_ms'
}

# Adds the planner's bound to a line of psbench step.
against_plan() {
    local line bound_ms
    read -r line
    bound_ms=$(bound "$(jq -r .method <<<"$line")" "$(jq -r .codec <<<"$line")" "$(jq -r .update_ms <<<"$line")")
    jq -c --argjson bound "$bound_ms" '. + {bound_ms: $bound, over_bound: (.iteration_ms / $bound * 1000 | round / 1000)}' \
        <<<"$line"
}

[[ -z $python ]] || ddp
for one in ${RUNS:-d-sync:raw d-sync:int8 pipe-sgd:raw pipe-sgd:int8 d-sync:raw:whole}; do
    IFS=: read -r method codec whole <<<"$one"
    step --method "$method" --codec "$codec" ${whole:+--whole} | against_plan
done
