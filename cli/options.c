#define _POSIX_C_SOURCE 200809L

#include "options.h"

#include "report.h"
#include "suggest.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum option_kind { KIND_SWITCH, KIND_TEXT, KIND_COUNT, KIND_REAL, KIND_ADAPTER, KIND_VERIFY, KIND_KV, KIND_LIST };

struct option_spec {
    char letter;          /* 0: only long */
    const char *name;     /* long name */
    const char *argument; /* NULL: a switch */
    enum option_kind kind;
    size_t at;            /* offset in struct options of a bool, const char *, struct count, struct real or struct list */
    double least, most;   /* of a number */
    const char *help;
};

#define AT(member) offsetof(struct options, member)
#define ANY_COUNT 9007199254740992.0 /* 2^53: every program that reads JSON holds it */

static const struct option_spec specs[] = {
    {'m', "model", "FILE", KIND_TEXT, AT(model), 0, 0,
     "the base: .slm, GGUF, Hugging Face folder, or a name in the store\n(default: $LAMINA_MODEL, else the store's active composition, else the\nsmall model that ships with Lamina)"},
    {'a', "adapter", "FILE[=WEIGHT]", KIND_ADAPTER, 0, 0, 0,
     "lay an adapter over the base: .slm, PEFT folder, LoRA GGUF, or a\nname in the store; WEIGHT scales it (default 1); may be repeated, in this order;\n"
     "with ,replace behind it all, it takes the place of those before it"},
    {0, "owner", "[MODULE=]ADAPTER", KIND_LIST, AT(owners), 0, 0,
     "who has a module that several replace: an adapter by its name, as -a\nnames it, or by its place (1 is the first); MODULE may be a pattern\n"
     "such as 'blk.0.*'; without one, all that several replace; may be\nrepeated"},
    {0, "policy", "[MODULE=]POLICY", KIND_LIST, AT(policies), 0, 0,
     "how changed matrices are computed: dual (the default) or materialize;\nof one module, or of all others; may be repeated; the\n"
     "composition's id tells it"},
    {0, "trust", "PATH", KIND_TEXT, AT(trust), 0, 0,
     "the public keys whose receipts count: a folder of .pem files, or one\n(default: $LAMINA_TRUST, else $XDG_CONFIG_HOME/lamina/trust)"},
    {0, "figures", "FILE|KEY=VALUE", KIND_LIST, AT(figures), 0, 0, "what was measured: a JSON object in a file, or one figure; may be repeated"},
    {0, "key", "FILE", KIND_TEXT, AT(key), 0, 0, "the private key to sign with, in PEM (default: a bare hash)"},
    {0, "by", "NAME", KIND_TEXT, AT(by), 0, 0, "who says so"},
    {0, "store", "FOLDER", KIND_TEXT, AT(store), 0, 0,
     "the store in which names are looked up that are no files\n(default: $LAMINA_STORE, else $XDG_DATA_HOME/lamina)"},
    {0, "name", "ALIAS", KIND_TEXT, AT(name), 0, 0, "what it is called in the store; a name that is there is moved"},
    {0, "reason", "TEXT", KIND_TEXT, AT(reason), 0, 0, "why; it stands in the log"},
    {0, "repair", NULL, KIND_SWITCH, AT(repair), 0, 0, "put right what can be"},
    {0, "receipt", "FILE", KIND_LIST, AT(receipts), 0, 0, "a receipt to put into the manifest; may be repeated"},
    {0, "waive", NULL, KIND_SWITCH, AT(waive), 0, 0,
     "take adapters that are bound to another base, or to none, if their\nshapes fit; the composition's id tells it"},
    {0, "accept-tokenizer", NULL, KIND_SWITCH, AT(accept_tokenizer), 0, 0,
     "take an adapter whose folder has other tokens or another chat template\nthan the base; its provenance tells it"},
    {0, "search", "DIR", KIND_LIST, AT(search), 0, 0,
     "a folder in which to look for a manifest's base and adapters, by their\ndigests, where they are not where it says; may be repeated"},
    {'p', "prompt", "TEXT", KIND_TEXT, AT(prompt), 0, 0, "the text (default: standard input)"},
    {0, "template", "FILE", KIND_TEXT, AT(template), 0, 0, "a chat template in place of the model's; the composition's id tells it"},
    {0, "system", "TEXT", KIND_TEXT, AT(system), 0, 0, "a system message in front of the chat"},
    {0, "raw", NULL, KIND_SWITCH, AT(raw), 0, 0, "no chat template and no control tokens in the text: it is taken as it is"},
    {0, "echo", NULL, KIND_SWITCH, AT(echo), 0, 0, "print the prompt before its continuation"},
    {'n', "tokens", "N", KIND_COUNT, AT(tokens), 0, ANY_COUNT,
     "tokens to generate at most (default: 256 for text, 64 for bench, 128 for\n"
     "an answer in a chat without a template; in any chat an answer\nends early enough to leave room for the next message)"},
    {0, "prefill", "N", KIND_COUNT, AT(prefill), 1, 1e6, "tokens of the prompt (default 512)"},
    {0, "only", "LIST", KIND_TEXT, AT(only), 0, 0,
     "measure only: bandwidth, prefill, decode, batch, context, adapters, switch,\nload, memory (default: all of these), policies"},
    {0, "sessions", "LIST", KIND_TEXT, AT(sessions), 0, 0, "sessions of the batches, each of 1 to 64 (default 4,8,16)"},
    {0, "runs", "N", KIND_COUNT, AT(runs), 1, 100, "runs, of which the median is told (default 5)"},
    {0, "temp", "X", KIND_REAL, AT(temperature), 0, 100, "temperature; 0 takes the most likely token (default 0.8)"},
    {0, "top-k", "N", KIND_COUNT, AT(top_k), 0, 1e9, "sample from the N most likely tokens; 0: from all (default 40)"},
    {0, "top-p", "X", KIND_REAL, AT(top_p), 0, 1,
     "sample from the likeliest tokens that hold X of the probability (default 0.95)"},
    {0, "min-p", "X", KIND_REAL, AT(min_p), 0, 1, "drop tokens below X times the most likely one (default 0.05)"},
    {0, "repeat-penalty", "X", KIND_REAL, AT(repeat_penalty), 0.01, 100,
     "divide the logits of recent tokens by X (default 1: none)"},
    {0, "seed", "N", KIND_COUNT, AT(seed), 0, ANY_COUNT, "seed (default 0); the same seed gives the same text, everywhere"},
    {'t', "threads", "N", KIND_COUNT, AT(threads), 1, 1024, "threads (default: a thread for each core, of one NUMA node, within the\nCPU quota); results do not depend on it"},
    {'c', "ctx", "N", KIND_COUNT, AT(context), 1, 134217728, "context in tokens (default: the model's, 4096 at most; perplexity: 512;\nbench: none, else the position up to which decoding is measured, too)"},
    {0, "verify", "lazy|full|off", KIND_VERIFY, 0, 0, 0,
     "hash the base's bytes: lazy, each piece before the first use of it\n(the default); full, all before anything else; off, never"},
    {0, "kv", "f16|f32|int8", KIND_KV, 0, 0, 0,
     "how keys and values are kept (default: f16, or f32 if all weights are\nfloats); int8 takes half of f16's memory, and is less accurate;\nthe composition's id tells it"},
    {0, "token-ids", "LIST", KIND_TEXT, AT(token_ids), 0, 0, "token ids in place of text: 1,2,3"},
    {0, "allow-base", NULL, KIND_SWITCH, AT(allow_base), 0, 0,
     "let the base answer where an activated adapter's invocation is not in\nthe text; otherwise that is an error"},
    {0, "draft", "lookup|base[:N]", KIND_TEXT, AT(draft), 0, 0,
     "guess N tokens ahead (default 7) and compute them in one pass: from the\ntext so far, or by the bare base; the text is the same"},
    {0, "save-session", "FILE", KIND_TEXT, AT(save_session), 0, 0, "write the session to FILE at the end: text, keys and values, draws"},
    {0, "restore-session", "FILE", KIND_TEXT, AT(restore_session), 0, 0,
     "go on from a saved session of the same composition; the prompt comes\nbehind its text, and may be empty"},
    {0, "prefix-cache", "MB", KIND_COUNT, AT(prefix_cache), 0, 1e6,
     "memory for what a chat's earlier sessions leave to those that begin\nalike (default 0: off)"},
    {0, "chunk", "N", KIND_COUNT, AT(chunk), 1, 4096, "feed the prompt N tokens at a time; results do not depend on it"},
    {0, "tensors", NULL, KIND_SWITCH, AT(tensors), 0, 0, "list every tensor"},
    {'o', "output", "FILE", KIND_TEXT, AT(output), 0, 0, "where to write; a file that is there is replaced when all is done"},
    {0, "quantise", "TYPE", KIND_TEXT, AT(quantise), 0, 0,
     "encode float weights while importing: q4_64, 4.5 bits a weight, or\n"
     "q4_64:outliers=0.005 with the worst 0.5 % of the errors put right"},
    {0, "method", "METHOD", KIND_TEXT, AT(method), 0, 0,
     "how the difference is kept: sparse, dense, or lora:RANK"},
    {0, "density", "X", KIND_TEXT, AT(density), 0, 0, "keep of each matrix only this share of the differences, the largest (default 1)"},
    {0, "drop", "P", KIND_TEXT, AT(drop), 0, 0,
     "DARE: drop each of them with this probability (see --seed), and divide\nthe others by 1 - P"},
    {0, "dtype", "TYPE", KIND_TEXT, AT(dtype), 0, 0,
     "of diff's factors and values: f32 (the default), f16, bf16; of merge's\nchanged matrices: these, q8_0, q5_1, q5_0, q4_1, q4_0, q4_64 (default:\neach its own)"},
    {0, "strict", NULL, KIND_SWITCH, AT(strict), 0, 0, "fail where a matrix cannot have its type, instead of taking a larger one"},
    {0, "from", "FILE[=WEIGHT]", KIND_LIST, AT(from), 0, 0,
     "plan a switch of a session from a composition with this adapter, or from\n\"base\"; may be repeated"},
    {0, "budget", "BYTES", KIND_TEXT, AT(budget), 0, 0,
     "memory that may be used, beside the mapped base: bytes, or with k, M,\nG; if the plan needs more, nothing is opened; a manifest's own budget\nholds where it is smaller"},
    {0, "source", "URL", KIND_LIST, AT(sources), 0, 0, "one more URL of the same file; pieces come from all of them at once; may\nbe repeated"},
    {0, "connections", "N", KIND_COUNT, AT(connections), 1, 16, "connections at once (default 4)"},
    {0, "limit-rate", "BYTES", KIND_TEXT, AT(limit_rate), 0, 0, "bytes a second at most, or with k, M, G"},
    {0, "user", "NAME:PASSWORD", KIND_TEXT, AT(user), 0, 0, "login for the server (default, for registries: as `docker login` keeps it)"},
    {0, "cacert", "FILE", KIND_TEXT, AT(cacert), 0, 0, "certificates to trust, in PEM (default: $CURL_CA_BUNDLE, $SSL_CERT_FILE,\nthe system's)"},
    {0, "plain-http", NULL, KIND_SWITCH, AT(plain_http), 0, 0, "speak http to a registry that is not on this machine, too"},
    {0, "list", NULL, KIND_SWITCH, AT(list), 0, 0, "list what a seed has"},
    {0, "default", "NAME", KIND_TEXT, AT(first), 0, 0, "what who names no model gets (default: the first)"},
    {0, "json", NULL, KIND_SWITCH, AT(json), 0, 0, "print JSON for programs, errors too"},
    {'q', "quiet", NULL, KIND_SWITCH, AT(quiet), 0, 0, "no progress, no summary"},
    {'h', "help", NULL, KIND_SWITCH, AT(help), 0, 0, "this help"},
};
#define N_SPECS (sizeof specs / sizeof *specs)

/* One command's, where others have another option of this name. */
static const struct own_spec {
    const char *command;
    struct option_spec spec;
} own_specs[] = {
    {"store", {0, "verify", NULL, KIND_SWITCH, AT(check_chain), 0, 0, "only check that each line of the log follows from the one before it"}},
};

static bool is_named(const struct option_spec *s, const char *name, size_t len) { return strncmp(s->name, name, len) == 0 && !s->name[len]; }

static const struct option_spec *spec_named(const char *command, const char *name, size_t len)
{
    for (size_t i = 0; i < sizeof own_specs / sizeof *own_specs; i++)
        if (is_named(&own_specs[i].spec, name, len) && strcmp(own_specs[i].command, command) == 0) return &own_specs[i].spec;
    for (size_t i = 0; i < N_SPECS; i++)
        if (is_named(&specs[i], name, len)) return &specs[i];
    return NULL;
}

void options_print_help(const char *command, const char *const *names, const char *model_help)
{
    printf("\nOptions:\n");
    for (; *names; names++) {
        const struct option_spec *s = spec_named(command, *names, strlen(*names));
        char left[64], letter[8] = "    ";
        if (!s) continue;
        if (s->letter) snprintf(letter, sizeof letter, "-%c, ", s->letter);
        snprintf(left, sizeof left, "%s--%s %s", letter, s->name, s->argument ? s->argument : "");
        printf("  %-30s ", left);
        const char *help = model_help && s->at == AT(model) ? model_help : s->help;
        for (const char *c = help; *c; c++) printf(*c == '\n' ? "\n%33s" : "%.1s", *c == '\n' ? "" : c);
        printf("\n");
    }
}

uint64_t count_or(struct count c, uint64_t otherwise) { return c.given ? c.value : otherwise; }

lam_code read_bytes(const char *option, const char *text, uint64_t *out, lam_error *err)
{
    char *end = NULL;
    if (!text) return LAM_OK;
    double value = *text >= '0' && *text <= '9' ? strtod(text, &end) : -1.0;
    double unit = !end || !*end ? 1.0 : *end == 'k' ? 1e3 : *end == 'M' ? 1e6 : *end == 'G' ? 1e9 : *end == 'T' ? 1e12 : 0.0;
    if (value < 0.0 || unit == 0.0 || (*end && end[1]) || value * unit < 1.0 || value * unit > 1e18)
        return fail(err, LAM_E_ARGUMENT, "--%s %s: a number of bytes is needed, or one with k, M, G or T", option, text);
    *out = (uint64_t)(value * unit);
    return LAM_OK;
}

static bool out_of_range(const struct options *o, const struct option_spec *s, const char *text)
{
    usage(o, "--%s %s: %.16g to %.16g are possible", s->name, text, s->least, s->most);
    return false;
}

bool read_real(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && !isspace((unsigned char)*text) && !strpbrk(text, "xX");
}

static bool set_count(struct options *o, const struct option_spec *s, const char *text)
{
    struct count *c = (struct count *)((char *)o + s->at);
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || text[digits]) {
        usage(o, "--%s: \"%s\" is not a whole number", s->name, text);
        return false;
    }
    errno = 0;
    *c = (struct count){strtoull(text, NULL, 10), true};
    if (errno || (double)c->value < s->least || (double)c->value > s->most) return out_of_range(o, s, text);
    return true;
}

static bool set_real(struct options *o, const struct option_spec *s, const char *text)
{
    double value;
    if (!read_real(text, &value) || isnan(value)) {
        usage(o, "--%s: \"%s\" is not a number", s->name, text);
        return false;
    }
    if (value < s->least || value > s->most) return out_of_range(o, s, text);
    *(struct real *)((char *)o + s->at) = (struct real){value, true};
    return true;
}

/* The place in words (ended by NULL) of a word; says so if it is none of them. */
static bool find_word(const struct options *o, const char *option, const char *text, const char *const words[], const char *all, size_t *out)
{
    char meant[SUGGESTION];
    for (size_t i = 0; words[i]; i++) {
        if (strcmp(text, words[i]) != 0) continue;
        *out = i;
        return true;
    }
    usage(o, "--%s: \"%s\" is none of %s%s", option, text, all, did_you_mean(text, "", words, meant));
    return false;
}

static bool set_verify(struct options *o, const char *text)
{
    static const char *const names[] = {"lazy", "full", "off", NULL};
    static const lam_verify values[] = {LAM_VERIFY_LAZY, LAM_VERIFY_FULL, LAM_VERIFY_OFF};
    size_t i;
    if (!find_word(o, "verify", text, names, "lazy, full and off", &i)) return false;
    o->verify = values[i];
    return true;
}

static bool set_kv(struct options *o, const char *text)
{
    static const char *const names[] = {"f16", "f32", "int8", NULL};
    static const lam_kv values[] = {LAM_KV_FLOAT16, LAM_KV_FLOAT32, LAM_KV_INT8};
    size_t i;
    if (!find_word(o, "kv", text, names, "f16, f32 and int8", &i)) return false;
    o->kv = values[i];
    return true;
}

/* Whether the first len bytes of text name a file. */
static bool is_front_a_file(const char *text, size_t len)
{
    char *front = strndup(text, len);
    bool found = front && access(front, F_OK) == 0;
    free(front);
    return found;
}

/* *len: of text without a rule at its end, if no file has all of it as its name; the rule in *rule. Words that are none, behind the name of a
 * file or near to a rule, are an error. */
static lam_code cut_rule(const char *text, lam_stack_rule *rule, size_t *len, lam_error *err)
{
    static const char *const names[] = {"add", "replace", NULL};
    static const lam_stack_rule rules[] = {LAM_STACK_ADD, LAM_STACK_REPLACE};
    const char *comma = strrchr(text, ',');
    size_t front = comma ? (size_t)(comma - text) : 0;
    char meant[SUGGESTION];
    *rule = LAM_STACK_ADD;
    *len = strlen(text);
    if (front == 0 || access(text, F_OK) == 0) return LAM_OK;
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(comma + 1, names[i]) != 0) continue;
        *rule = rules[i];
        *len = front;
        return LAM_OK;
    }
    did_you_mean(comma + 1, "", names, meant);
    if (!meant[0] && !is_front_a_file(text, front)) return LAM_OK; /* a comma of the file's name, or of its weight */
    return fail(err, LAM_E_ARGUMENT, "%.300s: no file has this name, and \"%.40s\" behind the ',' is none of add and replace%s", text, comma + 1, meant);
}

static lam_code parse_weighted(const char *text, struct adapter_option *out, lam_error *err)
{
    const char *equals = strrchr(text, '=');
    double weight = 1.0;
    bool number = equals && read_real(equals + 1, &weight), weighted = equals && access(text, F_OK) != 0;
    size_t front = equals ? (size_t)(equals - text) : 0, len = weighted && number ? front : strlen(text);
    *out = (struct adapter_option){.path = malloc(len + 1), .weight = weighted && number ? weight : 1.0};
    if (!out->path) return fail_memory(err);
    memcpy(out->path, text, len);
    out->path[len] = 0;
    if (len == 0) return fail(err, LAM_E_ARGUMENT, "\"%s\" names no adapter", text);
    if (weighted && !number && is_front_a_file(text, front))
        return fail(err, LAM_E_ARGUMENT, "%.200s: no file has this name, and \"%.200s\" behind the '=' is not a number", text, equals + 1);
    if (isfinite(out->weight)) return LAM_OK;
    return fail(err, LAM_E_ARGUMENT, "%s: the weight \"%s\" is not a finite number", out->path, equals + 1);
}

lam_code adapter_option_parse(const char *text, struct adapter_option *out, lam_error *err)
{
    lam_stack_rule rule;
    size_t len;
    *out = (struct adapter_option){0};
    lam_code code = cut_rule(text, &rule, &len, err);
    if (code != LAM_OK) return code;
    char *front = strndup(text, len);
    if (!front) return fail_memory(err);
    code = parse_weighted(front, out, err);
    out->rule = rule;
    free(front);
    return code;
}

static bool add_adapter(struct options *o, const char *text)
{
    lam_error err;
    if (o->n_adapters == MAX_ADAPTERS) {
        usage(o, "--adapter %s: %d adapters at most", text, MAX_ADAPTERS);
        return false;
    }
    if (adapter_option_parse(text, &o->adapters[o->n_adapters++], &err) == LAM_OK) return true;
    usage(o, "--adapter %s", err.message);
    return false;
}

static bool add_item(struct options *o, const struct option_spec *s, const char *text)
{
    struct list *list = (struct list *)((char *)o + s->at);
    if (list->n == MAX_LIST) {
        usage(o, "--%s %s: %d at most", s->name, text, MAX_LIST);
        return false;
    }
    list->items[list->n++] = text;
    return true;
}

static bool set_option(struct options *o, const struct option_spec *s, const char *value)
{
    switch (s->kind) {
    case KIND_SWITCH: return *(bool *)((char *)o + s->at) = true;
    case KIND_TEXT: *(const char **)((char *)o + s->at) = value; return true;
    case KIND_COUNT: return set_count(o, s, value);
    case KIND_REAL: return set_real(o, s, value);
    case KIND_ADAPTER: return add_adapter(o, value);
    case KIND_VERIFY: return set_verify(o, value);
    case KIND_KV: return set_kv(o, value);
    case KIND_LIST: return add_item(o, s, value);
    }
    return false;
}

/* The spec of an argument such as "-m", "-mFILE", "--model" or "--model=FILE"; *value is what hangs on it, or NULL. */
static const struct option_spec *find_spec(const char *command, const char *argument, const char **value)
{
    *value = NULL;
    if (argument[1] == '-') {
        size_t len = strcspn(argument + 2, "=");
        if (argument[2 + len]) *value = argument + 3 + len;
        return len ? spec_named(command, argument + 2, len) : NULL;
    }
    for (size_t i = 0; i < N_SPECS; i++) {
        if (argument[1] != specs[i].letter) continue;
        if (argument[2]) *value = argument + 2;
        return &specs[i];
    }
    return NULL;
}

static bool takes(const char *const *names, const struct option_spec *s)
{
    for (; *names; names++)
        if (strcmp(*names, s->name) == 0) return true;
    return false;
}

static bool unknown(const struct options *o, const char *argument, const char *const *names)
{
    const char *best = NULL;
    char typed[40];
    snprintf(typed, sizeof typed, "%.*s", (int)strcspn(argument + 2, "="), argument + 2);
    if (argument[1] == '-')
        for (; *names; names++) best = nearer_word(typed, best, *names);
    if (best) usage(o, "unknown option %s; did you mean --%s?", argument, best);
    else usage(o, "unknown option %s", argument);
    return false;
}

/* Whether the argument behind one that needs a file is rather the next option. */
static bool is_next_option(const char *command, const struct option_spec *s, const char *argument)
{
    const char *value;
    return strncmp(s->argument, "FILE", 4) == 0 && argument[0] == '-' && argument[1] && find_spec(command, argument, &value) &&
           access(argument, F_OK) != 0;
}

/* argv[*i], and the next one if it is the option's value. */
static bool parse_one(int argc, char **argv, int *i, const char *const *names, struct options *o)
{
    const char *argument = argv[*i], *value;
    const struct option_spec *s = find_spec(o->command, argument, &value);
    if (!s) return unknown(o, argument, names);
    if (!takes(names, s)) return usage(o, "%s does not take --%s", o->command, s->name), false;
    if (value && !s->argument) return usage(o, "--%s takes no value: %s", s->name, argument), false;
    if (!value && s->argument && *i + 1 < argc && !is_next_option(o->command, s, argv[*i + 1])) value = argv[++*i];
    if (s->argument && (!value || (!*value && s->kind == KIND_TEXT && s->at != AT(prompt) && s->at != AT(system))))
        return usage(o, "--%s needs %s", s->name, s->argument), false;
    return set_option(o, s, value);
}

bool options_want_json(int argc, char **argv, int first)
{
    for (int i = first; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0) return true;
    return false;
}

bool options_parse(int argc, char **argv, int first, const char *command, const char *const *names, struct options *o)
{
    *o = (struct options){.command = command, .verify = LAM_VERIFY_LAZY, .rest = argv + first};
    o->json = options_want_json(argc, argv, first);
    bool only_rest = false;
    for (int i = first; i < argc; i++) {
        if (only_rest || argv[i][0] != '-' || !argv[i][1]) o->rest[o->n_rest++] = argv[i];
        else if (strcmp(argv[i], "--") == 0) only_rest = true;
        else if (!parse_one(argc, argv, &i, names, o)) return false;
    }
    return true;
}

void options_release(struct options *o)
{
    for (size_t i = 0; i < o->n_adapters; i++) free(o->adapters[i].path);
}
