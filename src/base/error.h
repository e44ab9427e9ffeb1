/* Raising and forwarding errors. err may be NULL everywhere: the code alone is then returned. */
#ifndef LAM_BASE_ERROR_H
#define LAM_BASE_ERROR_H

#include "lamina/error.h"

/* Fill *err and return code. */
lam_code lam_error_set(lam_error *err, lam_code code, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* return LAM_RAISE(err, LAM_E_SHAPE, "tensor %s: ...", name); */
#define LAM_RAISE(err, code, ...) lam_error_set((err), (code), __FILE__, __LINE__, __VA_ARGS__)

/* Forward a failure of expression to the caller; for functions that own nothing at that point. */
#define LAM_TRY(expression)                                  \
    do {                                                     \
        lam_code lam_try_code_ = (expression);               \
        if (lam_try_code_ != LAM_OK) return lam_try_code_;   \
    } while (0)

#endif
