#!/usr/bin/env bash
# psrun.sh SOURCE BUILD: psrun on this machine: cliques of each kind, servers none and one, bad input refused before training,
# and nothing left behind, whoever dies.
# shellcheck disable=SC2317 # called through trap and within
set -uo pipefail

root=$1
export PSD_BUILD=$2
folder=$(mktemp -d)
failed=0
trap 'leave' EXIT
slow=${PSD_TEST_SLOW:-1}
name=none  # of the case, and its run folder's

# Only what runs still: the number of a process that has ended may be another's by now, of another test.
leave() {
    # shellcheck disable=SC2046 # several
    kill -KILL $(jobs -rp) 2>/dev/null
    sleep 1
    rm -rf "$folder"
}

fail() { # SENTENCE: with what was printed last, and what the processes logged
    echo "psrun: $*" >&2
    tail -n 15 "$folder/out" >&2
    ! compgen -G "$folder/$name/*.log" >/dev/null || tail -n 5 -- "$folder/$name"/*.log >&2
    failed=1
}

# psrun ARGUMENT...: its output is in $folder/out, its status in $status.
psrun() {
    status=0
    timeout "$((300 * slow))" "$root/scripts/psrun" "$@" >"$folder/out" 2>&1 </dev/null || status=$?
}

says() { # PATTERN
    grep -qE -- "$1" "$folder/out"
}

# Processes that psruns of this folder have started carry its name in their command line.
none_left() {
    within 120 nothing_runs || fail "left behind: $(pgrep -af -- "$folder/")"
}

nothing_runs() {
    ! pgrep -f -- "$folder/" >/dev/null
}

# within SECONDS COMMAND...: the seconds only end a hang.
within() {
    local end=$((SECONDS + $1 * slow))
    shift
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

finishes() { # NAME ARGUMENT...: all its workers, and the center learns
    name=$1
    shift
    psrun --run-dir "$folder/$name" --data digits "$@"
    ((status == 0)) || fail "$name: status $status"
    says '^center: test accuracy 0\.[6-9]' || fail "$name: no accuracy"
    says 'failed' && fail "$name: a client failed"
    [[ $(<"$folder/$name/exit") == 0 ]] || fail "$name: no exit status"
    # A last look at the center, after the last worker has left.
    [[ ! -e $folder/$name/psd-0.log ]] || grep -qs 'evaluator.*left' "$folder/$name/psd-0.log" || fail "$name: the evaluator did not leave"
    none_left
}

refuses() { # PATTERN ARGUMENT...: before anything starts
    local pattern=$1
    name=refused
    shift
    psrun --run-dir "$folder/refused" "$@"
    { ((status == 2 || status == 1)) && says "$pattern"; } || fail "$*: status $status, and not $pattern"
    ! compgen -G "$folder/refused/*.log" >/dev/null || fail "$*: something was started"
    rm -rf "$folder/refused"
}

ends() { # within what it grants the processes and itself; its status
    status=0
    within 240 is_gone "$psrun_pid" || fail "psrun does not end"
    wait "$psrun_pid" || status=$?
}

is_gone() {
    ! kill -0 "$1" 2>/dev/null
}

worker=(psworker --net linear --steps 150)
endless=(psworker --net linear --steps 100000000)

finishes plain --workers 2 --method async-easgd -- "${worker[@]}"
# The method that is set last makes one clique.
finishes set --workers 2 --method async-easgd --set method=d-sync -- "${worker[@]}"
says '2 workers in 1 clients, 1 servers, d-sync' || fail "set: not d-sync, or not one clique"
finishes vectors --workers 2 --method sync-easgd --set clique.mode=vectors -- "${worker[@]}"
says '2 workers in 1 clients' || fail "vectors: not one clique"
finishes rings --workers 4 --clients 2 --method mpi-esgd --set period=10 -- "${worker[@]}"
[[ -s $folder/rings/client-1.1.log ]] || fail "rings: no log of a member"
finishes servers --servers 2 --curve --workers 4 --clients 2 --method mpi-esgd --set period=10 -- "${worker[@]}"
[[ $(stat -c %a "$folder/servers/keys/client-1") == 600 && $(wc -l <"$folder/servers/keys/allow") -eq 4 ]] || fail "servers: keys"
compgen -G "$folder/servers/state-1/checkpoints/center-*[1-9]*.safetensors" >/dev/null || fail "servers: no checkpoint of the second one"
finishes stops --workers 2 --method async-easgd --set stop.accuracy=0.6 --every 1 -- psworker --net linear --steps 100000000
# How far it comes is the machine's business; it may be over before a worker has joined.
name=limited
psrun --run-dir "$folder/limited" --data digits --workers 2 --method async-easgd --time-limit 4 --every 1 -- "${endless[@]}"
{ ((status == 0)) && says 'the time limit of 4 s is reached' && says '^client-1 +(drained|late)' && ! says 'failed' &&
    [[ $(<"$folder/limited/exit") == 0 ]]; } || fail "limited: status $status"
none_left
# psrun finds psd whatever socket the configuration has.
printf 'status: {socket: %s}\n' "$folder/other.sock" >"$folder/socket.yaml"
finishes socket --workers 1 --config "$folder/socket.yaml" -- "${worker[@]}"

# It has its own servers, whatever servers the configuration is for.
printf 'servers: {count: 3, index: 1, head: "@%s"}\nendpoint_file: %s\n' "$folder/given" "$folder/given" >"$folder/servers.yaml"
for servers in 1 2; do
    finishes "servers-$servers" --workers 1 --servers "$servers" --config "$folder/servers.yaml" -- "${worker[@]}"
    [[ ! -e $folder/given ]] || fail "servers-$servers: a server wrote the endpoint file of the configuration"
done

# Workers find it, too, and are admitted, whatever address and keys the configuration has.
for key in center other; do
    "$PSD_BUILD/server/ctl/psctl" keygen "$folder/$key.key" --name "$key" >"$folder/allow" || fail "keyed: no key"
done
printf 'listen: tcp://0.0.0.0:0\nadvertise: 192.0.2.7\nauth: {key: %s, allow: %s}\n' "$folder/center.key" "$folder/allow" >"$folder/keyed.yaml"
finishes keyed --workers 1 --config "$folder/keyed.yaml" -- "${worker[@]}"
finishes insecure --workers 1 --config "$folder/keyed.yaml" --insecure -- "${worker[@]}"
finishes curve --workers 1 --config "$folder/keyed.yaml" --curve -- "${worker[@]}"
finishes alone --workers 2 --servers 0 --method d-sync -- "${worker[@]}"
finishes single --workers 1 --servers 0 --method msgd -- "${worker[@]}"
if command -v mpirun >/dev/null && [[ -e $PSD_BUILD/client/libpsclique-mpi.so.0 ]]; then
    finishes mpi --workers 2 --clients 1 --mpi --method mpi-sgd -- "${worker[@]}"
    # The members' states are all there is without servers: mpirun leaves them the time to finish a long step. The time limit is
    # reached when both train.
    name=unhurried
    limit=$((20000000 + $$))
    setsid "$root/scripts/psrun" --run-dir "$folder/$name" --data digits --workers 2 --servers 0 --mpi --method d-sync --time-limit "$limit" \
        --grace "$((240 * slow))" -- psworker --net lenet --batch 256 --accumulate 12 --threads 1 --steps 100000000 >"$folder/out" 2>&1 </dev/null &
    psrun_pid=$!
    both_train() {
        [[ $(grep -ls 'begins to train' "$folder/$name/client-0."[01].log | wc -l) -eq 2 ]]
    }
    within 240 both_train || fail "unhurried: nobody trains"
    within 120 pkill -TERM -f "^sleep $limit\$" || fail "unhurried: nobody waits for the time limit"
    ends
    { ((status == 0)) && says 'the time limit of' && says '^client-0 +stopped +2'; } || fail "unhurried: status $status"
    [[ -s $folder/$name/client-0.0.state && -s $folder/$name/client-0.1.state ]] || fail "unhurried: no states"
    none_left
else
    echo "psrun: no MPI here: cliques over MPI are not tried"
fi

# A client that comes when the job has ended has not failed. Its worker is psworker as always, but begins no sooner, and says
# after two seconds what it would say after a minute without a server.
name=late
mkdir -p "$folder/tree/nets/worker"
ln -s "$PSD_BUILD/server" "$folder/tree/server"
cat >"$folder/tree/nets/worker/psworker" <<END
#!/bin/sh
case "\$*" in *"--evaluate"*) echo "\$*" >"$folder/late/evaluator.options" ;; esac
case "\$*" in *"--name client-1"*)
    until grep -q '"event":"stop"' "$folder/late/psd-0.log"; do sleep 0.2; done
    timeout -s KILL 2 "$PSD_BUILD/nets/worker/psworker" "\$@"
    exit 6 ;;
esac
exec "$PSD_BUILD/nets/worker/psworker" "\$@"
END
chmod +x "$folder/tree/nets/worker/psworker"
PSD_BUILD=$folder/tree psrun --run-dir "$folder/late" --data digits --workers 2 --method async-easgd --set stop.accuracy=0.6 \
    --every 1 -- psworker --net linear --steps 100000000 --max-damaged=7 --prefetch 3
grep -qE -- '--max-damaged=7 --prefetch 3' "$folder/late/evaluator.options" || fail "late: the evaluator reads other data than the workers"
{ ((status == 0)) && says 'client-1 came when the job had ended' && says '^client-1 +late' && says '^client-0 +drained'; } ||
    fail "late: status $status"
none_left

# A program of the user's own has what it needs in its environment.
name=own
psrun --run-dir "$folder/own" --workers 2 --method async-easgd --set learning_rate=0.5 -- \
    sh -c "\"$PSD_BUILD/examples/line\" \"@\$PSRUN_ENDPOINT\"; echo \"worker \$PSRUN_CLIENT of $folder/own\""
{ ((status == 0)) && grep -q 'the center is' "$folder/own/client-1.log" && grep -q 'worker 1 of' "$folder/own/client-1.log"; } ||
    fail "own: status $status"

# A member of a clique is killed when all train.
kills_a_member() { # NAME
    cat >"$folder/tree/nets/worker/psworker" <<END
#!/bin/bash
[[ "\$*" == *"--member 1 "* ]] || exec "$PSD_BUILD/nets/worker/psworker" "\$@"
"$PSD_BUILD/nets/worker/psworker" "\$@" &
until [[ \$(grep -ls 'begins to train' "$folder/$1/"{,join-*/}client-0.[0-2].log | wc -l) -eq 3 ]]; do sleep 0.1; done
kill -KILL \$!
exit 137
END
}

loses_one() { # psrun: the others go on
    { ((status == 3)) && says 'client-0.1 ended with status 137 .*; its clique goes on without it' && says '^client-0 +finished +3 +200' &&
        grep -q 'goes on with 2 of 3 members' "$folder/$name/psd-0.log"; } || fail "$name: status $status"
}

clique=(--data digits --workers 3 --clients 1)
patient=(psworker --net linear --batch 8 --threads 1 --steps 200 --step-ms 20)
printf 'method: mpi-asgd\nclique: {on_loss: shrink}\n' >"$folder/shrink.yaml"
name=lossy
kills_a_member lossy
PSD_BUILD=$folder/tree psrun --run-dir "$folder/lossy" "${clique[@]}" --method mpi-asgd --on-loss shrink --every 0 -- "${patient[@]}"
loses_one
none_left
name=lossy-file
kills_a_member lossy-file
PSD_BUILD=$folder/tree psrun --run-dir "$folder/lossy-file" "${clique[@]}" --config "$folder/shrink.yaml" --every 0 -- "${patient[@]}"
loses_one
none_left
# A clique that joins, too: what the loss of a member means is said by the servers' psrun.
name=lossy-join
kills_a_member lossy-join
setsid "$root/scripts/psrun" --run-dir "$folder/lossy-join" --workers 0 --config "$folder/shrink.yaml" >"$folder/servers.out" 2>&1 </dev/null &
psrun_pid=$!
within 240 grep -q 'psd is ready' "$folder/servers.out" || fail "lossy-join: psd is not ready"
PSD_BUILD=$folder/tree psrun --join "$folder/lossy-join" "${clique[@]}" -- "${patient[@]}"
loses_one
kill -TERM "$psrun_pid"
ends
none_left

refuses '"wait"; allowed: end, shrink' --workers 2 --clients 1 --on-loss wait -- "${worker[@]}"
refuses 'shrink with --mpi; allowed: end, or --ring' --workers 2 --clients 1 --mpi --on-loss shrink -- "${worker[@]}"
refuses 'do not make 2 cliques of one size; allowed: --clients 1 5$' --workers 5 --clients 2 -- "${worker[@]}"
refuses '"pbs"; allowed: ' --workers 2 --backend pbs -- "${worker[@]}"
refuses '"nope"; allowed: .*async-easgd' --workers 2 --method nope -- "${worker[@]}"
refuses '"--nope": no such option' --workers 2 --nope 3 -- "${worker[@]}"
refuses '"--nope": no such option' --workers=2 --nope=3 -- "${worker[@]}"
refuses '--backend local; allowed: none of them' --workers 2 --submit=--time=60 -- "${worker[@]}"
refuses "unknown key 'nope'" --workers 2 --set nope=3 -- "${worker[@]}"
refuses 'the allocation does not have "n9"' --workers 2 --hosts n9 -- "${worker[@]}"
refuses '--server after --' --workers 2 -- "${worker[@]}" --server tcp://1.2.3.4:5
refuses '--servers 0 --method async-sgd; allowed: sgd ' --workers 2 --servers 0 --method async-sgd -- "${worker[@]}"
refuses 'no command of the workers' --workers 2
psrun --workers 1 --every 0 --resume -- "${worker[@]}"
{ ((status == 2)) && says '--resume without --run-dir'; } || fail "--resume without --run-dir: status $status"
refuses '--resume with --join; allowed: none' --join "$folder/plain" --resume --workers 1 -- "${worker[@]}"
touch "$folder/key"
chmod 640 "$folder/key"
refuses "key file $folder/key has mode 640: others may read it" --join "$folder/plain" --workers 1 --key "$folder/key" -- "${worker[@]}"
mkdir "$folder/empty"
psrun --join "$folder/empty" --workers 1 --start-timeout 1 -- "${worker[@]}"
{ ((status == 1)) && says "endpoint file $folder/empty/endpoint has not appeared within 1 s"; } || fail "no endpoint: status $status"
psrun --run-dir "$folder/plain" --workers 2 --method async-easgd -- "${worker[@]}"
{ ((status == 1)) && says 'holds a run already'; } || fail "a folder twice: status $status"
psrun --run-dir "$folder/plain" --resume --workers 3 --method async-easgd -- "${worker[@]}"
{ ((status == 1)) && says 'was made with servers=1 workers=2 clients=2'; } || fail "other numbers: status $status"
mkdir -p "$folder/gap/state-0/checkpoints" "$folder/gap/state-2/checkpoints"
touch "$folder/gap/state-0/checkpoints/center-1.safetensors" "$folder/gap/state-2/checkpoints/center-1.safetensors"
echo "servers=3 workers=1 clients=1" >"$folder/gap/psrun.job"
psrun --run-dir "$folder/gap" --resume --servers 3 --workers 1 -- "${worker[@]}"
{ ((status == 1)) && says 'none of 1: the map of shards has a gap'; } || fail "a gap: status $status"

# by_itself COMMANDS: with the functions of psrun, in a run folder.
by_itself() {
    name=by-itself
    mkdir -p "$folder/$name"
    status=0
    # shellcheck disable=SC2016 # for the shell that it starts
    root=$root run_dir=$folder/$name LD_PRELOAD=${preload-${LD_PRELOAD-}} timeout -k 10 "$((300 * slow))" bash -c 'set -euo pipefail
        for part in lib job launch await; do source "$root/scripts/$part.sh"; done
        trap clean_up EXIT
        '"$1" >"$folder/out" 2>&1 </dev/null || status=$?
}

# Also a job without servers goes into the queue again when its time is nearly over, and may run again before psrun has ended.
# shellcheck disable=SC2016 # for the shell that it starts
by_itself 'servers=0 requeue=true
    lock_folder "$run_dir" psrun.job
    backend_requeue() { flock --nonblock "$run_dir/psrun.job" echo "in the queue again"; }
    start client-0 sleep 10000
    checkpoint_now'
{ ((status == 0)) && says '^in the queue again'; } || fail "requeued without servers: status $status"

# Once, however often it is told, and with nothing left behind: also while psd drains, and while psrun cleans up.
# shellcheck disable=SC2016 # for the shell that it starts
by_itself 'servers=1 requeue=true
    lock_folder "$run_dir" psrun.job
    echo "tcp://127.0.0.1:1" >"$run_dir/endpoint"
    ask_head() { echo "saved"; }
    tell_head() { kill -USR1 "$$"; }
    end_pause() { kill -USR1 "$$"; }
    backend_requeue() { echo "in the queue again"; }
    trap checkpoint_now USR1
    start client-0 setpriv --pdeathsig TERM sleep 10000
    at_end+=(children_are_gone)
    children_are_gone() { ! children_run || echo "a child is left"; }
    checkpoint_now'
{ ((status == 0)) && [[ $(grep -c '^in the queue again' "$folder/out") == 1 ]] && ! says 'a child is left'; } ||
    fail "SIGUSR1 again and again: status $status"

# Keys that were being made when psrun was interrupted: each is allowed, once.
# shellcheck disable=SC2016 # for the shell that it starts
by_itself 'interrupted() {
        "$PSD_BUILD/server/ctl/psctl" "$@" && [[ $2 != */client-1* ]]
    }
    clients=2
    for psctl_program in interrupted "$PSD_BUILD/server/ctl/psctl"; do
        (make_keys) || echo "interrupted"
    done
    mv "$run_dir/keys/client-0" "$run_dir/keys/client-0.new"
    make_keys
    for key in evaluator guest client-0 client-1; do
        grep -F -- "$(sed -n "s/^public: //p" "$run_dir/keys/$key") $key role" "$run_dir/keys/allow"
    done
    (($(wc -l <"$run_dir/keys/allow") == 4))'
{ ((status == 0)) && says '^interrupted'; } || fail "a key that is not allowed: status $status"

# The job does not fail because a last evaluation takes long.
by_itself 'start evaluator sleep 10000
    wait_for_end evaluator 1
    echo "the job goes on"'
{ ((status == 0)) && says 'the evaluator did not end within 1 s' && says '^the job goes on'; } || fail "a slow evaluator: status $status"

# A trap that runs just as bash reaps a child makes bash take this child for running: SIGTERM as a pause ends, SIGUSR1 as a
# worker does.
preload=$PSD_BUILD/tests/support/libpsdreaped.so
# shellcheck disable=SC2016 # for the shell that it starts
by_itself 'unset LD_PRELOAD
    cd "$run_dir"
    start client-0 setpriv --pdeathsig KILL sleep 10000
    trap "exit 130" TERM
    : >TERM
    while [[ -e TERM ]]; do await_child; done'
((status == 130)) || fail "SIGTERM as a pause ends: status $status"
# shellcheck disable=SC2016 # for the shell that it starts
by_itself 'unset LD_PRELOAD
    cd "$run_dir"
    rm -f waits
    sleep() { [[ $BASHPID == "$$" ]] || exec setpriv --pdeathsig KILL sleep 10000; command sleep "$@"; } # no pause ends first
    start client-1 setpriv --pdeathsig KILL sleep 10000
    start client-0 sh -c "until [ -e waits ]; do sleep 0.1; done"
    trap "echo a signal" USR1
    : >USR1
    pid=
    until [[ -n $pid ]]; do await_child; done
    echo "${child[$pid]} ended with status $status"
    unset "child[$pid]"'
{ ((status == 0)) && says '^a signal' && says '^client-0 ended with status 127'; } || fail "SIGUSR1 as a worker ends: status $status"
unset preload

# background NAME ARGUMENT...: until both workers have made steps.
background() {
    name=$1
    shift
    : >"$folder/out"
    setsid "$root/scripts/psrun" --run-dir "$folder/$name" --data digits --grace 60 --set limits.silence_s=60 --set limits.drain_s=10 "$@" >"$folder/out" 2>&1 </dev/null &
    psrun_pid=$!
    within 240 has_accuracy || fail "$name: nothing happens"
}

has_accuracy() {
    says 'test accuracy'
}

kill_one() { # NAME SIGNAL: the newest process whose command line has both the folder and the words
    within 120 pgrep -f -- "$folder/.*$1" >/dev/null || fail "there is no $1 to kill"
    kill "-$2" "$(pgrep -n -f -- "$folder/.*$1")"
}

# Whoever reads psrun's lines ends after the first: the job goes on to its end.
name=unread
timeout "$((300 * slow))" "$root/scripts/psrun" --run-dir "$folder/unread" --data digits --workers 1 --method async-easgd \
    --set stop.updates=50 -- "${endless[@]}" 2>&1 </dev/null | head -n 1 >"$folder/out"
status=${PIPESTATUS[0]}
{ ((status == 0)) && says 'run folder' && [[ $(<"$folder/unread/exit") == 0 && -s $folder/unread/report ]]; } ||
    fail "a reader that is gone: status $status"
none_left

# Two that begin in one second have a folder each.
name=twins
mkdir -p "$folder/twins/bin"
printf '#!/bin/sh\necho 20300101-000000\n' >"$folder/twins/bin/date"
chmod +x "$folder/twins/bin/date"
for k in 1 2; do
    (cd "$folder/twins" && PATH=$folder/twins/bin:$PATH psrun --servers 0 --workers 1 --method sgd --data digits -- psworker --net linear \
        --steps 2 && exit "$status") || fail "twins: number $k failed"
done
[[ -s $folder/twins/run/20300101-000000-sgd/report && -s $folder/twins/run/20300101-000000-sgd-2/report ]] || fail "twins: no two folders"

# Who joins may come before there is a folder, and before the servers have made their keys.
name=later
setsid "$root/scripts/psrun" --join "$folder/later" --workers 1 --data digits --start-timeout "$((240 * slow))" -- psworker --net linear \
    --steps 20 >"$folder/joins.out" 2>&1 </dev/null &
joins=$!
within 120 grep -q 'is not there yet' "$folder/joins.out" || fail "later: it does not wait: $(<"$folder/joins.out")"
setsid "$root/scripts/psrun" --run-dir "$folder/later" --workers 0 --curve >"$folder/out" 2>&1 </dev/null &
psrun_pid=$!
within 240 is_gone "$joins" || fail "later: it does not end: $(<"$folder/joins.out")"
wait "$joins" || fail "later: status $?: $(<"$folder/joins.out")"
kill -TERM "$psrun_pid"
ends
[[ ! -e $folder/later/endpoint ]] || fail "later: the endpoint file of servers that have ended is left"
none_left

# A clique's sockets, too, find room in a deep folder.
finishes "$(printf 'cliques-%.0s' {1..25})" --workers 2 --clients 1 --method mpi-sgd -- "${worker[@]}"

# The line that psrun prints is to be copied, however deep the folder lies.
name=$(printf 'deep-%.0s' {1..40})
: >"$folder/out"
setsid "$root/scripts/psrun" --run-dir "$folder/$name" --workers 0 >"$folder/out" 2>&1 </dev/null &
psrun_pid=$!
within 240 says 'psd is ready: psctl' || fail "deep: psd is not ready"
read -ra words < <(sed -nE 's/.*psd is ready: psctl (.*) top .*/\1/p' "$folder/out")
"$PSD_BUILD/server/ctl/psctl" "${words[@]}" --timeout 120 drain >>"$folder/out" 2>&1 || fail "deep: psctl ${words[*]} drain"
ends
((status == 0)) || fail "deep: status $status"
none_left

background term --workers 2 --method async-easgd -- "${endless[@]}"
kill -TERM "$psrun_pid"
ends
((status == 130)) || fail "SIGTERM: status $status"
none_left
compgen -G "$folder/term/state-0/checkpoints/center-*" >/dev/null || fail "SIGTERM: the center is not saved"

# A file where the checkpoints were, when the first one is there: they cannot be written any more.
spoil_checkpoints() { # NAME
    within 120 grep -qs '"checkpoint.written"' "$folder/$1/psd-0.log" || fail "$1: no first checkpoint"
    until [[ -f $folder/$1/state-0/checkpoints ]]; do # psd makes the directory anew if it writes one just now
        rm -rf "$folder/$1/state-0/checkpoints"
        touch "$folder/$1/state-0/checkpoints"
    done
}

background unsaved-term --workers 2 --method async-easgd -- "${endless[@]}"
spoil_checkpoints unsaved-term
kill -TERM "$psrun_pid"
ends
{ ((status == 130)) && says 'the last checkpoint was not written'; } || fail "SIGTERM, no save: status $status"
none_left

background unsaved --workers 2 --method async-easgd -- "${endless[@]}"
spoil_checkpoints unsaved
"$PSD_BUILD/server/ctl/psctl" --socket "$folder/unsaved/state-0/psd.sock" --timeout 120 drain >>"$folder/out" 2>&1 &&
    fail "no save: psctl drain ended with 0"
ends
{ ((status == 1)) && says 'psd-0 has not saved the center'; } || fail "no save: status $status"
none_left

limit=$((25000000 + $$)) # psrun takes 31536000 at most; process numbers end at 4194304
background usr1 --workers 2 --method async-easgd --time-limit "$limit" -- "${endless[@]}"
kill -USR1 "$psrun_pid"
within 120 says 'SIGUSR1: state-0/checkpoints/center-' || fail "SIGUSR1: no checkpoint"
kill -KILL "$psrun_pid"
ends
none_left # they are told when psrun is gone
no_timer() {
    ! pgrep -f "^sleep $limit" >/dev/null
}
within 120 no_timer || fail "SIGKILL: the time limit is still waited for"

background server --workers 2 --method async-easgd -- "${endless[@]}"
kill -KILL "$(sed -nE 's/.*"pid": ?([0-9]+).*/\1/p' < <("$PSD_BUILD/server/ctl/psctl" --socket "$folder/server/state-0/psd.sock" --timeout 60 --json status) | head -n 1)"
ends
{ ((status == 1)) && says 'psd-0 ended with status 137'; } || fail "psd killed: status $status"
none_left

background worker --workers 2 --method async-easgd -- "${endless[@]}"
kill_one '--name client-1' KILL
within 120 says 'client-1 has failed' || fail "a worker killed: psrun does not see it"
"$PSD_BUILD/server/ctl/psctl" --socket "$folder/worker/state-0/psd.sock" --timeout 120 drain >/dev/null || fail "a worker killed: no drain"
ends
{ ((status == 3)) && says 'client-1 has failed: client-1 ended with status 137' && says '^client-0 +drained' &&
    says '^client-1 +failed'; } || fail "a worker killed: status $status"
none_left

background strict --workers 2 --method sync-easgd -- "${endless[@]}"
kill_one '--name client-1' KILL
ends
{ ((status == 1)) && says 'client-1 ended with status 137'; } || fail "a worker of sync killed: status $status"
none_left

# psd waits for the worker that is gone longer than psrun does for psd: the second signal saves the center.
background impatient --workers 2 --method sync-easgd --grace 2 --set limits.drain_s=600 -- "${endless[@]}"
has_moved() {
    "$PSD_BUILD/server/ctl/psctl" --socket "$folder/impatient/state-0/psd.sock" --timeout 60 --json status 2>/dev/null |
        jq -e '.center.version > 0' >/dev/null
}
within 120 has_moved || fail "impatient: the center does not move"
kill_one '--name client-1' KILL
ends
{ ((status == 1)) && compgen -G "$folder/impatient/state-0/checkpoints/center-*[1-9]*.safetensors" >/dev/null; } ||
    fail "a worker of sync killed, and psd told twice: status $status"
none_left

# bash forgets some of those that die together.
limit=$((20000000 + $$))
name=together
: >"$folder/out"
setsid "$root/scripts/psrun" --run-dir "$folder/together" --workers 12 --every 0 -- sleep "$limit" >"$folder/out" 2>&1 </dev/null &
psrun_pid=$!
all_sleep() {
    [[ $(pgrep -c -f "^sleep $limit") == 12 ]]
}
within 240 all_sleep || fail "together: the workers do not start"
pkill -KILL -f "^sleep $limit"
ends
{ ((status == 1)) && says 'ended with status 137'; } || fail "all workers killed together: status $status"
none_left

background resumed --workers 2 --method async-easgd --set checkpoint.every_s=1 -- "${endless[@]}"
within 120 compgen -G "$folder/resumed/state-0/checkpoints/center-*[1-9]*.safetensors" >/dev/null || fail "resumed: no checkpoint"
# A second one does not touch the folder: late workers need the endpoint file.
status=0
timeout "$((300 * slow))" "$root/scripts/psrun" --run-dir "$folder/resumed" --resume --data digits --workers 2 --method async-easgd -- \
    "${worker[@]}" >"$folder/second.out" 2>&1 </dev/null || status=$?
{ ((status == 1)) && grep -q "$folder/resumed is in use by another psrun" "$folder/second.out" && [[ -s $folder/resumed/endpoint ]]; } ||
    fail "a folder in use: status $status: $(<"$folder/second.out")"
kill -TERM "$psrun_pid"
ends
none_left
# Each has a part left to do.
steps=$(sed -nE 's/.*after ([0-9]+) steps.*/\1/p' "$folder"/resumed/client-?.log | sort -n | tail -n 1)
psrun --run-dir "$folder/resumed" --resume --data digits --workers 2 --method async-easgd -- \
    psworker --net linear --steps "$((${steps:-0} + 200))"
{ ((status == 0)) && grep -q 'resuming after [1-9]' "$folder/resumed/client-0.log" &&
    grep -q job.resumed "$folder/resumed/psd-0.log"; } ||
    fail "resumed: status $status"
none_left

exit "$failed"
