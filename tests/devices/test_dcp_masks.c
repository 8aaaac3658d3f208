/* dcp with masks: causal, the first tokens and the last ones, several answers to one question, blocks at random.
 * Output and gradients beside the operation on one device, what is sent beside the sum of cost times (devices - 1), and
 * beside keys and values around a ring.
 * ranks: 1 2 3 4
 * verify ranks: 7
 */
#include "tests/devices/tokens.h"
#include "emulated_devices/verify/cases/attention.h"
#include "ref/numeric/philox.h"
#include "ref/ops/ops.h"
#include <math.h>
#include <stdlib.h>

enum { H = 4, K = 2, A = 4, WIDTH = (H + 2 * K) * A, MOST = 600, RANGES = 16 };

static struct error err;

#define MUST(call) ASSERT_ALL((call) == OK, "%s: %s", name, err.text)

/* ---- masks ------------------------------------------------------------------------------------------------------- */

enum mask { CAUSAL, LAMBDA, SHARED_QUESTION, BLOCKWISE, MASKS };
static const char *const mask_name[] = { "causal", "lambda", "shared question", "blockwise" };

/* What a token at a place of a sample of n tokens sees: its r-th range, in the sample. */
static struct interval range_of(enum mask m, uint64_t seed, int64_t n, int64_t at, int r)
{
    const int64_t sinks = 2, window = n / 8 + 1, question = n / 3, answer = (n - question + 3) / 4, block = n / 16 + 1;
    if (m == CAUSAL) return (struct interval){ 0, r == 0 ? at + 1 : 0 };
    if (m == LAMBDA) {
        const int64_t first = at + 1 - window > sinks ? at + 1 - window : sinks;
        if (r == 0) return (struct interval){ 0, at < sinks ? at + 1 : sinks };
        return (struct interval){ first, r == 1 && at >= first ? at + 1 - first : 0 };
    }
    if (m == SHARED_QUESTION) {
        if (r == 0) return (struct interval){ 0, at < question ? at + 1 : question };
        const int64_t first = question + (at - question) / answer * answer;
        return (struct interval){ first, r == 1 && at >= question ? at + 1 - first : 0 };
    }
    const struct interval seen = interval_meet((struct interval){ r * block, block }, (struct interval){ 0, n });
    const bool own = at / block == r, drawn = random_uniform(seed, (uint64_t)(at / block), (uint64_t)r) < 0.25;
    return own || drawn ? seen : (struct interval){ seen.first, 0 };
}

/* Samples of drawn lengths, the positions of their tokens, and what these see. */
struct text {
    int64_t tokens, length[8];
    int samples, ranges;
    int32_t within[MOST], sees[MOST * RANGES * 2];
};

static void draw(struct text *t, enum mask m, uint64_t seed)
{
    t->tokens = 0, t->samples = 3 + (int)(seed % 4), t->ranges = m == CAUSAL ? 1 : m == BLOCKWISE ? RANGES : 2;
    for (int i = 0; i < t->samples; i++) {
        const int64_t n = t->length[i] = 1 + (int64_t)(90 * pow(random_uniform(seed, 1, (uint64_t)i), 2));
        for (int64_t at = 0; at < n; at++) {
            t->within[t->tokens + at] = (int32_t)at;
            for (int r = 0; r < t->ranges; r++) {
                const struct interval seen = range_of(m, seed, n, at, r);
                int32_t *const to = t->sees + ((t->tokens + at) * t->ranges + r) * 2;
                to[0] = (int32_t)(t->tokens + seen.first), to[1] = (int32_t)(t->tokens + interval_end(seen));
            }
        }
        t->tokens += n;
    }
}

/* ---- what is sent ------------------------------------------------------------------------------------------------ */

/* Bytes of all devices: numbers of a token's queries and keys, times tokens, times other devices that need them. */
static uint64_t formula(const struct context_plan *p, int64_t of_queries, int64_t of_keys)
{
    int64_t sum = 0;
    for (int b = 0; b < p->blocks; b++)
        for (int d = 0; d < p->devices; d++) {
            if (d == p->block[b].home) continue;
            const int64_t n = context_block_tokens(&p->block[b]);
            sum += context_works_with(p, CONTEXT_QUERIES, b, d) * n * of_queries;
            sum += context_works_with(p, CONTEXT_KEYS, b, d) * n * of_keys;
        }
    return (uint64_t)sum * sizeof(double);
}

/* What all devices have sent for attention since `before`, on each. */
static uint64_t sent_since(const struct account *before)
{
    struct account now = comm.counted.of[TRAFFIC_ATTENTION];
    uint64_t all[MESH_MOST_LISTED] = { 0 }, sum = 0;
    account_add(&now, *before, -1);
    const uint64_t own = account_total(&now).bytes_sent;
    assert_int_equal(comm_bring(&comm, &own, sizeof own, all, &err), OK);
    for (int i = 0; i < test_size; i++) sum += all[i];
    return sum;
}

static void pass(const char *name, struct attention_layer *l, enum tensor_pass which, uint64_t want)
{
    const struct account before = comm.counted.of[TRAFFIC_ATTENTION];
    const struct traffic foreseen = attention_layer_cost(l, which);
    MUST(attention_layer_pass(l, which, &err));
    struct account own = comm.counted.of[TRAFFIC_ATTENTION];
    account_add(&own, before, -1);
    const struct traffic counted = account_total(&own);
    ASSERT_ALL(traffic_equal(&counted, &foreseen, -1), "%s: %llu bytes, foreseen %llu", name,
               (unsigned long long)counted.bytes_sent, (unsigned long long)foreseen.bytes_sent);
    const uint64_t sum = sent_since(&before);
    ASSERT_ALL(comm.rank > 0 || sum == want, "%s: all devices send %llu bytes, by formula %llu", name,
               (unsigned long long)sum, (unsigned long long)want);
}

/* A device has its share of the work, and 1/20 of it or one work more. */
static void hold_balance(const char *name, const struct context_plan *p)
{
    double all = 0, longest = 0;
    for (int w = 0; w < p->works; w++)
        all += context_work_pairs(p, &p->work[w]), longest = fmax(longest, context_work_pairs(p, &p->work[w]));
    for (int d = 0; d < p->devices; d++)
        ASSERT_ALL(context_device_pairs(p, d) <= 1.05 * all / p->devices + longest,
                   "%s: device %d computes %.0f of %.0f pairs", name, d, context_device_pairs(p, d), all);
}

/* ---- one text ---------------------------------------------------------------------------------------------------- */

/* @return what all devices send forward, over keys and values on a ring of all. */
static double run(enum mask m, uint64_t seed)
{
    static struct text t;
    char name[80];
    struct plan plan;
    struct attention_layer l;
    draw(&t, m, seed);
    snprintf(name, sizeof name, "%s mask, %d samples, %d tokens", mask_name[m], t.samples, (int)t.tokens);
    MUST(attention_layer_plan(&plan, (struct attention_shape){ 1, t.tokens, H, K, A }, F64, "dcp",
                              (struct context_split){ 0 }, test_size, NULL, &err));
    plan.within = t.within;
    const struct tensor mask = tensor_2d(t.sees, I32, t.tokens, 2 * t.ranges);
    MUST(attention_layer_open(&l, &plan, &comm, mask, &err));
    struct intervals own = context_tokens(&l.cp), all = intervals_whole(t.tokens);
    const struct tensor qkv = host(t.tokens, WIDTH), d_qkv = host(t.tokens, WIDTH), out = host(t.tokens, H * A),
                        d_out = host(t.tokens, H * A), lse = host(H, t.tokens);
    fill(qkv, all, 1), fill(d_out, all, 2);
    fill_own(l.call.qkv, own, 1), fill_own(l.call.d_out, own, 2);
    ops_for(F64)->attention_forward(out, lse, qkv, l.call.shape);
    ops_for(F64)->attention_backward_input(d_qkv, d_out, out, lse, qkv, l.call.shape);
    pass(name, &l, FORWARD_PASS, formula(&l.placed, 2 * H * A + H, 2 * K * A));
    hold(name, "output", l.call.out, own, out);
    pass(name, &l, INPUT_PASS, formula(&l.placed, 3 * H * A + 2 * H, 2 * 2 * K * A));
    hold(name, "gradient", l.call.d_qkv, own, d_qkv);
    hold_balance(name, &l.placed);
    const double ring = (double)(2 * K * A * t.tokens * (test_size - 1)) * sizeof(double);
    const double moved = (double)formula(&l.placed, 2 * H * A + H, 2 * K * A) / (ring > 0 ? ring : 1);
    attention_layer_close(&l), intervals_free(&own), intervals_free(&all);
    free(qkv.data), free(d_qkv.data), free(out.data), free(d_out.data), free(lse.data);
    return moved;
}

static void test_masks(void **state)
{
    double moved[MASKS] = { 0 };
    (void)state;
    for (enum mask m = CAUSAL; m < MASKS; m++)
        for (uint64_t seed = 1; seed <= 6; seed++) moved[m] += run(m, seed) / 6;
    for (enum mask m = CAUSAL; m < MASKS; m++)
        ASSERT_ALL(moved[m] < (m == LAMBDA ? 0.2 : 0.5), "%s mask: %.2f of a ring are sent", mask_name[m], moved[m]);
}

/* Only what is in the sample, and each block sees something. */
static void test_refused(void **state)
{
    static struct text t;
    const char *const name = "refused";
    struct plan plan;
    struct context_plan p;
    (void)state;
    draw(&t, CAUSAL, 1);
    MUST(attention_layer_plan(&plan, (struct attention_shape){ 1, t.tokens, H, K, A }, F64, "dcp",
                              (struct context_split){ 0 }, test_size, NULL, &err));
    plan.within = t.within;
    const struct tensor mask = tensor_2d(t.sees, I32, t.tokens, 2);
    t.sees[2 * t.tokens - 2] = 0;
    const enum error_code other = plan_context(&plan, 0, 0, mask, &p, &err);
    ASSERT_ALL(other == ERR_PLAN, "a mask over samples: %s", error_meaning(other));
    for (int64_t i = 0; i < 2 * t.tokens; i++) t.sees[i] = 0;
    const enum error_code nothing = plan_context(&plan, 0, 0, mask, &p, &err);
    ASSERT_ALL(nothing == ERR_PLAN, "a mask of nothing: %s", error_meaning(nothing));
}

static struct context_plan planned(struct plan *plan, const int32_t *within)
{
    const char *const name = "a plan";
    struct context_plan p;
    plan->within = within;
    MUST(plan_context(plan, 0, 0, tensor_none, &p, &err));
    return p;
}

/* As many samples, of other lengths; then the first ones again, twice; then these under a mask. */
static void test_each_has_its_own_plan(void **state)
{
    enum { LONG = 41, SHORT = 22, ALL = LONG + SHORT };
    const char *const name = "a layer";
    int32_t within[2][ALL];
    struct plan plan;
    (void)state;
    for (int i = 0; i < ALL; i++) within[0][i] = i < LONG ? i : i - LONG, within[1][i] = i < SHORT ? i : i - SHORT;
    MUST(attention_layer_plan(&plan, (struct attention_shape){ 1, ALL, H, K, A }, F64, "dcp",
                              (struct context_split){ 0 }, test_size, NULL, &err));
    struct context_plan first = planned(&plan, within[0]), other = planned(&plan, within[1]),
                        again = planned(&plan, within[0]), copied = planned(&plan, within[0]);
    MUST(attention_mask_parse(&plan.model.mask, "lambda:2,5", &err));
    struct context_plan masked = planned(&plan, within[0]);
    ASSERT_ALL(strcmp(first.digest.text, masked.digest.text) != 0 && masked.works < first.works,
               "another mask has the same plan");
    context_plan_free(&masked);
    ASSERT_ALL(strcmp(first.digest.text, other.digest.text) != 0, "other samples have the same plan");
    ASSERT_ALL(strcmp(first.digest.text, again.digest.text) == 0, "the same samples have two plans");
    context_plan_free(&again);
    ASSERT_ALL(copied.works == first.works &&
               memcmp(copied.work, first.work, sizeof *first.work * (size_t)first.works) == 0 &&
               memcmp(copied.pairs, first.pairs, sizeof *first.pairs * (size_t)first.works) == 0,
               "a copied plan has other work");
    context_plan_free(&first), context_plan_free(&other), context_plan_free(&copied);
}

int main(void)
{
    const struct CMUnitTest tests[] = { ON_DEVICES(test_masks), ON_DEVICES(test_refused),
                                        ON_DEVICES(test_each_has_its_own_plan) };
    return MPI_RUN("dcp with masks", tests);
}
