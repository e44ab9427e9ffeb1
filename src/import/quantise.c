#include "import/quantise.h"
#include "base/alloc.h"
#include "tensor/dtype.h"
#include "tensor/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F16_MAX 65504.0f

struct lam_outlier {
    uint64_t index; /* row · cols + column */
    float value;
};

/* ---- the option ---- */

static bool is(const char *text, size_t len, const char *word) { return strlen(word) == len && memcmp(text, word, len) == 0; }

/* A fraction 0 < f <= LAM_OUTLIERS_MAX in plain decimals: digits, one point. Read by hand: strtod follows the locale. */
static bool parse_fraction(const char *text, size_t len, double *out)
{
    double value = 0.0, unit = 1.0;
    bool point = false, digit = false;
    if (len == 0 || len > 16) return false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (text[i] < '0' || text[i] > '9') return false;
        digit = true;
        value = value * 10.0 + (text[i] - '0');
        if (point) unit *= 10.0;
    }
    *out = value / unit;
    return digit && *out <= LAM_OUTLIERS_MAX;
}

static lam_code parse_option(const char *text, size_t len, struct lam_quantise *q, lam_error *err)
{
    static const char outliers[] = "outliers=", keep[] = "keep=";
    int shown = (int)(len < 64 ? len : 64);
    if (len >= sizeof outliers - 1 && memcmp(text, outliers, sizeof outliers - 1) == 0) {
        if (parse_fraction(text + sizeof outliers - 1, len - (sizeof outliers - 1), &q->outliers)) return LAM_OK;
        return LAM_RAISE(err, LAM_E_ARGUMENT, "quantise: %.*s is not a fraction from 0 to %g, such as outliers=0.005", shown, text,
                         LAM_OUTLIERS_MAX);
    }
    if (len >= sizeof keep - 1 && memcmp(text, keep, sizeof keep - 1) == 0) {
        const char *what = text + sizeof keep - 1;
        size_t n = len - (sizeof keep - 1);
        if (is(what, n, "embedding")) return q->keep_embedding = true, LAM_OK;
        if (is(what, n, "output")) return q->keep_output = true, LAM_OK;
        return LAM_RAISE(err, LAM_E_ARGUMENT, "quantise: %.*s: \"embedding\" and \"output\" can be kept", shown, text);
    }
    return LAM_RAISE(err, LAM_E_ARGUMENT, "quantise: unknown option \"%.*s\"; outliers=FRACTION, keep=embedding and keep=output are known",
                     shown, text);
}

lam_code lam_quantise_parse(const char *text, struct lam_quantise *out, lam_error *err)
{
    *out = (struct lam_quantise){0};
    if (!text) return LAM_OK;
    size_t len = strcspn(text, ":");
    if (!is(text, len, "q4_64"))
        return LAM_RAISE(err, LAM_E_ARGUMENT, "quantise: unknown type \"%.*s\"; q4_64 is known", (int)(len < 64 ? len : 64), text);
    out->on = true;
    for (const char *at = text[len] ? text + len + 1 : NULL; at; at = *at ? at + 1 : NULL) {
        len = strcspn(at, ",");
        LAM_TRY(parse_option(at, len, out, err));
        at += len;
    }
    return LAM_OK;
}

bool lam_quantise_takes(const struct lam_quantise *q, enum lam_role role, uint64_t cols)
{
    bool kept = (role == LAM_ROLE_EMBEDDING && q->keep_embedding) || (role == LAM_ROLE_OUTPUT && q->keep_output);
    return q->on && lam_role_is_matrix(role) && !kept && cols % lam_dtype_info(LAM_Q4_64)->block_elements == 0;
}

uint64_t lam_quantise_values(const struct lam_quantise *q, uint64_t rows, uint64_t cols)
{
    double n = q->outliers * ((double)rows * (double)cols);
    return n <= (double)UINT32_MAX ? (uint64_t)n : UINT64_MAX;
}

/* ---- the largest values ---- */

static int larger_first(const void *a, const void *b)
{
    const struct lam_outlier *l = a, *r = b;
    float left = fabsf(l->value), right = fabsf(r->value);
    return left != right ? (left < right ? 1 : -1) : (l->index > r->index) - (l->index < r->index);
}

static int lower_index_first(const void *a, const void *b)
{
    const struct lam_outlier *l = a, *r = b;
    return (l->index > r->index) - (l->index < r->index);
}

lam_code lam_outliers_begin(struct lam_outliers *o, size_t n, lam_error *err)
{
    size_t room;
    *o = (struct lam_outliers){.n = n, .least = -1.0f};
    o->found = lam_mul_size(n, 2, &room) ? lam_alloc(room, sizeof *o->found) : NULL;
    return o->found ? LAM_OK : LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu outliers", n);
}

/* Keeps the n largest. */
static void cut(struct lam_outliers *o)
{
    qsort(o->found, o->n_found, sizeof *o->found, larger_first);
    if (o->n_found < o->n) return;
    o->n_found = o->n;
    o->least = fabsf(o->found[o->n - 1].value);
}

void lam_outliers_add_row(struct lam_outliers *o, uint64_t row, uint64_t cols, const float *values)
{
    for (uint64_t k = 0; k < cols; k++) {
        if (!(fabsf(values[k]) > o->least)) continue; /* an equal one comes too late: its index is higher */
        if (o->n_found == 2 * o->n) cut(o);
        o->found[o->n_found++] = (struct lam_outlier){row * cols + k, values[k]};
    }
}

void lam_outliers_sort(struct lam_outliers *o)
{
    cut(o);
    qsort(o->found, o->n_found, sizeof *o->found, lower_index_first);
    o->at = 0;
}

void lam_outliers_blank(struct lam_outliers *o, uint64_t row, uint64_t cols, float *values)
{
    for (; o->at < o->n_found && o->found[o->at].index / cols == row; o->at++) values[o->found[o->at].index % cols] = 0.0f;
}

static uint16_t clamped_f16(float value)
{
    return lam_f32_to_f16(value > F16_MAX ? F16_MAX : value < -F16_MAX ? -F16_MAX : value);
}

lam_code lam_outliers_finish(struct lam_outliers *o, uint64_t rows, uint64_t cols, lam_error *err)
{
    size_t bytes;
    lam_outliers_sort(o);
    o->bytes = lam_residual_bytes(rows, cols, (uint32_t)o->n, &bytes) ? lam_alloc(bytes, 1) : NULL;
    if (!o->bytes) return LAM_RAISE(err, LAM_E_NO_MEMORY, "%zu outliers", o->n);
    uint32_t *starts = (uint32_t *)(void *)o->bytes, *wide = starts + rows + 1;
    uint16_t *narrow = (uint16_t *)(void *)wide;
    bool is_narrow = lam_residual_view(o->bytes, rows, cols, (uint32_t)o->n).columns16 != NULL;
    uint16_t *values = is_narrow ? narrow + o->n : (uint16_t *)(void *)(wide + o->n);
    for (size_t i = 0; i < o->n_found; i++) {
        uint64_t row = o->found[i].index / cols, column = o->found[i].index % cols;
        starts[row + 1]++;
        if (is_narrow) narrow[i] = (uint16_t)column;
        else wide[i] = (uint32_t)column;
        values[i] = clamped_f16(o->found[i].value);
    }
    for (uint64_t row = 0; row < rows; row++) starts[row + 1] += starts[row];
    lam_free(o->found);
    o->found = NULL;
    return LAM_OK;
}

void lam_outliers_release(struct lam_outliers *o)
{
    lam_free(o->found);
    lam_free(o->bytes);
    *o = (struct lam_outliers){0};
}
