# shellcheck shell=bash disable=SC2154
# members.sh: psbench step with each member in a network namespace of its own. Sourced after link.sh, whose link_up was called,
# never run; the sourcing script sets build, net, workers and folder.

# As member K: in_place K COMMAND...
in_place() {
    local -a place
    read -ra place <<<"${worker_place[$1]}"
    "${place[@]}" "${@:2}"
}

# Prints member 0's line.
step_members() { # OPTION...
    local k pids=() rc=0
    rm -f "$folder"/ring*
    for ((k = 0; k < workers; k++)); do
        in_place "$k" "$build/tests/bench/psbench" step --net "$net" --members "$workers" --member "$k" \
            --rendezvous "file:$folder/ring" --listen "tcp://10.0.0.$((k + 2))" --json "$@" >"$folder/out-$k" &
        pids+=($!)
    done
    for k in "${pids[@]}"; do
        wait "$k" || rc=1
    done
    ((rc == 0)) || die "psbench step $*: failed"
    cat "$folder/out-0"
}
