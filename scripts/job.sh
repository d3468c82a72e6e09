# shellcheck shell=bash disable=SC2154,SC2034
# job.sh: a job on this machine: psd, workers and an evaluator, or one worker without psd. Sourced after lib.sh by
# quickstart, compare and psrun, never run. From the sourcing script: root, and of the job run_dir, method, net, data, batch,
# steps (of each worker), seed, workers.

# Programs that somebody has built already (the tests do), or those that job_build builds.
build=${PSD_BUILD:-$root/build}

readonly exit_server=6 exit_diverged=7 # psworker's: its server is gone, or ended the session; no finite values
readonly exit_unsaved=7 # psd's: the last checkpoint was not written
readonly psctl_unreachable=6 # psctl's: there is no psd

# The rows of ps_methods that have no rule: one worker, no psd.
readonly local_methods=(sgd msgd asgd mvasgd)

job_every=3       # seconds from one evaluation to the next
job_grace=5       # seconds in which children end when they are asked to
job_settings=()   # psd's --set KEY=VALUE
worker_options=() # of every worker, besides the usual
job_members=1     # workers of a clique, which psd sees as one
job_clique=ring   # what joins them: ring or mpi
rank_options=()   # rank -> options of that worker, in one word
readonly job_loopback=tcp://127.0.0.1:0
job_listen=$job_loopback
job_place=()      # command that runs psd and the evaluator in a place of their own
worker_place=()   # rank -> that of a worker, in one word
job_seconds=      # after which the workers are told to stop
job_until=        # test accuracy after which they are
job_may_diverge=false # true: workers that do are named in $run_dir/diverged, and the others go on
declare -A child=() # process id -> name; its log is $run_dir/<name>.log
at_end=()         # what clean_up calls last
socket=
socket_dir=
psd_pid=
evaluator_pid=

# Of the tree, or where they are installed.
presets=$root/configs/methods
[[ -d $presets ]] || presets=$root/../doc/psd/methods

method_names() {
    local names=("$presets"/*.yaml)
    names=("${names[@]##*/}")
    local IFS=' '
    echo "${names[*]%.yaml} ${local_methods[*]}"
}

is_local() { # METHOD
    [[ " ${local_methods[*]} " == *" $1 "* ]]
}

is_method() { # NAME
    is_local "$1" || [[ -f $presets/$1.yaml ]]
}

bad_option() {
    say "$1; allowed: $2"
    exit 2
}

check_number() { # OPTION VALUE LOWEST HIGHEST
    if ! [[ $2 =~ ^(0|[1-9][0-9]{0,11})$ ]] || (($2 < $3 || $2 > $4)); then
        bad_option "$1: \"$2\"" "$3 to $4"
    fi
}

# What a data set trains unless told otherwise: net, epochs, images an epoch, learning rate (empty: the method's).
data_preset() { # SPEC
    case ${1%%:*} in
    cifar10) echo cifar7 30 50000 0.01 ;;
    mnist) echo lenet 12 "$(idx_images "${1#*:}")" ;;
    *) echo lenet 12 60000 ;;
    esac
}

# As the labels' file has it; where it has none, which psworker complains of, MNIST's.
idx_images() { # DIR
    local file=$1/train-labels-idx1-ubyte n
    n=$({ cat "$file" || zcat "$file.gz"; } 2>/dev/null | head -c 8 | tail -c 4 | od -An -tu4 --endian=big | tr -d ' ') || true
    echo "${n:-60000}"
}

# The steps of each worker that make EPOCHS passes of IMAGES each, all workers together.
steps_of() { # EPOCHS IMAGES WORKERS
    echo $((($1 * $2 + batch * $3 - 1) / (batch * $3)))
}

job_build() {
    [[ -z ${PSD_BUILD:-} ]] || return 0
    ensure_packages
    ensure_build "$build" psd psworker psctl -- --buildtype=release
    ! grep -q libpsclique-mpi "$build/build.ninja" || ensure_build "$build" psclique-mpi
}

# Makes the run folder, and a place for the socket: a UNIX socket's path has 107 bytes at most.
job_prepare() {
    mkdir -p "$run_dir"
    run_dir=$(cd "$run_dir" && pwd)
    [[ ! -e $run_dir/psd.yaml && ! -e $run_dir/history.jsonl ]] || die "$run_dir holds a run already: choose another folder"
    socket_dir=
    socket=$run_dir/psd.sock
    if [[ ${#socket} -gt 100 ]]; then
        socket_dir=$(mktemp -d)
        socket=$socket_dir/psd.sock
    fi
}

# job_write_config LINE: the job's configuration, with a line more unless it is empty.
job_write_config() {
    {
        printf '# Every key: configs/psd.yaml. The method brings its parameters: configs/methods/%s.yaml\n' "$method"
        printf 'method: %s\n' "$method"
        [[ -z $1 ]] || printf '%s\n' "$1"
        printf 'listen: %s\nstate_dir: "%s"\nendpoint_file: "%s"\n' "$job_listen" "$run_dir/state" \
            "$run_dir/endpoint"
        [[ $job_listen == "$job_loopback" ]] || echo 'insecure: true'
        printf 'status: {socket: "%s"}\n' "$socket"
    } >"$run_dir/psd.yaml"
}

# Adds `workers`, which psd counts by cliques, to the configuration if the method takes it.
job_give_workers() {
    local clients=$((workers / job_members))
    "$build/server/psd" --config "$run_dir/psd.yaml" "${job_settings[@]}" --set "workers=$clients" --check-config \
        >/dev/null 2>&1 || return 0
    printf 'workers: %s\n' "$clients" >>"$run_dir/psd.yaml"
}

# A child leads a process group, so that what it starts ends with it, and a terminal's signals come to the script alone.
start() { # NAME COMMAND...
    local name=$1
    shift
    set -m
    "$@" >>"$run_dir/$name.log" 2>&1 &
    set +m
    child[$!]=$name
    last_pid=$!
}

# Asks every child to end, or those whose name fits ("*": all); what has not within job_grace is killed. psrun's backends may have
# their own.
end_children() { # PATTERN
    local pid
    for pid in "${!child[@]}"; do
        # shellcheck disable=SC2053 # a pattern
        [[ ${child[$pid]} != $1 ]] || kill -TERM -- "-$pid" 2>/dev/null || true
    done
}

kill_children() {
    local pid
    for pid in "${!child[@]}"; do
        kill -KILL -- "-$pid" 2>/dev/null || true
    done
}

# Whatever way the script ends, nothing of the job stays behind; so a second signal waits.
clean_up() {
    local end=$((SECONDS + job_grace)) undo
    trap - EXIT
    trap '' HUP INT TERM
    end_children '*'
    while [[ -n $(jobs -rp) ]] && ((SECONDS <= end)); do
        sleep 0.1
    done
    kill_children
    [[ -z $socket_dir ]] || rm -rf "$socket_dir"
    for undo in "${at_end[@]}"; do
        "$undo"
    done
    at_end=()
    trap - HUP INT TERM
}

trap_ends() {
    trap clean_up EXIT
    trap 'say "interrupted"; exit 130' HUP INT TERM
}

fail_child() { # NAME STATUS
    say "$1 ended with status $2; the last lines of $run_dir/$1.log:"
    tail -n 15 "$run_dir/$1.log" >&2 || true
    exit 1
}

# And waits until workers may come.
job_start_psd() {
    start psd "${job_place[@]}" "$build/server/psd" --config "$run_dir/psd.yaml" "${job_settings[@]}"
    psd_pid=$last_pid
    local waited status=0
    for ((waited = 0; waited < 100; waited++)); do
        [[ ! -s $run_dir/endpoint ]] || return 0
        if ! kill -0 "$psd_pid" 2>/dev/null; then
            wait "$psd_pid" || status=$?
            fail_child psd "$status"
        fi
        sleep 0.1
    done
    fail_child psd "none: it was not ready after 10 s"
}

# The worker's place in its clique of a ring, in one word.
clique_options() { # RANK
    local listen=unix:
    [[ $job_members -gt 1 ]] || return 0
    [[ -z ${worker_place[$1]-} ]] || listen=tcp://10.0.0.$(($1 + 2))
    echo "--clique ring --members $job_members --member $(($1 % job_members)) --clique-name $(($1 / job_members))" \
        "--clique-listen $listen"
}

# All of them, by one mpirun; a child like a worker.
job_start_mpi() {
    start worker-0 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none \
        -np "$workers" "$build/nets/worker/psworker" --server "@$run_dir/endpoint" --net "$net" --data "$data" \
        --batch "$batch" --steps "$steps" --seed "$seed" --clique mpi --members "$job_members" "${worker_options[@]}"
}

# Ranks are given: they and the seed make the run.
job_start_workers() {
    local rank place options
    if [[ $job_clique == mpi ]]; then
        job_start_mpi
        return
    fi
    for ((rank = 0; rank < workers; rank++)); do
        read -ra place <<<"${worker_place[rank]-}"
        read -ra options <<<"${rank_options[rank]-} $(clique_options "$rank")"
        start "worker-$rank" "${place[@]}" "$build/nets/worker/psworker" --server "@$run_dir/endpoint" --net "$net" \
            --data "$data" --batch "$batch" --steps "$steps" --seed "$seed" --rank "$((rank / job_members))" \
            --name "worker-$rank" "${worker_options[@]}" "${options[@]}"
    done
}

# The evaluator's lines are the script's progress; what it logs goes to a file.
job_start_evaluator() {
    set -m
    "${job_place[@]}" "$build/nets/worker/psworker" --server "@$run_dir/endpoint" --net "$net" --data "$data" \
        --evaluate --every "$job_every" --name evaluator --history "$run_dir/history.jsonl" 2>>"$run_dir/evaluator.log" &
    set +m
    evaluator_pid=$!
    child[$evaluator_pid]=evaluator
}

# A worker ends well with what it has computed.
stop_workers() {
    local pid
    for pid in "${!child[@]}"; do
        [[ ${child[$pid]} != worker-* ]] || kill -TERM "$pid"
    done
}

# Until every worker has finished; any other end of any child is a failure.
job_wait_for_workers() {
    local pid name status left=$workers watch=
    [[ $job_clique != mpi ]] || left=1
    if [[ -n $job_seconds$job_until ]]; then
        start watch watch_job
        watch=$last_pid
    fi
    while ((left > 0)); do
        status=0
        wait -n -p pid "${!child[@]}" || status=$?
        name=${child[$pid]}
        unset "child[$pid]"
        case $name:$status in
        watch:0)
            watch=
            stop_workers
            continue
            ;;
        worker-*:0) ;;
        worker-*:"$exit_diverged")
            "$job_may_diverge" || fail_child "$name" "$status"
            echo "$name" >>"$run_dir/diverged"
            ;;
        *) fail_child "$name" "$status" ;;
        esac
        left=$((left - 1))
    done
    [[ -z $watch ]] || end_watch "$watch"
}

# Ends when the job has had its time, or its center the accuracy.
watch_job() {
    local end=$((SECONDS + ${job_seconds:-0}))
    until { [[ -n $job_seconds ]] && ((SECONDS >= end)); } || is_accurate; do
        sleep 0.5
    done
}

is_accurate() {
    [[ -n $job_until && -s $run_dir/history.jsonl ]] &&
        history_table | awk -v until="$job_until" '$4 >= until { found = 1 } END { exit !found }'
}

end_watch() { # PID
    kill -TERM "$1"
    wait "$1" || true
    unset "child[$1]"
}

finish() { # PID: waits for it, which was told to end
    local name=${child[$1]} status=0
    wait "$1" || status=$?
    unset "child[$1]"
    [[ $status -eq 0 ]] || fail_child "$name" "$status"
}

psctl() {
    "$build/server/ctl/psctl" --socket "$socket" "$@" 2>>"$run_dir/psctl.log" ||
        fail_child psctl "$?, asked for $1"
}

# The evaluator looks at the center a last time; psd writes it and ends.
job_end() {
    kill -TERM "$evaluator_pid"
    finish "$evaluator_pid"
    psctl checkpoint >>"$run_dir/psctl.log"
    psctl drain >>"$run_dir/psctl.log"
    finish "$psd_pid"
}

# One worker without psd, which evaluates itself. Its lines are the script's progress.
job_run_local() {
    set -m
    "$build/nets/worker/psworker" --method "$method" --net "$net" --data "$data" --batch "$batch" \
        --steps "$steps" --seed "$seed" --every "$job_every" --history "$run_dir/history.jsonl" \
        "${worker_options[@]}" 2>>"$run_dir/worker-0.log" &
    set +m
    child[$!]=worker-0
    job_wait_for_workers
}

# {"t":..,"center_version":..,"test_loss":..,"test_accuracy":..} -> the four numbers
history_table() {
    awk -F '[:,}]' '{ print $2, $4, $6, $8 }' "$run_dir/history.jsonl"
}
