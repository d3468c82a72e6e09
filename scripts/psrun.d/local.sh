# shellcheck shell=bash disable=SC2154,SC2034
# local.sh: psrun on this machine. Each backend, a file psrun.d/*.sh, has these functions:
#
#   backend_check           dies if something is missing, and names it
#   backend_is_inside       whether psrun already runs in an allocation; otherwise it submits itself
#   backend_hosts           prints the allocation's hosts, one per line
#   backend_is_loopback     whether servers are reachable only from this machine
#   backend_listen HOST     sets listen_url and listen_name (the advertised host; empty: as listen_url) of a server there
#   backend_address HOST    prints the listen address of a clique member there
#   backend_on HOST NAME    sets place: a command prefix that runs a command there as a child, and ends with it
#   backend_mpi NAME HOST...  sets place to a prefix that runs it once on each HOST (may repeat), as one MPI world
#   end_children PATTERN    sends SIGTERM to children whose name matches (default: job.sh)
#   kill_children           kills all children, on all hosts
#   backend_submit SCRIPT   submits it with $nodes and $submit_options; its output goes to $run_dir/job.log; prints the
#                           job's id
#   backend_is_queued ID    whether the job is pending or running; backend_cancel ID
#   backend_requeue         requeues the job that psrun runs in

backend_check() {
    command -v setpriv >/dev/null || die "setpriv is missing: install util-linux"
    [[ $wanted_clique != mpi ]] || command -v mpirun >/dev/null || die "--mpi: mpirun is not installed; allowed: --ring"
    ! "$requeue" || bad_option "--requeue with --backend local" "none: there is no queue"
}

backend_is_inside() {
    if [[ -n $nodes || ${#submit_options[@]} -gt 0 ]] || "$detach"; then
        bad_option "--nodes, --submit or --detach with --backend local" "none of them: there is no queue"
    fi
}

backend_hosts() {
    echo localhost
}

backend_is_loopback() {
    [[ -z $interface ]]
}

backend_listen() { # HOST
    listen_url=tcp://${interface:-127.0.0.1}:0
    listen_name=
}

backend_address() { # HOST
    echo unix:
}

# A child also gets SIGTERM if psrun is killed.
backend_on() { # HOST NAME
    place=(setpriv --pdeathsig TERM)
}

backend_mpi() { # NAME HOST...
    shift
    place=(setpriv --pdeathsig TERM env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        mpirun --oversubscribe --bind-to none -np "$#")
}

# Descendants in other process groups are found by the job's id in their environment.
kill_children() {
    local pid file
    for pid in "${!child[@]}"; do
        kill -KILL -- "-$pid" 2>/dev/null || true
    done
    for file in $(grep -lszxF -- "PSRUN_ID=$job_id" /proc/[0-9]*/environ || true); do
        file=${file%/environ}
        kill -KILL "${file##*/}" 2>/dev/null || true
    done
}
