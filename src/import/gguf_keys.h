/* GGUF's keys in a .slm's metadata, exactly: type, order and every bit of the values, so that an export writes them back.
 *
 * metadata "gguf": { "keys": [ … ], "tensors": [ names in the file's order ] }, one object a key:
 *   { "key", "type", "value" }                 a number, bool or string
 *   { "key", "type": "array", "items", "value": [ … ] }
 *   the same with "hex" (and "count" for arrays) in place of "value" where JSON cannot hold it: NaN, −0, integers beyond 2^53,
 *   bytes that are not UTF-8
 *   { "key", "from": "vocabulary" }            what lam_vocab_export_gguf gives for this key
 *   { "key", "from": "chat_template" }         metadata's "chat_template" */
#ifndef LAM_IMPORT_GGUF_KEYS_H
#define LAM_IMPORT_GGUF_KEYS_H

#include "base/json.h"
#include "format/gguf.h"

/* *out: a new reference, { "key", "type", … }. */
lam_code lam_gguf_key_to_json(const struct lam_gguf_kv *kv, json_t **out, lam_error *err);

/* Appends such a key; not the "from" forms. LAM_E_FORMAT for what is none. */
lam_code lam_gguf_key_from_json(const json_t *object, struct lam_gguf_out *o, lam_error *err);

#endif
