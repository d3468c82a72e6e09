/* Runs every file of the folders that are named through the target once: the seeds, among which are the
 * inputs that once broke it, are tests in builds without libFuzzer too. */
#include <dirent.h>
#include <stdlib.h>

#include "tests/fuzz/fuzz.h"

enum { MAX_BYTES = 1 << 20 };

static int run_file(const char *path)
{
    /* Of exactly the file's length, so that a read behind its end is seen. */
    uint8_t *bytes = malloc(MAX_BYTES), *exact;
    FILE *f = fopen(path, "rb");
    if (f == NULL || bytes == NULL) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    size_t len = fread(bytes, 1, MAX_BYTES, f);
    fclose(f);
    exact = realloc(bytes, len > 0 ? len : 1);
    LLVMFuzzerTestOneInput(exact, len);
    free(exact);
    return 1;
}

static int run_folder(const char *path)
{
    char file[4096];
    int n = 0;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return 0; /* a target whose seeds are all made by seeds.c */
    for (struct dirent *e = readdir(folder); e != NULL; e = readdir(folder))
        if (e->d_name[0] != '.') {
            snprintf(file, sizeof file, "%s/%s", path, e->d_name);
            n += run_file(file);
        }
    closedir(folder);
    return n;
}

int main(int argc, char **argv)
{
    int n = 0;
    for (int i = 1; i < argc; i++)
        n += run_folder(argv[i]);
    printf("%d inputs\n", n);
    return n > 0 ? 0 : 1;
}
