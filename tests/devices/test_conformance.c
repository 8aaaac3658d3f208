/* One suite for all backends: emulated_devices/verify/conformance/conformance.h.
 *
 * BACKENDS=NAME tries one backend; ONLY=WORD the operations that have the word in their names.
 * tier: check
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/verify/conformance/conformance.h"
#include "tests/tier.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

/* Whether an environment variable is empty, or part of a name. */
static bool asked_for(const char *variable, const char *name)
{
    const char *word = getenv(variable);
    return word == NULL || strstr(name, word) != NULL;
}

static void say(void *backend, const char *line) { print_message("%s, %s\n", (const char *)backend, line); }

static void check_backend(const struct backend *b)
{
    struct conforms all = { 0 }, one;
    for (int row = 0; row < conformance_rows(); row++) {
        if (!asked_for("ONLY", conformance_row(row))) continue;
        const enum error_code e = conformance_try(&one, b, row, tier_now() == TIER_CHECK ? CONFORMANCE_QUICK
                                                  : CONFORMANCE_SIZES, say, (void *)(uintptr_t)b->name, &err);
        if (e) print_message("%s\n", err.text);
        assert_int_equal(e, OK);
        all.cases += one.cases, all.wrong += one.wrong;
        if (!(one.worst <= all.worst)) all.worst = one.worst;
    }
    print_message("%s: %d cases, largest error/bound %.2g\n", b->name, all.cases, all.worst);
    assert_int_equal(all.wrong, 0);
    assert_true(all.cases > 0);
}

static void test_each_backend(void **state)
{
    (void)state;
    for (int b = 0; backends[b]; b++)
        if (asked_for("BACKENDS", backends[b]->name)) check_backend(backends[b]);
}

/* ---- and the suite itself: backends that are wrong in one way ---------------------------------------------------- */

static const struct ops *right;
static void outside(struct tensor Y, struct tensor X, double a)
{
    right->scale(Y, X, a), ((float *)Y.data)[tensor_count(Y)] = 0;
}
static void stays(struct tensor Y, struct tensor X, double a) { (void)Y, (void)X, (void)a; }
static void nan_scale(struct tensor Y, struct tensor X, double a) { (void)X, (void)a, tensor_set(Y, 0, NAN); }
static void (*wrong_scale)(struct tensor, struct tensor, double);

static const struct ops *wrong_ops(enum dtype t)
{
    static struct ops table[DTYPE_COUNT];
    if (ops_for(t) == NULL) return NULL;
    table[t] = *ops_for(t);
    if (t == F32) right = ops_for(t), table[t].scale = wrong_scale;
    return &table[t];
}

static void test_wrong_backends_are_found(void **state)
{
    void (*const wrong[])(struct tensor, struct tensor, double) = { outside, stays, nan_scale };
    struct backend b = *backend_find("cpu");
    struct conforms c;
    int row = 0;
    (void)state;
    while (strcmp(conformance_row(row), "scale") != 0) row++;
    b.ops = wrong_ops;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong_scale = wrong[i];
        assert_int_equal(conformance_try(&c, &b, row, 1, NULL, NULL, &err), OK);
        assert_int_equal(c.wrong, 1);           /* fp32 */
        assert_int_equal(c.cases, 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_backend), cmocka_unit_test(test_wrong_backends_are_found),
    };
    return cmocka_run_group_tests_name("conformance", tests, NULL, NULL) != 0;
}
