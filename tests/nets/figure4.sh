#!/usr/bin/env bash
# figure4: the comparison of Li et al. 2018, figure 4: MNIST-MLP, CIFAR100-CNN and CIFAR100-Convex under PS-Sync (sync-sgd),
# D-Sync and Pipe-SGD, each without a codec, with trunc16 and with int8. Four workers with a batch of 100 together, each
# behind a link of 500 Mb/s, each gradient of a minimum time in place of an accelerator. Needs root.
#
# Writes a folder for each net, with time to accuracy and the split of time in table.md, and prints the final accuracies. Ends
# with 1 where the means over the seeds of one net's rows are more than two points apart, or one is below the first level. Runs
# that are complete in the folder are not repeated.
# $1: folder for the results; $2: passes over CIFAR-100, and half of them over MNIST, where the MLP is at 0.97 after four. The CNN's
# learning rate falls to 0 by a cosine: at a constant one near its bound of stability the pipeline's later gradients cost accuracy;
# $3: seeds, such as 1,2,3; $4: MNIST's folder; $5: CIFAR-100's folder; then nets of these instead of all, and options of
# compare for all, after --.
set -euo pipefail

out=$1 epochs=$2 seeds=$3 mnist=$4 cifar=$5
shift 5
nets=()
while [[ $# -gt 0 && $1 != -- ]]; do
    nets+=("$1")
    shift
done
[[ $# -eq 0 ]] || shift
[[ ${#nets[@]} -gt 0 ]] || nets=(mlp cifar100-cnn cifar100-convex)
rows=(sync-sgd "sync-sgd:codec.message=trunc16,codec.answer=trunc16"
    "sync-sgd:codec.message=int8,codec.answer=int8,codec.error_feedback=true")
# The paper warms up by D-Sync on ImageNet only.
declare -A warm_up=([pipe-sgd]=",pipeline_warmup=0")
for method in d-sync pipe-sgd; do
    for codec in raw trunc16 int8; do
        rows+=("$method:clique.codec=$codec,clique.publish=30${warm_up[$method]-}")
    done
done

final() { # FILE
    awk 'match($0, /"test_accuracy":[0-9.]+/) { last = substr($0, RSTART + 16, RLENGTH - 16) } END { print last }' "$1"
}

# Prints the row's mean accuracy at the end; a run without one counts as 0.
mean_of() { # FOLDER ROW
    local seed
    for seed in ${seeds//,/ }; do
        final "$1/${2//[:=,]/_}-seed$seed/history.jsonl"
    done | awk '{ sum += $1 } END { printf "%.4f\n", sum / NR }'
}

status=0
for net in "${nets[@]}"; do
    passes=$epochs
    [[ $net != mlp ]] || passes=$(((epochs + 1) / 2))
    case $net in
    mlp) levels=0.9,0.95,0.97 options=(--data "mnist:$mnist" --step-ms 20 --set learning_rate=0.05) ;;
    cifar100-cnn)
        levels=0.05,0.1,0.12
        options=(--data "cifar100:$cifar" --step-ms 200 --set learning_rate=0.04 --set parameters.schedule.kind=cosine
            --set parameters.schedule.total_steps=$((120 * passes)) --set parameters.schedule.warmup_steps=50)
        ;;
    *) levels=0.02,0.05,0.08 options=(--data "cifar100:$cifar" --step-ms 100 --set learning_rate=0.02) ;;
    esac
    scripts/compare "${rows[@]}" --net "$net" --workers 4 --batch 25 --epochs "$passes" --seeds "$seeds" --link 500mbit \
        --every 10 --out "$out/$net" --levels "$levels" "${options[@]}" "$@"
    for row in "${rows[@]}"; do
        echo "$net $row: final accuracy $(mean_of "$out/$net" "$row")"
    done | tee "$out/$net/final.txt"
    awk -v net="$net" -v least="${levels%%,*}" '{ a = $NF; low = NR == 1 || a < low ? a : low; high = a > high ? a : high }
        END { printf "%s: final accuracies of %.4f to %.4f\n", net, low, high; exit !(low >= least && high - low <= 0.02) }' \
        "$out/$net/final.txt" || status=1
done
exit "$status"
