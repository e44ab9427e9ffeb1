/* The parts of the bench: their names, and which of them --only asks for. */
#include "bench.h"
#include "suggest.h"

#include <string.h>

static const struct {
    enum bench_part part;
    const char *name;
} parts[] = {
    {BENCH_BANDWIDTH, "bandwidth"}, {BENCH_PREFILL, "prefill"}, {BENCH_DECODE, "decode"}, {BENCH_BATCH, "batch"},
    {BENCH_CONTEXT, "context"},     {BENCH_ADAPTERS, "adapters"}, {BENCH_SWITCH, "switch"}, {BENCH_LOAD, "load"},
    {BENCH_MEMORY, "memory"},       {BENCH_POLICIES, "policies"},
};
#define N_PARTS (sizeof parts / sizeof *parts)

const char *bench_part_name(enum bench_part part)
{
    for (size_t i = 0; i < N_PARTS; i++)
        if (parts[i].part == part) return parts[i].name;
    return "";
}

/* The next word of a list with commas, of *len letters; NULL at its end. */
const char *bench_next_word(const char **list, size_t *len)
{
    const char *word = *list;
    if (!word) return NULL;
    *len = strcspn(word, ",");
    *list = word[*len] ? word + *len + 1 : NULL;
    return word;
}

static bool unknown_part(const struct options *o, const char *word, size_t len)
{
    const char *names[N_PARTS + 1] = {NULL};
    char piece[32], meant[SUGGESTION];
    for (size_t i = 0; i < N_PARTS; i++) names[i] = parts[i].name;
    snprintf(piece, sizeof piece, "%.*s", (int)len, word);
    usage(o, "--only %s: bandwidth, prefill, decode, batch, context, adapters, switch, load, memory and policies are possible%s", piece,
          did_you_mean(piece, "", names, meant));
    return false;
}

/* Comparing with the base needs prefill or decode, too; a share needs the bandwidth. */
bool bench_parse_parts(struct bench *b)
{
    const char *list = b->options->only, *word;
    size_t len;
    b->parts = list ? 0 : BENCH_ALL;
    while ((word = bench_next_word(&list, &len))) {
        size_t i = 0;
        while (i < N_PARTS && (strncmp(parts[i].name, word, len) != 0 || parts[i].name[len])) i++;
        if (i == N_PARTS) return unknown_part(b->options, word, len);
        b->parts |= parts[i].part;
    }
    if (b->parts & BENCH_ADAPTERS && !(b->parts & (BENCH_PREFILL | BENCH_DECODE | BENCH_CONTEXT))) b->parts |= BENCH_PREFILL | BENCH_DECODE;
    if (b->parts & (BENCH_DECODE | BENCH_BATCH | BENCH_CONTEXT)) b->parts |= BENCH_BANDWIDTH;
    return true;
}
