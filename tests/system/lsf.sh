#!/usr/bin/env bash
# lsf.sh SOURCE BUILD: psrun and the job scripts of LSF under a stand-in for bsub, blaunch and their like (lsf/), which sets
# what LSF sets. There is no LSF here: this says that psrun reads it, starts every process by blaunch and asks for what the
# man pages promise, not that LSF keeps it.
# shellcheck disable=SC2317 # called through trap and within
set -uo pipefail

root=$1
export PSD_BUILD=$2
slow=${PSD_TEST_SLOW:-1}
folder=$(mktemp -d /tmp/psd-lsf-XXXXXX)
failed=0
export LSF_FAKE=$folder/queue LSF_FAKE_HOSTS="127.0.0.1 127.0.0.2 127.0.0.3 127.0.0.4" PSRUN=$root/scripts/psrun DATA=digits
export PATH=$root/tests/system/lsf:$PATH
mkdir "$LSF_FAKE"
trap 'stop' EXIT
trap 'exit 130' HUP INT TERM
cd "$folder" || exit 1

# All that jobs have started has this variable in its environment. The number in a job's folder is not asked: that of a
# process that has ended may be another's by now, of another test.
stop() {
    local pid
    for pid in $(grep -lszxF -- "LSF_FAKE=$LSF_FAKE" /proc/[0-9]*/environ | tr -dc '0-9\n'); do
        kill -KILL "$pid" 2>/dev/null
    done
    rm -rf "$folder"
}

fail() { # SENTENCE [FILE...]
    echo "lsf: $1" >&2
    shift
    [[ $# -eq 0 ]] || tail -n 15 "$@" >&2
    failed=1
}

within() { # SECONDS COMMAND...
    local end=$((SECONDS + $1 * slow))
    shift
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.2
    done
}

says() { # PATTERN FILE
    grep -qsE -- "$1" "$2"
}

nothing_runs() {
    ! pgrep -f -- "$folder/$name/" >/dev/null
}

none_left() { # SECONDS
    within "$1" nothing_runs || fail "$name: left behind: $(pgrep -af -- "$folder/$name/")"
}

# The script as it is, but for what it trains. Its id is in $job.
submit() { # NAME SCRIPT SED-SCRIPT
    name=$1
    export RUN_DIR=$folder/$1
    sed "$3" "$root/scripts/lsf/$2" >"$folder/$2"
    bsub <"$folder/$2" >"$folder/bsub.out" || fail "$1: bsub does not take the script"
    job=$(sed -nE 's/^Job <([0-9]+)> is submitted.*/\1/p' "$folder/bsub.out")
}

# -- psrun outside a job: one command, by bsub
name=outside
timeout "$((300 * slow))" "$root/scripts/psrun" --backend lsf --nodes 2 --workers 4 --clients 2 --method mpi-esgd --set period=10 \
    --data digits --run-dir "$folder/outside" -- psworker --net linear --steps 150 >"$folder/out" 2>&1 || fail "outside: status $?" "$folder/out"
says '^center: test accuracy 0\.[6-9]' "$folder/outside/report" || fail "outside: no accuracy" "$folder/out"
[[ $(sort -u "$LSF_FAKE/launched" | cut -d ' ' -f 1 | sort -u | tr '\n' ' ') == "127.0.0.1 127.0.0.2 " ]] ||
    fail "outside: not on two hosts" "$LSF_FAKE/launched"
none_left 120

timeout "$((300 * slow))" "$root/scripts/psrun" --backend lsf --nodes 2 --hosts 127.0.0.9 --workers 2 --method async-easgd --data digits \
    --run-dir "$folder/refused" -- psworker --net linear --steps 10 >"$folder/out" 2>&1
status=$?
{ [[ $status -eq 2 ]] && says 'the allocation does not have "127.0.0.9"; allowed: 127.0.0.1 127.0.0.2' "$folder/out"; } ||
    fail "a host that is not in the allocation: status $status" "$folder/out"

# -- LSB_MCPU_HOSTS and LSB_HOSTS, where there is no host file
hosts_of() { # VARIABLE=VALUE
    # shellcheck disable=SC2016 # bash's own $0
    env -u LSB_DJOB_HOSTFILE "$1" bash -c 'source "$0/scripts/psrun.d/lsf.sh"; backend_hosts | tr "\n" " "' "$root"
}
[[ $(hosts_of "LSB_MCPU_HOSTS=a 4 b 2 c 1") == "a b c " ]] || fail "LSB_MCPU_HOSTS: $(hosts_of "LSB_MCPU_HOSTS=a 4 b 2 c 1")"
[[ $(hosts_of "LSB_HOSTS=a a b c c") == "a b c " ]] || fail "LSB_HOSTS: $(hosts_of "LSB_HOSTS=a a b c c")"

# -- the scripts
submit trains train.bsub 's/--net lenet --batch 64 --epochs 8/--net linear --steps 200/; s/--method mpi-esgd/& --set period=10/'
within 120 test -s "$folder/trains/exit" || fail "trains: it does not end" psd-*.out
{ [[ $(<"$folder/trains/exit") == 0 && $(grep -c '^client-[0-3] *finished' "$folder/trains/report") -eq 4 ]] &&
    says '^center: test accuracy 0\.[6-9]' "$folder/trains/report"; } || fail "trains: not what it should be" psd-*.out
none_left 120

# The workers run before the servers do, and before there is a folder.
submit joined workers.bsub 's/--net lenet --batch 64 --epochs 8/--net linear --steps 100/'
workers=$job
within 120 says 'is not there yet' "$folder/psd-workers-$workers.out" || fail "joined: the workers do not wait" "$folder/psd-workers-$workers.out"
submit joined servers.bsub ''
servers=$job
within 120 says 'psd is ready' "$folder/psd-servers-$servers.out" || fail "joined: no servers" "$folder/psd-servers-$servers.out"
has_joined() {
    [[ $(grep -cs '^client-[0-3] *finished' "$folder/psd-workers-$workers.out") -eq 4 ]]
}
within 120 has_joined || fail "joined: the workers do not finish" "$folder/psd-workers-$workers.out"
# From outside of any job.
timeout "$((300 * slow))" "$root/scripts/psrun" --backend lsf --nodes 1 --join "$folder/joined" --workers 2 --data digits -- \
    psworker --net linear --steps 50 >"$folder/out" 2>&1 || fail "joined from outside: status $?" "$folder/out"
says '^client-1 *finished' "$folder/out" || fail "joined from outside: no workers" "$folder/out"
bkill -s TERM "$servers" >/dev/null
none_left 120
says '"checkpoint.written".*version [1-9]' "$folder/joined/psd-0.log" || fail "joined: the center is not saved" "$folder/joined/psd-0.log"

# It has no end until it is in the queue again, where it waits until it is known how far it has come.
echo 100000000 >"$folder/requeued.steps"
touch "$LSF_FAKE/full"
# shellcheck disable=SC2016 # the script's own
submit requeued requeue.bsub 's/--net lenet --batch 64 --epochs 100/--net linear --steps "$(<"$RUN_DIR.steps")"/'
within 120 says 'center [1-9][0-9]* +test accuracy' "$folder/psd-requeue-$job.out" || fail "requeued: nothing happens" "$folder/psd-requeue-$job.out"
bkill -s USR1 "$job" >/dev/null # what -wa sends
within 120 says 'goes into the queue again' "$folder/psd-requeue-$job.out" || fail "requeued: it does not end" "$folder/psd-requeue-$job.out"
has_stopped() {
    [[ $(cat "$folder"/requeued/client-?.log | grep -c 'stopped after [0-9]* steps') -eq 4 ]]
}
within 120 has_stopped || fail "requeued: not all workers say how far they came" "$folder"/requeued/client-?.log
steps=$(sed -nE 's/.*stopped after ([0-9]+) steps.*/\1/p' "$folder"/requeued/client-?.log | sort -n | tail -n 1)
echo "$((${steps:-0} + 200))" >"$folder/requeued.steps"
rm "$LSF_FAKE/full"
within 120 test -s "$folder/requeued/exit" -a -s "$folder/requeued/report" || fail "requeued: it does not finish" "$LSF_FAKE/job-$job/again.out"
{ [[ $(grep -c '^client-[0-3] *finished' "$folder/requeued/report") -eq 4 ]] &&
    [[ $(cat "$folder/requeued"/client-?.log | grep -c 'resuming after [1-9]') -eq 4 ]]; } ||
    fail "requeued: it has not gone on" "$folder/requeued/report" "$LSF_FAKE/job-$job/again.out"
none_left 120

# -- bkill, and the KILL that ends a parallel job
for signal in '' '-s KILL'; do
    submit "killed${signal/ /}" requeue.bsub 's/--net lenet --batch 64 --epochs 100/--net linear --steps 100000000/'
    within 120 says 'center [1-9][0-9]* +test accuracy' "$folder/psd-requeue-$job.out" || fail "killed: nothing happens"
    # shellcheck disable=SC2086 # an option and its value
    bkill $signal "$job" >/dev/null
    none_left 120
done

exit "$failed"
