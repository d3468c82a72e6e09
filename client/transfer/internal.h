/* internal.h: functions that the files of this folder share; for the owner of struct psc_transfer_state. */
#ifndef PSC_TRANSFER_INTERNAL_H
#define PSC_TRANSFER_INTERNAL_H

#include "client/transfer/transfer.h"

/* links.c. Links to every lane, over the best transport that can be had. PSC_OK with links.none: there is
 * none now, and there may be later. PSC_ESYSTEM; PSC_EUNSUPPORTED: the one that the caller wants cannot be
 * had. */
int psc_links_open(struct psc *c);
/* Before they are closed: takes back what no lane has begun in place. False: lanes work in the vector; once
 * their answers have been taken it is to be called again. */
bool psc_links_settle(struct psc *c);

/* chunks.c. What the transfer covers: a tensor, a fragment, or the whole vector. */
struct ps_range psc_scope_of(const struct psc *c, const struct psc_transfer *t);
/* What its frames are cut from. */
struct ps_range psc_cover_of(const struct psc *c, const struct psc_transfer *t);
/* Marks the pieces of the scope as unanswered; of an exchange, those that move. */
void psc_pieces_start(struct psc *c, const struct psc_transfer *t);
/* Everything unanswered is to be sent (again). */
void psc_pieces_rewind(struct psc *c);
bool psc_pieces_all_answered(const struct psc *c);
/* Says in carriage.in_place whether lanes, over the links as they are, make the exchange where the worker's
 * vector lies. What may have landed otherwise is sent again as a message: only its answer tells what is left
 * to do to the vector. */
void psc_pieces_choose(struct psc *c, const struct psc_transfer *t);
/* Takes what lanes have answered, and sends nothing: before the links are closed. */
int psc_pieces_take(struct psc *c, const struct psc_transfer *t);
/* Takes what lanes have answered and refills their windows. *progress: whether there was anything. */
int psc_pieces_pump(struct psc *c, const struct psc_transfer *t, bool *progress);

/* encode.c. Room for what is encoded, for the transport's codecs and cut: nothing is encoded yet. PSC_ENOMEM
 * with a sentence. */
int psc_wire_prepare(struct psc *c, struct ps_error *err);
/* What was encoded is of another transfer. */
void psc_wire_begin(struct psc *c);
/* How its payloads, and its answers', are encoded. */
const struct ps_codec *psc_wire_codec(const struct psc *c, const struct psc_transfer *t);
const struct ps_codec *psc_wire_answer_codec(const struct psc *c, const struct psc_transfer *t);
/* The piece r, which is (of) chunk k of the lane, as it is sent: the same bytes whenever it is. */
const void *psc_wire_body(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                          struct ps_range r);
/* It was answered, and `send` is still what it was. */
void psc_wire_landed(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                     struct ps_range r);
/* So was, as far as it matters, all that had not been. */
void psc_wire_landed_whole(struct psc *c, const struct psc_transfer *t);
/* The n floats of an answer: the body's own, or until the next call. */
const float *psc_wire_floats(struct psc *c, const struct psc_transfer *t, const struct ps_message *m,
                             size_t n);

/* transfer.c. PSC_EVALUE, naming the first value of these that is not finite and what became of them; PSC_OK:
 * all are. */
int psc_transfer_find_bad(struct psc *c, const struct psc_transfer *t, struct ps_range at, const char *then,
                          struct ps_error *err);

#endif
