/* cluster_fixture.h: the loops of a head and of one other server (server/cluster) in one thread, and between
 * them a wire that loses, repeats and holds back what the test says. Each has one lane of its own without a
 * thread: the test takes what it is told out of its ring, and says for it what a lane says. Time is driven
 * (tests/support/driven_clock.h): a turn takes 10 ms of it, however long the machine does. */
#ifndef TEST_SERVER_CLUSTER_FIXTURE_H
#define TEST_SERVER_CLUSTER_FIXTURE_H

#include <stdbool.h>

#include "server/psd.h"
#include "tests/support/unit.h"

enum { PAIR_CLIENTS = 16, PAIR_TURN_MS = 10, PAIR_HANG_TURNS = 100000 };

struct pair {
    struct psd head, other;
    void *context, *near, *far; /* the wire's ends: at the head, and at the other server */
    char url[64];               /* of the far end */
    unsigned char id[64];       /* the other server's, at the far end; id_bytes 0: it has not come */
    size_t id_bytes;
    struct dice dice;
    uint32_t lose_percent;           /* of messages in both directions */
    uint32_t lose_orders, lose_news; /* so many of the next that carry something for a lane, or a note */
    uint32_t lose_places;            /* so many of the next by which the head places the other server */
    bool other_stands;
    unsigned char enlist[1 << 16]; /* the last Enlist, as it travelled */
    size_t enlist_bytes;
    uint32_t n_complete, n_refused; /* the head was complete; Errors that it said to the other */
    uint64_t n_turns;
};

/* setting: one more of both configurations, or NULL. */
void pair_open(struct pair *p, const char *setting);
void pair_close(struct pair *p);
/* One turn of everybody. */
void pair_turn(struct pair *p);
/* Time goes on by so much, of which the other server has a part unless it stands. */
void pair_pass_ms(struct pair *p, uint32_t ms);
/* Stops the other server, or lets it go on: it neither takes nor says anything, and what comes waits.
 * When it goes on, it looks at the clock before it hears what has come. */
void pair_stand(struct pair *p, bool stands);
/* The wire is cut: what is on it is lost, and the head sees another peer from then on. */
void pair_cut(struct pair *p);
/* The next note that this psd's own lane is told; false: none is there. */
bool pair_told(struct psd *d, struct psd_lane_message *msg);
/* The other server's lane says this. */
void pair_say(struct pair *p, const struct psd_lane_message *msg);

/* True; fails the test after end_s of the real clock and end_turns turns. A turn takes as long as the machine
 * likes, and some tests need thousands. */
bool pair_may_go_on(const struct pair *p, double end_s, uint64_t end_turns, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Turns while the condition holds, each after what follows; fails the test when it does not end. */
#define PAIR_WHILE(p, condition, ...)                                                                        \
    for (struct {                                                                                            \
             double s;                                                                                       \
             uint64_t turns;                                                                                 \
         } pair_end = {unit_now_s() + UNIT_HANG_S, (p)->n_turns + PAIR_HANG_TURNS};                          \
         (condition) && pair_may_go_on(p, pair_end.s, pair_end.turns, __VA_ARGS__); pair_turn(p))

#endif
