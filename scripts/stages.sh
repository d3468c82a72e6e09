# shellcheck shell=bash
# stages.sh: named stages with their times and tests, shared by .ci/run and scripts/soak. Sourced, never run; needs jq. The
# sourcing script runs at the top of the tree.
#
# Each stage writes a row to $stage_dir/stages.tsv (name, passed or FAILED, wall seconds, CPU seconds) and its output to
# $stage_dir/NAME.log; each test writes a row to $stage_dir/tests.tsv (stage, name, result, seconds).

stage_dir=
failures=() # the messages about failures at the end

stages_begin() { # FOLDER
    stage_dir=$1
    rm -rf "$stage_dir"
    mkdir -p "$stage_dir"
    : >"$stage_dir/stages.tsv"
    : >"$stage_dir/tests.tsv"
    : >"$stage_dir/flaky.txt"
}

# User and system CPU time of all processes that this shell, or its children, have waited for, in hundredths of a second.
children_cpu_cs() {
    local fields
    read -ra fields <"/proc/$$/stat"
    echo $(((fields[15] + fields[16]) * 100 / $(getconf CLK_TCK)))
}

children_cpu_s() {
    echo $(($(children_cpu_cs) / 100))
}

file_name() { # NAME of a stage or a test
    tr -c 'a-zA-Z0-9_.\n-' _ <<<"$1"
}

# stage NAME COMMAND...: runs one stage; false if it failed. (Without a pipe: a process left behind would keep it open.)
stage() {
    local name=$1 started=$SECONDS cpu result=passed log
    shift
    log=$stage_dir/$(file_name "$name").log
    cpu=$(children_cpu_s)
    echo "== $name"
    if ! "$@" > >(tee "$log") 2>&1; then
        sleep 1 # tee's last lines
        result=FAILED
        failures+=("$name; it ended with:" "$(grep . "$log" | tail -n 5)")
    fi
    printf '%s\t%s\t%d\t%d\n' "$name" "$result" $((SECONDS - started)) $(($(children_cpu_s) - cpu)) >>"$stage_dir/stages.tsv"
    echo "== $name: $result after $((SECONDS - started)) s"
    [[ $result == passed ]]
}

# take_tests STAGE LOG: adds the rows of a log of meson test, LOG.json.
take_tests() {
    local name=$1 log=$2 test
    [[ -f $log ]] || return 0
    jq -r --arg stage "$name" '[$stage, (.name | sub("^.* / "; "")), .result, .duration] | @tsv' "$log" >>"$stage_dir/tests.tsv"
    while read -r test; do
        output_of "$test" "$log" >"$(failed_log "$name" "$test")"
    done < <(failed_tests "$name")
}

output_of() { # TEST LOG of meson test
    jq -r --arg test "$1" 'select(.name | sub("^.* / "; "") == $test) | .stdout // "", .stderr // ""' "$2"
}

failed_log() { # STAGE TEST
    echo "$stage_dir/failed-$(file_name "$1-$2").log"
}

failed_tests() { # STAGE
    awk -F '\t' -v stage="$1" '$1 == stage && $3 ~ /^(FAIL|TIMEOUT|ERROR|INTERRUPT|UNEXPECTEDPASS)$/ { print $2 }' "$stage_dir/tests.tsv"
}

# run_tests STAGE FOLDER MESON-OPTION...: runs meson test and adds its rows.
run_tests() {
    local name=$1 folder=$2 base status=0
    shift 2
    base=$(file_name "$name")
    rm -f "$folder/meson-logs/$base.json"
    meson test -C "$folder" --no-rebuild --print-errorlogs --logbase "$base" "$@" || status=$?
    take_tests "$name" "$folder/meson-logs/$base.json"
    return "$status"
}

# The same for system tests: a failed test is run again by itself. If it passes then, it is listed as flaky, with its first
# log; if it fails again, the stage fails.
run_tests_again() { # STAGE FOLDER MESON-OPTION...
    local name=$1 folder=$2 base test status=0 tests=$stage_dir/again.txt
    run_tests "$@" && return
    base=$(file_name "$name")
    [[ -f $folder/meson-logs/$base.json ]] || return 1
    failed_tests "$name" >"$tests"
    while read -r test; do
        echo "== $name: running $test again by itself"
        if meson test -C "$folder" --no-rebuild --print-errorlogs --logbase "$base-again" "$test" </dev/null; then
            printf '%s\t%s\t%s\n' "$test" "$name" "$(failed_log "$name" "$test")" >>"$stage_dir/flaky.txt"
            awk -F '\t' -v OFS='\t' -v stage="$name" -v test="$test" '$1 == stage && $2 == test { $3 = "FLAKY" } { print }' \
                "$stage_dir/tests.tsv" >"$stage_dir/tests.new" && mv "$stage_dir/tests.new" "$stage_dir/tests.tsv"
        else
            status=1
        fi
    done <"$tests"
    return "$status"
}

show_stages() {
    echo "wall s   CPU s  stage"
    awk -F '\t' '{ printf "%6d  %6d  %s%s\n", $3, $4, $1, $2 == "passed" ? "" : ": " $2; wall += $3; cpu += $4 }
        END { printf "%6d  %6d  all stages\n", wall, cpu }' "$stage_dir/stages.tsv"
}

show_slowest() { # COUNT
    echo "the $1 slowest tests, in seconds:"
    sort -t $'\t' -k4,4 -gr "$stage_dir/tests.tsv" | head -n "$1" | awk -F '\t' '{ printf "%7.1f  %s (%s)\n", $4, $2, $1 }'
}

# With the start and end of each first log: the reader may have no other access to it.
show_flaky() {
    local test name log
    if [[ ! -s $stage_dir/flaky.txt ]]; then
        echo "flaky tests: none"
        return
    fi
    echo "flaky tests, which failed and then passed when run alone:"
    while IFS=$'\t' read -r test name log; do
        echo "  $test ($name; first log: $log)"
        show_ends 20 "$log" | cut -c 1-400 | sed 's/^/  | /'
    done <"$stage_dir/flaky.txt"
}

show_ends() { # LINES FILE
    if [[ $(wc -l <"$2") -le $((2 * $1)) ]]; then
        cat "$2"
    else
        head -n "$1" "$2"
        echo "..."
        tail -n "$1" "$2"
    fi
}

count_flaky() {
    wc -l <"$stage_dir/flaky.txt"
}

# Counts of stages and tests that passed, and that failed.
count_passed() {
    cat "$stage_dir/stages.tsv" "$stage_dir/tests.tsv" | grep -cP '\t(passed|OK|FLAKY|EXPECTEDFAIL)\t'
}

count_failed() {
    cat "$stage_dir/stages.tsv" "$stage_dir/tests.tsv" | grep -cP '\t(FAILED|FAIL|TIMEOUT|ERROR|INTERRUPT|UNEXPECTEDPASS)\t'
}

# Each failed test, with the start and end of its output.
show_failed_tests() {
    local name test
    while IFS=$'\t' read -r name test; do
        echo "$name: $test"
        show_ends 20 "$(failed_log "$name" "$test")" | cut -c 1-400 | sed 's/^/| /'
    done < <(awk -F '\t' -v OFS='\t' '$3 ~ /^(FAIL|TIMEOUT|ERROR|INTERRUPT|UNEXPECTEDPASS)$/ { print $1, $2 }' "$stage_dir/tests.tsv")
}

# Runs quickstart; its center must reach the accuracy LEAST.
trains() { # LEAST OPTION...
    local least=$1 folder last status=0
    shift
    folder=$(mktemp -d)
    scripts/quickstart --run-dir "$folder/run" "$@" >"$folder/out" || status=$?
    last=$(tail -n 1 "$folder/out")
    echo "$last"
    rm -rf "$folder"
    [[ $status -eq 0 ]] && awk -v least="$least" 'match($0, /accuracy [0-9.]+/) { ok = substr($0, RSTART + 9, RLENGTH - 9) + 0 >= least } END { exit !ok }' \
        <<<"$last"
}

# Unpacks the published CIFAR-10 into FOLDER if it is available; otherwise its test and trainings are skipped.
unpack_cifar10() { # FOLDER
    [[ -x ../shared/data/cifar-10/unpack.sh ]] && command -v zstd >/dev/null || return 0
    mkdir -p "$1"
    PSD_CIFAR10=$(realpath "$1")
    export PSD_CIFAR10
    ../shared/data/cifar-10/unpack.sh "$PSD_CIFAR10"
}

# unpack_images NAME FOLDER: unpacks imagenette or cifar-100 into FOLDER/NAME, unless it is there, and prints its path.
unpack_images() {
    local unpack=../shared/data/$1/unpack.sh
    if [[ ! -x $unpack ]] || ! command -v zstd >/dev/null; then
        echo "$1 is not available: ${unpack%/*}, with zstd" >&2
        return 1
    fi
    if [[ ! -e $2/$1.done ]]; then
        mkdir -p "$2"
        "$unpack" "$2" >&2 || return
        touch "$2/$1.done"
    fi
    realpath "$2/$1"
}

# Further packages for CI and soak: a browser for the test of the live page; MPI, Slurm and munge, whose tests are skipped if
# missing; tools for linting, fuzzing and coverage.
ensure_ci_packages() (
    # shellcheck disable=SC2034 # used by lib.sh
    PACKAGES=(ccache chromium zstd jq clang libclang-rt-14-dev clang-format clang-tidy cppcheck shellcheck gcovr
        libopenmpi-dev openmpi-bin slurm-wlm slurm-wlm-basic-plugins munge iproute2
        libmunge-dev libibverbs-dev librdmacm-dev ibverbs-providers qemu-system-x86 busybox-static cpio xz-utils dash)
    ensure_packages
    look_again
)

# A folder that was configured before the last package was installed may lack a library that is there now.
look_again() {
    local setup
    for setup in build*/build.ninja; do
        [[ -f $setup && $setup -ot /var/lib/dpkg/status ]] || continue
        say "configuring ${setup%/*} again: packages were installed since"
        meson configure --clearcache "${setup%/*}" >/dev/null
        quietly "meson setup" meson setup --reconfigure "${setup%/*}"
    done
}
