#!/bin/bash
# completion.sh COMPLETION PSD PSCTL PSWORKER PSBENCH PRESETS: what bash offers at the end of a command line.
set -u
completion=$1 presets=$6
programs=("$(realpath "$2")" "$(realpath "$3")" "$(realpath "$4")" "$(realpath "$5")")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin" "$dir/state"
ln -s "${programs[@]}" "$(dirname "$(dirname "$(realpath "$completion")")")/psrun" "$dir/bin"
PATH=$dir/bin:$PATH
cd "$dir" || exit 1
# shellcheck source=scripts/completion/psd.bash
source "$completion"
failed=0

# offers LINE WORD...: with the cursor behind LINE, exactly these words.
offers() {
    local got wanted
    COMP_LINE=$1 COMP_POINT=${#1} COMP_WORDBREAKS=$' \t\n"\'@><=;|&(:'
    COMPREPLY=()
    _psd_complete "${1%% *}"
    shift
    got=$(printf '%s\n' "${COMPREPLY[@]-}" | sort)
    wanted=$(printf '%s\n' "${@-}" | sort)
    [[ $got == "$wanted" ]] || {
        echo "behind '$COMP_LINE': offered $(tr '\n' ' ' <<<"$got"), not $(tr '\n' ' ' <<<"$wanted")"
        failed=1
    }
}

[[ $(complete -p psd psctl psworker psbench psrun | grep -c _psd_complete) -eq 5 ]] || failed=1

offers 'psd --re' --resume
offers 'psd --st' --status --state-dir
offers 'psworker --every 3 --e' --epochs --every --evaluate
offers 'psctl --socket x ch' checkpoint
mapfile -t options < <(psctl --help | grep -oE -- '--[a-z]+' | sort -u)
offers 'psctl --timeout 3 ' allow checkpoint config drain evict history keygen merge method metrics reload set status top unset workers "${options[@]}"
offers 'psctl top --o' --once
offers 'psctl set parameters.per' parameters.period=
offers 'psctl unset parameters.per' parameters.period
offers 'psctl method eam' eamsgd
offers 'psctl --socket x method eamsgd parameters.per' parameters.period=
offers 'psbench ex' exchange
offers 'psbench exchange --tr' --transport
offers 'psbench exchange --transport ' tcp ipc shm rdma
offers 'psbench net --precision ' float32 tf32 bf16
offers 'psworker --precision ' float32 tf32 bf16 auto
offers 'psbench net --tr'
offers 'psbench allreduce --ro' --road
offers 'psbench allreduce --road ' tcp unix
offers 'psbench exchange --floats '
offers 'psbench --seconds 3 ne' net
offers 'psctl --json --once --t' --timeout

methods=$(for preset in "$presets"/*.yaml; do basename "$preset" .yaml; done)
# shellcheck disable=SC2086 # a list
offers 'psd --method ' $methods custom
offers 'psd --config x --method eam' eamsgd
offers 'psd --set parameters.per' parameters.period=
offers 'psd --set li' listen= limits.
offers 'psd --set parameters.sch' parameters.schedule.
nets=$(psworker --help | sed -n 's/^nets: //p')
# shellcheck disable=SC2086
offers 'psworker --net ' $nets
offers 'psworker --net len' lenet
offers 'psworker --method ' sgd msgd asgd mvasgd d-sync pipe-sgd
offers 'psworker --clique ' ring mpi nccl
offers 'psworker --data mn' mnist:
offers 'psworker --data ' digits mnist: synthetic: cifar10: cifar100: images:
offers 'psworker --steps '
offers 'psrun --work' --workers
offers 'psrun --ke' --key --keep-going
offers 'psrun --method mpi-e' mpi-esgd
offers 'psrun --backend ' local lsf slurm
offers 'psrun --workers 2 --set parameters.per' parameters.period=
offers 'psrun --data mn' mnist:
offers 'psrun --workers '
offers 'psworker --describe len' lenet

# Files: sockets where sockets are meant, and what stands behind readline's own separators.
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("state/psd.sock")'
touch state/lock endpoint
offers 'psctl --socket st' state/
offers 'psctl --socket state/' state/psd.sock
offers 'psworker --server @en' @endpoint
offers 'psworker --data mnist:st' state/
offers 'psworker --server ip' ipc://
offers 'psworker --server ipc://state/' //state/psd.sock
offers 'psd --status unix:state/' state/psd.sock state/lock
offers 'psd --listen ' tcp:// ipc://
exit $failed
