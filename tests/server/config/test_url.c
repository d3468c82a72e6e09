/* Addresses: taken apart, or refused; and the file that tells one. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/config/endpoint.h"
#include "server/config/url.h"
#include "tests/support/unit.h"

static const struct {
    const char *text, *host;
    int port; /* -1: refused */
    bool loopback;
} urls[] = {
    {"tcp://127.0.0.1:0", "127.0.0.1", 0, true},
    {"tcp://127.9.9.9:1", "127.9.9.9", 1, true},
    {"tcp://[::1]:65535", "::1", 65535, true},
    {"tcp://localhost:80", "localhost", 80, true},
    {"tcp://*:80", "*", 80, false},
    {"tcp://[::]:80", "::", 80, false},
    {"tcp://10.0.0.1:80", "10.0.0.1", 80, false},
    {"tcp://head-node.cluster:80", "head-node.cluster", 80, false},
    {"tcp://127.0.0.1", "", -1, false},
    {"tcp://127.0.0.1:", "", -1, false},
    {"tcp://127.0.0.1:+1", "", -1, false},
    {"tcp://127.0.0.1:655360", "", -1, false},
    {"tcp://:80", "", -1, false},
    {"tcp://::1:80", "", -1, false},
    {"tcp://[::1:80", "", -1, false},
    {"tcp://[127.0.0.1]:80", "", -1, false},
    {"tcp://a b:80", "", -1, false},
    {"http://127.0.0.1:80", "", -1, false},
    {"", "", -1, false},
};

START_TEST(url_is_taken_apart)
{
    struct psd_url url;
    struct ps_error err;
    int rc = psd_url_parse(urls[_i].text, &url, &err);
    if (urls[_i].port < 0) {
        ck_assert_int_eq(rc, -EINVAL);
        ck_assert_ptr_nonnull(strstr(err.text, "tcp://HOST:PORT"));
        return;
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_str_eq(url.host, urls[_i].host);
    ck_assert_int_eq(url.port, urls[_i].port);
    ck_assert_int_eq(psd_url_is_loopback(&url), urls[_i].loopback);
}
END_TEST

/* A host of as many bytes as there is room for, and of one more. */
START_TEST(host_fits_or_is_refused)
{
    char text[sizeof "tcp://:1" + sizeof((struct psd_url *)0)->host] = "tcp://";
    char *host = text + strlen(text);
    struct psd_url url;
    struct ps_error err;
    size_t most = sizeof url.host - 1;

    memset(host, 'h', most);
    strcpy(host + most, ":1");
    ck_assert_int_eq(psd_url_parse(text, &url, &err), 0);
    ck_assert_uint_eq(strlen(url.host), most);
    memset(host, 'h', most + 1);
    strcpy(host + most + 1, ":1");
    ck_assert_int_eq(psd_url_parse(text, &url, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "has a host of 256 bytes; allowed are at most 255"));
}
END_TEST

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "we");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static void assert_holds(const char *path, const char *text)
{
    char found[64] = "";
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    found[fread(found, 1, sizeof found - 1, f)] = 0;
    fclose(f);
    ck_assert_str_eq(found, text);
}

/* What another user has put in the place of the temporary file, whose name can be guessed: a link to a file
 * of psd's user (0), or a file that all may write to (1). */
START_TEST(an_endpoint_file_is_made_by_its_writer)
{
    char dir[] = "/tmp/psd-endpoint-XXXXXX", path[64], temp[96], other[64];
    struct ps_error err = {""};
    struct stat st;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/endpoint", dir);
    snprintf(other, sizeof other, "%s/other", dir);
    snprintf(temp, sizeof temp, "%s.%d.tmp", path, (int)getpid());
    put(other, "precious");
    if (_i == 0)
        ck_assert_int_eq(symlink(other, temp), 0);
    else
        put(temp, "");
    ck_assert_int_eq(_i == 0 ? 0 : chmod(temp, 0666), 0);
    ck_assert_msg(psd_endpoint_write(path, "tcp://127.0.0.1:1", "", &err) == 0, "%s", err.text);
    assert_holds(path, "tcp://127.0.0.1:1\n");
    assert_holds(other, "precious");
    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert(S_ISREG(st.st_mode));
    ck_assert_uint_eq(st.st_mode & 022, 0);
    unlink(path);
    unlink(other);
    rmdir(dir);
}
END_TEST

static const struct {
    const char *own, *head;
    bool same;
} files[] = {
    {"endpoint", "@endpoint", true},
    {"endpoint", "@./endpoint", true},
    {"/tmp/endpoint", "@/tmp/../tmp//endpoint", true},
    {"/no/such/folder/endpoint", "@/no/such/folder/endpoint", true},
    {"endpoint", "@/proc/endpoint", false},
    {"/tmp/endpoint1", "@/tmp/endpoint", false},
    {"/no/such/folder/endpoint", "@/no/such/endpoint", false},
    {"endpoint", "ipc:///endpoint", false},
    {"", "@endpoint", false},
    {"one", "none", false},
};

START_TEST(the_heads_endpoint_file_is_known_by_any_path)
{
    struct psd_config cfg;
    psd_config_defaults(&cfg);
    snprintf(cfg.endpoint_file, sizeof cfg.endpoint_file, "%s", files[_i].own);
    snprintf(cfg.servers.head, sizeof cfg.servers.head, "%s", files[_i].head);
    ck_assert(psd_endpoint_is_of_head(&cfg) == files[_i].same);
}
END_TEST

START_TEST(what_is_no_file_is_not_replaced)
{
    char dir[] = "/tmp/psd-test-endpoint-XXXXXX", path[64];
    struct ps_error err;
    struct stat st;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/endpoint", dir);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_int_eq(psd_endpoint_write(path, "tcp://127.0.0.1:1", "", &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "it is not a regular file") != NULL, "%s", err.text);
    ck_assert_int_eq(lstat(path, &st), 0);
    ck_assert(S_ISFIFO(st.st_mode));
    unlink(path);
    ck_assert_int_eq(rmdir(dir), 0); /* nothing else is there */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-url");
    TCase *tc = tcase_create("url");
    tcase_add_loop_test(tc, url_is_taken_apart, 0, (int)(sizeof urls / sizeof *urls));
    tcase_add_test(tc, host_fits_or_is_refused);
    tcase_add_loop_test(tc, an_endpoint_file_is_made_by_its_writer, 0, 2);
    tcase_add_loop_test(tc, the_heads_endpoint_file_is_known_by_any_path, 0, ROWS(files));
    tcase_add_test(tc, what_is_no_file_is_not_replaced);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
