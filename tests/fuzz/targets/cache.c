/* Caches of decoded images: every pixel of what is accepted lies in the file. The first byte is how many
 * training images are asked for, and whether the sums are made to fit, so that what lies behind them is
 * reached. */
#include <string.h>

#include "nets/data/images/cache.h"
#include "proto/log.h"
#include "tests/fuzz/fuzz.h"

static void read_all(struct cnn_cache *c)
{
    volatile uint8_t last;
    for (uint64_t i = 0; i < c->n; i++) {
        struct cnn_picture p;
        if (!cnn_cache_picture(c, i < c->n_train ? CNN_TRAIN : CNN_TEST,
                               (uint32_t)(i < c->n_train ? i : i - c->n_train), &p))
            continue;
        promise(p.width > 0 && p.height > 0);
        last = p.rgb[3 * (size_t)p.width * p.height - 1];
        (void)last;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct ps_error err = {""};
    struct cnn_cache c;

    if (len == 0)
        return 0;
    ps_log_set_lowest(PS_LOG_ERROR);
    struct cnn_cache_wish wish = {.side = 8, .n_train = bytes[0] % 4, .n_test = 1, .key = 7};
    bool fits = bytes[0] & 4;
    uint64_t index = (wish.n_train + wish.n_test) * CNN_CACHE_ROW;
    uint8_t *file = malloc(len);
    promise(file != NULL);
    memcpy(file, bytes + 1, --len);
    if (fits && len >= CNN_CACHE_HEADER + index)
        cnn_cache_pack_header(&wish, len, cnn_cache_sum(file + CNN_CACHE_HEADER, index), file);
    if (cnn_cache_check(file, len, &wish, &c, &err) != 0) {
        promise(*err.text != '\0');
    } else {
        promise(c.n == wish.n_train + wish.n_test);
        c.seen = calloc(c.n, 1);
        promise(c.seen != NULL);
        read_all(&c);
        free(c.seen);
    }
    free(file);
    return 0;
}
