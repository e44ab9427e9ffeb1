#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct option_spec {
    char letter;          /* 0: only long */
    const char *name;     /* long name */
    const char *argument; /* NULL: a switch */
    const char *help;
};

static const struct option_spec specs[] = {
    {'m', "model", "FILE", "the base: .slm, GGUF, or a Hugging Face folder (default: $LAMINA_MODEL)"},
    {'a', "adapter", "FILE[=WEIGHT]", "lay an adapter over the base (.slm, PEFT folder, LoRA GGUF); may be repeated"},
    {0, "waive", NULL, "take adapters that are bound to another base, if their shapes fit (recorded in the composition)"},
    {'p', "prompt", "TEXT", "the prompt (default: standard input, or a chat on a terminal)"},
    {0, "system", "TEXT", "a system message in front of the chat"},
    {0, "raw", NULL, "no chat template: the prompt is the text to continue"},
    {0, "echo", NULL, "print the prompt before its continuation"},
    {'n', "tokens", "N", "tokens to generate at most (run: 256; bench: 128)"},
    {0, "temp", "X", "temperature; 0 takes the most likely token (default 0.8)"},
    {0, "top-k", "N", "sample from the N most likely tokens; 0: all (default 40)"},
    {0, "top-p", "X", "sample from the most likely tokens that hold X of the probability (default 0.95)"},
    {0, "min-p", "X", "drop tokens below X times the most likely one (default 0.05)"},
    {0, "repeat-penalty", "X", "divide the logits of recent tokens by X (default 1: none)"},
    {0, "seed", "N", "seed of the generator (default 0); the same seed gives the same text"},
    {'t', "threads", "N", "threads (default: every processor); results do not depend on it"},
    {'c', "ctx", "N", "context in tokens (default: the model's, 4096 at most)"},
    {0, "verify", "full|off", "hash the base's bytes before use (default full)"},
    {0, "token-ids", "LIST", "token ids in place of text: 1,2,3"},
    {0, "chunk", "N", "feed the prompt N tokens at a time; results do not depend on it"},
    {0, "tensors", NULL, "list every tensor"},
    {'o', "output", "FILE", "where to write"},
    {0, "json", NULL, "print JSON for programs"},
    {'q', "quiet", NULL, "no progress, no summary"},
    {'h', "help", NULL, "this help"},
};
#define N_SPECS (sizeof specs / sizeof *specs)

void options_print_help(const char *const *names)
{
    printf("\nOptions:\n");
    for (; *names; names++)
        for (size_t i = 0; i < N_SPECS; i++) {
            if (strcmp(specs[i].name, *names) != 0) continue;
            char left[64], letter[8] = "    ";
            if (specs[i].letter) snprintf(letter, sizeof letter, "-%c, ", specs[i].letter);
            snprintf(left, sizeof left, "%s--%s %s", letter, specs[i].name, specs[i].argument ? specs[i].argument : "");
            printf("  %-32s %s\n", left, specs[i].help);
        }
}

static bool parse_count(const char *name, const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (errno == 0 && end != text && *end == 0 && *text != '-') return true;
    fprintf(stderr, "lamina: --%s: \"%s\" is not a number\n", name, text);
    return false;
}

static bool parse_real(const char *name, const char *text, float *out)
{
    char *end;
    *out = strtof(text, &end);
    if (end != text && *end == 0 && isfinite(*out)) return true;
    fprintf(stderr, "lamina: --%s: \"%s\" is not a number\n", name, text);
    return false;
}

bool adapter_option_parse(const char *text, struct adapter_option *out)
{
    const char *equals = strrchr(text, '=');
    char *end = NULL;
    double weight = equals ? strtod(equals + 1, &end) : 1.0;
    bool weighted = equals && end != equals + 1 && *end == 0;
    size_t len = weighted ? (size_t)(equals - text) : strlen(text);
    out->weight = weighted ? weight : 1.0;
    out->path = malloc(len + 1);
    if (!out->path) return false;
    memcpy(out->path, text, len);
    out->path[len] = 0;
    return true;
}

static bool add_adapter(struct options *o, const char *text)
{
    if (o->n_adapters == MAX_ADAPTERS) {
        fprintf(stderr, "lamina: more than %d adapters\n", MAX_ADAPTERS);
        return false;
    }
    return adapter_option_parse(text, &o->adapters[o->n_adapters++]);
}

static bool set_verify(struct options *o, const char *text)
{
    o->verify = strcmp(text, "off") == 0 ? LAM_VERIFY_OFF : LAM_VERIFY_FULL;
    if (o->verify == LAM_VERIFY_OFF || strcmp(text, "full") == 0) return true;
    fprintf(stderr, "lamina: --verify: \"%s\" is neither full nor off\n", text);
    return false;
}

static bool set_switch(struct options *o, const char *name)
{
    bool *const switches[] = {&o->raw, &o->echo, &o->json, &o->tensors, &o->waive, &o->quiet, &o->help};
    static const char *const names[] = {"raw", "echo", "json", "tensors", "waive", "quiet", "help"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) *switches[i] = true;
    return true;
}

static bool set_number(struct options *o, const char *name, const char *value)
{
    uint64_t n = 0;
    if (!parse_count(name, value, &n)) return false;
    if (strcmp(name, "tokens") == 0) o->n_tokens = (size_t)n;
    else if (strcmp(name, "top-k") == 0) o->sampling.top_k = (uint32_t)n;
    else if (strcmp(name, "seed") == 0) o->sampling.seed = n;
    else if (strcmp(name, "ctx") == 0) o->context = (size_t)n;
    else if (strcmp(name, "chunk") == 0) o->chunk = (size_t)n;
    else o->threads = (unsigned)n;
    if (strcmp(name, "threads") == 0 && (n < 1 || n > 1024)) {
        fprintf(stderr, "lamina: --threads: 1 to 1024 are possible\n");
        return false;
    }
    return true;
}

static bool set_value(struct options *o, const char *name, const char *value)
{
    if (strcmp(name, "model") == 0) o->model = value;
    else if (strcmp(name, "prompt") == 0) o->prompt = value;
    else if (strcmp(name, "system") == 0) o->system = value;
    else if (strcmp(name, "output") == 0) o->output = value;
    else if (strcmp(name, "token-ids") == 0) o->token_ids = value;
    else if (strcmp(name, "adapter") == 0) return add_adapter(o, value);
    else if (strcmp(name, "verify") == 0) return set_verify(o, value);
    else if (strcmp(name, "temp") == 0) return parse_real(name, value, &o->sampling.temperature);
    else if (strcmp(name, "top-p") == 0) return parse_real(name, value, &o->sampling.top_p);
    else if (strcmp(name, "min-p") == 0) return parse_real(name, value, &o->sampling.min_p);
    else if (strcmp(name, "repeat-penalty") == 0) return parse_real(name, value, &o->sampling.repeat_penalty);
    else return set_number(o, name, value);
    return true;
}

/* The spec of an argument such as "-m", "-mFILE", "--model" or "--model=FILE"; *value is what hangs on it, or NULL. */
static const struct option_spec *find_spec(const char *argument, const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < N_SPECS; i++) {
        if (argument[1] != '-') {
            if (argument[1] != specs[i].letter) continue;
            if (argument[2]) *value = argument + 2;
            return &specs[i];
        }
        size_t len = strlen(specs[i].name);
        if (strncmp(argument + 2, specs[i].name, len) != 0) continue;
        if (argument[2 + len] == '=') *value = argument + 3 + len;
        else if (argument[2 + len]) continue;
        return &specs[i];
    }
    return NULL;
}

bool options_parse(int argc, char **argv, int first, struct options *o)
{
    *o = (struct options){.verify = LAM_VERIFY_FULL, .rest = argv + first};
    lam_sampling_default(&o->sampling);
    bool only_rest = false;
    for (int i = first; i < argc; i++) {
        const char *value;
        if (only_rest || argv[i][0] != '-' || !argv[i][1]) {
            o->rest[o->n_rest++] = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--") == 0) {
            only_rest = true;
            continue;
        }
        const struct option_spec *spec = find_spec(argv[i], &value);
        if (!spec || (value && !spec->argument)) {
            fprintf(stderr, "lamina: unknown option %s; see lamina %s --help\n", argv[i], argv[1]);
            return false;
        }
        if (!spec->argument) {
            set_switch(o, spec->name);
            continue;
        }
        if (!value && i + 1 == argc) {
            fprintf(stderr, "lamina: --%s needs %s\n", spec->name, spec->argument);
            return false;
        }
        if (!set_value(o, spec->name, value ? value : argv[++i])) return false;
    }
    return true;
}

void options_release(struct options *o)
{
    for (size_t i = 0; i < o->n_adapters; i++) free(o->adapters[i].path);
}

bool options_take_model(struct options *o)
{
    if (o->model) return true;
    if (o->n_rest) {
        o->model = *o->rest++;
        o->n_rest--;
        return true;
    }
    o->model = getenv("LAMINA_MODEL");
    if (o->model && *o->model) return true;
    fprintf(stderr, "lamina: no model: give -m FILE, or set LAMINA_MODEL\n");
    return false;
}
