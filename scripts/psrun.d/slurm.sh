# shellcheck shell=bash disable=SC2154,SC2034
# slurm.sh: psrun under Slurm: every process is a step of the job; steps may share hosts. local.sh documents the functions.

backend_check() {
    local tool
    for tool in srun sbatch squeue scancel scontrol; do
        command -v "$tool" >/dev/null || die "--backend slurm: $tool is not installed"
    done
    ! "$requeue" || [[ -n ${SLURM_JOB_ID-} ]] || bad_option "--requeue outside a job" "a batch script (scripts/slurm)"
}

backend_is_inside() {
    [[ -n ${SLURM_JOB_ID-} ]]
}

backend_hosts() {
    scontrol show hostnames "$SLURM_JOB_NODELIST"
}

backend_is_loopback() {
    return 1
}

# A host may resolve its own name to loopback: psd listens on all interfaces and advertises Slurm's name of the host.
backend_listen() { # HOST
    listen_url=tcp://${interface:-0.0.0.0}:0
    listen_name=$1
    [[ -z $interface ]] || listen_name=
}

backend_address() { # HOST
    echo "tcp://$1"
}

# Sets place for a step named after this psrun. The job's own task options do not apply to a step. It sees all GPUs of the
# job on its host, of which psrun.d/member takes the worker's own.
step() { # NAME OPTION...
    local name=$1
    shift
    place=(setpriv --pdeathsig TERM env -u SLURM_NTASKS -u SLURM_NPROCS -u SLURM_NTASKS_PER_NODE -u SLURM_DISTRIBUTION -u SLURM_GPUS_PER_TASK
        srun --job-name="psrun.$job_id.$name" --overlap --overcommit --cpu-bind=none --input=none --kill-on-bad-exit=1
        --quiet "$@")
}

backend_on() { # HOST NAME
    step "$2" --nodes=1 --ntasks=1 --nodelist="$1"
}

# pmix starts the ranks if Slurm has it, otherwise mpirun, which starts its daemons through Slurm. The pmix plugin of Slurm
# 22.05 numbers nodes sometimes by step and sometimes by job. In a step that does not begin at the job's first node, messages
# then go to the wrong node, and MPI_Init hangs. With the step's nodes as the job's node list both numberings agree.
backend_mpi() { # NAME HOST...
    local name=$1 list=$run_dir/$1.hosts nodes
    shift
    printf '%s\n' "$@" >"$list"
    if srun --mpi=list 2>&1 | grep -w pmix >/dev/null; then
        step "$name" --mpi=pmix --ntasks="$#" --distribution=arbitrary
        nodes=$(backend_hosts | grep -Fx -f "$list" | paste -sd ,)
        place=(env SLURM_HOSTFILE="$list" SLURM_JOB_NODELIST="$nodes" SLURM_NODELIST="$nodes" "${place[@]}")
    else
        command -v mpirun >/dev/null || die "--mpi: neither srun --mpi=pmix nor mpirun is available; allowed: --ring"
        place=(setpriv --pdeathsig TERM mpirun --oversubscribe --bind-to none -np "$#" --hostfile "$list")
    fi
}

step_ids() { # PATTERN: ids of this psrun's steps whose name matches
    local id name rows tries
    for tries in 1 2 3; do # a busy controller may not answer
        rows=$(timeout 20 squeue --noheader --steps --jobs="$SLURM_JOB_ID" --format='%i %j' 2>/dev/null) && break
        sleep "$tries"
    done
    while read -r id name; do
        # shellcheck disable=SC2053 # a pattern
        [[ $name != psrun.$job_id.$1 ]] || echo "$id"
    done <<<"$rows"
}

# srun kills its step on SIGTERM, so the signal is sent to the step's processes. (scancel of Slurm 22.05 reports an error
# although it has sent the signal.)
end_children() { # PATTERN
    local ids
    mapfile -t ids < <(step_ids "$1")
    ((${#ids[@]} == 0)) || timeout 20 scancel --signal=TERM "${ids[@]}" 2>/dev/null || true
    end_over_mpirun "$1" # it is no step
}

kill_children() {
    local pid ids end=$((SECONDS + 10))
    for pid in "${!child[@]}"; do
        kill -TERM -- "-$pid" 2>/dev/null || true
    done
    while mapfile -t ids < <(step_ids '*') && ((${#ids[@]} > 0 && SECONDS < end)); do
        timeout 20 scancel "${ids[@]}" 2>/dev/null || true
        sleep 0.2
    done
    for pid in "${!child[@]}"; do
        kill -KILL -- "-$pid" 2>/dev/null || true
    done
}

# psrun is the batch script's process, so that it gets the warning signal. A failed node ends only its own clients.
backend_submit() { # SCRIPT
    sbatch --parsable --job-name=psrun --ntasks="$((workers > 0 ? workers : servers))" ${nodes:+--nodes="$nodes"} ${gpus:+--gpus-per-task="$gpus"} --no-kill \
        --no-requeue --signal=B:USR1@120 --output="$run_dir/job.log" --open-mode=append "${submit_options[@]}" "$1" |
        cut -d ';' -f 1
}

# If a busy controller does not answer, the job counts as queued.
backend_is_queued() { # ID
    local said
    if ! said=$(timeout 20 squeue --noheader --jobs="$1" --format=%T 2>&1); then
        [[ $said != *"Invalid job id"* ]]
        return
    fi
    [[ -n $said ]]
}

backend_cancel() { # ID
    timeout 20 scancel --full "$1" || true
}

backend_requeue() {
    say "job $SLURM_JOB_ID goes into the queue again"
    timeout 20 scontrol requeue "$SLURM_JOB_ID" || say "Slurm did not take job $SLURM_JOB_ID back"
}
