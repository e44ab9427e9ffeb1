/* Any bytes as a tokenizer.json; what is imported must open, have a digest and encode. */
#include "base/alloc.h"
#include "text/detok.h"
#include "text/tokenizer.h"
#include "text/vocab_import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lam_vocab_source source = {(const char *)data, size};
    uint8_t *section, digest[LAM_SHA256_BYTES];
    size_t len;
    if (lam_vocab_import_hf(&source, NULL, NULL, &section, &len, NULL) != LAM_OK) return 0;
    struct lam_vocab v;
    struct lam_tokenizer *t;
    if (lam_vocab_open(section, len, &v, NULL) != LAM_OK || lam_vocab_digest(&v, digest, NULL) != LAM_OK) __builtin_trap();
    if (lam_tokenizer_new(&v, &t, NULL) == LAM_OK) {
        static const char text[] = "ab  ab<x>\n123 \xC3\xA9\xE2\x96\x81";
        uint32_t *tokens;
        size_t n;
        struct lam_str out = {0};
        if (lam_tokenizer_encode(t, text, sizeof text - 1, LAM_ENCODE_PARSE_SPECIAL, &tokens, &n, NULL) == LAM_OK) {
            if (lam_detokenize(&v, tokens, n, LAM_DETOK_SPECIAL, &out, NULL) == LAM_E_TOKEN) __builtin_trap();
            lam_free(tokens);
        }
        lam_str_release(&out);
        lam_tokenizer_free(t);
    }
    lam_free_aligned(section);
    return 0;
}
