#!/bin/sh
# readme.sh README LINE.C LINE PSD: the README shows examples/line.c as it is, and three of it find the line through a real psd.
set -eu
readme=$1 source=$2 line=$3 psd=$4
dir=$(mktemp -d)
trap 'kill $pid 2>/dev/null; rm -rf "$dir"' EXIT

# shellcheck disable=SC2016 # backquotes of Markdown
sed -n '/^```c$/,/^```$/p' "$readme" | sed '/^```/d' >"$dir/shown.c"
diff -u "$source" "$dir/shown.c"

"$psd" --method async-easgd --set learning_rate=0.5 --state-dir "$dir/state" --endpoint-file "$dir/endpoint" 2>"$dir/log" &
pid=$!
for _ in 1 2 3; do
    timeout 60 "$line" "@$dir/endpoint" >>"$dir/out" &
    workers="${workers-} $!"
done
for worker in $workers; do
    wait "$worker"
done
cat "$dir/out"
[ "$(grep -c 'the center is y = 3.00. u -2.00.\|the center is y = 2.99. u -1.99.' "$dir/out")" -eq 3 ]
