#!/usr/bin/env bash
# psbench net as a worker of a psd, and when it is told to: what it prints and refuses. $1: psbench; $2: psd
# shellcheck disable=SC2317 # called by a trap
set -u
psbench=$(realpath "$1") psd=$(realpath "$2")
folder=$(mktemp -d)
cd "$folder" || exit 1
fail() {
    echo "$1"
    tail -n 20 "$folder/log"
    exit 1
}
finish() {
    [[ -z ${pid:-} ]] || kill -KILL "$pid" 2>/dev/null
    wait
    rm -rf "$folder"
}
trap finish EXIT

"$psd" --method eamsgd --set parameters.period=2 --set endpoint_file="$folder/endpoint" --set state_dir=state \
    --set checkpoint.every_s=0 2>log &
pid=$!
for ((i = 0; i < 600; i++)); do
    [[ ! -s endpoint ]] || break
    kill -0 "$pid" || fail "psd did not start"
    sleep 0.1
done

measure=("$psbench" net --net linear --backend ref --batch 2 --seconds 0.1 --only-steps --json)
line=$("${measure[@]}" --server @endpoint | tail -n 1) || fail "it failed with --server"
grep -q '"repetitions":.*"images_s":.*"exchange_ms":[0-9.]*}' <<<"$line" || fail "'$line' does not tell the exchanges"
line=$("${measure[@]}" | tail -n 1) || fail "it failed by itself"
[[ $line == *'"repetitions"'* && $line != *exchange_ms* ]] || fail "'$line' tells exchanges without a server"

lines=$(printf 'one\ntwo\n' | "${measure[@]}" --paced | grep -c '"repetitions"')
[[ $lines -eq 2 ]] || fail "$lines results for two lines"

# refused RC TEXT OPTION...
refused() {
    local said rc
    said=$("$psbench" net "${@:3}" 2>&1)
    rc=$?
    [[ $rc -eq $1 ]] || fail "psbench net ${*:3}: ended with $rc, expected $1: $said"
    grep -qF -e "$2" <<<"$said" || fail "psbench net ${*:3}: '$said' does not say '$2'"
}
refused 2 "--server and --partitions exclude each other" --server @endpoint --partitions 2
refused 2 "--server needs a value" --server
refused 1 "another model than the job's" --net lenet --backend ref --server @endpoint
exit 0
