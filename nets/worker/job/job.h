/* job.h: the data, net and session that training and evaluation share. One thread computes and calls the
 * client library; a second one receives signals (signals.h). */
#ifndef CNN_WORKER_JOB_JOB_H
#define CNN_WORKER_JOB_JOB_H

#include "client/psclient.h"
#include "nets/data/data.h"
#include "nets/net.h"
#include "nets/training/freeze.h"
#include "nets/worker/job/args.h"
#include "nets/worker/job/clique.h"
#include "nets/worker/job/partition.h"
#include "nets/worker/job/signals.h"

enum cnn_exit {
    CNN_EXIT_OK = 0, /* finished, drained, or stopped by a signal */
    CNN_EXIT_INTERNAL = 1,
    CNN_EXIT_USAGE = 2,
    CNN_EXIT_DATA = 5,
    CNN_EXIT_SERVER = 6, /* the server is gone, or it ended the session */
    CNN_EXIT_DIVERGED = 7,
    CNN_EXIT_CLIQUE = 8, /* a member is gone, or members disagree */
    CNN_EXIT_AUTH = 9,   /* the server refused this client, or the key file cannot be used */
};

struct ps_event_file;

struct cnn_job {
    const struct cnn_worker_args *args;    /* of a partition: its own batch and threads */
    const struct cnn_partition *partition; /* NULL: the worker is not divided */
    struct cnn_stop *stop;
    struct cnn_model model;
    struct cnn_data *data;
    struct cnn_data_info info;
    struct cnn_net *net;
    struct cnn_param *params; /* of the model */
    double *rates;            /* learning rate multiplier of each of params */
    struct cnn_freeze freeze;
    size_t n_params;
    size_t n_pixels, n_floats;
    float *x; /* n_floats; as all vectors of the session on the device, if on_device */
    bool on_device;
    float *first; /* [n_floats]: --init's point until the job has begun; NULL: the model's own */
    struct psc *psc;
    struct cnn_clique clique;
    struct ps_event_file *events; /* --tensorboard; NULL: not requested, or not open yet */
    bool joined;                  /* training may begin: from now on a signal lets the current step finish */
    bool stopped;                 /* a signal came before `joined` */
};

/* Opens data, net and session, and reads the start point into job->x. partition: the calling thread's, whose
 * clique is taken over; NULL: the worker is not divided. Returns an enum cnn_exit, after logging the cause.
 * *drained: the server is already draining. If job->stopped, there is nothing to do. The job must be closed
 * even after an error. */
int cnn_job_open(struct cnn_job *job, const struct cnn_worker_args *args,
                 const struct cnn_partition *partition, struct cnn_stop *stop, bool *drained);
void cnn_job_close(struct cnn_job *job);

/* Reads a net's name into a model as the job trains it: with --freeze. An enum cnn_exit, after logging the
 * cause. freeze must be finished even after an error, and outlive the model. */
int cnn_job_read_model(const struct cnn_worker_args *args, const char *name, struct cnn_model *out,
                       struct cnn_freeze *freeze);

/* Opens job->data, for job->model, and reads its info. An enum cnn_exit, after logging the cause.
 * job->stopped: a signal came while a cache was created or waited for; there is no data then. */
int cnn_job_open_data(struct cnn_job *job);

/* Joins the clique of processes that the arguments name, if any, into job->clique. An enum cnn_exit, after
 * logging the cause. job->stopped: a signal came meanwhile. */
int cnn_job_open_clique(struct cnn_job *job);

/* --init: reads the file into job->first, and logs which tensors it lacks. An enum cnn_exit, after logging
 * the cause. */
int cnn_first_point_load(struct cnn_job *job);
/* Fills job->x with the first point, to be offered to the server. A psc result. */
int cnn_first_point_fill(struct cnn_job *job);
/* Called after the begin, with the job's start point in job->x: logs if it is not the first point of --init,
 * and frees that. */
void cnn_first_point_begun(struct cnn_job *job);

/* memory.c. Decides where x and g lie, by --memory, and logs it: job->on_device. An enum cnn_exit, after
 * logging the cause. */
int cnn_job_choose_memory(struct cnn_job *job);
/* A vector of zeros beside x, until the session is closed or cnn_job_free_vector; NULL: no memory. */
float *cnn_job_vector(struct cnn_job *job);
void cnn_job_free_vector(const struct cnn_job *job, float *x);
/* Fills in where the batches of a training stream lie, and whether the net cuts their images itself. */
void cnn_job_place_batches(const struct cnn_job *job, struct cnn_stream_options *out);
/* Copies [n_floats] between a vector and the host. A psc result. */
int cnn_job_write(const struct cnn_job *job, float *x, const float *host);
int cnn_job_read(const struct cnn_job *job, float *host, const float *x);

/* Logs what failed and returns the exit status. rc: a negative result of the client library. */
int cnn_job_fail(struct cnn_job *job, const char *what, int rc);

/* The rank of this process among all training processes, from the client's rank and its rank in the clique;
 * the same for all partitions of a worker. 0 for an observer. */
uint32_t cnn_job_rank(const struct cnn_job *job);
/* Whether other processes, or partitions, share this worker's steps. */
bool cnn_job_is_shared(const struct cnn_job *job);
/* Whether this partition, or undivided worker, shows what the worker does. */
bool cnn_job_tells(const struct cnn_job *job);

#endif
