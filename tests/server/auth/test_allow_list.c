/* The allow-list: what it says, and what it may not. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "server/auth/auth.h"
#include "tests/support/unit.h"

#define A   "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
#define B   "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
#define OWN "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
/* What begins a comment may stand within a key. */
#define HASH "Yne@#w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{h#D"

static const struct ps_curve_pair own = {.public_key = OWN};

static const struct {
    const char *text, *says; /* NULL: it is fine, with n lines */
    size_t n;
} rows[] = {
    {"", NULL, 0},
    {"# nobody\n\n   \t\r\n#" A " w0\n", NULL, 0},
    {A " w0\n" B "\tw1 # the second\n", NULL, 2},
    {"  " A "   w0   role=any   ranks=0 \r\n", NULL, 1},
    {A " w0 ranks=0-3,7,1023 role=worker", NULL, 1},
    {A " w0 role=observer\n" HASH " w1 ranks=0#1\n", "list:2: found 'ranks=0#1'", 0},
    {HASH " w1\n" A " w0#x\n", "list:2: found 'w0#x' after the key", 0},
    {HASH " w1 # yes\n", NULL, 1},
    {"w0 " A "\n", "list:1: found 'w0'; allowed is a line KEY NAME", 0},
    {A "x w0\n", "list:1: found 'Yne@", 0},
    {"~ne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID w0\n", "list:1: found '~ne@", 0},
    {A "\n", "list:1: found nothing after the key", 0},
    {A " #w0\n", "list:1: found nothing after the key", 0},
    {A " a/b\n", "list:1: found 'a/b' after the key; allowed is a name", 0},
    {A " 0123456789012345678901234567890123456789012345678901234567890123\n", "allowed is a name of 1 to 63",
     0},
    {A " psd\n", "list:1: the name psd is reserved", 0},
    {"\n" OWN " w0\n", "list:2: w0 has psd's own key", 0},
    {A " w0\n" B " w0\n", "list: the name w0 is there twice", 0},
    {A " w0\n" A " w1\n", "have the same key", 0},
    {A " w0 w1\n", "list:1: found 'w1' after the name; allowed are role=", 0},
    {A " w0 role=server\n", "list:1: found 'role=server'; allowed is once role=worker", 0},
    {A " w0 role=\n", "list:1: found 'role='", 0},
    {A " w0 role=worker role=observer\n", "list:1: found 'role=observer'", 0},
    {A " w0 ranks=\n", "list:1: found 'ranks='; allowed is once ranks=", 0},
    {A " w0 ranks=1024\n", "list:1: found 'ranks=1024'", 0},
    {A " w0 ranks=3-1\n", "list:1: found 'ranks=3-1'", 0},
    {A " w0 ranks=1,\n", "list:1: found 'ranks=1,'", 0},
    {A " w0 ranks=1,,2\n", "list:1: found 'ranks=1,,2'", 0},
    {A " w0 ranks=-1\n", "list:1: found 'ranks=-1'", 0},
    {A " w0 ranks=1-\n", "list:1: found 'ranks=1-'", 0},
    {A " w0 ranks=99999999999999999999\n", "list:1: found 'ranks=9999", 0},
    {A " w0 ranks=all\n", "list:1: found 'ranks=all'", 0},
    {A " w0 ranks=1 ranks=2\n", "list:1: found 'ranks=2'", 0},
    {A " w0 ranks=1 role=observer\n", "list:1: w0 has ranks= and role=observer", 0},
};

START_TEST(lists_are_read_or_refused)
{
    struct psd_allow list = {.n = 99};
    struct ps_error err = {""};
    int rc = psd_allow_parse("list", rows[_i].text, strlen(rows[_i].text), &own, &list, &err);
    if (rows[_i].says == NULL) {
        ck_assert_msg(rc == 0, "%s", err.text);
        ck_assert_uint_eq(list.n, rows[_i].n);
        psd_allow_finish(&list);
    } else {
        ck_assert_int_eq(rc, -EINVAL);
        assert_says(err.text, rows[_i].says);
        ck_assert_uint_eq(list.n, 99);
    }
}
END_TEST

static void parse(const char *text, struct psd_allow *list)
{
    struct ps_error err;
    ck_assert_msg(psd_allow_parse("list", text, strlen(text), &own, list, &err) == 0, "%s", err.text);
}

START_TEST(rights_are_what_it_says)
{
    struct psd_allow list;
    unsigned char key[PS_CURVE_KEY_BYTES];
    char text[64];
    uint64_t last = 1;
    parse(A " w0 ranks=0-3,7,62-65 role=worker\n" B " w1 role=observer\n" HASH " w2\n", &list);
    psd_allow_number(&list, NULL, &last);
    zmq_z85_decode(key, A);
    const struct psd_grant *g = psd_allow_find_key(&list, key);
    ck_assert_ptr_nonnull(g);
    ck_assert_str_eq(g->name, "w0");
    ck_assert_int_eq(g->role, PSD_ROLE_WORKER);
    for (uint32_t r = 0; r < 1100; r++)
        assert_quick(psd_grant_has_rank(g, r) == (r <= 3 || r == 7 || (r >= 62 && r <= 65)));
    psd_grant_ranks(g, text, sizeof text);
    ck_assert_str_eq(text, "0-3, 7, 62-65");
    psd_grant_ranks(g, text, 6);
    ck_assert_str_eq(text, "0-3, ");
    g = psd_allow_find_name(&list, "w1");
    ck_assert_int_eq(g->role, PSD_ROLE_OBSERVER);
    zmq_z85_decode(key, HASH);
    g = psd_allow_find_key(&list, key);
    ck_assert_str_eq(g->name, "w2");
    ck_assert(psd_grant_has_rank(g, 1023) && g->role == PSD_ROLE_ANY);
    zmq_z85_decode(key, OWN);
    ck_assert_ptr_null(psd_allow_find_key(&list, key));
    ck_assert_ptr_null(psd_allow_find_name(&list, "w3"));
    psd_allow_finish(&list);
}
END_TEST

/* A number means one key under one name, for good. */
START_TEST(numbers_are_never_given_twice)
{
    struct psd_allow first, second, third;
    uint64_t last = 1;
    parse(A " w0\n" B " w1\n", &first);
    psd_allow_number(&first, NULL, &last);
    ck_assert_uint_eq(last, 3);
    uint64_t w0 = psd_allow_find_name(&first, "w0")->id, w1 = psd_allow_find_name(&first, "w1")->id;
    ck_assert(w0 != w1 && w0 > 1 && w1 > 1);
    ck_assert_ptr_eq(psd_allow_find_id(&first, w0), psd_allow_find_name(&first, "w0"));
    ck_assert_ptr_null(psd_allow_find_id(&first, 0));
    ck_assert_ptr_null(psd_allow_find_id(&first, last + 1));
    parse(B " w0 ranks=1\n" A " w9\n" HASH " w1\n", &second); /* names have changed hands */
    psd_allow_number(&second, &first, &last);
    for (size_t i = 0; i < second.n; i++)
        ck_assert(second.grants[i].id != w0 && second.grants[i].id != w1);
    ck_assert_ptr_null(psd_allow_find_id(&second, w0));
    uint64_t now = psd_allow_find_name(&second, "w0")->id;
    parse(B " w0\n", &third); /* other ranks are no other identity */
    psd_allow_number(&third, &second, &last);
    ck_assert_uint_eq(third.grants[0].id, now);
    psd_allow_finish(&first);
    psd_allow_finish(&second);
    psd_allow_finish(&third);
}
END_TEST

START_TEST(the_file_is_its_owners)
{
    char path[] = "/tmp/psd-allow-XXXXXX";
    struct psd_allow list;
    struct ps_error err;
    int fd = mkstemp(path);
    ck_assert_int_eq((int)write(fd, A " w0\n", strlen(A " w0\n")), (int)strlen(A " w0\n"));
    close(fd);
    ck_assert_int_eq(chmod(path, 0644), 0);
    ck_assert_msg(psd_allow_read(path, &own, &list, &err) == 0, "%s", err.text);
    ck_assert_uint_eq(list.n, 1);
    psd_allow_finish(&list);
    ck_assert_int_eq(chmod(path, 0664), 0);
    ck_assert_int_eq(psd_allow_read(path, &own, &list, &err), -EACCES);
    assert_says(err.text, "has mode 0664: others can write to it");
    unlink(path);
    ck_assert_int_eq(psd_allow_read(path, &own, &list, &err), -ENOENT);
    assert_says(err.text, path);
    ck_assert_int_eq(psd_allow_read("/tmp", &own, &list, &err), -EINVAL);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* whose open would wait for a writer */
    ck_assert_int_eq(psd_allow_read(path, &own, &list, &err), -EINVAL);
    assert_says(err.text, "not a regular file");
    unlink(path);
    ck_assert_int_eq(psd_allow_parse("list", "a\0b", 3, &own, &list, &err), -EINVAL);
}
END_TEST

/* Files of sysfs end before their size, as one does that is cut while it is read. */
START_TEST(a_file_that_ends_early_is_no_list)
{
    static const char path[] = "/sys/devices/system/cpu/online";
    struct psd_allow list;
    struct ps_error err = {""};
    if (access(path, R_OK) != 0)
        return;
    ck_assert_int_eq(psd_allow_read(path, &own, &list, &err), -EIO);
    assert_says(err.text, "it was changed while it was read");
}
END_TEST

/* Between truncation and the new text. At the start nobody has a session to lose. */
START_TEST(a_reload_takes_no_list_without_a_key)
{
    static struct psd_config cfg;
    struct psd_auth auth = {.cfg = &cfg, .curve = true, .pair = own};
    struct psd_allow list;
    struct ps_error err = {""};
    char path[] = "/tmp/psd-allow-XXXXXX";
    close(mkstemp(path));
    snprintf(cfg.auth.allow, sizeof cfg.auth.allow, "%s", path);
    ck_assert_int_eq(psd_auth_reread(&auth, &list, &err), 0);
    psd_allow_finish(&list);
    ck_assert_int_eq(psd_allow_parse("list", A " w0", strlen(A " w0"), &own, &auth.list, &err), 0);
    ck_assert_int_eq(psd_auth_reread(&auth, &list, &err), -EINVAL);
    assert_says(err.text, "found no key, which would end every session");
    psd_allow_finish(&auth.list);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("allow");
    TCase *c = tcase_create("allow");
    tcase_add_loop_test(c, lists_are_read_or_refused, 0, ROWS(rows));
    tcase_add_test(c, rights_are_what_it_says);
    tcase_add_test(c, numbers_are_never_given_twice);
    tcase_add_test(c, the_file_is_its_owners);
    tcase_add_test(c, a_file_that_ends_early_is_no_list);
    tcase_add_test(c, a_reload_takes_no_list_without_a_key);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
