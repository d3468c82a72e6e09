# shellcheck shell=bash
# Completion for psd, psctl, psworker, psbench and psrun. Options and names come from the installed programs: from --help and
# from the error messages for invalid names.

# --help of a program and of its subcommand if given; for psbench without one, of all subcommands.
_psd_help() {
    local command
    "$@" --help 2>/dev/null
    [[ ${1##*/} != psbench || $# -gt 1 ]] || for command in $(_psd_commands "$1"); do
        "$1" "$command" --help 2>/dev/null
    done
}

# Options of a program, and of its subcommand if given.
_psd_options() {
    "$@" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]+' | sort -u
}

# The commands in the --help of psctl or psbench.
_psd_commands() {
    "$1" --help 2>/dev/null | sed -nE 's/^  ([a-z]+) .*/\1/p'
}

# The list after "allowed are" or similar in the error message for an invalid name.
_psd_allowed() {
    "$@" 2>&1 | sed -nE 's/.*(allowed are|allowed here:|allowed:|it has:) ([^"(]*).*/\2/p' |
        sed -E 's/ (and|or) / /g' | tr -s ', ' '\n' | grep .
}

# Configuration keys in group $2 ("": the top level) that begin with $3, such as "lanes=", "limits.".
_psd_keys() {
    local key
    _psd_allowed "$1" --check-config --set "$2unknown=1" | while read -r key; do
        [[ $2$key == "$3"* ]] || continue
        if "$1" --check-config --set "$2$key.unknown=1" 2>&1 | grep -q "$key: found an unknown key"; then
            printf '%s.\n' "$2$key"
        else
            printf '%s=\n' "$2$key"
        fi
    done
}

# Files and directories that begin with $1; with $2 = -S only sockets and directories.
_psd_files() {
    local file
    compgen -f -- "$1" | while read -r file; do
        if [[ -d $file ]]; then
            printf '%s/\n' "$file"
        elif [[ ${2-} != -S || -S $file ]]; then
            printf '%s\n' "$file"
        fi
    done
}

# tcp://, ipc://PATH, and @FILE if $2 requests it.
_psd_urls() {
    case $1 in
    @*) _psd_files "${1#@}" | sed 's/^/@/' ;;
    ipc://*) _psd_files "${1#ipc://}" -S | sed 's|^|ipc://|' ;;
    *) printf '%s\n' tcp:// ipc:// "${2-}" ;;
    esac
}

# Values of option $2 of program $1 that begin with $3. False: the option takes no value.
_psd_values() {
    case ${1##*/}:$2 in
    psrun:--method) "$1" --help 2>/dev/null | sed -nE "s/^  --method NAME +(.*) \(.*/\1/p" | tr ' ' '\n' ;;
    psrun:--backend) "$1" --help 2>/dev/null | sed -nE 's/^  --backend NAME +([a-z ]+) \(.*/\1/p' | tr ' ' '\n' ;;
    psrun:--run-dir | psrun:--join) compgen -d -S / -- "$3" ;;
    psrun:--config | psrun:--key) _psd_files "$3" ;;
    psrun:--set) _psd_values psd --set "$3" ;;
    psrun:--data) _psd_values psworker --data "$3" ;;
    psd:--method) _psd_allowed "$1" --check-config --method unknown ;;
    psd:--set)
        case $3 in
        *.*) _psd_keys "$1" "${3%.*}." "$3" ;;
        *) _psd_keys "$1" '' "$3" ;;
        esac
        ;;
    psd:--listen) _psd_urls "$3" ;;
    psd:--status) _psd_files "${3#unix:}" | sed 's/^/unix:/' ;;
    psd:--config | psd:--endpoint-file | psworker:--history | psworker:--key | psbench:--psd) _psd_files "$3" ;;
    psd:--state-dir) compgen -d -S / -- "$3" ;;
    psctl:--socket) _psd_files "$3" -S ;;
    psworker:--server) _psd_urls "$3" @ ;;
    psworker:--method) _psd_allowed psworker --method unknown ;;
    psworker:--clique) _psd_allowed psworker --clique unknown ;;
    psworker:--net | psworker:--describe | psbench:--net) psworker --help 2>/dev/null | sed -n 's/^nets: //p' | tr ' ' '\n' ;;
    psworker:--backend | psbench:--backend) _psd_allowed psworker --server tcp://0:1 --backend unknown ;;
    psworker:--data | psbench:--data)
        case $3 in
        *:*) compgen -d -S / -P "${3%%:*}:" -- "${3#*:}" ;;
        *) _psd_allowed psworker --server tcp://0:1 --data unknown | sed -E 's/[[:upper:]].*|\[.*//' ;;
        esac
        ;;
    psbench:--codec | psbench:--answer-codec) printf '%s\n' raw fp16 bf16 trunc16 int8 ;;
    psbench:--memory) printf '%s\n' host cuda ;;
    psbench:--admission) printf '%s\n' fcfs hogwild ;;
    psbench:--transport) printf '%s\n' tcp ipc shm rdma ;;
    psworker:--algorithm | psbench:--algorithm) printf '%s\n' ring tree auto ;;
    psworker:--memory) printf '%s\n' auto host cuda ;;
    psworker:--precision) printf '%s\n' float32 tf32 bf16 auto ;;
    psbench:--precision) printf '%s\n' float32 tf32 bf16 ;;
    psbench:--road) printf '%s\n' tcp unix ;;
    *:--*) _psd_help "$1" | grep -qE -- "$2 [[:upper:]0-9]" ;; # a value without candidates
    *) return 1 ;;
    esac
}

# The ranks in a job, for psctl evict; from $2 on: the words of the command line.
_psd_ranks() {
    local program=$1 socket i
    shift
    for ((i = 1; i < $#; i++)); do
        [[ ${!i} != --socket ]] || socket=${*:i+1:1}
    done
    [[ -z ${socket-} ]] || "$program" --socket "$socket" --timeout 1 --json workers 2>/dev/null |
        grep -oE '"client": *[0-9]+' | grep -oE '[0-9]+'
}

# $1: the program, $2: the word to complete, from $3 on: the words before it. Prints one candidate per line.
_psd_candidates() {
    local program=$1 word=$2 command='' skip='' before
    shift 2
    _psd_values "$program" "${!#}" "$word" && return
    for before in "${@:2}"; do # the first word that is neither an option nor the value of one
        if [[ -n $skip ]]; then
            skip=''
        elif [[ $before == -* ]]; then
            _psd_values "$program" "$before" '' >/dev/null && skip=1
        elif [[ -z $command ]]; then
            command=$before
        fi
    done
    case ${program##*/}:$command in
    psctl: | psbench:) _psd_commands "$program" ;;
    psctl:evict) _psd_ranks "$program" "$@" ;;
    psctl:set | psctl:unset) _psd_values psd --set "$word" | if [[ $command == unset ]]; then tr -d =; else cat; fi ;;
    psctl:method) _psd_values psd --method "$word" && _psd_values psd --set "$word" ;;
    psctl:keygen | psctl:merge) _psd_files "$word" ;;
    esac
    if [[ ${program##*/} == psbench && -n $command ]]; then
        _psd_options "$program" "$command"
    else
        _psd_options "$program"
    fi
}

# readline splits words at : and =, and replaces only the part after the last one; candidates here are whole words.
_psd_complete() {
    local line=${COMP_LINE:0:COMP_POINT} words word breaks head='' candidate
    read -ra words <<<"$line"
    [[ $line != *[[:space:]] ]] || words+=('')
    word=${words[-1]}
    unset 'words[-1]'
    breaks=${COMP_WORDBREAKS//[^:=]/}
    [[ -z $breaks ]] || head=${word%"${word##*["$breaks"]}"}
    COMPREPLY=()
    while read -r candidate; do
        [[ -z $candidate || $candidate != "$word"* ]] || COMPREPLY+=("${candidate#"$head"}")
    done < <(_psd_candidates "$1" "$word" "${words[@]}")
    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *[/=:@.] ]] || compopt -o nospace 2>/dev/null
    return 0
}

complete -F _psd_complete psd psctl psworker psbench psrun
