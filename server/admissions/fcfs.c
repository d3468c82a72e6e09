/* First come, first served: an exchange is applied as it arrives; lanes interleave exchanges
 * independently. */
#include "server/lane/lane.h"

static void arrive(struct psd_lane *lane, struct psd_arrival *a)
{
    psd_lane_apply(lane, a);
}

const struct psd_admission psd_admission_fcfs = {.name = "fcfs", .arrive = arrive};
