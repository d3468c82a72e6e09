/* halves.h: a short training whose gradients have two halves beside one whose gradients have none. */
#ifndef TEST_HALVES_H
#define TEST_HALVES_H

#include "tests/nets/cases.h"

/* Where x and g lie, and who moves x. */
struct halves_place {
    float *(*make)(const float *from, size_t n); /* a copy in that memory */
    void (*read)(struct cnn_net *net, float *to, const float *from, size_t n);
    /* x <- g in [from, from + n), behind the work of the net. */
    void (*move)(struct cnn_net *net, float *x, const float *g, size_t from, size_t n);
    void (*free)(float *p);
};
extern const struct halves_place halves_on_host;

struct halves_way {
    bool in_halves;               /* each gradient begins before the one before has ended */
    bool is_pinned, is_announced; /* batches: in memory of cnn_net_alloc; announced */
    bool spoils;                  /* each batch is overwritten as soon as its gradient has begun */
    bool has_tables;              /* each batch has a table of values of its own */
};

enum { HALVES_STEPS = 6, HALVES_BATCH = 3 };
struct halves_course {
    struct cnn_score scores[HALVES_STEPS];
    float *x, *g; /* at the end, on the host */
};

/* Trains a net of HALVES_BATCH images from b's point. */
void halves_train(struct cnn_net *net, const struct bed *b, const struct halves_place *place,
                  struct halves_way way, struct halves_course *out);
void halves_free(struct halves_course *c);
void halves_assert_scores(const struct halves_course *a, const struct halves_course *b);
void halves_assert_vectors(const struct bed *bed, const struct halves_course *a,
                           const struct halves_course *b);

/* For each of n backends. */
TCase *halves_case(int n_backends);

#endif
