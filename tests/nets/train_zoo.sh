#!/usr/bin/env bash
# train_zoo: each of the seeds' nets trains 50 steps through psd with two workers on synthetic images. The loss falls, and a
# run that ends after 10 steps and goes on has the center of one that did not, bit for bit. Needs jq.
# $1: psd, $2: psworker; then --steps N --part M for other numbers of steps, and nets as NET|DATA|RATE instead of those below.
set -euo pipefail

psd=$(realpath "$1")
psworker=$(realpath "$2")
shift 2
all=50 part=10
while [[ ${1-} == --* ]]; do
    case $1 in
    --steps) all=$2 ;;
    --part) part=$2 ;;
    *) echo "train_zoo: $1: no such option" >&2; exit 2 ;;
    esac
    shift 2
done
rows=("$@")
[[ ${#rows[@]} -gt 0 ]] || rows=(
    "cifar100-cnn|synthetic:3x32x32:100|0.005"
    "cifar100-convex|synthetic:3x32x32:100|0.005"
    "alexnet:classes=2,size=67|synthetic:3x67x67:2|0.1"
    "alexnet-ungrouped:classes=2,size=67|synthetic:3x67x67:2|0.1"
    "alexnet-ungrouped-cifar:classes=2|synthetic:3x32x32:2|0.1"
    "googlenet:classes=2,size=80|synthetic:3x80x80:2|0.02"
    "vgg19:classes=2,size=32|synthetic:3x32x32:2|0.1"
    "resnet18:classes=2,size=64|synthetic:3x64x64:2|0.02"
    "resnet50:classes=2,size=64|synthetic:3x64x64:2|0.01"
    "imagenet11:classes=2,size=101|synthetic:3x101x101:2|0.002"
)
folder=$(mktemp -d)
trap 'kill -KILL $(jobs -rp) 2>/dev/null || true; rm -rf "$folder"' EXIT

fail() {
    echo "train_zoo: $net: $1" >&2
    tail -n 5 "$folder"/*.log >&2
    exit 1
}

# job STATE_DIR STEPS PSD_OPTION...: two workers up to that step.
job() {
    local state=$1 steps=$2 rank worker server workers=()
    shift 2
    rm -f "$folder/endpoint"
    "$psd" --method sync-sgd --set workers=2 --set checkpoint.every_s=0 --set "parameters.learning_rate=$rate" \
        --set parameters.schedule.warmup_steps=0 --state-dir "$state" --endpoint-file "$folder/endpoint" "$@" \
        >>"$folder/psd.log" 2>&1 &
    server=$!
    for ((waited = 0; waited < 6000; waited++)); do
        [[ ! -s $folder/endpoint ]] || break
        sleep 0.02
    done
    for rank in 0 1; do
        "$psworker" --server "@$folder/endpoint" --net "$net" --data "$data" --batch 8 --steps "$steps" --seed 7 \
            --rank "$rank" --state "$state/worker-$rank" --json >>"$state-$rank.log" 2>&1 &
        workers+=($!)
    done
    for worker in "${workers[@]}"; do
        wait "$worker" || fail "a worker failed"
    done
    kill -TERM "$server"
    wait "$server" || fail "psd did not end well"
}

# Of the last center's values: eight bytes say how long the header before them is.
sum_of() { # STATE_DIR
    local files=("$1"/checkpoints/center-*.safetensors)
    local file=${files[-1]} header
    header=$(od -An -tu8 -N8 "$file")
    tail -c +$((header + 9)) "$file" | sha256sum
}

# The mean over the steps of the first part, and of the second: an event's loss is that of the steps since the one before.
losses_of() { # LOG
    jq -rnR '[inputs | fromjson? | select(.event == "progress" or .event == "finished")]
        | reduce .[] as $e ({at: 0, sum: 0, n: 0, means: []};
            ($e.step - .at) as $steps | .sum += $e.loss * $steps | .n += $steps | .at = $e.step
            | if $e.event == "finished" then .means += [.sum / .n] | .sum = 0 | .n = 0 else . end)
        | .means | join(" ")' "$1"
}

for row in "${rows[@]}"; do
    IFS='|' read -r net data rate <<<"$row"
    rm -rf "${folder:?}"/*
    job "$folder/whole" "$all"
    job "$folder/parts" "$part"
    job "$folder/parts" "$all" --resume
    [[ $(sum_of "$folder/whole") == $(sum_of "$folder/parts") ]] || fail "the resumed center has other bits"
    read -r first last <<<"$(losses_of "$folder/parts-0.log")"
    echo "$net: loss $first to $last; resumed bit for bit"
    awk -v a="$first" -v b="$last" 'BEGIN { exit !(b < a) }' || fail "the loss does not fall"
done
