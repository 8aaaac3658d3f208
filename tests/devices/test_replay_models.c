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
    { "golden/olmo2-grouped.safetensors", "norms of all queries and of all keys, and of what branches give", NULL },
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

/* Mark the tokens that choose an expert by these logits; of sorted rows those that it gets. */
static void mark(struct dump *d, const char *logits, int32_t expert, bool sorted)
{
    const int64_t k = d->golden.config.mixture.k;
    int64_t row = 0;
    for (int i = 0; i < d->count; i++) {
        const struct tensor x = d->kept[i].values;
        if (strcmp(d->kept[i].name, logits) != 0) continue;
        const int64_t N = tensor_rows(x);
        struct tensor w = tensor_2d(malloc((size_t)(N * k) * 8), F64, N, k), chosen = w;
        chosen.dtype = I32, chosen.data = malloc((size_t)(N * k) * 4);
        ops_for(F64)->route_forward(w, chosen, x, &d->golden.config.mixture.router, NULL);
        memset(d->marked, 0, sizeof d->marked);
        for (int32_t e = 0; e <= expert; e++)
            for (int64_t at = 0; at < N * k; at++) {
                if (((int32_t *)chosen.data)[at] != e) continue;
                if (e == expert) d->marked[sorted ? row : at / k] = true;
                row++;
            }
        free(w.data), free(chosen.data);
    }
}

static void an_expert_is_named(void **state)
{
    static const struct subject mixture = { "golden/mixtral-top2.safetensors", "a mixture", NULL };
    static const struct { const char *name; bool sorted; const char *words; } errors[] = {
        { "act/h.1.experts.out", true, "only expert 3 of 5" }, { "grad/h.0.mlp.up", true, "only expert 3 of 5" },
        { "act/h.0.mlp.act", true, "only expert 3 of 5" }, { "act/h.1.mlp.out", false, "only tokens of expert 3 of 5" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct dump d;
        char logits[64], text[300];
        open_subject(&d, &mixture, BF16);
        snprintf(logits, sizeof logits, "act/h.%c.router.logits", strchr(errors[i].name, '.')[1]);
        run(&d);
        mark(&d, logits, 3, errors[i].sorted);
        if (!is_found(&d, errors[i].name, MARKED)) fail_msg("%s: no error is found", errors[i].name);
        if (strstr(single_describe(&d.first, text, sizeof text), errors[i].words) == NULL)
            fail_msg("%s is '%s', not '%s'", errors[i].name, text, errors[i].words);
        close_dump(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(clean_runs_are_right), cmocka_unit_test(a_factor_is_found),
                                        cmocka_unit_test(an_expert_is_named) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
