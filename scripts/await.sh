# shellcheck shell=bash disable=SC2154,SC2034
# await.sh: waits for a job that launch.sh has started, ends it and reports. Sourced by psrun, never run.

# -- waiting --------------------------------------------------------------------------------------------------------------

# Whether the job continues after a client has failed. By default it ends if rounds wait for all clients or ranks take turns.
goes_on_without() {
    [[ $failure_policy != keep-going ]] || return 0
    [[ $failure_policy != fail-fast ]] || return 1
    "$servers_ended" || [[ -n $join_dir || " fcfs hogwild ssp backup quorum " == *" $admission "* ]]
}

# Called at the start: psd may be gone when a client fails.
learn_admission() {
    admission=$(ask_head 10 --json status | grep -o '"admission": *"[a-z-]*"' | head -n 1 | cut -d '"' -f 4) || admission=
    [[ -n $admission || -n $failure_policy ]] || say "psd does not report its admission: a worker that fails ends the job"
}

# Called at the start, too: the configuration may have it. A psrun that joins finds it in the run folder.
learn_on_loss() {
    [[ -n $on_loss ]] || on_loss=$(ask_head 10 --json config | grep -o '"on_loss": *"[a-z]*"' | cut -d '"' -f 4) || on_loss=
    echo "$on_loss" >"$run_dir/on_loss"
}

# Not at the start: the endpoint file is there a moment before.
find_on_loss() {
    [[ -z $join_dir || ! -s $join_dir/on_loss ]] || on_loss=$(<"$join_dir/on_loss")
}

# Whether the worker found no psd because the job had already ended normally. Such a client has not failed.
came_late() { # CLIENT STATUS
    "$servers_ended" && "$is_psworker" && [[ -z $join_dir ]] && (($2 == exit_server)) &&
        ! grep -qsE "\"msg\": ?\"client-$1(\.[0-9]+)? " "$run_dir/psd-0.log"
}

# Whether the others of its clique go on without this member. The leader has the session with psd: none goes on without it.
is_lost_member() { # NAME STATUS
    local client=${1#client-}
    [[ $on_loss == shrink && $1 == *.* ]] && (($2 != 0 && client_left[${client%%.*}] > 0)) &&
        { [[ -z $endpoint ]] || ((${client##*.} > 0)); }
}

client_ended() { # NAME STATUS
    local client=${1#client-}
    client=${client%%.*}
    client_left[client]=$((client_left[client] - 1))
    find_on_loss
    if is_lost_member "$1" "$2"; then
        members_lost=$((members_lost + 1))
        say "$1 ended with status $2 (see $run_dir); its clique goes on without it"
    elif came_late "$client" "$2"; then
        [[ -n ${client_late[client]-} ]] || say "client-$client came when the job had ended"
        client_late[client]=true
    elif (($2 != 0)) && [[ -z ${client_failed[client]-} ]]; then
        client_failed[client]="$1 ended with status $2"
        goes_on_without || fail_child "$1" "$2"
        ((${#client_failed[@]} < clients)) || fail_child "$1" "$2"
        say "client-$client has failed: $1 ended with status $2 (see $run_dir); the job goes on without it"
    fi
    ((client_left[client] > 0)) || left=$((left - 1))
}

fail_server() { # NAME STATUS
    say_unsaved "$1" "$2"
    fail_child "$1" "$2"
}

# A failed server ends the job; a failed evaluator does not.
other_ended() { # NAME STATUS
    case $1:$2 in
    psd-*:0) servers_ended=true ;;
    psd-*) fail_server "$1" "$2" ;;
    evaluator:0) evaluator_pid= ;;
    evaluator:*)
        evaluator_pid=
        say "the evaluator ended with status $2 (see $run_dir/evaluator.log); the job goes on without it"
        ;;
    time-limit:*)
        say "the time limit of $time_limit s is reached: telling workers to stop"
        stop_job
        ;;
    esac
}

# Tells workers to stop; their results so far count.
stop_job() {
    if ((servers > 0)); then
        ask_head 10 drain >>"$run_dir/psctl.log" || true # psctl waits for the end, which may take longer
        servers_ended=true
    else
        end_children 'client-*'
    fi
}

wait_for_clients() {
    local pid name status
    while ((left > 0)) || { ((workers == 0)) && ! "$servers_ended"; }; do
        await_child
        [[ -n $pid ]] || continue
        name=${child[$pid]}
        unset "child[$pid]"
        if [[ $name == client-* ]]; then
            client_ended "$name" "$status"
        else
            other_ended "$name" "$status"
        fi
    done
}

# SIGUSR1: writes a checkpoint, for example before an allocation ends. Without servers the workers' states are all there is,
# which they save as they end.
checkpoint_now() {
    ((servers == 0)) || say "SIGUSR1: $(ask_head 60 checkpoint || echo 'the checkpoint failed')"
    "$requeue" || return 0
    at_end+=(unlock_folder backend_requeue) # it may run again at once
    end_early 0
}

# Drains psd, which tells the workers to stop and saves the center; clean_up does the rest.
end_early() { # STATUS
    local said status=0
    trap 'exit 130' HUP INT TERM
    trap '' USR1
    if ((servers > 0)) && [[ -s $run_dir/endpoint ]]; then
        said=$(tell_head "$job_grace" drain 2>&1) || status=$?
    fi
    if ((status != 0 && status != psctl_unreachable)); then
        say "$said"
        (($1 != 0)) || exit 1
    fi
    exit "$1"
}

# Waits for children that were told to end, and checks their status. An evaluator that takes longer is left to clean_up.
wait_for_end() { # NAME-PATTERN SECONDS
    local end=$((SECONDS + $2)) pid status name
    for pid in "${!child[@]}"; do
        # shellcheck disable=SC2053 # a pattern
        [[ ${child[$pid]} == $1 ]] || continue
        while kill -0 "$pid" 2>/dev/null; do
            if ((SECONDS >= end)); then
                [[ ${child[$pid]} == evaluator ]] || fail_child "${child[$pid]}" "none: it did not end within $2 s"
                say "the evaluator did not end within $2 s (--grace): its last evaluation is missing"
                continue 2
            fi
            sleep 0.1
        done
        reap "$pid"
        name=${child[$pid]}
        unset "child[$pid]"
        ((status == 0)) || case $name in
        evaluator) say "the evaluator ended with status $status (see $run_dir/evaluator.log): its last evaluation may be missing" ;;
        psd-*) fail_server "$name" "$status" ;;
        *) fail_child "$name" "$status" ;;
        esac
    done
}

# The evaluator makes its last evaluation; psd saves the center and ends.
end_job() {
    local pid seconds=$((job_grace > 60 ? job_grace : 60))
    for pid in "${!child[@]}"; do
        [[ ${child[$pid]} != time-limit ]] || end_one "$pid"
    done
    ((servers > 0)) || return 0
    end_children evaluator
    wait_for_end evaluator "$seconds"
    "$servers_ended" || ask_head "$seconds" drain >>"$run_dir/psctl.log" || true # psd may have ended already, by a condition of `stop`
    wait_for_end psd-0 "$seconds"
    other_servers_end "$seconds"
}

# The head ends the other servers. Those still running after 10 s get a signal.
other_servers_end() { # SECONDS
    local end=$((SECONDS + 10))
    while servers_run && ((SECONDS < end)); do
        sleep 0.1
    done
    if servers_run; then
        say "ending servers that are still running"
        end_children 'psd-*'
    fi
    wait_for_end 'psd-*' "$1"
}

servers_run() {
    local pid
    for pid in "${!child[@]}"; do
        [[ ${child[$pid]} != psd-* ]] || ! kill -0 "$pid" 2>/dev/null || return 0
    done
    return 1
}

end_one() { # PID
    local status
    kill -TERM -- "-$1" 2>/dev/null || true
    reap "$1"
    unset "child[$1]"
}

# Workers that join later, or are queued, then wait for the next servers instead of connecting to these.
forget_endpoint() {
    rm -f "$run_dir/endpoint"
}

run_job() {
    trap 'status=$?; clean_up; [[ -z $job_end_file ]] || echo "$status" >"$job_end_file"
        [[ -z ${PSRUN_SUBMITTED-} ]] || echo "$status" >"$PSRUN_SUBMITTED/exit"' EXIT
    ((servers == 0)) || at_end+=(forget_endpoint)
    trap 'say "interrupted: the job ends"; end_early 130' HUP INT TERM
    trap checkpoint_now USR1
    trap : PIPE # the job continues when the reader of the output exits
    export PSRUN_ID=$job_id
    say "run folder: $run_dir ($backend: ${#hosts[@]} hosts, $servers servers, $workers workers in $clients clients)"
    if ((servers > 0)); then
        start_servers
        learn_admission
        learn_on_loss
        say "psd is ready: psctl --socket $run_dir/state-0/psd.sock top    (on ${hosts[0]})"
    elif [[ -n $join_dir ]]; then
        wait_for_endpoint
        find_guest_key
    fi
    started_s=$EPOCHREALTIME
    start_clients
    start_evaluator
    [[ -z $time_limit ]] || start time-limit setpriv --pdeathsig TERM sleep "$time_limit"
    wait_for_clients
    ended_s=$EPOCHREALTIME
    end_job
    report
    ((${#client_failed[@]} == 0 && members_lost == 0)) || exit 3
}

# -- outside an allocation ------------------------------------------------------------------------------------------------

# Submits psrun as a job, waits for it, and cancels it if interrupted.
submit() {
    local id word end where=()
    if [[ -n $join_dir ]]; then # may be created later by the servers
        run_dir=$join_dir/submitted-$job_id
    fi
    make_run_folder
    [[ -n $join_dir ]] || where=(--run-dir "$run_dir")
    {
        printf '#!/bin/bash\n# Written by psrun; %s runs it.\nPSRUN_SUBMITTED=%q exec' "$backend" "$run_dir"
        printf ' %q' "$scripts/psrun" "${where[@]}" --backend "$backend" "${given[@]}"
        echo
    } >"$run_dir/job.sh"
    rm -f "$run_dir/exit"
    id=$(backend_submit "$run_dir/job.sh") || die "$backend did not take the job"
    say "job $id of $backend, run folder $run_dir"
    ! "$detach" || return 0
    trap 'backend_cancel "$id"; say "job $id is cancelled"; exit 130' HUP INT TERM
    tail -n +1 -F "$run_dir/job.log" 2>/dev/null &
    trap 'kill $(jobs -rp) 2>/dev/null' EXIT
    while backend_is_queued "$id"; do
        sleep 1
    done
    # Files written on another host may appear after the queue reports the end.
    for ((end = SECONDS + 10; SECONDS < end; )); do
        [[ ! -s $run_dir/exit ]] || break
        sleep 0.2
    done
    sleep 1 # tail's last lines
    [[ -s $run_dir/exit ]] || die "job $id is gone, and psrun in it has left no exit status: see $run_dir/job.log"
    exit "$(<"$run_dir/exit")"
}

# -- the report -----------------------------------------------------------------------------------------------------------

# From a worker's log, text or --json: how it ended, steps, images per second.
worker_result() { # LOG
    LC_ALL=C awk '
        /^rank -?[0-9]+ [a-z]+: [0-9]+ steps in / {
            how = $3; sub(/:/, "", how); steps = $4
            for (i = 1; i < NF; i++) if ($(i + 1) ~ /^img/) rate = $i
        }
        /^\{"event":"(finished|drained|stopped)"/ {
            split($0, q, /[":,}]+/); how = q[3]
            for (i in q) { if (q[i] == "step") steps = q[i + 1]; if (q[i] == "images_per_second") rate = q[i + 1] }
        }
        END { print (how == "" ? "-" : how), (steps == "" ? "-" : steps), (rate == "" ? 0 : rate) }' "$1" 2>/dev/null ||
        echo - - 0
}

client_row() { # CLIENT
    local logs log how='-' steps='-' said made sum=0 one
    logs=("$run_dir/client-$1.log")
    ((members == 1)) || logs=("$run_dir/client-$1".[0-9]*.log)
    for log in "${logs[@]}"; do
        read -r said made one < <(worker_result "$log")
        [[ $said == - ]] || how=$said steps=$made # not of a member that was lost
        sum=$(LC_ALL=C awk -v a="$sum" -v b="$one" 'BEGIN { printf "%.0f", a + b }')
    done
    [[ -z ${client_late[$1]-} ]] || how=late
    [[ -z ${client_failed[$1]-} ]] || how=failed
    printf '%-12s %-9s %8s %8s %10s\n' "client-$1" "$how" "$members" "$steps" "$sum"
}

report() {
    local c version loss accuracy what
    what=$(set_method "${method:-${config##*/}}")
    {
        if ((clients > 0)); then
            printf '%-12s %-9s %8s %8s %10s\n' client ended workers steps images/s
            for ((c = 0; c < clients; c++)); do
                client_row "$c"
            done
        fi
        if [[ -s $run_dir/history.jsonl ]]; then
            read -r _ version loss accuracy < <(history_table | tail -n 1)
            LC_ALL=C awk -v a="$accuracy" -v l="$loss" -v v="$version" -v t0="$started_s" -v t1="$ended_s" \
                -v what="$workers workers in $clients clients, $servers servers, ${what:-async-easgd}" \
                'BEGIN { printf "center: test accuracy %.4f, loss %.4f, %d updates in %.0f s (%s)\n", a, l, v, t1 - t0, what }'
        fi
    } >"$run_dir/report"
    cat "$run_dir/report" || true
}
