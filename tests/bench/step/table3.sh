#!/usr/bin/env bash
# table3: the rows of You, Buluc, Demmel 2017, Table 3, and Async EASGD, Async MEASGD and Hogwild EASGD: LeNet on MNIST, 4 workers,
# period 1, the same eta and rho in every row. Gradients are real and take at least 60 ms, as an accelerator's would. psd's link
# is paced so that one exchange takes 70 ms, the paper's 7 : 6; a worker's has 2 Gb/s, on which cliques sum. Prints the table:
# medians over seeds to the accuracy. Needs root, iproute2 and a build folder.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)

usage() {
    cat <<END
usage: tests/bench/step/table3.sh BUILD MNIST OUT [ROW...]
  MNIST: the folder of the set's files. OUT: a folder for the runs; those in it are not repeated
  ROW: original-star, original, easgd1, easgd2, easgd3, async, async-m, hogwild; all by default
  Environment: SEEDS (1,2,3), UNTIL (0.988), ETA (0.1), RHO (2), EVERY (2), CENTER_LINK (208mbit)
  Without ROW it also prints the table. A call with ROW may run beside another one if its OUT is another; move the runs into one OUT
  for the table
END
}

[[ $# -ge 3 ]] || { usage && exit 2; }
build=$1 mnist=$2 out=$3
shift 3
until=${UNTIL:-0.988} eta=${ETA:-0.1} rho=${RHO:-2}
same="learning_rate=$eta,rho=$rho,period=1"
tree="sync-easgd:$same,clique.mode=vectors,clique.algorithm=tree"
rows=(original-star original easgd1 easgd2 easgd3 async async-m hogwild)
declare -A entry=(
    [original-star]="original-easgd:$same"
    [original]="original-easgd:$same,overlap=true"
    [easgd1]="$tree,clique.publish=1"
    [easgd2]="$tree,clique.publish=16" # psd gets a copy once a second, for the evaluator
    [easgd3]="$tree,clique.publish=16,overlap=true"
    [async]="async-easgd:$same"
    # The step of momentum 0.9 is ten times as long, so eta is a tenth, and rho ten times.
    [async-m]="async-measgd:learning_rate=$(awk "BEGIN { print $eta / 10 }"),rho=$(awk "BEGIN { print $rho * 10 }"),period=1,parameters.schedule.kind=constant"
    [hogwild]="hogwild-easgd:$same"
)
[[ $# -gt 0 ]] && rows=("$@")
entries=()
for row in "${rows[@]}"; do
    [[ -n ${entry[$row]-} ]] || { usage && exit 2; }
    entries+=("${entry[$row]}")
done

# Chunks of 64 KB: the last one of each lane, which Original EASGD cannot overlap, is then short.
PSD_BUILD=$(realpath "$build") "$root/scripts/compare" "${entries[@]}" --data "mnist:$mnist" --epochs 20 --until "$until" \
    --levels "$until" --every "${EVERY:-2}" --seeds "${SEEDS:-1,2,3}" --step-ms 60 --link 2gbit \
    --center-link "${CENTER_LINK:-208mbit}" --set chunk_floats=16384 --out "$out" >/dev/null
[[ $# -eq 0 ]] || exit 0

# Iterations are the job's: exchanges of single workers, or rounds of all. Shares are of time: of the workers', or, where one
# worker at a time computes, of the job's. What psd does to the center is part of an exchange.
echo "| row | iterations | time | worker-worker | data | psd-worker | forward, backward | update | communication | images |"
echo "|---|---|---|---|---|---|---|---|---|---|"
for row in "${rows[@]}"; do
    awk -F '\t' -v row="$row" -v entry="${entry[$row]}" '
        function median(of,    i, j, v, a) {
            for (i = 1; i <= n; i++) {
                v = cell[i, of]
                for (j = i - 1; j > 0 && v != "-" && (a[j] == "-" || v + 0 < a[j] + 0); j--) a[j + 1] = a[j]
                a[j + 1] = v
            }
            return a[int((n + 1) / 2)]
        }
        function percent(share) { return sprintf("%.1f %%", 100 * share) }
        $1 == entry { n++; for (i = 1; i <= NF; i++) cell[n, i] = $i }
        END {
            clique = row ~ /easgd/; serial = row ~ /original/
            of = serial ? 4 : 1 # workers whose shares make up the time of the job
            images = median(5)
            if (images == "-") { print "| " row " | not reached |||||||||"; exit }
            data = of * median(12); compute = of * median(13); update = of * median(14)
            exposed = serial ? 1 - data - compute - update : median(15)
            if (exposed < 0) exposed = 0
            printf "| %s | %.0f | %.0f s | %s | %s | %s | %s | %s | %s | %.0f k |\n", row, images / (clique ? 256 : 64), \
                median(3), percent(clique ? exposed : 0), percent(data), percent(clique ? 0 : exposed), percent(compute), \
                percent(update), percent(exposed), images / 1000
        }' "$out/runs.tsv"
done
