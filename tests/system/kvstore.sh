#!/bin/sh
# kvstore.sh KVSTORE_MPI PSD: examples/kvstore_mpi.c runs figures 6 to 8 of Mamidala et al. with a real psd: two workers,
# and two cliques of two. The samples have no noise, so that all of them end at the same x.
set -eu
program=$1 psd=$2
dir=$(mktemp -d)
pids=
trap 'kill $pids 2>/dev/null; wait; rm -rf "$dir"' EXIT

# serve NAME: a psd of its own
serve() {
    "$psd" --state-dir "$dir/$1" --endpoint-file "$dir/$1.endpoint" --set rule=sum --set admission=sync \
        --set optimizer=none --set workers=2 2>"$dir/$1.log" &
    pids="$pids $!"
}

# finish NAME N: waits for $workers, which print N times the same x
finish() {
    for worker in $workers; do
        wait "$worker"
    done
    cat "$dir/$1.out"
    [ "$(grep -cx 'x: 3.000 -2.000 0.500 1.000 -1.000' "$dir/$1.out")" -eq "$2" ]
}

for mode in sync async elastic; do
    serve "dist-$mode"
    workers=
    for _ in 1 2; do
        timeout 600 "$program" "$mode" "@$dir/dist-$mode.endpoint" >>"$dir/dist-$mode.out" &
        workers="$workers $!"
    done
    finish "dist-$mode" 2

    serve "mpi-$mode"
    workers=
    for clique in a a b b; do
        timeout 600 "$program" "$mode" "@$dir/mpi-$mode.endpoint" "$clique" 2 >>"$dir/mpi-$mode.out" &
        workers="$workers $!"
    done
    finish "mpi-$mode" 4
done

# A mode that it does not have, and a server whose admission has no rounds of keys.
if "$program" often "@$dir/dist-sync.endpoint" 2>"$dir/often"; then exit 1; fi
grep -q "mode 'often'; allowed are sync, async, elastic" "$dir/often"
"$psd" --state-dir "$dir/backup" --endpoint-file "$dir/backup.endpoint" --method backup-sgd --set workers=1 \
    2>"$dir/backup.log" &
pids="$pids $!"
if timeout 600 "$program" sync "@$dir/backup.endpoint" 2>"$dir/refused"; then exit 1; fi
grep -q 'PSC_EUNSUPPORTED: psc_push: admission backup closes rounds without some workers' "$dir/refused"
