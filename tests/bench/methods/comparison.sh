#!/usr/bin/env bash
# comparison: every method on MNIST with LeNet, 4 workers, the same period where a method has one, and the same schedule; each at the
# best of three learning rates: half the preset's, the preset's and twice that. The best has the least images to the accuracy,
# in the median over seeds, or, where none reaches it, the highest accuracy. Runs of an earlier call with the same OUT are kept, so
# that the comparison can be made in parts.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)

usage() {
    cat <<END
usage: tests/bench/methods/comparison.sh MNIST OUT [METHOD...]
  MNIST: the folder of the set's files. METHOD: all by default
  Environment: SEEDS (1,2,3), EPOCHS (8), UNTIL (0.988), PERIOD (4)
END
}

[[ $# -ge 2 ]] || { usage && exit 2; }
mnist=$1 out=$2
shift 2
until=${UNTIL:-0.988} period=${PERIOD:-4}
readonly locals=(sgd msgd asgd mvasgd)
[[ $# -gt 0 ]] || set -- original-easgd async-easgd async-measgd eamsgd hogwild-easgd sync-easgd sync-sgd async-sgd hogwild-sgd \
    ssp-sgd backup-sgd async-msgd downpour adownpour mvadownpour mdownpour admm diloco async-local-sgd staleness-sgd dc-asgd \
    mpi-sgd mpi-asgd mpi-esgd d-sync pipe-sgd "${locals[@]}"

preset() { # METHOD KEY
    sed -n "s/^ *$2: *\([0-9.e-]*\).*/\1/p" "$root/configs/methods/$1.yaml" | head -n 1
}

is_local() { # METHOD
    [[ " ${locals[*]} " == *" $1 "* ]]
}

# The settings of a method beside its learning rate.
settings_of() { # METHOD
    local settings=parameters.schedule.kind=constant,parameters.schedule.warmup_steps=200
    [[ -z $(preset "$1" period) ]] || settings+=",period=$period"
    case $1 in
    mpi-*) settings+=",members=2" ;;
    d-sync | pipe-sgd) settings+=",clique.publish=16" ;;
    original-easgd) settings+=",serial=false" ;;
    esac
    echo "$settings"
}

entries_of() { # METHOD
    local factor eta base
    if is_local "$1"; then
        base=0.05
        [[ $1 != msgd ]] || base=0.02
    else
        base=$(preset "$1" learning_rate)
    fi
    for factor in 0.5 1 2; do
        eta=$(LC_ALL=C awk "BEGIN { printf \"%g\", $base * $factor }")
        if is_local "$1"; then
            echo "$1:learning_rate=$eta,warmup=200"
        else
            echo "$1:learning_rate=$eta,$(settings_of "$1")"
        fi
    done
}

entries=()
for method in "$@"; do
    mapfile -t -O "${#entries[@]}" entries < <(entries_of "$method")
done
"$root/scripts/compare" "${entries[@]}" --data "mnist:$mnist" --seeds "${SEEDS:-1,2,3}" --epochs "${EPOCHS:-8}" \
    --levels "0.95,0.98,$until" --out "$out" >"$out.table"

# runs.tsv: columns 11 to 14 are seconds, updates, images and bytes to the last level, 15 the best accuracy.
echo "| method | learning rate | images to $until | seconds | updates | best |"
echo "|---|---|---|---|---|---|"
LC_ALL=C awk -F '\t' '
    function median(entry, of,    i, j, v, a, n) {
        n = split(rows[entry], row, " ")
        for (i = 1; i <= n; i++) {
            v = cell[row[i], of]
            for (j = i - 1; j > 0 && v != "-" && (a[j] == "-" || v + 0 < a[j] + 0); j--) a[j + 1] = a[j]
            a[j + 1] = v
        }
        return a[int((n + 1) / 2)]
    }
    function better(a, b,    x, y) {
        x = median(a, 13); y = median(b, 13)
        if (x != "-" && y != "-") return x + 0 < y + 0
        return x != y ? x != "-" : median(a, 15) + 0 > median(b, 15) + 0
    }
    NR > 1 {
        split($1, part, ":")
        if (!($1 in rows) && !(part[1] in best)) order[++m] = part[1]
        if (!(part[1] in best)) best[part[1]] = $1
        rows[$1] = rows[$1] " " NR
        for (i = 1; i <= NF; i++) cell[NR, i] = $i
    }
    END {
        for (entry in rows) {
            split(entry, part, ":")
            if (entry != best[part[1]] && better(entry, best[part[1]])) best[part[1]] = entry
        }
        for (k = 1; k <= m; k++) {
            entry = best[order[k]]
            match(entry, /learning_rate=[0-9.e-]+/)
            printf "| `%s` | %s | %s | %s | %s | %s |\n", order[k], substr(entry, RSTART + 14, RLENGTH - 14), \
                median(entry, 13), median(entry, 11), median(entry, 12), median(entry, 15)
        }
    }' "$out/runs.tsv"
