#!/usr/bin/env bash
# training: what slow links' settings cost in accuracy: diloco without overlap and codec, in four bits with overlap over half a
# period, and with topk:0.03 and the same overlap; LeNet on MNIST or cifar7 on CIFAR-10, 4 workers. Prints a row for each, means
# over the seeds; fails if a final accuracy is more than 0.5 points below raw's, or on MNIST if one takes more than 1.15 times
# raw's images to 0.985. Runs that are complete in OUT are not made again. Needs jq.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
usage() {
    cat <<END
usage: tests/bench/slow/training.sh DATA OUT
  DATA  mnist:DIR or cifar10:DIR
  from the environment, with the defaults: SEEDS="1 2 3" STEPS=1200 (CIFAR-10: 6000) of each worker, RUN= before each run's command
END
}

[[ $# -eq 2 && $1 =~ ^(mnist|cifar10):. ]] || { usage && exit 2; }
data=$1 out=$2 level=0.985 steps=${STEPS:-1200} period=50
[[ $data == mnist:* ]] || { level=0.50 steps=${STEPS:-6000}; }
read -ra seeds <<<"${SEEDS:-1 2 3}"
read -ra run <<<"${RUN:-}"
mkdir -p "$out"
rm -f "$out/rows.tsv"

coded() { # CODEC
    echo "diloco:overlap=$((period / 2)),codec.message=$1,codec.answer=$1,codec.error_feedback=true"
}

# One row of rows.tsv: name, seed, final accuracy, images to the level ("-": not reached).
train() { # NAME ENTRY SEED
    local folder=$out/$1-$3 history
    if [[ ! -s $folder/runs.tsv ]]; then
        rm -rf "$folder"
        "${run[@]}" "$root/scripts/compare" "$2" --data "$data" --workers 4 --steps "$steps" --seeds "$3" --every 2 \
            --levels "$level" --out "$folder" >&2
    fi
    history=$(find "$folder" -name history.jsonl)
    printf '%s\t%s\t%s\t%s\n' "$1" "$3" "$(tail -n 1 "$history" | jq -r .test_accuracy)" "$(cut -f 5 "$folder/runs.tsv")" \
        >>"$out/rows.tsv"
}

for seed in "${seeds[@]}"; do
    train raw diloco "$seed"
    train int4 "$(coded int4)" "$seed"
    train topk "$(coded topk:0.03)" "$seed"
done
LC_ALL=C awk -F '\t' -v level="$level" -v judges_images="$([[ $data == mnist:* ]] && echo 1 || echo 0)" '
    { n[$1]++; accuracy[$1] += $3; if ($4 == "-") missed[$1]++; else images[$1] += $4 }
    END {
        count = split("raw int4 topk", name, " ")
        printf "%-6s %10s %24s\n", "codec", "accuracy", "images to " level
        for (i = 1; i <= count; i++) {
            k = name[i]
            mean[k] = accuracy[k] / n[k]
            to[k] = missed[k] ? "-" : images[k] / n[k]
            printf "%-6s %10.4f %24s\n", k, mean[k], to[k] == "-" ? missed[k] " of " n[k] " do not" : sprintf("%.0f", to[k])
            bad = bad || mean[k] < mean["raw"] - 0.005 || (judges_images && (to[k] == "-" || to[k] > 1.15 * to["raw"]))
        }
        exit bad
    }' "$out/rows.tsv"
