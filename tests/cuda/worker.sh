#!/usr/bin/env bash
# worker: psworker --backend cuda on the stand-in, with x and g in the memory of the device: center and states end with the
# bytes of a job whose x and g lie on the host, and whose batches are uploaded in their own steps. A worker that is killed in
# the middle of an exchange, with chunks of it under way, does not stop the other. $1: psd, $2: psworker, $3: psctl.
set -euo pipefail

psd=$(realpath "$1")
psworker=$(realpath "$2")
psctl=$(realpath "$3")
declare -A prefetch=([host]=0 [cuda]=4) # 0: no batch is uploaded ahead
name="worker"
# shellcheck source=tests/cuda/job.bash
source "$(dirname "$0")/job.bash"

values() { # NAME: a sum of the last center's values
    local file header
    file=$(last_center "$1")
    header=$(od -An -tu8 -N8 "$file") # its length, in eight bytes; it has the time
    tail -c +$((8 + header + 1)) "$file" | sha256sum
}

check() { # NET PSD-OPTION...
    local net=$1 memory
    shift
    for memory in host cuda; do
        start "$memory" "$@"
        work "$net" cuda --steps 4 --prefetch "${prefetch[$memory]}" --state "$memory.state" --memory "$memory" >"$memory.log" 2>&1 ||
            fail "$*, --memory $memory: a worker failed"
        end
    done
    grep -q 'x and g lie in the memory of the GPU' cuda.log || fail "--memory cuda: x and g do not lie on the device"
    [[ $(values host) == "$(values cuda)" ]] || fail "$net, $*: the center has other bytes"
    cmp host.state cuda.state || fail "$net, $*: the worker ends with other bytes"
    rm -rf host* cuda*
}

check linear --method eamsgd --set period=1 --set overlap=true
check linear --method async-msgd
check resnet8 --method async-easgd --set period=1

# What needs x on the host keeps it there, or is refused.
start memory --method async-sgd
work linear cuda --steps 1 --clip-norm 1 >auto.log 2>&1 || fail "--clip-norm with --memory auto failed"
grep -q 'x and g lie in the memory of the host: needed for --clip-norm' auto.log || fail "--memory auto did not say why"
! work linear cuda --steps 1 --clip-norm 1 --memory cuda >refused.log 2>&1 || fail "--clip-norm with --memory cuda was not refused"
grep -q 'memory cuda: --clip-norm needs x and g on the host' refused.log || fail "--memory cuda does not say what it cannot do"
end

# What --describe measures is memory of the device, without the host's copies, and so is what a net must fit into.
describe() { # MIB
    STANDIN_MEMORY_MIB=$1 "$psworker" --describe mlp --batch 16 --backend cuda --json >described.json || fail "--describe failed"
    sed -E 's/.*"total_bytes":([0-9]+).*"measured_bytes":([0-9]+|null).*/\1 \2/' described.json
}
describe 1000 | awk '{ exit !($2 > 0.9 * $1 && $2 < 1.1 * $1) }' || fail "--describe measured other memory: $(describe 1000)"
[[ $(describe 4) == *null ]] || fail "--describe measured a net that does not fit: $(describe 4)"

# The linear net has 8 chunks, in 2 blocks: an exchange has 10 copies to and from the stage. The 60th is of one of its answers,
# while others are under way.
start killed --method sync-easgd --set workers=2 --set limits.silence_s=2
work linear cuda --steps 12 --rank 0 >survivor.log 2>&1 &
survivor=$!
status=0
STANDIN_KILL_AT_COPY=60 work linear cuda --steps 12 --rank 1 >victim.log 2>&1 || status=$?
[[ $status == 137 ]] || fail "the victim ended with $status; expected is 137, by SIGKILL"
wait "$survivor" || fail "the survivor failed"
"$psctl" --socket killed/psd.sock status >status.log 2>&1 || fail "psd does not answer"
end
echo "equal bytes; a worker killed in the middle of an exchange did not stop the other"
