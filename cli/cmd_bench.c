/* lamina bench: prefill and decode rates, load and switch times, resident memory. */
#include "commands.h"
#include "common.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_PREFILL 256
#define DEFAULT_DECODE 128
#define RUNS 3

/* Peak resident bytes of this process (VmHWM), 0 where the system does not tell. */
static double peak_resident(void)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    double kb = 0.0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, "VmHWM:", 6) == 0) kb = strtod(line + 6, NULL);
    if (f) fclose(f);
    return kb * 1024.0;
}

struct figures {
    size_t n_prefill, n_decode;
    double prefill, decode, switch_seconds; /* best of the runs, seconds */
};

/* One run on a fresh session; tokens are arbitrary and the same every time. */
static lam_code run_once(const struct opened *all, struct figures *f, lam_error *err)
{
    lam_session *session;
    uint32_t *tokens = malloc((f->n_prefill + 1) * sizeof *tokens);
    if (!tokens) return LAM_E_NO_MEMORY;
    for (size_t i = 0; i <= f->n_prefill; i++) tokens[i] = (uint32_t)((i * 7919 + 17) % all->info.n_vocab);
    lam_code code = lam_session_new(all->composition, f->n_prefill + f->n_decode, &session, err);
    double start = now_seconds();
    if (code == LAM_OK) code = lam_session_feed(session, tokens, f->n_prefill, NULL, NULL, err);
    double middle = now_seconds();
    for (size_t i = 0; code == LAM_OK && i < f->n_decode; i++) code = lam_session_feed(session, &tokens[i % f->n_prefill], 1, NULL, NULL, err);
    double end = now_seconds();
    lam_session_free(session);
    free(tokens);
    if (f->prefill == 0.0 || middle - start < f->prefill) f->prefill = middle - start;
    if (f->decode == 0.0 || end - middle < f->decode) f->decode = end - middle;
    return code;
}

/* Composing what is loaded already: what a switch costs before its first token. */
static lam_code time_switch(struct opened *all, struct figures *f, lam_error *err)
{
    lam_adapter *list[MAX_ADAPTERS];
    double weights[MAX_ADAPTERS];
    lam_composition *composition;
    for (size_t i = 0; i < all->n_adapters; i++) {
        list[i] = all->adapters[i].adapter;
        weights[i] = all->adapters[i].weight;
    }
    double start = now_seconds();
    lam_code code = lam_compose(all->base, list, weights, all->n_adapters, &composition, err);
    f->switch_seconds = now_seconds() - start;
    if (code == LAM_OK) lam_composition_free(composition);
    return code;
}

static int print_figures(const struct options *o, const struct opened *all, const struct figures *f)
{
    double prefill = (double)f->n_prefill / f->prefill, decode = (double)f->n_decode / f->decode;
    double gigabytes = (double)all->info.weight_bytes * decode / 1e9;
    if (o->json)
        return print_json(json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:f,s:f,s:f,s:f,s:f,s:f}", "model", all->info.name, "composition_id",
                                    lam_composition_id(all->composition), "isa", lam_engine_isa(all->engine), "threads",
                                    (json_int_t)lam_engine_threads(all->engine), "prefill_tokens", (json_int_t)f->n_prefill, "decode_tokens",
                                    (json_int_t)f->n_decode, "prefill_tokens_per_second", prefill, "decode_tokens_per_second", decode,
                                    "weight_gigabytes_per_second", gigabytes, "load_seconds", all->load_seconds, "switch_seconds",
                                    f->switch_seconds, "peak_resident_bytes", peak_resident()));
    printf("%s, %s, %u threads\n%-22s %10.1f tokens/s (%zu tokens)\n%-22s %10.1f tokens/s (%zu tokens, weights at %.1f GB/s)\n"
           "%-22s %10.3f s\n%-22s %10.3f ms\n%-22s %10.1f MB\n",
           all->info.name, lam_engine_isa(all->engine), lam_engine_threads(all->engine), "prefill", prefill, f->n_prefill, "decode", decode,
           f->n_decode, gigabytes, "load", all->load_seconds, "switch", f->switch_seconds * 1e3, "peak resident", peak_resident() / 1e6);
    return 0;
}

int cmd_bench(struct options *o)
{
    lam_error err = {0};
    struct opened all;
    if (!options_take_model(o)) return 2;
    lam_code code = open_all(o, &all, &err);
    struct figures f = {.n_prefill = o->prompt ? strtoul(o->prompt, NULL, 10) : DEFAULT_PREFILL,
                        .n_decode = o->n_tokens ? o->n_tokens : DEFAULT_DECODE};
    if (f.n_prefill == 0) f.n_prefill = DEFAULT_PREFILL;
    for (int i = 0; code == LAM_OK && i < RUNS; i++) code = run_once(&all, &f, &err);
    if (code == LAM_OK) code = time_switch(&all, &f, &err);
    int status = code == LAM_OK ? print_figures(o, &all, &f) : report(o, &err);
    close_all(&all);
    return status;
}
