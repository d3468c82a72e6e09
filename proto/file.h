/* file.h: reads and writes whole parts of files: a call that a signal interrupts, or that moves less, is made
 * again. */
#ifndef PS_FILE_H
#define PS_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Reads len bytes from the offset `at` on. 0; -ENODATA: the file ends before; other -errno. *got, which may
 * be NULL: how many bytes were read. */
int ps_file_read(int fd, uint64_t at, void *to, size_t len, size_t *got);

/* Writes at the file's position, or from the offset `at` on. 0 or -errno. *written, which may be NULL: how
 * many bytes were. */
int ps_file_append(int fd, const void *bytes, size_t len, size_t *written);
int ps_file_write(int fd, uint64_t at, const void *bytes, size_t len, size_t *written);

/* Cuts what follows the last newline of a file of lines, whose writer was killed or lost its machine, if it
 * begins as lines of the file do. A file that is missing or not regular is left alone. 0 or -errno. */
int ps_file_cut_torn_line(const char *path, const char *begins);

/* Follows the symbolic links that `path` itself is, also where the last leads to no file yet: what is renamed
 * to `out` takes the place of the file, and not of a link to it. 0, -ENAMETOOLONG or -ELOOP. */
int ps_file_resolve(const char *path, char *out, size_t size);

#endif
