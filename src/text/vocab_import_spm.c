/* tokenizer.model: SentencePiece's ModelProto (sentencepiece_model.proto), read by hand. Unknown fields of the trainer
 * don't matter to a trained model; what matters and isn't supported is refused. */
#include "text/vocab_import.h"

#include "base/cursor.h"
#include "text/vocab_common.h"
#include "text/vocab_hf.h"

#include <string.h>

/* One field of a protobuf message. */
struct field {
    uint32_t number;
    unsigned wire; /* 0 varint, 1 eight bytes, 2 bytes, 5 four bytes */
    uint64_t value; /* of wires 0, 1, 5 */
    const uint8_t *bytes;
    size_t len; /* of wire 2 */
};

struct model {
    const char *name; /* for messages */
    uint64_t type;    /* 1 unigram (the default), 2 BPE */
    bool byte_fallback, suffix, dummy_prefix, strip_spaces, escape;
    uint32_t unk, bos, eos, pad;
    struct lam_vocab_out *out;
    lam_error *err;
};

static bool varint(struct lam_cursor *c, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte;
        if (!lam_cursor_u8(c, &byte)) return false;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* *done at the end of the message. */
static lam_code next_field(struct lam_cursor *c, struct field *f, bool *done, lam_error *err)
{
    *done = lam_cursor_left(c) == 0;
    if (*done) return LAM_OK;
    uint64_t key;
    uint32_t four;
    bool ok = varint(c, &key) && key >> 3 > 0 && key >> 3 < (1u << 29);
    if (ok) {
        f->number = (uint32_t)(key >> 3);
        f->wire = (unsigned)(key & 7);
        switch (f->wire) {
        case 0: ok = varint(c, &f->value); break;
        case 1: ok = lam_cursor_u64(c, &f->value); break;
        case 2: ok = varint(c, &f->value) && lam_cursor_bytes(c, f->value, &f->bytes); break;
        case 5:
            ok = lam_cursor_u32(c, &four);
            f->value = four;
            break;
        default: ok = false; break;
        }
        f->len = f->wire == 2 ? (size_t)f->value : 0;
    }
    return ok ? LAM_OK : LAM_RAISE(err, LAM_E_TRUNCATED, "tokenizer.model: malformed or cut short at byte %zu", lam_cursor_offset(c));
}

static bool set_bool(const struct field *f, uint32_t number, bool *out)
{
    if (f->number != number || f->wire != 0) return false;
    *out = f->value != 0;
    return true;
}

/* int32 in a varint; negative means none. */
static bool set_id(const struct field *f, uint32_t number, uint32_t *out)
{
    if (f->number != number || f->wire != 0) return false;
    *out = (int64_t)f->value < 0 || f->value > INT32_MAX ? LAM_TOKEN_NONE : (uint32_t)f->value;
    return true;
}

static lam_code read_trainer(struct model *m, const struct field *spec)
{
    struct lam_cursor c = lam_cursor_init(spec->bytes, spec->len);
    struct field f;
    bool done;
    for (;;) {
        LAM_TRY(next_field(&c, &f, &done, m->err));
        if (done) return LAM_OK;
        if (f.number == 3 && f.wire == 0) m->type = f.value;
        (void)(set_bool(&f, 24, &m->suffix) || set_bool(&f, 35, &m->byte_fallback) || set_id(&f, 40, &m->unk) ||
               set_id(&f, 41, &m->bos) || set_id(&f, 42, &m->eos) || set_id(&f, 43, &m->pad));
    }
}

static lam_code read_normalizer(struct model *m, const struct field *spec)
{
    struct lam_cursor c = lam_cursor_init(spec->bytes, spec->len);
    struct field f;
    bool done;
    for (;;) {
        LAM_TRY(next_field(&c, &f, &done, m->err));
        if (done) return LAM_OK;
        if (f.number == 2 && f.len > 0)
            return LAM_RAISE(m->err, LAM_E_UNSUPPORTED, "tokenizer.model: normalisation rules (precompiled_charsmap) are not supported");
        if (f.number == 6 && f.len > 0)
            return LAM_RAISE(m->err, LAM_E_UNSUPPORTED, "tokenizer.model: normalization_rule_tsv is not supported");
        (void)(set_bool(&f, 3, &m->dummy_prefix) || set_bool(&f, 4, &m->strip_spaces) || set_bool(&f, 5, &m->escape));
    }
}

/* User-defined pieces are matched in plain text, where a space is a space. */
static lam_code add_user_piece(struct model *m, const uint8_t *text, size_t len, float score)
{
    struct lam_str plain = {0};
    bool ok = true;
    for (size_t i = 0; ok && i < len; i++) {
        bool mark = len - i >= 3 && memcmp(text + i, LAM_SPACE_MARK, 3) == 0;
        ok = lam_str_putc(&plain, mark ? ' ' : (char)text[i]);
        if (mark) i += 2;
    }
    lam_code code = ok ? lam_vocab_out_token(m->out, plain.data, plain.len, LAM_TOKEN_USER_DEFINED | LAM_TOKEN_LITERAL, score, m->err)
                       : LAM_RAISE(m->err, LAM_E_NO_MEMORY, "piece of %zu bytes", len);
    lam_str_release(&plain);
    return code;
}

static lam_code read_piece(struct model *m, const struct field *piece)
{
    struct lam_cursor c = lam_cursor_init(piece->bytes, piece->len);
    struct field f;
    bool done;
    const uint8_t *text = (const uint8_t *)"";
    size_t len = 0;
    float score = 0;
    uint64_t type = LAM_TOKEN_NORMAL;
    for (;;) {
        LAM_TRY(next_field(&c, &f, &done, m->err));
        if (done) break;
        if (f.number == 1 && f.wire == 2) {
            text = f.bytes;
            len = f.len;
        } else if (f.number == 2 && f.wire == 5) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&score, &bits, 4);
        } else if (f.number == 3 && f.wire == 0) {
            type = f.value;
        }
    }
    if (type < LAM_TOKEN_NORMAL || type > LAM_TOKEN_BYTE)
        return LAM_RAISE(m->err, LAM_E_UNKNOWN_FIELD, "tokenizer.model: type %llu of piece %u", (unsigned long long)type, lam_vocab_out_count(m->out));
    if (len == 0) return LAM_RAISE(m->err, LAM_E_FORMAT, "tokenizer.model: piece %u is empty", lam_vocab_out_count(m->out));
    if (type == LAM_TOKEN_UNUSED)
        return LAM_RAISE(m->err, LAM_E_UNSUPPORTED, "tokenizer.model: piece %u is unused (sampled away)", lam_vocab_out_count(m->out));
    if (type == LAM_TOKEN_USER_DEFINED) return add_user_piece(m, text, len, score);
    return lam_vocab_out_token(m->out, text, len, (uint8_t)(type | (type == LAM_TOKEN_CONTROL ? LAM_TOKEN_LITERAL : 0u)), score, m->err);
}

static lam_code read_model(struct model *m, const struct lam_vocab_source *source)
{
    struct lam_cursor c = lam_cursor_init(source->text, source->len);
    struct field f;
    bool done;
    for (;;) {
        LAM_TRY(next_field(&c, &f, &done, m->err));
        if (done) return LAM_OK;
        if (f.wire != 2) return LAM_RAISE(m->err, LAM_E_FORMAT, "tokenizer.model: field %u of the model", f.number);
        if (f.number == 1) LAM_TRY(read_piece(m, &f));
        else if (f.number == 2) LAM_TRY(read_trainer(m, &f));
        else if (f.number == 3) LAM_TRY(read_normalizer(m, &f));
        else if (f.number > 5) return LAM_RAISE(m->err, LAM_E_UNKNOWN_FIELD, "tokenizer.model: field %u of the model", f.number);
    }
}

static uint32_t valid_id(const struct model *m, uint32_t id) { return id < lam_vocab_out_count(m->out) ? id : LAM_TOKEN_NONE; }

/* SentencePiece knows no control tokens in text, and puts its space at the very start alone. Hugging Face's "legacy"
 * reading, which GGUF files of such models have too, puts one after every control token; it is followed unless the
 * configuration says otherwise. */
static lam_code finish(struct model *m, const json_t *config, const json_t *generation)
{
    if (m->type != 2)
        return LAM_RAISE(m->err, LAM_E_UNSUPPORTED, "tokenizer.model: model type %llu (1 unigram, 3 word, 4 char); only BPE (2) is supported",
                         (unsigned long long)m->type);
    if (!m->escape) return LAM_RAISE(m->err, LAM_E_UNSUPPORTED, "tokenizer.model: escape_whitespaces = false");
    struct lam_vocab_ids *ids = lam_vocab_out_ids(m->out);
    *ids = (struct lam_vocab_ids){.bos = valid_id(m, m->bos), .eos = valid_id(m, m->eos), .unk = valid_id(m, m->unk),
                                  .pad = valid_id(m, m->pad), .eot = LAM_TOKEN_NONE, .eom = LAM_TOKEN_NONE};
    bool all_bytes, legacy = true;
    lam_vocab_find_bytes(m->out, LAM_VOCAB_SPM, &all_bytes);
    LAM_TRY(lam_hf_bool(config, "legacy", &legacy, m->err));
    if (m->byte_fallback && !all_bytes) return LAM_RAISE(m->err, LAM_E_FORMAT, "tokenizer.model: byte_fallback without all byte pieces");
    uint32_t flags = LAM_VOCAB_FUSE_UNKNOWN | LAM_VOCAB_EMIT_UNKNOWN | (m->byte_fallback ? LAM_VOCAB_BYTE_FALLBACK : 0u) |
                     (m->dummy_prefix ? LAM_VOCAB_SPACE_PREFIX : 0u) | (m->strip_spaces ? LAM_VOCAB_STRIP_EXTRA_SPACES : 0u) |
                     (m->suffix ? LAM_VOCAB_SPACE_SUFFIX : 0u);
    if (!json_is_boolean(json_object_get(config, "add_bos_token"))) flags |= LAM_VOCAB_ADD_BOS;
    lam_vocab_out_flags(m->out, flags);
    uint8_t prepend = legacy ? 0 : LAM_PREPEND_FIRST_ONLY;
    LAM_TRY(lam_vocab_add_space_steps(m->out, flags, prepend, m->err));
    LAM_TRY(lam_hf_apply_config(config, m->out, true, m->err));
    LAM_TRY(lam_vocab_add_specials(m->out, true, m->err));
    LAM_TRY(lam_hf_apply_generation(generation, m->out, m->err));
    return lam_vocab_add_eog(m->out, m->err);
}

lam_code lam_vocab_import_spm(const struct lam_vocab_source *model, const struct lam_vocab_source *config,
                              const struct lam_vocab_source *generation, uint8_t **bytes, size_t *len, lam_error *err)
{
    json_t *roots[2] = {0};
    struct model m = {.type = 1, .dummy_prefix = true, .strip_spaces = true, .escape = true, .unk = 0, .bos = 1, .eos = 2,
                      .pad = LAM_TOKEN_NONE, .err = err};
    lam_code code = lam_vocab_out_new(LAM_VOCAB_SPM, &m.out, err);
    if (code == LAM_OK) code = lam_hf_parse(config, "tokenizer_config.json", &roots[0], err);
    if (code == LAM_OK) code = lam_hf_parse(generation, "generation_config.json", &roots[1], err);
    if (code == LAM_OK) code = read_model(&m, model);
    if (code == LAM_OK) code = finish(&m, roots[0], roots[1]);
    if (code == LAM_OK) code = lam_vocab_out_finish(m.out, bytes, len, err);
    lam_vocab_out_free(m.out);
    json_decref(roots[0]);
    json_decref(roots[1]);
    return code;
}
