/* Activations computed again are the same bits, cost the operations they should, and the memory that is left is by
 * formula.
 * ranks: 1 2
 * verify ranks: 4
 *
 * selective++ keeps attention's output and log-sum-exp, and nothing else: memory and messages in closed form.
 *
 * With dropout, so that a mask drawn differently the second time would show; under every schedule, among them those
 * that run the two halves of backward apart; under every tensor scheme, whose collectives run again.  case_run holds
 * memory peaks, messages and bytes to their formulas on the way.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/plan/recompute.h"
#include "emulated_devices/verify/cases/case.h"
#include "tests/tier.h"
#include <string.h>

static struct error err;
static const char *const choices[] = { "selective", "full", "selective++", "1,0" };
enum { CHOICES = 4 };

static struct outcome run(const struct plan *plan, const char *choice)
{
    struct plan p = *plan;
    struct outcome o;
    p.recompute = choice;
    enum error_code e = plan_check(&p, &err);
    if (!e) e = case_run(&p, &o, &err);
    ASSERT_ALL(e == OK, "%s %s, %s: %s", p.tensor, p.schedule, choice, err.text);
    ASSERT_ALL(o.verdict.code == OK, "%s %s, %s: %s", p.tensor, p.schedule, choice, o.verdict.text);
    return o;
}

static struct plan with_dropout(int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    p.model.dropout_embedding = 0.1, p.model.dropout_residual = 0.2, p.model.dropout_attention = 0.3;
    return p;
}

static void test_same_bits_in_every_scheme(void **state)
{
    (void)state;
    for (int i = 0; tensor_scheme_at(i); i++) {
        struct plan p = with_dropout(1, test_size, 1);
        p.tensor = tensor_scheme_at(i)->head.name;
        if ((test_size == 2 && !tier_takes(i, 2)) || plan_check(&p, &err) != OK) continue;
        const struct outcome none = run(&p, "none");
        for (int c = test_size > 2 ? CHOICES - 2 : 0; c < CHOICES; c++) {
            const struct outcome o = run(&p, choices[c]);
            ASSERT_ALL(o.hash == none.hash, "%s, recompute %s: other bits than without", p.tensor, choices[c]);
        }
    }
}

static void test_same_bits_in_every_schedule(void **state)
{
    (void)state;
    if (test_size != 2) return;                 /* two places show it all: more take long */
    for (int i = 0; schedule_generator_at(i); i += tier_now() == TIER_VERIFY ? 1 : 5) {
        struct plan p = with_dropout(1, 1, test_size);
        p.model.tied = false;
        if (case_take_schedule(&p, schedule_generator_at(i)->head.name, &err) != OK) continue;
        const struct outcome none = run(&p, "none"), full = run(&p, "full");
        ASSERT_ALL(full.hash == none.hash, "%s, recompute full: other bits than without", p.schedule);
    }
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* What one layer computes again for N tokens, from the costs of its operations. */
static double layer_flops(const struct plan *p, enum recompute r, int64_t N)
{
    const struct model_config *c = &p->model;
    const struct attention a = { .S = p->S, .H = c->H, .K = c->H, .A = c->A };
    const double ND = (double)(N * c->D), NF = (double)(N * c->F), core = attention_forward_cost(N, a, p->dtype).flops;
    if (r == RECOMPUTE_SELECTIVE) return core;
    if (r == RECOMPUTE_NONE) return 0;
    return (r == RECOMPUTE_FULL ? core : 0)
         + linear_cost(N, c->D, 3 * c->D, p->dtype).flops + linear_cost(N, c->D, c->D, p->dtype).flops
         /* norms, gelu, dropout and add */
         + linear_cost(N, c->D, c->F, p->dtype).flops + 2 * 8 * ND + 8 * NF + 2 * ND;
}

static double expected_flops(const struct plan *p, const char *choice)
{
    double sum = 0;
    for (int64_t l = plan_first_layer(p, test_rank); l < plan_first_layer(p, test_rank + 1); l++)
        for (int m = 0; m < p->micros; m++)
            sum += layer_flops(p, recompute_of(choice, l), plan_microbatch(p, 0, m).count * p->S);
    return CASE_STEPS * sum;
}

static void test_recomputed_operations(void **state)
{
    (void)state;
    struct plan p = with_dropout(1, 1, test_size);
    ASSERT_ALL(plan_check(&p, &err) == OK, "%s", err.text);
    const struct outcome none = run(&p, "none");
    for (int c = 0; c < CHOICES; c++) {
        const double again = run(&p, choices[c]).flops - none.flops, want = expected_flops(&p, choices[c]);
        ASSERT_ALL(again == want, "recompute %s: %.0f operations more than without, not %.0f", choices[c], again, want);
    }
}

/* ---- attention over cp ------------------------------------------------------------------------------------------- */

/* Bytes that this device's attention sends in a step, predicted.  Every run holds the counters to it. */
static uint64_t attention_sends(const struct plan *plan, const char *choice)
{
    static struct trainer t;
    struct device d;
    struct comm nobody;
    struct plan p = *plan;
    p.recompute = choice;
    assert_int_equal(plan_check(&p, &err), OK);
    assert_int_equal(device_open(&d, NULL, p.dtype, 0, &err), OK);
    assert_int_equal(comm_outline(&nobody, &d, test_rank, test_size, &err), OK);
    assert_int_equal(trainer_outline(&t, &p, &nobody, &err), OK);
    const struct account sent = trainer_cost(&t, TRAFFIC_ATTENTION);
    trainer_close(&t), comm_outline_close(&nobody), device_close(&d);
    return account_total(&sent).bytes_sent;
}

/* Before backward, h devices exchange queries, keys, values and results again; nothing travels on rings. */
static void sends_no_keys_again(const struct plan *p, int h)
{
    const uint64_t none = attention_sends(p, "none"), again = attention_sends(p, "selective++") - none,
                   full = attention_sends(p, "full") - none, n = (uint64_t)(p->B * p->S / test_size),
                   want = (uint64_t)p->model.L * 4 * n * (uint64_t)p->model.D * (uint64_t)(h - 1) / (uint64_t)h *
                          dtype_size(p->dtype);
    ASSERT_ALL(again == want && again <= full, "%s: selective++ sends %llu bytes of attention again, not %llu",
               p->attention, (unsigned long long)again, (unsigned long long)want);
}

/* Bytes of activations that more layers add to this device's peak. */
static uint64_t bytes_of_layers(struct plan p, const char *choice, int64_t from, int64_t to)
{
    /* Where all layers have a window, further layers have it, too. */
    if (model_windowed_layers(&p.model) == p.model.L) windows_add(&p.model.windows, 0, to);
    struct plan less = p;
    less.model.L = from, less.model.windows = (struct windows){ .size = p.model.windows.size };
    for (int64_t l = 0; l < from; l++)
        if (model_window(&p.model, l)) windows_add(&less.model.windows, l, l + 1);
    const uint64_t few = run(&less, choice).activations;
    p.model.L = to;
    return run(&p, choice).activations - few;
}

/* A layer keeps its input and attention's output, in 16 bits 2 B S D/P bytes each, and B S H/P fp32 log-sum-exps (rsa:
 * for each key a probability).  The gradients have the bits that they have without. */
static void attention_is_kept(const struct attention_scheme *scheme)
{
    struct plan p = with_dropout(1, 1, 1);
    p.S = p.model.S = 2 * test_size, p.B = 4, p.micros = 1, p.dtype = BF16;
    p.model.D = 24, p.model.H = p.model.K = 8, p.model.A = 3;
    case_take_context(&p, test_size, scheme->head.name);
    p.split.heads = scheme->splits ? test_size / 2 : 0;
    if (plan_check(&p, &err) != OK) return;
    const bool scores = strcmp(p.attention, "rsa") == 0;
    const uint64_t n = (uint64_t)(p.B * p.S / test_size), D = 24, H = 8, kept = bytes_of_layers(p, "selective++", 2, 3),
                   want = 2 * (2 * n * D) + 4 * n * H * (scores ? (uint64_t)p.S : 1);
    ASSERT_ALL(kept == want, "%s: selective++ keeps %llu bytes a layer, not %llu", p.attention,
               (unsigned long long)kept, (unsigned long long)want);
    if (scheme->plan == NULL)
        sends_no_keys_again(&p, scheme->splits ? p.split.heads : scheme->exchanged ? test_size : 1);
    p.dtype = F64;
    const uint64_t none = run(&p, "none").hash, again = run(&p, "selective++").hash;
    ASSERT_ALL(again == none, "%s, selective++: other bits than without", p.attention);
}

static void test_attention_is_not_computed_again(void **state)
{
    (void)state;
    for (int i = 0; attention_scheme_at(i) && test_size > 1; i++)
        if (!attention_scheme_at(i)->cuts_streams && tier_takes(i + test_size / 2, 3))
            attention_is_kept(attention_scheme_at(i));
}

/* ---- what is left of a layer ------------------------------------------------------------------------------------- */

/* Its input, and of a norm that writes its output a number or two a row: with full recomputation a layer keeps nothing
 * else, whatever blocks are made of.  By two layers, as every other one may be of another kind. */
static void test_full_keeps_the_input_of_a_layer(void **state)
{
    (void)state;
    for (int i = 0; case_model_at(i) && test_size == 1; i++) {
        if (!tier_takes(i, 3)) continue;
        struct plan p = case_plan(1, 1, 1);
        case_model_at(i)->take(&p);
        p.micros = 1;
        const uint64_t rows = 2 * (uint64_t)(p.B * p.S * STREAMS(&p.model)), D = (uint64_t)p.model.D,
                       input = rows * D * dtype_size(p.dtype), kept = bytes_of_layers(p, "full", 3, 5);
        ASSERT_ALL(kept >= input && kept <= input + 2 * rows * dtype_size(p.dtype),
                   "%s: full recomputation keeps %llu bytes of two layers; their inputs are %llu",
                   case_model_at(i)->name, (unsigned long long)kept, (unsigned long long)input);
    }
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

static void test_choices(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", "all", "1,", ",1", "2-1", "1-", "0-8", "8", "-1", "1 2", "99999999999999999999"
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ASSERT_ALL(recompute_check(bad[i], 8, &err) == ERR_USAGE, "\"%s\" is taken for a choice", bad[i]);
    ASSERT_ALL(recompute_check("0,2-5,7", 8, &err) == OK, "%s", err.text);
    for (int64_t l = 0; l < 8; l++)
        ASSERT_ALL((recompute_of("0,2-5,7", l) == RECOMPUTE_FULL) == (l != 1 && l != 6), "layer %lld of 0,2-5,7",
                   (long long)l);
    ASSERT_ALL(recompute_of(NULL, 0) == RECOMPUTE_NONE && recompute_of("selective", 3) == RECOMPUTE_SELECTIVE &&
               recompute_of("selective++", 3) == RECOMPUTE_BUT_ATTENTION, "names");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_same_bits_in_every_scheme),
        MPI_TEST(test_same_bits_in_every_schedule),
        MPI_TEST(test_recomputed_operations),
        MPI_TEST(test_attention_is_not_computed_again),
        MPI_TEST(test_full_keeps_the_input_of_a_layer),
        MPI_TEST(test_choices),
    };
    return MPI_RUN("recompute", tests);
}
