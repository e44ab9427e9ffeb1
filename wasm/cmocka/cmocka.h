/* A stand-in for cmocka where there is no setjmp: the same names as far as the tests use them; the first failed check
 * ends the program. */
#ifndef CMOCKA_H
#define CMOCKA_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define fail_msg(...)                                                                         \
    (fprintf(stderr, "%s:%d: ", __FILE__, __LINE__), fprintf(stderr, __VA_ARGS__), fputc('\n', stderr), exit(1))
#define fail() fail_msg("failed")
#define check_that(condition, text) ((condition) ? (void)0 : fail_msg("%s", text))

#define assert_true(a) check_that(a, #a)
#define assert_false(a) check_that(!(a), "not " #a)
#define assert_null(a) check_that(!(a), #a " is NULL")
#define assert_non_null(a) check_that((a) != NULL, #a " is not NULL")
#define assert_ptr_equal(a, b) check_that((const void *)(a) == (const void *)(b), #a " == " #b)
#define assert_int_equal(a, b) check_that((uint64_t)(a) == (uint64_t)(b), #a " == " #b)
#define assert_int_not_equal(a, b) check_that((uint64_t)(a) != (uint64_t)(b), #a " != " #b)
#define assert_in_range(a, low, high) check_that((uint64_t)(a) >= (uint64_t)(low) && (uint64_t)(a) <= (uint64_t)(high), #a)
#define assert_string_equal(a, b) check_that(strcmp(a, b) == 0, #a " is " #b)
#define assert_string_not_equal(a, b) check_that(strcmp(a, b) != 0, #a " is not " #b)
#define assert_memory_equal(a, b, n) check_that(memcmp(a, b, n) == 0, #a " holds the bytes of " #b)
#define assert_memory_not_equal(a, b, n) check_that(memcmp(a, b, n) != 0, #a " differs from " #b)
#define print_message printf

char *mkdtemp(char *path); /* mkdtemp.c: wasi-libc lacks it */

typedef int (*CMFixtureFunction)(void **state);
struct CMUnitTest {
    const char *name;
    void (*run)(void **state);
    CMFixtureFunction setup, teardown;
    void *state;
};
#define cmocka_unit_test(f) {#f, f, NULL, NULL, NULL}
#define cmocka_unit_test_setup_teardown(f, setup, teardown) {#f, f, setup, teardown, NULL}
#define cmocka_unit_test_prestate(f, state) {#f, f, NULL, NULL, state}
#define cmocka_run_group_tests(tests, setup, teardown) \
    run_group(tests, sizeof(tests) / sizeof *(tests), setup, teardown)
#define cmocka_run_group_tests_name(name, tests, setup, teardown) cmocka_run_group_tests(tests, setup, teardown)

static inline int run_group(const struct CMUnitTest *tests, size_t n, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    void *group = NULL;
    if (setup) check_that(setup(&group) == 0, "the group's setup");
    for (size_t i = 0; i < n; i++) {
        void *state = tests[i].state ? tests[i].state : group;
        if (tests[i].setup) check_that(tests[i].setup(&state) == 0, tests[i].name);
        tests[i].run(&state);
        if (tests[i].teardown) check_that(tests[i].teardown(&state) == 0, tests[i].name);
        printf("ok %s\n", tests[i].name);
    }
    if (teardown) check_that(teardown(&group) == 0, "the group's teardown");
    return 0;
}

#endif
