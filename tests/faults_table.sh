#!/usr/bin/env bash
# faults_table.sh ROOT: every test that docs/FAULTS.md names exists, and every test of the suites that are about
# faults alone is named there; so does every suite that scripts/faults runs.
set -uo pipefail

root=$1
page=$root/docs/FAULTS.md
failed=0

# shellcheck disable=SC2016 # backticks of the page, not of the shell
mapfile -t named < <(grep '^|' "$page" | grep -o '`[a-z_0-9]*_[a-z_0-9]*`' | tr -d '`' | grep -v '^silence_s$\|^step_s$\|_total$' | sort -u)
mapfile -t exist < <(grep -rho 'START_TEST([a-z_0-9]*' "$root/tests" | sed 's/.*(//' | sort -u)
mapfile -t must < <(cd "$root/tests/system" && grep -ho 'START_TEST([a-z_0-9]*' faults/test_chaos.c faults/test_disk.c faults/test_clock.c \
    security/test_peers.c faults/test_kills.c | sed 's/.*(//')

tests=$(printf '%s\n' "${exist[@]}")
table=$(printf '%s\n' "${named[@]}")
[[ ${#named[@]} -gt 20 ]] || { echo "$page: its table names ${#named[@]} tests only"; failed=1; }
for name in "${named[@]}"; do
    grep -qxF -- "$name" <<<"$tests" || { echo "$page: there is no test $name"; failed=1; }
done
for name in "${must[@]}"; do
    grep -qxF -- "$name" <<<"$table" || { echo "$page does not name $name"; failed=1; }
done
read -ra suites < <(sed -n '/^tests=(/,/)$/p' "$root/scripts/faults" | tr -d '\n' | sed 's/^tests=(//; s/)$//')
[[ ${#suites[@]} -gt 20 ]] || { echo "scripts/faults: it runs ${#suites[@]} suites only"; failed=1; }
for name in "${suites[@]}"; do
    room=$root/tests/${name%%-*} file=${name#*-}
    [[ $name == faults-table || -e $room/$file.sh ]] || grep -q "'$file'" "$room/meson.build" || {
        echo "scripts/faults: there is no suite $name"
        failed=1
    }
done
exit "$failed"
