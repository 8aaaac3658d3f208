/* Published numbers in files: what a reader takes from each line, and what holds.
 * tier: check
 */
#include "emulated_devices/bench/claims/claims.h"
#include "emulated_devices/run/plan.h"
#include "ref/io/output.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static const char heading[] = "# a comment\ntitle: T\nsource: S, table 1\ncalibrated on: nothing\nunit: per cent\n"
                              "quantity: activations\ndigits: 2\nwords: --tp 8\n";

/* Write a file claims.txt into a new folder, and read it. */
static enum error_code read_text(struct claims *claims, const char *more, struct error *err)
{
    char folder[200], path[220];
    snprintf(folder, sizeof folder, "%s/claims-XXXXXX", temporary_folder());
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/claims.txt", folder);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fprintf(out, "%s%s", heading, more);
    assert_int_equal(fclose(out), 0);
    const enum error_code e = claims_find(claims, "claims", folder, err);
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(folder), 0);
    return e;
}

/* A number for each column with words of its own; the words of file, row and column in this order. */
static void test_columns(void **state)
{
    struct claims claims;
    struct error err;
    (void)state;
    assert_int_equal(read_text(&claims, "must: each within 1.5 %: they say so\n"
                               "columns: name --heads --width tensor[--tensor 1d] \"with, sequence\"[--tensor 1d-sp]\n"
                               "\"22 B\" 64 6144 100 66.84\n\n175B,96, 12288 -,62.04\n", &err), OK);
    assert_int_equal(claims.count, 4);
    assert_string_equal(claims.source, "S, table 1");
    assert_true(claims.musts == 1 && !claims.must[0].mean && claims.must[0].within == 1.5);
    assert_string_equal(claims.must[0].why, "they say so");
    const struct claim *claim = &claims.claim[1];
    static const char *const words[] = { "--tp", "8", "--heads", "64", "--width", "6144", "--tensor", "1d-sp" };
    assert_string_equal(claim->what, "22 B: with, sequence");
    assert_int_equal(claim->words, 8);
    for (int i = 0; i < 8; i++) assert_string_equal(claim->word[i], words[i]);
    assert_true(claim->published == 66.84 && isnan(claim->least) && isnan(claim->most));
    assert_string_equal(claim_word(claim, "--width"), "6144");
    assert_string_equal(claim_word(claim, "--none"), "");
    assert_true(isnan(claims.claim[2].published));      /* "-": not printed in the paper */
    claims_free(&claims);
}

/* 22B with sequence parallelism keeps 66.84 % (figure 7). */
static void test_what_holds(void **state)
{
    static const struct { const char *cells; int broken; } rows[] = {
        { "66.84 - - -", 0 }, { "67.84 - - -", 1 }, { "67.84 - - \"known\"", 0 },      /* 1.5 % off */
        { "66.84 67 - -", 1 }, { "66.84 66 - -", 0 }, { "66.84 - 66 -", 1 }, { "66.84 - 67 -", 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[400];
        struct claims claims;
        struct error err;
        snprintf(text, sizeof text, "must: each within 1 %%: so\ncolumns: --heads --width --tensor share at-least "
                 "at-most why\n64 6144 1d-sp %s\n", rows[i].cells);
        assert_int_equal(read_text(&claims, text, &err), OK);
        assert_int_equal(claims_compute(&claims, &(struct claims_setting){ .every = false }, &err), OK);
        if (claims.broken != rows[i].broken) fail_msg("%s: %d broken, ours is %g", rows[i].cells, claims.broken,
                                                      claims.claim[0].ours);
        assert_int_equal(claims_hold(&claims, &err), rows[i].broken ? ERR_CHECK : OK);
        claims_free(&claims);
    }
}

/* Shares of activations are 66.84, 49.42 and 16.18 per cent (figure 7); pairs are at least 30 % apart.  Quick rows are
 * left out if all are wanted, rows that no plan can say always. */
static void test_kinds_of_rows(void **state)
{
    static const char rows[] = "fitted: yes\norders: 30 % --width --heads\n"
        "columns: name --heads --width --tensor --recompute share when fitted assumed not-counted\n"
        "a 64 6144 1d-sp - 66.84 always - sizes -\nb 64 6144 1d - 49.42 quick no - -\n"
        "c 64 6144 1d-sp selective 16.18 every yes - -\nd 64 6144 1d - 60 always no - \"no plan\"\n";
    (void)state;
    for (int every = 0; every < 2; every++) {
        struct claims claims;
        struct claims_errors tests = { 0 }, fits = { 0 };
        struct error err;
        assert_int_equal(read_text(&claims, rows, &err), OK);
        assert_int_equal(claims_compute(&claims, &(struct claims_setting){ .every = every }, &err), OK);
        claims_add_errors(&claims, false, &tests), claims_add_errors(&claims, true, &fits);
        assert_int_equal(claims.computed, 2);
        assert_int_equal(tests.rows, every ? 1 : 2);
        assert_int_equal(fits.rows, every ? 1 : 0);
        assert_int_equal(claims_uncounted(&claims), 1);
        assert_int_equal(claims.pairs, 1);              /* ours of 1d is 100 where 49.42 is said: the wrong way round */
        assert_int_equal(claims.ordered, every);
        assert_string_equal(claims.claim[0].assumed, "sizes");
        claims_free(&claims);
    }
}

/* Give each plan tokens in proportion to --dp, and memory to the last --tp.  Samples are packed three to a sequence. */
static enum error_code plan_by_words(struct plan_numbers *numbers, int words, const char *const word[],
                                     struct error *err)
{
    (void)err;
    *numbers = (struct plan_numbers){ .speed = { .seconds = 2 }, .useful = 1, .alone = 1 };
    for (int i = 0; i + 1 < words; i++) {
        assert_true(strncmp(word[i], "--other", 7) != 0 && strcmp(word[i], "--unit") != 0);
        assert_true(strcmp(word[i], "--held") != 0);            /* no words of a plan */
        if (strcmp(word[i], "--pack") == 0) numbers->useful = 0.75, numbers->alone = 0.25;
        if (strcmp(word[i], "--dp") == 0) numbers->speed.tokens = atof(word[i + 1]);
        if (strcmp(word[i], "--tp") == 0) numbers->peak = (uint64_t)atoll(word[i + 1]) << 30;
    }
    return OK;
}

/* Quantities of plans get the words of a plan alone; --other-FLAG takes a flag's place in the other plan. */
static void test_planned(void **state)
{
    static const struct { const char *quantity, *rows; double ours, measured; } files[] = {
        { "planned-tokens", "columns: --dp tokens\n6 12\n", 6, 1 },
        { "planned-seconds", "columns: --dp seconds\n6 4\n", 2, 4 },
        { "planned-memory", "words: --unit GiB --held own\ncolumns: --tp GiB\n6 12\n", 6, 12 },
        { "planned-order", "columns: --dp --other-dp times\n6 3 1\n", 2, 0 },
        { "planned-packing", "columns: --dp --pack times\n6 lognormal 4\n", 3, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char text[300];
        struct claims claims;
        struct error err;
        snprintf(text, sizeof text, "quantity: %s\n%s", files[i].quantity, files[i].rows);
        assert_int_equal(read_text(&claims, text, &err), OK);
        assert_int_equal(claims_compute(&claims, &(struct claims_setting){ .every = false }, &err), ERR_FORMAT);
        claims_free(&claims);
        assert_int_equal(read_text(&claims, text, &err), OK);
        assert_int_equal(claims_compute(&claims, &(struct claims_setting){ .plan = plan_by_words }, &err), OK);
        assert_true(claims.claim[0].ours == files[i].ours);
        assert_true(claims.claim[0].measured == files[i].measured);
        claims_free(&claims);
    }
}

/* A long table computes one row of some; steps of one's own are all computed. */
static void test_sample(void **state)
{
    struct claims claims;
    struct error err;
    (void)state;
    assert_int_equal(read_text(&claims, "sample: 3\ncolumns: --heads share\n1 2\n2 2\n3 2\n4 2\n5 2\n", &err), OK);
    assert_int_equal(claims.count, 5);
    for (int i = 0; i < 5; i++) assert_int_equal(claims.claim[i].seldom, i % 3 != 0);
    claims_free(&claims);
}

static void test_refusals(void **state)
{
    static const struct { const char *more, *says; } files[] = {
        { "columns: --heads share\n1 2 3\n", "line 10: it must have 2 cells" },
        { "columns: --heads share\n64 many\n", "line 10: many was not measured" },
        { "columns: --heads share at-least\n64 1 x\n", "line 10: x is no number" },
        { "columns: --heads share\n", "no line has" },
        { "nonsense\n", "line 9: a heading is a key" },
        { "columns: --heads share when\n64 1 seldom\n", "line 10: seldom: must be always, every or quick" },
        { "fitted: perhaps\n", "line 9: this value" },
        { "sample: 0\n", "line 9: this value" },
        { "orders: --tp\n", "line 9: this value" },
        { "must: all within 1 %: x\n", "line 9: this value" },
        { "columns: a[--b\n", "line 9: this value" },
        { "columns: --a --b --c --d --e --f --g --h --i --j --k --l --m --n --o --p --q --r --s --t --u --v --w --x"
          " --aa --ab --ac --ad y\n", "line 9: this value" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct claims claims;
        struct error err;
        assert_int_equal(read_text(&claims, files[i].more, &err), ERR_FORMAT);
        if (strstr(err.text, files[i].says) == NULL) fail_msg("%s: says %s", files[i].more, err.text);
        assert_null(claims.claim);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_columns), cmocka_unit_test(test_what_holds),
                                        cmocka_unit_test(test_kinds_of_rows), cmocka_unit_test(test_planned),
                                        cmocka_unit_test(test_sample), cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
