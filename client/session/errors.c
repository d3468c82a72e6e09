#include "client/session/errors.h"

#include <string.h>

#include "client/psclient.h"
#include "ps.pb-c.h"

int psc_take_struct(void *to, size_t known, const void *given, size_t given_size, const char *what,
                    struct ps_error *err)
{
    const unsigned char *bytes = given;
    for (size_t i = known; i < given_size; i++)
        if (bytes[i] != 0)
            return ps_fail(err, PSC_EINVAL,
                           "%s: byte %zu is not 0; this version of the library knows only %zu bytes", what, i,
                           known);
    memcpy(to, given, given_size < known ? given_size : known);
    return PSC_OK;
}

int psc_result_of_code(uint32_t code)
{
    static const int results[] = {
        [PS__CODE__VERSION] = PSC_EUNSUPPORTED, [PS__CODE__MALFORMED] = PSC_EREFUSED,
        [PS__CODE__NO_SESSION] = PSC_EEVICTED,  [PS__CODE__STALE] = PSC_EEVICTED,
        [PS__CODE__NOT_BEGUN] = PSC_EREFUSED,   [PS__CODE__RANGE] = PSC_EREFUSED,
        [PS__CODE__VALUE] = PSC_EEVICTED,       [PS__CODE__MANIFEST] = PSC_EMANIFEST,
        [PS__CODE__RANK_TAKEN] = PSC_ERANK,     [PS__CODE__RANK_RANGE] = PSC_ERANK,
        [PS__CODE__FULL] = PSC_EREFUSED,        [PS__CODE__DRAINING] = PSC_DRAINED,
        [PS__CODE__EVICTED] = PSC_EEVICTED,     [PS__CODE__SEQ] = PSC_EREFUSED,
        [PS__CODE__CODEC] = PSC_EUNSUPPORTED,   [PS__CODE__GENERATION] = PSC_EREFUSED,
        [PS__CODE__LIMIT] = PSC_EREFUSED,       [PS__CODE__KIND] = PSC_EREFUSED,
        [PS__CODE__CLIQUE] = PSC_ECLIQUE,       [PS__CODE__AUTH] = PSC_EAUTH,
        [PS__CODE__JOB] = PSC_EEVICTED,
    };
    return code < sizeof results / sizeof *results && results[code] != 0 ? results[code] : PSC_EREFUSED;
}
