#include "store/pieces.h"
#include "base/alloc.h"
#include "format/merkle.h"
#include "format/slm.h"

#include <string.h>

static lam_code find(const struct lam_slm *slm, struct lam_bad_pieces *out, lam_error *err)
{
    out->n_pieces = slm->n_pieces;
    out->data_offset = (uint64_t)(slm->data - slm->file.data);
    out->list = lam_alloc(slm->n_pieces, sizeof *out->list);
    if (!out->list) return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory");
    for (size_t i = 0; i < slm->n_pieces; i++)
        if (lam_slm_verify_piece(slm, i, NULL) != LAM_OK) out->list[out->n++] = i;
    return LAM_OK;
}

lam_code lam_bad_pieces_find(const char *path, const char *file_root, struct lam_bad_pieces *out, lam_error *err)
{
    struct lam_slm *slm;
    char root[LAM_DIGEST_TEXT];
    *out = (struct lam_bad_pieces){0};
    LAM_TRY(lam_slm_open(path, &slm, err));
    lam_digest_text(slm->file_root, root);
    lam_code code = strcmp(root, file_root) == 0 ? find(slm, out, err)
                  : LAM_RAISE(err, LAM_E_DIGEST, "%s has file_root %s, %s is expected", path, root, file_root);
    lam_slm_close(slm);
    return code;
}

void lam_bad_pieces_release(struct lam_bad_pieces *bad)
{
    lam_free(bad->list);
    *bad = (struct lam_bad_pieces){0};
}
