#include "server/admissions/admissions.h"

#include <stddef.h>
#include <string.h>

const struct psd_admission *const psd_admissions[] = {
    &psd_admission_backup,      &psd_admission_fcfs, &psd_admission_hogwild, &psd_admission_quorum,
    &psd_admission_round_robin, &psd_admission_ssp,  &psd_admission_sync,    NULL};

const struct psd_admission *psd_admission_find(const char *name)
{
    for (const struct psd_admission *const *a = psd_admissions; *a != NULL; a++)
        if (strcmp((*a)->name, name) == 0)
            return *a;
    return NULL;
}
