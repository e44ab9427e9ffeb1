/* One base, two specialists, and back: what Lamina is for, in one program.
 *     build/examples/story MODEL.slm A.slm B.slm
 * Writes a story with the base, with A, with B, with both, and with the base again; shows the composition ids, the time of each switch,
 * that the base's bytes are the same before and after, and that the first and the last output have the same bits. */
#define _POSIX_C_SOURCE 200809L

#include <lamina/lamina.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#define PROMPT "Once upon a time"
#define TOKENS 100

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool print(void *context, const char *text, uint32_t token)
{
    (void)context, (void)token;
    fputs(text, stdout);
    fflush(stdout);
    return true;
}

/* Writes one story; logits_digest gets the digest of the logits after its last token. */
static lam_code write_story(const char *title, lam_base *base, lam_adapter *const *adapters, const double *weights, size_t n,
                            char logits_digest[LAM_DIGEST_TEXT], lam_error *err)
{
    lam_composition *composition = NULL;
    lam_session *session = NULL;
    uint32_t *tokens = NULL;
    size_t n_prompt = 0, written = 0;
    lam_base_info info;
    lam_sampling sampling;
    lam_base_describe(base, &info);
    lam_sampling_default(&sampling);
    sampling.seed = 7;

    double start = now();
    lam_code code = lam_compose(base, adapters, weights, n, NULL, &composition, err);
    double switched = now() - start;
    if (code == LAM_OK) code = lam_session_new(composition, 0, &session, err);
    if (code == LAM_OK) code = lam_tokenize(base, PROMPT, strlen(PROMPT), LAM_TOKENIZE_SPECIAL, &tokens, &n_prompt, err);
    if (code == LAM_OK) code = lam_session_feed(session, tokens, n_prompt, NULL, NULL, err);
    if (code == LAM_OK) printf("== %s\n   composition %s\n   switched in %.3f ms\n\n%s", title, lam_composition_id(composition), switched * 1e3, PROMPT);
    start = now();
    if (code == LAM_OK) code = lam_generate(session, &sampling, TOKENS, print, NULL, &written, err);
    double seconds = now() - start;
    if (code == LAM_OK) {
        lam_digest_bytes(lam_session_logits(session), info.n_vocab * sizeof(float), logits_digest);
        printf("\n\n   %zu tokens, %.0f tokens/s\n\n", written, (double)written / seconds);
    }
    lam_memory_free(tokens);
    lam_session_free(session);
    lam_composition_free(composition);
    return code;
}

static lam_code tell(lam_base *base, lam_adapter *a, lam_adapter *b, lam_error *err)
{
    lam_adapter *both[] = {a, b};
    const double one[] = {1.0}, half[] = {0.6, 0.6};
    char before[LAM_DIGEST_TEXT], after[LAM_DIGEST_TEXT], first[LAM_DIGEST_TEXT], last[LAM_DIGEST_TEXT], other[LAM_DIGEST_TEXT];
    lam_adapter_info info_a, info_b;
    char title[600];
    lam_adapter_describe(a, &info_a);
    lam_adapter_describe(b, &info_b);
    lam_code code = lam_base_verify(base, before, err);
    if (code == LAM_OK) code = write_story("the base", base, NULL, NULL, 0, first, err);
    if (code == LAM_OK) code = write_story(info_a.name, base, &a, one, 1, other, err);
    if (code == LAM_OK) code = write_story(info_b.name, base, &b, one, 1, other, err);
    snprintf(title, sizeof title, "%.255s at 0.6 and %.255s at 0.6", info_a.name, info_b.name);
    if (code == LAM_OK) code = write_story(title, base, both, half, 2, other, err);
    if (code == LAM_OK) code = write_story("the base again", base, NULL, NULL, 0, last, err);
    if (code == LAM_OK) code = lam_base_verify(base, after, err);
    if (code != LAM_OK) return code;
    bool same_bytes = strcmp(before, after) == 0, same_bits = strcmp(first, last) == 0;
    printf("base bytes before %s\nbase bytes after  %s  %s\nfirst base logits %s\nlast base logits  %s  %s\n", before, after,
           same_bytes ? "(the same)" : "(CHANGED)", first, last, same_bits ? "(the same bits)" : "(DIFFERENT)");
    return same_bytes && same_bits ? LAM_OK : LAM_E_CHANGED;
}

int main(int argc, char **argv)
{
    lam_engine *engine = NULL;
    lam_base *base = NULL;
    lam_adapter *a = NULL, *b = NULL;
    lam_error err = {.message = "usage: story MODEL.slm A.slm B.slm"};
    lam_code code = argc == 4 ? lam_engine_new(NULL, &engine, &err) : LAM_E_ARGUMENT;
    if (code == LAM_OK) printf("kernels %s, %u threads\n\n", lam_engine_isa(engine), lam_engine_threads(engine));
    if (code == LAM_OK) code = lam_base_open(engine, argv[1], LAM_VERIFY_FULL, &base, &err);
    if (code == LAM_OK) code = lam_adapter_load(base, argv[2], false, &a, &err);
    if (code == LAM_OK) code = lam_adapter_load(base, argv[3], false, &b, &err);
    if (code == LAM_OK) code = tell(base, a, b, &err);
    if (code != LAM_OK) fprintf(stderr, "%s: %s\n", lam_code_name(code), err.message);
    lam_adapter_unload(a);
    lam_adapter_unload(b);
    lam_base_free(base);
    lam_engine_free(engine);
    return code != LAM_OK;
}
