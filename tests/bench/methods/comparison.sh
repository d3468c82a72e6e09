#!/usr/bin/env bash
# comparison: every method on MNIST with LeNet, 4 workers, the same period where a method has one, and the same schedule; each at the
# best of three learning rates: half the preset's, the preset's and twice that. The first seed chooses: the best has the least images
# to the accuracy or, where none reaches it, the highest accuracy. A run ends when it reaches it. The other seeds are run with the best
# alone. Runs of an earlier call with the same OUT are kept, so that the comparison can be made in parts.
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
compare() { # SEEDS ENTRY...
    "$root/scripts/compare" "${@:2}" --data "mnist:$mnist" --seeds "$1" --epochs "${EPOCHS:-8}" --until "$until" \
        --levels "0.95,0.98,$until" --out "$out" >"$out.table"
}

# The best entry of each method. runs.tsv has columns: 1 the entry, 13 images to the last level, 15 the best accuracy.
best() {
    LC_ALL=C awk -F '\t' '
        function better(images, accuracy, than) {
            if (images != "-" && to[than] != "-") return images + 0 < to[than] + 0
            return images != to[than] ? images != "-" : accuracy + 0 > top[than] + 0
        }
        NR > 1 {
            split($1, part, ":")
            if (!(part[1] in row)) order[++n] = part[1]
            else if (!better($13, $15, part[1])) next
            row[part[1]] = $1; to[part[1]] = $13; top[part[1]] = $15
        }
        END { for (k = 1; k <= n; k++) print row[order[k]] }' "$out/runs.tsv"
}

# Medians over the seeds. Columns 11 and 12 are seconds and updates to the last level; "-", not reached, counts as later than all.
results() {
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
        NR > 1 {
            if (!($1 in rows)) order[++m] = $1
            rows[$1] = rows[$1] " " NR
            for (i = 1; i <= NF; i++) cell[NR, i] = $i
        }
        END {
            for (k = 1; k <= m; k++) {
                entry = order[k]
                split(entry, part, ":")
                match(entry, /learning_rate=[0-9.e-]+/)
                printf "| `%s` | %s | %s | %s | %s | %s |\n", part[1], substr(entry, RSTART + 14, RLENGTH - 14), \
                    median(entry, 13), median(entry, 11), median(entry, 12), median(entry, 15)
            }
        }' "$out/runs.tsv"
}

seeds=${SEEDS:-1,2,3}
mkdir -p "$(dirname "$out")"
compare "${seeds%%,*}" "${entries[@]}"
mapfile -t entries < <(best)
compare "$seeds" "${entries[@]}"
results
