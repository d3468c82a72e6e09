# shellcheck shell=bash
# shellcheck disable=SC2154 # psd, psworker and name are set by the script that sources it
# job.bash: psd and psworkers of scripts that run on the stand-in. To be sourced, with psd, psworker and name set; it goes to a
# folder of its own, which is removed at the end.
folder=$(mktemp -d)
cd "$folder" || exit
trap 'kill -KILL $(jobs -rp) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
export OMP_NUM_THREADS=1
declare -A data=([linear]=digits [resnet8]=synthetic:3x32x32:10)

fail() {
    echo "$name: $*" >&2
    tail -n 5 ./*.log >&2
    exit 1
}

start() { # FOLDER PSD-OPTION...
    local to=$1 waited
    shift
    rm -f endpoint
    "$psd" --set lanes=2 --set chunk_floats=1024 --set checkpoint.every_s=0 --state-dir "$to" --endpoint-file endpoint \
        "$@" >"$to-psd.log" 2>&1 &
    server=$!
    for ((waited = 0; waited < 3000; waited++)); do
        [[ ! -s endpoint ]] || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.02
    done
    fail "psd did not start"
}

work() { # NET BACKEND PSWORKER-OPTION...
    local net=$1 backend=$2
    shift 2
    "$psworker" --server @endpoint --backend "$backend" --net "$net" --data "${data[$net]}" --batch 2 --threads 1 --seed 3 "$@"
}

end() {
    kill -TERM "$server"
    wait "$server" || fail "psd did not end well"
}

last_center() { # FOLDER
    local files=("$1"/checkpoints/center-*.safetensors)
    echo "${files[-1]}"
}
