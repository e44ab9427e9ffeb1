/* What several tests share. */
#ifndef LAM_TESTS_SUPPORT_H
#define LAM_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Fails the test with the error's message unless code is LAM_OK. */
#define assert_ok(expression, err)                                                               \
    do {                                                                                         \
        if ((expression) != LAM_OK) fail_msg("%s: %s", lam_code_name((err).code), (err).message);\
    } while (0)

/* A whole file, zero-terminated after its end; freed with free. Fails the test if it cannot be read. */
uint8_t *test_read_file(const char *path, size_t *size);

/* SplitMix64: the tests' own generator, so that a failure can be repeated. */
uint64_t test_random(uint64_t *state);

/* Uniform in (-1, 1). */
float test_random_float(uint64_t *state);

/* A fresh folder under TMPDIR or /tmp, removed by test_remove_folder. The text is freed with free. */
char *test_make_folder(void);
void test_remove_folder(char *folder);

#endif
