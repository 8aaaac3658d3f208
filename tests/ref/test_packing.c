/* Packing: every sample once, no sequence too full, no more sequences than the bound of best-fit decreasing allows, by
 * hand and against the fewest possible; texts cut into samples.
 * tier: check
 */
#include "ref/model/modality.h"
#include "ref/io/samples.h"
#include "ref/model/sample_mask.h"
#include "ref/model/transformer.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct error err;

static void expect_whole(const struct packing *p, const int64_t *length, int64_t n)
{
    bool *seen = calloc((size_t)n + 1, sizeof *seen);
    int64_t tokens = 0;
    assert_int_equal(p->samples, n);
    for (int64_t s = 0; s < p->sequences; s++) {
        int64_t used = 0;
        for (int64_t i = p->first[s]; i < p->first[s + 1]; i++) {
            const int64_t sample = p->order[i];
            assert_false(seen[sample]);
            assert_int_equal(p->start[sample] >= 0 && p->length[sample] == length[sample], 1);
            seen[sample] = true, used += p->length[sample];
        }
        assert_true(used > 0 && used <= p->S);
        tokens += used;
    }
    for (int64_t i = 0; i < n; i++) assert_true(seen[i]);
    assert_int_equal(tokens, p->tokens);
    free(seen);
}

static void test_by_hand(void **state)
{
    (void)state;
    /* from the longest: 7, 6, 5 and 5, 4 to the 6, 3 to the 7 */
    const int64_t length[] = { 3, 5, 7, 6, 5, 4 };
    struct packing p;
    assert_int_equal(packing_make(&p, length, 6, 10, &err), OK);
    expect_whole(&p, length, 6);
    assert_int_equal(p.sequences, 3);
    assert_int_equal(p.pairs, 6 + 15 + 28 + 21 + 15 + 10);
    assert_int_equal(p.first[1], 2), assert_int_equal(p.first[2], 4);
    const int64_t sorted[] = { 0, 2, 3, 5, 1, 4 };      /* within a sequence in the order of the text */
    assert_memory_equal(p.order, sorted, sizeof sorted);
    packing_free(&p);
}

static void test_none(void **state)
{
    (void)state;
    struct packing p;
    assert_int_equal(packing_make(&p, NULL, 0, 10, &err), OK);
    assert_int_equal(p.sequences, 0);
    packing_free(&p);
}

/* The fewest sequences, by trying everything. */
static int fewest(const int64_t *length, int n, int64_t *room, int used, int64_t S)
{
    if (n == 0) return used;
    int least = 99;
    for (int s = 0; s <= used && s < 99; s++) {
        if (s == used) room[s] = S;
        if (room[s] < *length) continue;
        room[s] -= *length;
        const int here = fewest(length + 1, n - 1, room, used + (s == used), S);
        if (s < used) room[s] += *length;
        if (here < least) least = here;
    }
    return least;
}

static void test_near_the_fewest(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        int64_t length[7], room[8];
        struct packing p;
        for (int i = 0; i < 7; i++) length[i] = 1 + (int64_t)(random_uniform(seed, 1, (uint64_t)i) * 12);
        assert_int_equal(packing_make(&p, length, 7, 12, &err), OK);
        expect_whole(&p, length, 7);
        const int least = fewest(length, 7, room, 0, 12);
        if (p.sequences < least || 9 * p.sequences > 11 * least + 36)
            fail_msg("seed %d: %d sequences; the fewest are %d", (int)seed, (int)p.sequences, least);
        packing_free(&p);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct packing p;
    assert_int_equal(packing_make(&p, (int64_t[]){ 3, 11 }, 2, 10, &err), ERR_USAGE);
    assert_string_equal(err.text, "sample 2 has 11 tokens; a sequence has room for 1 to 10");
    assert_int_equal(packing_make(&p, (int64_t[]){ 0 }, 1, 10, &err), ERR_USAGE);
}

/* ---- a text ------------------------------------------------------------------------------------------------------ */

static void take_text(struct text *t, int64_t bytes)
{
    *t = (struct text){ .bytes = malloc((size_t)bytes), .count = bytes, .train = bytes, .name = "text" };
    for (int64_t i = 0; i < bytes; i++) t->bytes[i] = (uint8_t)(1 + i % 251);
}

/* A file that lasts until the end of the test. */
static const char *file_of(const char *content)
{
    static char path[64];
    snprintf(path, sizeof path, "packing-%ld.lengths", (long)getpid());
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(content, f);
    fclose(f);
    return path;
}

static void expect_row(const struct text *t, const int32_t *ids, const int32_t *labels, const int32_t *within)
{
    const int64_t S = t->packing.S;
    for (int64_t i = 0; i < S; i++) {
        const int32_t at = sample_position(within[i]), before = i > 0 ? sample_position(within[i - 1]) : -1;
        const bool last = i + 1 == S || sample_position(within[i + 1]) == 0, padding = ids[i] == 0;
        assert_true(at == 0 || (at == before + 1 && is_padding(within[i]) == is_padding(within[i - 1])));
        assert_int_equal(is_padding(within[i]), padding);
        const int32_t want = padding || last ? IGNORE_LABEL : ids[i + 1];
        if (labels[i] != want) fail_msg("token %d: its label is %d, not %d", (int)i, (int)labels[i], (int)want);
        if (!padding && at > 0) assert_int_equal(ids[i], 1 + ids[i - 1] % 251);
    }
}

static void test_text(void **state)
{
    (void)state;
    struct text t;
    int32_t ids[3 * 10], labels[3 * 10], within[3 * 10], again[3][10];
    take_text(&t, 100);
    const char *path = file_of("3\n7\n5\n");
    assert_int_equal(samples_pack(&t, path, 10, 1, &err), OK);
    assert_int_equal(t.packing.samples, 20);            /* 6 times 15, and 3, 7 */
    assert_int_equal(t.packing.tokens, 100);
    samples_batch(&t, 1, 4, 0, 3, ids, labels, within);
    for (int b = 0; b < 3; b++) {
        expect_row(&t, ids + 10 * b, labels + 10 * b, within + 10 * b);
        samples_batch(&t, 1, 4, b, 1, again[0], again[1], again[2]);    /* alone it is the same */
        assert_memory_equal(again[0], ids + 10 * b, sizeof again[0]);
        assert_memory_equal(again[2], within + 10 * b, sizeof again[2]);
    }
    unlink(path), text_free(&t);
}

/* A line's clips: placeholders behind the first token of the sample, with a token of text behind each. */
static void test_clips(void **state)
{
    (void)state;
    struct text t;
    int32_t ids[10], labels[10], within[10];
    bool say;
    take_text(&t, 10);
    const char *path = file_of("9 image:3 audio:2\n1\n");
    assert_int_equal(samples_say_clips(path, &say, &err), OK), assert_true(say);
    assert_int_equal(samples_pack(&t, path, 10, 1, &err), OK);
    assert_int_equal(t.packing.patches[0], 3), assert_int_equal(t.packing.patches[1], 2);
    assert_int_equal(t.packing.patches[MODALITIES], 0);
    samples_batch(&t, 1, 0, 0, 1, ids, labels, within);
    for (int i = 0; i < 10; i++)
        assert_int_equal(ids[i], i >= 1 && i < 4 ? clip_placeholder(0) : i == 5 || i == 6 ? clip_placeholder(1)
                                                                                         : t.bytes[i]);
    assert_int_equal(samples_check_clips(&t.packing, 2, &err), OK);
    assert_int_equal(samples_check_clips(&t.packing, 1, &err), ERR_USAGE);
    assert_string_equal(err.text, "a sample has a clip of audio, which no encoder reads; --modalities 2 has one");
    assert_int_equal(samples_check_clips(&t.packing, 3, &err), ERR_USAGE);
    assert_string_equal(err.text, "--modalities 3: the video encoder would never have a token: no sample has such a "
                                  "clip");
    unlink(path), text_free(&t);
    take_text(&t, 10);
    path = file_of("4\n");
    assert_int_equal(samples_say_clips(path, &say, &err), OK), assert_false(say);
    assert_int_equal(samples_pack(&t, path, 10, 1, &err), OK);
    assert_int_equal(samples_check_clips(&t.packing, 0, &err), OK);
    assert_int_equal(samples_check_clips(&t.packing, 1, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "no sample has room for such a clip"));
    unlink(path), text_free(&t);
}

static void test_long_tail(void **state)
{
    (void)state;
    struct text t;
    take_text(&t, 1 << 18);
    assert_int_equal(samples_pack(&t, SAMPLES_LOGNORMAL, 256, 7, &err), OK);
    expect_whole(&t.packing, t.packing.length, t.packing.samples);
    int64_t longest = 0, below_median = 0;
    for (int64_t i = 0; i < t.packing.samples; i++) {
        if (t.packing.length[i] > longest) longest = t.packing.length[i];
        below_median += t.packing.length[i] <= 256 / 8;
    }
    assert_int_equal(longest, 256);
    assert_true(10 * below_median > 4 * t.packing.samples && 10 * below_median < 6 * t.packing.samples);
    /* padding: less than a hundredth; a sample to a sequence would be four fifths */
    assert_true(100 * (t.packing.sequences * 256 - t.packing.tokens) < t.packing.sequences * 256);
    assert_true(5 * t.packing.tokens < 2 * t.packing.samples * 256);
    text_free(&t);
}

static void test_bad_lengths(void **state)
{
    (void)state;
    static const struct { const char *content; enum error_code code; const char *says; } bad[] = {
        { "3\nfour\n", ERR_FORMAT, ":2: must be the length of a sample, a whole number" },
        { "3 4\n", ERR_FORMAT, ":1: must be" }, { "3\n\n4\n", ERR_FORMAT, ":2: must be" },
        { "", ERR_FORMAT, ": has no lengths" }, { "3\n11\n", ERR_USAGE, ":2: a sample of 11 tokens" },
        { "0\n", ERR_USAGE, ":1: a sample of 0 tokens" }, { "-3\n", ERR_USAGE, ":1: a sample of -3 tokens" },
        { "99999999999999999999\n", ERR_FORMAT, ":1: must be" }, { "9\n", ERR_USAGE, "its first sample has more" },
        { "6 image:5\n", ERR_USAGE, ":1: a sample of 6 tokens would cut its image of 5 patches; with text before, "
                                    "between and behind its clips it needs 7" },
        { "3\n9 image:3 audio:4\n", ERR_USAGE, ":2: a sample of 9 tokens would cut its audio of 4 patches; with text "
                                                "before, between and behind its clips it needs 10" },
        { "9 image:0\n", ERR_FORMAT, ":1: must be" }, { "9 image:3 image:3\n", ERR_FORMAT, ":1: must be" },
        { "9 smell:3\n", ERR_FORMAT, ":1: must be" }, { "9 image:\n", ERR_FORMAT, ":1: must be" },
        { "9 image:3 4\n", ERR_FORMAT, "; its clips are words such as image:5 audio:2" },
        { "9 image:99999999999999999999\n", ERR_FORMAT, ":1: must be" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct text t;
        take_text(&t, 8);
        const enum error_code e = samples_pack(&t, file_of(bad[i].content), 10, 1, &err);
        if (e != bad[i].code || strstr(err.text, bad[i].says) == NULL)
            fail_msg("lengths \"%s\": code %d, \"%s\", not \"%s\"", bad[i].content, e, err.text, bad[i].says);
        text_free(&t);
    }
    unlink(file_of(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_none), cmocka_unit_test(test_near_the_fewest),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_text), cmocka_unit_test(test_clips),
        cmocka_unit_test(test_long_tail),
        cmocka_unit_test(test_bad_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
