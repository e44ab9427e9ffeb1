/* Who is at work: for records that people read. Of POSIX systems only. */
#ifndef LAM_BASE_PROCESS_H
#define LAM_BASE_PROCESS_H

#include <stddef.h>

long lam_process_number(void);
/* "user@host" in who[room], "?" for what cannot be told. */
void lam_process_user(char *who, size_t room);

#endif
