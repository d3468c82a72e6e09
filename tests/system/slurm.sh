#!/usr/bin/env bash
# slurm.sh SOURCE BUILD: psrun and the job scripts under a real Slurm, of four nodes that are network namespaces of this
# machine (PSD_SLURM_LOCAL, a script that starts one): a net is trained, a job is cancelled, a node is lost, a job is
# requeued, workers join from a second job. Skipped where there is no Slurm, or nobody may make namespaces.
# shellcheck disable=SC2317 # called through trap and within
set -uo pipefail

root=$1
export PSD_BUILD=$2
tool=${PSD_SLURM_LOCAL:-$root/../shared/tools/slurm-local.sh}
slow=${PSD_TEST_SLOW:-1}
port=$((20000 + RANDOM % 10000))
failed=0

for needed in slurmctld slurmd munged srun; do
    PATH=$PATH:/usr/sbin type -P "$needed" >/dev/null || { echo "slurm: there is no $needed here: apt-get install slurm-wlm munge"; exit 77; }
done
[[ -x $tool ]] || { echo "slurm: there is no $tool"; exit 77; }
{ [[ $(id -u) -eq 0 ]] && ip netns list >/dev/null 2>&1; } || { echo "slurm: nodes are network namespaces, which only root makes"; exit 77; }

folder=$(mktemp -d /tmp/psd-slurm-XXXXXX)
chmod 755 "$folder" # munged asks for it
cluster=$folder/cluster
trap 'stop' EXIT
trap 'exit 130' HUP INT TERM

stop() {
    "$tool" stop -d "$cluster" >>"$folder/stop.log" 2>&1
    rm -rf "$folder"
}

fail() { # SENTENCE
    echo "slurm: $*" >&2
    failed=$((failed + 1))
}

show() { # FILE...
    tail -n 15 -- "$@" >&2
}

# What Slurm knows of jobs and nodes, and what its daemons did last.
show_cluster() {
    {
        slurm squeue --format='%i %j %T %r %N'
        slurm scontrol show job
        slurm sinfo --Node --long
        tail -n 25 -- "$cluster"/log/slurmctld.log "$cluster"/log/slurmd-n*.log
    } >&2
}

slurm() { # COMMAND...: as a user of the login node
    timeout "$((60 * slow))" "$tool" exec -d "$cluster" "$@"
}

# psrun ARGUMENT...: from the login node; its output is in $folder/out, its status in $status.
psrun() { # SECONDS ARGUMENT...
    local seconds=$1
    shift
    status=0
    timeout "$((seconds * slow))" "$tool" exec -d "$cluster" "$root/scripts/psrun" --backend slurm "$@" >"$folder/out" 2>&1 </dev/null ||
        status=$?
}

says() { # PATTERN [FILE]
    grep -qsE -- "$1" "${2:-$folder/out}"
}

within() { # SECONDS COMMAND...
    local end=$((SECONDS + $1 * slow))
    shift
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.3
    done
}

queue_is_empty() {
    local rows
    rows=$(slurm squeue --noheader) && [[ -z $rows ]]
}

# Processes of jobs carry this folder's name in their command line.
none_left() { # SECONDS
    within "$1" nothing_runs || fail "$name: left behind: $(pgrep -af -- "$folder/$name/")"
}

nothing_runs() {
    ! pgrep -f -- "$folder/$name/" >/dev/null
}

all_idle() {
    [[ $(states) == " 4 idle " ]]
}

states() {
    slurm sinfo --noheader --Node --format=%T | sort | uniq -c | tr -s ' \n' ' '
}

# -- the cases ------------------------------------------------------------------------------------------------------------

# 4 workers in 2 cliques over MPI, on 4 nodes.
cliques=(--nodes 4 --workers 4 --clients 2 --mpi)
endless=(psworker --net linear --steps 100000000)

trains() {
    name=trains
    local data=digits mnist
    mnist=$(dirname "$tool")/../data/mnist
    [[ ! -d $mnist ]] || data=mnist:$mnist
    # What goes wrong now and then where Slurm's pmix numbers nodes in two ways then always does.
    SLURM_PMIX_DIRECT_CONN_EARLY=true psrun 600 "${cliques[@]}" --servers 2 --method mpi-esgd --set stop.accuracy=0.985 --data "$data" \
        --run-dir "$folder/trains" -- psworker --net lenet --steps 2500
    [[ $status -eq 0 && $(<"$folder/trains/exit") == 0 ]] ||
        { fail "trains: status $status" && show "$folder/out" "$folder"/trains/*.log; }
    # Of any evaluation: the one that ends the job is not the last, and psd keeps the best center.
    grep '^center: ' "$folder/out"
    awk 'match($0, /test accuracy [0-9.]+/) && substr($0, RSTART + 14, 6) >= 0.985 { ok = 1 } END { exit !ok }' "$folder/out" ||
        { fail "trains: the accuracy is below 0.985" && show "$folder/out"; }
    [[ $(sort -u "$folder/trains/client-0.hosts" "$folder/trains/client-1.hosts" | tr '\n' ' ') == "n1 n2 n3 n4 " ]] ||
        fail "trains: not a member on each node"
    ! grep -h 'mpi/pmix.*send failed' "$cluster"/log/slurmd-n?.log >&2 || fail "trains: Slurm's pmix asks a wrong node"
    grep -qi 'authentication .*curve' "$folder"/trains/*.log || fail "trains: CURVE is not on"
    [[ $(stat -c %a "$folder/trains/keys/client-0") == 600 ]] || fail "trains: the mode of a key"
    none_left 120
}

refuses() {
    name=refuses
    psrun 180 --nodes 2 --hosts n1,n9 --workers 2 --method async-easgd --data digits --run-dir "$folder/refuses" -- "${endless[@]}"
    { ((status == 2)) && says 'the allocation does not have "n9"; allowed: n1 n2'; } ||
        { fail "a host that is not in the allocation: status $status" && show "$folder/out"; }
}

starts() { # NAME ARGUMENT...: in a job that nobody waits for, until the center learns
    name=$1
    shift
    psrun 180 --detach --run-dir "$folder/$name" --data digits "$@"
    job=$(sed -nE 's/^psrun: job ([0-9]+) of .*/\1/p' "$folder/out")
    [[ -n $job ]] || { fail "$name: no job" && show "$folder/out"; }
    within 120 says 'center [1-9][0-9]* +test accuracy' "$folder/$name/job.log" || { fail "$name: nothing happens" && show "$folder/$name/job.log"; }
}

is_cancelled() {
    starts cancelled "${cliques[@]}" --method mpi-esgd -- "${endless[@]}"
    slurm scancel "$job"
    none_left 120
    within 120 queue_is_empty || fail "cancelled: the job is in the queue still"
}

loses_a_node() {
    starts lost "${cliques[@]}" --method mpi-esgd --set limits.silence_s=20 -- "${endless[@]}" --clique-timeout 20
    within 120 says '"client-1.0 (joined|offers)' "$folder/lost/psd-0.log" || fail "lost: client-1 does not join"
    ip -n "sl$port-head" link set n4 down
    within 180 says 'client-1 has failed' "$folder/lost/job.log" || { fail "lost: psrun does not see it" && show "$folder/lost/job.log"; }
    "$PSD_BUILD/server/ctl/psctl" --socket "$folder/lost/state-0/psd.sock" --timeout 120 drain >/dev/null || fail "lost: no drain"
    within 180 test -s "$folder/lost/exit" || { fail "lost: psrun does not end" && show "$folder/lost/job.log"; }
    { [[ $(<"$folder/lost/exit") == 3 ]] && says '^client-0 +drained' "$folder/lost/report" && says '^client-1 +failed' "$folder/lost/report"; } ||
        { fail "lost: not that client alone" && show "$folder/lost/job.log" "$folder/lost/report"; }
    ip -n "sl$port-head" link set n4 up
    slurm scontrol reconfigure # n4 registers at once, if Slurm has given it up meanwhile
    within 300 all_idle || fail "lost: the nodes are $(states)"
    none_left 120
}

# The script as it is, but for what it trains.
submit() { # SCRIPT SED-SCRIPT OPTION...
    local script=$1
    sed "$2" "$root/scripts/slurm/$script" >"$folder/$script"
    shift 2
    slurm sbatch --parsable --cpus-per-task=1 --chdir="$folder" "$@" "$folder/$script"
}

is_pending() {
    [[ $(slurm squeue --noheader --jobs="$job" --format='%T %r') == "PENDING BeginTime" ]]
}

is_requeued() {
    name=requeued
    export PSRUN=$root/scripts/psrun DATA=digits RUN_DIR=$folder/requeued
    local steps
    echo 100000000 >"$folder/requeued.steps" # it has no end until it is in the queue again
    # shellcheck disable=SC2016 # the script's own
    job=$(submit requeue.sbatch 's/--net lenet --batch 64 --epochs 100/--net linear --steps "$(<"$RUN_DIR.steps")"/' --output="$folder/requeued.out")
    within 120 says 'center [1-9][0-9]* +test accuracy' "$folder/requeued.out" || { fail "requeued: nothing happens" && show "$folder/requeued.out"; }
    slurm scancel --signal=USR1 --batch "$job" # what Slurm sends when the time is nearly over
    # psrun itself gives the checkpoint 70 s, and as much to psd's end.
    within 150 says 'goes into the queue again' "$folder/requeued.out" || { fail "requeued: it does not end" && show "$folder/requeued.out"; }
    none_left 120
    steps=$(sed -nE 's/.*stopped after ([0-9]+) steps.*/\1/p' "$folder"/requeued/client-?.log | sort -n | tail -n 1)
    echo "$((${steps:-0} + 200))" >"$folder/requeued.steps"
    within 120 is_pending || fail "requeued: it is not in the queue"
    # Else in two minutes. Not at once: Slurm kills a job ("credential revoked") that starts in the very second in which it
    # was ended, since credentials are told apart by their second.
    slurm scontrol update "job=$job" StartTime=now+3 || fail "requeued: its start cannot be moved"
    within 180 test -s "$folder/requeued/exit" -a -s "$folder/requeued/report" || fail "requeued: it does not finish"
    { [[ $(<"$folder/requeued/exit") == 0 && $(grep -c '^client-[0-3] *finished' "$folder/requeued/report") -eq 4 ]] &&
        [[ $(cat "$folder/requeued"/client-?.log | grep -c 'resuming after [1-9]') -eq 4 ]] &&
        says 'job.resumed.*the center of version [1-9]' "$folder/requeued/psd-0.log"; } ||
        { fail "requeued: it has not gone on" && show "$folder/requeued.out"; }
    none_left 120
}

have_finished() { # WORKERS FILE
    [[ $(grep -cs '^client-[0-9]* *finished' "$2") -eq $1 ]]
}

is_joined() {
    name=joined
    export PSRUN=$root/scripts/psrun DATA=digits RUN_DIR=$folder/joined
    local workers
    job=$(submit servers.sbatch '' --output="$folder/servers.out")
    within 120 says 'psd is ready' "$folder/servers.out" || { fail "joined: no servers" && show "$folder/servers.out"; }
    for workers in 2 1; do # one job after the other
        submit workers.sbatch 's/--net lenet --batch 64 --epochs 8/--net linear --steps 300/' --ntasks="$workers" --output="$folder/workers.out" >/dev/null
        within 120 have_finished "$workers" "$folder/workers.out" ||
            { fail "joined: $workers workers do not finish" && show "$folder/workers.out"; }
    done
    slurm scancel --signal=TERM --batch "$job"
    within 120 queue_is_empty || fail "joined: the servers do not end"
    grep -q '"checkpoint.written".*version [1-9]' "$folder/joined/psd-0.log" || fail "joined: the center is not saved"
    none_left 120
}

"$tool" start -d "$cluster" -n 4 -c 4 -p "$port" -N >"$folder/start.log" 2>&1 || { cat "$folder/start.log"; exit 1; }
for case in ${PSD_SLURM_CASES:-trains refuses is_cancelled is_requeued is_joined loses_a_node}; do
    started=$SECONDS failures=$failed
    "$case"
    ((failed == failures)) || show_cluster
    echo "slurm: $case: $((SECONDS - started)) s"
done
((failed == 0))
