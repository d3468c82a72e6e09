# shellcheck shell=bash disable=SC2154,SC2034
# link.sh: a slow link for each worker of a job on this machine. psd and the evaluator run in a network namespace with a
# bridge. Each worker runs in its own namespace, behind a veth that tc tbf limits at both ends. If psd has a link of its own,
# the bridge is in a third namespace, and psd behind such a veth, too; the evaluator does not use that link. The machine's own
# network is not changed. Sourced after job.sh by compare, never run; compare sets workers.

link_spaces=() # existing namespaces
link_bridge=psd # the one with the bridge

link_check_rate() { # OPTION RATE
    [[ $2 =~ ^[1-9][0-9]{0,8}(kbit|mbit|gbit)$ ]] ||
        bad_option "$1: \"$2\"" "a rate as in tc(8) in kbit, mbit or gbit, such as 20mbit"
}

# Checks the requirements before anything runs: creates and removes one link.
link_try() { # RATE
    local workers=1 tool
    [[ $(id -u) -eq 0 ]] || die "--link creates network namespaces: run it as root"
    for tool in ip tc; do
        command -v "$tool" >/dev/null || die "--link needs $tool: apt-get install iproute2"
    done
    trap_ends
    link_up "$1"
    clean_up
}

link_space() { # NAME: its namespace, unique to this run
    echo "psd-$$-$1"
}

link_do() { # COMMAND...
    local why
    why=$("$@" 2>&1) || die "--link: $*: ${why:-failed}"
}

link_add_space() { # NAME
    link_do ip netns add "$(link_space "$1")"
    link_spaces+=("$(link_space "$1")")
    link_do ip -n "$(link_space "$1")" link set lo up
}

# Limits a veth to RATE, with a burst of one millisecond, at least 32 KB, and a queue of 100 ms. tbf cuts a packet that is longer
# than its burst into frames, at many times the processor time: TCP makes none above seven eighths of the burst.
link_pace() { # NAME DEVICE RATE
    local kb=32
    case $3 in
    *gbit) kb=$((${3%gbit} * 125)) ;;
    *mbit) kb=$((${3%mbit} / 8)) ;;
    esac
    ((kb > 32)) || kb=32
    link_do ip -n "$(link_space "$1")" link set "$2" gso_max_size $((kb < 72 ? kb * 896 : 65536))
    link_do tc -n "$(link_space "$1")" qdisc add dev "$2" root tbf rate "$3" burst "${kb}kb" latency 100ms
}

# A veth between the bridge, where its name is DEVICE, and SPACE, where it is psd and has ADDRESS.
link_add_cable() { # DEVICE SPACE ADDRESS RATE
    local bridge
    bridge=$(link_space "$link_bridge")
    link_do ip -n "$bridge" link add "$1" type veth peer name psd netns "$(link_space "$2")"
    link_do ip -n "$bridge" link set "$1" master bridge up
    link_do ip -n "$(link_space "$2")" addr add "$3/24" dev psd
    link_do ip -n "$(link_space "$2")" link set psd up
    link_pace "$link_bridge" "$1" "$4"
    link_pace "$2" psd "$4"
}

# Call it before job_write_config. Both ends of a veth are created inside namespaces.
link_up() { # RATE [CENTER_RATE]
    local rank
    at_end+=(link_down)
    link_add_space psd
    link_bridge=psd
    if [[ -n ${2-} ]]; then
        link_add_space bridge
        link_bridge=bridge
    fi
    link_do ip -n "$(link_space "$link_bridge")" link add bridge type bridge forward_delay 0
    link_do ip -n "$(link_space "$link_bridge")" link set bridge up
    if [[ -n ${2-} ]]; then
        link_add_cable center psd 10.0.0.1 "$2"
    else
        link_do ip -n "$(link_space psd)" addr add 10.0.0.1/24 dev bridge
    fi
    job_place=(ip netns exec "$(link_space psd)")
    job_listen=tcp://10.0.0.1:0
    for ((rank = 0; rank < workers; rank++)); do
        link_add_space "$rank"
        link_add_cable "worker$rank" "$rank" "10.0.0.$((rank + 2))" "$1"
        worker_place[rank]="ip netns exec $(link_space "$rank")"
    done
}

# Deleting a namespace deletes its ends of the veths.
link_down() {
    local space
    for space in "${link_spaces[@]}"; do
        ip netns del "$space" || true
    done
    link_spaces=()
    job_place=()
    job_listen=$job_loopback
    worker_place=()
}
