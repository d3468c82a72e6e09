#!/usr/bin/env bash
# describe_memory: the memory that psworker --describe states for a net, beside what the process's resident memory grows by when
# a gradient is made, on one thread and on two. The statement is within 10 % of it, or within 32 pages, which are more than that
# of the smallest net.
# $1: psworker; $2: images in a batch; then nets instead of all.
set -euo pipefail

psworker=$1 batch=$2
shift 2
nets=("$@")
[[ ${#nets[@]} -gt 0 ]] || nets=(linear mlp lenet cifar7 alexnet-cifar alexnet-ungrouped-cifar resnet8 cifar100-cnn
    cifar100-convex alexnet alexnet-ungrouped googlenet googlenet-plain vgg19 resnet18 resnet50 imagenet11)
status=0
printf '%-26s %7s %12s %14s %6s\n' net threads 'stated MiB' 'measured MiB' ratio
for net in "${nets[@]}"; do
    for threads in 1 2; do
        "$psworker" --describe "$net" --batch "$batch" --threads "$threads" --json |
            jq -r --arg net "$net" --arg threads "$threads" '[$net, $threads, .total_bytes, .measured_bytes] | @tsv' |
            awk '{ ratio = $3 / $4; off = (ratio > 1.1 || ratio < 0.9) && ($3 - $4) ^ 2 > (32 * 4096) ^ 2
                printf "%-26s %7d %12.1f %14.1f %6.3f%s\n", $1, $2, $3 / 1048576, $4 / 1048576, ratio, off ? "  OFF" : ""
                exit off }' || status=1
    done
done
exit "$status"
