#!/usr/bin/env bash
# wait_policy.sh PSWORKER: the libgomp that computes is the program's own, its threads sleep while they wait, and a policy
# that the user has set is kept. The net's loops and libdnnl's use the same one.
set -uo pipefail

program=$1
failed=0
name=$(basename "$program")

# The settings are shown by the shared libgomp too, which nobody calls; the program's comes last.
spins() { # VARIABLE=VALUE...
    env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT "$@" OMP_DISPLAY_ENV=verbose "$program" --version 2>&1 |
        sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'/\1/p" | tail -n 1
}

wants() { # WHAT COMMAND...
    "${@:2}" || {
        echo "$name: $1"
        failed=1
    }
}

bound=$(LD_DEBUG=bindings "$program" --version 2>&1 | grep -E 'binding file .*/libdnnl\.[^ ]* .* to .*(GOMP_|omp_)')
passive=$(spins _=_)
active=$(spins OMP_WAIT_POLICY=active)
wants "libdnnl's OpenMP is not the program's: $bound" [ -n "$bound" ]
wants "libdnnl's OpenMP is not the program's: $bound" [ -z "$(grep -v "/$name \[0\]" <<<"$bound")" ]
wants "threads spin $passive times: want 0" [ "$passive" = 0 ]
wants "OMP_WAIT_POLICY=active spins $active times: want more than 0" [ "${active:-0}" != 0 ]
exit "$failed"
