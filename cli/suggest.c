#include "suggest.h"

#include <stdio.h>
#include <string.h>

#define LONGEST 31

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

size_t word_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b), table[LONGEST + 1][LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return LONGEST + 1;
    for (size_t i = 0; i <= n; i++) table[i][0] = i;
    for (size_t j = 0; j <= m; j++) table[0][j] = j;
    for (size_t i = 1; i <= n; i++)
        for (size_t j = 1; j <= m; j++) {
            size_t d = least(table[i - 1][j], table[i][j - 1]) + 1;
            d = least(d, table[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d = least(d, table[i - 2][j - 2] + 1);
            table[i][j] = d;
        }
    return table[n][m];
}

/* Near: a third of the letters wrong at most, or one is a beginning of the other, of three letters and more. */
const char *nearer_word(const char *typed, const char *best, const char *candidate)
{
    size_t distance = word_distance(typed, candidate), len = strlen(typed), shorter = least(len, strlen(candidate));
    if (shorter >= 3 && strncmp(typed, candidate, shorter) == 0) distance = 1;
    if (distance > (len + 2) / 3) return best;
    return best && word_distance(typed, best) <= distance ? best : candidate;
}

const char *did_you_mean(const char *typed, const char *separators, const char *const words[], char out[SUGGESTION])
{
    char piece[LONGEST + 2]; /* a longer one is near to no word */
    out[0] = 0;
    for (size_t len; *typed && !out[0]; typed += len + strspn(typed + len, separators)) {
        const char *best = NULL;
        len = strcspn(typed, separators);
        snprintf(piece, sizeof piece, "%.*s", (int)least(len, LONGEST + 1), typed);
        for (size_t i = 0; words[i]; i++) best = nearer_word(piece, best, words[i]);
        if (best && strcmp(best, piece) != 0) snprintf(out, SUGGESTION, "; did you mean %s?", best);
    }
    return out;
}
