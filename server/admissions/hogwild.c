/* Hogwild (Recht, Re, Wright, Niu 2011; Hogwild EASGD: You, Buluc, Demmel 2017): lanes apply what comes from
 * their own clients over the whole center, without locks, racing on purpose. Two lanes that move the same
 * value at once may lose one of the two moves; a value is never torn, since it is one aligned float. The
 * races are in the racing rows of proto/vec/kernels.c and nowhere else: everything but the center's and the
 * rule's values has one owner. */
#include "server/lane/lane.h"

static void arrive(struct psd_lane *lane, struct psd_arrival *a)
{
    psd_lane_apply(lane, a);
}

const struct psd_admission psd_admission_hogwild = {.name = "hogwild", .whole_lanes = true, .arrive = arrive};
