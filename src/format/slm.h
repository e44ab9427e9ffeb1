/* .slm version 0: the container of bases and adapters (docs/format.md gives every byte offset).
 *
 * Sections in file order: header (128) · piece table (32 each) · metadata (zstd of canonical JSON) · vocabulary (flat tables,
 * used in place) · directory (64-byte entries, sorted by name) · name bytes · data (tensors in the order they were added, each
 * 64-byte aligned, each run of tensors of one layer at a multiple of 64 KiB; then the outlier residuals in the same order). There
 * is one place for everything: a file that puts a section, a tensor or a residual elsewhere is refused.
 * The reader maps the file and makes no allocation per tensor but one array of 8 bytes each while it opens. */
#ifndef LAM_FORMAT_SLM_H
#define LAM_FORMAT_SLM_H

#include "base/error.h"
#include "base/json.h"
#include "base/os.h"
#include "base/pool.h"
#include "tensor/dtype.h"
#include "tensor/residual.h"

#define LAM_SLM_HEADER_BYTES ((size_t)128)
#define LAM_SLM_ENTRY_BYTES ((size_t)64)
#define LAM_SLM_TENSOR_ALIGN ((size_t)64)
#define LAM_SLM_LAYER_ALIGN ((size_t)65536)
#define LAM_SLM_METADATA_MAX ((size_t)16 << 20) /* bytes before compression */
#define LAM_SLM_NAME_MAX 1023                   /* bytes */

#define LAM_LAYER_NONE 0xFFFFu

enum lam_slm_kind { LAM_SLM_BASE = 0, LAM_SLM_ADAPTER = 1 };
enum lam_slm_layout {
    LAM_LAYOUT_PLAIN = 0,  /* GGUF's byte order */
    LAM_LAYOUT_TILE16 = 1  /* tensor/tiles.h; two dimensions only */
};
enum { LAM_SLM_TIED = 1u << 0 };

/* The 64-byte entry as it lies in the file (little-endian; a big-endian machine is refused at open). */
struct lam_slm_entry {
    uint32_t name_offset; /* into the name bytes */
    uint16_t name_len;
    uint8_t dtype;        /* enum lam_dtype */
    uint8_t n_dims;       /* 1..4 */
    uint32_t dims[4];     /* dims[0] = row length (GGUF's order), unused ones 1 */
    uint64_t offset;      /* from the start of the data section, multiple of 64 */
    uint64_t bytes;
    uint16_t layout;      /* enum lam_slm_layout */
    uint16_t layer;       /* LAM_LAYER_NONE outside layers */
    uint32_t residual;    /* 0: none; else its number, from 1, in execution order */
    uint32_t role;        /* what the tensor is for; the model layer's numbering */
    uint32_t flags;       /* 0 */
    uint8_t zero[8];
};

struct lam_slm {
    struct lam_mapping file;
    enum lam_slm_kind kind;
    uint32_t flags;
    const struct lam_slm_entry *entries; /* n_entries, in place */
    size_t n_entries;
    const char *names;        /* name bytes, in place */
    const uint8_t *data;      /* data section */
    size_t data_bytes;
    const uint8_t *residuals; /* table of n_residuals records in the data section */
    size_t n_residuals;
    const uint8_t *vocab;     /* NULL if absent; 64-byte aligned in the file */
    size_t vocab_bytes;
    const uint8_t *pieces;    /* n_pieces leaf hashes */
    size_t n_pieces;
    uint8_t weights_root[32]; /* root over the piece table */
    uint8_t file_root[32];
    json_t *metadata;         /* an object, owned */
};

/* Maps and checks structure, CRC, file_root over the small sections and the piece table; of the data section it reads no more than
 * the table of residuals. */
lam_code lam_slm_open(const char *path, struct lam_slm **out, lam_error *err);
/* bytes[len] borrowed, aligned to 64. */
lam_code lam_slm_open_memory(const uint8_t *bytes, size_t len, struct lam_slm **out, lam_error *err);
void lam_slm_close(struct lam_slm *s);

/* Hashes piece i of the data section against its leaf: LAM_E_DIGEST names piece, byte range and both hashes. */
lam_code lam_slm_verify_piece(const struct lam_slm *s, size_t i, lam_error *err);
/* The same for the pieces list[n], on the threads of the pool: good[piece] of each tells how it went. The error is that of the first
 * bad one in the list, whichever thread came to it. */
lam_code lam_slm_verify_pieces(const struct lam_slm *s, struct lam_pool *pool, const size_t *list, size_t n, bool *good, lam_error *err);

/* What lies before the data section, of a file that is still on its way. */
struct lam_slm_head {
    uint64_t head_bytes, file_bytes, data_bytes; /* the data section is all behind the head */
    const uint8_t *leaves;                       /* [n_pieces][32], borrowed from the head */
    size_t n_pieces;
    uint8_t file_root[32];
};
#define LAM_SLM_HEAD_MAX ((size_t)256 << 20) /* bytes: a limit for what is taken from strangers, above the largest vocabularies */
/* Where the data section begins and how long the file is, as its header says. The errors of lam_slm_open, and LAM_E_LIMIT. */
lam_code lam_slm_head_bytes(const uint8_t header[LAM_SLM_HEADER_BYTES], uint64_t *head, uint64_t *file, lam_error *err);
/* head[bytes], all before the data section, aligned to 8. Checks places and file_root, so that the leaves are those of this root; not the
 * tensors, since their residuals lie in the data. The errors of lam_slm_open. */
lam_code lam_slm_head_read(const uint8_t *head, size_t bytes, struct lam_slm_head *out, lam_error *err);

/* Binary search. NULL if absent. */
const struct lam_slm_entry *lam_slm_find(const struct lam_slm *s, const char *name);
const uint8_t *lam_slm_tensor_data(const struct lam_slm *s, const struct lam_slm_entry *e);

/* The tensor's residual, borrowed; all zero if it has none. Checks all of it: see lam_residual_check. */
lam_code lam_slm_residual(const struct lam_slm *s, const struct lam_slm_entry *e, struct lam_residual *out, lam_error *err);
/* Its number of values, without a look at them. */
uint32_t lam_slm_residual_values(const struct lam_slm *s, const struct lam_slm_entry *e);

/* Writing, streamed: add tensors' declarations in execution order, then write; bytes come tensor by tensor from fill. */
struct lam_slm_out;
struct lam_slm_decl {
    const char *name;
    enum lam_dtype dtype;
    uint8_t n_dims;
    uint32_t dims[4];
    enum lam_slm_layout layout;
    uint16_t layer;
    uint32_t role;
    uint32_t residual_values; /* 0: no residual; only with LAM_LAYOUT_TILE16 in a base */
};
lam_code lam_slm_out_new(enum lam_slm_kind kind, uint32_t flags, struct lam_slm_out **out, lam_error *err);
lam_code lam_slm_out_tensor(struct lam_slm_out *o, const struct lam_slm_decl *decl, lam_error *err);
/* Borrowed until the write ends. */
void lam_slm_out_metadata(struct lam_slm_out *o, const json_t *metadata); /* an object; {} if never called */
void lam_slm_out_vocab(struct lam_slm_out *o, const uint8_t *bytes, size_t len);
/* Fills buffer[bytes] with the tensor's bytes offset … offset + bytes, in its layout; index counts lam_slm_out_tensor
 * calls. Ranges come in order and are whole tiles (LAM_LAYOUT_TILE16) or whole rows (LAM_LAYOUT_PLAIN): as many as fit
 * 4 MiB, at least one. buffer is 64-byte aligned; what it holds before the call is unspecified. */
typedef lam_code (*lam_slm_fill_fn)(void *context, size_t index, uint64_t offset, uint8_t *buffer, size_t bytes,
                                    lam_error *err);
/* Where a tensor's residual lies, in the form of lam_residual_view, when all tensors have been filled; borrowed until the next call.
 * Must be set before writing if a declaration has residual_values; context is the write's. */
typedef lam_code (*lam_slm_residual_fn)(void *context, size_t index, const uint8_t **bytes, lam_error *err);
void lam_slm_out_residuals(struct lam_slm_out *o, lam_slm_residual_fn residual);
/* Total file size that a write will give (an upper bound: metadata before compression), for space checks. */
lam_code lam_slm_out_size(const struct lam_slm_out *o, uint64_t *bytes, lam_error *err);
/* Writes atomically to path. weights_root (if not NULL) gets the root. */
lam_code lam_slm_out_write(struct lam_slm_out *o, const char *path, lam_slm_fill_fn fill, void *context,
                           uint8_t weights_root[32], lam_error *err);
void lam_slm_out_free(struct lam_slm_out *o);

#endif
