#!/bin/bash
# alone.sh PSWORKER: training without a server learns, and a run that was ended and taken up again ends in the same
# point and average as one that was not.
set -u
psworker=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

# train METHOD HISTORY STEPS OPTION...
train() {
    "$psworker" --method "$1" --net linear --data digits --batch 16 --every 3600 --history "$2" --steps "$3" "${@:4}" >"$dir/out" 2>&1 ||
        { cat "$dir/out" && failed=1; }
}

# What the last line of a history says of the point.
result() { tail -n 1 "$1" | grep -oE '"test_loss":.*'; }

for method in sgd msgd asgd mvasgd pipe-sgd; do
    options=()
    [[ $method != mvasgd ]] || options=(--averaging-rate 0.05) # or z is still at the start
    [[ $method != pipe-sgd ]] || options=(--pipeline 3 --pipeline-warmup 50)
    train $method "$dir/straight" 400 "${options[@]}"
    train $method "$dir/half" 150 --state "$dir/$method.state" "${options[@]}"
    train $method "$dir/whole" 400 --state "$dir/$method.state" "${options[@]}"
    [[ $(result "$dir/straight") == "$(result "$dir/whole")" ]] ||
        { echo "$method: straight $(result "$dir/straight"), taken up again $(result "$dir/whole")" && failed=1; }
    train $method "$dir/again" 400 --state "$dir/$method.state" "${options[@]}" # no step is left: the same result
    [[ $(result "$dir/again") == "$(result "$dir/whole")" ]] ||
        { echo "$method: at first $(result "$dir/whole"), then $(result "$dir/again")" && failed=1; }
    accuracy=$(result "$dir/whole" | sed -E 's/.*test_accuracy":([0-9.]+).*/\1/')
    awk -v a="$accuracy" 'BEGIN { exit !(a > 0.8) }' || { echo "$method: accuracy $accuracy" && failed=1; }
    rm -f "$dir/straight" "$dir/half" "$dir/whole" "$dir/again"
done

# In bf16 as well, where the CPU has it.
if "$psworker" --describe linear --precision bf16 >/dev/null 2>&1; then
    train msgd "$dir/straight" 200 --net lenet --precision bf16
    train msgd "$dir/half" 90 --net lenet --precision bf16 --state "$dir/bf16.state"
    train msgd "$dir/whole" 200 --net lenet --precision bf16 --state "$dir/bf16.state"
    [[ $(result "$dir/straight") == "$(result "$dir/whole")" ]] ||
        { echo "bf16: straight $(result "$dir/straight"), taken up again $(result "$dir/whole")" && failed=1; }
fi
train sgd "$dir/auto" 3 --precision auto
grep -q '"event":"precision.chosen","msg":"--precision auto: \(float32\|bf16\): ' "$dir/out" || { cat "$dir/out" && failed=1; }

# Threads of the net that auto measures are not there for signals: the step is finished, and the state is saved. The signal that
# asks psd for a checkpoint ends nobody.
"$psworker" --method sgd --net lenet --data digits --batch 16 --every 0.1 --history "$dir/running" --steps 1000000000 --threads 2 \
    --precision auto --state "$dir/stopped.state" >"$dir/out" 2>&1 &
pid=$!
until [[ -s $dir/running ]] || ! kill -0 $pid 2>/dev/null; do sleep 0.1; done
kill -USR1 $pid
kill -TERM $pid
wait $pid
status=$?
[[ $status -eq 0 && -s $dir/stopped.state ]] || { echo "SIGUSR1, SIGTERM with --precision auto: status $status" && cat "$dir/out" && failed=1; }

# Every tar file of a set stays open: the number of descriptors that a shell grants at first is no limit.
mkdir -p "$dir/shards" "$dir/images/a" "$dir/images/b"
for k in {1..40}; do
    for class in a b; do # a pixel
        base64 -d >"$dir/images/$class/$k.png" <<<iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mNocFAAAAIkAOGVpLGLAAAAAElFTkSuQmCC
    done
    tar -C "$dir/images" -cf "$dir/shards/$k.tar" "a/$k.png" "b/$k.png"
done
(ulimit -Sn 40 && "$psworker" --method sgd --net resnet8:classes=2 --data "images:$dir/shards" --batch 8 --steps 1) >"$dir/out" 2>&1 ||
    { echo "40 tar files: status $?" && cat "$dir/out" && failed=1; }

# refuses STATUS TEXT OPTION...
refuses() {
    "$psworker" --method sgd --learning-rate 1 "${@:3}" >"$dir/out" 2>&1
    local status=$?
    if [[ $status -ne $1 ]] || ! grep -qF -e "$2" "$dir/out"; then
        echo "status $status of ${*:3}: $(cat "$dir/out")" && failed=1
    fi
}
refuses 2 '--precision: "fp8"; allowed: float32, tf32, bf16 or auto' --precision fp8
refuses 1 "backend 'ref' does not compute in bf16" --backend ref --precision bf16
refuses 2 '--deterministic: "maybe"; allowed: yes or no' --deterministic maybe
refuses 1 "backend 'ref' has deterministic algorithms only" --backend ref --deterministic no
exit $failed
