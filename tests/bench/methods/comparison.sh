#!/usr/bin/env bash
# comparison: every method on MNIST with LeNet, 4 workers, the same period where a method has one, and the same schedule; each at the
# best of three learning rates: half the preset's, the preset's and twice that. The best has the least images to the accuracy or, where
# none reaches it, the highest accuracy. A run ends when it reaches it. The first seed is run with all three, the others with the best
# until no other one is better than their median. Runs of an earlier call with the same OUT are kept, so that the comparison can be made in parts.
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
    cat "$all" "$out/runs.tsv" 2>/dev/null | awk -F '\t' '!seen[$1, $2]++' >"$all.new" # runs.tsv has those of one call
    mv "$all.new" "$all"
}

# Of words; "-" is more than all numbers.
# shellcheck disable=SC2016 # awk's own
readonly median='
    function sorted(words, a,    i, j, v, n, word) {
        n = split(words, word, " ")
        for (i = 1; i <= n; i++) {
            v = word[i]
            for (j = i - 1; j > 0 && v != "-" && (a[j] == "-" || v + 0 < a[j] + 0); j--) a[j + 1] = a[j]
            a[j + 1] = v
        }
        return n
    }
    function median(words,    a, n) {
        n = sorted(words, a)
        return a[int((n + 1) / 2)]
    }'

# The best entry of each method, by medians over the seeds that it has. runs.tsv has columns: 1 the entry, 13 images to the last
# level, 15 the best accuracy; 2 the seed. "-", not reached, counts as more images than all.
best() {
    LC_ALL=C awk -F '\t' "$median"'
        function better(entry, than,    images, most) {
            images = median(of[entry, "images"]); most = median(of[than, "images"])
            if (images != "-" && most != "-") return images + 0 < most + 0
            return images != most ? images != "-" : median(of[entry, "accuracy"]) + 0 > median(of[than, "accuracy"]) + 0
        }
        NR > 1 {
            if (!(($1, "images") in of)) entry[++n] = $1
            of[$1, "images"] = of[$1, "images"] " " $13
            of[$1, "accuracy"] = of[$1, "accuracy"] " " $15
        }
        END {
            for (k = 1; k <= n; k++) {
                split(entry[k], part, ":")
                method = part[1]
                if (!(method in chosen)) order[++m] = method
                else if (!better(entry[k], chosen[method])) continue
                chosen[method] = entry[k]
            }
            for (k = 1; k <= m; k++) print chosen[order[k]]
        }' "$all"
}

# Medians over the seeds, and the least and most images. Columns 11, 12 and 14 are seconds, updates and bytes to the last level.
results() { # ENTRY...
    echo "| method | learning rate | thousand images to $until | seconds | updates | MB | best |"
    echo "|---|---|---|---|---|---|---|"
    entries=$(printf '%s\n' "$@") LC_ALL=C awk -F '\t' "$median"'
        function in_units(value, unit) { return value == "-" ? "-" : sprintf("%.0f", value / unit) }
        function images(words,    a, n) {
            n = sorted(words, a)
            return a[1] == "-" ? "-" : in_units(a[int((n + 1) / 2)], 1e3) " (" in_units(a[1], 1e3) " to " in_units(a[n], 1e3) ")"
        }
        NR > 1 { for (i = 1; i <= NF; i++) of[$1, i] = of[$1, i] " " $i }
        END {
            n = split(ENVIRON["entries"], entry, "\n")
            for (k = 1; k <= n; k++) {
                e = entry[k]
                split(e, part, ":")
                match(e, /learning_rate=[0-9.e-]+/)
                printf "| `%s` | %s | %s | %s | %s | %s | %s |\n", part[1], substr(e, RSTART + 14, RLENGTH - 14), \
                    images(of[e, 13]), in_units(median(of[e, 11]), 1), median(of[e, 12]), in_units(median(of[e, 14]), 1e6), \
                    median(of[e, 15])
            }
        }' "$all"
}

# pairs.png in OUT, if all of these methods are there.
picture() { # ENTRY...
    local name entry files=() names=()
    for name in async-easgd async-sgd async-measgd async-msgd hogwild-easgd hogwild-sgd sync-easgd original-easgd; do
        for entry in "$@"; do
            [[ $entry != "$name":* ]] || { files+=("$out/${entry//[:=,]/_}.txt") && names+=("$name"); }
        done
    done
    [[ ${#names[@]} -lt 8 ]] || gnuplot -c "$root/tests/bench/methods/pairs.gp" "$out/pairs.png" "${files[*]}" "${names[*]}"
}

seeds=${SEEDS:-1,2,3}
mkdir -p "$(dirname "$out")"
all=$out.runs.tsv
: >"$all"
compare "${seeds%%,*}" "${entries[@]}"
# A rate that was best by one seed may be at the edge of what is stable: by all seeds another one may be better.
chosen=
while mapfile -t entries < <(best) && [[ ${entries[*]} != "$chosen" ]]; do
    chosen=${entries[*]}
    compare "$seeds" "${entries[@]}"
done
results "${entries[@]}"
picture "${entries[@]}"
