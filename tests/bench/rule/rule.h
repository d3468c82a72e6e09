/* rule.h: psbench rule, what each rule's pass over memory costs beside plain loops. */
#ifndef BENCH_RULE_H
#define BENCH_RULE_H

extern const char bench_rule_help[];
int bench_rule(int argc, char **argv);

#endif
