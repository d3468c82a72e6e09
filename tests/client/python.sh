#!/bin/sh
# python.sh CLIENT.PY LIBPSCLIENT PSD: a Python program uses the library through ctypes.
set -eu
if ! python3 -c 'import ctypes' 2>/dev/null; then
    echo "skipped: there is no python3 with ctypes"
    exit 77
fi
dir=$(mktemp -d)
trap 'kill $pid 2>/dev/null; wait; rm -rf "$dir"' EXIT
"$3" --method async-sgd --set learning_rate=1 --set parameters.schedule.warmup_steps=0 --state-dir "$dir/state" \
    --endpoint-file "$dir/endpoint" 2>"$dir/log" &
pid=$!
# A sanitized library needs its runtime first in a program that has none; what Python itself leaks is not ours.
runtime=$(ldd "$2" | grep -o '/[^ ]*lib[at]san[^ ]*' || true)
LD_PRELOAD=$runtime ASAN_OPTIONS=detect_leaks=0 timeout 500 python3 "$1" "$2" "@$dir/endpoint"
