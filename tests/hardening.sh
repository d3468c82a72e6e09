#!/usr/bin/env bash
# hardening.sh FILE...: programs are position-independent; they and libraries have read-only relocations, bound
# at the start, and no executable stack; and the C library's checked calls and the stack's guard are in use.
# shellcheck disable=SC2317 # called through wants
set -uo pipefail

failed=0

wants() { # FILE WHAT COMMAND...
    local file=$1 what=$2
    shift 2
    if ! "$@" >/dev/null; then
        echo "$file: $what"
        failed=1
    fi
}

has() { # TEXT PATTERN
    grep -Eq "$2" <<<"$1"
}

stack_is_plain() { # PROGRAM-HEADERS
    grep -A1 -w GNU_STACK <<<"$1" | grep -Ew 'RW' && ! grep -A1 -w GNU_STACK <<<"$1" | grep -w RWE
}

for file in "$@"; do
    header=$(readelf --file-header --wide "$file") || exit 1
    segments=$(readelf --program-headers --wide "$file")
    dynamic=$(readelf --dynamic --wide "$file")
    symbols=$(readelf --dyn-syms --wide "$file")
    wants "$file" "is at a fixed address: want PIE" has "$header" 'Type: +DYN'
    wants "$file" "has no GNU_RELRO segment" has "$segments" GNU_RELRO
    wants "$file" "is not bound at the start: want BIND_NOW" has "$dynamic" 'BIND_NOW|FLAGS_1.*NOW'
    wants "$file" "has an executable stack" stack_is_plain "$segments"
    wants "$file" "lacks the stack's guard" has "$symbols" __stack_chk_fail
    wants "$file" "lacks checked calls: want _FORTIFY_SOURCE" has "$symbols" '__(snprintf|vsnprintf|memcpy|strcpy|printf|fprintf)_chk'
    case $file in
    *.so*) ;;
    *) wants "$file" "is no PIE" has "$dynamic" 'FLAGS_1.*PIE' ;;
    esac
done
exit "$failed"
