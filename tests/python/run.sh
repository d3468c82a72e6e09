#!/usr/bin/env bash
# run.sh MODULES PACKAGES: python -m unittest MODULES (one word), with the package psclient of this tree, where a Python has
# PACKAGES (one word). PSD_TEST_PYTHON names the interpreter; else python3 and /usr/bin/python3 are looked at. Of the
# environment: PSD, PSCLIENT_LIBRARY and what the modules say.
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
read -ra modules <<<"$1"
read -ra packages <<<"$2"

python=
for candidate in ${PSD_TEST_PYTHON:-python3 /usr/bin/python3}; do
    for package in ctypes "${packages[@]}"; do
        "$candidate" -c "import $package" 2>/dev/null || continue 2
    done
    python=$candidate
    break
done
if [[ -z $python ]]; then
    echo "skipped: no python3 has $2; PSD_TEST_PYTHON names one that does"
    exit 77
fi
# A sanitized library needs its runtime first in a program that has none; what Python itself leaks is not ours.
runtime=$(ldd "$PSCLIENT_LIBRARY" | grep -o '/[^ ]*lib[at]san[^ ]*' || true)
cd "$here" || exit 1
export PYTHONPATH=$here/../../client/python/src PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
LD_PRELOAD=$runtime ASAN_OPTIONS=detect_leaks=0 exec "$python" -W error::ResourceWarning -m unittest "${modules[@]}"
