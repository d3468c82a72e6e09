/* job_fixture.h: a job (server/job) without a daemon: the parts that it works with, and nothing above it. Its
 * hooks are not set: a test that gets that far sets what it needs. */
#ifndef TEST_SERVER_JOB_FIXTURE_H
#define TEST_SERVER_JOB_FIXTURE_H

#include "server/job/job.h"

struct job_fixture {
    struct psd_config cfg;
    uv_loop_t loop;
    struct psd_lanes lanes;
    struct psd_sessions sessions;
    struct psd_sender sender;
    struct psd_job job;
};

/* The fixture is zero but for what the test has set. */
static inline void job_fixture_wire(struct job_fixture *d)
{
    d->job.cfg = &d->cfg;
    d->job.loop = &d->loop;
    d->job.lanes = &d->lanes;
    d->job.sessions = d->sender.sessions = &d->sessions;
    d->job.sender = &d->sender;
}

#endif
