/* Collecting faults. Lack of memory loses no fault: it is counted in n_more. */
#ifndef LAM_COMPOSE_FAULTS_H
#define LAM_COMPOSE_FAULTS_H

#include "lamina/manifest.h"

void lam_fault_list_add(lam_fault_list *faults, lam_code code, const char *subject, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#endif
