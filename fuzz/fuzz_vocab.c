/* Any bytes as a vocabulary section; what opens encodes a text and decodes it again. */
#include "base/alloc.h"
#include "text/detok.h"
#include "text/tokenizer.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = lam_alloc_aligned(size + 8);
    if (!copy) return 0;
    if (size) memcpy(copy, data, size);
    /* The length in the header, so that mutations reach further. */
    if (size >= 128 && data[size - 1] % 2 == 0) {
        uint64_t length = size;
        memcpy(copy + 88, &length, 8);
    }
    struct lam_vocab v;
    struct lam_tokenizer *t;
    uint8_t digest[LAM_SHA256_BYTES];
    if (lam_vocab_open(copy, size, &v, NULL) == LAM_OK) {
        (void)lam_vocab_digest(&v, digest, NULL);
        if (lam_tokenizer_new(&v, &t, NULL) == LAM_OK) {
            static const char text[] = "Hello <s>ab  ab\n123 \xC3\xA9\xE2\x96\x81\xFF";
            uint32_t *tokens;
            size_t n;
            struct lam_str out = {0};
            if (lam_tokenizer_encode(t, text, sizeof text - 1, LAM_ENCODE_ADD_SPECIAL | LAM_ENCODE_PARSE_SPECIAL, &tokens, &n, NULL) == LAM_OK) {
                if (lam_detokenize(&v, tokens, n, LAM_DETOK_START, &out, NULL) == LAM_E_TOKEN) __builtin_trap();
                lam_free(tokens);
            }
            lam_str_release(&out);
            lam_tokenizer_free(t);
        }
    }
    lam_free_aligned(copy);
    return 0;
}
