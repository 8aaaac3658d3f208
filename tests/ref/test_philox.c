/* Counter-based random numbers: the authors' known answers, the moments, and the independence of streams.
 * tier: check
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <string.h>
#include "ref/numeric/philox.h"

/* Random123 1.14, tests/kat_vectors, lines "philox4x32 10". */
static void test_known_answers(void **state)
{
    (void)state;
    static const struct { uint32_t counter[4], key[2], want[4]; } known[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff }, { 0xffffffff, 0xffffffff },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 }, { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t got[4];
        philox4x32(known[i].counter, known[i].key, got);
        for (int w = 0; w < 4; w++)
            if (got[w] != known[i].want[w])
                fail_msg("known answer %zu, word %d: got %08x, want %08x", i, w, (unsigned)got[w],
                         (unsigned)known[i].want[w]);
    }
}

/* Where each of the three coordinates goes: the low half of each first, index before stream, and the
 * seed is the key. */
static void test_words_of_a_block(void **state)
{
    (void)state;
    const uint32_t counter[4] = { 0x11111111, 0x22222222, 0x33333333, 0x44444444 }, key[2] = { 0x55555555, 0x66666666 };
    const uint64_t index = 0x2222222211111111u, stream = 0x4444444433333333u, seed = 0x6666666655555555u;
    uint32_t w[4];
    philox4x32(counter, key, w);
    assert_true(random_uniform(seed, stream, index) == (w[0] >> 8) / 16777216.0);

    double halves = 0;
    for (int i = 0; i < 4; i++) halves += (w[i] & 0xffff) + (double)(w[i] >> 16);
    const double want = (halves - 4 * 65535.0) / sqrt(8 * (65536.0 * 65536.0 - 1) / 12);
    assert_true(fabs(random_normal(seed, stream, index) - want) <= 1e-15 * fabs(want) + 1e-300);
}

/* Any start and length, over the end of a 32-bit index too. */
static void test_many_at_a_time(void **state)
{
    (void)state;
    const uint64_t first[] = { 0, 1, 0xfffffff0u, 0xffffffffffffff80u };
    for (int f = 0; f < 4; f++)
        for (int n = 0; n < 70; n++) {
            float x[71];
            double z[71];
            uint32_t w[4 * 71], block[4];
            x[n] = -1, z[n] = -9, w[4 * n] = 5;
            random_uniforms(x, n, 3, 4, first[f]);
            random_normals(z, n, 3, 4, first[f]);
            random_words(w, n, 3, 4, first[f]);
            assert_true(x[n] == -1 && z[n] == -9 && w[4 * n] == 5);
            for (int i = 0; i < n; i++) {
                const uint64_t at = first[f] + (uint64_t)i;
                philox4x32((uint32_t[]){ (uint32_t)at, (uint32_t)(at >> 32), 4, 0 }, (uint32_t[]){ 3, 0 }, block);
                assert_memory_equal(w + 4 * i, block, sizeof block);
            }
            for (int i = 0; i < n; i++)
                if (!(z[i] == random_normal(3, 4, first[f] + (uint64_t)i)))
                    fail_msg("random_normals, first %llu, n %d, element %d: got %.17g, want %.17g",
                             (unsigned long long)first[f], n, i, z[i], random_normal(3, 4, first[f] + (uint64_t)i));
            for (int i = 0; i < n; i++)
                if (!((double)x[i] == random_uniform(3, 4, first[f] + (uint64_t)i)))
                    fail_msg("random_uniforms, first %llu, n %d, element %d: got %.9g, want %.9g",
                             (unsigned long long)first[f], n, i, (double)x[i],
                             random_uniform(3, 4, first[f] + (uint64_t)i));
        }
}

/* FNV-1a's published values: the offset basis for "", and those of its test suite. */
static void test_streams_are_named(void **state)
{
    (void)state;
    assert_true(random_stream("") == 0xcbf29ce484222325u);
    assert_true(random_stream("a") == 0xaf63dc4c8601ec8cu);
    assert_true(random_stream("foobar") == 0x85944171f73967e8u);
    assert_true(random_stream("h.0.attn.c_attn.weight") != random_stream("h.1.attn.c_attn.weight"));
}

enum { DRAWS = 1 << 20 };

/* n draws: a sample mean of x^k is within 5 standard errors sqrt(var(x^k)/n).  The numbers are fixed, so this passes
 * always or never. */
static void expect_moment(const char *what, double sum, double mean, double variance)
{
    const double bound = 5 * sqrt(variance / DRAWS);
    if (!(fabs(sum / DRAWS - mean) <= bound))
        fail_msg("%s: got %.6f, want %.6f within %.6f", what, sum / DRAWS, mean, bound);
}

static void test_uniform_moments(void **state)
{
    (void)state;
    double m1 = 0, m2 = 0, least = 1, most = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        const double x = random_uniform(42, 7, i);
        m1 += x, m2 += x * x;
        least = x < least ? x : least, most = x > most ? x : most;
        assert_true((double)(float)x == x);
    }
    assert_true(least >= 0 && least < 1e-4 && most < 1 && most > 1 - 1e-4);
    expect_moment("uniform, mean", m1, 0.5, 1.0 / 12);
    expect_moment("uniform, second moment", m2, 1.0 / 3, 1.0 / 5 - 1.0 / 9);
}

static void test_normal_moments(void **state)
{
    (void)state;
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, most = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        const double x = random_normal(42, 7, i);
        m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
        most = fmax(most, fabs(x));
    }
    assert_true(most < 4.9);                            /* sqrt(24) */
    expect_moment("normal, mean", m1, 0, 1);
    expect_moment("normal, variance", m2, 1, 2);        /* variances of x^k of a normal, a little above ours */
    expect_moment("normal, third moment", m3, 0, 15);
    expect_moment("normal, fourth moment", m4, 3 - 0.15, 96);
}

/* Neighbours in each coordinate: correlation of n pairs has standard error 1/sqrt(n). */
static void test_neighbours_are_independent(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    double by_index = 0, by_stream = 0, by_seed = 0, by_high_bits = 0;
    for (uint64_t i = 0; i < N; i++) {
        const double x = random_normal(1, 1, i);
        by_index += x * random_normal(1, 1, i + 1);
        by_stream += x * random_normal(1, 2, i);
        by_seed += x * random_normal(2, 1, i);
        by_high_bits += x * random_normal(1, 1, i + ((uint64_t)1 << 32));
    }
    const double found[] = { by_index, by_stream, by_seed, by_high_bits };
    for (int i = 0; i < 4; i++)
        if (!(fabs(found[i] / N) <= 5 / sqrt(N)))
            fail_msg("coordinate %d: correlation %.4f of neighbours, want 0 within %.4f", i, found[i] / N, 5 / sqrt(N));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers), cmocka_unit_test(test_words_of_a_block),
            cmocka_unit_test(test_many_at_a_time),
        cmocka_unit_test(test_streams_are_named), cmocka_unit_test(test_uniform_moments),
            cmocka_unit_test(test_normal_moments),
        cmocka_unit_test(test_neighbours_are_independent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
