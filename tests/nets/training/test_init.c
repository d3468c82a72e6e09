/* --init's parts: a safetensors file whoever wrote it, patterns of tensors, and the first point that comes of
 * them. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/training/init.h"
#include "nets/training/pattern.h"
#include "nets/training/safetensors.h"
#include "tests/support/unit.h"

static char path[64];

static void setup(void)
{
    snprintf(path, sizeof path, "/tmp/psd-test-init-XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    close(fd);
}

static void teardown(void)
{
    unlink(path);
}

/* A file of this header and data. */
static void write_file(const char *header, const void *data, size_t bytes)
{
    uint64_t len = strlen(header);
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    fwrite(&len, sizeof len, 1, f);
    fwrite(header, 1, len, f);
    fwrite(data, 1, bytes, f);
    ck_assert_int_eq(fclose(f), 0);
}

/* A net of a matrix and its bias. */
static const struct cnn_param params[] = {
    {.name = "fc1.weight", .offset = 0, .shape = {2, 3}, .n_dims = 2},
    {.name = "fc1.bias", .offset = 6, .shape = {2}, .n_dims = 1},
    {.name = "fc2.weight", .offset = 8, .shape = {1, 2}, .n_dims = 2},
    {.name = "fc2.bias", .offset = 10, .shape = {1}, .n_dims = 1},
};
enum { N_PARAMS = ROWS(params), N_FLOATS = 11 };

static int load(const char *skip, float *x, struct cnn_init_report *report, struct ps_error *err)
{
    for (int i = 0; i < N_FLOATS; i++)
        x[i] = 100 + (float)i;
    return cnn_init_load(path, skip, params, N_PARAMS, x, report, err);
}

/* In another order than the net's, with strangers between; the bias of halves. */
static const char mixed[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                            "\"other\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                            "\"fc1.bias\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[8,12]},"
                            "\"fc1.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[12,36]},"
                            "\"psd.state.0\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[36,40]}}";

static void write_mixed(const char *header)
{
    unsigned char data[40] = {0};
    const float weight[6] = {1, -2, 3, 0.5f, 0, 6};
    const uint16_t bias[2] = {0x3c00, 0xc100}; /* 1, -2.5 */
    memcpy(data + 8, bias, sizeof bias);
    memcpy(data + 12, weight, sizeof weight);
    write_file(header, data, sizeof data);
}

START_TEST(tensors_are_taken_by_name_and_what_is_missing_is_named)
{
    float x[N_FLOATS];
    struct cnn_init_report r;
    struct ps_error err = {""};
    const float wanted[N_FLOATS] = {1, -2, 3, 0.5f, 0, 6, 1, -2.5f, 108, 109, 110};
    write_mixed(mixed);
    ck_assert_msg(load(NULL, x, &r, &err) == 0, "%s", err.text);
    ck_assert_mem_eq(x, wanted, sizeof wanted);
    ck_assert_uint_eq(r.n_taken, 2);
    ck_assert_uint_eq(r.n_fresh, 2);
    ck_assert_str_eq(r.fresh, "fc2.weight, fc2.bias");
    ck_assert_uint_eq(r.n_unused, 1); /* psd's own vectors are no news */
    ck_assert_str_eq(r.unused, "other");

    ck_assert_int_eq(load("fc1.*,!fc1.weight", x, &r, &err), 0);
    ck_assert_float_eq(x[6], 106);
    ck_assert_str_eq(r.fresh, "fc1.bias, fc2.weight, fc2.bias");
}
END_TEST

static const struct {
    const char *header, *sentence;
    int rc;
} bad_files[] = {
    {"{\"fc1.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}}",
     "[3,2] in the file, [2,3] in the net", -EINVAL},
    {"{\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}}",
     "[2,1] in the file, [2] in the net", -EINVAL},
    {"{\"fc1.bias\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]}}",
     "type I32; allowed: F32, F64, F16, BF16", -EINVAL},
    {"{\"conv9\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "a file of another net",
     -EINVAL},
    {"{}", "a file of another net: it has 0 tensors", -EINVAL},
    {"{\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[36,44]}}", "is it truncated?",
     -EBADMSG},
    {"{\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "'fc1.bias' is bytes 8 to 0",
     -EBADMSG},
    {"{\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,12]}}", "do not fill its 12 bytes",
     -EBADMSG},
    {"{\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", "size 0 of its shape",
     -EBADMSG},
    {"{\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}",
     "size 1 of its shape", -EBADMSG},
    {"{\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2]}}", "two data_offsets", -EBADMSG},
    {"{\"fc1.bias\":7}", "'fc1.bias'", -EBADMSG},
    {"[1,2]", "not a JSON object", -EBADMSG},
    {"{\"fc1.bias\":", "is not JSON", -EBADMSG},
};

START_TEST(a_file_that_does_not_fit_is_refused_by_name)
{
    float x[N_FLOATS];
    struct cnn_init_report r;
    struct ps_error err = {""};
    const float data[10] = {1};
    write_file(bad_files[_i].header, data, sizeof data);
    ck_assert_int_eq(load(NULL, x, &r, &err), bad_files[_i].rc);
    ck_assert_msg(strstr(err.text, bad_files[_i].sentence) != NULL, "%s", err.text);
    ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0, "%s", err.text);
}
END_TEST

/* Wherever the file ends, it is refused, and nothing else happens. */
START_TEST(a_file_cut_short_anywhere_is_refused)
{
    float x[N_FLOATS];
    struct cnn_init_report r;
    struct ps_error err = {""};
    struct stat st;
    write_mixed(mixed);
    ck_assert_int_eq(stat(path, &st), 0);
    for (off_t len = st.st_size - 1; len >= 0; len--) {
        ck_assert_int_eq(truncate(path, len), 0);
        ck_assert_int_eq(load(NULL, x, &r, &err), -EBADMSG);
        ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0, "%s", err.text);
    }
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
    float x[N_FLOATS];
    struct cnn_init_report r;
    struct ps_error err = {""};
    ck_assert_int_eq(cnn_init_load("/tmp", NULL, params, N_PARAMS, x, &r, &err), -EISDIR);
    ck_assert_msg(strstr(err.text, "/tmp: a directory; allowed is a safetensors file") != NULL, "%s",
                  err.text);
    ck_assert_int_eq(cnn_init_load("/no/such/file", NULL, params, N_PARAMS, x, &r, &err), -ENOENT);
    ck_assert_int_eq(cnn_init_load("/dev/null", NULL, params, N_PARAMS, x, &r, &err), -EINVAL);
}
END_TEST

START_TEST(a_value_that_is_not_finite_is_refused)
{
    float x[N_FLOATS];
    struct cnn_init_report r;
    struct ps_error err = {""};
    const float data[2] = {1, NAN};
    const double wide[2] = {1e300, 1};
    write_file("{\"fc1.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", data, sizeof data);
    ck_assert_int_eq(load(NULL, x, &r, &err), -EBADMSG);
    ck_assert_msg(strstr(err.text, "'fc1.bias': value 1 is not finite") != NULL, "%s", err.text);
    write_file("{\"fc1.bias\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[0,16]}}", wide, sizeof wide);
    ck_assert_int_eq(load(NULL, x, &r, &err), -EBADMSG);
}
END_TEST

/* Every half and every bfloat16 is exact as a float: its value by the formats' own definition. */
START_TEST(short_floats_are_exact)
{
    static uint16_t bits[65536];
    static float out[65536];
    static const struct cnn_param one = {.name = "t", .shape = {65536}, .n_dims = 1};
    struct cnn_init_report r;
    struct ps_error err = {""};
    for (int bf = 0; bf < 2; bf++) {
        int digits = bf ? 7 : 10, bias = bf ? 127 : 15, top = bf ? 255 : 31;
        for (uint32_t i = 0; i < 65536; i++)
            bits[i] = (int)(i >> digits & (uint32_t)top) == top ? 0 : (uint16_t)i; /* no infinities */
        write_file(bf ? "{\"t\":{\"dtype\":\"BF16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}"
                      : "{\"t\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}",
                   bits, sizeof bits);
        ck_assert_msg(cnn_init_load(path, NULL, &one, 1, out, &r, &err) == 0, "%s", err.text);
        for (uint32_t i = 0; i < 65536; i++) {
            int exponent = bits[i] >> digits & top;
            double fraction = (bits[i] & ((1u << digits) - 1)) / (double)(1u << digits);
            double wanted = exponent == 0 ? ldexp(fraction, 1 - bias) : ldexp(1 + fraction, exponent - bias);
            wanted = bits[i] & 0x8000 ? -wanted : wanted;
            ck_assert_double_eq((double)out[i], wanted);
        }
    }
}
END_TEST

static const struct {
    const char *patterns, *meant; /* a digit a tensor; NULL: refused */
    const char *sentence;
} patterns[] = {
    {"*", "1111", NULL},
    {"fc1.*", "1100", NULL},
    {"*.bias", "0101", NULL},
    {"fc?.weight,fc2.bias", "1011", NULL},
    {"*,!fc2.*", "1100", NULL},
    {"fc[2-9].bias", "0001", NULL},
    {"conv1.*", NULL,
     "pattern \"conv1.*\" matches no tensor of the net; the first are fc1.weight and fc1.bias"},
    {"fc1.*,FC2.*", NULL, "pattern \"FC2.*\" matches no tensor"},
    {"", NULL, "pattern \"\""},
    {"fc1.*,,fc2.*", NULL, "pattern \"\""},
    {"fc1.*,", NULL, "pattern \"\""},
    {"!", NULL, "pattern \"!\""},
};

START_TEST(patterns_mean_tensors)
{
    bool meant[N_PARAMS] = {false};
    struct ps_error err = {""};
    int rc = cnn_pattern_mark(patterns[_i].patterns, params, N_PARAMS, meant, &err);
    ck_assert_int_eq(rc, patterns[_i].meant != NULL ? 0 : -EINVAL);
    for (int i = 0; rc == 0 && i < N_PARAMS; i++)
        ck_assert_msg(meant[i] == (patterns[_i].meant[i] == '1'), "%s: %s", patterns[_i].patterns,
                      params[i].name);
    if (rc < 0)
        ck_assert_msg(strstr(err.text, patterns[_i].sentence) != NULL, "%s", err.text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("init");
    TCase *t = tcase_create("init");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, tensors_are_taken_by_name_and_what_is_missing_is_named);
    tcase_add_loop_test(t, a_file_that_does_not_fit_is_refused_by_name, 0, ROWS(bad_files));
    tcase_add_test(t, a_file_cut_short_anywhere_is_refused);
    tcase_add_test(t, what_is_no_file_is_refused);
    tcase_add_test(t, a_value_that_is_not_finite_is_refused);
    tcase_add_test(t, short_floats_are_exact);
    tcase_add_loop_test(t, patterns_mean_tensors, 0, ROWS(patterns));
    suite_add_tcase(s, t);
    return unit_run(s);
}
