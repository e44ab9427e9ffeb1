/* Manifests and receipts: what is read must be written again, and read to the same. */
#include "base/alloc.h"
#include "compose/manifest.h"
#include "lamina/receipt.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    lam_manifest *m, *again;
    lam_fault_list faults = {0};
    lam_receipt_info info;
    lam_error err;
    char *first = NULL, *second = NULL;
    lam_receipt_check((const char *)data, size, NULL, NULL, &info, &err);
    lam_code code = lam_manifest_parse((const char *)data, size, "", "fuzz", &m, &faults, &err);
    lam_fault_list_release(&faults);
    if (code != LAM_OK) return 0;
    for (size_t i = 0; i < m->n_receipts; i++) lam_receipt_check(m->receipts[i], strlen(m->receipts[i]), m->id, NULL, &info, &err);
    /* files that are not there cannot be written */
    lam_manifest copy = *m;
    lam_manifest_adapter adapters[LAM_MANIFEST_MAX_ADAPTERS];
    for (size_t i = 0; i < m->n_adapters; i++) {
        adapters[i] = m->adapters[i];
        adapters[i].file = NULL;
    }
    copy.base_file = copy.template_file = NULL;
    copy.adapters = adapters;
    if (lam_manifest_json(&copy, "m.json", &first, &err) != LAM_OK) abort();
    if (lam_manifest_parse(first, strlen(first), "", "again", &again, &faults, &err) != LAM_OK) abort();
    if (lam_manifest_json(again, "m.json", &second, &err) != LAM_OK || strcmp(first, second) != 0) abort();
    lam_free(first);
    lam_free(second);
    lam_manifest_free(again);
    lam_manifest_free(m);
    return 0;
}
