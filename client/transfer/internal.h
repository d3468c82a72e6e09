/* internal.h: functions that the files of this folder share; for the owner of struct psc_transfer_state. */
#ifndef PSC_TRANSFER_INTERNAL_H
#define PSC_TRANSFER_INTERNAL_H

#include "client/transfer/transfer.h"

/* links.c. Opens links to every lane, over the best transport that works. PSC_OK with links.none: none works
 * now, but one may later. PSC_ESYSTEM; PSC_EUNSUPPORTED: the transport that the caller asked for does not
 * work. */
int psc_links_open(struct psc *c);
/* The buffers that the links know, as a bitmap. */
unsigned psc_links_registered(const struct psc *c);
/* Before links are closed: takes back in-place pieces that no lane has begun. False: lanes are still working
 * in the vector; call it again after taking their answers. True: links.cut is known. */
bool psc_links_settle(struct psc *c);

/* chunks.c. The scope of the transfer: a tensor, a fragment, or the whole vector. */
struct ps_range psc_scope_of(const struct psc *c, const struct psc_transfer *t);
/* The range that is divided into its frames. */
struct ps_range psc_cover_of(const struct psc *c, const struct psc_transfer *t);
/* Marks the pieces of the flight's scope as unanswered. An exchange leaves out pieces that are all frozen. */
void psc_pieces_start(struct psc *c, struct psc_flight *f);
/* The same of a flight that has started: its message is the one that was sent. */
void psc_pieces_start_again(struct psc *c, struct psc_flight *f);
/* moved.c. Keeps what the answer to a piece is about to move; r is counted from the begin of the scope. */
void psc_moved_keep(struct psc *c, const struct psc_transfer *t, struct ps_range r);
/* What answers have moved is again as it was before: they will land once more. */
void psc_moved_restore(struct psc *c, const struct psc_flight *f);
/* The links are settled: what a lane has moved in place as its process ended will not be moved once more. */
void psc_moved_settle(struct psc *c);
/* All pieces of a transfer that lands_at_end were answered. */
void psc_pieces_land(struct psc *c, const struct psc_flight *f);
/* Everything that is not answered will be sent (again). */
void psc_pieces_rewind(struct psc *c);
/* Whether every piece of the flight was answered; of all flights that are not over. */
bool psc_pieces_are_answered(const struct psc *c, const struct psc_flight *f);
bool psc_pieces_all_answered(const struct psc *c);
/* Decides, in transfer_state.in_place, whether lanes make the exchange in the worker's vector itself. Pieces
 * that may have landed already are resent as messages instead: only their answers say what remains to be done
 * to the vector. */
void psc_pieces_choose(struct psc *c, const struct psc_transfer *t);
/* Whether the last pieces wait for the caller, who still computes. */
bool psc_keeps_turn(const struct psc *c, const struct psc_transfer *t);
/* Whether all that is left to send is held back at its gate. */
bool psc_pieces_are_held(const struct psc *c, const struct psc_transfer *t);
/* Takes the answers that have arrived, and sends nothing: before the links are closed. */
int psc_pieces_take(struct psc *c);
/* Takes the answers that have arrived and refills the lanes' windows. *progress: whether there were any. */
int psc_pieces_pump(struct psc *c, bool *progress);

/* flights.c. Its pieces are about to be moved. */
static inline void psc_flight_take_up(struct psc_transfer_state *ts, const struct psc_flight *f)
{
    ts->scope = f->scope;
    ts->cover = f->cover;
}
/* The oldest flight that is not over; NULL: there is none. */
struct psc_flight *psc_flight_oldest(struct psc_transfer_state *ts);
/* The flight that an answer names; NULL: it has ended. */
struct psc_flight *psc_flight_find(struct psc_transfer_state *ts, uint64_t seq);
/* Begins the transfer beside those in progress. */
void psc_flight_begin(struct psc *c, const struct psc_transfer *t);
/* Begins those of the followers that may be under way beside those in progress. */
void psc_flights_join(struct psc *c, const struct psc_followers *followers);
bool psc_flight_has_ended(const struct psc *c, const struct psc_flight *f);
/* Whether the server had all of it when it sent the newest Welcome. */
bool psc_flight_has_landed(const struct psc_transfer_state *ts, const struct psc_flight *f);
/* Ends those that are complete or over, in the order in which they began, but for the last. rc: of all others
 * too, if it is not PSC_OK. */
void psc_flights_retire(struct psc *c, const struct psc_followers *followers, int rc);
/* Ends the last. After it the caller's thread may own struct psc_transfer_state. */
void psc_flights_end(struct psc *c, const struct psc_followers *followers);
/* Prepares for the lanes and codecs of a new method. */
int psc_flights_prepare(struct psc *c);
/* Adapts the flights to a new method. */
int psc_flights_take_swap(struct psc *c);
/* PSC_METHOD_CHANGED: there are none whose message is for the present method. Others are over. */
int psc_flights_check(struct psc *c);

/* stage.c. Forgets the message: a new transfer begins, or the mirror has changed since. */
void psc_stage_begin(struct psc *c);
/* Brings r of a message that is not encoded to the host. PSC_EDEVICE. */
int psc_stage_fetch(struct psc *c, const struct psc_transfer *t, struct ps_range r);
/* The message on the host from `at` of the vector on, as far as it was fetched. NULL: it cannot be. */
const float *psc_stage_message(const struct psc *c, const struct psc_transfer *t, struct ps_range scope,
                               uint64_t at);
/* With a device: an answer of n floats in a codec; *floats: where psc_landed finds it there, which is `place`
 * unless that is NULL. answered: it was applied. keeps: the device still reads the message, which was moved
 * from *m. PSC_EDEVICE. */
int psc_stage_answer(struct psc *c, uint32_t lane, const struct ps_codec *codec, const struct ps_message *m,
                     size_t n, float *place, const float **floats);
void psc_stage_answered(struct psc *c);
bool psc_stage_keeps(struct psc *c, uint32_t lane, struct ps_message *m);
/* Before links are closed: waits until the device reads no message. */
void psc_stage_let_go(struct psc *c);
/* The same for piece r in a codec for moves, which the device adds to psc_wire.known. PSC_EUNSUPPORTED: it is
 * not an encoder's. */
int psc_stage_moves(struct psc *c, const struct ps_codec *codec, const void *body, size_t bytes,
                    struct ps_range r, const float **floats);
/* Copies to the target what a lane has made of r in the mirror. */
void psc_stage_take_back(struct psc *c, const struct psc_transfer *t, struct ps_range r);
/* ps_buffer_renew of a buffer that may be the mirror. */
int psc_stage_renew(struct psc *c, struct ps_buffer *b, struct ps_error *err);

/* coded.c: messages that a device encodes. Whether t's is one. */
bool psc_coded_is_for(const struct psc *c, const struct psc_transfer *t);
/* PSC_EUNSUPPORTED: the device does not have the codec. PSC_EDEVICE. */
int psc_coded_prepare(struct psc *c, struct ps_error *err);
/* For psc_wire.room, which was allocated, and is about to be freed. PSC_ENOMEM, PSC_EDEVICE. */
int psc_coded_make_room(struct psc *c, size_t bytes, struct ps_error *err);
void psc_coded_free_room(struct psc *c);
/* Encodes the pieces of the transfer that are not answered. If its values must be checked (t->name),
 * searched then tells the index of the first that is not finite, as search_end. PSC_EDEVICE. */
void psc_coded_begin(struct psc *c, const struct psc_transfer *t);
int psc_coded_searched(struct psc *c, uint64_t *bad, struct ps_error *err);
/* Brings the payload of chunk k of the lane to the host. PSC_EDEVICE. */
int psc_coded_fetch(struct psc *c, uint32_t lane, uint32_t k);
/* psc_wire_landed on the device. */
void psc_coded_feed_back(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                         struct ps_range r);

/* encode.c. Where the payload of chunk k of the lane begins in psc_wire.room. */
size_t psc_wire_place(const struct psc_transfer_state *ts, uint32_t lane, uint32_t k);
/* Allocates the buffer for encoded messages, for the current codecs and shard. PSC_ENOMEM with a
 * sentence. */
int psc_wire_prepare(struct psc *c, struct ps_error *err);
/* Forgets what was encoded. */
void psc_wire_begin(struct psc *c);
/* The chunk's message is another one. */
void psc_wire_renew(struct psc *c, uint32_t lane, uint32_t k);
/* The codec of its messages; and of its answers. */
const struct ps_codec *psc_wire_codec(const struct psc *c, const struct psc_transfer *t);
const struct ps_codec *psc_wire_answer_codec(const struct psc *c, const struct psc_transfer *t);
/* The bytes to send for piece r, which is chunk k of the lane or a part of it: the same bytes at every call.
 */
const void *psc_wire_body(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                          struct ps_range r);
/* The piece was answered, and `send` has not changed since. */
void psc_wire_landed(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                     struct ps_range r);
/* All pieces without an answer have landed as well. */
void psc_wire_landed_whole(struct psc *c, const struct psc_flight *f);
/* The floats of an answer for piece r in the codec: in the message itself, or in a buffer that is valid until
 * the next call. */
const float *psc_wire_floats(struct psc *c, const struct ps_codec *codec, const struct ps_message *m,
                             struct ps_range r);
/* For codecs whose answers are moves. expect: a transfer of the piece, which is chunk k of the lane or a part
 * of it, begins; until the answer the worker's copy of the chunk is uncertain. is_based: whether the copy was
 * certain when the transfer began, so that the answer may be the change since. know: the piece was answered
 * with these floats, and had not landed before. */
void psc_wire_expect(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                     struct ps_range r);
/* Nothing of the transfer in progress was sent: the copies are as certain as before. */
void psc_wire_withdraw(struct psc *c);
/* Whether the copy is certain now. */
bool psc_wire_is_known(const struct psc_transfer_state *ts, uint32_t lane, uint32_t k);
bool psc_wire_is_based(const struct psc_transfer_state *ts, uint32_t lane, uint32_t k);
void psc_wire_know(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k, struct ps_range r,
                   const float *floats);

#endif
