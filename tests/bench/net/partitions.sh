#!/usr/bin/env bash
# psbench net --partitions and --precision: what it measures on this machine, and what it refuses. $1: psbench
set -u
psbench=$1
fail() {
    echo "$1"
    exit 1
}

n=1
[[ $(nproc) -ge 2 ]] && n=2
line=$("$psbench" net --net linear --batch 32 --partitions $n --threads 1 --seconds 0.1 --json) || fail "it failed with $n partitions"
for part in "\"partitions\":$n,\"threads\":1" '"images_s":[0-9.]*' '"images_s_apart":[0-9.]*' "$n partitions\\? of 1 core"; do
    grep -q "$part" <<<"$line" || fail "'$line' does not say $part"
done
for options in "--threads 1" "--partitions $n"; do
    # shellcheck disable=SC2086 # two words
    line=$("$psbench" net --net linear --batch 32 $options --precision float32 --seconds 0.1 --json | tail -n 1) ||
        fail "it failed in float32 with $options"
    grep -q '"precision":"float32"' <<<"$line" || fail "'$line' does not say the precision"
    # shellcheck disable=SC2086
    if line=$("$psbench" net --net linear --batch 32 $options --precision bf16 --seconds 0.1 --json 2>&1 | tail -n 1); then
        grep -q '"precision":"bf16"\|the CPU has neither' <<<"$line" || fail "'$line' does not say the precision"
    fi
done
"$psbench" net --precision half 2>/dev/null
[[ $? -eq 2 ]] || fail "--precision half was not refused"
text=$("$psbench" net --net linear --batch 32 --partitions auto --seconds 0.1) || fail "it failed with auto"
grep -q "without sums" <<<"$text" || fail "'$text' does not compare"

said=$("$psbench" net --net linear --batch 1021 --partitions 1020 2>&1)
[[ $? -eq 2 ]] || fail "1020 partitions of a batch of 1021 were not refused"
grep -q -e "--partitions:" <<<"$said" || fail "'$said' does not name the option"
"$psbench" net --partitions none 2>/dev/null
[[ $? -eq 2 ]] || fail "--partitions none was not refused"
"$psbench" net --net lenet --batch 16 --partitions 1 --seconds 0.1 --backend none 2>/dev/null
[[ $? -eq 2 ]] || fail "--backend none was not refused"
