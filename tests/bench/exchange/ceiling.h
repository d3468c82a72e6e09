/* ceiling.h: limits of this machine's sockets, memory and bus, measured in the way that an exchange uses
 * them. */
#ifndef TEST_BENCH_EXCHANGE_CEILING_H
#define TEST_BENCH_EXCHANGE_CEILING_H

#include <stddef.h>
#include <stdint.h>

/* GB/s, sum of both directions, of echoing n_floats over n_connections loopback TCP connections, with one
 * thread at each end of a connection, plain sockets, reused buffers, pieces of chunk_bytes and `window`
 * pieces in flight. NAN: sockets failed. */
double limit_tcp(size_t n_floats, uint32_t n_connections, size_t chunk_bytes, uint32_t window,
                 double seconds);

/* Median time in microseconds of a round trip of `bytes` over one loopback TCP connection between two
 * threads. NAN: sockets failed. */
double limit_tcp_p50_us(size_t bytes, double seconds);

/* GB/s of the vector in the fused elastic exchange in memory, one thread. */
double limit_fused(size_t n_floats, size_t chunk_bytes, double seconds);

/* GB/s, sum of both directions (twice the vector), of the elastic exchange of worker and center as one plain
 * loop over two vectors, one thread. */
double limit_elastic(size_t n_floats, double seconds);

/* bus.c. The median seconds of copying the vector from a device of that memory to the host, back, and both at
 * the same time. NAN: there is no such device, or it failed. */
struct limit_bus {
    double down_s, up_s, both_s;
};
struct limit_bus limit_bus(const char *memory, size_t n_floats, double seconds);

#endif
