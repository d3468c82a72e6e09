#include "server/lane.h"

#include <string.h>

static const struct psd_admission *const admissions[] = {&psd_admission_fcfs};

const struct psd_admission *psd_admission_find(const char *name)
{
    for (size_t i = 0; i < sizeof admissions / sizeof *admissions; i++)
        if (strcmp(admissions[i]->name, name) == 0)
            return admissions[i];
    return NULL;
}
