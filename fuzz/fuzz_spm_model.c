/* Any bytes as SentencePiece's tokenizer.model; what is imported must open, have a digest and encode. */
#include "base/alloc.h"
#include "text/tokenizer.h"
#include "text/vocab_import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lam_vocab_source source = {(const char *)data, size};
    uint8_t *section, digest[LAM_SHA256_BYTES];
    size_t len;
    if (lam_vocab_import_spm(&source, NULL, NULL, &section, &len, NULL) != LAM_OK) return 0;
    struct lam_vocab v;
    struct lam_tokenizer *t;
    if (lam_vocab_open(section, len, &v, NULL) != LAM_OK || lam_vocab_digest(&v, digest, NULL) != LAM_OK) __builtin_trap();
    if (lam_tokenizer_new(&v, &t, NULL) == LAM_OK) {
        static const char text[] = "the  cat\n\xC3\xA9\xE2\x96\x81";
        uint32_t *tokens;
        size_t n;
        if (lam_tokenizer_encode(t, text, sizeof text - 1, 0, &tokens, &n, NULL) == LAM_OK) lam_free(tokens);
        lam_tokenizer_free(t);
    }
    lam_free_aligned(section);
    return 0;
}
