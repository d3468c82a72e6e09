#!/bin/sh
# readme.sh README USAGE LINE.C KVSTORE.C LINE KVSTORE PSD: README.md shows examples/line.c as it is, docs/USAGE.md
# examples/kvstore.c, and three of each, run with a real psd, do what the pages say.
set -eu
readme=$1 usage=$2 line_c=$3 kvstore_c=$4 line=$5 kvstore=$6 psd=$7
dir=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null; wait; rm -rf "$dir"' EXIT

# block PAGE: the first block of C in it
block() {
    awk '/^```c$/ { n++; inside = 1; next } /^```$/ { inside = 0 } inside && n == 1' "$1"
}
block "$readme" | diff -u "$line_c" -
block "$usage" | diff -u "$kvstore_c" -

# three PROGRAM NAME OPTION...: runs three at once with a psd of their own; what they print goes to $dir/NAME.out
three() {
    program=$1 name=$2
    shift 2
    "$psd" --state-dir "$dir/$name" --endpoint-file "$dir/$name.endpoint" "$@" 2>"$dir/$name.log" &
    pids="$pids $!"
    workers=
    for _ in 1 2 3; do
        timeout 600 "$program" "@$dir/$name.endpoint" >>"$dir/$name.out" &
        workers="$workers $!"
    done
    for worker in $workers; do
        wait "$worker"
    done
    cat "$dir/$name.out"
}

three "$line" line --method async-easgd --set learning_rate=0.5
# What an earlier one saw may still be drawn to a worker that the machine has let wait since its first steps. The last to
# look, who may be any of the three in this order, sees where all have come to.
[ "$(grep -c '^the center is y = ' "$dir/line.out")" -eq 3 ]
grep -qx 'the center is y = \(3.00. u -2.00.\|2.99. u -1.99.\)' "$dir/line.out"

three "$kvstore" kvstore --method async-sgd --set learning_rate=1 --set parameters.schedule.warmup_steps=0
for hits in 1 2 3; do
    grep -q "^hits: 0 $hits 0\$" "$dir/kvstore.out"
done
[ "$(grep -c '^price: 9 8 7 6$' "$dir/kvstore.out")" -eq 3 ]
