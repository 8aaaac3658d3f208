/* Every operation of every kind of model held to its own rounding: clean runs raise no alarm, a factor is found in each
 * tensor, and in no other.
 */
#include "tests/devices/replaying.h"
#include "emulated_devices/device/interval.h"
#include "ref/model/families/families.h"
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
    c->family = &family_scmoe, c->shortcut = true, c->mixture.zero = 2;
}

static const struct subject { const char *file, *what; void (*change)(struct model_config *); } subjects[] = {
    { "golden/qwen3-wider.safetensors", "norms of heads", NULL },
    { "golden/gemma-wider.safetensors", "norms from one, scaled embeddings, a geglu", NULL },
    { "golden/gemma2-windows.safetensors", "norms around branches, capped scores and logits", NULL },
    { "golden/gemma3-pattern.safetensors", "two kinds of rotary positions", NULL },
    { "golden/olmo2-grouped.safetensors", "norms of all queries and of all keys, and of what branches give", NULL },
    { "golden/gptoss-windows.safetensors", "sinks, windows, experts with biases", NULL },
    { "golden/parscale-grouped.safetensors", "streams", NULL },
    { "golden/deepseekv2-groups.safetensors", "latents, experts in groups", NULL },
    { "golden/deepseekv2-yarn.safetensors", "latents of keys and values only, yarn", NULL },
    { "golden/deepseekv3-groups.safetensors", "latents, corrected experts in groups", NULL },
    { "golden/mixtral-top2.safetensors", "a mixture", NULL },
    { "golden/gpt2-tied.safetensors", "dropout", drop },
    { "golden/llama-grouped.safetensors", "dropout", drop },
    { "golden/nanogpt-plain.safetensors", "the exact gelu, norms without biases", NULL },
    { "golden/nemotron-part.safetensors", "the squared relu, layernorms from one", NULL },
    { "golden/gptneox-parallel.safetensors", "two norms of parallel branches", NULL },
    { "golden/granite-multiplied.safetensors", "multipliers", NULL },
    { "golden/smollm3-layers.safetensors", "layers without positions", NULL },
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

/* Of a mixture the rows of each expert that a tile's tokens have chosen. */
static void tiles_change_nothing(void **state)
{
    static const char *const wrong[] = { NULL, "act/h.0.mlp.up", "grad/h.0.mlp.act" };
    (void)state;
    for (int i = 0; i < SUBJECTS; i++)
        for (int w = 0; w < 3; w++) {
            struct dump d;
            open_subject(&d, &subjects[i], BF16);
            if (wrong[w]) d.target[0] = wrong[w], d.error = ONE_ROW;
            run(&d);
            const struct said whole = say(&d, 0), tiles = say(&d, 100);
            expect_same(&d, &whole, &tiles);
            if (w == 0 && d.whole > 0)
                fail_msg("%s, %s: activations are read whole", d.golden.file.path, subjects[i].what);
            close_dump(&d);
        }
}

/* Zeros, such as the gradients of an expert without rows; and gradients whose memory is also that of another tensor's,
 * in which an error then is, too: the sum's, which is that of both its terms. */
static bool shows_nothing(const struct shown *k, const struct model_config *c)
{
    bool zero = true;
    for (int64_t i = 0; i < tensor_count(k->values); i++) zero = zero && tensor_get(k->values, i) == 0;
    return zero || (strncmp(k->name, "grad/", 5) == 0 &&
                    (strstr(k->name, ".routed.out") || strstr(k->name, ".shared.gated") ||
                     (strstr(k->name, ".shared.out") && !c->mixture.shared_gate)));
}

/* Gradients that are nearly all subnormal numbers of the format: only that of the logits, which is not what the loss
 * gives, is wrong, and their norm. */
static void subnormal_gradients_are_right(void **state)
{
    static const double scale[] = { [F32] = 0x1p-138, [BF16] = 0x1p-122, [F16] = 0x1p-14 };
    (void)state;
    for (int i = 0; i < SUBJECTS; i++)
        for (int t = 1; t < FORMATS; t++) {
            struct dump d;
            open_subject(&d, &subjects[i], formats[t]);
            struct mixture_config *const m[] = { &d.golden.config.mixture, &d.model.config.mixture };
            for (int k = 0; k < 2; k++)
                m[k]->balance_coefficient = m[k]->z_coefficient = m[k]->sequence_coefficient = 0;
            d.scaled = true, d.model.loss_scale = scale[formats[t]];
            run(&d), check(&d);
            print_message("%s, %s, in %s: %d operations, %d only by steps\n", subjects[i].file, subjects[i].what,
                          dtype_name(formats[t]), d.checked, d.stepwise);
            const struct model_config *const c = &d.model.config;
            const char *const loss = c->logit_cap > 0 ? "grad/capped"
                                   : c->multipliers.logit_divisor > 0 ? "grad/scaled" : "grad/logits";
            if (d.wrong > 2 || strcmp(d.first.name, loss) != 0 ||
                (d.wrong == 2 && strcmp(d.second.name, "norm") != 0))
                fail_msg("%s, %s, in %s: %d are wrong, such as %s, %g times its bound, and %s, %g times",
                         subjects[i].file, subjects[i].what, dtype_name(formats[t]), d.wrong, d.first.name,
                         d.first.ratio, d.second.name, d.second.ratio);
            close_dump(&d);
        }
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

static struct tensor kept_of(const struct dump *d, const char *name)
{
    for (int i = 0; i < d->count; i++)
        if (strcmp(d->kept[i].name, name) == 0) return d->kept[i].values;
    fail_msg("the run has no %s", name);
    return tensor_none;
}

/* Each number becomes the sum of two that have been rounded: itself + by, and -by. */
static void round_in_parts(struct dump *d, const char *name, double by)
{
    const struct tensor t = kept_of(d, name);
    double buffer;
    const struct tensor one = tensor_1d(&buffer, d->format, 1);
    for (int64_t i = 0; i < tensor_count(t); i++) {
        tensor_set(one, 0, tensor_get(t, i) + by);
        tensor_set(t, i, tensor_get(one, 0) - by);
    }
}

/* Experts of which two ranks have half of the columns each: parts of the rows are much larger than these.  Each rank's
 * weighted sum is stored. */
static void rows_may_be_parts(void **state)
{
    static const struct subject mixture = { "golden/mixtral-top2.safetensors", "a mixture", NULL };
    struct dump d;
    (void)state;
    for (int t = 1; t < FORMATS; t++) {
        open_subject(&d, &mixture, formats[t]);
        run(&d);
        round_in_parts(&d, "act/h.1.mlp.out", 8);
        check(&d);
        if (d.wrong == 0) fail_msg("%s: rounded parts are no error", dtype_name(formats[t]));
        assert_string_equal(d.first.name, "act/h.1.mlp.out");
        d.split = "act/h.1.experts.out", d.by = 8;
        check(&d);
        if (d.wrong && strcmp(d.first.name, "act/h.1.mlp.out") == 0)
            fail_msg("%s: the sum of rounded parts is %g times its bound", dtype_name(formats[t]), d.first.ratio);
        close_dump(&d);
    }
}

/* A sum of parts that branch and stream are added to is rounded on the way; what needs its exact numbers lacks them. */
static void sums_of_parts_are_rounded(void **state)
{
    struct dump d;
    (void)state;
    open_changed(&d, "golden/llama-grouped.safetensors", NULL, BF16);
    run(&d);
    d.split = "act/h.1.attn.out", d.by = 8;
    round_in_parts(&d, "act/h.1.mid", 8);
    check(&d);
    if (d.wrong && strcmp(d.first.name, "act/h.1.mid") == 0)
        fail_msg("a rounded sum is %g times its bound", d.first.ratio);
    d.split = "grad/h.1.ln_2";
    check(&d);
    if (d.lacking == 0) fail_msg("a norm has the exact sum of parts");
    assert_string_equal(d.lacks.lacks, "the sum of the parts of grad/h.1.ln_2");
    close_dump(&d);
}

/* Of two experts with equal logits that are both chosen, the later one first. */
static void later_first(struct tensor weights, struct tensor experts, struct tensor logits,
                        const struct router_rule *rule, const double *bias)
{
    const int64_t k = tensor_cols(experts);
    int32_t *chosen = experts.data;
    ops_for(BF16)->route_forward(weights, experts, logits, rule, bias);
    for (int64_t i = 0; i + 1 < tensor_count(experts); i++) {
        const int32_t e = chosen[i], next = chosen[i + 1];
        const int64_t row = i / k * tensor_cols(logits);
        if (i % k == k - 1 || e > next || tensor_get(logits, row + e) != tensor_get(logits, row + next)) continue;
        chosen[i] = next, chosen[i + 1] = e;
    }
}

/* Two experts have equal logits for every token. */
static void equal_logits_have_any_order(void **state)
{
    struct dump d;
    (void)state;
    open_changed(&d, "golden/mixtral-top2.safetensors", NULL, BF16);
    d.ops = *d.model.ops, d.ops.route_forward = later_first, d.model.ops = &d.ops;
    for (int i = 0; i < d.model.params; i++) {
        const struct tensor w = d.model.w[i];
        for (int64_t c = 0; strstr(d.model.spec[i].name, "moe.gate.weight") && c < tensor_cols(w); c++)
            tensor_set(w, tensor_cols(w) + c, tensor_get(w, 2 * tensor_cols(w) + c));
    }
    run(&d), check(&d);
    if (d.wrong) fail_msg("%s: %g times its bound", d.first.name, d.first.ratio);
    assert_int_equal(d.lacking, 0);
    d.tile = 100, check(&d);
    assert_int_equal(d.wrong + d.lacking, 0);
    close_dump(&d);
}

/* ---- mistakes of a Gemma 2 --------------------------------------------------------------------------------------- */

static void norm_of_weights(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w, double base,
                            double eps)
{
    (void)base;
    ops_for(F32)->rmsnorm_forward(Y, rstd, X, w, 0, eps);
}

static void exact_geglu(struct tensor Y, struct tensor X)
{
    const int64_t F = tensor_cols(Y);
    for (int64_t i = 0; i < tensor_count(Y); i++) {
        const double gate = tensor_get(X, i / F * 2 * F + i % F), up = tensor_get(X, i / F * 2 * F + F + i % F);
        tensor_set(Y, i, gate / 2 * (1 + erf(gate / sqrt(2))) * up);
    }
}

/* Weights of norms are 0 at first. */
static void change_norms(struct dump *d)
{
    d->ops.rmsnorm_forward = norm_of_weights;
    for (int i = 0; i < d->model.params; i++)
        for (int64_t k = 0; d->model.spec[i].role == ROLE_NORM && k < tensor_count(d->model.w[i]); k++)
            tensor_set(d->model.w[i], k, 0.3 * sin((double)k + 1));
}

static void change_gelu(struct dump *d) { d->ops.geglu_forward = exact_geglu; }
static void widen(struct dump *d) { d->model.config.windows.size++; }
static void narrow_down(struct dump *d) { d->model.config.windows.size--; }

static void mistakes_of_a_gemma_are_named(void **state)
{
    static const struct { void (*make)(struct dump *); const char *where, *what; } all[] = {
        { change_norms, "act/h.0.ln_1", "1 is not added to its weight" },
        { change_gelu, "act/h.0.mlp.act", "the exact gelu of the gate, by erf, in place of the tanh form" },
        { widen, "act/h.0.attn.heads", "its window is off by one: a token sees one more" },
        { narrow_down, "act/h.0.attn.heads", "its window is off by one: a token sees one less" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct dump d;
        open_changed(&d, "golden/gemma2-windows.safetensors", NULL, F32);
        d.ops = *d.model.ops, d.model.ops = &d.ops;
        all[i].make(&d);
        run(&d), check(&d);
        assert_string_equal(d.first.name, all[i].where);
        if (strstr(d.first.mistake, all[i].what) == NULL) fail_msg("%s: \"%s\"", all[i].what, d.first.mistake);
        close_dump(&d);
    }
}

/* ---- mistakes of activations ------------------------------------------------------------------------------------- */

static void plain_relu(struct tensor Y, struct tensor X)
{
    for (int64_t i = 0; i < tensor_count(Y); i++) tensor_set(Y, i, fmax(tensor_get(X, i), 0));
}

static void half_slope(struct tensor dX, struct tensor dY, struct tensor X)
{
    for (int64_t i = 0; i < tensor_count(X); i++)
        tensor_set(dX, i, tensor_get(dY, i) * fmax(tensor_get(X, i), 0));
}

static void tanh_form(struct dump *d) { d->ops.exact_gelu_forward = d->ops.gelu_forward; }
static void tanh_slope(struct dump *d) { d->ops.exact_gelu_backward_input = d->ops.gelu_backward_input; }
static void unsquared(struct dump *d) { d->ops.squared_relu_forward = plain_relu; }
static void undoubled(struct dump *d) { d->ops.squared_relu_backward_input = half_slope; }

static void mistakes_of_activations_are_named(void **state)
{
    static const struct { const char *file; void (*make)(struct dump *); const char *where, *what; } all[] = {
        { "golden/nanogpt-plain.safetensors", tanh_form, "act/h.0.mlp.act",
          "the tanh form in place of the exact gelu" },
        { "golden/nanogpt-plain.safetensors", tanh_slope, "grad/h.1.mlp.up",
          "the slope of the tanh form in place of the exact gelu's" },
        { "golden/nemotron-part.safetensors", unsquared, "act/h.0.mlp.act",
          "relu in place of its square" },
        { "golden/nemotron-part.safetensors", undoubled, "grad/h.1.mlp.up",
          "the slope of the squared relu lacks its factor of 2" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct dump d;
        open_changed(&d, all[i].file, NULL, F32);
        d.ops = *d.model.ops, d.model.ops = &d.ops;
        all[i].make(&d);
        run(&d), check(&d);
        if (strcmp(d.first.name, all[i].where) != 0 || strstr(d.first.mistake, all[i].what) == NULL)
            fail_msg("%s: %s, \"%s\"", all[i].what, d.first.name, d.first.mistake);
        close_dump(&d);
    }
}

/* ---- norms behind a branch, of parts of its sum ------------------------------------------------------------------ */

/* The last product; how many ranks each have some of its columns; the only one whose norm is taken, -1: all are added
 * up; which norm is wrong, counted from 0. */
static struct { struct tensor X, W, Y; int parts, only, wrong, norms; } split;

static void remember_product(struct tensor Y, struct tensor X, struct tensor W, struct tensor b)
{
    ops_for(F32)->linear_forward(Y, X, W, b);
    split.X = X, split.W = W, split.Y = Y;
}

static void norm_of_parts(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w, double base,
                          double eps)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X), I = tensor_cols(split.X);
    float *const of_part = malloc((size_t)(2 * N * D) * sizeof *of_part), *const normed = of_part + N * D;
    assert_non_null(of_part);
    ops_for(F32)->rmsnorm_forward(Y, rstd, X, w, base, eps);
    const bool reads_it =
                   tensor_count(X) == tensor_count(split.Y) && memcmp(X.data, split.Y.data, tensor_bytes(X)) == 0,
               is_behind = reads_it && split.norms++ == split.wrong;
    for (int64_t i = 0; is_behind && i < N * D; i++) tensor_set(Y, i, 0);
    for (int k = 0; is_behind && k < split.parts; k++) {
        const struct interval cols = block_at(I, split.parts, k);
        for (int64_t i = 0; i < N * D; i++) {
            double sum = 0;
            for (int64_t j = cols.first; j < interval_end(cols); j++)
                sum += tensor_get(split.X, i / D * I + j) * tensor_get(split.W, i % D * I + j);
            of_part[i] = (float)sum;
        }
        if (split.only >= 0 && split.only != k) continue;
        ops_for(F32)->rmsnorm_forward(tensor_2d(normed, F32, N, D), rstd, tensor_2d(of_part, F32, N, D), w, base, eps);
        for (int64_t i = 0; i < N * D; i++) tensor_set(Y, i, tensor_get(Y, i) + normed[i]);
    }
    free(of_part);
}

/* The norm behind attention, and that behind the network, of an OLMo 2 and of Gemmas. */
static void norms_of_parts_are_named(void **state)
{
    static const struct { const char *file, *where[2]; } models[] = {
        { "golden/olmo2-grouped.safetensors", { "act/h.0.ln_1", "act/h.0.ln_2" } },
        { "golden/gemma2-windows.safetensors", { "act/h.0.post_1", "act/h.0.post_2" } },
        { "golden/gemma3-pattern.safetensors", { "act/h.0.post_1", "act/h.0.post_2" } },
    };
    (void)state;
    for (size_t i = 0; i < 2 * sizeof models / sizeof *models; i++)
        for (int only = -1; only < 3; only++) {
            struct dump d;
            open_changed(&d, models[i / 2].file, NULL, F32);
            d.ops = *d.model.ops, d.model.ops = &d.ops;
            d.ops.linear_forward = remember_product, d.ops.rmsnorm_forward = norm_of_parts;
            split.parts = 3, split.only = only, split.wrong = i % 2, split.norms = 0;
            run(&d), check(&d);
            print_message("%s, %d: %s: %s\n", models[i / 2].file, only, d.first.name, d.first.mistake);
            assert_string_equal(d.first.name, models[i / 2].where[i % 2]);
            if (strstr(d.first.mistake, "before the sum over tp") == NULL)
                fail_msg("%s, %s: \"%s\"", models[i / 2].file, d.first.name, d.first.mistake);
            close_dump(&d);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_runs_are_right),       cmocka_unit_test(tiles_change_nothing),
        cmocka_unit_test(subnormal_gradients_are_right),
        cmocka_unit_test(a_factor_is_found),          cmocka_unit_test(an_expert_is_named),
        cmocka_unit_test(rows_may_be_parts),          cmocka_unit_test(sums_of_parts_are_rounded),
        cmocka_unit_test(equal_logits_have_any_order),
        cmocka_unit_test(mistakes_of_a_gemma_are_named),
        cmocka_unit_test(mistakes_of_activations_are_named),
        cmocka_unit_test(norms_of_parts_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
