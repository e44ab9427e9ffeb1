/* lamina receipt: statements that one composition was evaluated, made and checked. */
#define _POSIX_C_SOURCE 200809L

#include "commands.h"
#include "default_model.h"
#include "open.h"
#include "output.h"
#include "prompt.h"
#include "report.h"

#include "lamina/receipt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ONLY_CLAIMED 3 /* the status of receipt check for a sound receipt that no trusted key vouches for */

/* ---- figures ---- */

static bool is_number(const char *text)
{
    char *end;
    strtod(text, &end);
    return end != text && !*end && strspn(text, "+-.0123456789eE") == strlen(text);
}

/* KEY=VALUE: a number where it is one, else a text. */
static lam_code add_figure(json_t *figures, const char *text, const char *equals, lam_error *err)
{
    char *key = strndup(text, (size_t)(equals - text));
    json_t *value = is_number(equals + 1) ? json_real(strtod(equals + 1, NULL)) : json_string(equals + 1);
    bool twice = key && json_object_get(figures, key);
    int failed = key && !twice ? json_object_set_new(figures, key, value) : -1;
    if (twice || !key) json_decref(value);
    free(key);
    if (twice) return fail(err, LAM_E_DUPLICATE, "--figures %s: that figure stands there already", text);
    return failed ? fail(err, LAM_E_ARGUMENT, "--figures %s: a number or a text of UTF-8 is needed", text) : LAM_OK;
}

static lam_code add_file(json_t *figures, const char *path, lam_error *err)
{
    struct text text = {0};
    const char *key;
    json_t *value;
    json_error_t problem;
    lam_code code = read_whole(path, &text, err);
    if (code != LAM_OK) return code;
    json_t *more = json_loadb(text.bytes, text.len, JSON_REJECT_DUPLICATES, &problem);
    free(text.bytes);
    if (!json_is_object(more)) code = fail(err, LAM_E_FORMAT, "%s: no JSON object of figures", path);
    json_object_foreach(more, key, value) {
        if (code == LAM_OK && json_object_get(figures, key)) code = fail(err, LAM_E_DUPLICATE, "%s: \"%s\" stands there already", path, key);
        /* what --json of other commands tells of lists, of the machine and of what they lack is no figure of the composition */
        if (code == LAM_OK && !json_is_array(value) && !json_is_null(value) && strcmp(key, "machine") != 0) json_object_set(figures, key, value);
    }
    json_decref(more);
    return code;
}

static lam_code read_figures(const struct options *o, char **out, lam_error *err)
{
    json_t *figures = json_object();
    lam_code code = LAM_OK;
    for (size_t i = 0; code == LAM_OK && i < o->figures.n; i++) {
        const char *text = o->figures.items[i], *equals = strchr(text, '=');
        code = equals && equals != text && access(text, F_OK) != 0 ? add_figure(figures, text, equals, err) : add_file(figures, text, err);
    }
    *out = code == LAM_OK ? json_dumps(figures, 0) : NULL;
    if (code == LAM_OK && !*out) code = fail_memory(err);
    json_decref(figures);
    return code;
}

/* ---- files ---- */

/* Writes a file that must not be there. */
static lam_code write_new(const char *path, const char *text, unsigned mode, lam_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, mode);
    size_t len = strlen(text), done = 0;
    if (fd < 0)
        return fail(err, errno == EEXIST ? LAM_E_CONFLICT : LAM_E_IO, "%s: %s", path, errno == EEXIST ? "is there already" : strerror(errno));
    while (done < len) {
        ssize_t n = write(fd, text + done, len - done);
        if (n <= 0) break;
        done += (size_t)n;
    }
    if (close(fd) != 0 || done < len) {
        unlink(path);
        return fail(err, LAM_E_IO, "%s: %s", path, strerror(errno));
    }
    return LAM_OK;
}

static lam_code write_receipt(const struct options *o, const char *json, lam_error *err)
{
    if (!o->output) {
        puts(json);
        return LAM_OK;
    }
    struct output out;
    lam_code code = check_replaceable(o->output, err);
    if (code == LAM_OK) code = output_open(o->output, &out, err);
    if (code != LAM_OK) return code;
    fprintf(out.file, "%s\n", json); /* output_close tells what went wrong */
    return output_close(&out, LAM_OK, err);
}

/* ---- the three of them ---- */

/* The composition of the options, whose id the receipt is about. */
static lam_code open_id(const struct options *o, char id[LAM_DIGEST_TEXT], lam_error *err)
{
    struct opened *all = calloc(1, sizeof *all);
    if (!all) return fail_memory(err);
    lam_code code = open_all(o, all, err);
    if (code == LAM_OK && o->output) code = check_not_source(o->output, o->model, err);
    if (code == LAM_OK && o->output) code = check_not_read(o, all, o->output, err);
    if (code == LAM_OK) strcpy(id, lam_composition_id(all->composition));
    close_all(all);
    free(all);
    return code;
}

static int make(struct options *o)
{
    lam_error err;
    char path[MODEL_PATH], id[LAM_DIGEST_TEXT], *figures = NULL, *json = NULL;
    int failed = choose_model(o, 0, 0, path);
    if (failed) return failed;
    if (o->figures.n == 0) return usage(o, "a receipt needs --figures FILE or --figures KEY=VALUE");
    lam_code code = read_figures(o, &figures, &err);
    if (code == LAM_OK) code = open_id(o, id, &err);
    if (code == LAM_OK) code = lam_receipt_make(id, figures, o->by, o->key, &json, &err);
    if (code == LAM_OK) code = write_receipt(o, json, &err);
    lam_memory_free(json);
    free(figures);
    return code == LAM_OK ? 0 : report(o, &err);
}

static int print_checked(const struct options *o, const lam_receipt_info *info, const struct text *text, bool about_this)
{
    json_t *whole = json_loadb(text->bytes, text->len, 0, NULL);
    const json_t *figures = json_object_get(json_object_get(whole, "statement"), "figures");
    if (o->json) {
        int status = print_json(o, json_pack("{s:s,s:s,s:s,s:s,s:s,s:b,s:O}", "standing", info->standing, "state",
                                             info->state == LAM_RECEIPT_VERIFIED ? "verified" : "claimed", "by", info->by, "key", info->key,
                                             "composition_id", info->composition_id, "composition_checked", about_this, "figures", figures));
        json_decref(whole);
        return status;
    }
    printf("%s\ncomposition %s%s\n", info->standing, info->composition_id, about_this ? "" : " (no model was given to compare)");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)figures, key, value) {
        /* Both escaped: a key with line breaks must not look like a line of ours. */
        json_t *name = json_string(key);
        char *shown = json_dumps(name, JSON_ENCODE_ANY), *plain = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
        make_printable(shown);
        make_printable(plain);
        if (shown && plain) printf("  %.*s %s\n", (int)strlen(shown) - 2, shown + 1, plain);
        json_decref(name);
        free(shown);
        free(plain);
    }
    json_decref(whole);
    return 0;
}

static int check(struct options *o)
{
    lam_error err;
    struct text text = {0};
    char id[LAM_DIGEST_TEXT];
    lam_receipt_info info;
    lam_trust *trust = NULL;
    if (o->n_rest < 1 || o->n_rest > 2 || (o->n_rest == 2 && o->model)) return usage(o, "receipt check takes a RECEIPT and at most one MODEL");
    if (o->n_rest == 2) o->model = o->rest[1];
    const char *path = o->rest[0];
    lam_code code = read_whole(path, &text, &err);
    if (code == LAM_OK) code = lam_trust_open(o->trust, &trust, &err);
    if (code == LAM_OK && o->model) code = open_id(o, id, &err);
    if (code == LAM_OK) {
        code = lam_receipt_check(text.bytes, text.len, o->model ? id : NULL, trust, &info, &err);
        if (code != LAM_OK) about(&err, path);
    }
    int status = code == LAM_OK ? print_checked(o, &info, &text, o->model != NULL) : report(o, &err);
    if (status == 0 && info.state != LAM_RECEIPT_VERIFIED) status = ONLY_CLAIMED;
    lam_trust_free(trust);
    free(text.bytes);
    return status;
}

static int keygen(struct options *o)
{
    lam_error err;
    char *secret = NULL, *public = NULL, name[LAM_KEY_TEXT], secret_path[MODEL_PATH], public_path[MODEL_PATH];
    if (o->n_rest != 1 || strlen(o->rest[0]) > MODEL_PATH - 20) return usage(o, "receipt keygen takes one NAME");
    snprintf(secret_path, sizeof secret_path, "%s-private.pem", o->rest[0]);
    snprintf(public_path, sizeof public_path, "%s.pem", o->rest[0]);
    lam_code code = lam_receipt_keygen(&secret, &public, name, &err);
    if (code == LAM_OK) code = write_new(secret_path, secret, 0600, &err);
    if (code == LAM_OK && (code = write_new(public_path, public, 0644, &err)) != LAM_OK) unlink(secret_path);
    lam_memory_free(secret);
    lam_memory_free(public);
    if (code != LAM_OK) return report(o, &err);
    if (o->json) return print_json(o, json_pack("{s:s,s:s,s:s}", "key", name, "private", secret_path, "public", public_path));
    printf("%s\n%s is yours alone; %s goes to who shall trust you\n", name, secret_path, public_path);
    return 0;
}

int cmd_receipt(struct options *o)
{
    static const struct {
        const char *name;
        int (*run)(struct options *o);
    } ways[] = {{"make", make}, {"check", check}, {"keygen", keygen}};
    for (size_t i = 0; o->n_rest && i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(o->rest[0], ways[i].name) != 0) continue;
        o->rest++;
        o->n_rest--;
        return ways[i].run(o);
    }
    return usage(o, "receipt make, receipt check or receipt keygen?");
}
