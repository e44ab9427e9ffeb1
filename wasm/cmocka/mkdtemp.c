/* What the tests' support calls and wasi-libc lacks. */
#define _DEFAULT_SOURCE 1

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *mkdtemp(char *path);

char *mkdtemp(char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    unsigned char random[6];
    if (getentropy(random, sizeof random) != 0) return NULL;
    char *end = path + strlen(path);
    for (int i = 0; i < 6; i++) end[i - 6] = letters[random[i] % 32];
    return mkdir(path, 0700) == 0 ? path : NULL;
}
