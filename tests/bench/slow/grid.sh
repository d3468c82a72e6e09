#!/usr/bin/env bash
# grid: the share of time in which workers behind paced links do not wait for their exchanges, for periods, rates, codecs and
# overlaps, beside what psbench plan --slow predicts from psbench link. psd and each worker have a network namespace of their
# own; the links are paced at both ends (scripts/link.sh). One JSON object a cell on standard output. With OUT the picture, too.
# Needs root, iproute2 and jq; gnuplot for the picture; a Python and shared/tools/delaytap.py for a delay.
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
usage: tests/bench/slow/grid.sh BUILD [OUT.png]
  from the environment, with the defaults:
    PERIODS="32 128" RATES="50mbit 200mbit 1gbit" CODECS="raw int8 int4 topk:0.01 topk:0.03" OVERLAPS="false period"
    FRAGMENTS="1" FLOATS=30800000 STEP_MS=30 WORKERS=4 MEASURED_PERIODS=4    overlap period: as long as the period
    WINDOW=              window_chunks; by default what psbench plan says
    CHUNK_FLOATS=131072  chunk_floats
    CORES=               of this machine, on which all of them run; by default those that nproc counts
    DELAY_MS=0 there and back, in whole milliseconds; above 0 with DELAYTAP=PATH of delaytap.py
END
}

[[ $# -ge 1 && -x $1/tests/bench/psbench ]] || { usage && exit 2; }
build=$1 picture=${2-} workers=${WORKERS:-4} floats=${FLOATS:-30800000} step_ms=${STEP_MS:-30} delay_ms=${DELAY_MS:-0}
chunk_floats=${CHUNK_FLOATS:-131072}
psbench=$build/tests/bench/psbench
((delay_ms == 0)) || [[ -f ${DELAYTAP:-} ]] || die "DELAY_MS: needs DELAYTAP, the path of delaytap.py"
folder=$(mktemp -d)
psd_pid='' taps=()
stop_all() {
    local pid
    for pid in $psd_pid "${taps[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    psd_pid='' taps=()
    wait || true
}
drop_folder() { rm -rf "$folder"; }
at_end+=(stop_all drop_folder)
trap_ends

# The worker's end of the veth becomes a bridge's, and a pair of taps that delays lies between it and the worker.
delay_link() { # RANK
    local space own=$1
    space=$(link_space "$own")
    link_add_space "far$own"
    link_do ip -n "$space" link set psd netns "$(link_space "far$own")"
    "${PYTHON:-python3}" "$DELAYTAP" "$(link_space "far$own")" near "$space" psd "$((delay_ms / 2))" &
    taps+=($!)
    local i
    for ((i = 0; i < 100; i++)); do
        ip -n "$space" link show psd >/dev/null 2>&1 && break
        sleep 0.1
    done
    link_do ip -n "$(link_space "far$own")" link add both type bridge forward_delay 0
    link_do ip -n "$(link_space "far$own")" link set psd master both up
    link_do ip -n "$(link_space "far$own")" link set near master both up
    link_do ip -n "$(link_space "far$own")" link set both up
    link_do ip -n "$space" addr add "10.0.0.$((own + 2))/24" dev psd
    link_do ip -n "$space" link set psd up
}

in_place() { # RANK COMMAND...
    local -a place
    read -ra place <<<"${worker_place[$1]}"
    "${place[@]}" "${@:2}"
}

start_psd() { # SETTING...
    local setting settings=()
    for setting in "$@"; do settings+=(--set "$setting"); done
    rm -rf "$folder/state" "$folder/endpoint"
    "${job_place[@]}" "$build/server/psd" "${settings[@]}" --set "listen=$job_listen" --set insecure=true --set transport=tcp \
        --set checkpoint.every_s=0 --set "state_dir=$folder/state" --set "endpoint_file=$folder/endpoint" 2>"$folder/log" &
    psd_pid=$!
    local i
    for ((i = 0; i < 600; i++)); do
        [[ ! -s $folder/endpoint ]] || return 0
        kill -0 "$psd_pid" 2>/dev/null || die "psd: $(tail -n 1 "$folder/log")"
        sleep 0.1
    done
    die "psd did not start within 60 s"
}

stop_psd() {
    kill -KILL "$psd_pid"
    wait "$psd_pid" 2>/dev/null || true
    psd_pid=''
}

measure_link() {
    start_psd method=async-sgd
    in_place 0 "$psbench" link --server "@$folder/endpoint" --floats $((floats / 6)) --offer --turns 3 --json >"$folder/link.json"
    stop_psd
}

plan() { # STEP_MS PERIOD CODEC FRAGMENTS [OPTION...]
    "$psbench" plan --slow --link "$folder/link.json" --step-ms "$1" --floats "$floats" --workers "$workers" --lanes 2 \
        --chunk-floats "$chunk_floats" --cores "${CORES:-$(nproc)}" --per-machine "$workers" --together --period "$2" --codec "$3" --fragments "$4" --json "${@:5}" >"$folder/plan.json"
}

# A worker's step is a sleep and the move of a small part of x (optimizer external), so that those of one machine do not wait
# for its memory.
cell() { # RATE PERIOD CODEC OVERLAP FRAGMENTS
    local k pids=() rc=0 own feedback=true window=${WINDOW:-} overlap=$4
    [[ $3 != raw ]] || feedback=false
    [[ $overlap != period ]] || overlap=$2
    [[ -n $window ]] || { plan "$step_ms" "$2" "$3" "$5" && window=$(jq -s '.[0].window' "$folder/plan.json"); }
    start_psd method=diloco optimizer=external "workers=$workers" "period=$2" "overlap=$overlap" "fragments=$5" \
        "codec.message=$3" "codec.answer=$3" "codec.error_feedback=$feedback" lanes=2 "window_chunks=$window" "chunk_floats=$chunk_floats"
    for ((k = 0; k < workers; k++)); do
        in_place "$k" "$psbench" waits --server "@$folder/endpoint" --floats "$floats" --step-ms "$step_ms" \
            --periods "${MEASURED_PERIODS:-4}" --json >"$folder/out-$k" &
        pids+=($!)
    done
    for k in "${pids[@]}"; do
        wait "$k" || rc=1
    done
    stop_psd
    ((rc == 0)) || die "psbench waits: a worker failed at $*"
    own=$(jq -s 'map(.step_ms) | add / length' "$folder"/out-*)
    plan "$own" "$2" "$3" "$5" --window "$window"
    # The last candidate is the shortest overlap that hides the exchange; a longer one is as good.
    jq -c -s --arg rate "$1" --arg codec "$3" --arg overlap "$4" --argjson fragments "$5" --argjson delay "$delay_ms" \
        --argjson window "$window" --slurpfile plan "$folder/plan.json" '($plan | map(select(.summary != true))) as $rows |
        ($rows | (map(select((.overlap | tostring) == ({"false": "0", "true": "1"}[$overlap] // $overlap))) | .[0]) // .[-1]
            | .share) as $planned |
        {rate: $rate, delay_ms: $delay, period: .[0].period, codec: $codec, overlap: $overlap, fragments: $fragments,
         window: $window, step_ms: (map(.step_ms) | add / length), own_cpu_ns: (map(.own_cpu_ns) | add / length),
         others_cpu_ns: (map(.others_cpu_ns) | add / length), bytes: (map(.bytes) | add), share: (map(.share) | add / length),
         planned: $planned}' "$folder"/out-* | tee -a "$folder/cells"
}

all_cells() {
    local rate period codec overlap fragments rank
    for rate in ${RATES:-50mbit 200mbit 1gbit}; do
        link_check_rate RATES "$rate"
        link_up "$rate"
        for ((rank = 0; rank < workers && delay_ms > 0; rank++)); do delay_link "$rank"; done
        measure_link
        for period in ${PERIODS:-32 128}; do
            for codec in ${CODECS:-raw int8 int4 topk:0.01 topk:0.03}; do
                for overlap in ${OVERLAPS:-false period}; do
                    for fragments in ${FRAGMENTS:-1}; do
                        cell "$rate" "$period" "$codec" "$overlap" "$fragments"
                    done
                done
            done
        done
        stop_all
        link_down
    done
}

all_cells
[[ -z $picture ]] || {
    jq -r '["\(.rate)/\(.period)/\(.codec)/\(.overlap)/\(.fragments)", .share * 100, .planned * 100] | @tsv' \
        "$folder/cells" >"$folder/table"
    gnuplot -c "$root/scripts/plots/slow.gp" "$picture" "$folder/table" measured planned
}
