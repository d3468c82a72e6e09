# shellcheck shell=bash disable=SC2154,SC2034
# launch.sh: plans a job and starts it with the functions of a backend, which psrun.d/local.sh documents. Sourced by psrun
# after job.sh, never run.

start_timeout=60
hosts=()            # hosts in use, in the allocation's order
place=()            # result of a backend: command prefix that runs a command on a host
members=1           # workers per client
gpus=               # GPUs of each worker; empty: psrun hands out none
is_psworker=false   # false: the workers are a program of the user
start_end=          # deadline for servers of another psrun; empty: none
endpoint=           # endpoint file of the head; empty: no servers
job_id=$$-$RANDOM   # identifies the processes of this psrun
started_s=
left=               # running clients
admission=          # admission of the method, from psd; empty: unknown
client_left=() client_failed=() # client -> running processes; first failure
members_lost=0                  # that ended early, while the others of their cliques went on
client_late=()      # client -> true: it started after the end of the job
servers_ended=false # normally: by a condition of `stop`, or drained by an operator
job_end_file=       # receives the exit status, for a psrun that waits for a queued job

# -- the plan -------------------------------------------------------------------------------------------------------------

# The method may come from the option, the configuration or a setting.
planned_method() {
    local name=$method
    [[ -n $name || -z $config ]] || name=$(sed -nE "s/^method: *[\"']?([a-z-]+).*/\1/p" "$config")
    set_method "$name"
}

plan_cliques() {
    local c allowed=()
    if [[ -z $clients ]]; then
        clients=$workers
        if ((servers == 0)) && [[ -z $join_dir ]] || is_one_clique "$(planned_method)"; then
            clients=1
        fi
    fi
    check_number --clients "$clients" 1 "$workers"
    if ((workers % clients != 0)); then
        for ((c = 1; c <= workers; c++)); do
            ((workers % c != 0)) || allowed+=("$c")
        done
        bad_option "--workers $workers --clients $clients: $workers workers do not make $clients cliques of one size" \
            "--clients ${allowed[*]}"
    fi
    members=$((workers / clients))
}

# With servers on_loss is a key of psd. Where only the configuration has it, psrun asks psd for it: learn_on_loss.
check_on_loss() {
    case $on_loss in
    '') [[ " ${job_settings[*]} " != *" clique.on_loss=shrink "* ]] || on_loss=shrink ;;
    end | shrink)
        [[ -z $join_dir ]] || bad_option "--on-loss with --join" "none: the joined job has its own"
        [[ $wanted_clique != mpi || $on_loss == end ]] || bad_option "--on-loss shrink with --mpi" "end, or --ring"
        ((members > 1 || workers == 0)) || bad_option "--on-loss with clients of one worker" "none, or fewer --clients"
        "$is_psworker" || ((servers > 0)) ||
            bad_option "--on-loss with --servers 0 and a program of the user" "none: the program opens its clique itself"
        ((servers == 0)) || job_settings+=(--set "clique.on_loss=$on_loss")
        ;;
    *) bad_option "--on-loss: \"$on_loss\"" "end, shrink" ;;
    esac
}

check_without_servers() {
    is_local "$method" || is_alone "$method" ||
        bad_option "--servers 0 --method ${method:-(none)}" "${local_methods[*]} ${alone_methods[*]}"
    ! is_local "$method" || ((workers == 1)) || bad_option "--method $method --workers $workers" "1: the method has one worker"
    ((clients == 1)) || bad_option "--servers 0 --clients $clients" "1: all workers form one clique"
    [[ -z $config && ${#job_settings[@]} -eq 0 ]] || bad_option "--config or --set with --servers 0" \
        "psworker's options after --: there is no psd to configure"
}

# Options of workers that psrun sets. --clique-timeout, --links and --clique-listen are free.
readonly own_options=" --server --method --rank --name --clique --members --member --clique-name --rendezvous --key --state \
--evaluate --history --on-loss "

check_command() {
    local word
    [[ ${#command[@]} -gt 0 && ${command[0]##*/} == psworker ]] || return 0
    is_psworker=true
    for word in "${command[@]:1}"; do
        [[ $own_options != *" ${word%%=*} "* ]] || bad_option "${word%%=*} after --" "none: psrun sets it"
        [[ ${word%%=*} != --data || -z $data ]] || bad_option "--data both before and after --" "one of them"
    done
}

# Refuses a key that others can read.
check_key() { # FILE
    local mode
    mode=$(stat -Lc %a "$1" 2>/dev/null) || bad_option "key file $1" "an existing file"
    (((8#$mode & 8#077) == 0)) ||
        bad_option "key file $1 has mode $mode: others may read it" "0600 (chmod 600 $1, and a new key if others may have read it)"
}

find_backend() {
    local name
    if [[ -z $backend ]]; then
        backend=local
        [[ -z ${LSB_JOBID-} ]] || backend=lsf
        [[ -z ${SLURM_JOB_ID-} ]] || backend=slurm
    fi
    # shellcheck disable=SC1090 # one of a folder
    source "$scripts/psrun.d/$backend.sh"
    backend_check
    [[ -n $protection ]] || { protection=curve && backend_is_loopback && protection=none; } || true
}

# The folders of psrun and of each link to it: installed programs are next to one of these.
psrun_folders() {
    local file=${BASH_SOURCE[-1]} folder
    while true; do
        folder=$(cd "$(dirname "$file")" && pwd) || return 0
        echo "$folder"
        [[ -L $file ]] || break
        file=$(readlink "$file")
        [[ $file == /* ]] || file=$folder/$file
    done
    echo "$root/../../bin"
}

find_program() { # NAME
    local folder
    while read -r folder; do
        if [[ -x $folder/$1 && -f $folder/$1 ]]; then
            echo "$folder/$1"
            return
        fi
    done < <(psrun_folders)
    type -P "$1" || die "$1 is neither next to psrun nor on PATH"
}

# Programs from PSD_BUILD, otherwise from the tree of psrun, otherwise installed ones.
find_programs() {
    if [[ -n ${PSD_BUILD-} || -f $root/meson.build ]]; then
        job_build
        psd_program=$build/server/psd psctl_program=$build/server/ctl/psctl psworker_program=$build/nets/worker/psworker
    else
        psd_program=$(find_program psd)
        psctl_program=$(find_program psctl)
        psworker_program=$(find_program psworker)
    fi
    psd_program=$(realpath "$psd_program") psctl_program=$(realpath "$psctl_program")
    psworker_program=$(realpath "$psworker_program")
    ! "$is_psworker" || command[0]=$psworker_program
    psd_options=(${config:+--config "$(realpath "$config")"} ${method:+--method "$method"} "${job_settings[@]}")
}

# Checks the configuration before anything starts. Adds the number of workers for methods that accept it.
check_configuration() {
    local why shard=(--shard "0/$servers" --set servers.head=none)
    why=$("$psd_program" "${psd_options[@]}" "${shard[@]}" --check-config 2>&1) || {
        say "${why#psd: }"
        exit 2
    }
    ((clients > 0)) || return 0
    ! "$psd_program" "${psd_options[@]}" "${shard[@]}" --set "workers=$clients" --check-config >/dev/null 2>&1 ||
        [[ " ${job_settings[*]}" == *" workers="* ]] || psd_options+=(--set "workers=$clients")
}

find_hosts() {
    local all host
    mapfile -t all < <(backend_hosts)
    ((${#all[@]} > 0)) || die "the $backend backend finds no host in this allocation"
    for host in "${wanted_hosts[@]}"; do
        [[ " ${all[*]} " == *" $host "* ]] || bad_option "--hosts: the allocation does not have \"$host\"" "${all[*]}"
    done
    hosts=("${wanted_hosts[@]}")
    ((${#hosts[@]} > 0)) || hosts=("${all[@]}")
}

host_of() { # WORKER: neighbouring workers are on the same host, or on neighbouring hosts
    echo "${hosts[$1 * ${#hosts[@]} / workers]}"
}

# The GPUs of a host are handed out in the order of its workers.
first_gpu_of() { # WORKER
    local host=$(($1 * ${#hosts[@]} / workers))
    echo $((($1 - (host * workers + ${#hosts[@]} - 1) / ${#hosts[@]}) * gpus))
}

# For member: the number of GPUs, and for each worker of the client the first of them on its host.
gpus_of() { # CLIENT
    local k list=
    for ((k = 0; k < members; k++)); do
        list+=,$(first_gpu_of $(($1 * members + k)))
    done
    echo "$gpus:${list#,}"
}

# -- the run folder -------------------------------------------------------------------------------------------------------

# Refuses to resume a folder with other numbers, or without the checkpoint of a server.
check_resumed() {
    local i has=() lacks=() was
    was=$(<"$run_dir/psrun.job")
    [[ $was == "servers=$servers workers=$workers clients=$clients" ]] ||
        die "$run_dir was made with $was, and not with servers=$servers workers=$workers clients=$clients: resume it as it was"
    for ((i = 0; i < servers; i++)); do
        if compgen -G "$run_dir/state-$i/checkpoints/*.safetensors" >/dev/null; then
            has+=("$i")
        else
            lacks+=("$i")
        fi
    done
    [[ ${#has[@]} -eq 0 || ${#lacks[@]} -eq 0 ]] ||
        die "$run_dir has checkpoints of servers ${has[*]}, and none of ${lacks[*]}: the map of shards has a gap"
}

# Creates the requested folder, or a new one with a unique name.
make_run_folder() {
    local name k
    if [[ -n $run_dir ]]; then
        mkdir -p "$run_dir" || die "--run-dir: the folder $run_dir cannot be created"
    else
        name=$PWD/run/$(date +%Y%m%d-%H%M%S)-${method:-psrun}
        run_dir=$name
        mkdir -p "$PWD/run"
        for ((k = 2; k < 1000; k++)); do
            ! mkdir "$run_dir" 2>/dev/null || break
            [[ -e $run_dir ]] || die "the run folder $run_dir cannot be created"
            run_dir=$name-$k
        done
    fi
    run_dir=$(realpath "$run_dir")
}

# The servers may not run yet; they may create the folder.
join_folder() {
    start_end=$((SECONDS + start_timeout))
    [[ -d $join_dir ]] || say "$join_dir is not there yet: waiting at most $start_timeout s for the servers to create it"
    until [[ -d $join_dir ]]; do
        ((SECONDS < start_end)) ||
            die "--join: the servers have not created $join_dir within $start_timeout s (--start-timeout)"
        sleep 0.2
    done
    join_dir=$(realpath "$join_dir")
    endpoint=$join_dir/endpoint
    run_dir=$join_dir/join-$job_id
    mkdir -p "$run_dir"
}

# The servers create the key before they write their endpoint file.
find_guest_key() {
    [[ -n $key_file ]] || { [[ ! -e $join_dir/keys/guest ]] || key_file=$join_dir/keys/guest; }
    [[ -z $key_file ]] || check_key "$key_file"
}

prepare_folder() {
    if [[ -n $join_dir ]]; then
        join_folder
        return
    fi
    make_run_folder
    ((servers == 0)) || endpoint=$run_dir/endpoint
    # psd locks its own state, too late for what psrun removes.
    lock_folder "$run_dir" psrun.job
    if [[ -s $run_dir/psrun.job ]]; then
        "$resume" || die "$run_dir holds a run already: choose another folder, or resume it with --resume"
        check_resumed
    fi
    echo "servers=$servers workers=$workers clients=$clients" >"$run_dir/psrun.job"
    rm -f "$run_dir/endpoint" "$run_dir/exit"
    job_end_file=$run_dir/exit
    [[ $protection != curve ]] || ((servers == 0)) || make_keys
}

# A key has its name when it is allowed: a psrun that resumes one that was interrupted makes another in its place.
make_key() { # NAME RIGHTS-IN-THE-ALLOW-LIST
    local file=$run_dir/keys/$1 allow=$run_dir/keys/allow line
    if [[ ! -e $file ]]; then
        rm -f "$file.new"
        line=$("$psctl_program" keygen "$file.new" --name "$1") || die "cannot create the key file $file"
        ! grep -qs " $1 " "$allow" || sed -i "/ $1 /d" "$allow"
        [[ -z $2 ]] || echo "$line $2" >>"$allow"
        mv "$file.new" "$file"
    fi
    check_key "$file"
}

# One key for all servers, one for each client, one for the evaluator, and one for workers that join later.
make_keys() {
    local c
    (umask 077 && mkdir -p "$run_dir/keys")
    make_key center ""
    make_key evaluator role=observer
    make_key guest role=any
    for ((c = 0; c < clients; c++)); do
        make_key "client-$c" "role=worker ranks=$c"
    done
}

key_of() { # NAME: prints psworker's option and value on two lines; nothing without keys
    local file=$run_dir/keys/$1
    [[ -z $join_dir ]] || file=$key_file
    if [[ -n $join_dir && -n $key_file || -z $join_dir && $protection == curve ]]; then
        printf '%s\n' --key "$file"
    fi
}

# -- servers --------------------------------------------------------------------------------------------------------------

# psd's working directory is the run folder, so that the relative path of the socket is short. tell_head expects it there.
start_server() { # SHARD
    local host=${hosts[$1 % ${#hosts[@]}]} key=none allow=none options=(--state-dir "state-$1" --set status.socket=psd.sock)
    if (($1 == 0)); then
        options+=(--endpoint-file endpoint --set servers.head=none)
    else
        options+=(--set endpoint_file= --head @endpoint)
    fi
    options+=(--shard "$1/$servers")
    ((servers == 1)) || options+=(--set "servers.wait_s=$start_timeout")
    ! "$resume" || options+=(--resume)
    backend_listen "$host"
    case $protection in
    curve) key=$(yaml_text "$run_dir/keys/center") allow=$(yaml_text "$run_dir/keys/allow") ;;
    insecure) options+=(--set insecure=true) ;;
    esac
    options+=(--listen "$listen_url" --set "advertise=$listen_name" --set "auth.key=$key" --set "auth.allow=$allow")
    backend_on "$host" "psd-$1"
    start "psd-$1" "${place[@]}" env -C "$run_dir" "$psd_program" "${psd_options[@]}" "${options[@]}"
}

start_servers() {
    local i
    for ((i = 0; i < servers; i++)); do
        start_server "$i"
    done
    wait_for_endpoint
}

# Fails if a server has ended: it will not write its endpoint file.
check_servers() {
    local pid status
    for pid in "${!child[@]}"; do
        if [[ ${child[$pid]} == psd-* ]] && ! kill -0 "$pid" 2>/dev/null; then
            reap "$pid"
            fail_child "${child[$pid]}" "$status"
        fi
    done
}

wait_for_endpoint() {
    local end=${start_end:-$((SECONDS + start_timeout))}
    until [[ -s $endpoint ]]; do
        check_servers
        ((SECONDS < end)) || die "the endpoint file $endpoint has not appeared within $start_timeout s (--start-timeout)"
        sleep 0.1
    done
}

# Runs psctl on the head's host.
tell_head() { # SECONDS COMMAND...
    local seconds=$1
    shift
    backend_on "${hosts[0]}" psctl
    timeout "$((seconds + 10))" "${place[@]}" env -C "$run_dir" "$psctl_program" --socket state-0/psd.sock \
        --timeout "$seconds" "$@"
}

ask_head() { # SECONDS COMMAND...
    tell_head "$@" 2>>"$run_dir/psctl.log"
}

# -- clients --------------------------------------------------------------------------------------------------------------

# Sets words to the whole command of a worker.
worker_command() { # CLIENT MEMBER (empty: from MPI) HOST
    local key flags=()
    mapfile -t key < <(key_of "client-$1")
    words=("$scripts/psrun.d/member")
    if "$is_psworker"; then
        flags=(--psworker)
        [[ -n $join_dir ]] || flags+=(--state)
        ((servers > 0)) || [[ -n $join_dir ]] || flags+=(--history)
    fi
    [[ -z $gpus ]] || flags+=(--gpus="$(gpus_of "$1")")
    words+=("${flags[@]}" "$run_dir" "client-$1" "$members" "$2" "$endpoint" "${key[1]-}" "${command[@]}")
    "$is_psworker" || return 0
    words+=(${data:+--data "$data"} "${key[@]}")
    if ((servers > 0)) || [[ -n $join_dir ]]; then
        words+=(--server "@$endpoint")
        [[ -n $join_dir ]] || words+=(--rank "$1")
    else
        words+=(--method "$method" --every "$job_every" ${on_loss:+--on-loss "$on_loss"})
    fi
    ((members > 1)) || return 0
    words+=(--members "$members" --clique "${wanted_clique:-ring}")
    [[ $wanted_clique != mpi ]] || return 0
    words+=(--member "$2" --clique-name "${join_dir:+$job_id-}$1")
    [[ " ${command[*]}" == *" --clique-listen"* ]] || words+=(--clique-listen "$(backend_address "$3")")
    ((servers > 0)) || [[ -n $join_dir ]] || words+=(--rendezvous "file:$run_dir/ring-$job_id")
}

start_client() { # CLIENT
    local k at=() name
    for ((k = 0; k < members; k++)); do
        at+=("$(host_of $(($1 * members + k)))")
    done
    if ((members > 1)) && [[ $wanted_clique == mpi ]]; then
        worker_command "$1" ""
        backend_mpi "client-$1" "${at[@]}"
        start "client-$1" "${place[@]}" "${words[@]}"
        ! "$is_psworker" || [[ " ${place[*]} " != *" mpirun "* ]] || over_mpirun["$last_pid"]=true
        client_left[$1]=1
        return
    fi
    for ((k = 0; k < members; k++)); do
        name=client-$1
        ((members == 1)) || name+=.$k
        worker_command "$1" "$k" "${at[k]}"
        backend_on "${at[k]}" "$name"
        start "$name" "${place[@]}" "${words[@]}"
    done
    client_left[$1]=$members
}

start_clients() {
    local c words
    for ((c = 0; c < clients; c++)); do
        start_client "$c"
    done
    left=$clients
}

# The options of the workers that also apply to the evaluator.
evaluator_options() {
    local i word
    for ((i = 1; i < ${#command[@]}; i++)); do
        word=${command[i]}
        [[ "$evaluator_takes--net --data " == *" ${word%%=*} "* ]] || continue
        printf '%s\n' "$word"
        [[ $word == *=* ]] || printf '%s\n' "${command[i + 1]-}"
    done
    [[ -z $data ]] || printf '%s\n' --data "$data"
    key_of evaluator
}

# The evaluator's output is psrun's progress.
start_evaluator() {
    local options
    "$is_psworker" && ((servers > 0 && job_every > 0)) || return 0
    mapfile -t options < <(evaluator_options)
    backend_on "${hosts[0]}" evaluator
    set -m
    "${place[@]}" "$psworker_program" --server "@$endpoint" --evaluate --every "$job_every" --name evaluator \
        --history "$run_dir/history.jsonl" "${options[@]}" 2>>"$run_dir/evaluator.log" 9>&- &
    set +m
    evaluator_pid=$!
    child["$evaluator_pid"]=evaluator
}
