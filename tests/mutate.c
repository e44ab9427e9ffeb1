/* A fuzz target without a fuzzer: its seeds as they are, then MUTATIONS damaged ones from a fixed generator, the same on every machine.
 *     mutate_X SEED_FILE…
 * Each input lies in an allocation of its own size, so that AddressSanitizer sees a read past its end. A crash, a trap of the target
 * or a sanitizer's report is the failure; MUTATE_AT=N runs input N alone. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUTATIONS 20000
#define MAX_EDITS 6
#define MAX_GROWTH 24 /* bytes that one edit may add */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    uint8_t *bytes;
    size_t size;
    bool text; /* no zero byte: edits then keep to characters */
};

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t n)
{
    return (size_t)(next(state) % n);
}

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

/* Replaces in[at, at + cut) by text[0, len). */
static void splice(struct input *in, size_t at, size_t cut, const void *text, size_t len)
{
    memmove(in->bytes + at + len, in->bytes + at + cut, in->size - at - cut);
    memcpy(in->bytes + at, text, len);
    in->size = in->size - cut + len;
}

/* The first decimal number at or after a random place becomes one that sizes and checks stumble over; no number: nothing. */
static void edit_decimal(struct input *in, uint64_t *state)
{
    static const char *const numbers[] = {"0", "-1", "1", "255", "65536", "2147483648", "4294967295", "4294967296",
                                          "9223372036854775807", "18446744073709551616", "1e308", "1e-320", "0.5", "null"};
    size_t at = below(state, in->size), end;
    const char *number = numbers[below(state, sizeof numbers / sizeof *numbers)];
    while (at < in->size && !is_digit(in->bytes[at])) at++;
    for (end = at; end < in->size && is_digit(in->bytes[end]);) end++;
    if (end > at) splice(in, at, end - at, number, strlen(number));
}

/* 1, 2, 4 or 8 bytes become a little-endian number near a boundary, or what stood there, a little moved. */
static void edit_binary(struct input *in, uint64_t *state)
{
    size_t width = (size_t)1 << below(state, 4);
    if (width > in->size) return;
    size_t at = below(state, in->size - width + 1);
    if (in->size >= 2 * width && next(state) % 2) at -= at % width;
    uint64_t value = 0, moved = next(state) % 9 - 4;
    switch (next(state) % 3) {
    case 0:
        value = (uint64_t)1 << below(state, 64);
        break;
    case 1:
        for (size_t i = 0; i < width; i++) value |= (uint64_t)in->bytes[at + i] << 8 * i;
        break;
    default: /* about zero */
        break;
    }
    value += moved;
    for (size_t i = 0; i < width; i++) in->bytes[at + i] = (uint8_t)(value >> 8 * i);
}

static void edit(struct input *in, uint64_t *state)
{
    if (in->size == 0) return;
    size_t at = below(state, in->size), len = 1 + below(state, MAX_GROWTH);
    uint8_t text[MAX_GROWTH];
    uint64_t kind = next(state) % 8;
    if (in->text && kind == 7) kind = 6;
    switch (kind) {
    case 0:
    case 1:
        in->bytes[at] ^= (uint8_t)(1u << next(state) % 8);
        break;
    case 2:
        in->bytes[at] = in->text ? in->bytes[below(state, in->size)] : (uint8_t)next(state);
        break;
    case 3: /* bytes from elsewhere in the input, or random ones */
        if (len > in->size) len = in->size;
        memcpy(text, in->bytes + below(state, in->size - len + 1), len);
        if (next(state) % 4 == 0)
            for (size_t i = 0; i < len; i++) text[i] = (uint8_t)next(state);
        splice(in, at, 0, text, len);
        break;
    case 4:
        splice(in, at, len < in->size - at ? len : in->size - at, "", 0);
        break;
    case 5:
        if (next(state) % 8 == 0) in->size = at;
        break;
    case 6:
        edit_decimal(in, state);
        break;
    default:
        edit_binary(in, state);
    }
}

static bool read_seed(const char *path, struct input *out)
{
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    bool ok = fseek(f, 0, SEEK_END) == 0;
    long size = ok ? ftell(f) : -1;
    out->bytes = size > 0 ? malloc((size_t)size) : NULL;
    out->size = size > 0 ? (size_t)size : 0;
    ok = out->bytes && fseek(f, 0, SEEK_SET) == 0 && fread(out->bytes, 1, out->size, f) == out->size;
    fclose(f);
    out->text = ok && !memchr(out->bytes, 0, out->size);
    return ok;
}

/* Input number n: seed n while there is one, then mutations, each from a generator of its own. False when memory is lacking. */
static bool run(const struct input *seeds, size_t n_seeds, size_t n)
{
    uint64_t state = n;
    const struct input *seed = &seeds[n < n_seeds ? n : below(&state, n_seeds)];
    struct input in = {malloc(seed->size + (size_t)MAX_EDITS * MAX_GROWTH), seed->size, seed->text};
    if (!in.bytes) return false;
    memcpy(in.bytes, seed->bytes, seed->size);
    size_t edits = n < n_seeds ? 0 : 1 + below(&state, 1 + below(&state, MAX_EDITS)); /* mostly few: many end at the first check */
    for (size_t i = 0; i < edits; i++) edit(&in, &state);
    uint8_t *exact = malloc(in.size ? in.size : 1);
    if (exact) {
        memcpy(exact, in.bytes, in.size);
        LLVMFuzzerTestOneInput(exact, in.size);
    }
    free(in.bytes);
    bool ok = exact != NULL;
    free(exact);
    return ok;
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0], *alone = getenv("MUTATE_AT");
    size_t n_seeds = argc > 1 ? (size_t)argc - 1 : 0;
    struct input *seeds = calloc(n_seeds ? n_seeds : 1, sizeof *seeds);
    bool ok = seeds && n_seeds > 0;
    printf("[ RUN      ] %s\n", name);
    fflush(stdout);
    for (size_t i = 0; ok && i < n_seeds; i++) {
        ok = read_seed(argv[i + 1], &seeds[i]);
        if (!ok) printf("%s: no such seed, or an empty one\n", argv[i + 1]);
    }
    if (ok && alone)
        ok = run(seeds, n_seeds, strtoul(alone, NULL, 10));
    else
        for (size_t n = 0; ok && n < n_seeds + MUTATIONS; n++) ok = run(seeds, n_seeds, n);
    for (size_t i = 0; seeds && i < n_seeds; i++) free(seeds[i].bytes);
    free(seeds);
    printf("[  %s ] %s: %d mutations of %zu seeds\n", ok ? "     OK" : "FAILED", name, MUTATIONS, n_seeds);
    return ok ? 0 : 1;
}
