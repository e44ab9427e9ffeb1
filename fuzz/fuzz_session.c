/* Any bytes as a saved session: its sections, and its description as the key of cached rows. */
#include "base/alloc.h"
#include "base/cursor.h"
#include "base/json.h"
#include "cache/rows.h"
#include "cache/saved.h"

#include <string.h>

static void read_description(const struct lam_saved *file)
{
    json_t *d;
    struct lam_row_contract contract, here;
    struct lam_run *runs;
    size_t n_runs, n;
    uint8_t digest[LAM_SHA256_BYTES];
    static const uint32_t tokens[64];
    if (lam_json_parse((const char *)file->description, file->description_len, "description", &d, NULL) != LAM_OK) return;
    lam_code code = lam_row_contract_read(json_object_get(d, "key"), &contract, NULL);
    if (code == LAM_OK && lam_runs_read(json_object_get(d, "execution"), &runs, &n_runs, NULL) == LAM_OK) {
        struct lam_rows have = {.contract = &contract, .tokens = tokens, .n = 64, .runs = runs, .n_runs = n_runs, .covered_end = 64,
                                .complete_layers = contract.layers, .frozen = true};
        struct lam_rows want = have;
        lam_row_contract_here(contract.base_digest, 2, LAM_KV_F16, "", &here);
        want.contract = &here;
        if (lam_rows_admit(&want, &have, false, &n, NULL) == LAM_OK && n > 64) __builtin_trap();
        if (lam_rows_admit(&have, &have, true, &n, NULL) == LAM_OK && n != 64) __builtin_trap();
        (void)lam_interval_digest(&contract, runs, n_runs, 0, 64, digest, NULL);
        lam_free(runs);
    }
    json_decref(d);
}

/* The header's lengths, most of them the description's, and the digest: so that mutations reach further. */
static void set_right(uint8_t *bytes, size_t size)
{
    static const char magic[4] = "SLS0";
    size_t rest = LAM_SAVED_HEADER + LAM_SHA256_BYTES + 4 * 65 + 64 + 16; /* as in the seed */
    memset(bytes, 0, LAM_SAVED_HEADER);
    memcpy(bytes, magic, sizeof magic);
    lam_store_u32(bytes + 8, size > rest ? (uint32_t)(size - rest) : 0);
    lam_store_u32(bytes + 12, 65);
    lam_store_u64(bytes + 16, 64);
    lam_store_u64(bytes + 24, 16);
    lam_store_u64(bytes + 32, size);
    lam_sha256(bytes, size - LAM_SHA256_BYTES, bytes + size - LAM_SHA256_BYTES);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lam_saved file;
    uint8_t *copy = lam_alloc(size + 1, 1);
    if (!copy) return 0;
    if (size) memcpy(copy, data, size);
    if (size > LAM_SAVED_HEADER + LAM_SHA256_BYTES && data[4] == 0) set_right(copy, size);
    if (lam_saved_parse(copy, size, &file, NULL) == LAM_OK) read_description(&file);
    lam_free(copy);
    return 0;
}
