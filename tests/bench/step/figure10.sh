#!/usr/bin/env bash
# figure10: training steps whose gradient is summed by one message, or by one for each layer (You, Buluc, Demmel 2017, figure 10),
# over loopback or over paced links. Gradients are real. Both are measured in turn. One JSON object a line. Paced links need root
# and iproute2.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
# shellcheck source=scripts/lib.sh
source "$root/scripts/lib.sh"
# shellcheck source=scripts/job.sh
source "$root/scripts/job.sh"
# shellcheck source=scripts/link.sh
source "$root/scripts/link.sh"
# shellcheck source=tests/bench/step/members.sh
source "$root/tests/bench/step/members.sh"

usage() {
    cat <<END
usage: tests/bench/step/figure10.sh BUILD NET BATCH RATE [MEMBERS]
  RATE: of tc, such as 1gbit, or loopback. Environment: STEPS (20), PAIRS (2) of measurements
END
}

[[ $# -ge 4 ]] || { usage && exit 2; }
build=$1 net=$2 batch=$3 rate=$4 workers=${5:-2}
if [[ $rate != loopback ]]; then
    link_check_rate RATE "$rate"
    folder=$(mktemp -d)
    drop_folder() { rm -rf "$folder"; }
    at_end+=(drop_folder)
    trap_ends
    link_up "$rate"
fi

step() { # MESSAGES
    local options=(--method d-sync --messages "$1" --batch "$batch" --steps "${STEPS:-20}")
    if [[ $rate == loopback ]]; then
        "$build/tests/bench/psbench" step --net "$net" --members "$workers" "${options[@]}" --json
    else
        step_members "${options[@]}"
    fi
}

for ((pair = 0; pair < ${PAIRS:-2}; pair++)); do
    for messages in packed layers; do
        step "$messages" | jq -c --arg rate "$rate" '. + {rate: $rate}'
    done
done
