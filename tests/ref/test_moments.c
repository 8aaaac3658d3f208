/* --beta1, --beta2 and --eps: steps are those of torch.optim.AdamW with the same numbers, without flags with its own
 * defaults; an optimizer that lacks a number refuses the flag.
 * tier: check
 */
#include "ref/io/options.h"
#include "ref/io/safetensors.h"
#include "ref/optim/moments.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MOST = 8, ELEMENTS_MOST = 64 };

static struct safetensors golden;

static const char *text_of(const char *kase, const char *key)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s%s", kase, kase[0] ? "." : "", key);
    const char *text = safetensors_metadata(&golden, name);
    if (text == NULL) fail_msg("golden/moments.safetensors has no %s", name);
    return text;
}

static int64_t stored(double *x, const char *kase, const char *what)
{
    char name[64];
    struct error err;
    snprintf(name, sizeof name, "%s%s%s", kase, kase[0] ? "." : "", what);
    const struct safetensors_entry *e = safetensors_find(&golden, name);
    if (e == NULL || e->count > ELEMENTS_MOST) fail_msg("golden/moments.safetensors has no %s", name);
    if (safetensors_read(&golden, e, F64, x, &err) != OK) fail_msg("%s", err.text);
    return e->count;
}

/* Read flags as `orrery train` does, by the rows of the same table. */
static enum error_code read_flags(struct moment_flags *flags, const char *text, struct error *err)
{
    char copy[128], *rest = copy, *words[WORDS_MOST];
    int n = 0;
    bool help;
    *flags = MOMENTS_NOT_GIVEN;
    const struct option table[] = { MOMENT_OPTIONS(*flags), { 0 } };
    snprintf(copy, sizeof copy, "%s", text);
    for (char *word; n < WORDS_MOST && (word = strtok_r(rest, " ", &rest)) != NULL;) words[n++] = word;
    return options_parse("train", n, words, table, &help, err);
}

static const struct optimizer *named(const char *name)
{
    const struct optimizer *o;
    assert_int_equal(optimizer_find(&o, name, NULL), OK);
    return o;
}

/* Each step rounds at most 32 times, by at most the largest element. */
static void expect_near(const char *kase, const char *what, const double *got, const double *want, int64_t n, int step)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= 32 * step * dtype_unit(F64) * largest))
            fail_msg("%s (%s): %s after step %d, element %d is %.17g; torch.optim.AdamW has %.17g", kase,
                     text_of(kase, "flags"), what, step, (int)i, got[i], want[i]);
}

static void follow_torch(const char *kase, const struct conventions *as)
{
    const struct optimizer *const adamw = named("adamw");
    struct moment_flags flags;
    struct error err;
    double w[ELEMENTS_MOST], g[ELEMENTS_MOST], want[ELEMENTS_MOST], m[ELEMENTS_MOST] = { 0 }, v[ELEMENTS_MOST] = { 0 };
    if (read_flags(&flags, text_of(kase, "flags"), &err) != OK) fail_msg("%s: %s", kase, err.text);
    assert_int_equal(moments_check(&adamw, 1, &flags, &err), OK);
    struct hyperparameters h = optimizer_usual(adamw, as);
    moments_take(&h, adamw, &flags);
    const int64_t n = stored(w, "", "start");
    const struct tensor state[] = { tensor_1d(m, F64, n), tensor_1d(v, F64, n) };
    for (int t = 1; t <= atoi(text_of("", "steps")); t++) {
        char name[32];
        snprintf(name, sizeof name, "gradient.%d", t), stored(g, "", name);
        optimizer_step(adamw, tensor_1d(w, F64, n), tensor_1d(g, F64, n), state,
                       (struct step){ .lr = h.lr, .weight_decay = weight_decay_of(&h, false), .gradient_scale = 1,
                                      .t = t, .hyper = &h });
        snprintf(name, sizeof name, "weight.%d", t), stored(want, kase, name);
        expect_near(kase, "weight", w, want, n, t);
    }
    stored(want, kase, "exp_avg"), expect_near(kase, "exp_avg", m, want, n, 5);
    stored(want, kase, "exp_avg_sq"), expect_near(kase, "exp_avg_sq", v, want, n, 5);
}

static void steps_are_those_of_torch(void **state)
{
    struct error err;
    struct conventions as;
    char cases[128], *rest = cases;
    int n = 0;
    (void)state;
    if (safetensors_open(&golden, "golden/moments.safetensors", &err) != OK) fail_msg("%s", err.text);
    assert_int_equal(conventions_parse(&as, "torch", &err), OK);
    snprintf(cases, sizeof cases, "%s", text_of("", "cases"));
    for (char *kase; (kase = strtok_r(rest, " ", &rest)) != NULL; n++) follow_torch(kase, &as);
    assert_true(n >= 7);
    safetensors_close(&golden);
}

/* The values of a checkpoint that was made without --as stay what they were. */
static void own_numbers_stay(void **state)
{
    (void)state;
    const struct hyperparameters h = optimizer_usual(named("adamw"), &(struct conventions){ 0 });
    assert_true(h.beta1 == 0.9 && h.beta2 == 0.95 && h.eps == 1e-8 && h.weight_decay == 0.1);
}

static void refused(const char *optimizer, const char *flags, const char *says)
{
    const struct optimizer *const o = named(optimizer);
    struct moment_flags f;
    struct error err;
    enum error_code e = read_flags(&f, flags, &err);
    if (!e) e = moments_check(&o, 1, &f, &err);
    if (e != ERR_USAGE) fail_msg("--optimizer %s %s: is not refused", optimizer, flags);
    if (strstr(err.text, says) == NULL) fail_msg("--optimizer %s %s: %s", optimizer, flags, err.text);
}

static void what_is_wrong_is_refused(void **state)
{
    (void)state;
    refused("adamw", "--beta1 1", "--beta1 1: must be from 0 to below 1");
    refused("adamw", "--beta2 1.0", "--beta2 1: must be from 0 to below 1");
    refused("adamw", "--beta2 -0.1", "--beta2 -0.1: must be");
    refused("adamw", "--eps 0", "--eps 0: must be");
    refused("adamw", "--eps nan", "--eps");
    refused("sgd", "--beta1 0.5", "--beta1: is for adamw, radam, galore, natural-galore; --optimizer sgd has no");
    refused("momentum", "--eps 1e-3", "--eps: is for adamw");
    refused("mezo", "--beta2 0.5", "--beta2: is for adamw");
}

/* An optimizer of a plug-in that has no eps, such as Lion, takes the betas alone. */
static void each_number_is_asked_for_by_itself(void **state)
{
    (void)state;
    const struct optimizer lion = { .name = "lion", .usual = { .beta1 = 0.9, .beta2 = 0.99 } }, *const one = &lion;
    struct moment_flags f;
    struct error err;
    struct hyperparameters h = lion.usual;
    assert_int_equal(read_flags(&f, "--beta1 0.5", &err), OK);
    assert_int_equal(moments_check(&one, 1, &f, &err), OK);
    moments_take(&h, one, &f);
    assert_true(h.beta1 == 0.5 && h.beta2 == 0.99 && h.eps == 0);
    assert_int_equal(read_flags(&f, "--eps 0.5", &err), OK);
    assert_int_equal(moments_check(&one, 1, &f, &err), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_torch), cmocka_unit_test(own_numbers_stay),
        cmocka_unit_test(what_is_wrong_is_refused), cmocka_unit_test(each_number_is_asked_for_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
