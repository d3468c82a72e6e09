#!/usr/bin/env bash
# examples.sh SOURCE BUILD [DIR [PAGE...]]: the commands of README.md, of the pages in docs/ and of the man pages, run to their end as
# they are printed, on an install under a prefix of its own. examples.txt has a row for each block; a block without one fails.
# DIR stands in for the folder of MNIST that pages call DIR; without it ("") a few made images do. PAGE: those alone; patterns
# of paths in SOURCE.
# Without a BUILD ("") nothing is run: only the rows are checked.
# shellcheck disable=SC2317 # called by the rows of examples.txt
set -uo pipefail

source=$1 build=$2 data=${3-}
shift $(($# < 3 ? $# : 3))
pages=("$@")
table=$source/tests/system/examples.txt
folder=$(mktemp -d)
hang_s=${EXAMPLES_HANG_S:-$((300 * ${PSD_TEST_SLOW:-1}))} # ends what hangs, and judges nothing
failed=0 n_run=0 n_left_out=0

# Processes that a block has started stand in its folder, or below it.
processes() { # FOLDER
    local at
    for at in /proc/[0-9]*/cwd; do
        [[ $(readlink "$at" 2>/dev/null)/ != "$1"/* ]] || basename "${at%/cwd}"
    done
}

leave() {
    cd /
    processes "$folder" | xargs -r kill -KILL 2>/dev/null
    rm -rf "$folder"
}
trap leave EXIT

fail() { # SENTENCE
    echo "examples: $*" >&2
    failed=1
}

# blocks PAGE: each block as a file, $folder/blocks/NUMBER. Indented by four in Markdown, and fenced in man pages and where a
# fence names sh; C stands in examples/.
blocks() {
    rm -rf "$folder/blocks"
    mkdir "$folder/blocks"
    awk -v out="$folder/blocks" -v man="$([[ $1 == *.md ]] || echo 1)" '
        function line(text) { print text >(out "/" sprintf("%03d", n)) }
        /^```/ { if (inside) { inside = 0; next } inside = 1; keep = man || /sh$/; if (keep) n++; before = ""; next }
        inside { if (keep) line($0); next }
        !man && /^    [^ ]/ && before == "" { n++; code = 1; blank = 0 }
        !man && code && /^    / { line(substr($0, 5)); before = "code"; next }
        { code = 0; before = $0 ~ /^ *$/ ? "" : "text" }' "$source/$1"
}

row_of() { # PAGE TEXT [line]: the row whose beginning is longest; of a block, first one that takes it line by line
    awk -F'|' -v page="$1" -v text="$2" -v line="${3-}" '
        /^#/ || $1 != page || index(text, $2) != 1 || (line != "" && $3 == "lines") { next }
        { weight = length($2) + ($3 == "lines" ? 1000 : 0) }
        weight > longest { longest = weight; row = $0 }
        END { print row }' "$table"
}

within() { # COMMAND...
    local end=$((SECONDS + hang_s))
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
}

# What rows name, within a block's folder. -------------------------------------------------------------------------------

a_config() {
    cp configs/methods/async-easgd.yaml job.yaml
}

asks() { # SOCKET COMMAND FILTER
    psctl --socket "$1" "$2" --json 2>/dev/null | jq -e "$3" >/dev/null 2>&1
}

answers() { # SOCKET
    asks "$1" status .
}

drain_all() { # SOCKET: of two servers, when both are there
    within asks "$1" status '[.servers.list[] | select(.state == "here")] | length == 2' && drain_now "$1"
}

after_block() {
    within test -e .ended
}

drain_now() { # SOCKET
    within answers "$1" && psctl --socket "$1" --timeout "$hang_s" drain
}

drain_resumed() { # SOCKET: of the psd that goes on from a checkpoint
    within asks "$1" status '.center.resumed_from != null' && drain_now "$1"
}

drain_idle() { # SOCKET: when workers have come, and have gone
    within idle "$1" && drain_now "$1"
}

idle() {
    asks "$1" status '.center.version > 0' &&
        asks "$1" workers '[.workers[] | select(.kind != "observer")] | length == 0'
}

drain_evaluated() { # SOCKET: when an evaluator is there; it looks a last time
    within asks "$1" status '.workers.observers > 0 and .evaluation.test_accuracy != null' && drain_now "$1"
}

serve() { # tcp|ipc: a psd for who comes
    local listen=()
    [[ $1 == tcp ]] || listen=(--listen ipc://data)
    psd --method async-easgd "${listen[@]}" --state-dir run --endpoint-file endpoint &
    within answers run/psd.sock
}

a_job() { # WORKERS [NET]: a job that runs, and has been evaluated
    local k
    serve tcp
    for ((k = 0; k < $1; k++)); do
        psworker --server @endpoint --net "${2:-linear}" --data mnist:DIR --steps 100000000 --step-ms 20 --rank "$k" &
    done
    psworker --server @endpoint --net "${2:-linear}" --data mnist:DIR --evaluate --once
    within asks run/psd.sock workers "[.workers[] | select(.state == \"active\" and .rank != null)] | length >= $1"
}

had_job() { # STATE-DIR: one that has ended, with checkpoints and a best one
    psd --method async-easgd --state-dir "$1" --endpoint-file had-endpoint &
    psworker --server @had-endpoint --net linear --data mnist:DIR --epochs 1 &&
        psworker --server @had-endpoint --net linear --data mnist:DIR --evaluate --once && drain_now "$1/psd.sock" && wait
}

psrun_alone() { # RUN-DIR: servers for those who join
    psrun --workers 0 --servers 1 --run-dir "$1" &
    within test -S "$1/state-0/psd.sock"
}

# ------------------------------------------------------------------------------------------------------------------------

# The folder that a block runs in, as a user's clone with an install.
place() { # NAME
    mkdir "$folder/$1"
    cd "$folder/$1" || exit 1
    ln -s "$source/configs" "$source/scripts" "$source/examples" .
    ln -s "$images" DIR
    export HOME=$PWD
}

run_it() { # HOW FILE: to its end
    local shell=(bash -e "$2")
    case $1 in
    tty) while sleep 1; do printf q; done | script -qec "bash -e '$2'" /dev/null ;;
    port) unshare --net bash -c 'ip link set lo up && exec "$@"' - "${shell[@]}" </dev/null ;;
    *) "${shell[@]}" </dev/null ;;
    esac
    local status=${PIPESTATUS[-1]}
    : >.ended
    return "$status"
}

try() { # WHAT HOW BEFORE BESIDE FILE
    local status=0 beside=
    place "$((++n_run))"
    (eval "${3:-:}") >before.log 2>&1 || fail "$1: what must be there before: $(tail -n 5 before.log)"
    [[ -z $4 ]] || {
        (eval "$4") >beside.log 2>&1 &
        beside=$!
    }
    export -f run_it
    timeout "$hang_s" bash -c 'run_it "$@"' - "$2" "$5" >block.log 2>&1 || status=$?
    ((status == 0)) || fail "$1: it ends with $status: $(tail -n 12 block.log)"
    ! grep -aE '"level":"error"|: error:|[- ]nan\b' block.log >&2 || fail "$1: it says so"
    [[ -z $beside ]] || wait "$beside" || fail "$1: what goes on beside it: $(tail -n 5 beside.log)"
    cd "$folder" || exit 1 # where this shell is no process of the block's
    within ended "$folder/$n_run" || fail "$1: these go on: $(processes "$folder/$n_run" | xargs -r ps -o args= -p)"
}

ended() { # FOLDER
    [[ -z $(processes "$1") ]]
}

can() { # HOW
    case $1 in
    port) unshare --net ip link set lo up 2>/dev/null ;;
    mpi) command -v mpirun >/dev/null && compgen -G "$lib/libpsclique-mpi*" >/dev/null ;;
    tty) command -v script >/dev/null ;;
    long) [[ -n $data ]] ;;
    bf16) psworker --describe linear --precision bf16 >/dev/null 2>&1 ;;
    *) true ;;
    esac
}

example() { # PAGE FILE [line]
    local text how before beside row
    text=$(grep -v '^$' "$2" | head -n 1)
    row=$(row_of "$1" "$text" "${3-}")
    [[ -n $row ]] || {
        fail "$1: no row of examples.txt is for \"$text\""
        return
    }
    IFS='|' read -r _ _ how before beside <<<"$row"
    echo "$row" >>"$folder/used"
    case $how in
    lines)
        sed -e ':more' -e '/\\$/{N' -e 's/\\\n *//' -e 'b more' -e '}' "$2" >"$folder/lines"
        local command
        while read -r command; do
            echo "$command" >"$folder/line"
            example "$1" "$folder/line" line </dev/null
        done <"$folder/lines"
        ;;
    text | form | ci | slurm | gpu) ;;
    run | tty | port | mpi | long | bf16)
        if [[ -z $build ]]; then
            :
        elif can "$how"; then
            cp "$2" "$folder/block"
            echo "$1: $text"
            try "$1: $text" "$how" "$before" "$beside" "$folder/block"
        else
            echo "$1: left out here ($how): $text"
            n_left_out=$((n_left_out + 1))
        fi
        ;;
    *) fail "examples.txt: \"$how\" in $row" ;;
    esac
}

# A program that a page shows, built by the line that it begins with, beside the psd that the page names.
c_example() { # PAGE NAME PSD-COMMAND EXPECTED
    local page=$1 line
    shift
    line=$(sed -nE '1s/.*(cc '"$1"'\.c .*) \*\/$/\1/p' "$source/examples/$1.c")
    [[ -n $line ]] || fail "examples/$1.c: its first line says not how to build it"
    grep -qF -- "\`$2\`" "$source/$page" || fail "$page lacks \`$2\`"
    printf '%s &\ncp examples/%s.c .\n%s\n' "$2" "$1" "$line" >"$folder/block"
    echo "$page: $line"
    try "$page: $line" run "" "after_block; drain_now psd-state/psd.sock" "$folder/block"
    grep -qE "$3" "$folder/$n_run/block.log" || fail "$1: $(<"$folder/$n_run/block.log")"
}

install_it() {
    DESTDIR=$folder/root meson install -C "$build" --no-rebuild --quiet --tags runtime,scripts,devel >"$folder/log" 2>&1 || {
        cat "$folder/log" >&2
        exit 1
    }
    local psrun pc
    psrun=$(find "$folder/root" -name psrun -path '*/bin/*')
    pc=$(find "$folder/root" -name psclient.pc)
    lib=$(dirname "$(dirname "$pc")")
    mkdir "$folder/stubs"
    # shellcheck disable=SC2016 # the script's own argument
    printf '#!/bin/sh\necho "# seen" >>"$1"\n' >"$folder/stubs/vi" # whoever edits, saves and ends
    chmod +x "$folder/stubs/vi"
    export PATH=$folder/stubs:${psrun%/psrun}:/usr/bin:/bin:/usr/sbin:/sbin
    sed -i "s|^prefix=|&$folder/root|" "$pc" # as if meson had had this prefix
    export PKG_CONFIG_PATH=${pc%/*} TERM=xterm
    unset LD_LIBRARY_PATH
}

programs() {
    c_example README.md line 'psd --method async-easgd --set learning_rate=0.5 --endpoint-file endpoint' 'the center is y = [23]\.'
    c_example docs/USAGE.md kvstore \
        'psd --method async-sgd --set learning_rate=1 --set parameters.schedule.warmup_steps=0 --endpoint-file endpoint' \
        '^price: 9 8 7 6'
}

main() {
    local page file only=("${pages[@]}") patterns=("${pages[@]}")
    ((${#pages[@]} > 0)) || patterns=(README.md 'docs/*.md' 'docs/results/*.md' 'docs/man/*.[158].scd*')
    # shellcheck disable=SC2068 # patterns
    mapfile -t pages < <(cd "$source" && printf '%s\n' ${patterns[@]})
    images=${data:-$folder/images}
    : >"$folder/used"
    if [[ -n $build ]]; then
        [[ -n $data ]] || python3 "$source/tests/system/examples_data.py" "$images" 2048 512 || exit 1
        install_it
        [[ " ${pages[*]} " != *" README.md "* ]] || programs
    fi
    for page in "${pages[@]}"; do
        blocks "$page"
        for file in "$folder"/blocks/*; do
            [[ ! -e $file ]] || example "$page" "$file"
        done
    done
    ((${#only[@]} > 0)) || ! grep -v '^#' "$table" | grep -vxFf "$folder/used" || fail "these rows of examples.txt are of no block"
    [[ -z $build ]] || echo "$n_run examples ran, $n_left_out were left out"
}

main
exit "$failed"
