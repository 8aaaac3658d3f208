/* Every operation of every kind of model held to its own rounding: clean runs raise no alarm, a factor is found in each
 * tensor, and in no other.
 */
#include "tests/devices/replaying.h"
#include "tests/tier.h"

/* ---- models without a golden file -------------------------------------------------------------------------------- */

static void drop(struct model_config *c)
{
    c->dropout_embedding = 0.125, c->dropout_residual = 0.25, c->dropout_attention = 0.3;
}

static void share(struct model_config *c) { c->mixture.shared = 7; }

static void share_by_gate(struct model_config *c)
{
    share(c);
    c->mixture.shared_gate = true, c->mixture.sequence_coefficient = 0.1;
}

static void keep_some(struct model_config *c)
{
    c->mixture.capacity_factor = 0.75, c->mixture.drops_by_weight = true;
    c->mixture.router.normalized = false;
}

static void score_by_sigmoids(struct model_config *c)
{
    c->mixture.router.scores = SCORES_SIGMOID, c->mixture.router.scale = 2.5;
}

static void return_some(struct model_config *c)
{
    c->mixture.zero = 3, c->mixture.router.normalized = false;
}

static void cut_short(struct model_config *c)
{
    c->shortcut = true, c->mixture.zero = 2;
}

static const struct subject { const char *file, *what; void (*change)(struct model_config *); } subjects[] = {
    { "golden/qwen3-wider.safetensors", "norms of heads", NULL },
    { "golden/gemma-wider.safetensors", "norms from one, scaled embeddings, a geglu", NULL },
    { "golden/parscale-grouped.safetensors", "streams", NULL },
    { "golden/mixtral-top2.safetensors", "a mixture", NULL },
    { "golden/gpt2-tied.safetensors", "dropout", drop },
    { "golden/llama-grouped.safetensors", "dropout", drop },
    { "golden/mixtral-top2.safetensors", "shared experts", share },
    { "golden/mixtral-top2.safetensors", "gated shared experts, loss of sequences", share_by_gate },
    { "golden/mixtral-top2.safetensors", "a capacity", keep_some },
    { "golden/mixtral-top2.safetensors", "sigmoids", score_by_sigmoids },
    { "golden/mixtral-top2.safetensors", "experts without computation", return_some },
    { "golden/mixtral-top2.safetensors", "a shortcut", cut_short },
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };
static const enum dtype formats[] = { F64, F32, BF16, F16 };
enum { FORMATS = sizeof formats / sizeof *formats };

static void open_subject(struct dump *d, const struct subject *s, enum dtype t)
{
    open_changed(d, s->file, s->change, t);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void clean_runs_are_right(void **state)
{
    (void)state;
    for (int i = 0; i < SUBJECTS; i++)
        for (int t = 0; t < FORMATS; t++) {
            struct dump d;
            if (formats[t] != F64 && formats[t] != BF16 && tier_now() != TIER_VERIFY) continue;
            open_subject(&d, &subjects[i], formats[t]);
            expect_clean(&d, subjects[i].what);
            close_dump(&d);
        }
}

/* Zeros, such as the gradients of an expert without rows; and gradients whose memory is also that of another tensor's,
 * in which an error then is, too: the sum's, which is that of both its terms. */
static bool shows_nothing(const struct kept *k, const struct model_config *c)
{
    bool zero = true;
    for (int64_t i = 0; i < tensor_count(k->values); i++) zero = zero && tensor_get(k->values, i) == 0;
    return zero || (strncmp(k->name, "grad/", 5) == 0 &&
                    (strstr(k->name, ".routed.out") || strstr(k->name, ".shared.gated") ||
                     (strstr(k->name, ".shared.out") && !c->mixture.shared_gate)));
}

static void a_factor_is_found(void **state)
{
    static char name[MOST][SINGLE_NAME];
    static bool not[MOST];
    (void)state;
    for (int i = 0; i < SUBJECTS; i++)
        for (int t = 1; t < FORMATS; t++) {
            struct dump d;
            if ((formats[t] != BF16 || i % 3 != 2) && tier_now() != TIER_VERIFY) continue;
            open_subject(&d, &subjects[i], formats[t]);
            const int n = names_of(&d, name);
            for (int k = 0; k < n; k++) not[k] = shows_nothing(&d.kept[k], &d.golden.config);
            for (int k = 0; k < n; k++)
                if (!not[k] && !is_found(&d, name[k], TIMES))
                    fail_msg("%s, %s, %s: %s times 1.1 is not found", subjects[i].file, subjects[i].what,
                             dtype_name(formats[t]), name[k]);
            close_dump(&d);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(clean_runs_are_right), cmocka_unit_test(a_factor_is_found) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
