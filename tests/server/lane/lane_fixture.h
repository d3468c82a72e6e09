/* lane_fixture.h: real lanes in their threads behind a real port, without psd around them. The test is the
 * loop (it pushes and takes notes) and the clients (it sends frames). */
#ifndef TEST_SERVER_LANE_LANE_FIXTURE_H
#define TEST_SERVER_LANE_LANE_FIXTURE_H

#include <stdbool.h>

#include "server/lane/lane.h"

enum { RIG_SLOTS = 4, RIG_MAX_LANES = 4, RIG_CHUNK = 1024, RIG_MAX_BODY = 4 * RIG_CHUNK + 64 };

struct rig {
    struct psd_shared shared;
    struct psd_config cfg;
    struct psd_center *center;
    struct psd_lane *lanes[RIG_MAX_LANES];
    uint32_t n_lanes;
    const struct ps_transport *transport;
    bool by_hand; /* the lanes have no threads */
    struct ps_hub *hub, *client_hub;
    struct ps_link *links[RIG_MAX_LANES];
    struct psd_members members; /* as the lanes were told last */
    bool told;                  /* of members, and no hold since */
    uint32_t ranks[RIG_SLOTS];
    void *context, *raw; /* rig_raw's */
};

/* What a lane answered. */
struct reply {
    struct ps_frame f;
    size_t body_bytes;
    float x[RIG_CHUNK];                 /* of an answer with floats */
    char sentence[PS_MAX_SENTENCE + 1]; /* of an error */
};

/* Starts the lanes. settings: "key=value" of the configuration, NULL-terminated; learning_rate is 1 unless
 * given. */
void rig_open(struct rig *r, const char *rule, uint32_t n_lanes, const char *const *settings);
/* The same over a transport whose bodies are PS_BODY_SHARED to the lanes. */
void rig_open_shared(struct rig *r, const char *rule, uint32_t n_lanes, const char *const *settings);
/* The same with lanes that have no threads: rig_tell makes them take notes, rig_recv serve messages, and the
 * rest of a turn is left to psd_lane_turn. */
void rig_open_by_hand(struct rig *r, const char *rule, uint32_t n_lanes, const char *const *settings);
/* Of rig_open_shared: the body that a lane has received from the client last, for a sender that writes in it
 * after it was checked. Valid until its answer. */
unsigned char *rig_body(uint32_t client);
/* Of rig_open_shared: from now on this client writes to its body whenever the lane makes room for another's
 * answer; -1: it no longer does. */
void rig_write_between(int client);
/* Hands out a center of n floats: x, or zeros for NULL. Call once. */
void rig_fill(struct rig *r, uint64_t n_floats, const float *x);
/* The same with a model of n tensors. */
void rig_fill_model(struct rig *r, const struct ps_tensor *tensors, size_t n, const float *x);
/* Hands out what the snapshot of another rig held, as psd does when it resumes. Takes over the vectors of s,
 * which must outlive the rig. */
void rig_resume(struct rig *r, struct psd_snapshot *s);
/* As psd does when the method changes: closes the lanes; takes their slices back and hands them out under
 * another rule. */
void rig_shut(struct rig *r);
/* It does not after all. */
void rig_open_again(struct rig *r);
void rig_swap(struct rig *r, const char *rule, const char *const *settings);
void rig_close(struct rig *r);

void rig_admit(struct rig *r, uint32_t client, uint32_t incarnation, enum psd_phase phase, bool keep);
/* The lane has taken it when this returns: what is sent from now on comes behind it. A lane looks at its
 * notes once a batch, and may be at a batch. */
void rig_tell(struct rig *r, uint32_t lane, const struct psd_lane_message *msg);
/* The next note of a lane; fails the test when none comes. */
struct psd_lane_message rig_hear(struct rig *r, uint32_t lane);
/* Whether a lane has said something. */
bool rig_heard(struct rig *r, uint32_t lane);

/* The center as it is when every lane has served what it has: a snapshot's. Owned by the rig, until the next.
 */
const float *rig_center(struct rig *r);
/* The average as of the last rig_center. */
const float *rig_average(const struct rig *r);
/* The same with replay entries, for rig_resume: a deep copy. */
void rig_snapshot(struct rig *r, struct psd_snapshot *out);
void rig_snapshot_free(struct psd_snapshot *s);

/* A request for chunk k of a lane. */
struct ps_frame rig_frame(const struct rig *r, uint8_t kind, uint32_t client, uint32_t incarnation,
                          uint64_t seq, uint32_t lane, uint32_t k);
/* Sends; body must stay as it is until the answer has come. */
void rig_send(struct rig *r, uint32_t lane, const struct ps_frame *f, const void *body, size_t body_bytes);
/* The next answer of the lane, whosever it is; fails the test when none comes. */
void rig_recv(struct rig *r, uint32_t lane, struct reply *reply);
/* Sends and waits for the answer. */
void rig_ask(struct rig *r, uint32_t lane, const struct ps_frame *f, const void *body, size_t body_bytes,
             struct reply *reply);
/* rig_ask with the chunk of the whole vector that f names. */
void rig_ask_vector(struct rig *r, uint32_t lane, const struct ps_frame *f, const float *vector,
                    struct reply *reply);
/* rig_send with the chunk of the whole vector that f names. */
void rig_send_vector(struct rig *r, uint32_t lane, const struct ps_frame *f, const float *vector);
/* Nothing was answered that no test has taken: a lane serves in order, so that a pull of this client, who
 * sends nothing else, would be answered after it. */
void rig_assert_silent(struct rig *r, uint32_t lane, uint32_t client, uint32_t incarnation);

/* Admissions with members. Publishes the set, valid from `from` on, and lets the lanes go on. A set told
 * before is the lanes' until a hold. */
void rig_members(struct rig *r, uint64_t from, uint32_t n, const uint32_t *ranks);
/* Holds all lanes; the highest of what they say. */
uint64_t rig_hold(struct rig *r);

/* Whether the transport has a bare socket to send over: not the in-process one. */
bool rig_has_raw(void);
/* A bare DEALER at lane 0, for what a link would never send; made when it is first asked for. */
void *rig_raw(struct rig *r);
/* The same over the bare socket: a header of any length. head NULL: send nothing, only wait. */
void rig_raw_send(struct rig *r, const void *head, size_t head_bytes, const void *body, size_t body_bytes);
void rig_raw_recv(struct rig *r, struct reply *reply);

/* One whole exchange over all lanes and chunks; fails the test unless each is answered, with the flags. */
void rig_exchange(struct rig *r, uint8_t kind, uint32_t client, uint32_t incarnation, uint64_t seq,
                  const float *vector, uint16_t flags);

#endif
