#!/bin/sh
# embed-page.sh OUT.c FILE...: the files of server/status/page as C arrays, so that psd needs no files to serve them.
set -eu
out=$1
shift
{
    echo '/* Generated from server/status/page by server/status/embed-page.sh. */'
    cat <<END
#include <stdlib.h>
#include <string.h>
#include "server/status/page.h"
static void say(struct psd_http_answer *answer, const char *type, const unsigned char *bytes, size_t len)
{
    answer->content_type = type;
    answer->body = malloc(len);
    answer->len_bytes = answer->body != NULL ? len : 0;
    answer->status = answer->body != NULL ? 200 : 500;
    if (answer->body != NULL)
        memcpy(answer->body, bytes, len);
}
END
    for file in "$@"; do
        case $file in
        *.html) name=index type='text/html; charset=utf-8' ;;
        *.css) name=style type='text/css; charset=utf-8' ;;
        */chart.js) name=chart type='text/javascript; charset=utf-8' ;;
        *.js) name=script type='text/javascript; charset=utf-8' ;;
        *.svg) name=icon type=image/svg+xml ;;
        esac
        echo "static const unsigned char ${name}_bytes[] = {"
        od -An -v -tu1 "$file" | sed -e 's/^ */    /' -e 's/  */, /g' -e 's/^, /    /' -e 's/$/,/'
        echo '};'
        cat <<END
void psd_page_$name(void *arg, const char *query, struct psd_http_answer *answer)
{
    (void)arg;
    (void)query;
    say(answer, "$type", ${name}_bytes, sizeof ${name}_bytes);
}
END
    done
} >"$out"
