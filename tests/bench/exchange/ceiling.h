/* ceiling.h: what this machine's sockets and memory do, measured as an exchange uses them. */
#ifndef TEST_BENCH_EXCHANGE_CEILING_H
#define TEST_BENCH_EXCHANGE_CEILING_H

#include <stddef.h>
#include <stdint.h>

/* GB/s, both ways summed, of echoing n_floats over n_connections loopback TCP connections: one thread each
 * end a connection, plain sockets, reused buffers, chunk_bytes a piece and `window` pieces in flight. NAN:
 * sockets failed. */
double limit_tcp(size_t n_floats, uint32_t n_connections, size_t chunk_bytes, uint32_t window,
                 double seconds);

/* Median microseconds of a round trip of `bytes` over one loopback TCP connection between two threads. NAN:
 * sockets failed. */
double limit_tcp_p50_us(size_t bytes, double seconds);

/* GB/s of vector through the fused elastic exchange in memory, one thread. */
double limit_fused(size_t n_floats, size_t chunk_bytes, double seconds);

/* GB/s, both ways summed as an exchange counts them (twice the vector), of both halves of the elastic
 * exchange as one plain loop over two vectors, one thread. */
double limit_elastic(size_t n_floats, double seconds);

#endif
