#!/usr/bin/env bash
# install.sh SOURCE BUILD: an install under a prefix of its own runs as it is: neither PATH nor LD_LIBRARY_PATH knows of it.
set -uo pipefail

source=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

fail() { # SENTENCE
    echo "install: $*" >&2
    failed=1
}

# A test must not build anything: what it needs is built already.
DESTDIR=$folder/root meson install -C "$build" --no-rebuild --quiet --tags runtime,scripts,devel >"$folder/log" 2>&1 || {
    cat "$folder/log" >&2
    exit 1
}
psrun=$(find "$folder/root" -name psrun -path '*/bin/*')
bin=${psrun%/psrun}
cd / || exit 1
run() {
    env -i HOME="$folder" PATH=/usr/bin:/bin "$@"
}
for program in psd psctl psworker; do
    run "$bin/$program" --version >/dev/null 2>"$folder/log" || fail "$program: $(<"$folder/log")"
done
run "$bin/psbench" --help >"$folder/log" 2>&1
(($? != 127)) || fail "psbench: $(<"$folder/log")" # the loader's
ln -s "$psrun" "$folder/train" # a user's own link leads there as well
for program in "$psrun" "$folder/train"; do
    run "$program" --run-dir "$folder/run-${program##*/}" --workers 1 --method async-easgd --data digits -- \
        psworker --net linear --steps 100 >"$folder/log" 2>&1 || fail "$program: $(<"$folder/log")"
done
# So does a program that is built with it, as README.md builds one.
pc=$(find "$folder/root" -name psclient.pc)
prefix=$folder/root$(sed -n 's/^prefix=//p' "$pc")
sed -i "s|^prefix=.*|prefix=$prefix|" "$pc" # as if meson had had this prefix
cp "$source/examples/line.c" "$folder"
# shellcheck disable=SC2046 # words of a command
cc "$folder/line.c" $(PKG_CONFIG_PATH=${pc%/*} pkg-config --cflags --libs psclient) -o "$folder/line" || fail "line.c does not compile"
run ldd "$folder/line" >"$folder/log" 2>&1
grep -q "libpsclient.*$prefix" "$folder/log" || fail "a program built with psclient.pc: $(<"$folder/log")"
exit "$failed"
