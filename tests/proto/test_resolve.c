/* Hosts are found, or not, in a bounded time: getaddrinfo is wrapped, and a name's answer comes when the test
 * says so. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "proto/clock.h"
#include "proto/resolve.h"
#include "tests/support/unit.h"

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out);

static sem_t name_server;
static atomic_int asked, answered, ended; /* ended: the threads that asked */
static pthread_key_t at_end;

static void end_slowly(void *arg)
{
    (void)arg;
    unit_nap_ms(50);
    atomic_fetch_add(&ended, 1);
}

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                       struct addrinfo **out)
{
    if ((hints->ai_flags & AI_NUMERICHOST) != 0)
        return __real_getaddrinfo(host, port, hints, out);
    atomic_fetch_add(&asked, 1);
    pthread_setspecific(at_end, &at_end);
    sem_wait(&name_server);
    struct addrinfo numeric = *hints;
    numeric.ai_flags |= AI_NUMERICHOST;
    int rc = strcmp(host, "there") == 0 ? __real_getaddrinfo("127.0.0.7", port, &numeric, out) : EAI_NONAME;
    atomic_fetch_add(&answered, 1);
    return rc;
}

static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};

static void forget(unsigned answers)
{
    sem_init(&name_server, 0, answers);
    asked = answered = ended = 0;
    pthread_key_create(&at_end, end_slowly);
}

static int look_up(const char *host, double seconds, struct ps_error *err)
{
    struct addrinfo *found = NULL;
    int rc = ps_resolve(host, "99", &hints, ps_ns_after(seconds), &found, err);
    if (rc == 0)
        freeaddrinfo(found);
    return rc;
}

START_TEST(numbers_ask_nobody)
{
    struct ps_error err;
    forget(0);
    ck_assert_int_eq(look_up("127.0.0.1", 0, &err), 0);
    ck_assert_int_eq(look_up("::1", 0, &err), 0);
    ck_assert_int_eq(asked, 0);
}
END_TEST

START_TEST(names_are_asked_for)
{
    struct ps_error err;
    forget(2);
    ck_assert_int_eq(look_up("there", UNIT_HANG_S, &err), 0);
    ck_assert_int_eq(look_up("nowhere", UNIT_HANG_S, &err), -EINVAL);
    assert_says(err.text, "'nowhere': ");
    ck_assert_int_eq(asked, 2);
    ck_assert_int_eq(ended, 2); /* a library may be unloaded now */
}
END_TEST

/* The answer that comes too late is for nobody, and nothing of it is lost: the address sanitizer looks. */
START_TEST(a_name_server_that_is_silent_is_not_waited_for)
{
    struct ps_error err;
    forget(0);
    ck_assert_int_eq(look_up("there", 0.05, &err), -ETIMEDOUT);
    assert_says(err.text, "'there': no name server answered in time");
    while (atomic_load(&asked) == 0)
        unit_nap_ms(1);
    sem_post(&name_server);
    while (atomic_load(&answered) == 0)
        unit_nap_ms(1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-resolve");
    TCase *tc = tcase_create("resolve");
    tcase_add_test(tc, numbers_ask_nobody);
    tcase_add_test(tc, names_are_asked_for);
    tcase_add_test(tc, a_name_server_that_is_silent_is_not_waited_for);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
