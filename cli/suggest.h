/* "Did you mean …?" */
#ifndef LAM_CLI_SUGGEST_H
#define LAM_CLI_SUGGEST_H

#include <stddef.h>

/* Letters to insert, delete, replace or swap with their neighbour until one word is the other (Damerau 1964). 32 for a word of more
 * than 31 letters. */
size_t word_distance(const char *a, const char *b);

/* The closer of two words to what was typed: best (may be NULL), or candidate if that is near enough and nearer. */
const char *nearer_word(const char *typed, const char *best, const char *candidate);

/* "; did you mean WORD?" in out[SUGGESTION], for the first piece of typed that is none of words (ended by NULL) but near to one; "" if there is
 * no such piece. Pieces are what the characters of separators cut typed into. */
#define SUGGESTION 64
const char *did_you_mean(const char *typed, const char *separators, const char *const words[], char out[SUGGESTION]);

#endif
