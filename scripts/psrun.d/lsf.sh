# shellcheck shell=bash disable=SC2154,SC2034
# lsf.sh: psrun under LSF: blaunch starts every process on a host of the job. local.sh documents the functions. LSF ends a
# parallel job with SIGKILL, and does not warn every process first: only the last checkpoint remains.

backend_check() {
    local tool tools=(bsub bjobs bkill)
    [[ -z ${LSB_JOBID-} ]] || tools=(blaunch)
    for tool in "${tools[@]}"; do
        command -v "$tool" >/dev/null || die "--backend lsf: $tool is not installed"
    done
    ! "$requeue" || [[ -n ${LSB_JOBID-} ]] || bad_option "--requeue outside a job" "a job script (scripts/lsf)"
    [[ $wanted_clique != mpi ]] || [[ -z ${LSB_JOBID-} ]] || command -v mpirun >/dev/null ||
        die "--mpi: mpirun is not installed; allowed: --ring"
}

backend_is_inside() {
    [[ -n ${LSB_JOBID-} ]]
}

# A line for each slot, or HOST SLOTS HOST SLOTS..., or HOST HOST...
backend_hosts() {
    if [[ -n ${LSB_DJOB_HOSTFILE-} ]]; then
        [[ -r $LSB_DJOB_HOSTFILE ]] || die "LSB_DJOB_HOSTFILE: $LSB_DJOB_HOSTFILE cannot be read"
        awk 'NF > 0 && !seen[$1]++ { print $1 }' "$LSB_DJOB_HOSTFILE"
    elif [[ -n ${LSB_MCPU_HOSTS-} ]]; then
        tr ' ' '\n' <<<"$LSB_MCPU_HOSTS" | awk 'NF > 0 && ++n % 2 == 1'
    else
        tr ' ' '\n' <<<"${LSB_HOSTS-}" | awk 'NF > 0 && !seen[$1]++'
    fi
}

backend_is_loopback() {
    return 1
}

# A host may resolve its own name to loopback: psd listens on all interfaces and advertises LSF's name of the host.
backend_listen() { # HOST
    listen_url=tcp://${interface:-0.0.0.0}:0
    listen_name=$1
    [[ -z $interface ]] || listen_name=
}

backend_address() { # HOST
    echo "tcp://$1"
}

# LSF ends the processes of a lost host. blaunch passes the environment.
backend_on() { # HOST NAME
    place=(setpriv --pdeathsig TERM blaunch -z "$1")
}

backend_mpi() { # NAME HOST...
    local list=$run_dir/$1.hosts
    shift
    printf '%s\n' "$@" | awk '{ n[$1]++ } END { for (h in n) print h " slots=" n[h] }' >"$list"
    place=(setpriv --pdeathsig TERM env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        mpirun --mca plm_rsh_agent blaunch --oversubscribe --bind-to none -np "$#" --hostfile "$list")
}

# bsub answers: Job <123> is submitted to queue <normal>.
backend_submit() { # SCRIPT
    bsub -J psrun -n "$((workers > 0 ? workers : servers))" -o "$run_dir/job.log" ${gpus:+-gpu "num=$gpus/task"} \
        ${nodes:+-R "span[ptile=$(((workers + nodes - 1) / nodes))]"} "${submit_options[@]}" bash "$1" |
        sed -nE 's/^Job <([0-9]+)>.*/\1/p' | grep .
}

# If LSF does not answer, the job counts as queued.
backend_is_queued() { # ID
    local said
    said=$(timeout 20 bjobs -noheader -o stat "$1" 2>&1) || true
    [[ $said != *"is not found"* && ! $said =~ ^(DONE|EXIT) ]]
}

backend_cancel() { # ID
    timeout 20 bkill "$1" >&2 || true
}

backend_requeue() {
    say "job $LSB_JOBID goes into the queue again"
    timeout 20 brequeue "$LSB_JOBID" || say "LSF did not take job $LSB_JOBID back"
}
