#!/usr/bin/env bash
# compare.sh ROOT BUILD: scripts/compare trains two methods with two seeds, and its table, numbers and pictures have
# them; a second call adds methods, one of them without psd, and runs nothing again; runs that diverge and runs that are
# cut are results; links are as slow as told and leave nothing behind; what it cannot do it refuses before it runs anything.
# quickstart trains with methods of one clique.
set -uo pipefail
root=$1
export PSD_BUILD=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

wrong() {
    echo "wrong: $*"
    failed=1
}

compare() {
    "$root/scripts/compare" --net linear --data digits:7 --workers 2 --steps 80 --every 0.2 --levels 0.3,0.999 \
        "$@" >"$dir/table" 2>"$dir/log"
}

# cell FILE SEPARATOR ROW COLUMN: of the row that begins with ROW
cell() {
    awk -F "$2" -v row="$3" -v column="$4" 'index($0, row) == 1 { print $column; exit }' "$1"
}

# A run folder may have any name that psd's configuration can hold.
named() { # FOLDER
    # shellcheck source=scripts/lib.sh
    source "$root/scripts/lib.sh"
    # shellcheck source=scripts/job.sh
    source "$root/scripts/job.sh"
    run_dir=$1 socket=$1/psd.sock method=async-sgd
    mkdir "$run_dir"
    job_write_config ""
    "$PSD_BUILD/server/psd" --config "$run_dir/psd.yaml" --check-config
}
(named "$dir/a \"run\" \\of: 'mine' #1") >"$dir/log" 2>&1 || wrong "a folder with signs: $(<"$dir/log")"

compare async-easgd async-sgd:learning_rate=0.02 --seeds 1,2 --out "$dir/out" || wrong "exit $?: $(<"$dir/log")"
cmp "$dir/table" "$dir/out/table.md" || wrong "the table that is shown is not the one that is written"
[[ $(grep -c '^|' "$dir/table") -eq 4 ]] || wrong "two rows below two lines of heading: $(<"$dir/table")"
[[ $(wc -l <"$dir/out/runs.tsv") -eq 5 ]] || wrong "four runs below the heading: $(<"$dir/out/runs.tsv")"
fields=$(awk -F '\t' '{ print NF }' "$dir/out/runs.tsv" | sort -u)
[[ $fields -eq 21 ]] || wrong "21 columns of each run, not $fields"
for row in async-easgd async-sgd:learning_rate=0.02; do
    reached=$(cell "$dir/table" ' *[|] *' "| \`$row\`" 3)
    [[ $reached =~ ^[0-9.]+\ s\ /\ [0-9]+\ /\ [0-9]+(\ k)?\ /\ [0-9.]+\ MB$ ]] || wrong "$row reached 0.3: $reached"
    [[ $(cell "$dir/table" ' *[|] *' "| \`$row\`" 4) == - ]] || wrong "$row reached 0.999 in 80 steps"
    best=$(cell "$dir/table" ' *[|] *' "| \`$row\`" 5)
    awk -v best="$best" 'BEGIN { exit !(best > 0.3 && best < 0.999) }' || wrong "$row: best is $best"
    awk -F '\t' -v row="$row" '$1 == row && $16 >= 0 && $17 > 0 && $18 >= 0 && $19 > 0 { n++ } END { exit n != 2 }' \
        "$dir/out/runs.tsv" || wrong "$row: the parts of the time are no parts"
    awk -F '\t' -v row="$row" '$1 == row && $20 >= 0 && $21 >= $20 { n++ } END { exit n != 2 }' "$dir/out/runs.tsv" ||
        wrong "$row: staleness p99 below p50"
done
# Parts of one time; the exchange that brings the first center is counted though the clock starts after it, which is seen
# in so short a run, and so is each moment that the machine takes from it: one run of many must fit.
parts_fit() { # FOLDER
    awk -F '\t' 'NR > 1 { s = $16 + $17 + $18 + $19; if (s > 0.5 && s < 1.5) n++ } END { exit n == 0 }' "$1/runs.tsv"
}
fitting=$dir/out
for seed in 3 4 5 6; do
    ! parts_fit "$fitting" || break
    fitting=$dir/parts-$seed
    compare async-easgd --seeds "$seed" --steps 400 --out "$fitting" || wrong "exit $?: $(<"$dir/log")"
done
parts_fit "$fitting" || wrong "the parts of the time do not fit: $(<"$fitting/runs.tsv")"
if command -v gnuplot >/dev/null; then
    for picture in compare traffic; do
        [[ $(head -c 4 "$dir/out/$picture.png" | tail -c 3) == PNG ]] || wrong "no $picture.png: $(<"$dir/log")"
    done
fi
# 160 gradients of 7850 values and as many answers; the first point is set once and taken twice, and counting may meet the
# evaluator between its taking and its telling. On a slow machine chunks go twice.
tsv() { # ROW COLUMN
    awk -F '\t' -v row="$1" -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) f[$i] = i }
        index($1, row) == 1 { print $f[name]; exit }' "$dir/out/runs.tsv"
}
vector=$((7850 * 4))
twice=$(awk '/^psd_replays_total/ { n += $NF } END { print n + 0 }' "$dir"/out/async-sgd*-seed1/metrics)
awk -v bytes="$(tsv async-sgd bytes)" -v vector=$vector -v twice="$twice" \
    'BEGIN { v = bytes / vector; exit !(v >= 322 && v <= 325 + 2 * twice) }' ||
    wrong "async-sgd moved $(tsv async-sgd bytes) bytes, not about 323 vectors of $vector"

before=$(stat -c %Y.%i "$dir/out/async-easgd-seed1/history.jsonl")
compare async-easgd sync-easgd:overlap=true sgd:learning_rate=0.05 --seeds 1 --out "$dir/out" ||
    wrong "exit $?: $(<"$dir/log")"
[[ $(stat -c %Y.%i "$dir/out/async-easgd-seed1/history.jsonl") == "$before" ]] || wrong "a complete run is run again"
for row in sync-easgd:overlap=true sgd:learning_rate=0.05; do
    best=$(cell "$dir/table" ' *[|] *' "| \`$row\`" 5)
    awk -v best="$best" 'BEGIN { exit !(best > 0.3 && best < 0.999) }' || wrong "$row: best is $best"
done
# A round waits for all: nobody is stale. One worker alone makes the steps of both, and has nobody to count.
[[ $(awk -F '\t' '/^sync-easgd/ { print $20, $21 }' "$dir/out/runs.tsv") == "0 0" ]] || wrong "sync-easgd is stale"
[[ $(awk -F '\t' '/^sgd/ { print $19, $20, $21 }' "$dir/out/runs.tsv") == "0.000 - -" ]] || wrong "sgd exchanges"
grep -q '"step":160,.*"data_seconds"' "$dir/out/sgd_learning_rate_0.05-seed1/worker-0.out" || wrong "sgd has not 160 steps"
compare async-easgd --batch 32 --out "$dir/out" && wrong "runs of another batch among these"
# One that adds a method while another is at it would take its run for one that was broken off.
(exec 9>>"$dir/out/settings" && flock 9 && compare async-easgd --seeds 1 --out "$dir/out") && wrong "two in a folder at once"
grep -q "$dir/out is in use by another compare" "$dir/log" || wrong "two in a folder: $(<"$dir/log")"

compare sgd:learning_rate=1000,warmup=0 --net mlp --out "$dir/diverged" || wrong "exit $?: $(<"$dir/log")"
grep -q '^| `sgd.*, diverged |' "$dir/table" || wrong "what diverged is not told: $(<"$dir/table")"
# A worker whose session psd ends for its values has diverged, too; one that has lost its psd has not.
diverged() { # WORKER STATUS
    # shellcheck source=scripts/lib.sh
    source "$root/scripts/lib.sh"
    # shellcheck source=scripts/job.sh
    source "$root/scripts/job.sh"
    run_dir=$dir
    has_diverged "$@"
}
echo 'training ended: its values, or the center with them, are not finite (VALUE) (PSC_EEVICTED)' >"$dir/worker-0.log"
echo 'training ended: no answer in 60 s (PSC_EGONE)' >"$dir/worker-1.log"
(diverged worker-0 6) || wrong "its values ended the session of worker 0"
(diverged worker-1 6) && wrong "worker 1 has lost its psd"
(diverged worker-1 7) || wrong "worker 1 says that it has diverged"
compare async-easgd sgd --steps 100000000 --seconds 1 --out "$dir/cut" || wrong "exit $?: $(<"$dir/log")"
[[ $(wc -l <"$dir/cut/runs.tsv") -eq 3 ]] || wrong "runs that are cut are no results: $(<"$dir/table")"
compare async-easgd sgd --steps 100000000 --until 0.5 --out "$dir/until" || wrong "exit $?: $(<"$dir/log")"
awk -F '\t' 'NR > 1 && $11 < 0.5 { exit 1 }' "$dir/until/runs.tsv" || wrong "ended below 0.5: $(<"$dir/until/runs.tsv")"
if command -v mpirun >/dev/null && [[ -e $PSD_BUILD/client/libpsclique-mpi.so.0 ]]; then
    compare mpi-sgd:members=2,clique=mpi --steps 100000000 --until 0.5 --out "$dir/mpi" || wrong "over mpirun: exit $?: $(<"$dir/log")"
fi

# Two workers in one clique: psd has one client, whose messages are half as many; of pipe-sgd it has copies.
compare mpi-sgd:members=2 pipe-sgd:clique.publish=8,clique.codec=fp16 --seeds 1 --out "$dir/cliques" ||
    wrong "exit $?: $(<"$dir/log")"
for row in mpi-sgd:members=2 pipe-sgd:clique.publish=8,clique.codec=fp16; do
    best=$(cell "$dir/table" ' *[|] *' "| \`$row\`" 5)
    awk -v best="$best" 'BEGIN { exit !(best > 0.3 && best < 0.999) }' || wrong "$row: best is $best"
done
grep -q '"center_version":80' "$dir/cliques/mpi-sgd_members_2-seed1/history.jsonl" || wrong "mpi-sgd has not 80 rounds"
# All workers are one clique by a setting for all rows, too, which those without psd do not have; and for quickstart.
compare sync-easgd sgd --set clique.mode=vectors --out "$dir/vectors" || wrong "exit $?: $(<"$dir/log")"
quickstart() { # WHAT OPTION...
    local what=$1
    shift
    "$root/scripts/quickstart" --net linear --data digits:7 --workers 2 --steps 80 --run-dir "$dir/quick-$what" "$@" >"$dir/log" 2>&1 ||
        wrong "quickstart $*: exit $?: $(<"$dir/log")"
    grep -q "^center: .*(2 workers, $what, linear" "$dir/log" || wrong "quickstart $*: not $what: $(<"$dir/log")"
}
quickstart d-sync --method d-sync
quickstart pipe-sgd --set method=pipe-sgd
quickstart sync-easgd --method sync-easgd --set clique.mode=vectors
compare mpi-sgd:members=3 --out "$dir/none" && wrong "cliques of 3 of 2 workers"
grep -q 'members: "3"; allowed: 1 to 2' "$dir/log" || wrong "members=3: $(<"$dir/log")"

# An epoch is a pass of all workers together, of as many images as the files have, for the script and for psworker: 2 passes
# of 2048 by two workers with batches of 256 are 8 steps of each.
python3 "$root/tests/system/examples_data.py" "$dir/images" 2048 512 || wrong "no images"
"$root/scripts/compare" sync-sgd --net linear --data "mnist:$dir/images" --workers 2 --batch 256 --epochs 2 --every 0.2 \
    --out "$dir/epochs" >"$dir/table" 2>"$dir/log" || wrong "exit $?: $(<"$dir/log")"
"$PSD_BUILD/server/psd" --method sync-sgd --set workers=2 --state-dir "$dir/state" --endpoint-file "$dir/endpoint" 2>"$dir/log" &
for rank in 0 1; do
    "$PSD_BUILD/nets/worker/psworker" --server "@$dir/endpoint" --net linear --data "mnist:$dir/images" --rank "$rank" \
        --batch 256 --epochs 2 --json >"$dir/psworker-$rank.out" 2>&1 &
    worker_pids[rank]=$!
done
wait "${worker_pids[@]}"
"$PSD_BUILD/server/ctl/psctl" --socket "$dir/state/psd.sock" drain >"$dir/log" 2>&1 || wrong "no drain: $(<"$dir/log")"
for out in "$dir"/epochs/sync-sgd-seed1/worker-[01].log "$dir"/psworker-[01].out; do
    grep -q '"event":"finished".*"step":8,' "$out" || wrong "$out has not 8 steps: $(tail -n 2 "$out")"
done

# Folders of images, their archives, and folders of archives: three classes, of 4 training images each, which test images and
# other files, hidden ones and folders within a class do not change; without train/ nine of ten images.
for class in a b c; do
    mkdir -p "$dir/photos/train/$class" "$dir/photos/val/$class"
    mkdir "$dir/photos/train/$class/more"
    touch "$dir/photos/train/$class"/{1.jpg,2.JPEG,3.png,more/4.jpg,notes.txt,._1.jpg} "$dir/photos/val/$class"/{5,6}.jpg
done
mkdir "$dir/photos/train/.thumbnails"
touch "$dir/photos/train/.thumbnails/1.jpg"
mkdir -p "$dir/flat/a" "$dir/flat/b"
touch "$dir"/flat/{a,b}/{0,1,2,3,4}.png
mkdir -p "$dir"/split/{train,val} "$dir/whole"
tar -cf "$dir/photos.tar" -C "$dir" photos
cp "$dir/photos.tar" "$dir/whole"
tar -cf "$dir/split/train/0.tar" -C "$dir/photos/train" ./a ./b
tar -cf "$dir/split/train/1.tar" -C "$dir/photos/train" c
tar -cf "$dir/split/val/0.tar" -C "$dir/photos/val" .
preset() { # SPEC
    root=$root bash -c 'source "$root/scripts/lib.sh"; source "$root/scripts/job.sh"; data_preset "$1"' _ "$1"
}
for what in photos photos.tar whole split; do
    [[ $(preset "images:$dir/$what") == "resnet18:classes=3,size=128 40 12" ]] || wrong "$what: $(preset "images:$dir/$what")"
done
[[ $(preset "images:$dir/flat") == "resnet18:classes=2,size=128 40 9" ]] || wrong "flat: $(preset "images:$dir/flat")"
[[ $(preset "cifar100:$dir/photos") == "cifar100-cnn 30 12 0.01" ]] || wrong "cifar100: $(preset "cifar100:$dir/photos")"

# Options after -- reach the workers, and those of the data the evaluator; psworker refuses what it does not know.
compare async-sgd --out "$dir/given" -- --prefetch 2 --clip-norm 5 || wrong "exit $?: $(<"$dir/log")"
grep -q -- '--prefetch 2 --clip-norm 5' "$dir/given/settings" || wrong "the settings do not name options after --"
compare async-sgd --out "$dir/unknown" -- --no-such 1 && wrong "an unknown option after --"
compare async-sgd --out "$dir/short" -- --prefetch && wrong "an option without a value after --"
grep -q 'options of psworker, each with its value' "$dir/log" || wrong "no value after --: $(<"$dir/log")"

# 80 steps of 30 ms are 2.4 s at least; of the last worker, whose steps are twice as long, 4.8 s.
compare async-sgd sgd --step-ms 30 --slow 2 --out "$dir/slow" || wrong "exit $?: $(<"$dir/log")"
wall() { # ROW WORKER
    sed -n 's/.*"event":"finished".*"seconds":\([0-9.]*\).*/\1/p' "$dir/slow/$1-seed1/worker-$2."*
}
awk -v fast="$(wall async-sgd 0)" -v slow="$(wall async-sgd 1)" -v alone="$(wall sgd 0)" \
    'BEGIN { exit !(fast >= 2.4 && slow >= 4.8 && alone >= 4.8) }' ||
    wrong "steps of 30 and 60 ms: $(wall async-sgd 0) s, $(wall async-sgd 1) s, alone $(wall sgd 0) s"

# 160 gradients in 5 MB go up links of 20 Mb/s altogether: 2 s at least.
takes_2_s() { # FOLDER OPTION...
    local seconds folder=$1
    shift
    compare async-sgd "$@" --out "$dir/$folder" || wrong "exit $?: $(<"$dir/log")"
    seconds=$(awk -F '\t' 'NR == 1 { for (i = 1; i <= NF; i++) f[$i] = i } NR == 2 { print $f["seconds"] }' \
        "$dir/$folder/runs.tsv")
    awk -v s="$seconds" 'BEGIN { exit !(s >= 1.9) }' || wrong "$*: 5 MB went over within $seconds s"
}

test_link() {
    local spaces compare_pid waited status=0
    takes_2_s link --link 10mbit
    takes_2_s center-link --link 1gbit --center-link 20mbit
    "$root/scripts/compare" async-sgd --net linear --data digits:7 --workers 2 --steps 100000000 --link 10mbit \
        --center-link 10mbit --out "$dir/killed" >"$dir/table" 2>"$dir/log" &
    compare_pid=$!
    for ((waited = 0; waited < 3000; waited++)); do
        [[ ! -s $dir/killed/async-sgd-seed1.running/worker-1.log ]] || break
        sleep 0.1
    done
    spaces=$(ip netns list | grep -c "^psd-$compare_pid-")
    [[ $spaces -eq 4 ]] || wrong "$spaces namespaces for psd, the bridge and two workers"
    kill -TERM "$compare_pid"
    wait "$compare_pid" || status=$?
    [[ $status -eq 130 ]] || wrong "told to stop: exit $status"
    ! ip netns list | grep "^psd-$compare_pid-" || wrong "namespaces are left"
    ! pgrep -f "$dir/killed" || wrong "processes are left"
}
if [[ $(id -u) -ne 0 ]]; then
    compare async-sgd --link 10mbit --out "$dir/link" && wrong "made links without being root"
    grep -q "run it as root" "$dir/log" || wrong "not root: $(<"$dir/log")"
elif command -v ip >/dev/null && command -v tc >/dev/null && ip netns add "psd-$$-try" 2>/dev/null; then
    ip netns del "psd-$$-try"
    test_link
else
    echo "skipped: --link, which needs ip, tc and the right to make network namespaces"
fi

# refuses SENTENCE ARGUMENT...
refuses() {
    local status=0 sentence=$1
    shift
    compare "$@" --out "$dir/none" || status=$?
    [[ $status -eq 2 ]] || wrong "$*: exit $status"
    grep -qF -- "$sentence" "$dir/log" || wrong "$*: $(<"$dir/log")"
    [[ ! -e $dir/none ]] || wrong "$*: made a folder"
}
refuses "no such method" async-easgd no-such
refuses "parameters.epsilon: rule sgd" async-easgd async-sgd:epsilon=1
refuses "each once" async-easgd async-easgd
refuses "METHOD:KEY=VALUE" async-easgd:period
refuses "whole numbers" async-easgd --seeds 1,x
refuses "between 0 and 1" async-easgd --levels 99
refuses "no method" --seeds 1
refuses "such as 20mbit" async-easgd --link 20
refuses "--slow without --step-ms" async-easgd --slow 4
refuses "--center-link without --link" async-easgd --center-link 20mbit
refuses "such as 20mbit" async-easgd --link 20mbit --center-link 20
refuses "1 to 31536000" async-easgd --seconds 0
refuses "between 0 and 1" async-easgd --until 97
refuses "--momentum: given for sgd" async-easgd sgd:momentum=0.9

# The script's list of methods without psd is what psd says.
for method in $("$root/scripts/compare" --help | sed -n 's/^methods: //p'); do
    local_by_psd=0 local_by_script=0
    says=$("$PSD_BUILD/server/psd" --method "$method" --check-config 2>&1)
    [[ $says != *"psworker --method"* ]] || local_by_psd=1
    [[ -e $root/configs/methods/$method.yaml ]] || local_by_script=1
    [[ $local_by_psd -eq $local_by_script ]] || wrong "$method: is it psworker's own?"
done
exit $failed
