# shellcheck shell=bash disable=SC2154,SC2034
# job.sh: a job on this machine: psd, workers and an evaluator, or one worker without psd. Sourced after lib.sh by
# quickstart and compare, never run. From the sourcing script: root, and of the job run_dir, method, net, data, batch,
# steps (of each worker), seed, workers.

# Programs that somebody has built already (the tests do), or those that job_build builds.
build=${PSD_BUILD:-$root/build}

# The rows of ps_methods that have no rule: one worker, no psd.
readonly local_methods=(sgd msgd asgd mvasgd)

job_every=3       # seconds from one evaluation to the next
job_settings=()   # psd's --set KEY=VALUE
worker_options=() # of every worker, besides the usual
declare -A child=() # process id -> name; its log is $run_dir/<name>.log
socket=
socket_dir=
psd_pid=
evaluator_pid=

method_names() {
    local names=("$root"/configs/methods/*.yaml)
    names=("${names[@]##*/}")
    local IFS=' '
    echo "${names[*]%.yaml} ${local_methods[*]}"
}

is_local() { # METHOD
    [[ " ${local_methods[*]} " == *" $1 "* ]]
}

is_method() { # NAME
    is_local "$1" || [[ -f $root/configs/methods/$1.yaml ]]
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
    *) echo lenet 12 60000 ;;
    esac
}

# The steps of each worker that make EPOCHS passes of IMAGES each, all workers together.
steps_of() { # EPOCHS IMAGES WORKERS
    echo $((($1 * $2 + batch * $3 - 1) / (batch * $3)))
}

job_build() {
    [[ -z ${PSD_BUILD:-} ]] || return 0
    ensure_packages
    ensure_build "$build" psd psworker psctl -- --buildtype=release
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
        printf 'listen: tcp://127.0.0.1:0\nstate_dir: "%s"\nendpoint_file: "%s"\n' "$run_dir/state" \
            "$run_dir/endpoint"
        printf 'status: {socket: "%s"}\n' "$socket"
    } >"$run_dir/psd.yaml"
}

# Adds `workers` to the configuration if the method takes it.
job_give_workers() {
    "$build/server/psd" --config "$run_dir/psd.yaml" "${job_settings[@]}" --set "workers=$workers" --check-config \
        >/dev/null 2>&1 || return 0
    printf 'workers: %s\n' "$workers" >>"$run_dir/psd.yaml"
}

start() { # NAME COMMAND...
    local name=$1
    shift
    "$@" >>"$run_dir/$name.log" 2>&1 &
    child[$!]=$name
    last_pid=$!
}

# Whatever way the script ends, nothing of the job stays behind.
clean_up() {
    local pid waited
    trap - EXIT INT TERM
    for pid in "${!child[@]}"; do
        kill -TERM "$pid" 2>/dev/null || true
    done
    for ((waited = 0; waited < 50; waited++)); do
        [[ -n $(jobs -rp) ]] || break
        sleep 0.1
    done
    for pid in $(jobs -rp); do
        kill -KILL "$pid" 2>/dev/null || true
    done
    [[ -z $socket_dir ]] || rm -rf "$socket_dir"
}

trap_ends() {
    trap clean_up EXIT
    trap 'say "interrupted"; exit 130' INT TERM
}

fail_child() { # NAME STATUS
    say "$1 ended with status $2; the last lines of $run_dir/$1.log:"
    tail -n 15 "$run_dir/$1.log" >&2 || true
    exit 1
}

# And waits until workers may come.
job_start_psd() {
    start psd "$build/server/psd" --config "$run_dir/psd.yaml" "${job_settings[@]}"
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

# Ranks are given: they and the seed make the run.
job_start_workers() {
    local rank
    for ((rank = 0; rank < workers; rank++)); do
        start "worker-$rank" "$build/nets/worker/psworker" --server "@$run_dir/endpoint" --net "$net" \
            --data "$data" --batch "$batch" --steps "$steps" --seed "$seed" --rank "$rank" \
            --name "worker-$rank" "${worker_options[@]}"
    done
}

# The evaluator's lines are the script's progress; what it logs goes to a file.
job_start_evaluator() {
    "$build/nets/worker/psworker" --server "@$run_dir/endpoint" --net "$net" --data "$data" --evaluate \
        --every "$job_every" --name evaluator --history "$run_dir/history.jsonl" 2>>"$run_dir/evaluator.log" &
    evaluator_pid=$!
    child[$evaluator_pid]=evaluator
}

# Until every worker has finished; any other end of any child is a failure.
job_wait_for_workers() {
    local pid name status left=$workers
    while ((left > 0)); do
        status=0
        wait -n -p pid "${!child[@]}" || status=$?
        name=${child[$pid]}
        unset "child[$pid]"
        [[ $name == worker-* && $status -eq 0 ]] || fail_child "$name" "$status"
        left=$((left - 1))
    done
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
    "$build/nets/worker/psworker" --method "$method" --net "$net" --data "$data" --batch "$batch" \
        --steps "$steps" --seed "$seed" --every "$job_every" --history "$run_dir/history.jsonl" \
        "${worker_options[@]}" 2>>"$run_dir/worker-0.log" &
    child[$!]=worker-0
    finish $!
}

# {"t":..,"center_version":..,"test_loss":..,"test_accuracy":..} -> the four numbers
history_table() {
    awk -F '[:,}]' '{ print $2, $4, $6, $8 }' "$run_dir/history.jsonl"
}
