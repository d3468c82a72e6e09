#!/bin/sh
# embed-presets.sh OUT.c FILE.yaml...: the presets of configs/methods as C strings, so that psd needs no files to know them.
set -eu
out=$1
shift
{
    echo '/* Generated from configs/methods by server/config/embed-presets.sh. */'
    echo '#include "server/config/presets.h"'
    echo 'const struct psd_preset psd_presets[] = {'
    for file in "$@"; do
        printf '    {"%s",\n' "$(basename "$file" .yaml)"
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/     "/' -e 's/$/\\n"/' "$file"
        echo '    },'
    done
    echo '    {NULL, NULL},'
    echo '};'
} >"$out"
