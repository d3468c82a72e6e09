#!/bin/sh
# fails.sh SUITE: passes if the suite runs to its end and tests of it fail.
set -eu
rc=0
out=$("$1" 2>&1) || rc=$?
printf '%s\n' "$out" | tail -n 3
if [ "$rc" -ne 1 ] || ! printf '%s\n' "$out" | grep -q ':[FE]:'; then
    printf 'fails.sh: %s ended with %s; expected are tests that fail\n' "$1" "$rc"
    exit 1
fi
