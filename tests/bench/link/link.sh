#!/usr/bin/env bash
# psbench link and psbench waits against a psd: what they measure, that link changes nothing, and what they refuse. $1: psbench; $2: psd; $3: psctl
# shellcheck disable=SC2317 # called by a trap
set -u
psbench=$(realpath "$1") psd=$(realpath "$2") psctl=$(realpath "$3")
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

start_psd() { # SETTING...
    local setting settings=()
    for setting in "$@"; do settings+=(--set "$setting"); done
    rm -f endpoint
    "$psd" "${settings[@]}" --set endpoint_file="$folder/endpoint" --set state_dir="state-$1" \
        --set status.socket="$folder/sock" --set checkpoint.every_s=0 2>log &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        [[ ! -s endpoint ]] || return 0
        kill -0 "$pid" || fail "psd did not start"
        sleep 0.1
    done
    fail "psd has no endpoint"
}

start_psd method=async-sgd

# refused RC TEXT OPTION...
refused() {
    local said rc
    said=$("$psbench" link "${@:3}" 2>&1)
    rc=$?
    [[ $rc -eq $1 ]] || fail "psbench link ${*:3}: ended with $rc, expected $1: $said"
    grep -qF -e "$2" <<<"$said" || fail "psbench link ${*:3}: '$said' does not say '$2'"
}

refused 2 "--server is needed"
refused 2 "give one" --server @endpoint --net lenet --floats 100000
refused 2 "--floats is '12'" --server @endpoint --floats 12
refused 2 "--turns is 'many'" --server @endpoint --turns many
refused 2 "no such option" --server @endpoint --speed 3
refused 2 "--net" --server @endpoint --net no-such-net
refused 1 "begins with its first worker or with --offer: not done after 1 s" --server @endpoint --floats 100000 --timeout-s 1
refused 1 "cannot join" --server tcp://127.0.0.1:9 --timeout-s 1

# measured OPTION...: prints what psbench link prints. Beside other work a transfer of this size may take no longer than a small
# message. psbench then tells no rate and says so; only that is tried again.
measured() {
    local said i
    for ((i = 0; i < 200; i++)); do
        if said=$("$psbench" link --server @endpoint --floats 1000000 "$@" 2>&1); then
            echo "$said"
            return 0
        fi
        grep -q "too few bytes to tell a rate; measure with --floats of more" <<<"$said" || break
    done
    echo "$said"
    return 1
}

line=$(measured --offer --turns 3 --transport tcp --json) || fail "it failed with --offer: $line"
for part in '"floats":1000000,"turns":3,"transport":"tcp"' '"delay_ms":[0-9.]*' '"up_mbit_s":[0-9.]*' '"down_mbit_s":[0-9.]*'; do
    grep -q "$part" <<<"$line" || fail "'$line' does not say $part"
done
echo "$line" >link.json
"$psbench" plan --slow --link link.json --step-ms 30 --floats 30e6 >plan.txt || fail "the plan does not take '$line'"
grep -q "^method: diloco" plan.txt || fail "'$(<plan.txt)' has no configuration"

# Of a job that has begun, with what the center was before.
"$psctl" --socket sock status >before
line=$(measured --turns 2) || fail "it failed at a job that has begun: $line"
grep -q "Mb/s up" <<<"$line" || fail "'$line' has no rate"
"$psctl" --socket sock status >after
grep "^center" before >was
grep "^center" after | diff was - || fail "the center has changed"
refused 1 "another model than the job's" --server @endpoint --net lenet

kill -KILL "$pid"
wait "$pid" 2>/dev/null
start_psd method=async-local-sgd period=2
line=$("$psbench" waits --server @endpoint --floats 5000 --step-ms 1 --periods 3 --json) || fail "psbench waits failed"
grep -q '"period":2,"steps":6,.*"share":[01][.][0-9]*}' <<<"$line" || fail "'$line' is not what psbench waits prints"
"$psbench" waits --server @endpoint --step-ms 0 2>/dev/null
[[ $? -eq 2 ]] || fail "psbench waits --step-ms 0 was not refused"
exit 0
