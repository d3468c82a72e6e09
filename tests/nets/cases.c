#include "tests/nets/cases.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define N_LAYERS(a) (sizeof a / sizeof a[0])

#define CONV(N, OUT, KERNEL, STRIDE, PAD)                                                                    \
    {                                                                                                        \
        .kind = CNN_CONV, .name = N, .n_out = OUT, .kernel = KERNEL, .stride = STRIDE, .pad = PAD            \
    }
#define POOL(N, KERNEL, STRIDE, PAD)                                                                         \
    {                                                                                                        \
        .kind = CNN_MAXPOOL, .name = N, .kernel = KERNEL, .stride = STRIDE, .pad = PAD                       \
    }
#define RELU(N)                                                                                              \
    {                                                                                                        \
        .kind = CNN_RELU, .name = N                                                                          \
    }
#define RELU_OF(N, FROM)                                                                                     \
    {                                                                                                        \
        .kind = CNN_RELU, .name = N, .inputs = { FROM }                                                      \
    }
#define GROUPED(N, OUT, KERNEL, PAD, GROUPS)                                                                 \
    {                                                                                                        \
        .kind = CNN_CONV, .name = N, .n_out = OUT, .kernel = KERNEL, .stride = 1, .pad = PAD,                \
        .groups = GROUPS                                                                                     \
    }
#define CONV_OF(N, FROM, OUT, KERNEL, PAD)                                                                   \
    {                                                                                                        \
        .kind = CNN_CONV, .name = N, .inputs = {FROM}, .n_out = OUT, .kernel = KERNEL, .stride = 1,          \
        .pad = PAD                                                                                           \
    }
#define AVG(N, KERNEL, STRIDE, PAD)                                                                          \
    {                                                                                                        \
        .kind = CNN_AVGPOOL, .name = N, .kernel = KERNEL, .stride = STRIDE, .pad = PAD                       \
    }
#define GLOBAL(N)                                                                                            \
    {                                                                                                        \
        .kind = CNN_GLOBAL_AVGPOOL, .name = N                                                                \
    }
#define DROP(N, RATE)                                                                                        \
    {                                                                                                        \
        .kind = CNN_DROPOUT, .name = N, .rate = RATE                                                         \
    }
#define DROP_OF(N, FROM)                                                                                     \
    {                                                                                                        \
        .kind = CNN_DROPOUT, .name = N, .inputs = {FROM}, .rate = 0.5f                                       \
    }
/* A larger alpha than usual, so that an error in the sum over neighbours shows. */
#define LRN(N, SIZE, BETA)                                                                                   \
    {                                                                                                        \
        .kind = CNN_LRN, .name = N, .size = SIZE, .alpha = 0.7f, .beta = BETA, .k = 1.5f                     \
    }
#define NORM(N)                                                                                              \
    {                                                                                                        \
        .kind = CNN_BATCHNORM, .name = N                                                                     \
    }
#define CONCAT(N, ...)                                                                                       \
    {                                                                                                        \
        .kind = CNN_CONCAT, .name = N, .inputs = { __VA_ARGS__ }                                             \
    }
#define ADD(N, ...)                                                                                          \
    {                                                                                                        \
        .kind = CNN_ADD, .name = N, .inputs = { __VA_ARGS__ }                                                \
    }
#define FC_OF(N, FROM, OUT)                                                                                  \
    {                                                                                                        \
        .kind = CNN_FC, .name = N, .inputs = {FROM}, .n_out = OUT                                            \
    }
#define FC(N, OUT)                                                                                           \
    {                                                                                                        \
        .kind = CNN_FC, .name = N, .n_out = OUT, .filler = CNN_FILL_MSRA                                     \
    }
#define GLOBAL_MAX(N)                                                                                        \
    {                                                                                                        \
        .kind = CNN_GLOBAL_MAXPOOL, .name = N                                                                \
    }
#define ACT(N, KIND)                                                                                         \
    {                                                                                                        \
        .kind = KIND, .name = N                                                                              \
    }
#define LEAKY(N, SLOPE)                                                                                      \
    {                                                                                                        \
        .kind = CNN_LEAKY_RELU, .name = N, .slope = SLOPE                                                    \
    }
#define UNBIASED(N, OUT, KERNEL, PAD)                                                                        \
    {                                                                                                        \
        .kind = CNN_CONV, .name = N, .n_out = OUT, .kernel = KERNEL, .stride = 1, .pad = PAD,                \
        .has_no_bias = true                                                                                  \
    }
#define LOSS_OF(N, FROM, WEIGHT)                                                                             \
    {                                                                                                        \
        .kind = CNN_SOFTMAX_LOSS, .name = N, .inputs = {FROM}, .weight = WEIGHT                              \
    }
#define LOSS                                                                                                 \
    {                                                                                                        \
        .kind = CNN_SOFTMAX_LOSS, .name = "loss"                                                             \
    }

#define CASE(NAME, C, H, W, ...)                                                                             \
    static const struct cnn_layer_spec NAME##_layers[] = {__VA_ARGS__, FC("last", 5), LOSS};                 \
    static const struct cnn_model NAME = {#NAME, C, H, W, 5, NAME##_layers, N_LAYERS(NAME##_layers), "test"}

/* 17 to 20 channels take the vector paths with a tail, fewer than 16 the scalar ones. */
CASE(conv_padded, 3, 7, 6, CONV("a", 4, 3, 1, 1));
CASE(conv_strided, 2, 9, 8, CONV("a", 17, 3, 2, 1), CONV("b", 6, 2, 1, 0));
CASE(conv_uncovered, 3, 8, 8, CONV("a", 5, 3, 2, 0)); /* the last row and column are seen by no window */
CASE(pool_ceil, 3, 7, 7, CONV("a", 20, 1, 1, 0), POOL("p", 2, 2, 0));
CASE(pool_overlap, 3, 8, 7, CONV("a", 18, 1, 1, 0), POOL("p", 3, 2, 0));
CASE(pool_padded, 3, 7, 8, CONV("a", 16, 1, 1, 0), POOL("p", 3, 2, 1));
CASE(pool_gaps, 3, 9, 8, CONV("a", 19, 2, 1, 0), POOL("p", 2, 3, 0), CONV("b", 4, 2, 1, 0));
CASE(pool_few, 2, 9, 9, CONV("a", 3, 2, 1, 0), POOL("p", 2, 2, 0), CONV("b", 3, 2, 1, 0), POOL("q", 3, 2, 0));
/* A padded convolution keeps onednn from taking it and the pool backward in one. */
CASE(alone_overlap, 3, 8, 7, CONV("a", 18, 3, 1, 1), POOL("p", 3, 2, 0));
CASE(alone_padded, 3, 7, 8, CONV("a", 16, 3, 1, 1), POOL("p", 3, 2, 1));
CASE(alone_gaps, 3, 9, 8, CONV("a", 19, 3, 1, 1), POOL("p", 2, 3, 0), CONV("b", 4, 2, 1, 0));
/* onednn leaves a ReLU before a pool to the pool. */
CASE(relu_overlap, 3, 8, 7, CONV("a", 18, 1, 1, 0), RELU("r"), POOL("p", 3, 2, 0));
CASE(relu_alone, 3, 7, 8, CONV("a", 16, 3, 1, 1), RELU("r"), POOL("p", 3, 2, 1));
CASE(relu_gaps, 3, 9, 8, CONV("a", 19, 2, 1, 0), RELU("r"), POOL("p", 2, 3, 0), CONV("b", 4, 2, 1, 0));
CASE(relu_shared, 3, 8, 8, CONV("a", 18, 1, 1, 0), RELU("r"), POOL("p", 2, 2, 0), CONV_OF("b", "r", 5, 5, 0),
     CONCAT("c", "p", "b"));
/* What the ReLU reads is read elsewhere too. */
CASE(relu_beside, 3, 8, 8, CONV("a", 18, 1, 1, 0), RELU("r"), POOL("p", 2, 2, 0), CONV_OF("b", "a", 5, 5, 0),
     CONCAT("c", "p", "b"));
CASE(pool_first, 3, 6, 6, POOL("p", 2, 2, 0), CONV("a", 4, 2, 1, 0));
CASE(relu_between, 1, 9, 9, CONV("a", 17, 3, 1, 0), RELU("r"), POOL("p", 2, 2, 0), RELU("s"), FC("f", 7),
     RELU("t"));
CASE(relu_first, 2, 5, 5, RELU("r"), CONV("a", 6, 3, 1, 0), RELU("s"));
CASE(small_lenet, 1, 14, 14, CONV("a", 6, 3, 1, 0), POOL("p", 2, 2, 0), CONV("b", 21, 3, 1, 0),
     POOL("q", 2, 2, 0), FC("f", 11), RELU("r"));
CASE(wide_rows, 1, 13, 12, CONV("a", 30, 3, 1, 0), POOL("p", 2, 1, 0), CONV("b", 18, 5, 2, 0),
     POOL("q", 3, 2, 1));

CASE(grouped, 6, 7, 6, GROUPED("a", 9, 3, 1, 3), RELU("r"), GROUPED("b", 6, 2, 0, 3));
CASE(grouped_wide, 32, 6, 6, GROUPED("a", 32, 3, 1, 2), POOL("p", 2, 2, 0));
CASE(depthwise, 5, 6, 6, CONV("c", 8, 1, 1, 0), GROUPED("a", 8, 3, 0, 8));
CASE(avg, 3, 7, 8, CONV("a", 18, 2, 1, 0), AVG("p", 2, 2, 0));
CASE(avg_padded, 3, 7, 7, CONV("a", 5, 1, 1, 0), AVG("p", 3, 2, 1), CONV("b", 4, 2, 1, 0));
CASE(avg_ceil, 2, 9, 8, AVG("p", 3, 2, 0), CONV("a", 17, 2, 1, 0), AVG("q", 2, 3, 0));
CASE(global, 3, 6, 7, CONV("a", 19, 2, 1, 0), RELU("r"), GLOBAL("p"));
CASE(global_first, 3, 5, 5, GLOBAL("p"), FC("f", 6));
CASE(dropped, 2, 5, 5, FC("f", 37), RELU("r"), DROP("d", 0.5f), FC("g", 9));
CASE(dropped_places, 3, 6, 5, CONV("a", 18, 2, 1, 0), RELU("r"), DROP("d", 0.3f), CONV("b", 4, 2, 1, 0));
CASE(dropped_images, 3, 5, 5, DROP("d", 0.2f), CONV("a", 4, 3, 1, 1), DROP("e", 0.0f));
CASE(dropped_twice, 2, 5, 5, FC("f", 20), DROP_OF("d", "f"), DROP_OF("e", "f"), ADD("s", "d", "e"));
CASE(lrn, 3, 5, 4, CONV("a", 18, 2, 1, 0), LRN("n", 5, 0.75f));
CASE(lrn_few, 3, 6, 6, LRN("m", 5, 0.75f), CONV("a", 3, 2, 1, 0), LRN("n", 7, 0.75f), POOL("p", 2, 2, 0));
CASE(lrn_power, 2, 5, 5, CONV("a", 17, 2, 1, 0), RELU("r"), LRN("n", 3, 0.6f));
CASE(norm, 3, 6, 5, CONV("a", 18, 2, 1, 0), NORM("n"), RELU("r"));
CASE(norm_first, 2, 5, 5, NORM("n"), CONV("a", 3, 3, 1, 0), NORM("m"));
/* Two values of a channel normalise to +-1 whatever they are; a large epsilon leaves them a gradient. */
CASE(norm_flat, 1, 5, 5, CONV("a", 1, 2, 1, 0), NORM("o"), FC("f", 21),
     {.kind = CNN_BATCHNORM, .name = "n", .epsilon = 1}, RELU("r"));
CASE(concat, 3, 6, 5, CONV("a", 17, 3, 1, 1), CONV_OF("b", "images", 4, 1, 0),
     CONCAT("c", "b", "images", "a"), CONV("d", 5, 2, 1, 0));
CASE(concat_same, 2, 5, 5, CONV("a", 4, 2, 1, 0), CONCAT("c", "a", "a"), CONV("d", 3, 2, 1, 0));
CASE(concat_flat, 2, 5, 5, FC("a", 7), FC_OF("b", "images", 3), RELU("r"), CONCAT("c", "r", "a"));
CASE(add, 3, 6, 5, CONV("a", 18, 3, 1, 1), RELU("r"), CONV("b", 18, 3, 1, 1), ADD("s", "b", "r"), RELU("t"));
CASE(add_same, 2, 5, 5, CONV("a", 4, 2, 1, 0), ADD("s", "a", "a", "a"));
CASE(read_twice, 2, 6, 6, CONV("a", 17, 1, 1, 0), RELU_OF("r", "a"), RELU_OF("t", "r"),
     CONV_OF("b", "a", 17, 1, 0), ADD("s", "t", "b", "r"));
/* One reader wants [C][H][W], the other [H][W][C]. */
CASE(both_layouts, 2, 6, 6, CONV("a", 6, 1, 1, 0), POOL("p", 2, 2, 0), FC_OF("f", "p", 5),
     CONV_OF("b", "p", 4, 3, 0), CONCAT("c", "f", "b"));
CASE(both_layouts_first, 2, 4, 4, CONV("a", 5, 4, 1, 0), FC_OF("f", "images", 5), ADD("s", "a", "f"));
CASE(small_residual, 3, 8, 8, CONV("a", 6, 3, 1, 1), NORM("an"), RELU("ar"), CONV("b", 6, 3, 1, 1),
     NORM("bn"), ADD("bs", "bn", "ar"), RELU("br"), CONV_OF("short", "br", 8, 1, 0), NORM("sn"),
     CONV_OF("c", "br", 8, 3, 1), NORM("cn"), ADD("cs", "cn", "sn"), RELU("cr"), GLOBAL("g"));
CASE(small_alexnet, 3, 9, 9, CONV("a", 6, 3, 1, 1), RELU("ar"), LRN("an", 5, 0.75f), POOL("ap", 3, 2, 0),
     GROUPED("b", 8, 3, 1, 2), RELU("br"), POOL("bp", 3, 2, 0), FC("f", 12), RELU("fr"), DROP("fd", 0.5f));

/* Windows that are not square, pads on four sides, dilation, no bias, floor or ceiling. */
CASE(conv_oblong, 3, 7, 9,
     {.kind = CNN_CONV, .name = "a", .n_out = 17, .kernel = 3, .kernel_w = 2, .stride = 1, .stride_w = 2},
     CONV("b", 4, 2, 1, 0));
CASE(conv_sides, 3, 6, 5,
     {.kind = CNN_CONV, .name = "a", .n_out = 5, .kernel = 3, .stride = 1, .pads = {2, 0, 1, 2}},
     {.kind = CNN_CONV, .name = "b", .n_out = 18, .kernel = 2, .stride = 2, .pads = {0, 1, 0, 0}});
CASE(conv_dilated, 2, 9, 8,
     {.kind = CNN_CONV, .name = "a", .n_out = 18, .kernel = 3, .stride = 1, .pad = 1, .dilation = 2},
     {.kind = CNN_CONV, .name = "b", .n_out = 4, .kernel = 2, .stride = 2, .dilation = 3});
CASE(conv_unbiased, 3, 7, 7, UNBIASED("a", 18, 3, 1), NORM("n"), RELU("r"), UNBIASED("b", 5, 2, 0),
     POOL("p", 2, 2, 0));
CASE(fc_unbiased, 2, 4, 4, {.kind = CNN_FC, .name = "f", .n_out = 9, .has_no_bias = true}, RELU("r"));
CASE(pool_floor, 3, 8, 7, CONV("a", 18, 3, 1, 1),
     {.kind = CNN_MAXPOOL, .name = "p", .kernel = 3, .stride = 2, .rounding = CNN_FLOOR});
CASE(pool_oblong, 3, 7, 9, CONV("a", 18, 1, 1, 0), RELU("r"),
     {.kind = CNN_MAXPOOL,
      .name = "p",
      .kernel = 2,
      .kernel_w = 3,
      .stride = 2,
      .stride_w = 3,
      .pads = {1, 0, 0, 2}});
CASE(pool_wide, 2, 18, 17, CONV("a", 6, 1, 1, 0), RELU("r"), POOL("p", 17, 1, 1));
CASE(pool_wide_flat, 2, 17, 17, CONV("a", 6, 1, 1, 0), POOL("p", 17, 1, 0), FC("f", 4));
CASE(avg_uncounted, 3, 7, 7, CONV("a", 5, 1, 1, 0),
     {.kind = CNN_AVGPOOL, .name = "p", .kernel = 3, .stride = 2, .pad = 1, .skips_padding = true},
     CONV("b", 4, 2, 1, 0));
CASE(avg_sides, 2, 7, 8,
     {.kind = CNN_AVGPOOL,
      .name = "p",
      .kernel = 3,
      .kernel_w = 2,
      .stride = 2,
      .rounding = CNN_FLOOR,
      .pads = {0, 1, 2, 0}},
     CONV("a", 17, 2, 1, 0));
CASE(global_max, 3, 6, 7, CONV("a", 19, 2, 1, 0), RELU("r"), GLOBAL_MAX("p"));
CASE(global_max_first, 3, 5, 6, GLOBAL_MAX("p"), FC("f", 6));
CASE(lrn_even, 3, 5, 4, CONV("a", 18, 2, 1, 0), LRN("n", 4, 0.75f));
CASE(lrn_whole, 2, 4, 4, CONV("a", 7, 2, 1, 0), LRN("n", 300, 0.5f), LRN("m", 1, 0.75f));
/* cuda takes 16 bytes of channels at once where all are such groups: here, in float32 and in bf16. */
CASE(grouped_max, 3, 8, 7, CONV("a", 24, 1, 1, 0), POOL("p", 3, 2, 1), POOL("q", 2, 1, 0),
     POOL("s", 1, 2, 0));
CASE(grouped_avg, 3, 8, 7, CONV("a", 24, 1, 1, 0), AVG("p", 3, 2, 1), GLOBAL("q"));
CASE(grouped_lrn, 3, 4, 5, CONV("a", 24, 2, 1, 0), LRN("n", 5, 0.75f), CONV("b", 8, 1, 1, 0),
     LRN("m", 5, 0.6f));
CASE(grouped_concat, 3, 6, 5, CONV("a", 16, 3, 1, 1), CONV_OF("b", "images", 8, 1, 0),
     CONCAT("c", "b", "a", "b"), CONV("d", 5, 2, 1, 0));
CASE(leaky, 3, 6, 5, CONV("a", 18, 2, 1, 0), LEAKY("r", 0.2f), CONV("b", 4, 2, 1, 0), LEAKY("s", 1));
CASE(relu6, 3, 6, 5, CONV("a", 18, 2, 1, 0), ACT("r", CNN_RELU6), FC("f", 7), ACT("s", CNN_RELU6));
CASE(sigmoid, 3, 6, 5, CONV("a", 18, 2, 1, 0), ACT("r", CNN_SIGMOID), FC("f", 7), ACT("s", CNN_SIGMOID));
CASE(tanh_act, 3, 6, 5, CONV("a", 18, 2, 1, 0), ACT("r", CNN_TANH), FC("f", 7), ACT("s", CNN_TANH));
/* What writes over its input must leave what the layer before needs of it. */
CASE(act_chain, 3, 6, 5, CONV("a", 18, 2, 1, 0), ACT("s", CNN_TANH), RELU("r"), POOL("p", 2, 2, 0),
     FC("f", 9), LEAKY("l", 0.3f), DROP("d", 0.4f), ACT("t", CNN_SIGMOID), DROP("e", 0.3f));
CASE(act_shared, 3, 6, 5, CONV("a", 6, 2, 1, 0), RELU("r"), ACT("s", CNN_SIGMOID), ADD("t", "r", "s"),
     ACT("u", CNN_TANH));
CASE(dropped_chain, 2, 5, 5, FC("f", 20), RELU("r"), DROP("d", 0.5f), RELU("s"), DROP("e", 0.2f));
/* Two auxiliary losses, one of them beside another reader of its logits, as the first loss is not the last.
 */
CASE(aux_losses, 3, 6, 6, CONV("a", 6, 3, 1, 1), RELU("r"), CONV("b", 5, 3, 1, 1), NORM("n"), GLOBAL("g"),
     FC("main", 5), LOSS_OF("own", "main", 0), FC_OF("left", "r", 5), LOSS_OF("leftloss", "left", 0.3f),
     FC_OF("more", "left", 5), LOSS_OF("moreloss", "more", 0.5f), FC_OF("late", "n", 7), DROP("ld", 0.5f));
CASE(frozen_start, 3, 6, 6,
     {.kind = CNN_CONV, .name = "a", .n_out = 18, .kernel = 2, .stride = 1, .is_frozen = true}, RELU("r"),
     POOL("p", 2, 2, 0), CONV("b", 5, 2, 1, 0));
CASE(frozen_middle, 3, 6, 6, CONV("a", 18, 2, 1, 0), RELU("r"),
     {.kind = CNN_CONV, .name = "b", .n_out = 17, .kernel = 2, .stride = 1, .is_frozen = true},
     POOL("p", 2, 2, 0), {.kind = CNN_FC, .name = "f", .n_out = 8, .is_frozen = true}, RELU("s"));
/* Losses without anything to train before them: the first, and one whose logits a trained layer reads too. */
CASE(frozen_losses, 3, 6, 6,
     {.kind = CNN_CONV, .name = "a", .n_out = 18, .kernel = 2, .stride = 1, .is_frozen = true}, RELU("r"),
     POOL("p", 2, 2, 0), {.kind = CNN_FC, .name = "main", .n_out = 5, .is_frozen = true},
     LOSS_OF("own", "main", 0), FC_OF("left", "p", 5), LOSS_OF("leftloss", "left", 0.3f),
     {.kind = CNN_FC, .name = "more", .inputs = {"r"}, .n_out = 5, .is_frozen = true},
     LOSS_OF("moreloss", "more", 0.5f), FC_OF("late", "more", 7), DROP("ld", 0.5f));

/* Wide enough for Winograd's method on blocks of 16 channels (nets/onednn/layout.c), with every kind of layer
 * on blocks, and every way into them and out. */
CASE(wide_chain, 3, 12, 12, CONV("a", 32, 3, 1, 1), RELU("ra"), CONV("b", 32, 3, 1, 1), NORM("n"), RELU("rn"),
     DROP("d", 0.3f), CONV_OF("c", "d", 24, 1, 0), RELU("rc"), CONV_OF("e", "rc", 32, 5, 2),
     CONCAT("cat", "rn", "e"), POOL("p", 3, 2, 0), CONV("f", 48, 3, 1, 1), AVG("v", 2, 2, 0),
     LEAKY("l", 0.2f), FC("g", 9), ACT("t", CNN_TANH));
CASE(wide_residual, 3, 8, 8, UNBIASED("a", 32, 3, 1), NORM("na"), RELU("ra"), UNBIASED("b", 32, 3, 1),
     NORM("nb"), ADD("s", "nb", "ra"), RELU("rs"), CONV("c", 64, 3, 2, 1), NORM("nc"), RELU("rc"),
     CONV("e", 64, 3, 1, 1), NORM("ne"), CONV_OF("h", "rs", 64, 2, 0), POOL("ph", 2, 2, 0),
     ADD("z", "ne", "ph"), RELU("rz"), GLOBAL("g"));
CASE(wide_sides, 3, 8, 8, CONV("a", 32, 3, 1, 1), LRN("n", 5, 0.75f), CONV("b", 48, 3, 1, 1),
     LRN("m", 3, 0.5f), CONV("c", 32, 3, 1, 1), RELU("r"), GROUPED("h", 32, 3, 1, 2), ACT("s", CNN_SIGMOID),
     GLOBAL_MAX("g"));
CASE(wide_flat, 1, 8, 8, CONV("a", 32, 3, 1, 1), RELU("r"), CONV("b", 32, 3, 1, 1), POOL("p", 2, 2, 0),
     RELU("q"), DROP("d", 0.5f), FC("f", 11));
CASE(wide_beside, 16, 8, 8, CONV("a", 32, 3, 1, 1), RELU("r"), CONV("b", 16, 3, 1, 1),
     CONCAT("cat", "b", "images"), ACT("s", CNN_RELU6), CONV("c", 32, 3, 1, 1), AVG("v", 3, 2, 1));
CASE(wide_frozen, 3, 8, 8, CONV("a", 32, 3, 1, 1), RELU("r"),
     {.kind = CNN_CONV, .name = "b", .n_out = 32, .kernel = 3, .stride = 1, .pad = 1, .is_frozen = true},
     POOL("p", 9, 1, 8), CONV("c", 32, 3, 1, 0), FC("f", 7));

const struct cnn_model *const wide_cases[] = {&wide_chain,  &wide_residual, &wide_sides, &wide_flat,
                                              &wide_beside, &wide_frozen,   NULL};

extern const struct cnn_model cnn_model_lenet, cnn_model_linear, cnn_model_mlp, cnn_model_cifar7,
    cnn_model_alexnet_cifar, cnn_model_resnet8;

const struct cnn_model *const cases[] = {&conv_padded,
                                         &conv_strided,
                                         &conv_uncovered,
                                         &pool_ceil,
                                         &pool_overlap,
                                         &pool_padded,
                                         &pool_gaps,
                                         &pool_few,
                                         &alone_overlap,
                                         &alone_padded,
                                         &alone_gaps,
                                         &relu_overlap,
                                         &relu_alone,
                                         &relu_gaps,
                                         &relu_shared,
                                         &relu_beside,
                                         &pool_first,
                                         &relu_between,
                                         &relu_first,
                                         &small_lenet,
                                         &wide_rows,
                                         &grouped,
                                         &grouped_wide,
                                         &depthwise,
                                         &avg,
                                         &avg_padded,
                                         &avg_ceil,
                                         &global,
                                         &global_first,
                                         &dropped,
                                         &dropped_places,
                                         &dropped_images,
                                         &dropped_twice,
                                         &lrn,
                                         &lrn_few,
                                         &lrn_power,
                                         &norm,
                                         &norm_first,
                                         &norm_flat,
                                         &concat,
                                         &concat_same,
                                         &concat_flat,
                                         &add,
                                         &add_same,
                                         &read_twice,
                                         &both_layouts,
                                         &both_layouts_first,
                                         &small_residual,
                                         &small_alexnet,
                                         &conv_oblong,
                                         &conv_sides,
                                         &conv_dilated,
                                         &conv_unbiased,
                                         &fc_unbiased,
                                         &pool_floor,
                                         &pool_oblong,
                                         &pool_wide,
                                         &pool_wide_flat,
                                         &avg_uncounted,
                                         &avg_sides,
                                         &global_max,
                                         &global_max_first,
                                         &lrn_even,
                                         &lrn_whole,
                                         &grouped_max,
                                         &grouped_avg,
                                         &grouped_lrn,
                                         &grouped_concat,
                                         &leaky,
                                         &relu6,
                                         &sigmoid,
                                         &tanh_act,
                                         &act_chain,
                                         &act_shared,
                                         &dropped_chain,
                                         &aux_losses,
                                         &frozen_start,
                                         &frozen_middle,
                                         &frozen_losses,
                                         &cnn_model_linear,
                                         &cnn_model_lenet,
                                         NULL};

const struct cnn_model *const whole_models[] = {&cnn_model_mlp, &cnn_model_cifar7, &cnn_model_resnet8,
                                                &cnn_model_alexnet_cifar, NULL};

const char *tested_backend(size_t index)
{
    const char *asked = getenv("TEST_BACKEND");
    const char *const one[] = {asked, "ref", NULL};

    if (asked != NULL)
        return one[index];
    return index > 0 && strcmp(cnn_backend_name(index - 1), "ref") == 0 ? NULL : cnn_backend_name(index);
}

bool scores_as_it_trains(const struct cnn_model *model)
{
    for (size_t i = 0; i < model->n_layers; i++)
        if (model->layers[i].kind == CNN_DROPOUT || model->layers[i].kind == CNN_BATCHNORM ||
            (model->layers[i].kind == CNN_SOFTMAX_LOSS && i + 1 < model->n_layers))
            return false;
    return true;
}

/* xorshift64*: the tests need no more. */
static float random_value(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (float)((*state * UINT64_C(0x2545f4914f6cdd1d)) >> 40) * 0x1p-23f - 1.0f;
}

/* Whole pages for `bytes`, without the page that guards their end. */
static size_t guarded_span(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static void *guarded(size_t bytes)
{
    size_t span = guarded_span(bytes), page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, span + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    ck_assert_ptr_ne(p, MAP_FAILED);
    ck_assert_int_eq(mprotect(p + span, page, PROT_NONE), 0);
    return p + span - bytes;
}

static void release(void *p, size_t bytes)
{
    size_t span = guarded_span(bytes);
    munmap((char *)p + bytes - span, span + (size_t)sysconf(_SC_PAGESIZE));
}

/* A bias of 0 or a scale of 1 would hide an error in its use. */
static void disturb(const struct cnn_param *p, float *x, uint64_t *state)
{
    if (p->fan_in > 0)
        return;
    for (size_t k = 0; k < param_floats(p); k++)
        x[p->offset + k] += 0.3f * random_value(state);
}

void bed_create(struct bed *b, const struct cnn_model *model, uint32_t batch)
{
    struct ps_error err = {""};
    uint64_t state = 88172645463325252u;

    *b = (struct bed){.model = model, .batch = batch, .n_floats = cnn_model_n_floats(model)};
    b->n_pixels = (size_t)model->channels * model->height * model->width;
    b->x = guarded(b->n_floats * sizeof *b->x);
    b->g = guarded(b->n_floats * sizeof *b->g);
    b->images = guarded(batch * b->n_pixels * sizeof *b->images);
    b->labels = guarded(batch * sizeof *b->labels);
    ck_assert_msg(cnn_model_params(model, &b->params, &b->n_params, &err) == 0, "%s", err.text);
    ck_assert_int_eq(cnn_model_fill(model, 7, b->x), 0);
    for (size_t i = 0; i < b->n_params; i++)
        disturb(&b->params[i], b->x, &state);
    for (size_t i = 0; i < batch * b->n_pixels; i++)
        b->images[i] = random_value(&state);
    for (uint32_t i = 0; i < batch; i++)
        b->labels[i] = (uint16_t)((i * 7 + 3) % model->classes);
}

void bed_destroy(struct bed *b)
{
    release(b->x, b->n_floats * sizeof *b->x);
    release(b->g, b->n_floats * sizeof *b->g);
    release(b->images, b->batch * b->n_pixels * sizeof *b->images);
    release(b->labels, b->batch * sizeof *b->labels);
    free(b->params);
}

struct cnn_net *net_of(const struct cnn_model *model, const char *backend, uint32_t batch, uint32_t threads)
{
    struct cnn_net_options opt = {.model = model, .backend = backend, .batch = batch, .threads = threads};
    struct ps_error err = {""};
    struct cnn_net *net = NULL;

    ck_assert_msg(cnn_net_create(&opt, &net, &err) == 0, "%s", err.text);
    return net;
}

size_t param_floats(const struct cnn_param *p)
{
    size_t n = 1;
    for (uint32_t d = 0; d < p->n_dims; d++)
        n *= p->shape[d];
    return n;
}

double scale_of(const struct bed *b, const float *g, const struct cnn_param *p)
{
    double all = 1e-6, own = 0;

    for (size_t i = 0; i < b->n_floats; i++)
        all = fmax(all, fabs((double)g[i]));
    for (size_t k = 0; k < param_floats(p); k++)
        own = fmax(own, fabs((double)g[p->offset + k]));
    return fmax(own, 0.01 * all);
}

void assert_close(const struct bed *b, const char *backend, const float *g, const float *expected,
                  double tolerance)
{
    for (size_t i = 0; i < b->n_params; i++) {
        const struct cnn_param *p = &b->params[i];
        double scale = scale_of(b, expected, p);
        for (size_t k = 0; k < param_floats(p); k++) {
            double a = (double)g[p->offset + k], e = (double)expected[p->offset + k];
            bool is_close = p->role != CNN_PARAM ? a == 0 && e == 0 : fabs(a - e) <= tolerance * scale;
            if (!is_close) /* Check writes down every assertion that it passes */
                ck_abort_msg("%s, %s, %s[%zu]: %.9g, expected %.9g; the tensor's scale is %.3g", backend,
                             b->model->name, p->name, k, a, e, scale);
        }
    }
}
