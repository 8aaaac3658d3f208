/* The one-device GPT-2 against PyTorch: every tensor of golden/gpt2-*.safetensors, in the order in which we compute them.
 *
 * golden/README.md says what the files hold; golden/make_gpt2.py made them, sharing no line with the code under test.  The
 * first tensor that is wrong is named: what follows from it is not worth reading.
 */
#include "ref/io/safetensors.h"
#include "ref/model/perturb.h"
#include "ref/optim/optimizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- golden files --------------------------------------------------------------------------------------------------- */

struct golden {
    struct safetensors file;
    struct model_config config;
    uint64_t seed;
    int64_t steps, B, S;
    int32_t *ids, *labels;              /* [steps,B,S] */
};

static double number(const struct golden *g, const char *key)
{
    const char *text = safetensors_metadata(&g->file, key);
    if (text == NULL) fail_msg("%s: has no metadata \"%s\"; `make golden` says how it was made", g->file.path, key);
    return strtod(text, NULL);
}

static const struct safetensors_entry *entry_of(const struct golden *g, const char *name)
{
    const struct safetensors_entry *e = safetensors_find(&g->file, name);
    if (e == NULL) fail_msg("%s: has no tensor %s", g->file.path, name);
    return e;
}

static void read_into(const struct golden *g, const char *name, enum dtype t, int64_t count, void *out)
{
    const struct safetensors_entry *e = entry_of(g, name);
    struct error err;
    if (e->count != count) fail_msg("%s: %s has %lld elements, ours %lld", g->file.path, name, (long long)e->count, (long long)count);
    if (safetensors_read(&g->file, e, t, out, &err) != OK) fail_msg("%s", err.text);
}

static int32_t *tokens_of(const struct golden *g, const char *name)
{
    int32_t *out = malloc((size_t)(g->steps * g->B * g->S) * sizeof *out);
    assert_non_null(out);
    read_into(g, name, I32, g->steps * g->B * g->S, out);
    return out;
}

static struct golden golden_open(const char *path)
{
    struct golden g = { 0 };
    struct error err;
    if (safetensors_open(&g.file, path, &err) != OK) fail_msg("%s", err.text);
    struct model_config *c = &g.config;
    *c = (struct model_config){ .S = (int64_t)number(&g, "S"), .D = (int64_t)number(&g, "D"), .H = (int64_t)number(&g, "H"),
                                .F = (int64_t)number(&g, "F"), .L = (int64_t)number(&g, "L"), .V = (int64_t)number(&g, "V"),
                                .biases = true, .tied = number(&g, "tied") != 0, .eps = number(&g, "eps"), .init_std = number(&g, "init_std") };
    c->A = c->D / c->H;
    c->K = c->H;
    snprintf(c->name, sizeof c->name, "golden");
    g.seed = (uint64_t)number(&g, "seed");
    const struct safetensors_entry *e = entry_of(&g, "ids");
    assert_int_equal(e->ndim, 3);
    g.steps = e->dim[0], g.B = e->dim[1], g.S = e->dim[2];
    g.ids = tokens_of(&g, "ids");
    g.labels = tokens_of(&g, "labels");
    return g;
}

static void golden_close(struct golden *g)
{
    free(g->ids), free(g->labels);
    safetensors_close(&g->file);
}

static void for_each_golden(void (*test)(const struct golden *))
{
    enum { LEAST = 3 };
    glob_t found;
    const int status = glob("golden/gpt2-*.safetensors", 0, NULL, &found);
    if (status != 0 || found.gl_pathc < LEAST)
        fail_msg("%d files golden/gpt2-*.safetensors, at least %d wanted; tests run from the repository's root", status ? 0 : (int)found.gl_pathc, LEAST);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct golden g = golden_open(found.gl_pathv[i]);
        test(&g);
        golden_close(&g);
    }
    globfree(&found);
}

/* ---- a run: our own tensors, under the names of the golden file, in order --------------------------------------------- */

struct record { char name[96]; struct tensor values; };

struct run {
    const struct golden *golden;
    struct transformer model;
    struct tensor *state;               /* [params * OPTIMIZER_MAX_STATES] */
    struct record *record;
    int records;
    struct perturbation disturbance;
    struct observer disturb;            /* see == NULL: an undisturbed run */
};

static void keep(struct run *r, const char *name, struct tensor t)
{
    enum { GROW = 256 };
    if (r->records % GROW == 0) r->record = realloc(r->record, (size_t)(r->records + GROW) * sizeof *r->record);
    assert_non_null(r->record);
    struct record *k = &r->record[r->records++];
    snprintf(k->name, sizeof k->name, "%s", name);
    k->values = t;
    k->values.data = malloc(tensor_bytes(t));
    assert_non_null(k->values.data);
    memcpy(k->values.data, t.data, tensor_bytes(t));
}

static void keep_numbers(struct run *r, const char *name, double *x, int64_t n) { keep(r, name, tensor_1d(x, F64, n)); }

/* Tensors inside a block are announced with its number beside; parameters have it in their name. */
static void see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct run *r = context;
    char full[96];
    if (r->disturb.see) r->disturb.see(r->disturb.context, name, layer, gradient, t, terms);
    const bool in_block = layer >= 0 && layer < r->golden->config.L && strncmp(name, "h.", 2) != 0;
    if (in_block) snprintf(full, sizeof full, "%s/h.%d.%s", gradient ? "grad" : "act", layer, name);
    else snprintf(full, sizeof full, "%s/%s", gradient ? "grad" : "act", name);
    keep(r, full, t);
}

/* The file's starting weights.  They are not fp32 numbers, and rounding them to fp32 is a disturbance like any other. */
static void start(struct run *r)
{
    for (int i = 0; i < r->model.params; i++) {
        char name[96];
        const struct tensor w = r->model.w[i];
        snprintf(name, sizeof name, "start/%s", r->model.spec[i].name);
        read_into(r->golden, name, w.dtype, tensor_count(w), w.data);
        if (r->disturb.see) r->disturb.see(r->disturb.context, name, 0, false, w, 1);
        for (int s = 0; s < OPTIMIZER_MAX_STATES; s++) memset(r->state[i * OPTIMIZER_MAX_STATES + s].data, 0, tensor_bytes(w));
    }
    transformer_zero_gradients(&r->model);
}

static double forward_backward(struct run *r, int64_t step)
{
    const struct golden *g = r->golden;
    struct error err;
    double loss;
    const int64_t at = step * g->B * g->S;
    if (transformer_forward(&r->model, g->ids + at, g->labels + at, g->B, g->S, &loss, &err) != OK) fail_msg("%s", err.text);
    if (r->model.observer.see == see) keep_numbers(r, "loss", &loss, 1);
    transformer_backward(&r->model);
    return loss;
}

static void one_pass(struct run *r)
{
    start(r);
    r->model.observer = (struct observer){ see, r };
    forward_backward(r, 0);
    double norm = transformer_gradient_norm(&r->model);
    keep_numbers(r, "norm", &norm, 1);
    r->model.observer = r->disturb;
}

static double optional_number(const struct golden *g, const char *optimizer, const char *key)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", optimizer, key);
    return safetensors_metadata(&g->file, full) ? number(g, full) : 0;
}

static struct hyperparameters hyperparameters_of(const struct golden *g, const char *optimizer)
{
    return (struct hyperparameters){
        .beta1 = optional_number(g, optimizer, "beta1"), .beta2 = optional_number(g, optimizer, "beta2"),
        .eps = optional_number(g, optimizer, "eps"), .weight_decay = optional_number(g, optimizer, "weight_decay"),
        .momentum = optional_number(g, optimizer, "momentum"), .clip = optional_number(g, optimizer, "clip"),
    };
}

static void update(struct run *r, const struct optimizer *o, const struct hyperparameters *h, int64_t t, double lr, double norm)
{
    for (int i = 0; i < r->model.params; i++) {
        const struct step s = { .lr = lr, .t = t, .gradient_scale = clip_scale(h, norm), .hyper = h,
                                .weight_decay = r->model.spec[i].decay ? h->weight_decay : 0 };
        optimizer_step(o, r->model.w[i], r->model.g[i], &r->state[i * OPTIMIZER_MAX_STATES], s);
    }
    transformer_zero_gradients(&r->model);
}

static void keep_result(struct run *r, const struct optimizer *o)
{
    char name[96];
    for (int i = 0; i < r->model.params; i++) {
        snprintf(name, sizeof name, "%s/weight/%s", o->name, r->model.spec[i].name);
        keep(r, name, r->model.w[i]);
        for (int s = 0; s < o->states; s++) {
            snprintf(name, sizeof name, "%s/%s/%s", o->name, o->state_name[s], r->model.spec[i].name);
            keep(r, name, r->state[i * OPTIMIZER_MAX_STATES + s]);
        }
    }
}

static void some_steps(struct run *r, const char *optimizer)
{
    enum { MOST_STEPS = 8 };
    const struct golden *g = r->golden;
    const struct hyperparameters h = hyperparameters_of(g, optimizer);
    const struct optimizer *o;
    struct error err;
    double lr[MOST_STEPS], loss[MOST_STEPS], norm[MOST_STEPS];
    char name[96];
    if (optimizer_find(&o, optimizer, &err) != OK) fail_msg("%s", err.text);
    assert_true(g->steps <= MOST_STEPS);
    snprintf(name, sizeof name, "%s/lr", optimizer);
    read_into(g, name, F64, g->steps, lr);
    start(r);
    for (int64_t i = 0; i < g->steps; i++) {
        loss[i] = forward_backward(r, i);
        norm[i] = transformer_gradient_norm(&r->model);
        update(r, o, &h, i + 1, lr[i], norm[i]);
    }
    snprintf(name, sizeof name, "%s/loss", optimizer);
    keep_numbers(r, name, loss, g->steps);
    snprintf(name, sizeof name, "%s/norm", optimizer);
    keep_numbers(r, name, norm, g->steps);
    keep_result(r, o);
}

/* All that the file has, from a model of this format; twin > 0: disturbed with this seed. */
static void run_all(struct run *r, const struct golden *g, enum dtype t, uint64_t twin)
{
    struct error err;
    *r = (struct run){ .golden = g, .disturbance = { .seed = twin } };
    if (transformer_open(&r->model, &g->config, t, g->seed, &err) != OK) fail_msg("%s", err.text);
    if (twin) r->disturb = perturbing_observer(&r->disturbance);
    r->state = calloc((size_t)r->model.params * OPTIMIZER_MAX_STATES, sizeof *r->state);
    assert_non_null(r->state);
    for (int i = 0; i < r->model.params * OPTIMIZER_MAX_STATES; i++) {
        r->state[i] = r->model.w[i / OPTIMIZER_MAX_STATES];
        r->state[i].data = malloc(tensor_bytes(r->state[i]));
        assert_non_null(r->state[i].data);
    }
    one_pass(r);
    const char *list = safetensors_metadata(&g->file, "optimizers");
    for (const char *name = list ? list : ""; *name != '\0';) {
        char optimizer[32];
        const size_t n = strcspn(name, " ");
        snprintf(optimizer, sizeof optimizer, "%.*s", (int)n, name);
        some_steps(r, optimizer);
        name += n + strspn(name + n, " ");
    }
}

static void run_free(struct run *r)
{
    for (int i = 0; i < r->records; i++) free(r->record[i].values.data);
    for (int i = 0; i < r->model.params * OPTIMIZER_MAX_STATES; i++) free(r->state[i].data);
    free(r->record), free(r->state);
    transformer_close(&r->model);
}

/* ---- comparison ------------------------------------------------------------------------------------------------------- */

struct apart { double relative; int64_t worst; };       /* norm over norm, and the element that is furthest off */

static struct apart apart(struct tensor got, struct tensor want)
{
    double difference = 0, size = 0, most = -1;
    struct apart a = { 0, 0 };
    for (int64_t i = 0; i < tensor_count(want); i++) {
        const double x = tensor_get(got, i), y = tensor_get(want, i);
        difference += (x - y) * (x - y);
        size += y * y;
        if (!(fabs(x - y) <= most)) most = fabs(x - y), a.worst = i;
    }
    a.relative = difference == 0 ? 0 : sqrt(difference / size);
    return a;
}

/* Our records in order, each held to its bound; returns the largest error / bound, and its name. */
static double compare(const struct run *r, const double *bound, const char **worst)
{
    const struct golden *g = r->golden;
    double largest = 0;
    for (int i = 0; i < r->records; i++) {
        const struct record *k = &r->record[i];
        struct tensor want = k->values;
        want.dtype = F64;
        want.data = malloc(tensor_bytes(want));
        assert_non_null(want.data);
        read_into(g, k->name, F64, tensor_count(want), want.data);
        const struct apart a = apart(k->values, want);
        if (!(a.relative <= bound[i]))
            fail_msg("%s: in %s the first wrong tensor is %s: relative error %.3g, bound %.3g; element (%lld,%lld) is %.17g, PyTorch has %.17g",
                     g->file.path, dtype_name(r->model.ops->dtype), k->name, a.relative, bound[i],
                     (long long)(a.worst / tensor_cols(want)), (long long)(a.worst % tensor_cols(want)),
                     tensor_get(k->values, a.worst), tensor_get(want, a.worst));
        if (a.relative > largest * bound[i]) largest = a.relative / bound[i], *worst = k->name;
        free(want.data);
    }
    return largest;
}

static bool begins(const char *name, const char *with) { return strncmp(name, with, strlen(with)) == 0; }

static bool is_input(const char *name)
{
    return strcmp(name, "ids") == 0 || strcmp(name, "labels") == 0 || begins(name, "init/") || begins(name, "start/")
           || (strlen(name) > 3 && strcmp(name + strlen(name) - 3, "/lr") == 0);
}

/* Nothing computed is in the file that we did not compute too. */
static void expect_all_compared(const struct run *r)
{
    for (int e = 0; e < r->golden->file.count; e++) {
        const char *name = r->golden->file.entry[e].name;
        int times = is_input(name);
        for (int i = 0; i < r->records; i++) times += strcmp(r->record[i].name, name) == 0;
        if (times != 1) fail_msg("%s: %s was computed %d times", r->golden->file.path, name, times);
    }
}

/* ---- tests -------------------------------------------------------------------------------------------------------------- */

static void initial_weights_of(const struct golden *g)
{
    struct transformer m;
    struct error err;
    if (transformer_open(&m, &g->config, F64, g->seed, &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < m.params; i++) {
        char name[96];
        const int64_t n = tensor_count(m.w[i]);
        double *want = malloc((size_t)n * sizeof *want);
        assert_non_null(want);
        snprintf(name, sizeof name, "init/%s", m.spec[i].name);
        read_into(g, name, F64, n, want);
        for (int64_t j = 0; j < n; j++)
            if (!(tensor_get(m.w[i], j) == want[j]))
                fail_msg("%s: %s element %lld: drawn %a, golden %a", g->file.path, name, (long long)j, tensor_get(m.w[i], j), want[j]);
        free(want);
    }
    transformer_close(&m);
}

static void initial_weights_bit_for_bit(void **state)
{
    (void)state;
    for_each_golden(initial_weights_of);
}

/* Two correct programs differ by rounding alone.  Sums here have at most 111 terms, and a few hundred of them follow one
 * another; 1e-12 is 9000 rounding units, and every mistake of formula, index or order of factors is far above it. */
static void in_double_of(const struct golden *g)
{
    struct run r;
    run_all(&r, g, F64, 0);
    double *bound = calloc((size_t)r.records, sizeof *bound);
    const char *worst = "nothing";
    assert_non_null(bound);
    for (int i = 0; i < r.records; i++) bound[i] = 1e-12;
    const double largest = compare(&r, bound, &worst);
    expect_all_compared(&r);
    print_message("%s: fp64, %d tensors, largest error/bound %.2g, of %s\n", g->file.path, r.records, largest, worst);
    free(bound);
    run_free(&r);
}

static void in_double(void **state)
{
    (void)state;
    for_each_golden(in_double_of);
}

/* The bound is the furthest that any of a few disturbed twins gets from the undisturbed run, and one unit in the last place
 * (see perturb.h): of a tensor of three elements a single twin may come close by luck. */
static void in_single_of(const struct golden *g)
{
    enum { TWINS = 8 };
    struct run r, twin;
    run_all(&r, g, F32, 0);
    double *bound = calloc((size_t)r.records, sizeof *bound);
    const char *worst = "nothing";
    assert_non_null(bound);
    for (uint64_t seed = 1; seed <= TWINS; seed++) {
        run_all(&twin, g, F32, seed);
        assert_int_equal(twin.records, r.records);
        for (int i = 0; i < r.records; i++) {
            const double d = apart(twin.record[i].values, r.record[i].values).relative + 2 * dtype_unit(F32);
            assert_string_equal(twin.record[i].name, r.record[i].name);
            if (!(d <= bound[i])) bound[i] = d;
        }
        run_free(&twin);
    }
    const double largest = compare(&r, bound, &worst);
    expect_all_compared(&r);
    print_message("%s: fp32, %d tensors, largest error/bound %.2g, of %s\n", g->file.path, r.records, largest, worst);
    free(bound);
    run_free(&r);
}

static void in_single(void **state)
{
    (void)state;
    for_each_golden(in_single_of);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_weights_bit_for_bit),
        cmocka_unit_test(in_double),
        cmocka_unit_test(in_single),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
