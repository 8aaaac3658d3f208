/* Tensor parallelism by signatures: every division of a product on numbers whose sums are exact; whole models under
 * the shipped layouts and under drawn ones, held to the one-device model, to formulas, and to the schemes that they
 * describe.
 * ranks: 3
 * verify ranks: 2 4 5 6 8
 */
#include "tests/devices/exact_linear.h"
#include "tests/tier.h"
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/numeric/philox.h"
#include <string.h>

static const struct sbp signs[] = { ON_B, ON_S(0), ON_S(1) };
enum { SIGNS = sizeof signs / sizeof *signs };

static bool in_verify(void) { return tier_now() == TIER_VERIFY; }

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* A layout whose product of this role has these signatures. */
static struct sbp_layout with(enum param_role role, struct sbp stream, struct sbp inner, struct sbp weight)
{
    const bool attention = inner_side(role) == AT_HEADS, vocabulary = inner_side(role) == AT_LOGITS;
    const enum sbp_role side = attention ? SBP_HEADS : vocabulary ? SBP_LOGITS : SBP_HIDDEN;
    const enum sbp_role matrix = vocabulary  ? SBP_HEAD
                                 : attention ? (leads_inside(role) ? SBP_QKV : SBP_PROJ)
                                             : (leads_inside(role) ? SBP_FC : SBP_FC2);
    struct sbp_layout l = { 0 };                                /* B */
    l.of[SBP_STREAM] = stream, l.of[SBP_INPUTS] = stream, l.of[side] = inner, l.of[matrix] = weight;
    return l;
}

static void check_products(const struct model_config *c, int64_t N)
{
    static const char *const words[] = { "qkv", "out", "up", "down", "head" };
    for (int i = 0; i < 5 * SIGNS * SIGNS * SIGNS; i++) {
        const struct sbp stream = signs[i % SIGNS], inner = signs[i / SIGNS % SIGNS],
                         weight = signs[i / SIGNS / SIGNS % SIGNS];
        const char *word = words[i / (SIGNS * SIGNS * SIGNS)];
        enum param_role role;
        char name[80];
        assert_int_equal(linear_role(&role, word, &err), OK);
        struct sbp_layout l = with(role, stream, inner, weight);
        snprintf(name, sizeof name, "stream %d.%d, inner %d.%d, weight %d.%d", stream.kind, stream.dim, inner.kind,
                 inner.dim, weight.kind, weight.dim);
        for (int kept = 0; kept <= (sbp_equal(stream, signs[1]) ? 1 : 0); kept++) {
            struct linear_layer layer;
            if (kept) l.of[SBP_INPUTS] = signs[0];
            const struct sbp_scheme s = sbp_scheme_of(&l, name);
            const enum error_code e = linear_shape(&layer, &s.scheme, role, test_size, c, N, &err);
            ASSERT_ALL(e == OK, "%s: %s", name, err.text);
            check_exact_layer(&layer, word);
        }
    }
}

static void test_every_product(void **state)
{
    const int P = test_size;
    const struct model_config even = { .S = 1, .D = 2 * P, .H = P, .K = P, .A = 2, .F = 3 * P, .L = 1, .V = 2 * P },
                              odd = { .S = 1, .D = 3 * P + 3, .H = P + 1, .K = P + 1, .A = 3, .F = 2 * P + 3, .L = 1,
                                      .V = 2 * P + 1 };
    (void)state;
    if (in_verify()) check_products(&even, 2 * P);
    check_products(&odd, 2 * P + 1);
    if (in_verify()) check_products(&odd, P - 1);               /* a device has no rows */
}

/* ---- whole models ------------------------------------------------------------------------------------------------ */

static struct outcome run(struct plan *p, const char *what)
{
    struct outcome o;
    enum error_code e = plan_check(p, &err);
    if (!e) e = case_run(p, &o, &err);
    ASSERT_ALL(e == OK, "%s dp=%d tp=%d %s: %s", p->tensor, p->mesh.size[DP], p->mesh.size[TP], what, err.text);
    ASSERT_ALL(o.verdict.code == OK, "%s dp=%d tp=%d %s: %s", p->tensor, p->mesh.size[DP], p->mesh.size[TP], what,
               o.verdict.text);
    return o;
}

/* On six devices two copies of the model, each on three. */
static struct plan plan_on(const char *tensor)
{
    const int dp = test_size == 6 ? 2 : 1;
    struct plan p = case_plan(dp, test_size / dp, 1);
    p.tensor = tensor;
    return p;
}

/* The same bits, and the same messages: so the same virtual time. */
static void check_equal(const char *layout, const char *scheme)
{
    struct plan a = plan_on(layout), b = plan_on(scheme);
    const struct outcome mine = run(&a, "tied"), theirs = run(&b, "tied");
    ASSERT_ALL(mine.hash == theirs.hash, "%s ends with other bits than %s", layout, scheme);
    ASSERT_ALL(mine.time == theirs.time && mine.flops == theirs.flops, "%s takes %lld ps, %s %lld", layout,
               (long long)mine.time, scheme, (long long)theirs.time);
    ASSERT_ALL(mine.activations == theirs.activations, "%s keeps %llu bytes, %s %llu", layout,
               (unsigned long long)mine.activations, scheme, (unsigned long long)theirs.activations);
}

static void test_as_the_built_in_schemes(void **state)
{
    struct sbp_layout kept;
    const struct scheme *s;
    (void)state;
    check_equal("sbp:megatron", "1d");
    check_equal("sbp:sequence", "1d-sp");
    assert_int_equal(scheme_find(&s, TENSOR_SCHEME, "sbp:sequence", &err), OK);
    kept = ((const struct sbp_scheme *)s)->layout;
    kept.of[SBP_INPUTS] = signs[0];
    static struct sbp_scheme keeping;
    keeping = sbp_scheme_of(&kept, "kept");
    assert_int_equal(scheme_add(&keeping.scheme.head, &err), OK);
    check_equal("kept", "1d-sp-keep");
}

static void test_shipped(void **state)
{
    (void)state;
    assert_int_equal(sbp_schemes_add(&err), OK);
    for (const char *const *t = sbp_layout_texts; *t; t += 2) {
        char name[64];
        snprintf(name, sizeof name, "sbp:%s", t[0]);
        struct plan p = plan_on(name);
        case_take_llama(&p);
        run(&p, "llama");
        p = plan_on(name);
        if (in_verify()) run(&p, "tied");
    }
}

/* One layout after another that no paper has. */
static struct sbp_layout drawn(int seed)
{
    struct sbp_layout l;
    enum sbp_role role;
    for (uint64_t draw = 0;; draw++) {
        for (int r = 0; r < SBP_ROLE_COUNT; r++)
            l.of[r] = signs[(int)(SIGNS * random_uniform((uint64_t)seed, (uint64_t)r, draw)) % SIGNS];
        l.of[SBP_HEAD] = l.of[SBP_EMBEDDING];                   /* models are tied */
        if (sbp_layout_refuses(&l, &role) == NULL) return l;
    }
}

static void test_drawn(void **state)
{
    static void (*const take[])(struct plan *) = { NULL, case_take_llama, case_take_qwen2, case_take_gptj };
    static struct sbp_scheme scheme[64];
    static char name[64][32];
    const int layouts = in_verify() ? 24 : 2;
    (void)state;
    for (int i = 0, tried = 0; i < layouts; tried++) {
        const struct sbp_layout l = drawn(100 * test_size + tried);
        snprintf(name[i], sizeof name[i], "drawn %d", tried);
        scheme[i] = sbp_scheme_of(&l, name[i]);
        struct plan p = plan_on(name[i]);
        if (take[i % 4]) take[i % 4](&p);
        if (tensor_check(&scheme[i].scheme, &p.model, p.mesh.size[TP], &err)) continue;
        assert_int_equal(scheme_add(&scheme[i].scheme.head, &err), OK);
        run(&p, "drawn");
        i++;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_product), MPI_TEST(test_as_the_built_in_schemes), MPI_TEST(test_shipped),
        MPI_TEST(test_drawn),
    };
    return MPI_RUN("tensor sbp", tests);
}
