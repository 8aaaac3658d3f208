/* Profiles: steps, loss scales and initial values compared with what the packages themselves compute
 * (golden/make_profiles.py); how `--as` is read; that ours is the default.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/optim/loss_scale.h"
#include "ref/optim/optimizer.h"
#include "tests/ref/test_ops.h"

enum { MOST_PARAMETERS = 4, MOST_CASES = 16 };

static struct safetensors file;

static const char *text_of(const char *fmt, ...)
{
    char key[96];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(key, sizeof key, fmt, ap);
    va_end(ap);
    const char *text = safetensors_metadata(&file, key);
    if (text == NULL) fail_msg("%s: no %s", file.path, key);
    return text;
}

static double number(const char *key) { return strtod(text_of("%s", key), NULL); }

static struct tensor stored(const char *fmt, ...)
{
    char name[128];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    const struct safetensors_entry *e = safetensors_find(&file, name);
    if (e == NULL) fail_msg("%s: no %s", file.path, name);
    struct tensor t = e->ndim == 2 ? matrix(F64, e->dim[0], e->dim[1]) : vector(F64, e->dim[0]);
    struct error err;
    if (safetensors_read(&file, e, F64, t.data, &err) != OK) fail_msg("%s", err.text);
    return t;
}

/* The words of a list in the metadata, one after another: the nth, or false. */
static bool nth(const char *list, int n, char word[64])
{
    for (; n > 0 && list; n--) list = strchr(list, ' ') ? strchr(list, ' ') + 1 : NULL;
    if (list == NULL) return false;
    snprintf(word, 64, "%.*s", (int)strcspn(list, " "), list);
    return true;
}

static struct conventions read_as(const char *text)
{
    struct conventions c;
    struct error err;
    if (conventions_parse(&c, text, &err) != OK) fail_msg("%s", err.text);
    return c;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

struct one { char name[64]; struct tensor w, g, state[OPTIMIZER_MAX_STATES], size[2]; };

/* How far rounding may take an element of a package's step.  A step has at most 16 roundings, each of u, of numbers no
 * larger than the weight, the decay that it has lost, and the largest step of gradients without signs: `size` keeps
 * their moments.  Clipping has one more for each element of the norm, relative. */
static double step_size(const struct optimizer *o, const struct hyperparameters *h, const struct one *x, int64_t i,
                        int64_t t)
{
    const double m = tensor_get(x->size[0], i), v = tensor_get(x->size[1], i);
    if (strcmp(o->name, "adamw") != 0) return h->lr * m;
    return h->lr * m / (1 - pow(h->beta1, (double)t)) / (sqrt(v / (1 - pow(h->beta2, (double)t))) + h->eps);
}

static void follow_sizes(const struct optimizer *o, const struct hyperparameters *h, struct one *x, double scale)
{
    const bool adam = strcmp(o->name, "adamw") == 0;
    const double keep = adam ? h->beta1 : strcmp(o->name, "sgd") == 0 ? 0 : h->momentum;
    for (int64_t i = 0; i < tensor_count(x->w); i++) {
        const double g = fabs(tensor_get(x->g, i)) * scale, decay = h->weight_decay * fabs(tensor_get(x->w, i));
        const double m = keep * tensor_get(x->size[0], i) + (adam ? (1 - h->beta1) * g : g + decay);
        tensor_set(x->size[0], i, m);
        tensor_set(x->size[1], i, h->beta2 * tensor_get(x->size[1], i) + (1 - h->beta2) * g * g);
    }
}

/* What a case computes with, and where it is. */
struct place { const char *kase; const struct optimizer *o; const struct hyperparameters *h; int64_t t; double u; };

/* k: of the weight -1, or of a state. */
static void expect_elements(const struct place *p, const struct one *x, int k, struct tensor want)
{
    const struct tensor got = k < 0 ? x->w : x->state[k];
    for (int64_t i = 0; i < tensor_count(got); i++) {
        const double moved = (double)p->t * step_size(p->o, p->h, x, i, p->t);
        const double size = k < 0 ? fabs(tensor_get(x->w, i)) + moved : tensor_get(x->size[k], i);
        const double bound = 16 * (double)p->t * p->u * size, off = fabs(tensor_get(got, i) - tensor_get(want, i));
        if (!(off <= bound))
            fail_msg("%s: %s of %s after step %lld, element %lld is %.17g; the package has %.17g, %.2g off; the bound "
                     "is %.2g", p->kase, k < 0 ? "weight" : p->o->state_name[k], x->name, (long long)p->t, (long long)i,
                     tensor_get(got, i), tensor_get(want, i), off, bound);
    }
}

static int open_parameters(struct one all[], const struct optimizer *o)
{
    int n = 0;
    for (; nth(text_of("parameters"), n, all[n].name); n++) {
        struct one *x = &all[n];
        x->w = stored("start.%s", x->name);
        for (int k = 0; k < o->states; k++) x->state[k] = fill_with(copy_of(x->w), 0);
        for (int k = 0; k < 2; k++) x->size[k] = fill_with(copy_of(x->w), 0);
    }
    return n;
}

static void follow_case(const char *kase)
{
    struct one all[MOST_PARAMETERS] = { 0 };
    const struct optimizer *o = NULL;
    const struct hyperparameters h = { .lr = number("lr"), .beta1 = number("beta1"), .beta2 = number("beta2"),
                                       .eps = number("eps"), .weight_decay = number("weight_decay"),
                                       .momentum = number("momentum"), .clip = number("clip"),
                                       .as = read_as(text_of("%s.as", kase)) };
    assert_int_equal(optimizer_find(&o, text_of("%s.optimizer", kase), NULL), OK);
    const double u = dtype_unit(strcmp(text_of("%s.dtype", kase), "fp32") == 0 ? F32 : F64);
    const int n = open_parameters(all, o), steps = (int)number("steps");
    int clipped = 0;
    for (int t = 1; t <= steps; t++) {
        double square = 0;
        for (int p = 0; p < n; p++) {
            all[p].g = stored("gradient.%s.%d", all[p].name, t);
            for (int64_t i = 0; i < tensor_count(all[p].g); i++) square += pow(tensor_get(all[p].g, i), 2);
        }
        const double scale = clip_scale(&h, sqrt(square));
        clipped += scale < 1;
        for (int p = 0; p < n; p++) {
            struct one *x = &all[p];
            const struct step s = { .lr = h.lr, .t = t, .gradient_scale = scale, .hyper = &h,
                                    .weight_decay = weight_decay_of(&h, x->w.ndim == 2) };
            const struct place at = { kase, o, &h, t, u };
            follow_sizes(o, &h, x, scale);
            optimizer_step(o, x->w, x->g, x->state, s);
            expect_elements(&at, x, -1, stored("%s.%s.weight.%d", kase, x->name, t));
            for (int k = 0; t == steps && k < o->states; k++)
                expect_elements(&at, x, k, stored("%s.%s.%s", kase, x->name, o->state_name[k]));
        }
    }
    assert_true(clipped > 0 && clipped < steps);
}

static void steps_are_those_of_the_packages(void **state)
{
    (void)state;
    char kase[64];
    int n = 0;
    for (; nth(text_of("cases"), n, kase); n++) {
        follow_case(kase);
        check_guards_and_free();
    }
    assert_true(n >= 10);
}

/* ---- loss scales ------------------------------------------------------------------------------------------------- */

static void scales_are_those_of_the_packages(void **state)
{
    (void)state;
    const char *overflows = text_of("overflows");
    char kase[64];
    for (int n = 0; nth(text_of("scales"), n, kase); n++) {
        const struct conventions c = read_as(text_of("scale.%s.as", kase));
        const struct tensor want = stored("scale.%s", kase);
        struct loss_scale s = loss_scale_of(&c, F16);
        for (int64_t t = 0; t < tensor_count(want); t++) {
            const bool taken = loss_scale_update(&s, overflows[t] == 'x'), ended = isnan(tensor_get(want, t));
            if (s.exhausted != ended)
                fail_msg("%s: step %lld ends the run: %d, want %d", kase, (long long)t + 1, s.exhausted, ended);
            if (ended) break;
            assert_int_equal(taken, overflows[t] != 'x');
            if (!(s.scale == tensor_get(want, t)))
                fail_msg("%s: after step %lld of %s the loss scale is %g; the package has %g", kase, (long long)t + 1,
                         overflows, s.scale, tensor_get(want, t));
        }
    }
    check_guards_and_free();
}

static void scales_begin_as_in_the_packages(void **state)
{
    (void)state;
    static const enum convention row[] = { SCALE_START, SCALE_GROWTH, SCALE_BACKOFF, SCALE_INTERVAL, SCALE_HYSTERESIS,
                                           SCALE_LEAST };
    for (int p = AS_TORCH; p <= AS_DEEPSPEED; p++) {
        const struct tensor want = stored("defaults.%s", profile_names[p]);
        const struct conventions c = read_as(profile_names[p]);
        for (int i = 0; i < 6; i++) {
            const double x = tensor_get(want, i);
            if (x != 0 && !(convention(&c, row[i]) == x))
                fail_msg("%s: %s is %g; the package has %g", profile_names[p], convention_rows[row[i]].name,
                         convention(&c, row[i]), x);
        }
    }
    check_guards_and_free();
}

/* ---- initial values ---------------------------------------------------------------------------------------------- */

static void expect_initial(const struct model_config *c, const char *profile, const char *kind, int parameter)
{
    char name[64];
    snprintf(name, sizeof name, "init.%s.%s", profile, kind);
    if (safetensors_find(&file, name) == NULL) return;
    const struct tensor want = stored("%s", name);
    const struct param_spec s = model_param(c, parameter);
    if (s.uniform != (tensor_get(want, 0) == 1) || !(fabs(s.std - tensor_get(want, 1)) <= 4 * dtype_unit(F64) * s.std))
        fail_msg("%s: %s begins %s, %.17g; the package has %s, %.17g", name, s.name, s.uniform ? "uniform" : "normal",
                 s.std, tensor_get(want, 0) == 1 ? "uniform" : "normal", tensor_get(want, 1));
}

static void initial_values_are_those_of_the_packages(void **state)
{
    (void)state;
    static const char *const profiles[] = { "torch", "megatron", "galore-torch" };
    const int64_t D = (int64_t)number("D");
    for (int i = 0; i < 3; i++) {
        const struct conventions as = read_as(profiles[i]);
        const struct model_config c = { .name = "m", .L = (int64_t)number("L"), .H = 3, .K = 3, .A = D / 3, .D = D,
                                        .F = (int64_t)number("F"), .V = (int64_t)number("V"), .S = 8, .tied = false,
                                        .family = &family_gpt2, .biases = BIASES_BLOCK, .eps = 1e-5, .init_std = 0.02,
                                        .initial = (int)convention(&as, INITIAL) };
        assert_int_equal(model_config_check(&c, NULL), OK);
        expect_initial(&c, profiles[i], "tokens", PARAM_WTE);
        expect_initial(&c, profiles[i], "up", param_of_block(&c, 1, UP_W));
        expect_initial(&c, profiles[i], "up_bias", param_of_block(&c, 1, UP_B));
        expect_initial(&c, profiles[i], "down", param_of_block(&c, 1, DOWN_W));
        expect_initial(&c, profiles[i], "down_bias", param_of_block(&c, 1, DOWN_B));
        expect_initial(&c, profiles[i], "up", param_of_block(&c, 2, QKV_W));
        expect_initial(&c, profiles[i], "up_bias", param_of_block(&c, 2, QKV_B));
        for (int p = 0; p < model_param_count(&c); p++)
            if (model_param(&c, p).role == ROLE_NORM) assert_true(model_param(&c, p).std == 0);
    }
    check_guards_and_free();
}

/* ---- as typed ---------------------------------------------------------------------------------------------------- */

static void ours_is_what_there_was(void **state)
{
    (void)state;
    const struct conventions none = { 0 }, named = read_as("orrery");
    for (int i = 0; i < CONVENTIONS; i++) {
        const struct convention_row *r = &convention_rows[i];
        assert_non_null(r->name);
        assert_true(convention(&none, (enum convention)i) == r->value[AS_ORRERY]);
        assert_true(convention(&named, (enum convention)i) == r->value[AS_ORRERY]);
        for (int p = 0; p < PROFILES; p++) {
            if (r->choices == NULL) assert_true(r->value[p] >= r->least && r->value[p] <= r->most);
            for (int k = 0; r->choices && k <= (int)r->value[p]; k++) assert_non_null(r->choices[k]);
        }
    }
    assert_true(named.text[0] == '\0');                 /* so that a run says nothing of it */
}

static void a_row_may_be_changed(void **state)
{
    (void)state;
    const struct conventions c = read_as("megatron,decay-place=after,scale-interval=7,clip-added=0");
    assert_true(convention(&c, DECAY_PLACE) == DECAY_AFTER && convention(&c, SCALE_INTERVAL) == 7);
    assert_true(convention(&c, CLIP_ADDED) == 0 && convention(&c, SCALE_HYSTERESIS) == 2);
    const struct conventions ours = read_as("orrery,eps-place=raw");
    assert_true(convention(&ours, EPS_PLACE) == EPS_RAW && ours.text[0] != '\0');
}

static void refuses_what_is_none(void **state)
{
    (void)state;
    static const struct { const char *text, *says; } bad[] = {
        { "torhc", "did you mean torch" }, { "", "--as" }, { "torch,", "CONVENTION=VALUE" },
        { "torch,decay-place", "CONVENTION=VALUE" }, { "torch,decay-plaec=after", "did you mean decay-place" },
        { "torch,decay-place=aftre", "did you mean after" }, { "torch,scale-interval=0", "from 1 to" },
        { "torch,scale-interval=1.5", "whole number" }, { "torch,scale-interval=nan", "from 1 to" },
        { "torch,clip-added=1e-6x", "a number from 0 to 1" }, { "torch,clip-added=", "a number from 0 to 1" },
    };
    char longest[400];
    struct conventions c;
    struct error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(conventions_parse(&c, bad[i].text, &err), ERR_USAGE);
        if (strstr(err.text, bad[i].says) == NULL) fail_msg("\"%s\": %s", bad[i].text, err.text);
        assert_true(c.text[0] == '\0');
    }
    memset(longest, 'x', sizeof longest - 1), longest[sizeof longest - 1] = '\0';
    assert_int_equal(conventions_parse(&c, longest, &err), ERR_USAGE);
}

static int open_file(void **state)
{
    (void)state;
    struct error err;
    if (safetensors_open(&file, "golden/profiles.safetensors", &err) != OK) return printf("%s\n", err.text), -1;
    return 0;
}

static int close_file(void **state)
{
    (void)state;
    safetensors_close(&file);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_the_packages),
        cmocka_unit_test(scales_are_those_of_the_packages),
        cmocka_unit_test(scales_begin_as_in_the_packages),
        cmocka_unit_test(initial_values_are_those_of_the_packages),
        cmocka_unit_test(ours_is_what_there_was),
        cmocka_unit_test(a_row_may_be_changed),
        cmocka_unit_test(refuses_what_is_none),
    };
    return cmocka_run_group_tests(tests, open_file, close_file);
}
