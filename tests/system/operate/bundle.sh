#!/usr/bin/env bash
# bundle.sh SOURCE BUILD: a bundle of BUILD is unpacked into an empty root with glibc and nothing else; psd and a worker train
# there, and psworker says what its modules miss. Skipped where no user namespace may be made.
set -euo pipefail

source=$1 build=$(realpath "$2")
readonly most_bytes=20000000 # without oneDNN
folder=$(mktemp -d)
trap 'kill -KILL $(jobs -rp) 2>/dev/null || true; wait; rm -rf "$folder"' EXIT

fail() { # SENTENCE
    echo "bundle: $*" >&2
    tail -n 20 "$folder"/*.log >&2
    exit 1
}

unshare --map-root-user --mount --pid --fork true 2>/dev/null || {
    echo "bundle: no user namespaces here"
    exit 77
}

# Errors name what is wrong.
refuses() { # PATTERN ARGUMENT...
    local pattern=$1 status=0
    shift
    "$source/scripts/bundle" "$@" >"$folder/refused.log" 2>&1 || status=$?
    { ((status != 0)) && grep -q -- "$pattern" "$folder/refused.log"; } || fail "bundle $* does not say \"$pattern\""
}
refuses '"sideways": no such bundle; allowed: relocatable' sideways
refuses '"--small": no such option; allowed: --out' relocatable --small
refuses '--out needs a value' relocatable --out
refuses 'is no build folder' relocatable --build "$folder"
refuses '--onednn and --rdma are not allowed' relocatable --build "$build" --onednn
"$source/scripts/bundle" --help >"$folder/help.log"
grep -q 'Left to the system' "$folder/help.log" || fail "--help"

# Its size is measured below: here xz need not take long.
XZ_OPT=-0 "$source/scripts/bundle" relocatable --build "$build" --out "$folder/psd.tar.xz" >"$folder/bundle.log" 2>&1 || fail "it could not be made"
root=$folder/root
mkdir -p "$root"/{lib64,lib/x86_64-linux-gnu,proc,dev,sys,tmp,etc,anywhere/else}
tar -C "$root/anywhere/else" -xf "$folder/psd.tar.xz"
unpacked=$(echo "$root"/anywhere/else/psd-*)
at=${unpacked#"$root"}
bytes=$(tar -C "$unpacked" -c --exclude 'libdnnl*' . | xz | wc -c)
((bytes <= most_bytes)) || fail "$bytes bytes without oneDNN, and $most_bytes are allowed"

# Nothing of this machine but glibc: no build folder, none of Debian's other libraries.
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
for library in libc.so.6 libm.so.6 libmvec.so.1 libpthread.so.0 libdl.so.2 librt.so.1 libresolv.so.2 libutil.so.1 libnss_files.so.2; do
    path=$(ldconfig -p 2>/dev/null | awk -v name="$library" '$1 == name && /x86-64/ && !n++ { print $NF }')
    [[ -z $path ]] || cp -L "$path" "$root/lib/x86_64-linux-gnu/"
done
inside() { # PROGRAM ARGUMENT...
    # shellcheck disable=SC2016 # the inner shell's
    env -i OMP_NUM_THREADS=1 HOME=/tmp unshare --map-root-user --mount --pid --fork --kill-child /bin/sh -c '
        root=$1 && shift
        mount --rbind /dev "$root/dev" && mount --rbind /sys "$root/sys" && mount -t proc proc "$root/proc" && exec chroot "$root" "$@"' sh "$root" "$@"
}

for program in psd psctl psworker; do
    inside "$at/bin/$program" --version >"$folder/version.log" 2>&1 || fail "$program"
done
inside "$at/bin/psbench" --help >"$folder/psbench.log" 2>&1 || fail "psbench"

# A training: psd until its worker has left, and the worker.
inside "$at/bin/psd" --method async-easgd --listen tcp://127.0.0.1:0 --endpoint-file /tmp/endpoint \
    --state-dir /tmp/state --set stop.updates=20 >"$folder/psd.log" 2>&1 &
psd=$!
for ((tries = 0; tries < 600; tries++)); do
    [[ ! -s $root/tmp/endpoint ]] || break
    kill -0 "$psd" 2>/dev/null || fail "psd ended"
    sleep 0.1
done
inside "$at/bin/psworker" --server @/tmp/endpoint --net linear --data digits --steps 400 --threads 1 >"$folder/worker.log" 2>&1 || fail "psworker"
{ wait "$psd" && grep -q "reached 20" "$folder/psd.log"; } || fail "psd"

# What a module lacks is one sentence.
misses() { # LIBRARY ARGUMENT...
    local library=$1 status=0
    shift
    inside "$at/bin/psworker" --method sgd --data digits --net linear --steps 1 "$@" >"$folder/misses.log" 2>&1 || status=$?
    { ((status == 1 || status == 2)) && grep -q "$library: cannot open shared object file" "$folder/misses.log" &&
        (($(wc -l <"$folder/misses.log") == 1)); } || fail "psworker $* does not say in one line that it misses $library"
}
if [[ -n $(compgen -G "$unpacked/lib/*/psd/libpsnets-cuda.so") ]]; then
    misses 'libcu[a-z]*.so.[0-9]*' --backend cuda
else
    misses libpsnets-cuda.so --backend cuda
fi

# psrun is a script: here with those of this machine's tools that the README names, by Debian's packages.
read -ra needs < <(sed -n 's/.* psrun also needs \(.*\)\.$/\1/p' "$unpacked/README" | sed 's/,\| and / /g')
((${#needs[@]} > 0)) || fail "the README does not say what psrun needs"
mkdir "$folder/tools"
for need in "${needs[@]}"; do
    for tool in $(dpkg-query --listfiles "$need" 2>/dev/null | grep -E '/s?bin/[^/]+$' || command -v "$need"); do
        ln -s "$(realpath "$tool")" "$folder/tools/${tool##*/}"
    done
done
env -i HOME="$folder" PATH="$folder/tools" "$unpacked/bin/psrun" --run-dir "$folder/run" --workers 1 --method async-easgd --data digits -- \
    psworker --net linear --steps 100 >"$folder/psrun.log" 2>&1 || fail "psrun"

# Each library has a licence, and none of them is glibc's or CUDA's.
[[ -n $(ls "$unpacked/licenses") && -f $unpacked/LICENSE && -f $unpacked/README ]] || fail "licences or README are missing"
! find "$unpacked" -name 'libc.so*' -o -name 'libcud*' | grep . || fail "it carries what the system must have"
