/* psclique_nccl.h: cliques that sum vectors of GPUs by NCCL. One process for each GPU.
 *
 *     psc_ring_options_init(&opt, sizeof opt);  opt.rendezvous = "file:/shared/job/gpus";  opt.members = 4;
 *     psc_nccl_open(&opt, &q);
 *     psc_options.clique = q;  psc_options.memory = "cuda";
 *
 * Beneath it is a ring of the same members (psclique.h). Over the ring members find each other and share
 * NCCL's unique id; it makes all calls on memory of the host, and it knows who is gone. NCCL makes the calls
 * on memory of the GPU: those of a psc of memory "cuda", and those of psc_collective_run with
 * PSC_MEMORY_CUDA, in a stream of the clique's own.
 *
 * A call on memory of the GPU waits on the host until this member's values are there. Then the members meet
 * in the ring, where one that does not come, or makes another call, is named. Only then NCCL begins. If it
 * has not ended within timeout_ms, or a member is gone or silent meanwhile, the communicator is aborted
 * (ncclCommAbort), and the call fails at every member as in a ring: PSC_ECLIQUE, with the member that is gone
 * where that is known. A failure of this member's own GPU is PSC_EDEVICE with CUDA's words.
 *
 * The order of a sum is NCCL's own. It depends on NCCL's choice of an algorithm for the number of values and
 * the connections between the GPUs; psd does not change it. All members end with the same bits.
 *
 * Over NCCL itself it has been run as a clique of one only; cliques of several members on a stand-in for
 * NCCL, because no machine with two GPUs was available: docs/GPU.md. */
#ifndef PSCLIQUE_NCCL_H
#define PSCLIQUE_NCCL_H

#include "psclique.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For the calling thread's current device. opt: of the ring beneath, and timeout_ms of NCCL's calls, too. As
 * psc_ring_open; and PSC_EUNSUPPORTED: the module libpsclique-nccl or NCCL is not installed, there is no GPU;
 * PSC_EINVAL: algorithm is not "ring" (NCCL has its own), or on_loss not "end" (it cannot shrink). */
int psc_nccl_open(const struct psc_ring_options *opt, struct psc_clique **out);

#ifdef __cplusplus
}
#endif
#endif
