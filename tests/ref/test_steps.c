/* Every step of an optimizer, and sums over microbatches, held to their own rounding.
 *
 * The program under test is our own run of a golden file's model, with the tensors of every step; errors are made in
 * single tensors.
 */
#include "ref/golden/replay.h"
#include "ref/numeric/convert.h"
#include "ref/single/steps.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const files[] = { "golden/gpt2-tied.safetensors", "golden/qwen3-narrower.safetensors" };
static const enum dtype formats[] = { F64, F32, BF16, F16 };
static const char *const names[] = { "sgd", "momentum", "adamw" };
enum { FILES = sizeof files / sizeof *files, FORMATS = sizeof formats / sizeof *formats, OPTIMIZERS = 3, MICROS = 2 };

struct run {
    struct golden golden;
    struct replay replay;
    enum dtype format;
    int checked, wrong, lacking, unknown;
    struct single_result first;         /* that is wrong */
    double largest;
    bool parts;                         /* it says that ranks have parts of one gradient */
};

static enum error_code parts_of(void *context, const char *name, struct tensor absolute, int *parts, struct error *);

static void open_run(struct run *r, const char *path, enum dtype t)
{
    struct error err;
    *r = (struct run){ .format = t };
    if (golden_open(&r->golden, path, &err) != OK) fail_msg("%s", err.text);
    r->golden.every_step = true, r->golden.micros = MICROS;
    if (replay_run(&r->replay, &r->golden, t, NULL, &err) != OK) fail_msg("%s", err.text);
}

static void close_run(struct run *r)
{
    replay_free(&r->replay);
    golden_close(&r->golden);
}

static struct tensor *record_of(const struct run *r, const char *name)
{
    for (int i = 0; i < r->replay.records; i++)
        if (strcmp(r->replay.record[i].name, name) == 0) return &r->replay.record[i].values;
    return NULL;
}

static enum error_code fetch(void *context, const char *name, struct tensor out, enum single_found *found,
                             struct error *err)
{
    const struct run *r = context;
    const struct tensor *have = record_of(r, name);
    *found = have || strncmp(name, "start/", 6) == 0 ? SINGLE_HAS : SINGLE_HAS_NOT;
    if (have) assert_int_equal(tensor_count(*have), tensor_count(out));
    if (have) tensor_convert(out, *have);
    else if (*found == SINGLE_HAS) {
        struct tensor narrow = tensor_1d(malloc((size_t)tensor_count(out) * 8), r->format, tensor_count(out));
        assert_non_null(narrow.data);
        struct tensor wide = out;
        wide.dtype = dtype_wide(r->format);
        const enum error_code e = golden_read(&r->golden, name, wide.dtype, tensor_count(out), out.data, err);
        for (int64_t i = 0; i < tensor_count(out); i++) tensor_set(narrow, i, tensor_get(wide, i));
        for (int64_t i = 0; i < tensor_count(out); i++) tensor_set(out, i, tensor_get(narrow, i));
        free(narrow.data);
        return e;
    }
    return OK;
}

static void found(void *context, const struct single_result *one)
{
    struct run *r = context;
    r->checked++;
    r->wrong += one->verdict == SINGLE_WRONG, r->lacking += one->verdict == SINGLE_LACKS;
    r->unknown += one->verdict == SINGLE_UNKNOWN;
    if (one->verdict == SINGLE_WRONG && r->wrong == 1) r->first = *one;
    if (!(one->ratio <= r->largest)) r->largest = one->ratio;
}

static void check_steps(struct run *r, const char *optimizer, const struct hyperparameters *hyper)
{
    const struct golden *g = &r->golden;
    double lr[GOLDEN_MOST_STEPS];
    char name[64];
    struct error err;
    snprintf(name, sizeof name, "%s/lr", optimizer);
    if (golden_read(g, name, F64, g->steps, lr, &err) != OK) fail_msg("%s", err.text);
    const struct single_steps steps = { optimizer, hyper ? *hyper : golden_hyperparameters(g, optimizer), g->steps, lr,
                                        r->format };
    r->checked = r->wrong = r->lacking = r->unknown = 0, r->largest = 0;
    if (single_check_steps(&g->config, &steps, rounding_of(r->format, DTYPE_COUNT, 1),
                           (struct single_source){ fetch, found, r, r->parts ? parts_of : NULL }, &err) != OK)
        fail_msg("%s", err.text);
}

static void check_micros(struct run *r)
{
    struct error err;
    r->checked = r->wrong = r->lacking = r->unknown = 0, r->largest = 0;
    const struct golden *g = &r->golden;
    if (single_check_micros(&g->config, MICROS, (struct single_batch){ g->ids, g->labels, g->B, g->S },
                            rounding_of(r->format, DTYPE_COUNT, 1), (struct single_source){ fetch, found, r, NULL },
                            &err) != OK)
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

static enum error_code parts_of(void *context, const char *name, struct tensor absolute, int *parts, struct error *err)
{
    const struct run *r = context;
    (void)err;
    *parts = strcmp(name, SPLIT) == 0 ? 2 : 1;
    for (int64_t i = 0; *parts == 2 && tensor_present(absolute) && i < tensor_count(absolute); i++)
        tensor_set(absolute, i, fabs(tensor_get(*record_of(r, name), i)) + 2 * BY);
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
        r.parts = true;
        check_steps(&r, "adamw", NULL);
        if (r.wrong && strstr(r.first.name, "exp_avg"))
            fail_msg("%s of rounded parts is %g times its bound", r.first.name, r.first.ratio);
        r.parts = false;
    }
    close_run(&r);
}

/* A tensor in which a step's gradients count `times` as often. */
struct scaled { const char *optimizer, *name; double times; const char *words; };

static const struct scaled scaled[] = {
    { "adamw", "adamw/1/exp_avg/wte.weight", 64, "a loss scale of 64 is not divided out" },
    { "adamw", "adamw/1/exp_avg_sq/h.0.ln_1.bias", 4096, "a loss scale of 64 is not divided out" },
    { "adamw", "adamw/1/exp_avg/h.1.mlp.c_fc.weight", 1. / 1024,
      "a loss scale of 1024 is divided out twice, or after clipping" },
    { "adamw", "adamw/1/exp_avg/wpe.weight", 60, "" }, { "adamw", "adamw/1/exp_avg/wpe.weight", 8, "" },
};

/* Of the first step a state is all gradient, so a factor on it is one on the gradient. */
static void loss_scales_are_named(void **state)
{
    struct run r;
    (void)state;
    open_run(&r, files[0], F32);
    for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++) {
        const struct scaled *x = &scaled[i];
        const struct tensor *t = record_of(&r, x->name);
        for (int64_t k = 0; k < tensor_count(*t); k++) tensor_set(*t, k, x->times * tensor_get(*t, k));
        check_steps(&r, x->optimizer, NULL);
        if (r.wrong == 0 || strcmp(r.first.name, x->name) != 0) fail_msg("%s: not the first that is wrong", x->name);
        if (x->words[0] ? strcmp(r.first.mistake, x->words) != 0 : strstr(r.first.mistake, "loss scale") != NULL)
            fail_msg("%s times %g: \"%s\"", x->name, x->times, r.first.mistake);
        for (int64_t k = 0; k < tensor_count(*t); k++) tensor_set(*t, k, tensor_get(*t, k) / x->times);
    }
    close_run(&r);
}

/* What each of 3 ranks with a part of the rows has of all gradients of the first step. */
static void norms_of_rows(const struct run *r, double norm[3])
{
    double sum[3] = { 0 };
    for (int i = 0; i < model_param_count(&r->golden.config); i++) {
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "grad/%s", model_param(&r->golden.config, i).name);
        const struct tensor g = *record_of(r, name);
        const int64_t each = (g.dim[0] + 2) / 3, cols = tensor_count(g) / g.dim[0];
        for (int64_t k = 0; k < tensor_count(g); k++) sum[k / cols / each] += pow(tensor_get(g, k), 2);
    }
    for (int k = 0; k < 3; k++) norm[k] = sqrt(sum[k]);
}

static void clipping_by_own_norms_is_named(void **state)
{
    static const char *const states[] = { "adamw/1/exp_avg/h.1.mlp.c_fc.weight",        /* then one before it */
                                          "adamw/1/exp_avg_sq/h.0.attn.c_attn.bias" };
    const char words[] = "each of 3 ranks with a part of the rows clips by the norm of what it has";
    struct run r;
    (void)state;
    open_run(&r, files[0], F32);
    const struct hyperparameters h = golden_hyperparameters(&r.golden, "adamw");
    const double clip = clip_scale(&h, tensor_get(*record_of(&r, "adamw/norm"), 0));
    for (int i = 0; i < 2; i++) {
        const struct tensor t = *record_of(&r, states[i]);
        const int64_t each = (t.dim[0] + 2) / 3, cols = tensor_count(t) / t.dim[0];
        double norm[3];
        norms_of_rows(&r, norm);
        for (int64_t k = 0; k < tensor_count(t); k++) {
            const double by = clip_scale(&h, norm[k / cols / each]) / clip;
            tensor_set(t, k, tensor_get(t, k) * (i ? by * by : by));
        }
        check_steps(&r, "adamw", NULL);
        if (r.wrong == 0 || strcmp(r.first.name, states[i]) != 0 || strcmp(r.first.mistake, words) != 0)
            fail_msg("%s: %d wrong, the first is %s, \"%s\"", states[i], r.wrong, r.first.name, r.first.mistake);
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
    const struct single_steps steps = { "galore", golden_hyperparameters(g, "sgd"), g->steps, lr, F64 };
    struct error err;
    for (int i = 0; i < r.replay.records; i++) {
        char old[RECORD_NAME];
        snprintf(old, sizeof old, "%s", r.replay.record[i].name);
        if (strncmp(old, "adamw/", 6) == 0)
            snprintf(r.replay.record[i].name, RECORD_NAME, "galore/%.*s", (int)sizeof old - 8, old + 6);
    }
    if (single_check_steps(&g->config, &steps, rounding_of(F64, F64, 1),
                           (struct single_source){ fetch, found, &r, NULL }, &err) != OK)
        fail_msg("%s", err.text);
    assert_int_equal(r.wrong, 0);
    assert_int_equal(r.unknown, 3 * model_param_count(&g->config));
    close_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clean_runs_are_right),    cmocka_unit_test(other_rules_are_wrong),
        cmocka_unit_test(single_errors_are_found), cmocka_unit_test(microbatches_add_up),
        cmocka_unit_test(the_norm_is_of_its_gradients),
        cmocka_unit_test(a_gradient_may_have_as_many_rows_as_tokens),
        cmocka_unit_test(parts_are_clipped_one_by_one), cmocka_unit_test(loss_scales_are_named),
        cmocka_unit_test(clipping_by_own_norms_is_named),
        cmocka_unit_test(other_optimizers_are_not_recomputed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
