#!/bin/bash
# devices.sh PSWORKER PSD PSCTL: psworker --devices alone, in a clique of processes, and with psd: the same bits in
# every run and as with partitions; one client; what a lost member leaves; what is refused.
# shellcheck disable=SC2317 # called by a trap
set -u
psworker=$1 psd=$2 psctl=$3
dir=$(mktemp -d)
# Only what runs still: the number of a process that has ended may be another's by now, of another test.
finish() {
    # shellcheck disable=SC2046 # several
    kill -KILL $(jobs -rp) 2>/dev/null
    wait
    rm -rf "$dir"
}
trap finish EXIT
fail() {
    echo "$*"
    tail -n 20 "$dir"/log*
    exit 1
}
same() { cmp "$1" "$2" || fail "${*:3}: $1 and $2 differ"; }

options=(--net linear --batch 32 --seed 5)
# train LOG OPTION...; start does not wait, and leaves the process in $!.
start() { "$psworker" "${options[@]}" "${@:2}" >"$dir/log-$1" 2>&1 & }
train() { "$psworker" "${options[@]}" "${@:2}" >"$dir/log-$1" 2>&1; }

# alone STATE OPTION...
alone() { train alone --method d-sync --every 86400 --steps 10 --state "$dir/$1" "${@:2}" || fail "d-sync ${*:2} failed"; }
alone one --devices 2
alone two --devices 2
same "$dir/one" "$dir/two" "another run"
same "$dir/one" "$dir/one.1" "device 1"
if "$psworker" --describe linear --partitions 2 --batch 32 >/dev/null 2>&1; then # where there are two cores
    alone parts --partitions 2 --threads 1
    same "$dir/one" "$dir/parts" "partitions"
fi
# Goes on where it ended.
alone half --devices 2
train rest --method d-sync --every 86400 --steps 20 --state "$dir/half" --devices 2 || fail "it does not go on"
train whole --method d-sync --every 86400 --steps 20 --state "$dir/straight" --devices 2 || fail "20 steps failed"
same "$dir/half" "$dir/straight" "a run that was interrupted"

# clique RUN ALGORITHM: two members with two devices each. One state for each device.
clique() {
    local member members=()
    for member in 0 1; do
        start "$1-$member" --method pipe-sgd --every 86400 --pipeline-warmup 3 --steps 10 --devices 2 --clique ring --members 2 --member $member \
            --rendezvous "file:$dir/$1" --algorithm "$2" --state "$dir/$1-$member"
        members+=($!)
    done
    for member in "${members[@]}"; do wait "$member" || fail "a member with $2 failed"; done
}
for algorithm in ring tree; do
    clique "$algorithm-a" $algorithm
    clique "$algorithm-b" $algorithm
    for state in 0 0.1 1 1.1; do
        same "$dir/$algorithm-a-$state" "$dir/$algorithm-b-$state" "$algorithm, another run"
    done
    for state in 0.1 1 1.1; do # x; members differ in their places in the data
        cmp <(head -c 20000 "$dir/$algorithm-a-0") <(head -c 20000 "$dir/$algorithm-a-$state") ||
            fail "$algorithm: x of $state is another"
    done
done

# Of psd two processes with two devices each are one client with four members.
"$psd" --method sync-sgd --set learning_rate=0.01 --set endpoint_file="$dir/endpoint" --set state_dir="$dir/psd-state" \
    --set status.socket="$dir/sock" --set checkpoint.every_s=0 2>"$dir/log-psd" &
server=$!
for ((i = 0; i < 6000; i++)); do
    [[ ! -s $dir/endpoint ]] || break
    kill -0 "$server" || fail "psd did not start"
    sleep 0.1
done
members=()
for member in 0 1; do
    start served-$member --server "@$dir/endpoint" --steps 1000000 --devices 2 --clique ring --members 2 --member $member \
        --clique-timeout 600
    members+=($!)
done
shown=
for ((i = 0; i < 6000; i++)); do
    shown=$("$psctl" --socket "$dir/sock" workers --json 2>/dev/null)
    ! grep -q '"members": *4' <<<"$shown" || break
    kill -0 "${members[@]}" 2>/dev/null || fail "a worker with psd ended"
    sleep 0.1
done
grep -q '"members": *4' <<<"$shown" || fail "psctl workers: $shown"
[[ $(grep -o '"members"' <<<"$shown" | wc -l) -eq 1 ]] || fail "more than one client: $shown"
# A member that is killed ends the other one, devices and all.
kill -KILL "${members[1]}"
wait "${members[0]}"
status=$?
[[ $status -eq 8 ]] || fail "a worker whose other member was killed ended with $status"
grep -q "rank 1" "$dir/log-served-0" || fail "the lost member is not named"

# refuses TEXT OPTION...
refuses() {
    local said
    said=$("$psworker" --method d-sync --net linear "${@:2}" 2>&1)
    [[ $? -eq 2 ]] || fail "${*:2} was not refused"
    grep -qF -e "$1" <<<"$said" || fail "${*:2}: '$said' does not say '$1'"
}
refuses 'allowed: a list of different GPUs, from 0 to 63' --devices 0,1,0 --backend cuda
refuses 'allowed: a list of different GPUs, from 0 to 63' --devices 0, --backend cuda
refuses 'allowed: a list of different GPUs, from 0 to 63' --devices 64 --backend cuda
refuses 'with a list of GPUs in --devices; allowed: nccl' --devices 0,1 --backend cuda --clique ring --members 2 --rendezvous file:x
refuses '--member: not given with --devices and --clique nccl' --devices 0,1 --backend cuda --clique nccl --members 2 --rendezvous file:x
refuses '"0,1"; allowed: a number of nets on the CPU, from 1 to 64' --devices 0,1
refuses 'from 1 to 64' --devices 65
refuses 'from 1 to 64' --devices 0
refuses 'divides --batch 64' --devices 3
refuses '--partitions and --devices: both given' --devices 2 --partitions 2
refuses '--describe and --devices: both given' --devices 2 --describe lenet
refuses '--method sgd, which is for a single worker' --devices 2 --method sgd
exit 0
