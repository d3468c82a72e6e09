#!/usr/bin/env bash
# training: diloco with raw messages that are waited for, with int4 and with topk messages that take half a period (topk on CIFAR-10: one
# step), LeNet on MNIST or cifar7 on CIFAR-10. Passes if the others' mean test accuracy after the last step is at most half a point below raw's and, on MNIST,
# the median images to 0.985 are at most 1.15 times as many. The last rows are for comparison: topk both ways, and raw with the
# others' outer momentum and rate. Under the preset's outer momentum of 0.9 answers that are half a period old overshoot: the others
# have another, and a rate of 1. Results do not depend on the machine's speed: steps take so long on MNIST that the evaluator sees
# each round. Runs of an earlier call with the same OUT are kept, so that the seeds can be run one by one.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)

usage() {
    cat <<END
usage: tests/bench/slow/training.sh mnist:DIR|cifar10:DIR OUT
  Environment: SEEDS (1,2,3; nine tell more), STEPS of each worker (1200 on MNIST, 6000 on CIFAR-10), PERIOD (50), WORKERS (4),
               BATCH (64 on MNIST, 32 on CIFAR-10), TOPK_OVERLAP in steps (half of PERIOD on MNIST, 1 on CIFAR-10),
               OUTER_MOMENTUM and OUTER_RATE of the others (0.5 and 1), EVERY seconds between evaluations (1 on MNIST, 30 on CIFAR-10),
               STEP_MS, the least time of a step (60 on MNIST, 0 on CIFAR-10)
END
}

[[ $# -eq 2 && ${1%%:*} =~ ^(mnist|cifar10)$ ]] || { usage >&2 && exit 2; }
data=$1 out=$2 period=${PERIOD:-50}
case ${data%%:*} in
mnist)
    steps=${STEPS:-1200} batch=${BATCH:-64} topk_overlap=${TOPK_OVERLAP:-$((period / 2))} level=0.985 every=1
    schedule=(--step-ms "${STEP_MS:-60}")
    ;;
cifar10)
    steps=${STEPS:-6000} batch=${BATCH:-32} topk_overlap=${TOPK_OVERLAP:-1} level='' every=30
    schedule=(${STEP_MS:+--step-ms "$STEP_MS"} --set learning_rate=0.01 --set parameters.schedule.kind=cosine
        --set "parameters.schedule.total_steps=$steps")
    ;;
esac

outer=outer_momentum=${OUTER_MOMENTUM:-0.5},outer_learning_rate=${OUTER_RATE:-1}
late() { # MESSAGE ANSWER OVERLAP
    echo "diloco:codec.message=$1,codec.answer=$2,codec.error_feedback=true,overlap=$3,$outer"
}

entries=(diloco "$(late int4 int4 $((period / 2)))" "$(late topk:0.03 int4 "$topk_overlap")"
    "$(late topk:0.03 topk:0.03 "$topk_overlap")" "diloco:$outer")
"$root/scripts/compare" "${entries[@]}" --data "$data" --workers "${WORKERS:-4}" --batch "$batch" --seeds "${SEEDS:-1,2,3}" --steps "$steps" \
    --set "period=$period" "${schedule[@]}" --levels "${level:-0.50}" --every "${EVERY:-$every}" --out "$out" >"$out.table"

# A line for each row: its settings, images to the level ("-": not reached) in the median over seeds, mean of the last test
# accuracies, bytes. runs.tsv: columns 5 and 9 are images to the level and of the whole run, 10 are its bytes.
rows() {
    local entry dir seed
    for entry in "${entries[@]}"; do
        for seed in $(tr , ' ' <<<"${SEEDS:-1,2,3}"); do
            dir=$out/${entry//[:=,]/_}-seed$seed
            printf '%s\t%s\t%s\n' "$entry" "$(tail -n 1 "$dir/history.jsonl" | jq -e .test_accuracy)" \
                "$(awk -F '\t' -v entry="$entry" -v seed="$seed" '$1 == entry && $2 == seed { print $5 "\t" $10 }' "$out/runs.tsv")"
        done
    done
}

rows | LC_ALL=C awk -F '\t' -v level="$level" '
    function median(of,    i, j, v, a, n) {
        n = split(of, part, " ")
        for (i = 1; i <= n; i++) {
            v = part[i]
            for (j = i - 1; j > 0 && v != "-" && (a[j] == "-" || v + 0 < a[j] + 0); j--) a[j + 1] = a[j]
            a[j + 1] = v
        }
        return a[int((n + 1) / 2)]
    }
    {
        if (!($1 in n)) order[++rows] = $1
        n[$1]++; sum[$1] += $2; images[$1] = images[$1] " " $3; bytes[$1] = $4
        all[$1] = all[$1] sprintf(" %.4f", $2)
    }
    END {
        print "| method | test accuracy, mean | each seed |" (level ? " images to " level " |" : "") " MB |"
        print "|---|---|---|---|" (level ? "---|" : "")
        raw = order[1]
        for (k = 1; k <= rows; k++) {
            e = order[k]
            printf "| `%s` | %.4f |%s |", e, sum[e] / n[e], all[e]
            if (level) printf " %s |", median(images[e])
            printf " %.0f |\n", bytes[e] / 1e6
            if (k > 3) continue
            bad = bad || sum[e] / n[e] < sum[raw] / n[raw] - 0.005
            if (level && (median(images[e]) == "-" || median(images[e]) > 1.15 * median(images[raw]))) bad = 1
        }
        exit bad
    }'
