/* A worked case of tests/data/fixtures/: the file, parsed, and look-ups in it. For one translation unit of a program. */
#ifndef LAM_TESTS_WORKED_CASE_H
#define LAM_TESTS_WORKED_CASE_H

#include "support.h"

#include "base/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *whole, *fixture, *expected; /* the file, and its two parts that every test reads */

/* What the JSON pointer (RFC 6901, without escapes) names in value, or NULL. */
static json_t *at(const json_t *value, const char *pointer)
{
    char key[64];
    while (value && *pointer) {
        size_t n = strcspn(++pointer, "/");
        snprintf(key, sizeof key, "%.*s", (int)n, pointer);
        value = json_is_array(value) ? json_array_get(value, (size_t)atoi(key)) : json_object_get(value, key);
        pointer += n;
    }
    return (json_t *)value;
}

static void worked_case_open(const char *path)
{
    lam_error err;
    size_t n;
    uint8_t *bytes = test_read_file(path, &n);
    assert_ok(lam_json_parse((const char *)bytes, n, path, &whole, &err), err);
    free(bytes);
    fixture = json_object_get(whole, "fixture");
    expected = json_object_get(whole, "expected");
}

#endif
