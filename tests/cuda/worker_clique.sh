#!/usr/bin/env bash
# worker_clique: psworker --clique nccl on the stand-in, two processes with a device each: center and states end with the bytes
# of a job whose members sum over a ring on the host. With two members a sum has one order. $1: psd, $2: psworker.
set -euo pipefail

psd=$(realpath "$1")
psworker=$(realpath "$2")
folder=$(mktemp -d)
cd "$folder"
trap 'kill -KILL $(jobs -rp) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1

fail() {
    echo "worker_clique: $*" >&2
    tail -n 5 ./*.log >&2
    exit 1
}

start() { # NAME PSD-OPTION...
    local name=$1 waited
    shift
    rm -f endpoint
    "$psd" --set lanes=2 --set chunk_floats=1024 --set checkpoint.every_s=0 --state-dir "$name" --endpoint-file endpoint \
        "$@" >"$name-psd.log" 2>&1 &
    server=$!
    for ((waited = 0; waited < 3000; waited++)); do
        [[ ! -s endpoint ]] || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.02
    done
    fail "psd did not start"
}

end() {
    kill -TERM "$server"
    wait "$server" || fail "psd did not end well"
}

values() { # NAME: a sum of the last center's values
    local files=("$1"/checkpoints/center-*.safetensors) header
    header=$(od -An -tu8 -N8 "${files[-1]}") # its length, in eight bytes; it has the time
    tail -c +$((8 + header + 1)) "${files[-1]}" | sha256sum
}

work() { # KIND MEMBER PSWORKER-OPTION...
    local kind=$1 member=$2
    shift 2
    "$psworker" --backend cuda --net linear --data digits --batch 2 --threads 1 --seed 3 --steps 4 --clique "$kind" --members 2 \
        --member "$member" --state "$kind-$member.state" "$@"
}

# Both members; the rest of the options are the workers'.
train() { # KIND PSWORKER-OPTION...
    local kind=$1 other
    shift
    work "$kind" 1 "$@" >"$kind-1.log" 2>&1 &
    other=$!
    work "$kind" 0 "$@" >"$kind-0.log" 2>&1 || fail "--clique $kind: member 0 failed"
    wait "$other" || fail "--clique $kind: member 1 failed"
}

same() { # WHAT
    local member
    grep -q 'x and g lie in the memory of the GPU' nccl-0.log || fail "$1: x and g do not lie on the device"
    for member in 0 1; do
        cmp "ring-$member.state" "nccl-$member.state" || fail "$1: member $member ends with other bytes"
    done
}

check() { # PSD-OPTION...
    local kind
    for kind in ring nccl; do
        start "$kind" "$@"
        train "$kind" --server @endpoint
        end
    done
    same "$*"
    [[ $(values ring) == "$(values nccl)" ]] || fail "$*: the center has other bytes"
    rm -rf ring* nccl*
}

check --method eamsgd --set period=2 --set clique.bucket_floats=1000
check --method sync-easgd --set clique.mode=vectors --set overlap=true --set clique.publish=1
check --method d-sync --set clique.publish=2

# A loss that is not finite: every member refuses the step, and the job ends as diverged. The host cannot touch g.
diverges() { # PSWORKER-OPTION...
    local other status=0
    work nccl 1 --rendezvous "file:$folder/diverges" "$@" >nccl-1.log 2>&1 &
    other=$!
    work nccl 0 --rendezvous "file:$folder/diverges" "$@" >nccl-0.log 2>&1 || status=$?
    wait "$other" && fail "diverged: member 1 ended well"
    grep -q 'train.diverged' nccl-0.log || fail "diverged: member 0 ended with status $status"
}
head='{"fc1.weight":{"dtype":"F32","shape":[10,784],"data_offsets":[0,31360]},"fc1.bias":{"dtype":"F32","shape":[10],"data_offsets":[31360,31400]}}'
{
    printf '%b' "\\x$(printf %x ${#head})\0\0\0\0\0\0\0$head"
    for ((i = 0; i < 7850; i++)); do printf '\0\0\0\177'; done # 1.7e38: the outputs overflow
} >far
diverges --method d-sync --init far
rm -rf nccl* far

# Several devices in one process: as one that computes the whole batch, up to rounding, in whatever processes they are.
numbers() { # NAME: the last center's values, one a line
    local files=("$1"/checkpoints/center-*.safetensors) header
    header=$(od -An -tu8 -N8 "${files[-1]}")
    tail -c +$((8 + header + 1)) "${files[-1]}" | od -An -v -tf4 -w4
}

divided() { # NAME PSWORKER-OPTION...
    local name=$1
    shift
    "$psworker" --server @endpoint --backend cuda --net linear --data digits --batch 8 --threads 1 --seed 3 --steps 6 "$@" \
        >"$name.log" 2>&1
}

start whole --method d-sync
divided whole || fail "one device failed"
end
export STANDIN_DEVICES=4
start four --method d-sync
divided four --devices 0,1,2,3 || fail "four devices failed"
end
start sync --method sync-easgd --set clique.mode=vectors --set overlap=true --set clique.publish=1
divided sync --devices 3,1 --state sync.state || fail "Sync EASGD on two devices failed"
end
[[ -e sync.state && -e sync.state.1 ]] || fail "the devices have no states of their own"
paste <(numbers whole) <(numbers four) | awk '{ d = $1 - $2; d = d < 0 ? -d : d; most = d > most ? d : most; n++ }
    END { exit !(n > 1000 && most < 1e-5) }' || fail "four devices end elsewhere than one"
[[ $(values whole) != "$(values sync)" ]] || fail "Sync EASGD did not run"

# Two processes of two devices each are a clique of four.
start pairs --method d-sync
divided pair-1 --devices 2,3 --clique nccl --members 2 --member 1 &
other=$!
divided pair-0 --devices 0,1 --clique nccl --members 2 --member 0 || fail "member 0 of two devices failed"
wait "$other" || fail "member 1 of two devices failed"
end
! divided missing --devices 0,9 || fail "a device that is not there was taken"
grep -qF "no device 9; allowed here are 0 to 3" missing.log || fail "the missing device is not named"
unset STANDIN_DEVICES

# What it is not for.
refused() { # SENTENCE PSWORKER-OPTION...
    local sentence=$1
    shift
    ! "$psworker" --net linear --data digits --steps 1 --method d-sync --clique nccl --rendezvous "file:$folder/refused" "$@" \
        >refused.log 2>&1 || fail "$* was not refused"
    grep -qF -e "$sentence" refused.log || fail "$*: it does not say: $sentence"
}
both_refused() { # SENTENCE PSWORKER-OPTION...
    local other sentence=$1
    shift
    "$psworker" --net linear --data digits --steps 1 --method d-sync --clique nccl --rendezvous "file:$folder/refused" --members 2 \
        "$@" >other.log 2>&1 &
    other=$!
    refused "$sentence" --members 2 "$@"
    ! wait "$other" || fail "$*: the other member was not refused"
}
refused '--algorithm: "tree" with --clique nccl, which has its own; allowed: ring' --members 2 --algorithm tree
refused '--on-loss: shrink with --clique nccl; allowed: end' --members 2 --on-loss shrink
both_refused '--clique nccl: a backend other than cuda needs x and g on the host' --backend ref
both_refused '--clique nccl: --memory host needs x and g on the host' --backend cuda --memory host
both_refused '--clique nccl: --clip-norm needs x and g on the host' --backend cuda --clip-norm 1
echo "equal bytes"
