/* Serving systems as models: MARLIN's layout beside the construction of its released program, its product beside
 * "dequantise, then multiply", and its runs; masked-diffusion decoding beside closed forms, and drawn beside summed;
 * nano-batches between their bounds; models in tiers beside another simulation; rows of banks beside formulas.
 * tier: check
 */
#include "emulated_devices/bench/serving/banks.h"
#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/bench/serving/marlin.h"
#include "emulated_devices/bench/serving/masked.h"
#include "emulated_devices/bench/serving/nano.h"
#include "emulated_devices/bench/serving/tiers.h"
#include "emulated_devices/bench/serving/window.h"
#include "ref/numeric/float16.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

/* ---- MARLIN ------------------------------------------------------------------------------------------------------ */

enum { K = 256, N = 512, M = 3 };

static float w[K * N], scale[K / MARLIN_GROUP * N], x[M * K], out[M * N], want[M * N];

static float half(float v) { return float_of_bits(fp16_widen(fp16_narrow(float_bits(v)))); }

static void draw_matrix(void)
{
    for (int i = 0; i < K / MARLIN_GROUP * N; i++)
        scale[i] = half((float)(0.01 + 0.1 * random_uniform(1, 1, (uint64_t)i)));
    for (int i = 0; i < K * N; i++) w[i] = (float)(random_uniform(1, 2, (uint64_t)i) - 0.5);
    for (int i = 0; i < M * K; i++) x[i] = half((float)(4 * random_uniform(1, 3, (uint64_t)i) - 2));
}

/* The order of 16 x 64 weights, as marlin/__init__.py builds it: for each of 32 lanes, 4 x 8 places. */
static void released_order(int perm[1024])
{
    static const int interleave[] = { 0, 2, 4, 6, 1, 3, 5, 7 };
    int plain[1024], at = 0;
    for (int i = 0; i < 32; i++)
        for (int j = 0; j < 4; j++)
            for (int block = 0; block < 2; block++)
                for (int r = 0; r < 4; r++) {
                    const int row = 2 * (i % 4) + r % 2 + 8 * (r / 2);
                    plain[at++] = 16 * row + i / 4 + 8 * block + 256 * j;
                }
    for (int i = 0; i < 1024; i++) perm[i] = plain[i / 8 * 8 + interleave[i % 8]];
}

/* Words as the released program makes them: tiles of 16 x 16 one after another, 1024 weights in its order, 8 a word. */
static uint32_t released_word(const int perm[1024], int (*code)(int64_t k, int64_t n), int64_t row, int64_t word)
{
    uint32_t value = 0;
    for (int i = 0; i < 8; i++) {
        const int64_t flat = word / 128 * 1024 + perm[word % 128 * 8 + i], tile = flat / 256, in = flat % 256;
        value |= (uint32_t)code(16 * row + in / 16, 16 * tile + in % 16) << 4 * i;
    }
    return value;
}

static int some_code(int64_t k, int64_t n) { return (int)((3 * k + 5 * n + k * n) % 16); }

static void test_layout(void **state)
{
    (void)state;
    static const int first[] = { 0, 128, 8, 136, 16, 144, 24, 152, 256, 384, 264, 392, 272, 400, 280, 408 };
    int perm[1024];
    struct marlin m;
    released_order(perm);
    assert_memory_equal(perm, first, sizeof first);
    for (int k = 0; k < K; k++)
        for (int n = 0; n < N; n++) w[k * N + n] = (float)(some_code(k, n) - 8);
    for (int i = 0; i < K / MARLIN_GROUP * N; i++) scale[i] = 1;
    assert_int_equal(marlin_pack(&m, w, scale, K, N, MARLIN_GROUP, &err), OK);
    for (int64_t row = 0; row < K / 16; row++)
        for (int64_t word = 0; word < 2 * N; word++)
            if (m.B[row * 2 * N + word] != released_word(perm, some_code, row, word))
                fail_msg("word %d of row %d is %08x; the released program has %08x", (int)word, (int)row,
                         m.B[row * 2 * N + word], released_word(perm, some_code, row, word));
    assert_int_equal(m.B[0], 0xb3b30880), assert_int_equal(m.B[4], 0x19196ee6);
    for (int64_t k = 0; k < K; k++)
        for (int64_t n = 0; n < N; n++) assert_int_equal(marlin_code(&m, k, n), some_code(k, n));
    marlin_free(&m);
}

/* Factors of a block of 64: out[8 i + j] = in[i + 8 j]; of one group, in 32: in[2 i + 0 1 8 9 16 17 24 25 [j]]. */
static void test_factors(void **state)
{
    (void)state;
    static const int single[] = { 0, 1, 8, 9, 16, 17, 24, 25 };
    struct marlin m;
    for (int i = 0; i < K / MARLIN_GROUP * N; i++) scale[i] = (float)(i + 1);
    memset(w, 0, sizeof w);
    for (int groups = 1; groups <= 2; groups++) {
        assert_int_equal(marlin_pack(&m, w, scale, K, N, K / groups, &err), OK);
        for (int g = 0; g < groups; g++)
            for (int i = 0; i < N; i++) {
                const int from = groups == 2 ? i / 64 * 64 + i % 64 / 8 + 8 * (i % 8)
                                             : i / 32 * 32 + 2 * (i % 32 / 8) + single[i % 8];
                assert_true(float_of_bits(fp16_widen(m.scale[g * N + i])) == (float)(g * N + from + 1));
                assert_true(marlin_scale(&m, (int64_t)g * MARLIN_GROUP, i) == (float)(g * N + i + 1));
            }
        marlin_free(&m);
    }
}

/* Weights are the nearest of 16 multiples, beyond them the last one. */
static void test_weights(void **state)
{
    (void)state;
    struct marlin m;
    draw_matrix();
    w[0] = 100, w[1] = -100;
    assert_int_equal(marlin_pack(&m, w, scale, K, N, MARLIN_GROUP, &err), OK);
    assert_int_equal(marlin_code(&m, 0, 0), 15), assert_int_equal(marlin_code(&m, 0, 1), 0);
    for (int64_t k = 1; k < K; k++)
        for (int64_t n = 0; n < N; n++) {
            const double s = scale[k / MARLIN_GROUP * N + n], q = rint(w[k * N + n] / s);
            const double clamped = q < -8 ? -8 : q > 7 ? 7 : q;
            if (marlin_weight(&m, k, n) != half((float)(clamped * s)))
                fail_msg("weight %d, %d is %g, not %g", (int)k, (int)n, marlin_weight(&m, k, n), clamped * s);
        }
    marlin_free(&m);
}

/* "Dequantise, then multiply": sums in the order of k, cut where a worker's run begins inside a column. */
static void multiply_plainly(const struct marlin *m, int64_t workers)
{
    const int64_t down = K / MARLIN_TILE;
    memset(want, 0, sizeof want);
    for (int64_t i = 0; i < M; i++)
        for (int64_t n = 0; n < N; n++) {
            float sum = 0;
            bool begun = false;
            for (int64_t k = 0; k < K; k++) {
                const int64_t tile = n / MARLIN_TILE * down + k / MARLIN_TILE;
                bool cut = false;
                for (int64_t worker = 0; worker < workers; worker++)
                    cut |= marlin_run_of(m, workers, worker).first == tile;
                if (k > 0 && k % MARLIN_TILE == 0 && cut)
                    want[i * N + n] = begun ? want[i * N + n] + sum : sum, begun = true, sum = 0;
                sum = fmaf(x[i * K + k], marlin_weight(m, k, n), sum);
            }
            want[i * N + n] = begun ? want[i * N + n] + sum : sum;
        }
}

static void test_product(void **state)
{
    (void)state;
    static const int workers[] = { 1, 2, 3, 5, 8, 11 };
    struct marlin m;
    draw_matrix();
    for (int groups = 1; groups <= 2; groups++) {
        assert_int_equal(marlin_pack(&m, w, scale, K, N, K / groups, &err), OK);
        for (size_t i = 0; i < sizeof workers / sizeof *workers; i++) {
            struct marlin_counts c;
            memset(out, 0x55, sizeof out);
            assert_int_equal(marlin_multiply(&m, x, M, workers[i], out, &c, &err), OK);
            multiply_plainly(&m, workers[i]);
            for (int k = 0; k < M * N; k++)
                if (out[k] != want[k])
                    fail_msg("%d workers: number %d is %.9g; dequantised it is %.9g", workers[i], k, out[k], want[k]);
            if (c.bytes != K * N / 2 + groups * N * 2)
                fail_msg("%d workers read %d bytes; the matrix has %d", workers[i], (int)c.bytes,
                         K * N / 2 + groups * N * 2);
            assert_int_equal(c.bytes, marlin_bytes(&m));
        }
        marlin_free(&m);
    }
}

/* Every tile has one worker; loads differ by one at most; parts that are added are fewer than workers. */
static void test_runs(void **state)
{
    (void)state;
    for (int64_t down = 1; down <= 9; down++)
        for (int64_t across = 2; across <= 10; across += 2)
            for (int64_t workers = 1; workers <= 40; workers++) {
                const struct marlin m = { .K = down * MARLIN_TILE, .N = across * MARLIN_TILE };
                int64_t next = 0, most = 0, least = INT64_MAX, inside = 0;
                for (int64_t i = 0; i < workers; i++) {
                    const struct marlin_run run = marlin_run_of(&m, workers, i);
                    assert_int_equal(run.first, next);
                    next += run.count;
                    most = run.count > most ? run.count : most, least = run.count < least ? run.count : least;
                    inside += run.count > 0 && run.first % down != 0;
                }
                assert_int_equal(next, down * across);
                if (most - least > 1 || inside > workers - 1)
                    fail_msg("%d x %d tiles, %d workers: %d to %d a worker, %d cuts", (int)down, (int)across,
                             (int)workers, (int)least, (int)most, (int)inside);
            }
}

static void test_shapes(void **state)
{
    (void)state;
    struct marlin m;
    assert_int_equal(marlin_pack(&m, w, scale, 64, 256, 64, &err), ERR_USAGE);
    assert_int_equal(marlin_pack(&m, w, scale, 128, 128, 128, &err), ERR_USAGE);
    assert_int_equal(marlin_pack(&m, w, scale, 256, 256, 64, &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "must be multiples of 128 and 256, in groups of 128 or of all rows"));
}

/* ---- masked diffusion -------------------------------------------------------------------------------------------- */

static const struct masked_policy policies[] = {
    { ORDER_RANDOM, 3, 0, 0 }, { ORDER_CONFIDENCE, 3, 0, 0 }, { ORDER_THRESHOLD, 0, 0.6, 0 },
    { ORDER_FACTOR, 0, 1, 0 }, { ORDER_CONFIDENCE, 2, 0, 3 }, { ORDER_THRESHOLD, 0, 0.4, 2 },
};

static struct masked_result evaluate(const char *name, int n, const struct masked_policy *policy)
{
    struct masked_task task;
    struct masked_result r;
    if (masked_task_make(&task, name, n, 5, &err) != OK || masked_evaluate(&task, policy, 7, &r, &err) != OK)
        fail_msg("%s", err.text);
    masked_task_free(&task);
    return r;
}

#define near(a, b) assert_true(fabs((a) - (b)) < 1e-9)

/* A shuffle of n with k places a pass, of m that are left: prod m! / ((m-k)! m^k) of the answers are right. */
static void test_shuffles(void **state)
{
    (void)state;
    for (int n = 2; n <= 6; n++)
        for (int k = 1; k <= n; k++) {
            const struct masked_policy policy = { ORDER_RANDOM, (n + k - 1) / k, 0, 0 };
            if (n % k != 0) continue;
            double right = 1;
            for (int left = n; left > 0; left -= k)
                for (int i = 0; i < k; i++) right *= (double)(left - i) / left;
            const struct masked_result r = evaluate("shuffle", n, &policy);
            near(r.validity, right), near(r.loss, -log(right)), near(r.passes, n / k);
        }
    const struct masked_result eight = masked_shuffle_formula(8);
    assert_true(fabs(eight.validity - 0.0024) < 1e-4 && fabs(eight.loss - 6.03) < 5e-3);
}

/* replace-random at once: each place is the new token with 1/n.  Right answers: n (1/n) ((n-1)/n)^(n-1). */
static void test_replacements(void **state)
{
    (void)state;
    const struct masked_policy once = { ORDER_CONFIDENCE, 1, 0, 0 };
    for (int n = 2; n <= 8; n++) {
        const double right = pow((n - 1.) / n, n - 1);
        const struct masked_result r = evaluate("replace-random", n, &once);
        near(r.validity, right), near(r.loss, -log(right));
        near(evaluate("replace-index", n, &once).validity, 1), near(evaluate("copy", n, &once).loss, 0);
        near(evaluate("reverse", n, &once).validity, 1), near(evaluate("sort", n, &once).validity, 1);
    }
}

static void test_counts_of_answers(void **state)
{
    (void)state;
    static const struct { const char *name; int n; int64_t count; int length; } of[] = {
        { "shuffle", 5, 120, 5 }, { "latin-square", 3, 12, 9 }, { "latin-square", 4, 576, 16 },
        { "remove-random", 6, 6, 5 }, { "insert-random", 6, 7, 7 }, { "replace-random", 6, 6, 6 }, { "sort", 6, 1, 6 },
    };
    struct masked_task task;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        assert_int_equal(masked_task_make(&task, of[i].name, of[i].n, 3, &err), OK);
        if (task.count != of[i].count || task.length != of[i].length)
            fail_msg("%s of %d has %d answers of %d places", of[i].name, of[i].n, (int)task.count, task.length);
        masked_task_free(&task);
    }
    assert_int_equal(masked_task_make(&task, "shuffle", 9, 3, &err), ERR_USAGE);
    assert_int_equal(masked_task_make(&task, "sudoku", 3, 3, &err), ERR_USAGE);
}

/* Places by hand: confidences .9 .5 .8 .6, then with the first two there. */
static void test_choices_by_hand(void **state)
{
    (void)state;
    static const double p[] = { 0.9, 0.1, 0.5, 0.5, 0.2, 0.8, 0.6, 0.4 };
    static const struct { struct masked_policy policy; const char *first, *later; } of[] = {
        { { ORDER_CONFIDENCE, 2, 0, 0 }, "02", "23" }, { { ORDER_CONFIDENCE, 4, 0, 0 }, "0", "2" },
        { { ORDER_CONFIDENCE, 3, 0, 0 }, "02", "2" }, { { ORDER_THRESHOLD, 0, 0.6, 0 }, "023", "23" },
        { { ORDER_THRESHOLD, 0, 0.95, 0 }, "0", "2" }, { { ORDER_FACTOR, 0, 1, 0 }, "02", "2" },
        { { ORDER_CONFIDENCE, 1, 0, 2 }, "01", "23" }, { { ORDER_THRESHOLD, 0, 0.5, 1 }, "0", "2" },
    };
    const struct masked_task task = { .length = 4, .words = 2 };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int later = 0; later < 2; later++) {
            const int8_t token[] = { later ? 0 : MASKED, later ? 0 : MASKED, MASKED, MASKED };
            int place[4];
            char text[5] = "";
            const int n = masked_choose(&task, &of[i].policy, p, token, later, 1, place);
            for (int k = 0; k < n; k++) text[k] = (char)('0' + place[k]);
            if (strcmp(text, later ? of[i].later : of[i].first) != 0)
                fail_msg("policy %d takes places %s, not %s", (int)i, text, later ? of[i].later : of[i].first);
        }
}

/* Decoded many times, as many answers are right as the sum over answers says.  A block of one place is never wrong. */
static void test_drawn_answers(void **state)
{
    (void)state;
    enum { DRAWS = 3000 };
    static const struct { const char *name; int n; } tasks[] = { { "shuffle", 5 }, { "latin-square", 3 },
                                                                 { "insert-random", 6 } };
    for (int t = 0; t < 3; t++) {
        struct masked_task task;
        assert_int_equal(masked_task_make(&task, tasks[t].name, tasks[t].n, 5, &err), OK);
        for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
            struct masked_result r;
            int8_t token[MASKED_MOST];
            int right = 0;
            /* The sum has one order of random places, drawings have many: in a shuffle all are alike. */
            if (policies[i].order == ORDER_RANDOM && t > 0) continue;
            assert_int_equal(masked_evaluate(&task, &policies[i], 7, &r, &err), OK);
            for (uint64_t seed = 0; seed < DRAWS; seed++) right += masked_decode(&task, &policies[i], seed, token);
            const double deviation = sqrt(DRAWS * r.validity * (1 - r.validity)), off = right - DRAWS * r.validity;
            if (fabs(off) > 3.5 * deviation + 1e-9)
                fail_msg("%s, policy %d: %d of %d are right; the sum says %.1f +- %.1f", tasks[t].name, (int)i, right,
                         DRAWS, DRAWS * r.validity, deviation);
        }
        near(evaluate(tasks[t].name, tasks[t].n, &(struct masked_policy){ ORDER_CONFIDENCE, 1, 0, 1 }).loss, 0);
        masked_task_free(&task);
    }
}

/* ---- nano-batches ------------------------------------------------------------------------------------------------ */

static struct nano_program drawn_program(uint64_t seed)
{
    struct nano_program p = { .operations = 2 + (int)(random_uniform(seed, 1, 0) * 5), .layers = 3,
                              .launch = random_uniform(seed, 1, 1) < 0.5 ? 0 : 0.05 };
    for (int i = 0; i < p.operations; i++)
        p.operation[i] = (struct nano_operation){ "", (enum overlap_engine)(random_uniform(seed, 2, (uint64_t)i) * 3),
                                                  0.5 + random_uniform(seed, 3, (uint64_t)i) };
    return p;
}

static struct nano_plan drawn_plan(uint64_t seed)
{
    static const int batches[] = { 1, 2, 4 };
    struct nano_plan plan = nano_whole();
    plan.first = 0.2 + 0.6 * random_uniform(seed, 4, 0), plan.by_rows = random_uniform(seed, 4, 1) < 0.5;
    plan.share[OVERLAP_COMPUTE] = 0.5, plan.share[OVERLAP_MEMORY] = 0.3, plan.share[OVERLAP_NETWORK] = 0.2;
    for (int i = 0; i < NANO_OPERATIONS; i++)
        plan.batches[i] = batches[(int)(random_uniform(seed, 5, (uint64_t)i) * 3)];
    return plan;
}

/* No program is faster than its busiest engine, or slower than its engines one after another; uncut, it is the sum. */
static void test_bounds_of_nano_batches(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct nano_program p = drawn_program(seed);
        const struct nano_plan plan = drawn_plan(seed), whole = nano_whole();
        double most = 0, sum = 0, uncut = 0, time, interfered;
        for (enum overlap_engine e = 0; e < OVERLAP_ENGINES; e++) {
            const double one = nano_engine_time(&p, &plan, e);
            most = fmax(most, one), sum += one, uncut += nano_engine_time(&p, &whole, e);
        }
        assert_int_equal(nano_time(&p, &plan, &time, &err), OK);
        if (time < most - 1e-9 || time > sum + 1e-9)
            fail_msg("program %d takes %g; its engines %g at most, %g together", (int)seed, time, most, sum);
        assert_int_equal(nano_time(&p, &whole, &time, &err), OK), near(time, uncut);
        p.interference = true;
        assert_int_equal(nano_time(&p, &whole, &time, &err), OK), near(time, uncut);
        assert_int_equal(nano_time(&p, &plan, &interfered, &err), OK);
        if (interfered < most - 1e-9) fail_msg("program %d takes %g with interference", (int)seed, interfered);
    }
}

/* Two operations of 1 s in halves: the second engine begins after half, and both together are slower.  P: 1/2 of the
 * device is 0.5 for products, 0.8 + 0.1 / 0.6 * 0.2 for attention. */
static void test_interference_by_hand(void **state)
{
    (void)state;
    struct nano_program p = { .operations = 2, .layers = 1, .interference = true, .operation = {
        { "products", OVERLAP_COMPUTE, 1 }, { "attention", OVERLAP_MEMORY, 1 } } };
    struct nano_plan plan = nano_whole();
    double time, best;
    plan.batches[0] = plan.batches[1] = 2;
    const double attention = 0.8 + 0.1 / 0.6 * 0.2;
    near(overlap_speed(OVERLAP_COMPUTE, 0.5), 0.5), near(overlap_speed(OVERLAP_MEMORY, 0.5), attention);
    near(overlap_speed(OVERLAP_MEMORY, 0.2), 0.4), near(overlap_speed(OVERLAP_NETWORK, 1), 1);
    /* 0.5 s of products; then 0.5 s of attention beside products, which need 0.5 s more by then; then the last half. */
    assert_int_equal(nano_time(&p, &plan, &time, &err), OK);
    const double beside = 0.5 / attention, rest = 0.5 - 0.5 * beside;
    near(time, 0.5 + beside + rest + 0.5);
    assert_int_equal(nano_search(&p, &plan, &best, &err), OK);
    assert_true(best <= time);
    p.interference = false;
    plan = nano_whole(), plan.batches[0] = plan.batches[1] = 2;
    assert_int_equal(nano_time(&p, &plan, &time, &err), OK), near(time, 1.5);
    plan.batches[1] = 1;                                /* the second waits for all rows */
    assert_int_equal(nano_time(&p, &plan, &time, &err), OK), near(time, 2);
}

/* ---- tiers, banks ------------------------------------------------------------------------------------------------ */

/* Another simulation of LRU: by the time of each model's last use. */
static int64_t hits_by_times(const int *model, int requests, int room)
{
    int64_t used[TIERS_MODELS] = { 0 }, hits = 0;
    int held = 0;
    for (int i = 0; i < requests; i++) {
        if (used[model[i]] > 0) hits++;
        else if (held < room) held++;
        else {
            int oldest = -1;
            for (int m = 0; m < TIERS_MODELS; m++)
                if (used[m] > 0 && (oldest < 0 || used[m] < used[oldest])) oldest = m;
            used[oldest] = 0;
        }
        used[model[i]] = i + 1;
    }
    return hits;
}

static void test_tiers(void **state)
{
    (void)state;
    int model[400];
    for (int room = 1; room <= 12; room++) {
        for (int i = 0; i < 400; i++)
            model[i] = (int)(20 * random_uniform(1, 6, (uint64_t)i) * random_uniform(1, 7, (uint64_t)i));
        const struct tiers_counts lru = tiers_serve(model, 400, room, 10, false),
                                  best = tiers_serve(model, 400, room, 10, true);
        assert_int_equal(lru.hits, hits_by_times(model, 400, room));
        assert_int_equal(lru.hits + lru.misses, 400), assert_int_equal(lru.bytes, 10 * lru.misses);
        if (best.hits < lru.hits) fail_msg("with %d models the optimum has fewer hits", room);
    }
    for (int n = 1; n < 9; n++)
        assert_int_equal(tiers_chain(n, 6, 5, false) - tiers_chain(n, 6, 5, true), 2 * 6 * (n - 1));
}

static void test_banks(void **state)
{
    (void)state;
    static const int N[] = { 1, 100, 128, 129, 1000, 4096 }, K_of[] = { 16, 48, 1000, 1024, 1536, 2048 };
    for (int i = 0; i < 36; i++)
        for (enum banks_mapping m = BANKS_PACKED; m <= BANKS_NAIVE; m++) {
            const int rows = N[i / 6], depth = K_of[i % 6];
            const struct banks_counts c = banks_multiply(rows, depth, m);
            if (c.activations != banks_formula(rows, depth, m))
                fail_msg("%d x %d, mapping %d: a bank opens %d rows; the formula says %d", rows, depth, (int)m,
                         (int)c.activations, (int)banks_formula(rows, depth, m));
            assert_int_equal(c.products, (int64_t)rows * depth);
        }
}

/* ---- windows of weights ------------------------------------------------------------------------------------------ */

/* Blocks of 4, 2, 6, 2 bytes, a byte a second, each computed in 3 s.  With 2 in memory they are there at 4, 6, 13 and
 * 15 s, for the third begins when the first has left, at 7 s; with 4 at 4, 6, 12 and 14 s. */
static void test_windows_by_hand(void **state)
{
    (void)state;
    static const int64_t bytes[] = { 4, 2, 6, 2 };
    static const double compute[] = { 3, 3, 3, 3 }, seconds[] = { 26, 19, 18, 18 };
    static const int64_t peak[] = { 6, 8, 12, 14 };
    for (int window = 1; window <= 4; window++) {
        struct window_result r;
        assert_int_equal(window_pass(bytes, compute, 4, window, 1, &r, &err), OK);
        if (r.peak != peak[window - 1] || r.peak != window_peak(bytes, 4, window) || r.loaded != 14 ||
            fabs(r.seconds - seconds[window - 1]) > 1e-9)
            fail_msg("a window of %d: %d bytes at a time, %g s", window, (int)r.peak, r.seconds);
    }
}

static void test_heads(void **state)
{
    (void)state;
    static const struct { int all; double ratio[3]; int heads[3]; } of[] = {
        { 8, { 0.5, 0.3, 0.2 }, { 4, 2, 2 } }, { 8, { 1. / 3, 1. / 3, 1. / 3 }, { 2, 3, 3 } },
        { 10, { 0.7, 0.2, 0.1 }, { 7, 2, 1 } }, { 5, { 0.19, 0.19, 0.62 }, { 0, 1, 4 } },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        int heads[3];
        window_heads(of[i].all, of[i].ratio, 3, heads);
        if (memcmp(heads, of[i].heads, sizeof heads) != 0)
            fail_msg("%d heads: %d, %d, %d", of[i].all, heads[0], heads[1], heads[2]);
    }
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static void note_claim(void *context, const char *system, const char *claim, const char *published, const char *ours,
                       bool holds)
{
    (void)context;
    if (!holds) fail_msg("%s: %s: %s; ours: %s", system, claim, published, ours);
}

static void test_claims_hold(void **state)
{
    (void)state;
    assert_int_equal(serving_claims_add(&(struct serving_claims){ NULL, note_claim }, &err), OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout), cmocka_unit_test(test_factors), cmocka_unit_test(test_weights),
        cmocka_unit_test(test_product), cmocka_unit_test(test_runs), cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_shuffles), cmocka_unit_test(test_replacements), cmocka_unit_test(test_counts_of_answers),
        cmocka_unit_test(test_choices_by_hand), cmocka_unit_test(test_drawn_answers),
        cmocka_unit_test(test_bounds_of_nano_batches), cmocka_unit_test(test_interference_by_hand),
        cmocka_unit_test(test_tiers), cmocka_unit_test(test_banks), cmocka_unit_test(test_windows_by_hand),
        cmocka_unit_test(test_heads), cmocka_unit_test(test_claims_hold),
    };
    return cmocka_run_group_tests_name("serving_systems", tests, NULL, NULL);
}
