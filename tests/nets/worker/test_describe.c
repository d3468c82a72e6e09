/* psworker --describe: its rows add up to what the model says of itself, for every model; its JSON parses and
 * says the same. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/worker/run.h"
#include "tests/nets/data/suite.h"

static size_t n_models(void)
{
    size_t n = 0;
    while (cnn_models[n]->name != NULL)
        n++;
    return n;
}

START_TEST(rows_add_up)
{
    const struct cnn_model *m = cnn_models[_i];
    struct cnn_layer_row *rows;
    size_t n;
    uint64_t floats = 0;
    double flops = 0;
    ck_assert_int_eq(cnn_model_describe(m, &rows, &n, NULL), 0);
    ck_assert_uint_eq(n, m->n_layers);
    for (size_t i = 0; i < n; i++) {
        ck_assert_str_eq(rows[i].name, m->layers[i].name);
        ck_assert_uint_ge(rows[i].n_inputs, 1);
        floats += rows[i].n_params + rows[i].n_buffers;
        flops += rows[i].forward_flops + rows[i].backward_flops;
    }
    ck_assert_str_eq(rows[0].inputs[0], "images");
    ck_assert_str_eq(rows[n - 1].kind, "softmax-loss");
    ck_assert_uint_eq(rows[n - 1].channels, m->classes);
    ck_assert_uint_eq(floats, cnn_model_n_floats(m));
    ck_assert_double_eq_tol(flops, cnn_model_train_flops(m), 1e-9 * flops);
    free(rows);
}
END_TEST

/* Worked out by hand: 20 maps of 5 x 5 weights on 28 x 28, and so on. */
START_TEST(lenet_by_hand)
{
    static const struct {
        const char *name, *kind;
        uint32_t c, h, w;
        uint64_t params;
        double forward, backward;
    } expected[] = {
        {"conv1", "conv", 20, 24, 24, 520, 2.0 * 25 * 20 * 576, 2.0 * 25 * 20 * 576},
        {"pool1", "maxpool", 20, 12, 12, 0, 0, 0},
        {"conv2", "conv", 50, 8, 8, 25050, 2.0 * 500 * 50 * 64, 4.0 * 500 * 50 * 64},
        {"pool2", "maxpool", 50, 4, 4, 0, 0, 0},
        {"fc1", "fc", 500, 1, 1, 400500, 2.0 * 800 * 500, 4.0 * 800 * 500},
        {"relu1", "relu", 500, 1, 1, 0, 0, 0},
        {"fc2", "fc", 10, 1, 1, 5010, 2.0 * 500 * 10, 4.0 * 500 * 10},
        {"loss", "softmax-loss", 10, 1, 1, 0, 0, 0},
    };
    struct cnn_layer_row *rows;
    size_t n;
    ck_assert_int_eq(cnn_model_describe(cnn_model_find("lenet"), &rows, &n, NULL), 0);
    ck_assert_uint_eq(n, sizeof expected / sizeof *expected);
    for (size_t i = 0; i < n; i++) {
        ck_assert_str_eq(rows[i].name, expected[i].name);
        ck_assert_str_eq(rows[i].kind, expected[i].kind);
        ck_assert_uint_eq(rows[i].channels, expected[i].c);
        ck_assert_uint_eq(rows[i].height, expected[i].h);
        ck_assert_uint_eq(rows[i].width, expected[i].w);
        ck_assert_uint_eq(rows[i].n_params, expected[i].params);
        ck_assert_double_eq(rows[i].forward_flops, expected[i].forward);
        ck_assert_double_eq(rows[i].backward_flops, expected[i].backward);
    }
    free(rows);
}
END_TEST

static char *describe(const char *net, uint64_t batch, bool json)
{
    struct cnn_worker_args args = {
        .describe = net, .batch = batch, .seed = 1, .threads = 1, .backend = "ref", .json = json};
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(cnn_describe(&args, out), CNN_EXIT_OK);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

/* What was chosen, and why, in both forms; what cannot be is refused. */
START_TEST(partitions_are_explained)
{
    struct cnn_worker_args args = {.describe = "lenet",
                                   .data = "digits",
                                   .batch = 4,
                                   .threads = 1,
                                   .backend = "ref",
                                   .partitions = "1",
                                   .n_partitions = 1,
                                   .json = _i == 1};
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    ck_assert_int_eq(cnn_describe(&args, out), CNN_EXIT_OK);
    ck_assert_int_eq(fclose(out), 0);
    if (_i == 0) {
        assert_says(text, "1 partition of ");
        assert_says(text, "cores that this process may use");
    } else {
        json_t *all = json_loads(text, 0, NULL);
        ck_assert_ptr_nonnull(all);
        const json_t *parts = json_object_get(all, "partitions");
        ck_assert_int_eq(json_integer_value(json_object_get(parts, "partitions")), 1);
        ck_assert_int_eq(json_integer_value(json_object_get(parts, "threads")),
                         json_integer_value(json_object_get(parts, "cores")));
        assert_says(json_string_value(json_object_get(parts, "why")), "1 partition of ");
        json_decref(all);
    }
    free(text);
    args.n_partitions = 63;
    out = fopen("/dev/null", "w");
    ck_assert_int_eq(cnn_describe(&args, out), CNN_EXIT_USAGE);
    fclose(out);
}
END_TEST

/* What ref runs through in no time. */
static const char *const small[] = {"lenet", "linear", "resnet8:size=16", "cifar100-convex:size=16",
                                    "cifar7:classes=300"};

START_TEST(json_says_the_same)
{
    struct cnn_model m;
    static const char *const parts[] = {"image_bytes", "value_bytes", "own_bytes", "vector_bytes"};
    ck_assert_int_eq(cnn_model_read(small[_i], &m, NULL), 0);
    char *text = describe(small[_i], 1, true);
    json_t *root = json_loads(text, 0, NULL), *layer;
    double params = 0, bytes = 0;
    size_t i;
    ck_assert_msg(root != NULL, "%s", text);
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1); /* one line */
    json_array_foreach(json_object_get(root, "layers"), i, layer)
    {
        params += json_number_value(json_object_get(layer, "parameters"));
        bytes += json_number_value(json_object_get(layer, "output_bytes"));
    }
    ck_assert_uint_eq(i, m.n_layers);
    ck_assert_double_eq(params, json_number_value(json_object_get(root, "parameters")));
    ck_assert_double_eq(bytes, json_number_value(json_object_get(root, "activation_bytes")));
    bytes = 0;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        bytes += json_number_value(json_object_get(root, parts[k]));
    ck_assert_double_eq(json_number_value(json_object_get(root, "total_bytes")), bytes);
    ck_assert_double_gt(json_number_value(json_object_get(root, "value_bytes")), 0);
    ck_assert_str_eq(json_string_value(json_object_get(root, "backend")), "ref");
    json_decref(root);
    free(text);
}
END_TEST

START_TEST(text_has_every_layer)
{
    char *text = describe("lenet", 8, false);
    for (size_t i = 0; i < cnn_model_find("lenet")->n_layers; i++)
        ck_assert_ptr_nonnull(strstr(text, cnn_model_find("lenet")->layers[i].name));
    ck_assert_ptr_nonnull(strstr(text, "431080"));
    ck_assert_ptr_nonnull(strstr(text, "batch of 8"));
    free(text);
}
END_TEST

/* As in training: a layer that is frozen takes no work backward, and what is refused there is refused here.
 */
START_TEST(options_of_training_count)
{
    struct cnn_worker_args args = {.describe = "lenet",
                                   .batch = 8,
                                   .seed = 1,
                                   .threads = 1,
                                   .backend = "ref",
                                   .freeze = "*,!fc2.*",
                                   .json = true};
    char *text = NULL, *all = describe("lenet", 8, true);
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    ck_assert_int_eq(cnn_describe(&args, out), CNN_EXIT_OK);
    ck_assert_int_eq(fclose(out), 0);
    json_t *some = json_loads(text, 0, NULL), *whole = json_loads(all, 0, NULL);
    ck_assert_double_eq(json_number_value(json_object_get(some, "backward_flops")), 2.0 * 500 * 10);
    ck_assert_double_lt(json_number_value(json_object_get(some, "value_bytes")),
                        json_number_value(json_object_get(whole, "value_bytes")));
    json_decref(some);
    json_decref(whole);
    free(text);
    free(all);
    out = fopen("/dev/null", "w");
    args.freeze = "conv7.*";
    ck_assert_int_eq(cnn_describe(&args, out), CNN_EXIT_USAGE);
    args.freeze = NULL;
    args.any_order = true;
    ck_assert_int_eq(cnn_describe(&args, out), CNN_EXIT_INTERNAL);
    fclose(out);
}
END_TEST

/* Far beyond any memory: described, but not tried. */
START_TEST(a_batch_without_room_is_not_tried)
{
    char *text = describe("resnet8:size=512", 500, true);
    ck_assert_ptr_nonnull(strstr(text, "\"measured_bytes\":null"));
    free(text);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("describe");
    tcase_add_loop_test(tc, rows_add_up, 0, (int)n_models());
    tcase_add_test(tc, lenet_by_hand);
    tcase_add_loop_test(tc, json_says_the_same, 0, (int)(sizeof small / sizeof *small));
    tcase_add_loop_test(tc, partitions_are_explained, 0, 2);
    tcase_add_test(tc, text_has_every_layer);
    tcase_add_test(tc, options_of_training_count);
    tcase_add_test(tc, a_batch_without_room_is_not_tried);
    return run_case(tc, "describe");
}
