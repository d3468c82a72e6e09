#include "tests/support/system/daemon.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/clock.h"

enum { MAX_ARGS = 64 };
#define POLL_S 0.005

static void find_program(char *program, size_t size, const char *psd)
{
    static const char *const places[] = {"psd", "../server/psd", "../../server/psd"};
    char self[400] = "", *dir;
    snprintf(program, size, "%s", psd != NULL ? psd : "psd");
    if (psd != NULL || readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return;
    dir = dirname(self);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char candidate[512];
        snprintf(candidate, sizeof candidate, "%s/%s", dir, places[i]);
        if (access(candidate, X_OK) == 0) {
            snprintf(program, size, "%s", candidate);
            return;
        }
    }
}

int daemon_prepare(struct daemon *d, const char *psd, const char *const *settings)
{
    *d = (struct daemon){.dir = "/tmp/psd-test-XXXXXX", .settings = settings};
    if (mkdtemp(d->dir) == NULL)
        return -1;
    snprintf(d->endpoint, sizeof d->endpoint, "@%s/endpoint", d->dir);
    snprintf(d->state_dir, sizeof d->state_dir, "%s/state", d->dir);
    snprintf(d->socket, sizeof d->socket, "%s/psd.sock", d->state_dir);
    snprintf(d->log, sizeof d->log, "%s/log", d->dir);
    snprintf(d->config, sizeof d->config, "%s/psd.yaml", d->dir);
    find_program(d->program, sizeof d->program, psd);
    return 0;
}

bool daemon_write_config(const struct daemon *d, const char *text)
{
    FILE *f = fopen(d->config, "we");
    if (f == NULL)
        return false;
    bool written = fputs(text, f) >= 0;
    return fclose(f) == 0 && written;
}

static bool sets(const struct daemon *d, const char *prefix)
{
    for (int i = 0; d->settings != NULL && d->settings[i] != NULL; i++)
        if (strncmp(d->settings[i], prefix, strlen(prefix)) == 0)
            return true;
    return false;
}

/* Tests use the listener's transport unless they or PSD_TEST_TRANSPORT select another. */
static const char *transport_of(const struct daemon *d)
{
    const char *wanted = getenv("PSD_TEST_TRANSPORT");
    if (sets(d, "transport="))
        return NULL;
    if (sets(d, "listen=ipc"))
        return "transport=ipc";
    if (wanted != NULL && strcmp(wanted, "shm") == 0)
        return "transport=shm";
    return "transport=tcp";
}

/* A listen address that only this test uses. A worker that outlives its psd keeps connecting to the old port,
 * and must not find the psd of another test there. NULL: the test sets its own address. */
static const char *listen_of(const struct daemon *d, char *setting, size_t size)
{
    unsigned test = (unsigned)getppid();
    if (sets(d, "listen=") || sets(d, "advertise="))
        return NULL;
    snprintf(setting, size, "listen=tcp://127.%u.%u.%u:0", 64 + (test >> 16) % 64, (test >> 8) % 256,
             test % 256);
    return setting;
}

static void run_child(const struct daemon *d, const char *extra)
{
    char setting[64];
    const char *args[MAX_ARGS] = {d->program, "--state-dir", d->state_dir, "--endpoint-file",
                                  d->endpoint + 1};
    const char *transport = transport_of(d), *address = listen_of(d, setting, sizeof setting);
    int n = 5, log = d->log_fd > 0 ? d->log_fd : open(d->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    for (int i = 0; d->settings != NULL && d->settings[i] != NULL && n + 8 < MAX_ARGS; i++) {
        args[n++] = "--set";
        args[n++] = d->settings[i];
    }
    if (transport != NULL) {
        args[n++] = "--set";
        args[n++] = transport;
    }
    if (address != NULL) {
        args[n++] = "--set";
        args[n++] = address;
    }
    if (access(d->config, R_OK) == 0) {
        args[n++] = "--config";
        args[n++] = d->config;
    }
    if (extra != NULL)
        args[n++] = extra;
    dup2(log, STDERR_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* psd ends with a failed test */
    execvp(d->program, (char *const *)(uintptr_t)args);
    dprintf(STDERR_FILENO, "cannot run %s\n", d->program);
    _exit(127);
}

void daemon_show_log(const struct daemon *d)
{
    char line[1200];
    FILE *f = fopen(d->log, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        fputs(line, stderr);
    if (f != NULL)
        fclose(f);
}

void daemon_spawn(struct daemon *d, const char *extra)
{
    d->pid = fork();
    if (d->pid == 0)
        run_child(d, extra);
}

int daemon_start(struct daemon *d, const char *extra)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    unlink(d->endpoint + 1);
    daemon_spawn(d, extra);
    while (d->pid > 0 && test_now_s() < deadline && access(d->endpoint + 1, R_OK) != 0) {
        if (waitpid(d->pid, NULL, WNOHANG) != 0) {
            d->pid = 0;
            break;
        }
        test_nap_s(POLL_S);
    }
    if (d->pid > 0 && access(d->endpoint + 1, R_OK) == 0)
        return 0;
    fprintf(stderr, "psd (%s) did not start:\n", d->program);
    daemon_show_log(d);
    return -1;
}

int daemon_wait_exit(struct daemon *d, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    int status = -1;
    if (d->pid <= 0)
        return -1;
    while (test_now_s() < deadline) {
        if (waitpid(d->pid, &status, WNOHANG) == d->pid) {
            d->pid = 0;
            return status;
        }
        test_nap_s(POLL_S);
    }
    return -1;
}

int daemon_stop(struct daemon *d, int signal_number, double seconds)
{
    if (d->pid <= 0)
        return -1;
    kill(d->pid, signal_number);
    return daemon_wait_exit(d, seconds);
}

int daemon_run(struct daemon *d, const char *extra, double seconds)
{
    daemon_spawn(d, extra);
    int status = daemon_wait_exit(d, seconds);
    return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void daemon_remove(struct daemon *d)
{
    char command[128];
    if (d->pid > 0) {
        kill(d->pid, SIGKILL);
        waitpid(d->pid, NULL, 0);
    }
    snprintf(command, sizeof command, "rm -rf '%s'", d->dir);
    if (d->dir[0] != 0 && system(command) != 0)
        fprintf(stderr, "cannot remove %s\n", d->dir);
}

double daemon_cpu_s(pid_t pid)
{
    char path[64], line[1024];
    unsigned long user = 0, system_time = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return NAN;
    char *p = fgets(line, sizeof line, f) != NULL ? strrchr(line, ')') : NULL;
    fclose(f);
    if (p == NULL ||
        sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system_time) != 2)
        return NAN;
    return (double)(user + system_time) / (double)sysconf(_SC_CLK_TCK);
}

uint64_t daemon_resident_bytes(pid_t pid)
{
    char path[64];
    unsigned long long size = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL || fscanf(f, "%llu %llu", &size, &resident) != 2)
        resident = 0;
    if (f != NULL)
        fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Whether the process exists and is not stopped. */
static bool is_running(pid_t pid)
{
    char path[64], line[1024], state = 'X';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    char *p = f != NULL && fgets(line, sizeof line, f) != NULL ? strrchr(line, ')') : NULL;
    if (f != NULL)
        fclose(f);
    return p != NULL && sscanf(p + 1, " %c", &state) == 1 && strchr("RSD", state) != NULL;
}

static size_t collect(char *data, size_t size, size_t n, void *file)
{
    return fwrite(data, size, n, file);
}

char *daemon_ask(const struct daemon *d, const char *method, const char *path)
{
    char url[400], *body = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&body, &size);
    CURL *curl = curl_easy_init();
    snprintf(url, sizeof url, "http://psd%s", path);
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, d->socket);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)test_slow_s(TEST_HANG_S));
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, f);
    CURLcode rc = curl_easy_perform(curl);
    curl_easy_cleanup(curl);
    fclose(f);
    if (rc != CURLE_OK) {
        free(body);
        body = NULL;
    }
    return body;
}

/* The value at a dotted path of the page's JSON. The caller releases *root, even if the value is NULL. */
static json_t *find(const struct daemon *d, const char *page, const char *dotted, json_t **root)
{
    char *body = daemon_ask(d, "GET", page), part[64];
    json_t *at = *root = body != NULL ? json_loads(body, 0, NULL) : NULL;
    while (at != NULL && *dotted != 0) {
        size_t len = strcspn(dotted, ".");
        snprintf(part, sizeof part, "%.*s", (int)len, dotted);
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
        dotted += len + (dotted[len] == '.');
    }
    free(body);
    return at;
}

double daemon_number(const struct daemon *d, const char *page, const char *dotted)
{
    json_t *root, *at = find(d, page, dotted, &root);
    double value = json_is_number(at) ? json_number_value(at) : NAN;
    json_decref(root);
    return value;
}

bool daemon_text(const struct daemon *d, const char *page, const char *dotted, char *text, size_t size)
{
    json_t *root, *at = find(d, page, dotted, &root);
    bool found = json_is_string(at);
    snprintf(text, size, "%s", found ? json_string_value(at) : "");
    json_decref(root);
    return found;
}

double daemon_worker(const struct daemon *d, int rank, const char *key)
{
    json_t *root, *all = find(d, "/workers", "workers", &root), *w;
    double value = NAN;
    size_t i;
    json_array_foreach(all, i, w) if (json_is_integer(json_object_get(w, "rank")) &&
                                      json_integer_value(json_object_get(w, "rank")) == rank) value =
        json_number_value(json_object_get(w, key));
    json_decref(root);
    return value;
}

bool daemon_reaches(const struct daemon *d, const char *page, const char *dotted, double least,
                    double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    do {
        if (daemon_number(d, page, dotted) >= least)
            return true;
        test_nap_s(4 * POLL_S);
    } while (test_now_s() < deadline);
    return false;
}

double daemon_workers(const struct daemon *d)
{
    char *body = daemon_ask(d, "GET", "/status");
    json_t *status = body != NULL ? json_loads(body, 0, NULL) : NULL;
    const json_t *w = json_object_get(status, "workers"), *active = json_object_get(w, "active");
    double n = json_is_integer(active)
                   ? json_number_value(active) + json_number_value(json_object_get(w, "silent"))
                   : NAN;
    json_decref(status);
    free(body);
    return n;
}

bool daemon_workers_become(const struct daemon *d, unsigned n)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    while (daemon_workers(d) != n) {
        if (test_now_s() > deadline)
            return false;
        test_nap_s(POLL_S);
    }
    return true;
}

/* psd writes its log in a thread. Waits until all earlier lines are in the file. Does not wait for a psd that
 * has ended or is stopped. */
static void await_log(const struct daemon *d)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    while (d->pid > 0 && is_running(d->pid) && daemon_number(d, "/status", "log.waiting_bytes") > 0 &&
           test_now_s() < deadline)
        test_nap_s(POLL_S);
}

unsigned daemon_logged(const struct daemon *d, const char *text)
{
    char *line = NULL;
    size_t room = 0;
    unsigned n = 0;
    await_log(d);
    FILE *f = fopen(d->log, "re");
    while (f != NULL && getline(&line, &room, f) >= 0)
        n += strstr(line, text) != NULL;
    if (f != NULL)
        fclose(f);
    free(line);
    return n;
}

bool daemon_will_log(const struct daemon *d, const char *text, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    while (daemon_logged(d, text) == 0) {
        if (test_now_s() > deadline)
            return false;
        test_nap_s(4 * POLL_S);
    }
    return true;
}

static bool is_saving(const struct daemon *d)
{
    json_t *root, *at = find(d, "/status", "checkpoint.in_progress", &root);
    bool saving = !json_is_false(at);
    json_decref(root);
    return saving;
}

/* Requests a checkpoint. Returns its lowest possible version. */
static double ask_for_checkpoint(const struct daemon *d)
{
    char *answer = daemon_ask(d, "POST", "/checkpoint");
    json_t *root = answer != NULL ? json_loads(answer, 0, NULL) : NULL;
    double version = json_number_value(json_object_get(root, "version"));
    json_decref(root);
    free(answer);
    return version;
}

/* Waits for a running checkpoint first: psd writes one as soon as it has a center. */
bool daemon_checkpoint(const struct daemon *d, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    for (; is_saving(d); test_nap_s(POLL_S))
        if (test_now_s() > deadline)
            return false;
    unsigned before = daemon_logged(d, "checkpoint.written");
    double version = ask_for_checkpoint(d);
    while (daemon_logged(d, "checkpoint.written") == before ||
           !(daemon_number(d, "/status", "checkpoint.last_version") >= version)) {
        if (test_now_s() > deadline)
            return false;
        test_nap_s(POLL_S);
    }
    return true;
}
