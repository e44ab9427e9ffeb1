#define _XOPEN_SOURCE 700

#include "support.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint8_t *test_read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    if (!f) fail_msg("%s: cannot be opened", path);
    fseek(f, 0, SEEK_END);
    long n = ftell(f);
    rewind(f);
    uint8_t *bytes = malloc((size_t)n + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)n, f), n);
    bytes[n] = 0;
    fclose(f);
    if (size) *size = (size_t)n;
    return bytes;
}

uint64_t test_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

float test_random_float(uint64_t *state) { return (float)((double)(test_random(state) >> 11) * 0x1p-52 - 1.0); }

char *test_make_folder(void)
{
    const char *root = getenv("TMPDIR");
    char *path = malloc(512);
    assert_non_null(path);
    snprintf(path, 512, "%s/lamina-test-XXXXXX", root && *root ? root : "/tmp");
    assert_non_null(mkdtemp(path));
    return path;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st, (void)kind, (void)walk;
    return remove(path);
}

void test_remove_folder(char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}
