# shellcheck shell=bash disable=SC2154,SC2034
# local.sh: psrun on this machine. Also what a backend is; each of psrun.d/*.sh has these functions:
#
#   backend_check           dies with what is missing
#   backend_is_inside       whether psrun runs in an allocation already; else it submits itself
#   backend_hosts           prints the allocation's hosts, one a line
#   backend_is_loopback     whether servers are to be reached from this machine alone
#   backend_listen HOST     sets listen_url and listen_name (what psd advertises; empty: what it listens at) of a server there
#   backend_address HOST    prints where a clique's worker there listens to the others
#   backend_on HOST NAME    sets place: words in front of a command that run it there, as a child that ends when it does
#   backend_mpi NAME HOST...  sets place likewise: they run it once on each HOST (which may repeat), as one MPI world
#   end_children PATTERN    asks children whose name fits to end in good order (job.sh has one)
#   kill_children           leaves none of them, on any host
#   backend_submit SCRIPT   puts it into the queue, with $nodes and $submit_options; its output goes to $run_dir/job.log;
#                           prints the job's id
#   backend_is_queued ID    whether the job waits or runs; backend_cancel ID
#   backend_requeue         puts the job that psrun runs in into the queue again

backend_check() {
    command -v setpriv >/dev/null || die "setpriv is missing: install util-linux"
    [[ $wanted_clique != mpi ]] || command -v mpirun >/dev/null || die "--mpi: there is no mpirun here; allowed: --ring"
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

# A child is told to end also when psrun is killed.
backend_on() { # HOST NAME
    place=(setpriv --pdeathsig TERM)
}

backend_mpi() { # NAME HOST...
    shift
    place=(setpriv --pdeathsig TERM env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
        mpirun --oversubscribe --bind-to none -np "$#")
}

# What the children have started in groups of their own carries the job's id.
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
