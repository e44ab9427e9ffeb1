#include "format/name.h"
#include "base/utf8.h"

#include <string.h>

bool lam_name_is_clean(const char *bytes, size_t len)
{
    return len > 0 && lam_utf8_is_line(bytes, len);
}

int lam_name_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t n = a_len < b_len ? a_len : b_len;
    int order = n ? memcmp(a, b, n) : 0;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}
