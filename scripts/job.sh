# shellcheck shell=bash disable=SC2154,SC2034
# job.sh: a job on this machine: psd, workers and an evaluator, or one worker without psd. Sourced after lib.sh by
# quickstart, compare and psrun, never run. Set by the sourcing script: root, and for the job run_dir, method, net, data, batch,
# steps (of each worker), seed, workers.

# The build folder: an existing one (set by tests), or the one that job_build builds.
build=${PSD_BUILD:-$root/build}

readonly exit_server=6 exit_diverged=7 # of psworker: its server is gone, or ended the session; values are not finite
readonly exit_unsaved=7 # of psd: the last checkpoint is not written
readonly psctl_unreachable=6 # of psctl: psd does not answer

# The rows of ps_methods without a rule: one worker, no psd.
readonly local_methods=(sgd msgd asgd mvasgd)
readonly alone_methods=(d-sync pipe-sgd) # one clique, with or without psd

job_every=3       # seconds between evaluations
job_grace=5       # seconds that children have to end after SIGTERM
job_settings=()   # options --set KEY=VALUE of psd
worker_options=() # further options of every worker
given_options=()  # those of psworker that the user gave, each with a value
job_members=1     # workers per clique
job_clique=ring   # transport of cliques: ring or mpi
rank_options=()   # rank -> options of that worker, as one word
readonly job_loopback=tcp://127.0.0.1:0
job_listen=$job_loopback
job_place=()      # command prefix of psd and the evaluator
worker_place=()   # rank -> command prefix of that worker, as one word
job_seconds=      # time limit of the workers
job_until=        # test accuracy at which they stop
job_may_diverge=false # true: diverged workers are listed in $run_dir/diverged, and the others continue
declare -A child=() # process id -> name; its log is $run_dir/<name>.log
declare -A over_mpirun=() # process id -> true: this child is an mpirun of psworkers
pause_pid= # of await_child
at_end=()         # functions that clean_up calls last
socket=
socket_dir=
psd_pid=
evaluator_pid=

# In the tree, or installed.
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

is_alone() { # METHOD
    [[ " ${alone_methods[*]} " == *" $1 "* ]]
}

# The last value that --set gives the key, by its full name or its last word; nothing: none.
setting_of() { # KEY
    local word value=
    for word in "${job_settings[@]}"; do
        [[ $word != "$1="* && $word != "${1##*.}="* ]] || value=${word#*=}
    done
    echo "$value"
}

# METHOD unless a setting names another.
set_method() { # METHOD
    local name
    name=$(setting_of method)
    echo "${name:-$1}"
}

# Whether all workers of the job are one clique.
is_one_clique() { # METHOD
    is_alone "$1" || [[ $(setting_of clique.mode) == vectors ]]
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

# Defaults for a data set: net, epochs, images per epoch, learning rate (empty: the method's).
data_preset() { # SPEC
    local classes images
    case ${1%%:*} in
    cifar10) echo cifar7 30 50000 0.01 ;;
    cifar100)
        images=50000
        [[ -f ${1#*:}/train.bin ]] || read -r _ images < <(count_images "${1#*:}")
        echo cifar100-cnn 30 "$images" 0.01
        ;;
    images)
        read -r classes images < <(count_images "${1#*:}")
        echo "resnet18:classes=$classes,size=128 40 $images"
        ;;
    mnist) echo lenet 12 "$(idx_images "${1#*:}")" ;;
    *) echo lenet 12 60000 ;;
    esac
}

# The paths of the files in a folder and in its tar files, as psworker finds them there, or in a tar file.
list_files() { # DIR|FILE.tar
    local split tar
    if [[ ! -d $1 ]]; then
        list_members "$1" ''
        return
    fi
    (cd "$1" && find -L . -type f)
    for split in '' train/ val/ test/ validation/; do
        for tar in "$1/$split"*.tar; do
            list_members "$tar" "$split"
        done
    done
}

list_members() { # FILE.tar PREFIX
    { tar -tf "$1" 2>/dev/null || true; } | sed "s,^\(\./\)*,$2,"
}

# The classes and training images of a folder or tar file with a folder of images for each class, in train/ where that
# exists; otherwise nine of ten images are for training. Where nothing can be read, which psworker reports: 2 and 1.
count_images() { # DIR|FILE.tar
    list_files "$1" |
        awk -F / 'tolower($0) ~ /\.(jpg|jpeg|png)$/ && NF > 1 && $0 !~ /(^|\/)\.(\.?[^.\/]|\.\.)/ { # not hidden
            split_of = "all"
            class = $(NF - 1)
            for (i = 1; i + 2 <= NF && split_of == "all"; i++)
                if ($i ~ /^(train|val|test|validation)$/) {
                    split_of = $i
                    class = $(i + 1)
                }
            images[split_of]++
            if (!seen[split_of, class]++) classes[split_of]++
        } END {
            split_of = images["train"] > 0 ? "train" : "all"
            n = split_of == "train" ? images["train"] : int(0.9 * images["all"])
            c = classes[split_of] + 0
            printf "%d %d\n", (c > 2 ? c : 2), (n > 0 ? n : 1)
        }'
}

# The number of images in the labels' file; if it cannot be read, which psworker reports, that of MNIST.
idx_images() { # DIR
    local file=$1/train-labels-idx1-ubyte n
    n=$({ cat "$file" || zcat "$file.gz"; } 2>/dev/null | head -c 8 | tail -c 4 | od -An -tu4 --endian=big | tr -d ' ') || true
    echo "${n:-60000}"
}

# The steps of each worker for EPOCHS passes of IMAGES each, all workers together.
steps_of() { # EPOCHS IMAGES WORKERS
    echo $((($1 * $2 + batch * $3 - 1) / (batch * $3)))
}

# Options of workers that an evaluator takes too: those of the data, of the manifest and of computing.
readonly evaluator_takes=" --view --cache --max-damaged --data-threads --prefetch --freeze --rates --backend --precision "

# Those that the user gave.
shared_options() {
    local i
    for ((i = 0; i + 1 < ${#given_options[@]}; i += 2)); do
        [[ $evaluator_takes != *" ${given_options[i]} "* ]] || printf '%s\n' "${given_options[@]:i:2}"
    done
}

# Options are checked by psworker itself; here only that each has a value.
take_given_options() { # OPTION VALUE...
    local i
    given_options=("$@")
    for ((i = 0; i < $#; i += 2)); do
        [[ ${given_options[i]} == --?* && -n ${given_options[i + 1]-} ]] ||
            bad_option "-- ${given_options[i]}" "options of psworker, each with its value"
    done
}

job_build() {
    [[ -z ${PSD_BUILD:-} ]] || return 0
    ensure_packages
    ensure_build "$build" psd psworker psctl -- --buildtype=release
    ! grep -q libpsclique-mpi "$build/build.ninja" || ensure_build "$build" psclique-mpi
    ! grep -q libpsclique-nccl "$build/build.ninja" || ensure_build "$build" psclique-nccl
}

# Keeps others out of a folder while this script runs, by a lock of a file in it. Children do not get descriptor 9.
lock_folder() { # FOLDER FILE
    local status=0
    exec 9>>"$1/$2"
    flock --nonblock 9 || status=$?
    ((status != 1)) || die "$1 is in use by another ${0##*/}: wait for its end, or choose another folder"
}

unlock_folder() {
    exec 9>&-
}

# Creates the run folder, and a folder for the socket: the path of a UNIX socket has at most 107 bytes.
job_prepare() {
    mkdir -p "$run_dir" || die "the run folder $run_dir cannot be created"
    run_dir=$(cd "$run_dir" && pwd)
    [[ ! -e $run_dir/psd.yaml && ! -e $run_dir/history.jsonl ]] || die "$run_dir holds a run already: choose another folder"
    socket_dir=
    socket=$run_dir/psd.sock
    if [[ ${#socket} -gt 100 ]]; then
        socket_dir=$(mktemp -d)
        socket=$socket_dir/psd.sock
    fi
}

# yaml_text TEXT: as a string in YAML.
yaml_text() {
    local text=${1//\\/\\\\}
    printf '"%s"' "${text//\"/\\\"}"
}

# job_write_config LINE: writes the job's configuration; LINE is added unless empty.
job_write_config() {
    {
        printf '# All keys: configs/psd.yaml. Parameters of the method: configs/methods/%s.yaml\n' "$method"
        printf 'method: %s\n' "$method"
        [[ -z $1 ]] || printf '%s\n' "$1"
        printf 'listen: %s\nstate_dir: %s\nendpoint_file: %s\n' "$job_listen" "$(yaml_text "$run_dir/state")" \
            "$(yaml_text "$run_dir/endpoint")"
        [[ $job_listen == "$job_loopback" ]] || echo 'insecure: true'
        printf 'status: {socket: %s}\n' "$(yaml_text "$socket")"
    } >"$run_dir/psd.yaml"
}

# Adds `workers`, the number of cliques, to the configuration if the method accepts it.
job_give_workers() {
    local clients=$((workers / job_members))
    "$build/server/psd" --config "$run_dir/psd.yaml" "${job_settings[@]}" --set "workers=$clients" --check-config \
        >/dev/null 2>&1 || return 0
    printf 'workers: %s\n' "$clients" >>"$run_dir/psd.yaml"
}

# A child leads a process group: its own children can be killed with it, and a terminal's signals reach only the script.
start() { # NAME COMMAND...
    local name=$1
    shift
    set -m
    "$@" >>"$run_dir/$name.log" 2>&1 9>&- &
    set +m
    child[$!]=$name
    last_pid=$!
}

# Sends SIGTERM to the children whose name matches ("*": all). psrun's backends may replace it.
end_children() { # PATTERN
    local pid
    for pid in "${!child[@]}"; do
        # shellcheck disable=SC2053 # a pattern
        [[ ${child[$pid]} != $1 || -n ${over_mpirun[$pid]-} ]] || kill -TERM -- "-$pid" 2>/dev/null || true
    done
    end_over_mpirun "$1"
}

# mpirun would kill its psworkers a second after SIGTERM. It passes SIGUSR2 on to them, at which they end as at SIGTERM.
end_over_mpirun() { # PATTERN
    local pid
    for pid in "${!child[@]}"; do
        # shellcheck disable=SC2053 # a pattern
        [[ ${child[$pid]} != $1 || -z ${over_mpirun[$pid]-} ]] || kill -USR2 "$pid" 2>/dev/null || true
    done
}

# Sets status of a child that has ended, or was told to. If a trap ran just as bash reaped it, bash takes it for running ever
# after, and `wait` would block until all children have ended: then 127, with which `wait` says that it does not know one.
reap() { # PID
    status=0
    if ! kill -0 "$1" 2>/dev/null && jobs -rp | grep -x "$1" >/dev/null; then
        status=127
    else
        wait "$1" || status=$?
    fi
}

# Sets pid and status of a child that has ended; pid is empty where a trap has run, or nothing ended for a while. Of several
# that a signal ends at once bash tells, and forgets them: `wait -n` never returns those.
await_child() {
    pid='' status=0
    for pid in "${!child[@]}"; do
        if ! kill -0 "$pid" 2>/dev/null; then
            reap "$pid"
            return
        fi
    done
    pid=''
    sleep 5 9>&- &
    pause_pid=$!
    wait -n -p pid "${!child[@]}" "$pause_pid" || status=$?
    [[ ${pid=} != "$pause_pid" ]] || pid=''
    end_pause
}

end_pause() {
    [[ -n $pause_pid ]] || return 0
    ! kill "$pause_pid" 2>/dev/null || wait "$pause_pid" 2>/dev/null || true
    pause_pid=
}

kill_children() {
    local pid
    for pid in "${!child[@]}"; do
        [[ ${child[$pid]} != psd* ]] || ! kill -0 "$pid" 2>/dev/null || say "${child[$pid]} is killed before it has saved the center"
        kill -KILL -- "-$pid" 2>/dev/null || true
    done
}

say_unsaved() { # NAME STATUS of a psd
    (($2 != exit_unsaved)) || say "$1 has not saved the center: its last checkpoint was not written"
}

# Of servers that have ended, and whose end nobody has looked at.
say_all_unsaved() {
    local pid status
    for pid in "${!child[@]}"; do
        [[ ${child[$pid]} == psd* ]] || continue
        ! kill -0 "$pid" 2>/dev/null || continue
        reap "$pid"
        say_unsaved "${child[$pid]}" "$status"
    done
}

# Not counting those that bash takes for running (see reap).
children_run() {
    local pid
    for pid in $(jobs -rp); do
        ! kill -0 "$pid" 2>/dev/null || return 0
    done
    return 1
}

# Waits for children that were told to end.
await_ends() {
    local end=$((SECONDS + job_grace))
    while children_run && ((SECONDS <= end)); do
        sleep 0.1
    done
}

# Leaves no process of the job behind, however the script ends; further signals are ignored meanwhile.
clean_up() {
    local undo
    trap - EXIT
    trap '' HUP INT TERM USR1
    end_pause
    end_children '*'
    await_ends
    if children_run; then
        end_children 'psd*' # the second signal: it saves the center without those it waits for
        await_ends
    fi
    say_all_unsaved
    kill_children
    [[ -z $socket_dir ]] || rm -rf "$socket_dir"
    for undo in "${at_end[@]}"; do
        "$undo"
    done
    at_end=()
    trap - HUP INT TERM USR1
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

# Starts psd and waits until it is ready for workers.
job_start_psd() {
    start psd "${job_place[@]}" "$build/server/psd" --config "$run_dir/psd.yaml" "${job_settings[@]}"
    psd_pid=$last_pid
    local waited status
    for ((waited = 0; waited < 100; waited++)); do
        [[ ! -s $run_dir/endpoint ]] || return 0
        if ! kill -0 "$psd_pid" 2>/dev/null; then
            reap "$psd_pid"
            fail_child psd "$status"
        fi
        sleep 0.1
    done
    fail_child psd "none: it was not ready after 10 s"
}

# The options of a worker for its clique over a ring.
clique_options() { # RANK
    local listen=unix:
    [[ $job_members -gt 1 ]] || return 0
    [[ -z ${worker_place[$1]-} ]] || listen=tcp://10.0.0.$(($1 + 2))
    echo "--clique ring --members $job_members --member $(($1 % job_members)) --clique-name $(($1 / job_members))" \
        "--clique-listen $listen"
}

# Starts all workers with one mpirun, which is a child like a worker.
job_start_mpi() {
    start worker-0 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe --bind-to none \
        -np "$workers" "$build/nets/worker/psworker" --server "@$run_dir/endpoint" --net "$net" --data "$data" \
        --batch "$batch" --steps "$steps" --seed "$seed" --clique mpi --members "$job_members" "${given_options[@]}" "${worker_options[@]}"
    over_mpirun[$last_pid]=true
}

# Ranks are set explicitly: they and the seed determine the run.
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
            --name "worker-$rank" "${given_options[@]}" "${worker_options[@]}" "${options[@]}"
    done
}

# The evaluator's output is the script's progress; its log goes to a file.
job_start_evaluator() {
    local options
    mapfile -t options < <(shared_options)
    set -m
    "${job_place[@]}" "$build/nets/worker/psworker" --server "@$run_dir/endpoint" --net "$net" --data "$data" \
        --evaluate --every "$job_every" --name evaluator --history "$run_dir/history.jsonl" "${options[@]}" 2>>"$run_dir/evaluator.log" 9>&- &
    set +m
    evaluator_pid=$!
    child[$evaluator_pid]=evaluator
}

# A stopped worker ends successfully; its results so far count.
stop_workers() {
    end_children 'worker-*'
}

# Also a worker whose session psd has ended because its values, or the center that they make, are not finite.
has_diverged() { # WORKER STATUS
    (($2 == exit_diverged)) || grep -q '(VALUE)' "$run_dir/$1.log"
}

# Waits until every worker has finished. Any other exit of a child is a failure.
job_wait_for_workers() {
    local pid name status left=$workers watch=
    [[ $job_clique != mpi ]] || left=1
    if [[ -n $job_seconds$job_until ]]; then
        start watch watch_job
        watch=$last_pid
    fi
    while ((left > 0)); do
        await_child
        [[ -n $pid ]] || continue
        name=${child[$pid]}
        unset "child[$pid]"
        case $name:$status in
        watch:0)
            watch=
            stop_workers
            continue
            ;;
        worker-*:0) ;;
        worker-*:"$exit_diverged" | worker-*:"$exit_server")
            if ! "$job_may_diverge" || ! has_diverged "$name" "$status"; then
                fail_child "$name" "$status"
            fi
            echo "$name" >>"$run_dir/diverged"
            ;;
        *) fail_child "$name" "$status" ;;
        esac
        left=$((left - 1))
    done
    [[ -z $watch ]] || end_watch "$watch"
}

# Ends at the time limit, or when the center reaches the accuracy.
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
    local status
    kill -TERM "$1"
    reap "$1"
    unset "child[$1]"
}

finish() { # PID: waits for a child that was told to end
    local name=${child[$1]} status
    reap "$1"
    unset "child[$1]"
    [[ $status -eq 0 ]] || fail_child "$name" "$status"
}

psctl() {
    "$build/server/ctl/psctl" --socket "$socket" "$@" 2>>"$run_dir/psctl.log" ||
        fail_child psctl "$?, asked for $1"
}

# The evaluator makes its last evaluation; psd saves the center and ends.
job_end() {
    kill -TERM "$evaluator_pid"
    finish "$evaluator_pid"
    psctl checkpoint >>"$run_dir/psctl.log"
    psctl drain >>"$run_dir/psctl.log"
    finish "$psd_pid"
}

# Runs one worker without psd, which also evaluates. Its output is the script's progress.
job_run_local() {
    set -m
    "$build/nets/worker/psworker" --method "$method" --net "$net" --data "$data" --batch "$batch" \
        --steps "$steps" --seed "$seed" --every "$job_every" --history "$run_dir/history.jsonl" \
        "${given_options[@]}" "${worker_options[@]}" 2>>"$run_dir/worker-0.log" 9>&- &
    set +m
    child[$!]=worker-0
    job_wait_for_workers
}

# {"t":..,"center_version":..,"test_loss":..,"test_accuracy":..} -> the four numbers
history_table() {
    awk -F '[:,}]' '{ print $2, $4, $6, $8 }' "$run_dir/history.jsonl"
}
