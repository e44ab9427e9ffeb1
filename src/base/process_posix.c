#define _POSIX_C_SOURCE 200809L

#include "base/process.h"
#include "base/str.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

long lam_process_number(void) { return (long)getpid(); }

void lam_process_user(char *who, size_t room)
{
    char host[256] = "?", found[1024];
    struct passwd entry, *user = NULL;
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "?");
    if (getpwuid_r(geteuid(), &entry, found, sizeof found, &user) == 0 && user) snprintf(who, room, "%s@%s", user->pw_name, host);
    else snprintf(who, room, "%lu@%s", (unsigned long)geteuid(), host);
    lam_clean_line(who);
}
