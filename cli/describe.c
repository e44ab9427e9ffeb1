#include "describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_WIDTH 19

static void print_megabytes(json_int_t bytes)
{
    if (bytes < 100000) printf("%.4f MB", (double)bytes / 1e6);
    else printf("%.2f MB", (double)bytes / 1e6);
}

static void print_value(const json_t *value)
{
    if (json_is_string(value)) {
        printf("%s\n", json_string_value(value));
    } else if (json_is_real(value)) {
        printf("%g\n", json_real_value(value));
    } else {
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        printf("%s\n", text ? text : "");
        free(text);
    }
}

void describe_types(const json_t *object, char *out, size_t room)
{
    const json_t *types = json_object_get(object, "tensor_types");
    json_int_t total = 0;
    const char *name;
    json_t *count;
    json_object_foreach((json_t *)types, name, count) total += json_integer_value(count);
    snprintf(out, room, "%lld tensors", (long long)total);
    const char *between = ": ";
    json_object_foreach((json_t *)types, name, count) {
        size_t len = strlen(out);
        snprintf(out + len, room - len, "%s%lld %s", between, (long long)json_integer_value(count), name);
        between = ", ";
    }
}

static json_int_t tensor_bytes(const json_t *object)
{
    json_int_t bytes = 0;
    size_t i;
    json_t *tensor;
    json_array_foreach(json_object_get(object, "tensors"), i, tensor) bytes += json_integer_value(json_object_get(tensor, "bytes"));
    return bytes;
}

static void print_tensors(const json_t *object)
{
    size_t i;
    json_t *tensor;
    printf("\n%-44s %-6s %12s  %s\n", "tensor", "type", "bytes", "dims");
    json_array_foreach(json_object_get(object, "tensors"), i, tensor) {
        const char *name, *dtype;
        json_t *dims;
        json_int_t bytes;
        if (json_unpack(tensor, "{s:s,s:s,s:o,s:I}", "name", &name, "dtype", &dtype, "dims", &dims, "bytes", &bytes) != 0) continue;
        char *text = json_dumps(dims, JSON_COMPACT);
        json_int_t values = json_integer_value(json_object_get(tensor, "residual_values"));
        printf("%-44s %-6s %12lld  %s", name, dtype, (long long)bytes, text ? text : "");
        if (values) printf("  + %lld residual values", (long long)values);
        printf("\n");
        free(text);
    }
}

/* Modules that agree in rank, alpha and scaling stand in one line. */
static void print_modules(const json_t *modules)
{
    size_t n = json_array_size(modules);
    printf("%-*s %zu\n", KEY_WIDTH, "modules", n);
    for (size_t i = 0, same; i < n; i += same) {
        const json_t *first = json_array_get(modules, i);
        const char *name = json_string_value(json_object_get(first, "name"));
        for (same = 1; i + same < n; same++) {
            const json_t *other = json_array_get(modules, i + same);
            if (!json_equal(json_object_get(first, "rank"), json_object_get(other, "rank")) ||
                !json_equal(json_object_get(first, "alpha"), json_object_get(other, "alpha")) ||
                !json_equal(json_object_get(first, "scaling"), json_object_get(other, "scaling")))
                break;
        }
        const char *last = json_string_value(json_object_get(json_array_get(modules, i + same - 1), "name"));
        const char *scaling = json_string_value(json_object_get(first, "scaling"));
        printf("  rank %lld, alpha %g, %s: %s%s%s (%zu)\n", (long long)json_integer_value(json_object_get(first, "rank")),
               json_number_value(json_object_get(first, "alpha")), scaling ? scaling : "alpha/r", name ? name : "", same > 1 ? " … " : "",
               same > 1 && last ? last : "", same);
    }
}

/* zero_is_off: numbers are those of our own format, where 0 says that there is no such thing. */
static bool is_nothing(const json_t *value, bool zero_is_off)
{
    if (json_is_number(value)) return zero_is_off && json_number_value(value) == 0.0;
    return json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) || (json_is_string(value) && !json_string_length(value));
}

/* Whether a member is told in another way, or not worth telling. */
static bool is_left_out(const char *key, const json_t *value, int indent, bool zero_is_off)
{
    static const char *const elsewhere[] = {"path", "kind", "bytes", "tensor_types", "tensors", "modules", "pieces"};
    if (indent > 0) return is_nothing(value, zero_is_off);
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
        if (strcmp(key, elsewhere[i]) == 0) return true;
    return false;
}

/* "key value" lines; members of a nested object under its key, without those that are nothing. */
static void print_members(const json_t *object, int indent, bool zero_is_off)
{
    const char *key;
    json_t *value;
    int width = KEY_WIDTH - indent;
    json_object_foreach((json_t *)object, key, value)
        if (indent > 0 && (int)strlen(key) > width) width = (int)strlen(key);
    json_object_foreach((json_t *)object, key, value) {
        if (is_left_out(key, value, indent, zero_is_off)) continue;
        if (json_is_object(value)) {
            printf("%*s%s\n", indent, "", key);
            print_members(value, indent + 2, zero_is_off);
        } else {
            printf("%*s%-*s ", indent, "", width, key);
            print_value(value);
        }
    }
}

void describe(const json_t *object, bool list_tensors)
{
    char types[512];
    const char *path = json_string_value(json_object_get(object, "path")), *kind = json_string_value(json_object_get(object, "kind"));
    const json_t *bytes = json_object_get(object, "bytes");
    printf("%s: %s", path, kind);
    if (bytes) {
        printf(", ");
        print_megabytes(json_integer_value(bytes));
    }
    printf("\n");
    if (json_object_size(json_object_get(object, "tensor_types"))) {
        describe_types(object, types, sizeof types);
        printf("%-*s %s, ", KEY_WIDTH, "weights", types);
        print_megabytes(tensor_bytes(object));
        printf("\n");
    }
    print_members(object, 0, kind && strcmp(kind, "slm base") == 0);
    if (json_object_get(object, "modules")) print_modules(json_object_get(object, "modules"));
    if (list_tensors) print_tensors(object);
}
