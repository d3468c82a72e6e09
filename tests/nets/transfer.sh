#!/usr/bin/env bash
# transfer: ResNet-18 at 128 pixels is trained on seven classes of an image folder. The center, with a fresh last layer, then
# starts a training on the other classes; at equal steps it is more accurate than one that starts at random.
# $1: the folder, with train/ and val/ of at least nine classes; $2: passes over the seven classes. The others get a quarter.
# Then options of quickstart for all three trainings, such as --net resnet18:classes=N,size=64 with the letter N.
set -euo pipefail

images=$(realpath "$1")
epochs=$2
shift 2
net='resnet18:classes=N,size=128'
[[ ${1-} != --net ]] || { net=$2; shift 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

classes=("$images"/train/*/)
[[ ${#classes[@]} -ge 9 ]] || { echo "transfer: $images/train has ${#classes[@]} classes; needed: 9" >&2; exit 1; }
for ((i = 0; i < ${#classes[@]}; i++)); do
    name=$(basename "${classes[i]}")
    part=$([[ $i -lt 7 ]] && echo seven || echo others)
    for split in train val; do
        mkdir -p "$folder/$part/$split"
        ln -s "$images/$split/$name" "$folder/$part/$split/"
    done
done
n_others=$((${#classes[@]} - 7))

# train NAME PART CLASSES EPOCHS OPTION... [-- PSWORKER-OPTION...]: prints the accuracy of the center.
train() {
    local name=$1 part=$2 n=$3 passes=$4
    shift 4
    scripts/quickstart --run-dir "$folder/$name" --data "images:$folder/$part" --net "${net/N/$n}" --epochs "$passes" "$@" \
        >"$folder/$name.out" || return
    tail -n 1 "$folder/$name.out" >&2
    awk 'match($0, /test accuracy [0-9.]+/) { last = substr($0, RSTART + 14, RLENGTH - 14) } END { print last }' "$folder/$name.out"
}

passes=$(((epochs + 3) / 4))
train pretrained seven 7 "$epochs" "$@" >/dev/null
fresh=$(train fresh others "$n_others" "$passes" "$@")
init=$(train init others "$n_others" "$passes" "$@" -- --init "$folder/pretrained/state/checkpoints/best.safetensors" --init-skip 'fc.*')
for accuracy in "$fresh" "$init"; do
    [[ $accuracy =~ ^[0-9]+(\.[0-9]+)?$ ]] || { echo "transfer: a training has no accuracy" >&2; exit 1; }
done
echo "transfer: on $n_others classes after $passes passes: $init from the center of seven others, $fresh from scratch"
awk -v a="$init" -v b="$fresh" 'BEGIN { exit !(a > b) }'
