#!/usr/bin/env bash
# vectors_over_links: psbench allreduce --vectors over paced links: each member in a network namespace of its own, its link
# paced at both ends (scripts/link.sh). One JSON object a line. Needs root and iproute2.
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
usage: tests/bench/allreduce/vectors_over_links.sh BUILD RATE MEMBERS [OPTION...]
  RATE: of tc, such as 10gbit. OPTION: of psbench allreduce, such as --vectors 4 --floats 62000000
END
}

[[ $# -ge 3 ]] || { usage && exit 2; }
build=$1 rate=$2 workers=$3
shift 3
link_check_rate RATE "$rate"
folder=$(mktemp -d)
drop_folder() { rm -rf "$folder"; }
at_end+=(drop_folder)
trap_ends
link_up "$rate"

pids=() rc=0
for ((k = 0; k < workers; k++)); do
    read -ra place <<<"${worker_place[$k]}"
    "${place[@]}" "$build/tests/bench/psbench" allreduce --ranks "$workers" --member "$k" --rendezvous "file:$folder/ring" \
        --listen "tcp://10.0.0.$((k + 2))" --link "$rate" --json "$@" &
    pids+=($!)
done
for k in "${pids[@]}"; do
    wait "$k" || rc=1
done
((rc == 0)) || die "psbench allreduce $*: failed"
