# shellcheck shell=sh
# train.sh: what tests/system/rdma.sh runs in its guests, by dash and busybox. $1: a stage, the rest its arguments.
# The programs lie in /usr/bin. Ends with 0, or with the first thing that went wrong.
cd "${WORK:-/tmp}" || exit 1
steps=${STEPS:-24} net=linear batch=8

fail() {
    echo "FAILED: $1"
    tail -n 20 ./*.log
    exit 1
}

# start METHOD TRANSPORT PSD_OPTION...
start() {
    method=$1 transport=$2
    shift 2
    rm -rf state part endpoint ./*.log
    psd --method "$method" --listen "tcp://$IP:${PORT:-0}" --set insecure=true --set "transport=$transport" \
        --set checkpoint.every_s=0 --state-dir state --endpoint-file endpoint "$@" >psd.log 2>&1 &
    server=$!
    tries=0
    while [ ! -s endpoint ] && [ "$tries" -lt 1200 ]; do
        sleep 0.1
        tries=$((tries + 1))
    done
    [ -s endpoint ] || fail "psd did not start for $method over $transport"
    workers=''
}

# work RANK OPTION...
work() {
    rank=$1
    shift
    psworker --server @endpoint --net "$net" --backend ref --data digits --batch "$batch" --seed 7 --rank "$rank" \
        --steps "$steps" "$@" >"worker-$rank.log" 2>&1 &
    workers="$workers $!"
}

await_workers() {
    for worker in $workers; do
        wait "$worker" || fail "a worker of $method over $transport ended with $?"
    done
}

# center_sum FOLDER: of the newest center in it
center_sum() {
    file=$(find "$1/checkpoints" -name 'center-*.safetensors' | sort | tail -n 1)
    header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    tail -c "+$((header + 9))" "$file" | sha256sum | cut -c1-16
}

# Everything that was received came over the road that was asked for; psd ends; sum is the center's.
finish() {
    psctl --socket state/psd.sock metrics >pages || fail "psctl metrics ended with $?"
    for name in tcp rdma; do
        bytes=$(sed -n "s/^psd_received_bytes_total{transport=\"$name\"} //p" pages)
        [ "$name" = "$transport" ] && [ "${bytes:-0}" = 0 ] && fail "nothing came over $name"
        [ "$name" != "$transport" ] && [ "${bytes:-0}" != 0 ] && fail "$bytes bytes came over $name, not over $transport"
    done
    kill -TERM "$server"
    wait "$server" || fail "psd of $method over $transport ended with $?"
    sum=$(center_sum state)
}

# same METHOD WORKERS PSD_OPTION...: the center is the same, bit for bit, over both roads.
same() {
    name_of=$1 count=$2
    shift 2
    sums=''
    for road in tcp rdma; do
        start "$name_of" "$road" "$@"
        next=0
        while [ "$next" -lt "$count" ]; do
            work "$next"
            next=$((next + 1))
        done
        await_workers
        finish
        sums="$sums $sum"
    done
    echo "$name_of, workers: $count, centers:$sums"
    [ "${sums% *}" = " $sum" ] || fail "$name_of over rdma gives another center"
}

# lenet ROAD: to 0.9 and more with few images. A guest makes three a second for each worker.
lenet() {
    net=lenet batch=16 steps=${STEPS:-110}
    start sync-sgd "$1" --set workers=2 --set parameters.learning_rate=0.1 --set parameters.schedule.warmup_steps=30
    work 0
    work 1
    await_workers
    finish
    echo "lenet center: $sum"
}

calls_by_name() {
    for road in tcp rdma; do
        start async-sgd "$road" --set chunk_floats=4096 --set parameters.learning_rate=0.5
        calls @endpoint "$road" >"calls-$road" 2>calls.log || fail "calls by name over $road"
        finish
    done
    echo "calls by name: $(cat calls-tcp), $(cat calls-rdma)"
    cmp calls-tcp calls-rdma || fail "calls by name over rdma give another center"
}

# Two servers have a part each.
parts() {
    sums=''
    for road in tcp rdma; do
        start sync-easgd "$road" --set workers=2 --set parameters.period=2 --shard 0/2
        psd --method sync-easgd --listen "tcp://$IP:0" --set insecure=true --set "transport=$road" --set checkpoint.every_s=0 \
            --set workers=2 --set parameters.period=2 --state-dir part --shard 1/2 --head @endpoint >part.log 2>&1 &
        second=$!
        work 0
        work 1
        await_workers
        finish
        wait "$second" || fail "the second server ended with $? over $road"
        sums="$sums $sum-$(center_sum part)"
    done
    echo "two servers, centers:$sums"
    [ "${sums% *}" = " ${sums##* }" ] || fail "two servers over rdma give another center"
}

centers() {
    same sync-easgd 2 --set workers=2 --set parameters.period=2
    same sync-sgd 2 --set workers=2
    same async-easgd 1 --set parameters.period=1
    same async-sgd 1
    same hogwild-sgd 1
    parts
    calls_by_name
}

# One of two is killed while it writes. The other goes on, and so does the one that comes in its place.
killed() {
    start async-easgd rdma --set parameters.period=1
    steps=100000 work 0
    victim=$!
    workers=''
    steps=60 work 1
    tries=0
    until psctl --socket state/psd.sock workers 2>/dev/null | grep -q ' 0 .*rdma'; do
        sleep 0.1
        tries=$((tries + 1))
        [ "$tries" -lt 1200 ] || fail "the victim did not come over rdma"
    done
    sleep 0.5 # into its exchanges; whenever it dies, the others go on
    kill -KILL "$victim"
    steps=10 work 2
    await_workers
    finish
    echo "a worker was killed: the others finished"
}

# Node 1 has psd. It ends each job when both workers have gone.
apart1() {
    sums='' port=7000
    for road in tcp rdma; do
        PORT=$port
        start sync-easgd "$road" --set workers=2 --set parameters.period=2
        await_end || fail "the other node's workers did not come and go over $road"
        finish
        sums="$sums $sum"
        port=$((port + 1))
    done
    echo "two nodes, centers:$sums"
    [ "${sums% *}" = " $sum" ] || fail "over rdma between two nodes the center is another"
}

# Every second step is a round.
await_end() {
    tries=0
    until psctl --socket state/psd.sock metrics >pages 2>/dev/null &&
        grep -qx "psd_center_version $((steps / 2))" pages && grep -qx 'psd_workers{state="active"} 0' pages; do
        sleep 0.1
        tries=$((tries + 1))
        [ "$tries" -lt 3000 ] || return 1
    done
}

# Node 2 has the workers.
apart2() {
    port=7000
    for road in tcp rdma; do
        tries=0
        until nc -w 1 "$PEER" "$port" </dev/null >/dev/null 2>&1 || [ "$tries" -gt 3000 ]; do
            sleep 0.1
            tries=$((tries + 1))
        done
        method=sync-easgd transport=$road workers=''
        for next in 0 1; do
            work "$next" --server "tcp://$PEER:$port" --transport "$road"
        done
        await_workers
        tail -qn 1 worker-*.log
        port=$((port + 1))
    done
}

"$@"
