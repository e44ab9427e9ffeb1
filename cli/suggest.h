/* "Did you mean …?" */
#ifndef LAM_CLI_SUGGEST_H
#define LAM_CLI_SUGGEST_H

#include <stddef.h>

/* Letters to insert, delete, replace or swap with their neighbour until one word is the other (Damerau 1964). 32 for a word of more
 * than 31 letters. */
size_t word_distance(const char *a, const char *b);

/* The closer of two words to what was typed: best (may be NULL), or candidate if that is near enough and nearer. */
const char *nearer_word(const char *typed, const char *best, const char *candidate);

#endif
