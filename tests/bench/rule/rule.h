/* rule.h: psbench rule: the cost of each rule's pass over memory, compared with plain loops. */
#ifndef TEST_BENCH_RULE_RULE_H
#define TEST_BENCH_RULE_RULE_H

extern const char bench_rule_help[];
int bench_rule(int argc, char **argv);

#endif
