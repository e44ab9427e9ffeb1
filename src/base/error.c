#include "base/error.h"
#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>

lam_code lam_error_set(lam_error *err, lam_code code, const char *file, int line, const char *format, ...)
{
    if (!err) return code;
    err->code = code;
    err->file = file;
    err->line = line;
    va_list args;
    va_start(args, format);
    vsnprintf(err->message, sizeof err->message, format, args);
    va_end(args);
    lam_clean_line(err->message);
    return code;
}

const char *lam_code_name(lam_code code)
{
    switch (code) {
#define NAME(c) case c: return #c
    NAME(LAM_OK); NAME(LAM_E_ARGUMENT); NAME(LAM_E_NO_MEMORY); NAME(LAM_E_IO); NAME(LAM_E_NOT_FOUND);
    NAME(LAM_E_NO_SPACE); NAME(LAM_E_LIMIT); NAME(LAM_E_CANCELLED); NAME(LAM_E_ISA); NAME(LAM_E_CONFLICT);
    NAME(LAM_E_MAGIC); NAME(LAM_E_VERSION); NAME(LAM_E_BYTE_ORDER); NAME(LAM_E_TRUNCATED); NAME(LAM_E_OVERFLOW);
    NAME(LAM_E_OVERLAP); NAME(LAM_E_GAP); NAME(LAM_E_DUPLICATE); NAME(LAM_E_FORMAT); NAME(LAM_E_CHECKSUM);
    NAME(LAM_E_DIGEST); NAME(LAM_E_LEGACY); NAME(LAM_E_UNKNOWN_FIELD); NAME(LAM_E_CHANGED); NAME(LAM_E_ALIGNMENT);
    NAME(LAM_E_ARCHITECTURE); NAME(LAM_E_UNSUPPORTED); NAME(LAM_E_MISSING_TENSOR); NAME(LAM_E_EXTRA_TENSOR);
    NAME(LAM_E_SHAPE); NAME(LAM_E_DTYPE); NAME(LAM_E_NON_FINITE); NAME(LAM_E_ACTIVATION);
    NAME(LAM_E_METHOD); NAME(LAM_E_WRONG_BASE); NAME(LAM_E_UNBOUND); NAME(LAM_E_UNMATCHED); NAME(LAM_E_MISSING_PAIR);
    NAME(LAM_E_TRANSPOSED); NAME(LAM_E_AMBIGUOUS); NAME(LAM_E_RANK); NAME(LAM_E_TOKENIZER);
    NAME(LAM_E_UTF8); NAME(LAM_E_TOKEN); NAME(LAM_E_TEMPLATE); NAME(LAM_E_PRETOKENIZER); NAME(LAM_E_CONTEXT);
#undef NAME
    }
    return "LAM_E_?";
}
