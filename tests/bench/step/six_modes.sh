#!/usr/bin/env bash
# six_modes: the comparison of Mamidala et al. 2018: dist- and mpi- SGD, ASGD and ESGD of LeNet on MNIST, with 4 workers in 4
# clients or in 2 cliques of two, each worker and psd in a network namespace of its own behind a paced link. Prints
# scripts/compare's table: time to each accuracy, and the bytes at the servers. Needs root and iproute2.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)

usage() {
    cat <<END
usage: tests/bench/step/six_modes.sh MNIST_DIR OUT [OPTION...]
  OUT: folder for the table and the runs. OPTION: of scripts/compare. From the environment, with the defaults:
    RATE=1gbit STEP_MS=30 EPOCHS=5 LEVELS=0.95,0.98,0.985 SEEDS=1
END
}

[[ $# -ge 2 && -d $1 ]] || { usage && exit 2; }
data=$1 out=$2
shift 2
# dist-ESGD has the period of mpi-ESGD.
"$root/scripts/compare" sync-sgd async-sgd async-easgd:period=64 mpi-sgd:members=2 mpi-asgd:members=2 mpi-esgd:members=2 \
    --data "mnist:$data" --workers 4 --batch 64 --link "${RATE:-1gbit}" --step-ms "${STEP_MS:-30}" --epochs "${EPOCHS:-5}" \
    --levels "${LEVELS:-0.95,0.98,0.985}" --every 1 --seeds "${SEEDS:-1}" --out "$out" "$@"
cat "$out/table.md"
