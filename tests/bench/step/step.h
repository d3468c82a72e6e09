/* step.h: psbench step: what of a training step's communication its computing hides. */
#ifndef TEST_BENCH_STEP_STEP_H
#define TEST_BENCH_STEP_STEP_H

extern const char bench_step_help[];
int bench_step(int argc, char **argv);

#endif
