#!/usr/bin/env bash
# worker_late: psworker on the stand-in takes the score of a step when the next has begun, with x and g in the memory of the
# device. It tells what it does with x and g on the host, where each score is taken first: losses, evaluations after every step
# and at the end, the step at which training diverges, the point where a signal ends it. $1: psd, $2: psworker.
set -euo pipefail

psd=$(realpath "$1")
psworker=$(realpath "$2")
name="worker-late"
# shellcheck source=tests/cuda/job.bash
source "$(dirname "$0")/job.bash"

# A small CIFAR-10.
mkdir cifar
python3 - <<'END'
import random

for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
    with open(f"cifar/{name}.bin", "wb") as out:
        for label in range(4):
            out.write(bytes([label]) + random.Random(f"{name} {label}").randbytes(3072))
END

alone=("$psworker" --backend cuda --data "cifar10:$folder/cifar" --batch 2 --threads 1 --seed 3 --every 3600) # without a server

timeless() { # FILE: without what depends on the clock
    sed -E 's/"(ts|t|images_per_second|[a-z_]*seconds)":[0-9.e+-]+,?//g' "$1"
}

same() { # WHAT FILE FILE
    diff "$2" "$3" >difference.log || fail "$1: --memory host and cuda differ"
}

# tells NET METHOD ORDER: resnet8 has batch norms, cifar7 a dropout.
tells() {
    local memory every
    for memory in host cuda; do
        for every in 0.1 3600; do # after every step, and after the last
            STANDIN_ORDER=$3 "${alone[@]}" --memory "$memory" --net "$1" --method "$2" --steps 5 --every "$every" --step-ms 110 --json --history "$memory.$every" \
                --train-sample 4 >"$memory.$every.log" 2>&1 || fail "$*, --memory $memory: it failed"
            timeless "$memory.$every" >"$memory.$every.history"
            timeless "$memory.$every.log" | grep '"event":"finished"' >"$memory.$every.end"
            rm "$memory.$every"
        done
    done
    grep -q 'x and g lie in the memory of the GPU' cuda.3600.log || fail "$*: x and g do not lie on the device"
    [[ $(wc -l <host.0.1.history) == 5 && $(wc -l <host.3600.history) == 1 ]] || fail "$*: not every step was evaluated"
    for every in 0.1 3600; do
        same "$*: history" {host,cuda}.$every.history
        # A machine that needs more than five seconds shows a line on the way: the last is of the steps after it.
        grep -q '"event":"progress"' {host,cuda}.$every.log || same "$*: losses" {host,cuda}.$every.end
    done
}
tells resnet8 msgd lazy
tells cifar7 sgd lazy
tells cifar7 mvasgd random:5
tells cifar7 msgd hasty:1

# A loss that is not finite: nothing is sent, and the step is named that had it. Alone that ends a training; with a psd the
# tenth in a row.
head='{"fc1.weight":{"dtype":"F32","shape":[10,784],"data_offsets":[0,31360]},"fc1.bias":{"dtype":"F32","shape":[10],"data_offsets":[31360,31400]}}'
{
    printf '%b' "\\x$(printf %x ${#head})\0\0\0\0\0\0\0$head"
    for ((i = 0; i < 7850; i++)); do printf '\0\0\0\177'; done # 1.7e38: the outputs overflow
} >far

events() { # LOG
    grep -oE '(train|state)\.[a-z_]+.*' "$1" || true
}

for memory in host cuda; do
    status=0
    "${alone[@]}" --memory "$memory" --net linear --data digits --method sgd --steps 5 --init far --state "$memory.state" >"$memory.log" 2>&1 || status=$?
    [[ $status == 7 && ! -e $memory.state ]] || fail "diverged, --memory $memory: ended with $status, or saved its state"
    events "$memory.log" >"$memory.events"
done
grep -q 'the loss is not finite at step 0' cuda.events || fail "the step that diverged is not named"
same "diverged" {host,cuda}.events

for method in async-msgd "eamsgd --set period=3"; do
    for memory in host cuda; do
        # shellcheck disable=SC2086 # several words
        start "$memory" --method $method
        status=0
        work linear cuda --steps 20 --init far --memory "$memory" >"$memory.log" 2>&1 || status=$?
        [[ $status == 7 ]] || fail "$method diverged, --memory $memory: ended with $status"
        end
        events "$memory.log" >"$memory.events"
        rm -r "$memory"
    done
    grep -q 'the loss is not finite at step 0, 10 times in a row' cuda.events || fail "$method: the tenth loss is not named"
    [[ $method == async-msgd ]] || same "$method diverged" {host,cuda}.events # parts of a gradient of the host leave before its loss is known
done

# A signal between two steps: what was saved goes on as if there had been none.
resnet=("${alone[@]}" --net resnet8 --method msgd)
"${resnet[@]}" --memory host --steps 20 --state whole.state >whole.log 2>&1 || fail "20 steps: it failed"
"${resnet[@]}" --memory cuda --steps 1000000 --state parts.state >parts.log 2>&1 &
pid=$!
until grep -qs memory.chosen parts.log; do sleep 0.05; done
sleep 0.3
kill -TERM "$pid"
wait "$pid" || fail "a signal: it ended badly"
steps=$(grep -oE 'stopped after [0-9]+ steps' parts.log | grep -oE '[0-9]+')
if ((steps > 0 && steps < 20)); then # else the machine was too slow, or too fast
    "${resnet[@]}" --memory cuda --steps 20 --state parts.state >>parts.log 2>&1 || fail "it did not go on"
    cmp whole.state parts.state || fail "it went on after $steps steps to other bytes"
fi
echo "the same losses, evaluations and states as where each score is taken first; interrupted after $steps steps"
