#include "tests/bench/exchange/ceiling.h"

#include <arpa/inet.h>
#include <math.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/clock.h"
#include "proto/vec/vec.h"
#include "tests/bench/samples.h"
#include "tests/bench/streams.h"

enum { MAX_CONNECTIONS = 64 };

struct echo {
    int client, server;
    size_t bytes, chunk; /* of the connection's share of the vector; of a chunk */
    uint32_t window;
    double seconds;
    char *vector;
    double moved; /* bytes, both directions */
    pthread_t threads[2];
};

static bool all(int fd, char *buffer, size_t n, bool sending)
{
    while (n > 0) {
        ssize_t k = sending ? send(fd, buffer, n, MSG_NOSIGNAL) : recv(fd, buffer, n, 0);
        if (k <= 0)
            return false;
        buffer += k;
        n -= (size_t)k;
    }
    return true;
}

static void *serve(void *arg)
{
    struct echo *e = arg;
    char *buffer = malloc(e->chunk);
    size_t at = 0;
    for (;;) {
        size_t n = e->bytes - at < e->chunk ? e->bytes - at : e->chunk;
        if (!all(e->server, buffer, n, false) || !all(e->server, buffer, n, true))
            break;
        at = at + n < e->bytes ? at + n : 0;
    }
    free(buffer);
    return NULL;
}

/* Keeps up to `window` chunks in flight. */
static void *ask(void *arg)
{
    struct echo *e = arg;
    double end = ps_now_s() + e->seconds;
    while (ps_now_s() < end) {
        size_t sent = 0, back = 0;
        while (back < e->bytes) {
            while (sent < e->bytes && sent - back < e->window * e->chunk) {
                size_t n = e->bytes - sent < e->chunk ? e->bytes - sent : e->chunk;
                if (!all(e->client, e->vector + sent, n, true))
                    goto out;
                sent += n;
            }
            size_t n = e->bytes - back < e->chunk ? e->bytes - back : e->chunk;
            if (!all(e->client, e->vector + back, n, false))
                goto out;
            back += n;
        }
        e->moved += 2.0 * (double)e->bytes;
    }
out:
    shutdown(e->client, SHUT_RDWR);
    return NULL;
}

static bool connect_pair(struct echo *e)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    e->client = socket(AF_INET, SOCK_STREAM, 0);
    bool ok = bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, (struct sockaddr *)&at, &size) == 0 &&
              connect(e->client, (struct sockaddr *)&at, size) == 0 &&
              (e->server = accept(listener, NULL, NULL)) >= 0;
    close(listener);
    if (!ok)
        return false;
    setsockopt(e->client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(e->server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    /* Blocking sends before reads must fit into the sockets' buffers, or both ends would wait for each
     * other. */
    int buffer = (int)((e->window + 1) * e->chunk);
    setsockopt(e->client, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
    setsockopt(e->server, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
    struct timeval patience = {.tv_sec = 5};
    setsockopt(e->client, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    setsockopt(e->client, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return true;
}

double limit_tcp(size_t n_floats, uint32_t n_connections, size_t chunk_bytes, uint32_t window, double seconds)
{
    struct echo echoes[MAX_CONNECTIONS] = {{0}};
    size_t share = n_floats * sizeof(float) / n_connections;
    double moved = 0, begin;
    if (share == 0 || n_connections > MAX_CONNECTIONS)
        return NAN;
    char *vector = malloc(n_floats * sizeof(float));
    memset(vector, 1, n_floats * sizeof(float));
    for (uint32_t i = 0; i < n_connections; i++) {
        echoes[i] = (struct echo){.bytes = share,
                                  .chunk = chunk_bytes,
                                  .window = window,
                                  .seconds = seconds,
                                  .vector = vector + i * share};
        if (!connect_pair(&echoes[i])) {
            free(vector);
            return NAN;
        }
    }
    begin = ps_now_s();
    for (uint32_t i = 0; i < n_connections; i++) {
        pthread_create(&echoes[i].threads[0], NULL, serve, &echoes[i]);
        pthread_create(&echoes[i].threads[1], NULL, ask, &echoes[i]);
    }
    for (uint32_t i = 0; i < n_connections; i++) {
        pthread_join(echoes[i].threads[1], NULL);
        pthread_join(echoes[i].threads[0], NULL);
        close(echoes[i].client);
        close(echoes[i].server);
        moved += echoes[i].moved;
    }
    free(vector);
    return moved * 1e-9 / (ps_now_s() - begin);
}

double limit_tcp_p50_us(size_t bytes, double seconds)
{
    enum { MAX_TRIPS = 200000 };
    struct echo e = {.bytes = bytes, .chunk = bytes, .window = 1};
    double *trips = malloc(MAX_TRIPS * sizeof *trips), end = ps_now_s() + seconds, p50 = NAN;
    char *buffer = calloc(1, bytes);
    size_t n = 0;
    if (connect_pair(&e)) {
        pthread_create(&e.threads[0], NULL, serve, &e);
        while (n < MAX_TRIPS && ps_now_s() < end) {
            double begin = ps_now_s();
            if (!all(e.client, buffer, bytes, true) || !all(e.client, buffer, bytes, false))
                break;
            trips[n++] = ps_now_s() - begin;
        }
        shutdown(e.client, SHUT_RDWR);
        pthread_join(e.threads[0], NULL);
        close(e.client);
        close(e.server);
        p50 = n > 0 ? bench_median(trips, n) * 1e6 : NAN;
    }
    free(buffer);
    free(trips);
    return p50;
}

double limit_fused(size_t n_floats, size_t chunk_bytes, double seconds)
{
    const struct ps_vec *vec = ps_vec_best();
    size_t chunk = chunk_bytes / sizeof(float), moved = 0;
    float *center = malloc(n_floats * sizeof(float)), *m = malloc(chunk_bytes);
    for (size_t i = 0; i < n_floats; i++)
        center[i] = 1;
    for (size_t i = 0; i < chunk; i++)
        m[i] = 1;
    double begin = ps_now_s();
    while (ps_now_s() - begin < seconds)
        for (size_t at = 0; at < n_floats; at += chunk) {
            size_t n = n_floats - at < chunk ? n_floats - at : chunk;
            vec->exchange_elastic(center + at, m, 0.1f, n);
            moved += n;
        }
    double elapsed = ps_now_s() - begin;
    free(center);
    free(m);
    return (double)moved * sizeof(float) * 1e-9 / elapsed;
}

const struct bench_streams *bench_streams_best(void)
{
#ifdef __x86_64__
    static const struct bench_streams *const rows[] = {&bench_streams_avx512, &bench_streams_avx2};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i]->row, ps_vec_best()->name) == 0)
            return rows[i];
#endif
    return &bench_streams_scalar;
}

double limit_elastic(size_t n_floats, double seconds)
{
    const struct bench_streams *loops = bench_streams_best();
    float *x = malloc(n_floats * sizeof *x), *y = malloc(n_floats * sizeof *y);
    size_t moved = 0;
    for (size_t i = 0; i < n_floats; i++) {
        x[i] = 1;
        y[i] = 2;
    }
    double begin = ps_now_s();
    while (ps_now_s() - begin < seconds) {
        loops->elastic(x, y, 0.1f, n_floats);
        moved += n_floats;
    }
    double elapsed = ps_now_s() - begin;
    free(x);
    free(y);
    return 2 * (double)moved * sizeof(float) * 1e-9 / elapsed;
}
