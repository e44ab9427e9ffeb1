#include "store/records.h"
#include "base/alloc.h"
#include "base/durable.h"
#include "base/os.h"
#include "base/sha256.h"

#include <inttypes.h>
#include <string.h>

const struct lam_record_file lam_journal = {LAM_STORE_JOURNAL, LAM_E_STORE_JOURNAL}, lam_audit = {LAM_STORE_AUDIT, LAM_E_STORE_AUDIT};

static lam_code no_memory(lam_error *err) { return LAM_RAISE(err, LAM_E_NO_MEMORY, "store: out of memory"); }

static void hash_text(const char *text, size_t len, char out[LAM_DIGEST_TEXT])
{
    uint8_t hash[LAM_SHA256_BYTES];
    lam_sha256(text, len, hash);
    lam_digest_text(hash, out);
}

/* The text of the file; an absent one is empty. */
static lam_code map_records(const struct lam_store *s, const struct lam_record_file *file, struct lam_mapping *out, lam_error *err)
{
    char *path;
    struct lam_file_info info;
    *out = (struct lam_mapping){0};
    LAM_TRY(lam_store_path(s, file->name, &path, err));
    lam_code code = lam_link_info(path, &info, err);
    if (code == LAM_OK && !info.is_plain) code = LAM_RAISE(err, LAM_E_STORE_LINK, "%s is no plain file", path);
    else if (code == LAM_OK) code = lam_map_file(path, out, err);
    lam_free(path);
    return code == LAM_E_NOT_FOUND ? LAM_OK : code;
}

static lam_code broken(const struct lam_record_file *file, uint64_t seq, const char *why, lam_error *err)
{
    return LAM_RAISE(err, file->damaged, "%s: line %" PRIu64 " %s", file->name, seq, why);
}

/* text[len], one line, as a record of number seq; before NULL: whatever it follows. */
static lam_code read_line(const struct lam_record_file *file, const char *text, size_t len, uint64_t seq, const char *before, json_t **out,
                          lam_error *err)
{
    char found[LAM_DIGEST_TEXT];
    struct lam_str bare = {0};
    lam_code code = lam_json_parse(text, len, file->name, out, err);
    if (code != LAM_OK) return code == LAM_E_NO_MEMORY ? code : broken(file, seq, "is no record", err);
    const json_t *number = json_object_get(*out, "seq");
    const char *says = json_string_value(json_object_get(*out, "before"));
    json_t *check = json_object_get(*out, "check");
    if (!says || !json_is_string(check) || json_integer_value(number) <= 0) code = broken(file, seq, "is no record", err);
    else if (seq && (uint64_t)json_integer_value(number) != seq) code = broken(file, seq, "has another number", err);
    else if (before && strcmp(says, before) != 0) code = broken(file, seq, "does not follow from the line before it, which was changed", err);
    json_incref(check);
    if (code == LAM_OK && json_object_del(*out, "check") != 0) code = no_memory(err);
    if (code == LAM_OK) code = lam_json_canonical(*out, &bare, err);
    if (code == LAM_OK) {
        hash_text(bare.data, bare.len, found);
        if (strcmp(found, json_string_value(check)) != 0) code = broken(file, (uint64_t)json_integer_value(number), "was changed", err);
    }
    json_decref(check);
    lam_str_release(&bare);
    if (code != LAM_OK) {
        json_decref(*out);
        *out = NULL;
    }
    return code;
}

/* The end of the last whole line of text[len]. */
static size_t whole(const char *text, size_t len)
{
    while (len && text[len - 1] != '\n') len--;
    return len;
}

lam_code lam_record_end_read(const struct lam_store *s, const struct lam_record_file *file, struct lam_record_end *out, lam_error *err)
{
    struct lam_mapping map;
    *out = (struct lam_record_end){0};
    hash_text("", 0, out->hash);
    LAM_TRY(map_records(s, file, &map, err));
    const char *text = (const char *)map.data;
    size_t end = map.size ? whole(text, map.size) : 0, start = end ? end - 1 : 0;
    while (start && text[start - 1] != '\n') start--;
    out->bytes = end;
    out->torn = map.size - end;
    lam_code code = LAM_OK;
    if (end) {
        hash_text(text + start, end - start - 1, out->hash);
        code = read_line(file, text + start, end - start - 1, 0, NULL, &out->last, err);
        out->seq = (uint64_t)json_integer_value(json_object_get(out->last, "seq"));
    }
    lam_unmap_file(&map);
    return code;
}

void lam_record_end_release(struct lam_record_end *end)
{
    json_decref(end->last);
    end->last = NULL;
}

/* line gets its number and hashes → text with a line end. */
static lam_code seal(const struct lam_record_end *end, json_t *line, struct lam_str *text, lam_error *err)
{
    char check[LAM_DIGEST_TEXT];
    if (json_object_set_new(line, "seq", json_integer((json_int_t)end->seq + 1)) != 0 ||
        json_object_set_new(line, "before", json_string(end->hash)) != 0)
        return no_memory(err);
    LAM_TRY(lam_json_canonical(line, text, err));
    hash_text(text->data, text->len, check);
    if (json_object_set_new(line, "check", json_string(check)) != 0) return no_memory(err);
    lam_str_clear(text);
    LAM_TRY(lam_json_canonical(line, text, err));
    return lam_str_putc(text, '\n') ? LAM_OK : no_memory(err);
}

lam_code lam_record_append(const struct lam_store *s, const struct lam_record_file *file, json_t *line, uint64_t *seq, lam_error *err)
{
    struct lam_record_end end = {0};
    struct lam_str text = {0};
    char *path = NULL;
    lam_code code = line ? lam_store_path(s, file->name, &path, err) : no_memory(err);
    if (code == LAM_OK) code = lam_record_end_read(s, file, &end, err);
    if (code == LAM_OK && end.torn) code = lam_cut_file(path, end.bytes, err);
    if (code == LAM_OK) code = seal(&end, line, &text, err);
    if (code == LAM_OK) code = lam_append_file(path, text.data, text.len, err);
    if (code == LAM_OK && seq) *seq = end.seq + 1;
    lam_record_end_release(&end);
    lam_str_release(&text);
    lam_free(path);
    json_decref(line);
    return code;
}

lam_code lam_record_walk(const struct lam_store *s, const struct lam_record_file *file, lam_record_fn each, void *context, uint64_t *n,
                         uint64_t *torn, lam_error *err)
{
    struct lam_mapping map;
    char before[LAM_DIGEST_TEXT];
    *n = 0;
    LAM_TRY(map_records(s, file, &map, err));
    const char *text = (const char *)map.data;
    size_t end = map.size ? whole(text, map.size) : 0;
    *torn = map.size - end;
    hash_text("", 0, before);
    lam_code code = LAM_OK;
    for (size_t at = 0; code == LAM_OK && at < end;) {
        size_t len = (size_t)((const char *)memchr(text + at, '\n', end - at) - (text + at));
        json_t *line = NULL;
        code = read_line(file, text + at, len, *n + 1, before, &line, err);
        if (code == LAM_OK && each) code = each(context, line, err);
        json_decref(line);
        hash_text(text + at, len, before);
        at += len + 1;
        *n += code == LAM_OK;
    }
    lam_unmap_file(&map);
    return code;
}
