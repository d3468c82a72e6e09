#include "proto/security/curve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

enum { FILE_MAX_BYTES = 4096 };

static const char z85[] =
    "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
static const char name_characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._@:-";

bool ps_curve_is_key(const char *text)
{
    uint8_t bytes[PS_CURVE_KEY_BYTES];
    return strlen(text) == PS_CURVE_KEY_CHARS && strspn(text, z85) == PS_CURVE_KEY_CHARS &&
           zmq_z85_decode(bytes, text) != NULL;
}

bool ps_curve_is_name(const char *text)
{
    size_t n = strlen(text);
    return n >= 1 && n <= PS_CURVE_NAME_MAX && strspn(text, name_characters) == n;
}

int ps_curve_generate(const char *name, struct ps_curve_pair *out, struct ps_error *err)
{
    struct ps_curve_pair pair = {.name = ""};
    if (!ps_curve_is_name(name))
        return ps_fail(
            err, -EINVAL,
            "'%.80s' is not a valid name of an identity; allowed are 1 to %d letters, digits and ._@:-", name,
            PS_CURVE_NAME_MAX);
    if (zmq_curve_keypair(pair.public_key, pair.secret_key) != 0)
        return ps_fail(err, -ENOTSUP, "this libzmq was built without CURVE: %s", zmq_strerror(zmq_errno()));
    snprintf(pair.name, sizeof pair.name, "%s", name);
    *out = pair;
    return 0;
}

/* The members of a key file. */
static const struct row {
    const char *name;
    size_t offset;
    bool is_key, needed;
} rows[] = {
    {"name", offsetof(struct ps_curve_pair, name), false, false},
    {"public", offsetof(struct ps_curve_pair, public_key), true, true},
    {"secret", offsetof(struct ps_curve_pair, secret_key), true, true},
    {"server", offsetof(struct ps_curve_pair, server_key), true, false},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* Removes blanks at both ends, in place. */
static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r", text[n - 1]) != NULL)
        text[--n] = 0;
    return text;
}

/* Errors never quote a value, which may be a secret. */
static int take_line(const char *place, unsigned at, char *line, struct ps_curve_pair *pair,
                     struct ps_error *err)
{
    char *colon = strchr(line, ':'), *key = line, *value = NULL;
    if (colon != NULL) {
        *colon = 0;
        key = trim(line);
        value = trim(colon + 1);
    }
    for (int i = 0; colon != NULL && i < N_ROWS; i++) {
        char *to = (char *)pair + rows[i].offset;
        if (strcmp(rows[i].name, key) != 0)
            continue;
        if (to[0] != 0)
            return ps_fail(err, -EINVAL, "%s:%u: %s: found twice; allowed is once", place, at, key);
        if (rows[i].is_key ? !ps_curve_is_key(value) : !ps_curve_is_name(value))
            return ps_fail(err, -EINVAL, "%s:%u: %s: found an invalid value of %zu characters; allowed %s",
                           place, at, key, strlen(value),
                           rows[i].is_key ? "is a key of 40 characters of Z85, as psctl keygen writes it"
                                          : "are 1 to 63 letters, digits and ._@:-");
        memcpy(to, value, strlen(value) + 1);
        return 0;
    }
    return ps_fail(err, -EINVAL,
                   "%s:%u: found another line than name:, public:, secret:, server: and # comments", place,
                   at);
}

static int check_whole(const char *place, const struct ps_curve_pair *pair, struct ps_error *err)
{
    char derived[PS_CURVE_KEY_CHARS + 1];
    for (int i = 0; i < N_ROWS; i++)
        if (rows[i].needed && ((const char *)pair + rows[i].offset)[0] == 0)
            return ps_fail(err, -EINVAL, "%s: no line '%s: KEY'; psctl keygen writes a whole key file", place,
                           rows[i].name);
    if (zmq_curve_public(derived, pair->secret_key) != 0)
        return ps_fail(err, -ENOTSUP, "this libzmq was built without CURVE: %s", zmq_strerror(zmq_errno()));
    if (strcmp(derived, pair->public_key) != 0)
        return ps_fail(err, -EINVAL, "%s: secret: it does not belong to the public key in the same file",
                       place);
    return 0;
}

int ps_curve_parse(const char *place, const char *text, size_t len, struct ps_curve_pair *out,
                   struct ps_error *err)
{
    struct ps_curve_pair pair = {.name = ""};
    char line[256];
    unsigned at = 1;
    int rc = 0;

    if (len > FILE_MAX_BYTES || memchr(text, 0, len) != NULL)
        return ps_fail(err, -EINVAL, "%s: found %s; allowed is a text of at most %d bytes", place,
                       len > FILE_MAX_BYTES ? "a larger file" : "a zero byte", FILE_MAX_BYTES);
    for (const char *end = text + len; text < end && rc == 0; at++) {
        const char *eol = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((eol != NULL ? eol : end) - text);
        if (n >= sizeof line)
            return ps_fail(err, -EINVAL, "%s:%u: found a line of %zu bytes; allowed are at most %zu", place,
                           at, n, sizeof line - 1);
        memcpy(line, text, n);
        line[n] = 0;
        text += n + (eol != NULL);
        char *word = trim(line);
        if (word[0] != 0 && word[0] != '#')
            rc = take_line(place, at, word, &pair, err);
    }
    if (rc == 0)
        rc = check_whole(place, &pair, err);
    if (rc == 0)
        *out = pair;
    explicit_bzero(line, sizeof line);
    explicit_bzero(&pair, sizeof pair);
    return rc;
}

/* Checked by the descriptor, so that the file cannot be replaced in between. */
static int check_private(const char *path, int fd, struct ps_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ps_fail(err, -errno, "key file '%s': %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ps_fail(err, -EINVAL, "key file '%s': not a regular file", path);
    if (st.st_uid != geteuid())
        return ps_fail(err, -EACCES,
                       "key file '%s' belongs to uid %u; allowed is a file of this process's user, uid %u",
                       path, (unsigned)st.st_uid, (unsigned)geteuid());
    if ((st.st_mode & 077) != 0)
        return ps_fail(
            err, -EACCES,
            "key file '%s' has mode %04o: others can read or write it; allowed is 0600 (chmod 600)", path,
            (unsigned)st.st_mode & 07777);
    return 0;
}

int ps_curve_read(const char *path, struct ps_curve_pair *out, struct ps_error *err)
{
    char text[FILE_MAX_BYTES + 1];
    size_t len = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc;
    if (fd < 0)
        return ps_fail(err, -errno, "key file '%s': %s", path, strerror(errno));
    if ((rc = check_private(path, fd, err)) == 0) {
        while (len < sizeof text && (n = read(fd, text + len, sizeof text - len)) > 0)
            len += (size_t)n;
        rc = n < 0 ? ps_fail(err, -errno, "key file '%s': %s", path, strerror(errno))
                   : ps_curve_parse(path, text, len, out, err);
    }
    explicit_bzero(text, sizeof text);
    close(fd);
    return rc;
}

static int write_temp(int fd, const struct ps_curve_pair *pair)
{
    char text[512];
    int n = snprintf(
        text, sizeof text,
        "# psd key pair, by psctl keygen: anyone who can read it can act as %s\nname: %s\npublic: "
        "%s\nsecret: %s\n%s%s%s",
        pair->name, pair->name, pair->public_key, pair->secret_key,
        pair->server_key[0] != 0 ? "server: " : "", pair->server_key, pair->server_key[0] != 0 ? "\n" : "");
    bool ok = write(fd, text, (size_t)n) == n && fsync(fd) == 0;
    int rc = ok ? 0 : errno != 0 ? -errno : -EIO;
    explicit_bzero(text, sizeof text);
    return rc;
}

int ps_curve_write(const char *path, const struct ps_curve_pair *pair, struct ps_error *err)
{
    char temp[4096];
    int n = snprintf(temp, sizeof temp, "%s.%d.tmp", path, (int)getpid()), rc;
    if (n < 0 || (size_t)n >= sizeof temp)
        return ps_fail(err, -ENAMETOOLONG, "key file '%.100s…': the name is too long", path);
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return ps_fail(err, -errno, "key file '%s': %s", path, strerror(errno));
    rc = fchmod(fd, 0600) == 0 ? write_temp(fd, pair) : -errno;
    if (close(fd) != 0 && rc == 0)
        rc = -errno;
    if (rc == 0 && link(temp, path) != 0)
        rc = -errno;
    unlink(temp);
    if (rc == -EEXIST)
        return ps_fail(err, rc, "key file '%s': it exists, and a key pair is never overwritten", path);
    return rc == 0 ? 0 : ps_fail(err, rc, "key file '%s': %s", path, strerror(-rc));
}

int ps_curve_serve(void *socket, const struct ps_curve_pair *pair)
{
    int one = 1;
    return zmq_setsockopt(socket, ZMQ_ZAP_DOMAIN, PS_CURVE_DOMAIN, sizeof PS_CURVE_DOMAIN - 1) |
           zmq_setsockopt(socket, ZMQ_CURVE_SERVER, &one, sizeof one) |
           zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, pair->secret_key, PS_CURVE_KEY_CHARS + 1);
}

int ps_curve_connect(void *socket, const struct ps_curve_pair *pair, const char *server_key)
{
    return zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server_key, PS_CURVE_KEY_CHARS + 1) |
           zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, pair->public_key, PS_CURVE_KEY_CHARS + 1) |
           zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, pair->secret_key, PS_CURVE_KEY_CHARS + 1);
}
