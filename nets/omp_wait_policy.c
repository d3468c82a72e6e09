/* omp_wait_policy.c: for programs that run nets on several threads. OpenMP threads wait for each other by
 * spinning, and another busy process on the same cores then slows them by a factor of about ten. This makes
 * them sleep, unless the user has set OMP_WAIT_POLICY: on free cores spinning is faster (active).
 *
 * libgomp reads its settings once, in a constructor. That of the shared library runs before any code of the
 * program. So these programs contain the static libgomp, whose constructor is one of the program's own, with
 * the lowest priority. The linker exports its functions, and with them the program's libgomp also serves
 * libdnnl: a program comes first in the search for symbols. */
#include <stdlib.h>

#define FIRST 101 /* lower priorities are the compiler's */

__attribute__((constructor(FIRST))) static void let_threads_sleep(void)
{
    setenv("OMP_WAIT_POLICY", "passive", 0);
}
