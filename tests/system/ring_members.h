/* ring_members.h: real psworkers on `digits` that are the members of one ring. */
#ifndef TEST_RING_MEMBERS_H
#define TEST_RING_MEMBERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { RING_MOST = 4, RING_MOST_OPTIONS = 24 };

struct ring_member {
    pid_t pid;
    char state[120], log[120];
};

struct ring {
    char dir[100]; /* of the files */
    int n;
    struct ring_member member[RING_MOST];
};

/* Starts n members with more options (NULL at the end), and returns when all train. They die with their
 * parent. A state of an earlier run is gone on from. */
void ring_start(struct ring *r, const char *dir, int n, const char *const *options);

/* Whether the member's log has the text; waits until it has. */
bool ring_says(const struct ring *r, int i, const char *text);
void ring_await(const struct ring *r, int i, const char *text);

/* Waits until the member ends, with this exit status. */
void ring_expect_exit(struct ring *r, int i, int status);

/* What a member has saved. */
struct ring_state {
    unsigned char file[1 << 20];
    size_t bytes;
    uint32_t version, flags;  /* of the file */
    uint64_t n_floats, clock; /* the library's */
    uint64_t steps;           /* psworker's */
};
void ring_read_state(const struct ring *r, int i, struct ring_state *out);

#endif
