/* WASI has no current folder: a program starts in "/". The launcher says in PWD where it was called. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void enter_folder(void)
{
    const char *folder = getenv("PWD");
    if (!folder || chdir(folder) == 0) return;
    perror(folder);
    _Exit(3);
}
