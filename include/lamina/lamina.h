/* Lamina: a quantised transformer base that never changes, and specialist adapters laid over it.
 *
 * The objects, in the order in which you meet them:
 *   engine       threads and kernels. One a process is usual. Outlives everything made with it.
 *   base         one immutable model file, mapped read-only.
 *   adapter      one immutable artefact, checked against a base and staged for it.
 *   composition  a base and an ordered list of adapters with weights, under one composition_id. Immutable; counted.
 *   session      one token history with its KV cache, bound to one composition for its life.
 * Objects are counted: what is made from another keeps it alive, so handles may be closed in any order.
 *
 * Every fallible function returns LAM_OK or a code and fills *err (which may be NULL). Out parameters are set to NULL on
 * failure, and nothing else has changed. Paths are UTF-8. Any thread may call, but no two of
 * them with the same session at once. An engine computes one thing at a time: a call on another session waits for its turn. */
#ifndef LAMINA_LAMINA_H
#define LAMINA_LAMINA_H

#include "lamina/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "sha256:" + 64 hex digits + zero */
#define LAM_DIGEST_TEXT 72

typedef struct lam_engine lam_engine;
typedef struct lam_base lam_base;
typedef struct lam_adapter_handle lam_adapter;
typedef struct lam_composition lam_composition;
typedef struct lam_session lam_session;

/* The version of this library, "0.1.0". */
LAM_API const char *lam_version(void);

/* ---- engine ---- */

typedef struct lam_engine_options {
    unsigned threads;   /* 0: one for each core that the process may use, of one NUMA node, within its CPU quota */
    const char *isa;    /* NULL: LAMINA_ISA from the environment, else the fastest that the CPU has; "scalar", "avx2", "avx512", "neon", … */
    size_t max_rows;    /* rows of one forward pass, 65536 at most; 0: 64. Results don't depend on it */
    size_t prefix_cache; /* bytes for keys and values that histories leave to those that begin alike (lamina/reuse.h); 0: off */
    size_t budget;      /* bytes that all that is made with the engine may take together: decoded and staged weights, keys and values, tokens,
                         * logits, buffers (not the mapped files, metadata and tokenizers; lamina/plan.h counts these, too). What would pass it
                         * is refused with LAM_E_BUDGET before it is allocated. 0: no limit */
} lam_engine_options;

typedef struct lam_memory {
    size_t limit, used, peak; /* bytes; peak: the most that was in use at one time */
} lam_memory;

/* options may be NULL. LAM_E_ISA, LAM_E_ARGUMENT, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_engine_new(const lam_engine_options *options, lam_engine **out, lam_error *err);
LAM_API void lam_engine_free(lam_engine *engine);
/* The instruction set in use, the processors that were found ("2 processors, 2 cores, 1 NUMA node"), and the number of threads. */
LAM_API const char *lam_engine_isa(const lam_engine *engine);
LAM_API const char *lam_engine_machine(const lam_engine *engine);
LAM_API unsigned lam_engine_threads(const lam_engine *engine);
/* What is counted against lam_engine_options.budget. */
LAM_API void lam_engine_memory(const lam_engine *engine, lam_memory *out);

/* ---- base ---- */

/* When the weights are hashed, in pieces of 4 MiB, against the file's Merkle tree. */
typedef enum lam_verify {
    LAM_VERIFY_LAZY = 0, /* each piece before the first call that computes with it, which fails with LAM_E_DIGEST if it differs */
    LAM_VERIFY_FULL = 1, /* all, when the base is opened */
    LAM_VERIFY_OFF = 2   /* never: trust the bytes */
} lam_verify;

/* Opens a base .slm. Errors: those of the file (LAM_E_MAGIC … LAM_E_DIGEST), of the model (LAM_E_ARCHITECTURE … LAM_E_DTYPE),
 * LAM_E_IO, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_base_open(lam_engine *engine, const char *path, lam_verify verify, lam_base **out, lam_error *err);
LAM_API void lam_base_free(lam_base *base);

typedef struct lam_base_info {
    const char *name;            /* from the source's metadata, or the file's name */
    const char *architecture;
    const char *base_digest, *tokenizer_digest, *template_digest;
    char weights_root[LAM_DIGEST_TEXT];
    uint32_t n_layers, d_model, n_heads, n_kv_heads, head_dim, d_ff, n_vocab, n_context;
    size_t weight_bytes;
    bool has_chat_template;
} lam_base_info;
/* Texts are borrowed from the base. */
LAM_API void lam_base_describe(const lam_base *base, lam_base_info *out);

/* Hashes all weight bytes as they are mapped now; LAM_E_DIGEST if they differ from the tree, LAM_E_CHANGED if the file was
 * truncated or replaced. out (may be NULL) gets the root. Unless the base was opened with LAM_VERIFY_OFF, a piece that differs now
 * ends what depends on it. */
LAM_API lam_code lam_base_verify(lam_base *base, char out[LAM_DIGEST_TEXT], lam_error *err);

/* Reads the base's weights once with all threads of its engine and does nothing with them: the rate that this memory gives, which
 * decoding cannot exceed. From the caches where the weights fit them, as in decoding. One pass: callers take the best of several.
 * LAM_E_CHANGED. */
LAM_API lam_code lam_base_read_bandwidth(lam_base *base, double *bytes_per_second, lam_error *err);

/* ---- adapters and compositions ---- */

/* Opens an adapter .slm for this base: fully verified, every tensor applied or the call fails. With waive an adapter that is
 * bound to another base, or to none, is taken if its shapes fit; the waiver becomes part of the composition_id.
 * Errors: those of the file, LAM_E_METHOD … LAM_E_TOKENIZER, LAM_E_SHAPE, LAM_E_NON_FINITE, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_adapter_load(lam_base *base, const char *path, bool waive, lam_adapter **out, lam_error *err);
LAM_API void lam_adapter_unload(lam_adapter *adapter);

typedef struct lam_adapter_info {
    const char *name, *digest;   /* borrowed */
    size_t n_modules, n_tensors; /* all applied */
    size_t n_no_effect;          /* modules whose B is all zero */
    size_t staged_bytes;
    bool bound;
    const uint32_t *invocation;  /* [n_invocation], borrowed: the tokens from which on an activated adapter acts; NULL: it always does */
    size_t n_invocation;
} lam_adapter_info;
LAM_API void lam_adapter_describe(const lam_adapter *adapter, lam_adapter_info *out);

/* How a session's keys and values are kept. int8 takes about half of float16's memory and time of attention, and is less accurate
 * (docs/decisions/2026-11-30-int8-kv.md). The choice is part of composition_id. */
typedef enum lam_kv_choice {
    LAM_KV_DEFAULT = 0, /* float16, or float32 if all matrices of the base are of float types */
    LAM_KV_FLOAT16 = 1,
    LAM_KV_FLOAT32 = 2,
    LAM_KV_INT8 = 3
} lam_kv;

/* What an adapter of a stack does to those before it, on the modules that it changes. */
typedef enum lam_stack_rule {
    LAM_STACK_ADD = 0,    /* its change comes after theirs */
    LAM_STACK_REPLACE = 1 /* it takes their place */
} lam_stack_rule;

/* How a changed matrix is computed. Part of composition_id; both give the same bits in every phase, batch and chunk. */
typedef enum lam_policy {
    LAM_POLICY_DUAL = 0,       /* y = W x, then each adapter's own product is added: W stays quantised */
    LAM_POLICY_MATERIALIZE = 1 /* W + Δ in float32, 16 rows at a time, used and dropped */
} lam_policy;

typedef struct lam_owner {
    const char *module;   /* "blk.0.attn_q" */
    size_t adapter;       /* its place in the stack */
} lam_owner;

typedef struct lam_module_policy {
    const char *module;
    lam_policy policy;
} lam_module_policy;

typedef struct lam_compose_options {
    lam_kv kv;
    const lam_stack_rule *rules;   /* [n] or NULL: all LAM_STACK_ADD */
    const lam_owner *owners;       /* [n_owners]: who has a module that several claim alone (replace, a new weight, norm or bias) */
    size_t n_owners;
    lam_policy policy;             /* of every matrix that module_policies does not name */
    const lam_module_policy *module_policies; /* [n_module_policies] */
    size_t n_module_policies;
    const char *chat_template;     /* UTF-8, in place of the base's; NULL: the base's */
} lam_compose_options;

/* A new immutable composition of base and adapters[n] in this order with weights[n] (finite, also times the adapter's
 * scale as float32; 0 leaves the base's bits).
 * LAM_E_WRONG_BASE if an adapter was loaded for another base, LAM_E_DUPLICATE if one occurs twice, LAM_E_CONFLICT if two claim one
 * module alone and options name no owner, LAM_E_UNMATCHED for a module in options that the base does not have, LAM_E_CHANGED if the base's
 * file was truncated or replaced, LAM_E_DIGEST as lam_session_feed where an adapter needs the base's values, LAM_E_LIMIT for more than 64
 * activated adapters, LAM_E_UTF8 and LAM_E_TEMPLATE for a template of options that is not UTF-8 or cannot be run, LAM_E_ARGUMENT,
 * LAM_E_NO_MEMORY. n may be 0; options may be NULL. */
LAM_API lam_code lam_compose(lam_base *base, lam_adapter *const adapters[], const double weights[], size_t n,
                             const lam_compose_options *options, lam_composition **out, lam_error *err);
LAM_API void lam_composition_free(lam_composition *composition);
/* "sha256:…", borrowed. */
LAM_API const char *lam_composition_id(const lam_composition *composition);
/* The canonical JSON that composition_id is the SHA-256 of; borrowed. */
LAM_API const char *lam_composition_json(const lam_composition *composition);
/* How its sessions keep keys and values, as in the JSON: "f16", "f32" or "i8"; and the bytes that a position takes. */
LAM_API const char *lam_composition_kv_format(const lam_composition *composition);
LAM_API size_t lam_composition_kv_bytes(const lam_composition *composition);
/* How many adapters it has, those of weight 0 among them. */
LAM_API size_t lam_composition_n_adapters(const lam_composition *composition);
/* The digest of its chat template: its own, else the base's; NULL without one. Borrowed. */
LAM_API const char *lam_composition_template_digest(const lam_composition *composition);

/* ---- text ---- */

enum {
    LAM_TOKENIZE_SPECIAL = 1, /* begin with BOS (exactly one), end with EOS, where the model asks for it */
    LAM_TOKENIZE_CONTROL = 2  /* find control tokens such as <|im_start|> in the text */
};

/* text[len] → *tokens[*n], freed with lam_memory_free. LAM_E_TOKEN, LAM_E_LIMIT, LAM_E_CHANGED, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_tokenize(const lam_base *base, const char *text, size_t len, unsigned flags, uint32_t **tokens, size_t *n,
                              lam_error *err);
/* tokens[n] → *text, UTF-8, zero-terminated, freed with lam_memory_free. special: write control tokens too. LAM_E_TOKEN,
 * LAM_E_CHANGED. */
LAM_API lam_code lam_detokenize_text(const lam_base *base, const uint32_t *tokens, size_t n, bool special, char **text,
                                     lam_error *err);

typedef struct lam_message {
    const char *role;    /* "system", "user", "assistant" */
    const char *content; /* UTF-8 */
} lam_message;
/* The composition's chat template, its own or else the base's, over messages[n] → *text, freed with lam_memory_free. LAM_E_TEMPLATE if there is
 * none or it fails, LAM_E_UTF8 if a message is not UTF-8. */
LAM_API lam_code lam_chat_format(const lam_composition *composition, const lam_message *messages, size_t n, bool add_generation_prompt,
                                 char **text, lam_error *err);
/* SHA-256 of bytes[len], as text. */
LAM_API void lam_digest_bytes(const void *bytes, size_t len, char out[LAM_DIGEST_TEXT]);
/* Frees what a function of this header says is freed with it. NULL is allowed. */
LAM_API void lam_memory_free(void *block);

/* ---- sessions ---- */

/* A new history bound to composition. context: positions at most, 0 for the model's own limit or 4096, whichever is less. */
LAM_API lam_code lam_session_new(lam_composition *composition, size_t context, lam_session **out, lam_error *err);
LAM_API void lam_session_free(lam_session *session);
LAM_API size_t lam_session_length(const lam_session *session);
LAM_API size_t lam_session_context(const lam_session *session);
/* Borrowed. */
LAM_API const char *lam_session_composition_id(const lam_session *session);

/* Called with the logits of one position, logits[n_vocab], valid during the call. Returning false cancels. It must not call
 * back into the engine that calls it: that would wait for itself. */
typedef bool (*lam_logits_fn)(void *context, size_t position, const float *logits, size_t n_vocab);

/* Appends tokens[n] to the history: a submission. Activated adapters act from the first token of the last occurrence of their invocation in
 * the whole history on; rows before the new ones for which that changes are computed again, and results are those of a new session
 * that was fed everything at once. each (may be NULL) gets the logits of every new position in order; the last ones are kept for
 * lam_session_logits. On failure the session is as before. LAM_E_CONTEXT if it does not fit, LAM_E_TOKEN, LAM_E_INVOCATION
 * or LAM_E_INVOCATION_CUT if an invocation is not there (but see lam_session_allow_base), LAM_E_NO_TOKENS if tokens is NULL,
 * LAM_E_ACTIVATION if an activation left the finite range, LAM_E_CANCELLED, LAM_E_CHANGED, LAM_E_NO_MEMORY, LAM_E_DIGEST if
 * bytes of the base that it depends on are not those of its tree (LAM_VERIFY_LAZY). */
LAM_API lam_code lam_session_feed(lam_session *session, const uint32_t *tokens, size_t n, lam_logits_fn each, void *context,
                                  lam_error *err);
/* Whether histories without an activated adapter's invocation are answered by the others and the base, instead of LAM_E_INVOCATION.
 * False at first. */
LAM_API void lam_session_allow_base(lam_session *session, bool allow);
/* One generated token for each of sessions[n] (distinct, of one base) in one forward pass. Activated adapters act on it as the last
 * submission says: LAM_E_INVOCATION if there was none, or lam_session_truncate cut its invocation. Results are those of n separate calls.
 * LAM_E_ACTIVATION: those sessions whose activations left the finite range are as long as before, the others have their token.
 * After every other failure all are as before: LAM_E_WRONG_BASE, LAM_E_DUPLICATE, LAM_E_LIMIT (more sessions than max_rows),
 * LAM_E_CONTEXT, LAM_E_TOKEN, LAM_E_CHANGED, LAM_E_DIGEST, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_session_step(lam_session *const sessions[], const uint32_t tokens[], size_t n, lam_error *err);
/* Logits after the last token fed, [n_vocab], borrowed until the next call; NULL for an empty history and after
 * lam_session_truncate made it shorter, until something is fed. */
LAM_API const float *lam_session_logits(const lam_session *session);
/* Bytes that a pass with the next token reads: *weights, of all matrices (an embedding that is not the output matrix too gives but
 * a row and is not counted), once however many sessions step together; *kv, of this history. */
LAM_API void lam_session_next_bytes(const lam_session *session, uint64_t *weights, uint64_t *kv);
/* Shortens the history to length tokens. The next lam_session_feed looks for invocations in what is left and what it adds. */
LAM_API lam_code lam_session_truncate(lam_session *session, size_t length, lam_error *err);

typedef struct lam_sampling {
    float temperature;    /* 0: the most likely token, ties to the lower id */
    uint32_t top_k;       /* 0: all */
    float top_p;          /* 1: all */
    float min_p;          /* 0: all */
    float repeat_penalty; /* 1: none; over the last repeat_window tokens (Keskar et al. 2019, arXiv:1909.05858) */
    uint32_t repeat_window;
    uint64_t seed;        /* draw i of a session is a function of (seed, i) alone */
} lam_sampling;
/* temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, no penalty over 64 tokens, seed 0. */
LAM_API void lam_sampling_default(lam_sampling *out);

/* Chooses the next token from the last logits; does not append it. LAM_E_ARGUMENT for an empty history or bad parameters. */
LAM_API lam_code lam_session_sample(lam_session *session, const lam_sampling *sampling, uint32_t *token, lam_error *err);
/* True for tokens that end a generation. */
LAM_API bool lam_token_is_end(const lam_base *base, uint32_t token);

/* text: what became complete by this token, UTF-8, zero-terminated, may be empty. Returning false stops. */
typedef bool (*lam_text_fn)(void *context, const char *text, uint32_t token);
/* Samples, appends (lam_session_step) and reports up to max_tokens tokens, until an end token, a full context or a stop. *n_tokens (may
 * be NULL) gets their number. The history must not be empty. lam_generate_with (lamina/reuse.h) is the same with drafts. */
LAM_API lam_code lam_generate(lam_session *session, const lam_sampling *sampling, size_t max_tokens, lam_text_fn on_text,
                              void *context, size_t *n_tokens, lam_error *err);

/* ---- files ---- */

/* done and total in bytes; called at most some 20 times a second. Returning false cancels (LAM_E_CANCELLED). */
typedef bool (*lam_progress_fn)(void *context, const char *stage, uint64_t done, uint64_t total);

typedef enum lam_source_kind {
    LAM_SOURCE_SLM_BASE, LAM_SOURCE_SLM_ADAPTER, LAM_SOURCE_GGUF_MODEL, LAM_SOURCE_GGUF_ADAPTER, LAM_SOURCE_HF_MODEL,
    LAM_SOURCE_PEFT_ADAPTER
} lam_source_kind;
/* What lies at path, by content. LAM_E_NOT_FOUND, LAM_E_MAGIC. */
LAM_API lam_code lam_source_detect(const char *path, lam_source_kind *kind, lam_error *err);

typedef struct lam_import_options {
    lam_progress_fn progress; /* may be NULL */
    void *progress_context;
    uint64_t max_bytes;       /* of the file to write; 0: no limit. Above: LAM_E_LIMIT before anything is written */
    const char *quantise;     /* of lam_import_base. NULL: weights stay as they are. "q4_64": float matrices whose rows are a multiple
                               * of 64 long are encoded. "q4_64:outliers=0.005": a float16 residual for that share of each such
                               * matrix, where the error is largest (0.05 at most). ",keep=embedding", ",keep=output": leave it
                               * as it is. LAM_E_ARGUMENT if malformed, LAM_E_DTYPE if a weight is quantised already */
    bool accept_tokenizer;    /* of lam_import_adapter. Take an adapter whose folder has another tokenizer, added tokens or another chat
                               * template than the base: its provenance then says so. Its tensors must still fit the base */
} lam_import_options;

/* A GGUF file (split ones too) or a Hugging Face folder → out_path, a base .slm. options may be NULL. */
LAM_API lam_code lam_import_base(const char *source, const char *out_path, const lam_import_options *options, lam_error *err);

/* One thing that is wrong with an adapter. */
typedef struct lam_fault {
    lam_code code;
    const char *subject;         /* the tensor, module, field or file that it is about */
    const char *what;            /* one line, with its numbers */
} lam_fault;

typedef struct lam_adapter_report {
    size_t n_tensors, n_applied; /* equal on success */
    size_t n_modules;
    size_t n_no_effect;          /* modules whose change is zero, such as a B that is all zero */
    char digest[LAM_DIGEST_TEXT];
    char warnings[1024];         /* lines; empty if none */
    lam_fault *faults;           /* [n_faults] when the adapter is refused: all that is wrong with it, the first one's code is the
                                  * call's. One block with its texts, freed with lam_memory_free; NULL otherwise */
    size_t n_faults;
} lam_adapter_report;
/* A PEFT folder, a llama.cpp LoRA GGUF, or an adapter .slm that is bound to no base (one that is bound is LAM_E_ARGUMENT or
 * LAM_E_WRONG_BASE) → out_path, an adapter .slm bound to the base at base_path. report may be NULL. */
LAM_API lam_code lam_import_adapter(const char *source, const char *base_path, const char *out_path,
                                    const lam_import_options *options, lam_adapter_report *report, lam_error *err);
/* A base .slm → GGUF. For a base that came from GGUF the tensor bytes equal the original's. */
LAM_API lam_code lam_export_gguf(const char *base_path, const char *out_path, const lam_import_options *options, lam_error *err);

/* What lies at path → *json, an object as text, freed with lam_memory_free: kind, digests, configuration, tensor types, and every
 * tensor if tensors is true; of a saved session (lamina/reuse.h) its sizes, digests and ids. Weights are not read. Errors are those of the
 * file. */
LAM_API lam_code lam_inspect(const char *path, bool tensors, char **json, lam_error *err);

/* An empty file beside path, open for writing as *fd, for a program to fill and to rename to path when it is whole: *name, freed with
 * lam_memory_free. While fd is open the file is held; those of the same path that nobody holds, left by a program that was killed, are
 * removed. LAM_E_ARGUMENT if path is a device or a pipe, LAM_E_NOT_FOUND, LAM_E_NO_SPACE, LAM_E_IO, LAM_E_NO_MEMORY. */
LAM_API lam_code lam_output_create(const char *path, char **name, int *fd, lam_error *err);

/* Hashes every byte of a .slm against its own tree; root (may be NULL) gets the file_root. A root proves nothing if it came with
 * the bytes: compare it with one from elsewhere. LAM_E_DIGEST names the damaged piece. */
LAM_API lam_code lam_verify_file(const char *path, const lam_import_options *options, char root[LAM_DIGEST_TEXT], lam_error *err);

#ifdef __cplusplus
}
#endif
#endif
