/* admissions.h: when an arriving exchange may be applied. Each admission is one file and one row. */
#ifndef PSD_ADMISSIONS_H
#define PSD_ADMISSIONS_H

#include "server/lane/admission.h"

extern const struct psd_admission psd_admission_backup, psd_admission_fcfs, psd_admission_hogwild,
    psd_admission_quorum, psd_admission_round_robin, psd_admission_ssp, psd_admission_sync;
/* Ends with NULL. */
extern const struct psd_admission *const psd_admissions[];
/* NULL: unknown. */
const struct psd_admission *psd_admission_find(const char *name);

#endif
