#!/usr/bin/env bash
# rdma: the rdma road on soft-RoCE, in QEMU guests (scripts/rdma-guest): the suites of every road and of this one, and
# real training, with one guest and with two that lose one packet of a hundred. Emulated: correctness, not speed.
# $1: the source tree, $2: the build folder; with "lenet" behind them LeNet alone, which takes five minutes.
set -euo pipefail

root=$(realpath "$1")
build=$(realpath "$2")
guest=$root/scripts/rdma-guest
readonly suites=(test_proto_transport test_proto_transport_attach test_proto_transport_loss test_rdma_road test_rdma_hostile)
readonly loss='tc qdisc add dev eth0 root netem loss 1% limit 10000'

status=0
"$guest" setup || status=$?
[[ $status -eq 0 ]] || exit "$status"

along=(-a "$root/tests/system/guest/train.sh:/train.sh")
for program in server/psd server/ctl/psctl nets/worker/psworker tests/system/calls tests/proto/test_rdma_pair "${suites[@]/#/tests/proto/}"; do
    along+=(-a "$build/$program")
done

stage() { # NAME GUEST_OPTION... LINE
    local name=$1 started=$SECONDS
    shift
    echo "== $name"
    "$guest" "${along[@]}" "$@" || {
        status=$?
        echo "== $name: FAILED with $status after $((SECONDS - started)) s" >&2
        exit 1
    }
    echo "== $name: $((SECONDS - started)) s"
}

# Trains here over tcp, in a guest over rdma: the same center, bit for bit, and good for 0.9 of the test images.
lenet() {
    local here there accuracy tries=0
    work=$(mktemp -d)
    trap 'jobs -p | xargs -r kill; rm -rf "$work"' EXIT
    PATH=$build/server:$build/server/ctl:$build/nets/worker:$PATH
    here=$(IP=127.0.0.1 WORK=$work dash "$root/tests/system/guest/train.sh" lenet tcp)
    rm "$work/endpoint"
    psd --method sync-sgd --set workers=2 --state-dir "$work/state" --endpoint-file "$work/endpoint" --resume 2>"$work/again.log" &
    while [[ ! -s $work/endpoint ]]; do
        kill -0 $! && ((++tries < 1200)) || exit 1
        sleep 0.1
    done
    accuracy=$(psworker --server "@$work/endpoint" --data digits --evaluate --once | grep -o 'accuracy [0-9.]*')
    kill $! && wait $!
    echo "$here over tcp, $accuracy"
    awk '{ exit !($2 >= 0.9) }' <<<"$accuracy"
    there=$("$guest" "${along[@]}" -m 1024 -t 1800 "STEPS=${STEPS:-} sh /train.sh lenet rdma" | tr -d '\r' | grep -o 'lenet center.*')
    echo "$there over rdma"
    [[ $here == "$there" ]]
}

if [[ ${3-} == lenet ]]; then
    lenet
    exit
fi

stage "suites" -m 768 -t 800 "export PSD_RDMA_IP=\$IP PSD_TEST_ROW=rdma CK_TIMEOUT_MULTIPLIER=5
for suite in ${suites[*]}; do \$suite || exit 1; done"
stage "two guests, one packet of a hundred lost" -n 2 -m 768 -t 600 "$loss; export PSD_RDMA_IP=\$IP; test_rdma_pair \$NODE \$PEER"
stage "training" -t 800 "sh /train.sh centers && sh /train.sh killed"
stage "training on two guests, one packet of a hundred lost" -n 2 -t 600 "$loss; sh /train.sh apart\$NODE"
