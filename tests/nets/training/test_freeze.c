/* --freeze's parts: which tensors are frozen, and that neither a gradient nor statistics move them. */
#include <errno.h>
#include <stdio.h>

#include "nets/training/freeze.h"
#include "tests/support/unit.h"

static struct cnn_model model;
static struct cnn_param *params;
static size_t n;
static struct cnn_freeze frozen;

static int freeze(const char *net, const char *patterns, struct ps_error *err)
{
    model = *cnn_model_find(net);
    ck_assert_int_eq(cnn_model_params(&model, &params, &n, NULL), 0);
    return cnn_freeze_init(&frozen, patterns, &model, params, n, err);
}

static void finish(void)
{
    cnn_freeze_finish(&frozen);
    free(params);
}

static const struct cnn_layer_spec *layer_of(const char *name)
{
    for (size_t i = 0; i < model.n_layers; i++)
        if (strcmp(model.layers[i].name, name) == 0)
            return &model.layers[i];
    ck_abort_msg("no layer '%s'", name);
    return NULL;
}

START_TEST(a_layer_is_frozen_when_all_of_it_is)
{
    struct ps_error err = {""};
    ck_assert_msg(freeze("lenet", "conv1.*,conv2.weight,fc1.bias", &err) == 0, "%s", err.text);
    ck_assert_uint_eq(frozen.n_frozen, 4);
    ck_assert(layer_of("conv1")->is_frozen);
    ck_assert(!layer_of("conv2")->is_frozen && !layer_of("fc1")->is_frozen);
    const enum cnn_role roles[] = {CNN_FROZEN, CNN_FROZEN, CNN_FROZEN, CNN_PARAM,
                                   CNN_PARAM,  CNN_FROZEN, CNN_PARAM,  CNN_PARAM};
    ck_assert_uint_eq(n, ROWS(roles));
    for (size_t i = 0; i < n; i++)
        ck_assert_int_eq(params[i].role, roles[i]);
    ck_assert(!cnn_model_find("lenet")->layers[0].is_frozen); /* the table's own row */
    finish();
}
END_TEST

START_TEST(something_is_left_to_train)
{
    struct ps_error err = {""};
    ck_assert_int_eq(freeze("lenet", "*", &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "nothing is left to train; a pattern such as !fc2.bias") != NULL, "%s",
                  err.text);
    finish();
    ck_assert_int_eq(freeze("lenet", "*,!fc2.*", &err), 0);
    finish();
    ck_assert_int_eq(freeze("lenet", "conv7.*", &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "\"conv7.*\" matches no tensor") != NULL, "%s", err.text);
    finish();
}
END_TEST

/* A gradient of resnet8 with all but the last layer frozen: zeros there, and no statistic moves. */
START_TEST(frozen_values_stay)
{
    enum { BATCH = 2 };
    static float images[BATCH * 3 * 32 * 32];
    const uint16_t labels[BATCH] = {1, 7};
    struct cnn_score score;
    struct cnn_net *net;
    struct dice dice = {5};
    struct ps_error err = {""};
    ck_assert_msg(freeze("resnet8", _i == 0 ? "*,!fc.*" : "*.running_mean", &err) == 0, "%s", err.text);
    struct cnn_net_options opt = {.model = &model, .batch = BATCH, .threads = 1};
    ck_assert_msg(cnn_net_create(&opt, &net, &err) == 0, "%s", err.text);
    size_t n_floats = cnn_model_n_floats(&model), n_moved = 0;
    float *x = malloc(n_floats * sizeof *x), *was = malloc(n_floats * sizeof *x),
          *g = malloc(n_floats * sizeof *x);
    ck_assert_int_eq(cnn_model_fill(&model, 1, x), 0);
    memcpy(was, x, n_floats * sizeof *x);
    for (size_t i = 0; i < ROWS(images); i++)
        images[i] = dice_float(&dice);
    ck_assert_int_eq(cnn_net_gradient(net, x, images, labels, g, &score), 0);
    cnn_freeze_update_buffers(&frozen, net, x);
    for (size_t k = 0; k < n; k++)
        for (uint64_t i = params[k].offset; i < (k + 1 < n ? params[k + 1].offset : n_floats); i++) {
            n_moved += x[i] != was[i];
            ck_assert_msg(params[k].role == CNN_BUFFER || x[i] == was[i], "%s", params[k].name);
            if (params[k].role == CNN_FROZEN && strstr(params[k].name, "conv") != NULL)
                ck_assert_float_eq(g[i], 0);
        }
    ck_assert_uint_eq(n_moved > 0, _i == 1); /* of the second, variances do */
    free(x);
    free(was);
    free(g);
    cnn_net_destroy(net);
    finish();
}
END_TEST

/* The auxiliary losses of googlenet have nothing to train then. */
START_TEST(a_net_of_several_losses_trains_its_last_layer)
{
    struct cnn_net_memory all, last;
    struct ps_error err = {""};
    struct cnn_net_options opt = {.model = &model, .batch = 2, .threads = 1};
    ck_assert_int_eq(freeze("googlenet", "loss1/conv.bias", &err), 0);
    ck_assert_int_eq(cnn_net_plan_memory(&opt, &all, &err), 0);
    finish();
    ck_assert_int_eq(freeze("googlenet", "*,!loss3/classifier.*", &err), 0);
    ck_assert_msg(cnn_net_plan_memory(&opt, &last, &err) == 0, "%s", err.text);
    ck_assert_uint_lt(last.values, all.values);
    finish();
}
END_TEST

int main(void)
{
    Suite *s = suite_create("freeze");
    TCase *t = tcase_create("freeze");
    tcase_add_test(t, a_layer_is_frozen_when_all_of_it_is);
    tcase_add_test(t, something_is_left_to_train);
    tcase_add_loop_test(t, frozen_values_stay, 0, 2);
    tcase_add_test(t, a_net_of_several_losses_trains_its_last_layer);
    suite_add_tcase(s, t);
    return unit_run(s);
}
