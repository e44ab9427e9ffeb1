/* The store: what it holds, what is refused, what is found and put right, and several at once. */
#define _XOPEN_SOURCE 700

#include "support.h"

#include "base/files.h"
#include "base/os.h"
#include "base/scatter.h"
#include "base/sha256.h"
#include "lamina/store.h"
#include "store/index.h"
#include "store/pieces.h"
#include "store/resolve.h"
#include "store/transfer.h"

#include <signal.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "data/stories260K-Q8_0.gguf"

static char *folder;
static char base[512], oz[512], shakespeare[512], place[512]; /* .slm files; the store of the test at hand */
static lam_store *store;

static lam_store *open_at(const char *path)
{
    lam_store_options options = {.folder = path, .reason = "a test"};
    lam_store *s;
    lam_error err;
    assert_ok(lam_store_open(&options, true, &s, &err), err);
    return s;
}

static int set_up_all(void **state)
{
    (void)state;
    lam_error err;
    folder = test_make_folder();
    snprintf(base, sizeof base, "%s/stories.slm", folder);
    snprintf(oz, sizeof oz, "%s/oz.slm", folder);
    snprintf(shakespeare, sizeof shakespeare, "%s/shakespeare.slm", folder);
    assert_ok(lam_import_base(MODEL, base, NULL, &err), err);
    assert_ok(lam_import_adapter("data/adapters/oz", base, oz, NULL, NULL, &err), err);
    assert_ok(lam_import_adapter("data/adapters/shakespeare", base, shakespeare, NULL, NULL, &err), err);
    return 0;
}

static int tear_down_all(void **state)
{
    (void)state;
    test_remove_folder(folder);
    return 0;
}

static void add(const char *source, const char *name)
{
    lam_store_add_options options = {.name = name};
    lam_store_result r;
    lam_error err;
    assert_ok(lam_store_add(store, source, &options, &r, &err), err);
}

static lam_store_result activate(const char *adapter, double weight)
{
    lam_store_adapter a = {.source = adapter, .weight = weight};
    lam_store_result r;
    lam_error err;
    assert_ok(lam_store_activate(store, "stories", &a, adapter != NULL, &r, &err), err);
    return r;
}

/* A store with the base, both adapters, and two compositions that were active. */
static int set_up(void **state)
{
    static int n;
    (void)state;
    snprintf(place, sizeof place, "%s/store-%d", folder, n++);
    store = open_at(place);
    add(base, NULL);
    add(oz, NULL);
    add(shakespeare, NULL);
    activate("oz", 0.5);
    activate("shakespeare", 1.0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    lam_store_close(store);
    store = NULL;
    return 0;
}

/* place/name, or the blob of a digest. */
static const char *in_store(const char *name)
{
    static char path[2][1024];
    static int turn;
    turn = !turn;
    if (strncmp(name, "sha256:", 7) == 0) snprintf(path[turn], sizeof path[turn], "%s/blobs/sha256/%s", place, name + 7);
    else snprintf(path[turn], sizeof path[turn], "%s/%s", place, name);
    return path[turn];
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* The digest of the .slm that a name's artefact has. */
static void layer_of(const char *name, char digest[LAM_DIGEST_TEXT], char file_root[LAM_DIGEST_TEXT])
{
    struct lam_artifact a;
    lam_error err;
    assert_ok(lam_resolve_open(store, name, &a, &err), err);
    strcpy(digest, a.layers[0].digest);
    strcpy(file_root, a.layers[0].file_root);
    lam_artifact_release(&a);
}

static json_t *read_json(const char *path)
{
    json_error_t why;
    json_t *value = json_load_file(path, 0, &why);
    if (!value) fail_msg("%s: %s", path, why.text);
    return value;
}

/* ---- layout ---- */

/* Against the OCI image-spec 1.1: the names of the members, the digest of the empty configuration, a digest that is the SHA-256 of its bytes. */
static void test_layout(void **state)
{
    (void)state;
    char digest[LAM_DIGEST_TEXT];
    lam_error err;
    json_t *layout = read_json(in_store("oci-layout")), *index = read_json(in_store("index.json"));
    assert_string_equal(json_string_value(json_object_get(layout, "imageLayoutVersion")), "1.0.0");
    assert_int_equal(json_integer_value(json_object_get(index, "schemaVersion")), 2);
    assert_int_equal(json_array_size(json_object_get(index, "manifests")), 3);
    assert_ok(lam_store_resolve(store, "oz", digest, &err), err);
    json_t *manifest = read_json(in_store(digest)), *config = json_object_get(manifest, "config");
    assert_string_equal(json_string_value(json_object_get(manifest, "mediaType")), "application/vnd.oci.image.manifest.v1+json");
    assert_string_equal(json_string_value(json_object_get(manifest, "artifactType")), "application/vnd.lamina.adapter.v0");
    assert_string_equal(json_string_value(json_object_get(config, "mediaType")), "application/vnd.oci.empty.v1+json");
    assert_string_equal(json_string_value(json_object_get(config, "digest")),
                        "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    size_t size;
    struct stat st;
    char sum[LAM_DIGEST_TEXT];
    const char *layer = json_string_value(json_object_get(json_array_get(json_object_get(manifest, "layers"), 0), "digest"));
    uint8_t *source = test_read_file(oz, &size);
    lam_digest_bytes(source, size, sum);
    free(source);
    assert_string_equal(layer, sum);
    assert_int_equal(stat(in_store(layer), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0444);
    json_decref(layout);
    json_decref(index);
    json_decref(manifest);
}

/* Case 1: an adapter on and off a hundred times is one copy on disk, and leaves two compositions. */
static void test_hundred_times(void **state)
{
    (void)state;
    lam_store_result r;
    lam_store_swept swept;
    lam_error err;
    for (int i = 0; i < 100; i++) {
        activate("oz", 1.0);
        assert_ok(lam_store_deactivate(store, "oz", &r, &err), err);
    }
    assert_int_equal(r.generation, 202);
    assert_ok(lam_store_gc(store, &swept, &err), err);
    char **names;
    size_t n;
    assert_ok(lam_list_dir(in_store("blobs/sha256"), &names, &n, &err), err);
    assert_int_equal(n, 3 + 3 + 1 + 2 * 2); /* three .slm, their manifests, the empty configuration, two compositions of two blobs */
    lam_free_names(names, n);
}

static void test_no_op(void **state)
{
    (void)state;
    lam_store_result r = activate("shakespeare", 1.0);
    assert_false(r.changed);
    assert_int_equal(r.generation, 2);
    r = activate("shakespeare", 0.5);
    assert_true(r.changed);
    assert_int_equal(r.generation, 3);
}

static void test_rollback(void **state)
{
    (void)state;
    lam_store_state before, after;
    lam_store_result r;
    lam_error err;
    assert_ok(lam_store_active(store, &before, &err), err);
    assert_ok(lam_store_rollback(store, &r, &err), err);
    assert_ok(lam_store_active(store, &after, &err), err);
    assert_string_equal(after.manifest, before.previous);
    assert_string_equal(after.previous, before.manifest);
    assert_int_equal(after.generation, before.generation + 1);
}

/* Case 4: who has opened a name keeps what it meant, whatever becomes of the name and of gc. */
static void test_name_moves(void **state)
{
    (void)state;
    lam_store_item held;
    lam_store_swept swept;
    lam_error err;
    char before[LAM_DIGEST_TEXT], digest[LAM_DIGEST_TEXT], root[LAM_DIGEST_TEXT];
    add(oz, "poet");
    assert_ok(lam_store_remove_name(store, "oz", &err), err);
    activate(NULL, 0); /* nothing active or before it has an adapter */
    activate("shakespeare", 0.5);
    activate(NULL, 0);
    assert_ok(lam_store_resolve(store, "poet", before, &err), err);
    layer_of("poet", digest, root);
    assert_ok(lam_store_open_item(store, "poet", &held, &err), err);
    add(shakespeare, "poet");
    assert_string_equal(held.digest, before);
    assert_ok(lam_store_gc(store, &swept, &err), err);
    assert_int_equal(swept.n_in_use, 1);
    assert_int_equal(access(held.path, R_OK), 0);
    lam_store_release_item(&held);
    assert_ok(lam_store_gc(store, &swept, &err), err);
    assert_int_equal(swept.n_in_use, 0);
    assert_int_equal(access(in_store(digest), F_OK), -1);
}

/* ---- references and names ---- */

static void test_references(void **state)
{
    (void)state;
    char digest[LAM_DIGEST_TEXT], found[LAM_DIGEST_TEXT], part[20];
    lam_error err;
    assert_ok(lam_store_resolve(store, "stories", digest, &err), err);
    assert_ok(lam_store_resolve(store, digest, found, &err), err);
    assert_string_equal(found, digest);
    snprintf(part, sizeof part, "%.10s", digest + 7);
    assert_ok(lam_store_resolve(store, part, found, &err), err);
    assert_string_equal(found, digest);
    assert_int_equal(lam_store_resolve(store, "ston", found, &err), LAM_E_NOT_FOUND);
    assert_int_equal(lam_store_resolve(store, "sha256:00000000", found, &err), LAM_E_NOT_FOUND);
    static const char *const bad[] = {"", "-a", "a-", "a..b", "a b", "a/", "/a", "../a", "sha256:abc", "a\n", "ä"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (lam_name_check(bad[i], &err) != LAM_E_STORE_NAME) fail_msg("the name \"%s\" is taken", bad[i]);
    static const char *const good[] = {"a", "a-b", "a--b", "a.b_c:d@e/f+g", "Qwen2.5-0.5B"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_ok(lam_name_check(good[i], &err), err);
}

static void test_name_in_use(void **state)
{
    (void)state;
    lam_store_add_options options = {0};
    lam_store_result r;
    lam_error err;
    char other[600], before[LAM_DIGEST_TEXT], after[LAM_DIGEST_TEXT];
    snprintf(other, sizeof other, "%s/other", folder);
    mkdir(other, 0755);
    strcat(other, "/oz.slm");
    unlink(other);
    assert_int_equal(symlink(shakespeare, other), 0);
    assert_ok(lam_store_resolve(store, "oz", before, &err), err);
    assert_int_equal(lam_store_add(store, other, &options, &r, &err), LAM_E_CONFLICT);
    assert_ok(lam_store_resolve(store, "oz", after, &err), err);
    assert_string_equal(before, after);
}

/* ---- damage ---- */

/* fsck finds exactly this, and with repair nothing is left, or this. */
static void expect_damage(lam_code code, const char *subject, bool repaired)
{
    lam_fault_list found = {0}, left = {0};
    lam_error err;
    lam_code result = lam_store_fsck(store, false, &found, &left, &err);
    if (found.n == 0 || found.items[0].code != code || (subject && strcmp(found.items[0].subject, subject) != 0))
        fail_msg("%s of %s is told as %s of %s", lam_code_name(code), subject ? subject : "?", found.n ? lam_code_name(found.items[0].code) : "nothing",
                 found.n ? found.items[0].subject : "?");
    assert_int_equal(result, code);
    lam_fault_list_release(&found);
    result = lam_store_fsck(store, true, &found, &left, &err);
    if (repaired && result != LAM_OK) fail_msg("%s is not repaired: %s", lam_code_name(code), err.message);
    if (!repaired) assert_int_equal(result, left.items[0].code);
    lam_fault_list_release(&found);
    lam_fault_list_release(&left);
}

static void overwrite(const char *path, long at, const char *bytes)
{
    assert_int_equal(chmod(path, 0644), 0);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    assert_true(fputs(bytes, f) >= 0);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0444), 0);
}

static void test_damaged_blobs(void **state)
{
    (void)state;
    char digest[LAM_DIGEST_TEXT], root[LAM_DIGEST_TEXT], subject[100];
    struct lam_bad_pieces bad;
    lam_store_result r;
    lam_error err;
    layer_of("oz", digest, root);
    snprintf(subject, sizeof subject, "blobs/sha256/%s", digest + 7);
    assert_int_equal(chmod(in_store(digest), 0644), 0);
    expect_damage(LAM_E_STORE_BLOB_MODE, subject, true);
    overwrite(in_store(digest), -8, "damaged!");
    assert_ok(lam_bad_pieces_find(in_store(digest), root, &bad, &err), err);
    assert_int_equal(bad.n, 1);
    assert_int_equal(bad.list[0], bad.n_pieces - 1);
    lam_bad_pieces_release(&bad);
    expect_damage(LAM_E_STORE_BLOB_BYTES, subject, false);
    add(oz, NULL); /* heals it */
    assert_int_equal(truncate(in_store(digest), 1000), 0);
    expect_damage(LAM_E_STORE_BLOB_SIZE, subject, false);
    assert_int_equal(lam_store_rollback(store, &r, &err), LAM_E_STORE_BLOB_SIZE); /* to the composition that has it */
    unlink(in_store(digest));
    expect_damage(LAM_E_STORE_BLOB_MISSING, subject, false);
    assert_int_equal(lam_store_rollback(store, &r, &err), LAM_E_STORE_BLOB_MISSING);
    add(oz, NULL);
    assert_ok(lam_store_rollback(store, &r, &err), err);
    overwrite(in_store(digest), 0, "SLM1"); /* behind our back: caught by whoever goes there */
    assert_ok(lam_store_rollback(store, &r, &err), err);
    assert_int_equal(lam_store_rollback(store, &r, &err), LAM_E_LEGACY);
}

static void test_planted_link(void **state)
{
    (void)state;
    char digest[LAM_DIGEST_TEXT], root[LAM_DIGEST_TEXT], subject[100];
    lam_store_item item;
    lam_error err;
    layer_of("oz", digest, root);
    snprintf(subject, sizeof subject, "blobs/sha256/%s", digest + 7);
    unlink(in_store(digest));
    assert_int_equal(symlink(oz, in_store(digest)), 0); /* with the right bytes, even */
    assert_int_equal(lam_store_open_item(store, "oz", &item, &err), LAM_E_STORE_LINK);
    expect_damage(LAM_E_STORE_LINK, subject, false);
    add(oz, NULL);
    assert_ok(lam_store_open_item(store, "oz", &item, &err), err);
    lam_store_release_item(&item);
    assert_int_equal(access(oz, R_OK), 0);
}

/* One of the store's folders leads elsewhere: it is named, and nothing is written or removed there. */
static void expect_linked_folder(const char *name)
{
    char outside[600], victim[700], aside[700];
    lam_fault_list found = {0}, left = {0};
    lam_store_add_options options = {.name = "again"};
    lam_store_result r;
    lam_store_swept swept;
    lam_error err;
    char **names;
    size_t n;
    snprintf(outside, sizeof outside, "%s-outside", place);
    snprintf(victim, sizeof victim, "%s/%064d", outside, 7); /* the name of a blob that nothing needs */
    snprintf(aside, sizeof aside, "%s-aside", place);
    assert_int_equal(mkdir(outside, 0755), 0);
    write_file(victim, "mine");
    bool there = rename(in_store(name), aside) == 0;
    assert_int_equal(symlink(outside, in_store(name)), 0);
    assert_int_equal(lam_store_gc(store, &swept, &err), LAM_E_STORE_LINK);
    assert_non_null(strstr(err.message, name));
    assert_int_equal(lam_store_add(store, oz, &options, &r, &err), LAM_E_STORE_LINK);
    assert_int_equal(lam_store_remove_name(store, "oz", &err), LAM_E_STORE_LINK);
    write_file(in_store("stray"), "for lost/");
    lam_store_fsck(store, false, &found, &left, &err);
    bool named = false;
    for (size_t i = 0; i < found.n; i++) named |= found.items[i].code == LAM_E_STORE_LINK && strcmp(found.items[i].subject, name) == 0;
    assert_true(named);
    lam_fault_list_release(&found);
    assert_int_equal(lam_store_fsck(store, true, &found, &left, &err), LAM_E_STORE_LINK);
    lam_fault_list_release(&found);
    lam_fault_list_release(&left);
    assert_ok(lam_list_dir(outside, &names, &n, &err), err);
    assert_int_equal(n, 1);
    lam_free_names(names, n);
    assert_int_equal(unlink(in_store("stray")), 0);
    assert_int_equal(unlink(victim), 0);
    assert_int_equal(rmdir(outside), 0);
    assert_int_equal(unlink(in_store(name)), 0);
    if (there) assert_int_equal(rename(aside, in_store(name)), 0);
    assert_ok(lam_store_fsck(store, false, &found, &left, &err), err);
}

static void test_linked_folders(void **state)
{
    (void)state;
    static const char *const folders[] = {"blobs", "blobs/sha256", "tmp", "partial", "lost"};
    for (size_t i = 0; i < 5; i++) expect_linked_folder(folders[i]);
}

/* Links and folders among the files that are not finished: what they lead to stays as it is. */
static void test_links_in_folders(void **state)
{
    (void)state;
    char outside[600], victim[700];
    struct lam_scatter *file;
    lam_store_swept swept;
    lam_error err;
    snprintf(outside, sizeof outside, "%s-outside", place);
    snprintf(victim, sizeof victim, "%s/victim", outside);
    assert_int_equal(mkdir(outside, 0755), 0);
    write_file(victim, "mine");
    assert_int_equal(mkdir(in_store("partial"), 0755), 0);
    assert_int_equal(symlink(victim, in_store("partial/x.slm")), 0);
    assert_int_equal(lam_scatter_open(in_store("partial/x.slm"), 1, &file, &err), LAM_E_STORE_LINK);
    expect_damage(LAM_E_STORE_LINK, "partial/x.slm", true);
    assert_int_equal(symlink(victim, in_store("partial/x.slm")), 0);
    assert_int_equal(symlink(outside, in_store("tmp/1-1")), 0);
    assert_int_equal(mkdir(in_store("tmp/1-2"), 0755), 0);
    assert_int_equal(symlink(outside, in_store("tmp/1-2/0")), 0);
    assert_int_equal(mkdir(in_store("tmp/1-2/1"), 0755), 0);
    write_file(in_store("tmp/1-2/1/file"), "left");
    assert_ok(lam_store_gc(store, &swept, &err), err);
    assert_int_equal(swept.n_temporaries, 3);
    assert_int_not_equal(access(in_store("tmp/1-2"), F_OK), 0);
    assert_int_equal(symlink(outside, in_store("tmp/1-1")), 0);
    expect_damage(LAM_E_STORE_TEMPORARY, "tmp/1-1", true);
    assert_int_equal(mkdir(in_store("partial/folder"), 0755), 0);
    write_file(in_store("partial/folder/file"), "whose?");
    assert_ok(lam_store_gc(store, &swept, &err), err);
    expect_damage(LAM_E_STORE_LINK, "partial/folder", true);
    assert_int_equal(access(in_store("lost/folder-1/file"), F_OK), 0);
    size_t size;
    char *text = (char *)test_read_file(victim, &size);
    assert_int_equal(size, 4);
    assert_memory_equal(text, "mine", 4);
    free(text);
}

static void test_damaged_files(void **state)
{
    (void)state;
    lam_store_state before, after;
    char digest[LAM_DIGEST_TEXT];
    lam_error err;
    assert_ok(lam_store_active(store, &before, &err), err);
    write_file(in_store("oci-layout"), "{}");
    expect_damage(LAM_E_STORE_LAYOUT, "oci-layout", true);
    write_file(in_store("index.json"), "{\"manifests\"");
    expect_damage(LAM_E_STORE_INDEX, "index.json", true);
    assert_ok(lam_store_resolve(store, "oz", digest, &err), err); /* from the log */
    write_file(in_store("active.json"), "{\"generation\":1}");
    expect_damage(LAM_E_STORE_ACTIVE, "active.json", true);
    assert_ok(lam_store_active(store, &after, &err), err);
    assert_string_equal(after.manifest, before.manifest);
    assert_string_equal(after.previous, before.previous);
    assert_true(after.generation > before.generation);
    write_file(in_store("notes.txt"), "mine");
    expect_damage(LAM_E_STORE_STRAY, "notes.txt", true);
    assert_int_equal(access(in_store("lost/notes.txt-1"), F_OK), 0);
    write_file(in_store("blobs/sha256/notes.txt"), "mine");
    expect_damage(LAM_E_STORE_STRAY, "blobs/sha256/notes.txt", true);
    write_file(in_store("index.json.1-a.part"), "half");
    expect_damage(LAM_E_STORE_TEMPORARY, "index.json.1-a.part", true);
    mkdir(in_store("tmp/1-a"), 0755);
    write_file(in_store("tmp/1-a/0"), "half");
    expect_damage(LAM_E_STORE_TEMPORARY, "tmp/1-a", true);
    assert_ok(lam_store_resolve(store, "oz", digest, &err), err);
    unlink(in_store(digest));
    expect_damage(LAM_E_STORE_DANGLING, "index.json: oz", true);
    assert_int_equal(lam_store_resolve(store, "oz", digest, &err), LAM_E_NOT_FOUND);
}

/* The first line of a record file, with one letter changed; what follows is as it was. */
static void change_record(const char *name)
{
    size_t size;
    char *text = (char *)test_read_file(in_store(name), &size), *at = strstr(text, "\"op\":\"");
    assert_non_null(at);
    at[6] ^= 1;
    write_file(in_store(name), text);
    free(text);
}

static void test_records(void **state)
{
    (void)state;
    char *log;
    lam_error err;
    assert_ok(lam_store_log(store, &log, &err), err);
    json_t *lines = json_loads(log, 0, NULL), *line = json_array_get(lines, 3);
    assert_int_equal(json_array_size(lines), 5);
    assert_string_equal(json_string_value(json_object_get(line, "op")), "activate");
    assert_string_equal(json_string_value(json_object_get(line, "outcome")), "done");
    assert_string_equal(json_string_value(json_object_get(line, "reason")), "a test");
    assert_int_equal(json_integer_value(json_object_get(line, "pid")), getpid());
    json_decref(lines);
    lam_memory_free(log);
    change_record("audit.jsonl");
    assert_int_equal(lam_store_log(store, &log, &err), LAM_E_STORE_AUDIT);
    assert_non_null(strstr(err.message, "line 1 "));
    lam_memory_free(log);
    expect_damage(LAM_E_STORE_AUDIT, "audit.jsonl", true);
    change_record("journal");
    expect_damage(LAM_E_STORE_JOURNAL, "journal", true);
    FILE *f = fopen(in_store("journal"), "ab");
    assert_non_null(f);
    assert_true(fputs("{\"op\":\"activate\",\"pha", f) >= 0);
    assert_int_equal(fclose(f), 0);
    expect_damage(LAM_E_STORE_TEMPORARY, "journal", true);
    activate("oz", 0.25);
}

/* What is no name is told, is not shown as it is, and goes; what it named stays. */
static void test_names_in_index(void **state)
{
    (void)state;
    static const char *const names[] = {"../../etc/passwd", "\033[2Jx", ""};
    lam_store_entry *entries;
    size_t n;
    lam_error err;
    for (size_t i = 0; i < 3; i++) {
        json_t *index = read_json(in_store("index.json")), *entry = json_array_get(json_object_get(index, "manifests"), 1);
        json_t *notes = json_pack("{s:s}", "org.opencontainers.image.ref.name", names[i]);
        assert_int_equal(json_object_set_new(entry, "annotations", notes), 0);
        assert_int_equal(json_dump_file(index, in_store("index.json"), 0), 0);
        json_decref(index);
        assert_ok(lam_store_list(store, &entries, &n, &err), err);
        for (size_t k = 0; k < n; k++) assert_true(!entries[k].name || !strchr(entries[k].name, '\033'));
        lam_store_free_list(entries, n);
        expect_damage(LAM_E_STORE_NAME, "index.json", true);
        assert_ok(lam_store_list(store, &entries, &n, &err), err);
        assert_int_equal(n, 5); /* three files, two compositions */
        lam_store_free_list(entries, n);
    }
}

/* Cuts the last n lines of a file of the store. */
static void cut_lines(const char *name, int n)
{
    size_t size;
    char *text = (char *)test_read_file(in_store(name), &size);
    while (size && n >= 0)
        if (text[--size] == '\n') n--;
    assert_int_equal(truncate(in_store(name), size ? (off_t)size + 1 : 0), 0);
    free(text);
}

static void expect_log(lam_code code)
{
    char *log;
    lam_error err;
    lam_code found = lam_store_log(store, &log, &err);
    if (found != code) fail_msg("%s instead of %s", lam_code_name(found), lam_code_name(code));
    lam_memory_free(log);
}

/* Files whose lines all follow, and that lack the last ones. */
static void test_records_cut(void **state)
{
    (void)state;
    expect_log(LAM_OK);
    cut_lines("audit.jsonl", 1);
    expect_log(LAM_E_STORE_AUDIT);
    expect_damage(LAM_E_STORE_AUDIT, "audit.jsonl", true);
    expect_log(LAM_OK);
    activate("oz", 0.25);
    assert_int_equal(unlink(in_store("audit.jsonl")), 0);
    expect_log(LAM_E_STORE_AUDIT);
    activate("oz", 0.5); /* a later change does not hide it */
    expect_log(LAM_E_STORE_AUDIT);
    expect_damage(LAM_E_STORE_AUDIT, "audit.jsonl", true);
    activate("oz", 0.75);
    cut_lines("journal", 2);
    expect_log(LAM_E_STORE_JOURNAL);
    expect_damage(LAM_E_STORE_JOURNAL, "journal", true);
    activate("oz", 1.0);
    assert_int_equal(unlink(in_store("journal")), 0);
    expect_log(LAM_E_STORE_JOURNAL);
    expect_damage(LAM_E_STORE_JOURNAL, "journal", true);
    expect_log(LAM_OK);
}

/* A pointer that is whole by itself, and that no switch made. */
static void test_pointer_edited(void **state)
{
    (void)state;
    lam_store_state before, after;
    lam_error err;
    assert_ok(lam_store_active(store, &before, &err), err);
    json_t *active = read_json(in_store("active.json"));
    assert_int_equal(json_object_set_new(active, "generation", json_integer(77)), 0);
    assert_int_equal(json_dump_file(active, in_store("active.json"), 0), 0);
    json_decref(active);
    expect_damage(LAM_E_STORE_ACTIVE, "active.json", true);
    char earlier[2048];
    size_t size;
    char *text = (char *)test_read_file(in_store("active.json"), &size);
    assert_true(size < sizeof earlier);
    memcpy(earlier, text, size);
    earlier[size] = 0;
    free(text);
    activate("oz", 0.25);
    assert_ok(lam_store_active(store, &before, &err), err);
    write_file(in_store("active.json"), earlier); /* as it was once */
    expect_damage(LAM_E_STORE_ACTIVE, "active.json", true);
    assert_ok(lam_store_active(store, &after, &err), err);
    assert_string_equal(after.manifest, before.manifest);
    assert_true(after.generation > before.generation);
    assert_int_equal(unlink(in_store("active.json")), 0);
    expect_damage(LAM_E_STORE_ACTIVE, "active.json", true);
    activate("shakespeare", 0.5);
    expect_log(LAM_OK);
}

/* Puts bytes[] as a blob where a configuration or manifest could be, and names a manifest with it. */
static void put_composition(const char *config)
{
    struct lam_work w;
    struct lam_artifact a;
    struct lam_str text = {0};
    char digest[LAM_DIGEST_TEXT], manifest[LAM_DIGEST_TEXT];
    lam_store_state active;
    lam_error err;
    assert_ok(lam_store_active(store, &active, &err), err);
    assert_ok(lam_artifact_open(store, active.manifest, UINT64_MAX, &a, &err), err);
    assert_ok(lam_work_open(store, &w, &err), err);
    assert_ok(lam_store_lock(store, &err), err);
    assert_ok(lam_blob_put(store, &w, config, strlen(config), digest, &err), err);
    struct lam_descriptor d = {.media_type = LAM_TYPE_CONFIG, .digest = digest, .size = strlen(config)};
    assert_ok(lam_artifact_write(LAM_STORE_COMPOSITION, a.id, &d, a.layers, a.n_layers, &text, &err), err);
    assert_ok(lam_blob_put(store, &w, text.data, text.len, manifest, &err), err);
    assert_ok(lam_index_set(store, "planted", LAM_TYPE_COMPOSITION, manifest, text.len, &err), err);
    lam_store_unlock(store);
    lam_work_close(&w);
    lam_artifact_release(&a);
    lam_str_release(&text);
}

/* A configuration that names files is refused, before any of them is looked at. */
static void test_paths_in_manifest(void **state)
{
    (void)state;
    static const char *const files[] = {"../../../../etc/passwd", "/etc/passwd", "blobs/sha256/x"};
    lam_store_item item;
    lam_store_result r;
    lam_error err;
    for (size_t i = 0; i < 3; i++) {
        char config[300];
        snprintf(config, sizeof config, "{\"type\":\"lamina.manifest.v0\",\"base\":{\"digest\":\"sha256:%064d\",\"file\":\"%s\"}}", 0, files[i]);
        put_composition(config);
        assert_int_equal(lam_store_open_item(store, "planted", &item, &err), LAM_E_STORE_PATH);
        assert_int_equal(lam_store_activate(store, "planted", NULL, 0, &r, &err), LAM_E_STORE_PATH);
        expect_damage(LAM_E_STORE_PATH, "index.json: planted", false);
    }
}

/* What is no manifest of ours is told, and so is one that lacks what it must have. */
static void test_no_artifact(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[]", "not JSON", "{\"schemaVersion\":2}",
        "{\"schemaVersion\":2,\"config\":{\"mediaType\":\"a\",\"digest\":\"sha256:../../x\",\"size\":1},\"layers\":[]}",
        "{\"schemaVersion\":2,\"artifactType\":\"application/vnd.lamina.base.v0\",\"config\":{\"mediaType\":\"a\",\"digest\":\""
        "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\",\"size\":2},\"layers\":[]}",
    };
    lam_store_item item;
    lam_error err;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct lam_work w;
        char digest[LAM_DIGEST_TEXT];
        assert_ok(lam_work_open(store, &w, &err), err);
        assert_ok(lam_store_lock(store, &err), err);
        assert_ok(lam_blob_put(store, &w, texts[i], strlen(texts[i]), digest, &err), err);
        assert_ok(lam_index_set(store, "planted", LAM_TYPE_BASE, digest, strlen(texts[i]), &err), err);
        lam_store_unlock(store);
        lam_work_close(&w);
        assert_int_equal(lam_store_open_item(store, "planted", &item, &err), LAM_E_STORE_ARTIFACT);
        expect_damage(LAM_E_STORE_ARTIFACT, "index.json: planted", false);
    }
}

/* gc judges nothing while it cannot know what is needed. */
static void test_gc_refuses(void **state)
{
    (void)state;
    char digest[LAM_DIGEST_TEXT];
    lam_store_swept swept;
    lam_error err;
    activate("oz", 0.125); /* the first composition is garbage */
    assert_ok(lam_store_resolve(store, "oz", digest, &err), err);
    overwrite(in_store(digest), 0, "x");
    assert_int_equal(lam_store_gc(store, &swept, &err), LAM_E_STORE_BLOB_BYTES);
    assert_int_equal(swept.n_blobs, 0);
}

/* ---- a hostile world ---- */

/* In a child of its own; the exit status is the code that fn gives. */
static int in_child(lam_code (*fn)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit((int)fn());
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static lam_code add_on_small_disk(void)
{
    lam_store_options options = {.folder = place};
    lam_store_add_options name = {.name = "more"};
    lam_store_result r;
    lam_store *s;
    struct rlimit limit = {200000, 200000};
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || lam_store_open(&options, false, &s, NULL) != LAM_OK) return LAM_E_ARGUMENT;
    lam_code code = lam_store_add(s, oz, &name, &r, NULL);
    lam_store_close(s);
    return code;
}

static void test_small_disk(void **state)
{
    (void)state;
    char digest[LAM_DIGEST_TEXT];
    lam_fault_list found = {0}, left = {0};
    lam_error err;
    assert_int_equal(in_child(add_on_small_disk), LAM_E_IO); /* EFBIG */
    assert_int_equal(lam_store_resolve(store, "more", digest, &err), LAM_E_NOT_FOUND);
    assert_ok(lam_store_fsck(store, false, &found, &left, &err), err);
}

static lam_code activate_read_only(void)
{
    lam_store_options options = {.folder = place};
    lam_store_item item;
    lam_store_result r;
    lam_store *s;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return LAM_E_ARGUMENT;
    if (lam_store_open(&options, false, &s, NULL) != LAM_OK) return LAM_E_ARGUMENT;
    if (lam_store_open_item(s, NULL, &item, NULL) != LAM_OK) return LAM_E_NOT_FOUND; /* reading is as ever */
    lam_store_release_item(&item);
    lam_code code = lam_store_activate(s, "stories", NULL, 0, &r, NULL);
    lam_store_close(s);
    return code;
}

static void test_read_only(void **state)
{
    (void)state;
    lam_store_state active;
    lam_error err;
    assert_int_equal(chmod(folder, 0755), 0);
    assert_int_equal(chmod(place, 0555), 0);
    assert_int_equal(chmod(in_store("tmp"), 0555), 0);
    int code = in_child(activate_read_only);
    assert_int_equal(chmod(place, 0755), 0);
    assert_int_equal(chmod(in_store("tmp"), 0755), 0);
    assert_int_equal(code, LAM_E_IO);
    assert_ok(lam_store_active(store, &active, &err), err);
    assert_int_equal(active.generation, 2);
}

static lam_code name_twenty(void)
{
    lam_store_options options = {.folder = place};
    lam_store *s;
    if (lam_store_open(&options, false, &s, NULL) != LAM_OK) return LAM_E_ARGUMENT;
    lam_code code = LAM_OK;
    for (int i = 0; code == LAM_OK && i < 20; i++) {
        char name[40];
        lam_store_result r;
        snprintf(name, sizeof name, "n%ld-%d", (long)getpid(), i);
        lam_store_add_options o = {.name = name};
        code = lam_store_add(s, oz, &o, &r, NULL);
    }
    lam_store_close(s);
    return code;
}

/* Two writers at once: no name is lost, no line of the log. */
static void test_two_writers(void **state)
{
    (void)state;
    pid_t children[3];
    struct lam_index index;
    char *log;
    lam_error err;
    fflush(NULL);
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] == 0) _exit((int)name_twenty());
    }
    for (int i = 0; i < 3; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    assert_ok(lam_index_read(store, &index, &err), err);
    assert_int_equal(index.n, 3 + 60);
    lam_index_release(&index);
    assert_ok(lam_store_log(store, &log, &err), err);
    json_t *lines = json_loads(log, 0, NULL);
    assert_int_equal(json_array_size(lines), 5 + 60);
    json_decref(lines);
    lam_memory_free(log);
}

/* 16 threads, each with a handle of its own, add and remove one name, and fail to add a damaged file under it. */
#define THREADS 16
#define ROUNDS 3

struct namer {
    size_t n_added, n_removed; /* how often the name came and went by it */
    const char *failure;       /* cmocka's assertions belong to the main thread */
};

static char damaged[512];

static void *add_and_remove(void *argument)
{
    struct namer *w = argument;
    lam_store_options options = {.folder = place};
    lam_store_add_options name = {.name = "same"};
    lam_store_result r;
    lam_store *s;
    if (lam_store_open(&options, false, &s, NULL) != LAM_OK) return w->failure = "open", NULL;
    for (int i = 0; i < ROUNDS && !w->failure; i++) {
        if (lam_store_add(s, damaged, &name, &r, NULL) != LAM_E_DIGEST) w->failure = "add what is damaged";
        if (lam_store_add(s, oz, &name, &r, NULL) != LAM_OK) w->failure = "add";
        else w->n_added += r.changed;
        lam_code code = lam_store_remove_name(s, "same", NULL);
        w->n_removed += code == LAM_OK;
        if (code != LAM_OK && code != LAM_E_NOT_FOUND) w->failure = "remove";
    }
    lam_store_close(s);
    return NULL;
}

/* Case 2: the log has one order, in which the name comes and goes by turns, as often as the threads were told. No failure leaves
 * anything, and after all of them the name can be had. */
static void test_sixteen_threads(void **state)
{
    (void)state;
    struct namer workers[THREADS] = {{0}};
    pthread_t threads[THREADS];
    size_t size, n, n_added = 0, n_removed = 0, i, turns = 0;
    char digest[LAM_DIGEST_TEXT], **names, *log;
    lam_fault_list found = {0}, left = {0};
    lam_error err;
    uint8_t *bytes = test_read_file(oz, &size);
    bytes[size - 1] ^= 1;
    snprintf(damaged, sizeof damaged, "%s/damaged.slm", folder);
    FILE *f = fopen(damaged, "wb");
    assert_true(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
    free(bytes);
    for (i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, add_and_remove, &workers[i]), 0);
    for (i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].failure) fail_msg("thread %zu: %s", i, workers[i].failure);
        n_added += workers[i].n_added;
        n_removed += workers[i].n_removed;
    }
    assert_ok(lam_store_log(store, &log, &err), err);
    json_t *lines = json_loads(log, 0, NULL), *line;
    json_array_foreach(lines, i, line) {
        const char *name = json_string_value(json_object_get(line, "name"));
        if (!name || strcmp(name, "same") != 0 || strcmp(json_string_value(json_object_get(line, "outcome")), "done") != 0) continue;
        assert_string_equal(json_string_value(json_object_get(line, "op")), turns % 2 ? "remove" : "add");
        turns++;
    }
    json_decref(lines);
    lam_memory_free(log);
    assert_int_equal(n_added, (turns + 1) / 2);
    assert_int_equal(n_removed, turns / 2);
    assert_int_equal(lam_store_resolve(store, "same", digest, &err), turns % 2 ? LAM_OK : LAM_E_NOT_FOUND);
    assert_ok(lam_list_dir(in_store("tmp"), &names, &n, &err), err);
    assert_int_equal(n, 0);
    lam_free_names(names, n);
    assert_ok(lam_store_fsck(store, false, &found, &left, &err), err);
    add(oz, "same");
}

/* Readers open the active composition again and again while it switches and gc sweeps: they always get one of the two, whole. */
static lam_code read_while(void)
{
    lam_store_options options = {.folder = place};
    lam_store *s;
    if (lam_store_open(&options, false, &s, NULL) != LAM_OK) return LAM_E_ARGUMENT;
    lam_code code = LAM_OK;
    for (int i = 0; code == LAM_OK && i < 400; i++) {
        lam_store_item item;
        code = lam_store_open_item(s, NULL, &item, NULL);
        if (code == LAM_OK && (item.manifest->n_adapters != 1 || !item.manifest->base_file)) code = LAM_E_FORMAT;
        if (code == LAM_OK) lam_store_release_item(&item);
    }
    lam_store_close(s);
    return code;
}

static void test_reader_and_writer(void **state)
{
    (void)state;
    int status;
    lam_store_swept swept;
    lam_error err;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit((int)read_while());
    for (int i = 0; i < 30; i++) {
        activate(i % 2 ? "oz" : "shakespeare", 1.0 + i);
        assert_ok(lam_store_gc(store, &swept, &err), err);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WEXITSTATUS(status), LAM_OK);
}

static bool give_up(void *context, const char *stage, uint64_t done, uint64_t total)
{
    int *asked = context;
    (void)done, (void)total;
    return strcmp(stage, "wait") != 0 || ++*asked < 3;
}

/* Who waits for another writer is told so, and may go. */
static void test_waiting(void **state)
{
    (void)state;
    int asked = 0;
    lam_store_options options = {.folder = place, .progress = give_up, .progress_context = &asked};
    lam_store *other;
    lam_store_result r;
    lam_error err;
    assert_ok(lam_store_open(&options, false, &other, &err), err);
    assert_ok(lam_store_lock(store, &err), err);
    assert_int_equal(lam_store_rollback(other, &r, &err), LAM_E_CANCELLED);
    assert_int_equal(asked, 3);
    lam_store_unlock(store);
    assert_ok(lam_store_rollback(other, &r, &err), err);
    lam_store_close(other);
}

/* ---- copies ---- */

static void test_transfer(void **state)
{
    (void)state;
    char copy[600], again[600];
    lam_store_state active;
    lam_store_result r, *results;
    size_t n;
    lam_error err;
    snprintf(copy, sizeof copy, "%s-copy", place);
    snprintf(again, sizeof again, "%s-again", place);
    assert_ok(lam_store_active(store, &active, &err), err);
    assert_ok(lam_store_export(store, active.manifest, copy, &r, &err), err);
    assert_string_equal(r.digest, active.manifest);
    lam_store *other = open_at(again);
    assert_ok(lam_store_import(other, copy, "mix", &results, &n, &err), err);
    assert_int_equal(n, 1);
    assert_string_equal(results[0].digest, active.manifest);
    assert_string_equal(results[0].id, active.composition_id);
    lam_memory_free(results);
    assert_ok(lam_store_activate(other, "mix", NULL, 0, &r, &err), err);
    assert_string_equal(r.id, active.composition_id);
    lam_store_close(other);
    assert_int_equal(lam_store_import(store, folder, NULL, &results, &n, &err), LAM_E_NOT_FOUND); /* no OCI layout */
}

/* An artefact that claims to be another composition gets no name. */
static void test_false_claim(void **state)
{
    (void)state;
    char copy[600], **names;
    size_t n, size;
    lam_store_state active;
    lam_store_result r, *results;
    lam_error err;
    snprintf(copy, sizeof copy, "%s-false", place);
    assert_ok(lam_store_active(store, &active, &err), err);
    lam_store *other = open_at(copy);
    char *text = NULL;
    assert_ok(lam_store_export(store, active.manifest, copy, &r, &err), err);
    lam_store_close(other);
    other = store;
    char saved[sizeof place];
    strcpy(saved, place);
    strcpy(place, copy);
    store = open_at(copy);
    struct lam_artifact a;
    assert_ok(lam_artifact_open(store, active.manifest, UINT64_MAX, &a, &err), err);
    text = (char *)test_read_file(in_store(a.config.digest), &size);
    char *weight = strstr(text, "\"weight\":1");
    assert_non_null(weight);
    weight[9] = '3';
    struct lam_work w;
    struct lam_str manifest = {0};
    char config[LAM_DIGEST_TEXT], digest[LAM_DIGEST_TEXT];
    assert_ok(lam_work_open(store, &w, &err), err);
    assert_ok(lam_store_lock(store, &err), err);
    assert_ok(lam_blob_put(store, &w, text, size, config, &err), err);
    struct lam_descriptor d = {.media_type = LAM_TYPE_CONFIG, .digest = config, .size = size};
    assert_ok(lam_artifact_write(LAM_STORE_COMPOSITION, a.id, &d, a.layers, a.n_layers, &manifest, &err), err);
    assert_ok(lam_blob_put(store, &w, manifest.data, manifest.len, digest, &err), err);
    assert_ok(lam_index_set(store, "false", LAM_TYPE_COMPOSITION, digest, manifest.len, &err), err);
    assert_ok(lam_store_remove_name(store, r.name, &err), err);
    lam_store_unlock(store);
    lam_work_close(&w);
    lam_str_release(&manifest);
    lam_artifact_release(&a);
    free(text);
    lam_store_close(store);
    store = other;
    strcpy(place, saved);
    assert_int_equal(lam_store_import(store, copy, NULL, &results, &n, &err), LAM_E_WRONG_COMPOSITION);
    assert_int_equal(lam_store_resolve(store, "false", digest, &err), LAM_E_NOT_FOUND);
    assert_ok(lam_list_dir(in_store("tmp"), &names, &n, &err), err);
    assert_int_equal(n, 0);
    lam_free_names(names, n);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_layout), TEST(test_hundred_times), TEST(test_no_op), TEST(test_rollback), TEST(test_name_moves), TEST(test_references),
        TEST(test_name_in_use), TEST(test_damaged_blobs), TEST(test_planted_link), TEST(test_linked_folders), TEST(test_links_in_folders), TEST(test_damaged_files),
        TEST(test_records), TEST(test_records_cut), TEST(test_names_in_index), TEST(test_pointer_edited), TEST(test_paths_in_manifest), TEST(test_no_artifact),
        TEST(test_gc_refuses), TEST(test_small_disk), TEST(test_read_only), TEST(test_two_writers), TEST(test_sixteen_threads),
        TEST(test_reader_and_writer), TEST(test_waiting), TEST(test_transfer), TEST(test_false_claim),
    };
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
