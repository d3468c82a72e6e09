#!/usr/bin/env bash
# compare.sh ROOT BUILD: scripts/compare trains two methods with two seeds, and its table, numbers and picture have
# them; a second call adds methods, one of them without psd, and runs nothing again; what it cannot do it refuses before
# it runs anything.
set -uo pipefail
root=$1
export PSD_BUILD=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

wrong() {
    echo "wrong: $*"
    failed=1
}

compare() {
    "$root/scripts/compare" --net linear --data digits:7 --workers 2 --steps 80 --every 0.2 --levels 0.3,0.999 \
        "$@" >"$dir/table" 2>"$dir/log"
}

# cell FILE SEPARATOR ROW COLUMN: of the row that begins with ROW
cell() {
    awk -F "$2" -v row="$3" -v column="$4" 'index($0, row) == 1 { print $column; exit }' "$1"
}

compare async-easgd async-sgd:learning_rate=0.02 --seeds 1,2 --out "$dir/out" || wrong "exit $?: $(<"$dir/log")"
cmp "$dir/table" "$dir/out/table.md" || wrong "the table that is shown is not the one that is written"
[[ $(grep -c '^|' "$dir/table") -eq 4 ]] || wrong "two rows below two lines of heading: $(<"$dir/table")"
[[ $(wc -l <"$dir/out/runs.tsv") -eq 5 ]] || wrong "four runs below the heading: $(<"$dir/out/runs.tsv")"
fields=$(awk -F '\t' '{ print NF }' "$dir/out/runs.tsv" | sort -u)
[[ $fields -eq 15 ]] || wrong "15 columns of each run, not $fields"
for row in async-easgd async-sgd:learning_rate=0.02; do
    reached=$(cell "$dir/table" ' *[|] *' "| \`$row\`" 3)
    [[ $reached =~ ^[0-9.]+\ s\ /\ [0-9]+\ /\ [0-9]+(\ k)?$ ]] || wrong "$row reached 0.3: $reached"
    [[ $(cell "$dir/table" ' *[|] *' "| \`$row\`" 4) == - ]] || wrong "$row reached 0.999 in 80 steps"
    best=$(cell "$dir/table" ' *[|] *' "| \`$row\`" 5)
    awk -v best="$best" 'BEGIN { exit !(best > 0.3 && best < 0.999) }' || wrong "$row: best is $best"
    # Parts of one time; the exchange that brings the first center is counted though the clock starts after it, which
    # is seen in so short a run.
    awk -F '\t' -v row="$row" '$1 == row { s = $10 + $11 + $12 + $13; if (s > 0.5 && s < 1.5) n++ } END { exit n != 2 }' \
        "$dir/out/runs.tsv" || wrong "$row: the parts of the time do not fit"
    awk -F '\t' -v row="$row" '$1 == row && $14 >= 0 && $15 >= $14 { n++ } END { exit n != 2 }' "$dir/out/runs.tsv" ||
        wrong "$row: staleness p99 below p50"
done
if command -v gnuplot >/dev/null; then
    [[ $(head -c 4 "$dir/out/compare.png" | tail -c 3) == PNG ]] || wrong "no picture: $(<"$dir/log")"
fi

before=$(stat -c %Y.%i "$dir/out/async-easgd-seed1/history.jsonl")
compare async-easgd sync-easgd:overlap=true sgd:learning_rate=0.05 --seeds 1 --out "$dir/out" ||
    wrong "exit $?: $(<"$dir/log")"
[[ $(stat -c %Y.%i "$dir/out/async-easgd-seed1/history.jsonl") == "$before" ]] || wrong "a complete run is run again"
for row in sync-easgd:overlap=true sgd:learning_rate=0.05; do
    best=$(cell "$dir/table" ' *[|] *' "| \`$row\`" 5)
    awk -v best="$best" 'BEGIN { exit !(best > 0.3 && best < 0.999) }' || wrong "$row: best is $best"
done
# A round waits for all: nobody is stale. One worker alone makes the steps of both, and has nobody to count.
[[ $(awk -F '\t' '/^sync-easgd/ { print $14, $15 }' "$dir/out/runs.tsv") == "0 0" ]] || wrong "sync-easgd is stale"
[[ $(awk -F '\t' '/^sgd/ { print $13, $14, $15 }' "$dir/out/runs.tsv") == "0.000 - -" ]] || wrong "sgd exchanges"
grep -q '"step":160,.*"data_seconds"' "$dir/out/sgd_learning_rate_0.05-seed1/worker-0.out" || wrong "sgd has not 160 steps"
compare async-easgd --batch 32 --out "$dir/out" && wrong "runs of another batch among these"

# refuses SENTENCE ARGUMENT...
refuses() {
    local status=0 sentence=$1
    shift
    compare "$@" --out "$dir/none" || status=$?
    [[ $status -eq 2 ]] || wrong "$*: exit $status"
    grep -qF -- "$sentence" "$dir/log" || wrong "$*: $(<"$dir/log")"
    [[ ! -e $dir/none ]] || wrong "$*: made a folder"
}
refuses "no such method" async-easgd no-such
refuses "parameters.epsilon: rule sgd" async-easgd async-sgd:epsilon=1
refuses "each once" async-easgd async-easgd
refuses "METHOD:KEY=VALUE" async-easgd:period
refuses "whole numbers" async-easgd --seeds 1,x
refuses "between 0 and 1" async-easgd --levels 99
refuses "no method" --seeds 1
refuses "--momentum: given for sgd" async-easgd sgd:momentum=0.9

# The script's list of methods without psd is what psd says.
for method in $("$root/scripts/compare" --help | sed -n 's/^methods: //p'); do
    local_by_psd=0 local_by_script=0
    says=$("$PSD_BUILD/server/psd" --method "$method" --check-config 2>&1)
    [[ $says != *"psworker --method"* ]] || local_by_psd=1
    [[ -e $root/configs/methods/$method.yaml ]] || local_by_script=1
    [[ $local_by_psd -eq $local_by_script ]] || wrong "$method: is it psworker's own?"
done
exit $failed
