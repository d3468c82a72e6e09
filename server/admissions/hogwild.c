/* Hogwild (Recht, Re, Wright, Niu 2011; Hogwild EASGD: You, Buluc, Demmel 2017): each lane applies the
 * messages of its own clients to the whole center without locks, with intended data races. If two lanes move
 * the same value at once, one of the moves may be lost; a value is never torn, since it is one aligned float.
 * The races are confined to the racing rows of proto/vec/kernels.c: everything except the values of the
 * center and the rule has one owner. */
#include "server/lane/lane.h"

static void arrive(struct psd_lane *lane, struct psd_arrival *a)
{
    psd_lane_apply(lane, a);
}

const struct psd_admission psd_admission_hogwild = {.name = "hogwild", .whole_lanes = true, .arrive = arrive};
