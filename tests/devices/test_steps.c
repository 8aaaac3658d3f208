/* Every step of an optimizer, and sums over microbatches, held to their own rounding.
 *
 * The program under test is our own run of a golden file's model, with the tensors of every step; errors are made in
 * single tensors.
 */
#include "ref/model/params.h"
#include "tests/devices/step_run.h"

static const char *const files[] = { "golden/gpt2-tied.safetensors", "golden/qwen3-narrower.safetensors" };
static const enum dtype formats[] = { F64, F32, BF16, F16 };
static const char *const names[] = { "sgd", "momentum", "adamw" };
enum { FILES = sizeof files / sizeof *files, FORMATS = sizeof formats / sizeof *formats, OPTIMIZERS = 3 };

static void check_micros(struct run *r)
{
    struct error err;
    r->checked = r->wrong = r->lacking = r->unknown = 0, r->largest = 0;
    const struct golden *g = &r->golden;
    const struct single_batch batch = { g->ids, g->labels, g->B, g->S, 0, NULL };
    if (single_check_micros(&g->config, STEP_RUN_MICROS, batch,
                            rounding_of(r->format, DTYPE_COUNT, 1),
                            (struct single_source){ .explainer = &mistakes_explainer,
                                                    .fetch = fetch, .fetch_rows = r->tile ? fetch_rows : NULL,
                                                    .tile = r->tile, .found = found, .context = r }, &err) != OK)
        fail_msg("%s", err.text);
}

static void expect_clean(const struct run *r, const char *what, int results)
{
    print_message("%s in %s, %s: %d results, largest error/bound %.3g\n", r->golden.file.path, dtype_name(r->format),
                  what, r->checked, r->largest);
    if (r->wrong)
        fail_msg("%s in %s, %s: %s is wrong, %g times its bound", r->golden.file.path, dtype_name(r->format), what,
                 r->first.name, r->first.ratio);
    assert_int_equal(r->checked, results);
    assert_int_equal(r->lacking + r->unknown, 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void clean_runs_are_right(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++)
        for (int t = 0; t < FORMATS; t++) {
            struct run r;
            open_run(&r, files[f], formats[t]);
            const int params = model_param_count(&r.golden.config), steps = (int)r.golden.steps;
            for (int o = 0; o < OPTIMIZERS; o++) {
                check_steps(&r, names[o], NULL);
                expect_clean(&r, names[o], 1 + steps * params * (1 + o));       /* weights and `o` states */
            }
            check_micros(&r);
            expect_clean(&r, "microbatches", params + 1);
            close_run(&r);
        }
}

/* A row at a time is as good as all at once. */
static void blocks_change_nothing(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, files[0], BF16);
    r.tile = 1;
    check_steps(&r, "adamw", NULL);
    if (r.whole > 0) fail_msg("a row at a time, %d matrices are read whole", r.whole);
    check_micros(&r);
    if (r.whole > 0) fail_msg("microbatches, a row at a time: %d matrices are read whole", r.whole);
    r.tile = 0;
    tensor_set(*record_of(&r, "adamw/2/exp_avg/h.1.mlp.c_fc.weight"), 77, 1);
    for (int o = 0; o <= OPTIMIZERS; o++) {
        const char *const what = o < OPTIMIZERS ? names[o] : "microbatches";
        if (o == OPTIMIZERS) tensor_set(*record_of(&r, "grad/h.1.mlp.c_fc.weight"), 77, 1);
        if (o < OPTIMIZERS) check_steps(&r, what, NULL);
        else check_micros(&r);
        const struct run whole = r;
        r.tile = 1;
        if (o < OPTIMIZERS) check_steps(&r, what, NULL);
        else check_micros(&r);
        r.tile = 0;
        if (r.checked != whole.checked || r.wrong != whole.wrong || r.lacking != whole.lacking)
            fail_msg("%s: %d results, %d wrong, %d without inputs; a row at a time %d, %d, %d", what, whole.checked,
                     whole.wrong, whole.lacking, r.checked, r.wrong, r.lacking);
        assert_true(fabs(r.largest - whole.largest) <= 1e-3 * whole.largest);
        if (whole.wrong) assert_string_equal(r.first.name, whole.first.name);
        if (whole.wrong) assert_int_equal(r.first.worst, whole.first.worst);
    }
    close_run(&r);
}

/* A step by another rule: fp32, so that no rounded weight hides it.  change: of the rule that is expected. */
struct mistake { const char *what, *optimizer; void (*change)(struct hyperparameters *); const char *first; };

static void no_clipping(struct hyperparameters *h) { h->clip = 0; }
static void no_decay(struct hyperparameters *h) { h->weight_decay = 0; }
static void other_beta(struct hyperparameters *h) { h->beta2 = 1 - 0.9 * (1 - h->beta2); }
static void other_eps(struct hyperparameters *h) { h->eps *= 2; }
static void less_momentum(struct hyperparameters *h) { h->momentum *= 0.99; }

static const struct mistake mistakes[] = {
    { "no clipping", "adamw", no_clipping, "adamw/1/exp_avg/wte.weight" },
    { "no decay", "adamw", no_decay, "adamw/1/weight/wte.weight" },
    { "another beta2", "adamw", other_beta, "adamw/1/exp_avg_sq/wte.weight" },
    { "another eps", "adamw", other_eps, "adamw/1/weight/wte.weight" },
    { "less momentum", "momentum", less_momentum, "momentum/2/momentum_buffer/wte.weight" },
};

static void other_rules_are_wrong(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, files[0], F32);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct hyperparameters h = golden_hyperparameters(&r.golden, mistakes[i].optimizer);
        mistakes[i].change(&h);
        check_steps(&r, mistakes[i].optimizer, &h);
        if (r.wrong == 0) fail_msg("%s is not found", mistakes[i].what);
        if (strcmp(r.first.name, mistakes[i].first) != 0)
            fail_msg("%s: the first that is wrong is %s", mistakes[i].what, r.first.name);
    }
    close_run(&r);
}

/* An error in one tensor of the last step, and no other result is wrong. */
static void expect_found(struct run *r, const char *optimizer, const char *name, double times)
{
    const struct tensor *t = record_of(r, name);
    assert_non_null(t);
    for (int64_t i = 0; i < tensor_count(*t); i++) tensor_set(*t, i, times * tensor_get(*t, i));
    check_steps(r, optimizer, NULL);
    if (r->wrong != 1 || strcmp(r->first.name, name) != 0)
        fail_msg("%s times %g: %d are wrong, the first is %s", name, times, r->wrong,
                 r->wrong ? r->first.name : "none");
    for (int64_t i = 0; i < tensor_count(*t); i++) tensor_set(*t, i, tensor_get(*t, i) / times);
}

static void single_errors_are_found(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, files[0], F32);
    const struct hyperparameters h = golden_hyperparameters(&r.golden, "adamw");
    double lr[3];
    struct error err;
    assert_int_equal(golden_read(&r.golden, "adamw/lr", F64, 3, lr, &err), OK);
    assert_true(h.weight_decay > 0);
    expect_found(&r, "adamw", "adamw/weight/h.1.ln_1.weight", 1 - lr[2] * h.weight_decay);     /* decays, must not */
    expect_found(&r, "adamw", "adamw/weight/h.0.mlp.c_fc.weight", 1.0001);
    expect_found(&r, "sgd", "sgd/weight/ln_f.bias", 1.001);
    close_run(&r);
}

static void the_norm_is_of_its_gradients(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, files[0], F32);
    const struct tensor *norm = record_of(&r, "sgd/norm");
    tensor_set(*norm, 1, 1.001 * tensor_get(*norm, 1));
    check_steps(&r, "sgd", NULL);
    assert_true(r.wrong > 0);
    assert_string_equal(r.first.name, "sgd/norm");
    assert_int_equal(r.first.first_col, 1);     /* the second step's */
    assert_int_equal(r.first.wrong, 1);
    close_run(&r);
}

/* ---- gradients that two ranks have parts of ---------------------------------------------------------------------- */

static const char SPLIT[] = "grad/h.1.mlp.c_fc.weight";
enum { BY = 8 };                        /* the parts are the gradient + 8, and -8 */

static enum error_code parts_of(void *context, const char *name, int64_t first, int64_t whole, struct tensor absolute,
                                int *parts, struct error *err)
{
    const struct run *r = context;
    const int64_t from = whole > 0 ? first * tensor_cols(absolute) : 0;
    (void)err;
    *parts = strcmp(name, SPLIT) == 0 ? 2 : 1;
    for (int64_t i = 0; *parts == 2 && tensor_present(absolute) && i < tensor_count(absolute); i++)
        tensor_set(absolute, i, fabs(tensor_get(*record_of(r, name), from + i)) + 2 * BY);
    return OK;
}

/* A state of which the gradient's parts have been clipped and rounded, one by one. */
static void step_by_parts(struct run *r, double keep, bool squared)
{
    const struct tensor g = *record_of(r, SPLIT), norm = *record_of(r, "adamw/norm"),
                        m = *record_of(r, squared ? "adamw/1/exp_avg_sq/h.1.mlp.c_fc.weight"
                                                  : "adamw/1/exp_avg/h.1.mlp.c_fc.weight");
    const struct hyperparameters h = golden_hyperparameters(&r->golden, "adamw");
    const double clip = clip_scale(&h, tensor_get(norm, 0));
    assert_true(clip < 1);
    for (int64_t i = 0; i < tensor_count(g); i++) {
        const float one = (float)(clip * (float)(tensor_get(g, i) + BY)), other = (float)(clip * -BY);
        const double x = (double)one + (double)other;
        tensor_set(m, i, (1 - keep) * (squared ? x * x : x));
    }
}

static void parts_are_clipped_one_by_one(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, files[0], F32);
    const struct hyperparameters h = golden_hyperparameters(&r.golden, "adamw");
    for (int squared = 0; squared < 2; squared++) {
        step_by_parts(&r, squared ? h.beta2 : h.beta1, squared);
        check_steps(&r, "adamw", NULL);
        if (r.wrong == 0) fail_msg("rounded parts are no error");
        r.parts = parts_of;
        check_steps(&r, "adamw", NULL);
        if (r.wrong && strstr(r.first.name, "exp_avg"))
            fail_msg("%s of rounded parts is %g times its bound", r.first.name, r.first.ratio);
        r.tile = 1;
        check_steps(&r, "adamw", NULL);
        if (r.wrong && strstr(r.first.name, "exp_avg"))
            fail_msg("a row at a time, %s of rounded parts is %g times its bound", r.first.name, r.first.ratio);
        r.parts = NULL, r.tile = 0;
    }
    close_run(&r);
}

static void microbatches_add_up(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, files[0], F32);
    const struct tensor *t = record_of(&r, "micro/1/grad/h.0.ln_2.weight");
    for (int64_t i = 0; i < tensor_count(*t); i++) tensor_set(*t, i, 1.5 * tensor_get(*t, i));
    check_micros(&r);
    assert_int_equal(r.wrong, 1);
    assert_string_equal(r.first.name, "grad/h.0.ln_2.weight");
    assert_string_equal(r.first.made_by, "the sum over microbatches");
    close_run(&r);
}

/* Such a gradient is also searched for rows left over from another sequence. */
static void a_gradient_may_have_as_many_rows_as_tokens(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, files[0], F32);
    const struct tensor *t = record_of(&r, "micro/1/grad/h.0.attn.c_proj.weight");
    assert_int_equal(tensor_rows(*t), r.golden.B * r.golden.S);
    for (int64_t i = 0; i < tensor_count(*t); i++) tensor_set(*t, i, (1.5 + 0.1 * (double)(i % 7)) * tensor_get(*t, i));
    check_micros(&r);
    assert_int_equal(r.wrong, 1);
    assert_string_equal(r.first.name, "grad/h.0.attn.c_proj.weight");
    close_run(&r);
}

static void other_optimizers_are_not_recomputed(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, files[0], F64);
    const struct golden *g = &r.golden;
    const double lr[3] = { 1, 1, 1 };
    const struct single_steps steps = { "galore", golden_hyperparameters(g, "sgd"), g->steps, lr, F64, 0 };
    struct error err;
    for (int i = 0; i < r.replay.records; i++) {
        char old[RECORD_NAME];
        snprintf(old, sizeof old, "%s", r.replay.record[i].name);
        if (strncmp(old, "adamw/", 6) == 0)
            snprintf(r.replay.record[i].name, RECORD_NAME, "galore/%.*s", (int)sizeof old - 8, old + 6);
    }
    for (int64_t k = 0; k < g->steps; k++)
        if (single_check_step(&g->config, &steps, k, rounding_of(F64, F64, 1),
                              (struct single_source){ .explainer = &mistakes_explainer,
                                                      .fetch = fetch, .found = found, .context = &r }, &err) != OK)
            fail_msg("%s", err.text);
    assert_int_equal(r.wrong, 0);
    assert_int_equal(r.unknown, 3 * model_param_count(&g->config));
    close_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_runs_are_right),    cmocka_unit_test(other_rules_are_wrong),
        cmocka_unit_test(blocks_change_nothing),
        cmocka_unit_test(single_errors_are_found), cmocka_unit_test(microbatches_add_up),
        cmocka_unit_test(the_norm_is_of_its_gradients),
        cmocka_unit_test(a_gradient_may_have_as_many_rows_as_tokens),
        cmocka_unit_test(parts_are_clipped_one_by_one),
        cmocka_unit_test(other_optimizers_are_not_recomputed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
