#!/usr/bin/env bash
# psbench exchange that is killed leaves no process behind. $1: psbench; $2: psd
set -u
psbench=$(realpath "$1") psd=$(realpath "$2")
log=$(mktemp)
children=()
# shellcheck disable=SC2317 # called by a trap
finish() {
    [[ ${#children[@]} -eq 0 ]] || kill -KILL "${children[@]}" 2>/dev/null
    kill -KILL "$pid" 2>/dev/null
    [[ -z ${folder:-} ]] || rm -rf "$folder"
    rm -f "$log"
}
trap finish EXIT

"$psbench" exchange --psd "$psd" --workers 2 --floats 1000 --seconds 3600 >"$log" 2>&1 &
pid=$!
for ((i = 0; i < 1200 && ${#children[@]} < 3; i++)); do # psd and two workers
    kill -0 "$pid" || break
    mapfile -t children < <(pgrep -P "$pid")
    sleep 0.1
done
[[ ${#children[@]} -eq 3 ]] || { cat "$log" && exit 1; }
folder=$(tr '\0' '\n' <"/proc/${children[0]}/cmdline" | grep -om 1 '/tmp/psd-test-[^/]*')

# Stopped, so that they cannot end by themselves.
kill -STOP "${children[@]}"
kill -KILL "$pid"
wait "$pid" 2>/dev/null
for ((i = 0; i < 1200; i++)); do
    left=$(ps -o pid=,stat=,args= -p "$(IFS=, && echo "${children[*]}")" | awk '$2 !~ /^Z/')
    [[ -n $left ]] || exit 0
    sleep 0.1
done
echo "left behind: $left"
exit 1
