/* A figure that was measured several times. */
#ifndef LAM_CLI_SERIES_H
#define LAM_CLI_SERIES_H

#include <stddef.h>

#define SERIES_MOST 100

struct series {
    double values[SERIES_MOST];
    size_t n;
};
/* A value beyond SERIES_MOST is dropped. */
void series_add(struct series *s, double value);
/* 0 for an empty series. */
double series_median(const struct series *s);
double series_least(const struct series *s);
double series_most(const struct series *s);

#endif
