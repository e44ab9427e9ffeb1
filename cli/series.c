#include "series.h"

#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void series_add(struct series *s, double value)
{
    if (s->n < SERIES_MOST) s->values[s->n++] = value;
}

double series_median(const struct series *s)
{
    double sorted[SERIES_MOST];
    if (s->n == 0) return 0.0;
    memcpy(sorted, s->values, s->n * sizeof *sorted);
    qsort(sorted, s->n, sizeof *sorted, ascending);
    return 0.5 * (sorted[(s->n - 1) / 2] + sorted[s->n / 2]);
}

double series_least(const struct series *s)
{
    double least = s->n ? s->values[0] : 0.0;
    for (size_t i = 1; i < s->n; i++)
        if (s->values[i] < least) least = s->values[i];
    return least;
}

double series_most(const struct series *s)
{
    double most = s->n ? s->values[0] : 0.0;
    for (size_t i = 1; i < s->n; i++)
        if (s->values[i] > most) most = s->values[i];
    return most;
}
