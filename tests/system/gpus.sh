#!/usr/bin/env bash
# gpus.sh SOURCE BUILD: psrun hands out GPUs: to each worker its own, of those that the host shows, with the cores near them where
# hwloc and the driver's tool know them; Slurm and LSF are asked for them. nvidia-smi, hwloc-bind, sbatch and bsub are
# stand-ins: no machine with two GPUs was at hand.
set -euo pipefail

scripts=$1/scripts
export PSD_BUILD=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin"

fail() {
    echo "gpus: $*" >&2
    tail -n 5 "$folder"/*.log "$folder"/*.out >&2 || true
    exit 1
}

tool() { # NAME: its script is on stdin
    { echo '#!/bin/bash' && cat; } >"$folder/bin/$1"
    chmod +x "$folder/bin/$1"
}

# member MEMBER GPUS [NAME=VALUE...]: what the worker sees
member() {
    local rank=$1 gpus=$2
    shift 2
    rm -f "$folder"/client-0*.log
    # shellcheck disable=SC2016 # for the worker's shell
    env -u CUDA_VISIBLE_DEVICES "$@" "$scripts/psrun.d/member" --gpus="$gpus" "$folder" client-0 4 "$rank" "" "" \
        bash -c 'echo "sees $CUDA_VISIBLE_DEVICES by $CUDA_DEVICE_ORDER${NEAR:+ near $NEAR}"'
}

sees() { # SENTENCE
    grep -qxF "sees $1" "$folder"/client-0.*.log || fail "a worker does not see $1"
}

# The worker's own; of all, and of those that a workload manager shows.
member 0 1:0,1,2,3
sees "0 by PCI_BUS_ID"
member 2 1:0,1,0,1
sees "0 by PCI_BUS_ID"
member 3 2:0,2,4,6
sees "6,7 by PCI_BUS_ID"
member 1 2:0,2,4,6 CUDA_VISIBLE_DEVICES=1,3,GPU-5ab,7
sees "GPU-5ab,7 by PCI_BUS_ID"
! member 3 2:0,2,4,6 CUDA_VISIBLE_DEVICES=1,3,5,7 || fail "a worker began without its GPUs"
grep -q 'has GPUs 6 to 7 of its host, which shows 4 (CUDA_VISIBLE_DEVICES=1,3,5,7)' "$folder"/client-0.3.log ||
    fail "the missing GPUs are not named"
! member 0 1:0,1,2,3 CUDA_VISIBLE_DEVICES= || fail "a worker began on a host that shows no GPU"

# Cores near them: by the bus of each. A core that the worker may not use leaves it where it is.
tool nvidia-smi <<'END'
[[ "$*" == "--id="*" --query-gpu=pci.bus_id --format=csv,noheader" ]] || exit 1
echo "00000000:${1#--id=}B:00.0"
END
tool hwloc-bind <<'END'
[[ $1 == --cpubind && $2 != pci=0000:9B:00.0 ]] || exit 1
shift
while [[ $1 != -- ]]; do
    NEAR+=${NEAR:+ }$1
    shift
done
shift
export NEAR
exec "$@"
END
member 1 2:0,2,4,6 PATH="$folder/bin:$PATH"
sees "2,3 by PCI_BUS_ID near pci=0000:2B:00.0 pci=0000:3B:00.0"
member 0 1:9 PATH="$folder/bin:$PATH"
sees "9 by PCI_BUS_ID"

# Every worker of a host has others: three hosts of two and three workers.
# shellcheck disable=SC2016
handed=$(bash -c '
    source "$1/lib.sh"; source "$1/job.sh"; source "$1/launch.sh"
    hosts=(a b c) workers=8 gpus=2 members=4
    echo "$(gpus_of 0) $(gpus_of 1)"
    for ((i = 0; i < workers; i++)); do echo -n "$(host_of "$i")$(first_gpu_of "$i") "; done' gpus "$scripts")
[[ $handed == $'2:0,2,4,0 2:2,4,0,2\na0 a2 a4 b0 b2 b4 c0 c2 ' ]] || fail "handed out: $handed"

# What the workload managers are asked for. The stand-ins take no job.
for manager in slurm:sbatch lsf:bsub; do
    for name in srun squeue scancel scontrol bjobs bkill; do
        tool "$name" <<<'exit 1'
    done
    # shellcheck disable=SC2016 # for the tool's shell
    tool "${manager#*:}" <<<'printf "%s\n" "$@" >"$(dirname "$0")/../asked.out"; exit 1'
    rm -f "$folder/asked.out"
    PATH=$folder/bin:$PATH "$scripts/psrun" --backend "${manager%:*}" --workers 4 --clients 1 --nccl --run-dir "$folder/${manager%:*}" \
        --data digits -- psworker --net linear --backend cuda >"$folder/psrun.out" 2>&1 && fail "$manager: the job was taken"
    [[ -e $folder/asked.out ]] || fail "$manager was not asked"
    grep -qxE -e '--gpus-per-task=1|num=1/task' "$folder/asked.out" || fail "$manager is not asked for GPUs: $(<"$folder/asked.out")"
done

"$scripts/psrun" --workers 1 --gpus-per-worker 0 -- true >"$folder/psrun.out" 2>&1 && fail "0 GPUs were taken"
grep -q -e '--gpus-per-worker.*1 to 64' "$folder/psrun.out" || fail "--gpus-per-worker 0 is not refused by name"
echo "each worker has GPUs of its own"
