/* args.h: the command line of psbench link. */
#ifndef TEST_BENCH_LINK_ARGS_H
#define TEST_BENCH_LINK_ARGS_H

#include <stdbool.h>
#include <stdint.h>

#include "nets/net.h"

enum { LINK_SMALL = 64, LINK_MAX_TURNS = 100 };

struct link_options {
    const char *server, *key, *server_key, *transport;
    const char *net;        /* NULL: `floats` */
    struct cnn_model model; /* of the net */
    uint64_t floats, turns, timeout_s;
    bool offer, json;
};

/* 0; 2: wrong, with a message on stderr; -1: help was printed. */
int link_parse(int argc, char **argv, struct link_options *o);

#endif
