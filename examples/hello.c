/* Opens a base, lays an adapter over it, writes a few words, and goes back.
 *     build/examples/hello MODEL.slm [ADAPTER.slm]
 * Against an installed Lamina:
 *     cc -std=c11 hello.c $(pkg-config --cflags --libs lamina) -o hello */
#include <lamina/lamina.h>

#include <stdio.h>
#include <string.h>

static bool print(void *context, const char *text, uint32_t token)
{
    (void)context, (void)token;
    fputs(text, stdout);
    return true;
}

/* Continues prompt under a composition of its own; the base is the same one every time. */
static lam_code write_under(lam_base *base, lam_adapter *adapter, const char *prompt, lam_error *err)
{
    lam_composition *composition = NULL;
    lam_session *session = NULL;
    uint32_t *tokens = NULL;
    size_t n = 0;
    double weight = 1.0;
    lam_sampling sampling;
    lam_sampling_default(&sampling);
    lam_code code = lam_compose(base, &adapter, &weight, adapter ? 1 : 0, NULL, &composition, err);
    if (code == LAM_OK) code = lam_session_new(composition, 0, &session, err);
    if (code == LAM_OK) code = lam_tokenize(base, prompt, strlen(prompt), LAM_TOKENIZE_SPECIAL, &tokens, &n, err);
    if (code == LAM_OK) code = lam_session_feed(session, tokens, n, NULL, NULL, err);
    if (code == LAM_OK) printf("[%s]\n%s", lam_composition_id(composition), prompt);
    if (code == LAM_OK) code = lam_generate(session, &sampling, 40, print, NULL, NULL, err);
    printf("\n\n");
    lam_memory_free(tokens);
    lam_session_free(session);
    lam_composition_free(composition);
    return code;
}

int main(int argc, char **argv)
{
    lam_engine *engine = NULL;
    lam_base *base = NULL;
    lam_adapter *adapter = NULL;
    lam_error err = {0};
    lam_code code = argc < 2 ? LAM_E_ARGUMENT : lam_engine_new(NULL, &engine, &err);
    if (code == LAM_OK) code = lam_base_open(engine, argv[1], LAM_VERIFY_FULL, &base, &err);
    if (code == LAM_OK && argc > 2) code = lam_adapter_load(base, argv[2], false, &adapter, &err);
    if (code == LAM_OK) code = write_under(base, NULL, "Once upon a time", &err);
    if (code == LAM_OK && adapter) code = write_under(base, adapter, "Once upon a time", &err);
    if (code != LAM_OK) fprintf(stderr, "%s: %s\n", lam_code_name(code), argc < 2 ? "usage: hello MODEL.slm [ADAPTER.slm]" : err.message);
    lam_adapter_unload(adapter);
    lam_base_free(base);
    lam_engine_free(engine);
    return code != LAM_OK;
}
