#include "tests/support/daemon.h"

#include <curl/curl.h>
#include <fcntl.h>
#include <jansson.h>
#include <libgen.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_S = 15, MAX_ARGS = 64 };

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

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
    find_program(d->program, sizeof d->program, psd);
    return 0;
}

static void run_child(const struct daemon *d, const char *extra)
{
    const char *args[MAX_ARGS] = {d->program, "--state-dir", d->state_dir, "--endpoint-file",
                                  d->endpoint + 1};
    int n = 5, log = open(d->log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    for (int i = 0; d->settings != NULL && d->settings[i] != NULL && n + 4 < MAX_ARGS; i++) {
        args[n++] = "--set";
        args[n++] = d->settings[i];
    }
    if (extra != NULL)
        args[n++] = extra;
    dup2(log, STDERR_FILENO);
    execvp(d->program, (char *const *)(uintptr_t)args);
    dprintf(STDERR_FILENO, "cannot run %s\n", d->program);
    _exit(127);
}

static void show_log(const struct daemon *d)
{
    char line[1200];
    FILE *f = fopen(d->log, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        fputs(line, stderr);
    if (f != NULL)
        fclose(f);
}

int daemon_start(struct daemon *d, const char *extra)
{
    double deadline = now_s() + START_S;
    unlink(d->endpoint + 1);
    d->pid = fork();
    if (d->pid == 0)
        run_child(d, extra);
    while (d->pid > 0 && now_s() < deadline && access(d->endpoint + 1, R_OK) != 0) {
        if (waitpid(d->pid, NULL, WNOHANG) != 0) {
            d->pid = 0;
            break;
        }
        nap();
    }
    if (d->pid > 0 && access(d->endpoint + 1, R_OK) == 0)
        return 0;
    fprintf(stderr, "psd (%s) did not start:\n", d->program);
    show_log(d);
    return -1;
}

int daemon_stop(struct daemon *d, int signal_number, double seconds)
{
    double deadline = now_s() + seconds;
    int status = -1;
    if (d->pid <= 0)
        return -1;
    kill(d->pid, signal_number);
    while (now_s() < deadline) {
        if (waitpid(d->pid, &status, WNOHANG) == d->pid) {
            d->pid = 0;
            return status;
        }
        nap();
    }
    return -1;
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

static size_t collect(char *data, size_t size, size_t n, void *file)
{
    return fwrite(data, size, n, file);
}

char *daemon_ask(const struct daemon *d, const char *method, const char *path)
{
    char url[200], *body = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&body, &size);
    CURL *curl = curl_easy_init();
    snprintf(url, sizeof url, "http://psd%s", path);
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, d->socket);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, 10L);
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

double daemon_number(const struct daemon *d, const char *page, const char *dotted)
{
    char *body = daemon_ask(d, "GET", page), part[64];
    json_t *root = body != NULL ? json_loads(body, 0, NULL) : NULL, *at = root;
    double value = NAN;
    while (at != NULL && *dotted != 0) {
        size_t len = strcspn(dotted, ".");
        snprintf(part, sizeof part, "%.*s", (int)len, dotted);
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
        dotted += len + (dotted[len] == '.');
    }
    if (json_is_number(at))
        value = json_number_value(at);
    json_decref(root);
    free(body);
    return value;
}

bool daemon_logged(const struct daemon *d, const char *text)
{
    char line[1200];
    bool found = false;
    FILE *f = fopen(d->log, "re");
    while (f != NULL && !found && fgets(line, sizeof line, f) != NULL)
        found = strstr(line, text) != NULL;
    if (f != NULL)
        fclose(f);
    return found;
}
