#!/usr/bin/env bash
# psbench plan --partitions: what it prints of given and of measured costs, and what it refuses. $1: psbench
set -u
psbench=$1
fail() {
    echo "$1"
    exit 1
}

given=(--fixed-ms 10 --image-ms 1 --serial 0.1 --core-gb-s 20 --memory-gb-s 100)
text=$("$psbench" plan --partitions 1,4 --cores 16 --batch 64 "${given[@]}") || fail "it failed with given costs"
# 74 ms of a thread on 16 and 26 on 4, LeNet's 431,080 values: 8 bytes each at 20 GB/s, and 20 bytes each of four at 100 GB/s
for row in "1 16 11.562 0.000 0.086 11.649 5494.2 1.00" "4 4 8.450 0.172 0.345 8.967 7137.0 1.30"; do
    # shellcheck disable=SC2086 # words
    grep -q "$(printf ' *%s' $row)" <<<"$text" || fail "'$text' has no row $row"
done
n=$(nproc)
[[ $n -ge 2 ]] || given=(--serial 0.1 --memory-gb-s 100)
[[ $n -lt 2 ]] || given=()
line=$("$psbench" plan --partitions 1,2 --cores 2 --net linear --batch 32 --seconds 0.05 --json "${given[@]}") ||
    fail "it failed with measured costs"
[[ $(grep -c '"step_ms":[0-9.]*,"images_s":[0-9.]*' <<<"$line") -eq 2 ]] || fail "'$line' has not two rows"

refused() { # WORD OPTION...
    local said
    said=$("$psbench" plan "${@:2}" 2>&1)
    [[ $? -eq 2 ]] || fail "${*:2} was not refused"
    grep -q -e "$1" <<<"$said" || fail "'$said' does not name $1"
}
refused --cores --partitions 2
refused "has 3" --partitions 3 --cores 16 --batch 64
refused "has 8" --partitions 8 --cores 4 --batch 64
refused --image-ms --partitions 2 --cores 4 --fixed-ms 3
refused --partitions --partitions none --cores 4
refused --net --partitions 2 --cores 4 --net nothing
refused --link --partitions 2 --cores 4 --link 1gbit
exit 0
