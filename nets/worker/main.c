/* psworker: trains a net with a parameter server. */
#include "nets/worker/run.h"

#include <signal.h>
#include <sys/resource.h>

#include "proto/log.h"
#include "proto/malloc_settings.h"
#include "proto/standard_files.h"

/* Each tar file of a data set takes a descriptor. Raise the limit to the maximum that the system allows this
 * process. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    struct cnn_worker_args args;
    struct ps_error err;

    ps_standard_files_open();
    signal(SIGPIPE, SIG_IGN); /* training continues when the reader of its output exits */
    signal(SIGXFSZ, SIG_IGN); /* a write past `ulimit -f` fails like one to a full disk */
    signal(SIGUSR1, SIG_IGN); /* asks psd for a checkpoint; batch systems may send it to all of a job */
    raise_descriptor_limit();
    ps_memory_keep_buffers();
    ps_log_setup("psworker", PS_LOG_INFO);
    if (cnn_worker_args_parse(argc, argv, &args, &err) != 0) {
        fprintf(stderr, "psworker: %s\n", err.text);
        return CNN_EXIT_USAGE;
    }
    if (args.help) {
        cnn_worker_args_help(stdout);
        return CNN_EXIT_OK;
    }
    if (args.version) {
        puts("psworker " PSD_VERSION);
        return CNN_EXIT_OK;
    }
    if (args.describe != NULL)
        return cnn_describe(&args, stdout);
    return cnn_worker_run(&args);
}
