/* Coverings: every pair of values that some case has is in one, and no more cases than a few times the least there can
 * be.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/verify/cases/cases.h"
#include <string.h>

enum { D = 4, MOST = 5 };
static const int values[D] = { 3, 4, 5, 2 };

/* Value 4 of the third goes with value 2 of the first alone; values 1 and 1 of the last two never go together. */
static enum error_code check_choice(const void *context, const struct choice *x, struct error *err)
{
    (void)context;
    if (x->value[2] == 4 && x->value[0] != 2) return fail(err, ERR_PLAN, "4 needs 2");
    if (x->value[2] == 1 && x->value[3] == 1) return fail(err, ERR_PLAN, "1 and 1");
    return OK;
}

static int cases_with(struct covering *c, bool seen[D][MOST][D][MOST], int *refused)
{
    struct choice x;
    struct value_pair p;
    struct error why;
    int n = 0;
    *refused = 0;
    covering_begin(c);
    for (enum covering_result r; (r = covering_next(c, &x, &p, &why)) != COVERING_DONE;
         n += r == COVERING_CASE, *refused += r == COVERING_REFUSED) {
        if (r == COVERING_REFUSED) continue;
        assert_int_equal(check_choice(NULL, &x, NULL), OK);
        for (int a = 0; a < D; a++)
            for (int b = 0; b < D; b++) seen[a][x.value[a]][b][x.value[b]] = true;
    }
    return n;
}

static bool some_case_has(int a, int va, int b, int vb)
{
    struct choice x;
    for (int i = 0; i < 3 * 4 * 5 * 2; i++) {
        x = (struct choice){ { i % 3, i / 3 % 4, i / 12 % 5, i / 60 } };
        if (x.value[a] == va && x.value[b] == vb && check_choice(NULL, &x, NULL) == OK) return true;
    }
    return false;
}

static void test_every_pair_that_can_be_had(void **state)
{
    static bool seen[D][MOST][D][MOST];
    int refused, impossible = 0;
    struct error err;
    struct covering c = {
        .dimensions = D, .values = values, .check = check_choice, .varies = { true, true, true, true }, .first = 1
    };
    (void)state;
    assert_int_equal(covering_open(&c, &err), OK);
    const int n = cases_with(&c, seen, &refused);
    for (int a = 0; a < D; a++)
        for (int b = a + 1; b < D; b++)
            for (int va = 0; va < values[a]; va++)
                for (int vb = 0; vb < values[b]; vb++) {
                    const bool can = some_case_has(a, va, b, vb);
                    impossible += !can;
                    assert_int_equal(seen[a][va][b][vb], can);
                }
    assert_int_equal(refused, impossible);
    assert_true(n >= 4 * 5 && n <= 2 * 4 * 5);
    assert_int_equal(cases_with(&c, seen, &refused), 0);                /* all are covered */
    covering_close(&c);
}

/* Whatever is registered is a case: each scheme of a kind, on each mesh that splits its axis, if any plan has both. */
static void test_every_scheme_on_every_mesh(void **state)
{
    struct cases c;
    struct error err;
    (void)state;
    for (int kind = 0; kind < PLAN_KINDS; kind++) {
        static bool seen[SPACE_MOST_MESHES][SPACE_MOST_FORMS];
        struct next_case n;
        if (scheme_at((enum scheme_kind)kind, 0) == NULL) continue;
        assert_int_equal(cases_open(&c, NULL, 4, false, &err), OK);
        cases_begin(&c, (enum scheme_kind)kind);
        const enum dimension own = space_of_kind((enum scheme_kind)kind);
        memset(seen, 0, sizeof seen);
        while (cases_next(&c, &n, &err) == OK && n.result != COVERING_DONE)
            if (n.result == COVERING_CASE) seen[n.choice.value[DIM_MESH]][n.choice.value[own]] = true;
        for (int m = 0; m < c.space.meshes; m++)
            for (int v = 0; v < c.space.values[own]; v++) {
                struct choice plain = { { 0 } };
                plain.value[DIM_MESH] = m, plain.value[own] = v;
                if (space_check(&c.space, &plain, NULL) == OK) assert_true(seen[m][v]);
            }
        cases_close(&c);
    }
}

/* Who computes again, or keeps numbers elsewhere, ends with the bits of who does not. */
static void test_twins(void **state)
{
    struct space s;
    struct choice plain, x = { { 0 } };
    (void)state;
    assert_int_equal(space_open(&s, 2, false, NULL), OK);
    s.kind = DATA_SCHEME;
    for (int m = 0; m < s.meshes; m++)
        if (s.mesh[m][DP] == 2) x.value[DIM_MESH] = m;
    assert_false(space_plain(&s, &x, &plain));
    x.value[DIM_RECOMPUTE] = 1, x.value[DIM_BUCKET] = 1, x.value[DIM_SCHEDULE] = 1, x.value[DIM_FORMAT] = 1;
    assert_true(space_plain(&s, &x, &plain));
    assert_int_equal(plain.value[DIM_RECOMPUTE] + plain.value[DIM_BUCKET] + plain.value[DIM_SCHEDULE], 0);
    assert_int_equal(plain.value[DIM_FORMAT], 1);
    x.value[DIM_BATCHES] = 1;
    assert_true(space_plain(&s, &x, &plain));
    assert_int_equal(plain.value[DIM_BATCHES], 1);
    space_close(&s);
}

/* More values than a table holds are an error: cases that are left out would not be missed. */
static void test_full_tables(void **state)
{
    struct space s;
    struct error err;
    (void)state;
    for (int n = 1; n <= 64; n++) {
        assert_int_equal(space_open(&s, n, false, NULL), OK);
        space_close(&s);
    }
    assert_int_equal(space_open(&s, 240, false, &err), ERR_PLAN);
    assert_string_equal(err.text, "240 devices have more meshes than the table of cases has room for");
    space_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair_that_can_be_had), cmocka_unit_test(test_every_scheme_on_every_mesh),
            cmocka_unit_test(test_twins), cmocka_unit_test(test_full_tables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
