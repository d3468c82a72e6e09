#!/usr/bin/env bash
# jobs: workers with GPUs beside others, on the stand-in. Three rounds of sync-sgd are the same job whoever computes its
# gradients: two CPU workers, a CPU worker and one with a GPU, two on one GPU, with x on the device and on the host. A training
# goes on on the other kind of worker, from psd's checkpoint and the worker's state. Images are cropped on the device. Centers
# agree within 1e-5 of their largest value: gradients differ by 1e-7 of themselves (cuda-backends). $1: psd, $2: psworker,
# $3: compare.py.
set -euo pipefail

psd=$(realpath "$1")
psworker=$(realpath "$2")
compare=$(realpath "$3")
name="jobs"
# shellcheck source=tests/cuda/job.bash
source "$(dirname "$0")/job.bash"

# pair FOLDER BACKEND BACKEND MEMORY...: a job of two workers.
pair() {
    local to=$1 first=$2 second=$3 pid
    start "$to" --method sync-sgd --set workers=2
    work linear "$first" --rank 0 --steps 3 --memory "$4" >"$to-0.log" 2>&1 &
    pid=$!
    work linear "$second" --rank 1 --steps 3 --memory "$5" >"$to-1.log" 2>&1 || fail "$to: worker 1 failed"
    wait "$pid" || fail "$to: worker 0 failed"
    end
}

agree() { # FOLDER FOLDER
    python3 "$compare" "$(last_center "$1")" "$(last_center "$2")" || fail "$1 and $2: the centers differ"
}

pair cpus ref ref auto auto
pair mixed ref cuda auto cuda
STANDIN_ORDER=random:7 pair one-gpu cuda cuda cuda host
agree cpus mixed
agree cpus one-gpu

# goes_on FOLDER BACKEND BACKEND: two steps of one worker, then two of another from its checkpoint and state.
goes_on() {
    local to=$1
    start "$to" --method async-msgd
    work linear "$2" --rank 0 --steps 2 --state "$to.state" >"$to-0.log" 2>&1 || fail "$to: the first worker failed"
    end
    start "$to" --resume --method async-msgd
    work linear "$3" --rank 0 --steps 4 --state "$to.state" >"$to-1.log" 2>&1 || fail "$to: the second worker failed"
    grep -q 'resuming after 2 steps' "$to-1.log" || fail "$to: the second worker did not go on"
    end
}

goes_on cpu-cpu ref ref
STANDIN_ORDER=eager goes_on gpu-cpu cuda ref
goes_on cpu-gpu ref cuda
agree cpu-cpu gpu-cpu
agree cpu-cpu cpu-gpu
# crops BACKEND ORDER: a small CIFAR-10, whose images are cropped and mirrored: by the GPU, or by ref.
crops() {
    start "crops-$1" --method async-sgd
    STANDIN_ORDER=$2 work resnet8 "$1" --rank 0 --steps 3 >"crops-$1.log" 2>&1 || fail "crops: the worker on $1 failed"
    end
}

mkdir cifar
python3 - <<'END'
import random

for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
    with open(f"cifar/{name}.bin", "wb") as out:
        for label in range(4):
            out.write(bytes([label]) + random.Random(f"{name} {label}").randbytes(3072))
END
data[resnet8]=cifar10:$PWD/cifar
crops ref lazy
crops cuda hasty:2
agree crops-ref crops-cuda
echo "three jobs of two workers, two that went on elsewhere, one with crops: the centers of CPU workers"
