/* Zeroth-order training on one device: compared with PyTorch and with the gradient that it estimates; the source of z.
 * tier: check
 *
 * The slope is a difference of two losses, divided by 2 eps, so a rounding error of a loss is multiplied by 1/(2 eps).
 * If losses agree to 1e-12, as required for golden files, slopes agree to |l| 1e-12 / eps, and weights to lr times it.
 */
#include "ref/golden/golden.h"
#include "ref/golden/replay.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/mezo.h"
#include "ref/model/params.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

static void must(enum error_code e) { if (e) fail_msg("%s", err.text); }

static const struct optimizer *mezo(void)
{
    const struct optimizer *o;
    must(optimizer_find(&o, "mezo", &err));
    return o;
}

static void step_along(struct transformer *m, uint64_t key, double slope, struct step s)
{
    transformer_gradients_along(m, key, slope);
    for (int i = 0; i < m->params; i++) {
        struct step own = s;
        own.weight_decay = m->spec[i].decay ? s.weight_decay : 0;
        optimizer_step(mezo(), m->w[i], m->g[i], NULL, own);
    }
}

/* ---- golden/mezo.safetensors ------------------------------------------------------------------------------------- */

enum { STEPS = 3, DRAWN = 16 };

struct file { struct safetensors mezo; struct golden start; const char *name; };

static void read(const struct file *f, const char *what, const char *param, int64_t n, double *out)
{
    char name[RECORD_NAME];
    snprintf(name, sizeof name, "%s/%s%s", f->name, what, param);
    const struct safetensors_entry *e = safetensors_find(&f->mezo, name);
    if (e == NULL || e->count != n) fail_msg("golden/mezo.safetensors has no %s of %lld elements", name, (long long)n);
    must(safetensors_read(&f->mezo, e, F64, out, &err));
}

static void start_there(struct transformer *m, const struct golden *g)
{
    for (int i = 0; i < m->params; i++) {
        char name[RECORD_NAME];
        snprintf(name, sizeof name, "start/%s", m->spec[i].name);
        must(golden_read(g, name, F64, tensor_count(m->w[i]), m->w[i].data, &err));
    }
}

static void expect_direction(const struct file *f, const struct transformer *m)
{
    for (int i = 0; i < m->params; i++) {
        const int64_t all = tensor_count(m->w[i]), n = all < DRAWN ? all : DRAWN;
        double want[DRAWN], got[DRAWN];
        read(f, "z/", m->spec[i].name, n, want);
        mezo_draw(&m->spec[i], mezo_key(f->start.seed, 0), 0, n, got);
        for (int k = 0; k < n; k++)
            if (!(got[k] == want[k]))
                fail_msg("%s: z of %s, element %d: drawn %a, golden %a", f->name, m->spec[i].name, k, got[k], want[k]);
    }
}

static void expect_near(const struct file *f, const char *what, int64_t at, double got, double want, double bound)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%s: %s[%lld] is %.17g, PyTorch has %.17g: off by %.3g, bound %.3g", f->name, what, (long long)at, got,
                 want, fabs(got - want), bound);
}

static void expect_weights(const struct file *f, const struct transformer *m, double bound)
{
    for (int i = 0; i < m->params; i++) {
        const int64_t n = tensor_count(m->w[i]);
        double *want = malloc((size_t)n * sizeof *want);
        assert_non_null(want);
        read(f, "weight/", m->spec[i].name, n, want);
        for (int64_t k = 0; k < n; k++) expect_near(f, m->spec[i].name, k, tensor_get(m->w[i], k), want[k], bound);
        free(want);
    }
}

static void steps_of(struct file *f)
{
    struct transformer m;
    char path[64];
    double lr[STEPS], loss[STEPS][2], slope[STEPS], distance, decay, largest = 0;
    snprintf(path, sizeof path, "golden/%s.safetensors", f->name);
    must(golden_open(&f->start, path, &err));
    const struct golden *g = &f->start;
    must(transformer_open(&m, &g->config, F64, g->seed, &err));
    start_there(&m, g);
    expect_direction(f, &m);
    read(f, "lr", "", STEPS, lr), read(f, "loss", "", 2 * STEPS, loss[0]), read(f, "slope", "", STEPS, slope);
    distance = strtod(safetensors_metadata(&f->mezo, "distance"), NULL),
    decay = strtod(safetensors_metadata(&f->mezo, "weight_decay"), NULL);
    for (int s = 0; s < STEPS; s++) {
        const int64_t at = s * g->B * g->S;
        const uint64_t key = mezo_key(g->seed, s);
        double own[2];
        for (int side = 0; side < 2; side++) {
            must(transformer_loss_along(&m, key, side ? -distance : distance, g->ids + at, g->labels + at, g->B, g->S,
                                        &own[side], &err));
            expect_near(f, side ? "loss on the minus side" : "loss on the plus side", s, own[side], loss[s][side],
                        1e-12 * loss[s][side]);
        }
        const double bound = 1e-12 * loss[s][0] / distance, found = mezo_slope(own, distance);
        expect_near(f, "slope", s, found, slope[s], bound);
        largest = fmax(largest, fabs(found - slope[s]) / bound);
        const struct hyperparameters h = { .lr = lr[s] };
        step_along(&m, key, found,
                   (struct step){ .lr = lr[s], .t = s + 1, .gradient_scale = 1, .weight_decay = decay, .hyper = &h });
    }
    expect_weights(f, &m, 5 * (lr[0] + lr[1] + lr[2]) * 1e-12 * loss[0][0] / distance);        /* |z| < 5 */
    print_message("%s: slopes at most %.2g of their bound off\n", f->name, largest);
    transformer_close(&m);
    golden_close(&f->start);
}

static void three_steps_are_pytorchs(void **state)
{
    (void)state;
    static const char *const names[] = { "gpt2-tied", "llama-grouped" };
    struct file f = { .name = NULL };
    must(safetensors_open(&f.mezo, "golden/mezo.safetensors", &err));
    for (int i = 0; i < 2; i++) {
        f.name = names[i];
        steps_of(&f);
    }
    safetensors_close(&f.mezo);
}

/* ---- what the slope is ------------------------------------------------------------------------------------------- */

enum { B = 3, S = 7, N = B * S };

static const struct model_config shape = { .name = "small and odd",
                                           .S = S, .D = 21, .H = 3, .K = 3, .A = 7, .F = 37, .L = 2, .V = 61,
                                           .tied = true, .family = &family_gpt2, .biases = BIASES_BLOCK, .eps = 1e-5,
                                           .init_std = 0.2 };

static void make_batch(int32_t ids[N], int32_t labels[N])
{
    for (int n = 0; n < N; n++) ids[n] = n * 17 % 61, labels[n] = n % 7 == 3 ? IGNORE_LABEL : n * 29 % 61;
}

static double slope_at(struct transformer *m, uint64_t key, double eps)
{
    int32_t ids[N], labels[N];
    double loss[2];
    make_batch(ids, labels);
    for (int side = 0; side < 2; side++)
        must(transformer_loss_along(m, key, side ? -eps : eps, ids, labels, B, S, &loss[side], &err));
    return mezo_slope(loss, eps);
}

/* gradient . z, of backward. */
static double derivative_along(struct transformer *m, uint64_t key)
{
    int32_t ids[N], labels[N];
    double loss, sum = 0;
    make_batch(ids, labels);
    transformer_zero_gradients(m);
    must(transformer_forward(m, ids, labels, B, S, &loss, &err));
    transformer_backward(m);
    for (int i = 0; i < m->params; i++)
        for (int64_t k = 0; k < tensor_count(m->g[i]); k++) {
            double z;
            mezo_draw(&m->spec[i], key, k, 1, &z);
            sum += z * tensor_get(m->g[i], k);
        }
    return sum;
}

/* The error of a two-sided difference is c eps^2: a hundredth at a tenth of eps.  With dropout that holds only if both
 * sides leave out the same: other masks would make the slope the difference of two losses over 2
 * eps, thousands of times too large. */
static void slope_is_the_derivative(double dropout)
{
    struct transformer m;
    struct model_config c = shape;
    c.dropout_embedding = c.dropout_residual = c.dropout_attention = dropout;
    must(transformer_open(&m, &c, F64, 5, &err));
    const double want = derivative_along(&m, mezo_key(5, 0)), far = slope_at(&m, mezo_key(5, 0), 1e-3) - want,
                 near = slope_at(&m, mezo_key(5, 0), 1e-4) - want;
    if (!(fabs(far) <= 1e-2 * fabs(want) && fabs(near) <= 0.02 * fabs(far)))
        fail_msg("dropout %g: slope differs from gradient . z = %g by %g at eps 1e-3 and by %g at 1e-4; a hundredth "
                 "was wanted",
                 dropout, want, far, near);
    transformer_close(&m);
}

static void the_slope_is_the_derivative(void **state) { (void)state; slope_is_the_derivative(0); }
static void both_sides_have_the_same_dropout(void **state) { (void)state; slope_is_the_derivative(0.2); }

static void weights_stay_where_they_are(void **state)
{
    (void)state;
    struct transformer m, untouched;
    must(transformer_open(&m, &shape, F32, 5, &err));
    must(transformer_open(&untouched, &shape, F32, 5, &err));
    slope_at(&m, mezo_key(5, 0), 1e-3);
    for (int i = 0; i < m.params; i++) assert_memory_equal(m.w[i].data, untouched.w[i].data, tensor_bytes(m.w[i]));
    transformer_close(&m);
    transformer_close(&untouched);
}

/* ---- z ----------------------------------------------------------------------------------------------------------- */

static void any_piece_has_the_same_direction(void **state)
{
    (void)state;
    enum { MANY = 3001 };
    static double whole[MANY], piece[MANY];
    const struct param_spec p = model_param(&shape, 3), other = model_param(&shape, 4);
    const int64_t cuts[] = { 0, 1, 512, 513, 2000, MANY };
    mezo_draw(&p, 7, 0, MANY, whole);
    for (int c = 0; c < 5; c++) mezo_draw(&p, 7, cuts[c], cuts[c + 1] - cuts[c], piece + cuts[c]);
    assert_memory_equal(whole, piece, sizeof whole);
    mezo_draw(&other, 7, 0, MANY, piece);
    assert_memory_not_equal(whole, piece, sizeof whole);
    mezo_draw(&p, mezo_key(7, 1), 0, MANY, piece);
    assert_memory_not_equal(whole, piece, sizeof whole);
    /* what initial weights are drawn of */
    for (int i = 0; i < MANY; i++) piece[i] = random_normal(7, random_stream(p.name), (uint64_t)i);
    assert_memory_not_equal(whole, piece, sizeof whole);
}

/* In every format: the sum in double, rounded once; in pieces as at once. */
static void moving_rounds_once(void **state)
{
    (void)state;
    enum { MANY = 1500, CUT = 700 };
    static const enum dtype formats[] = { F64, F32, BF16, F16 };
    const struct param_spec p = model_param(&shape, 3);
    static double z[MANY];
    mezo_draw(&p, 9, 40, MANY, z);
    for (int f = 0; f < 4; f++) {
        static double a[MANY], b[MANY];
        const struct tensor x = tensor_1d(a, formats[f], MANY), y = tensor_1d(b, formats[f], MANY);
        for (int i = 0; i < MANY; i++) tensor_set(x, i, 0.1 * sin(i)), tensor_set(y, i, 0.1 * sin(i));
        mezo_move(&p, 9, 1e-3, 40, MANY, formats[f], a);
        mezo_move(&p, 9, 1e-3, 40, CUT, formats[f], b);
        mezo_move(&p, 9, 1e-3, 40 + CUT, MANY - CUT, formats[f], (char *)b + CUT * dtype_size(formats[f]));
        assert_memory_equal(a, b, tensor_bytes(x));
        for (int i = 0; i < MANY; i++) {
            double start, want;
            tensor_set(tensor_1d(&start, formats[f], 1), 0, 0.1 * sin(i));
            tensor_set(tensor_1d(&want, formats[f], 1), 0,
                       tensor_get(tensor_1d(&start, formats[f], 1), 0) + 1e-3 * z[i]);
            const double got = tensor_get(x, i), wanted = tensor_get(tensor_1d(&want, formats[f], 1), 0);
            if (!(fabs(got - wanted) <= (formats[f] == F64 ? 2 * dtype_unit(F64) : 0)))
                fail_msg("%s: element %d moved to %.17g, want %.17g", dtype_name(formats[f]), i, got, wanted);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_steps_are_pytorchs),
        cmocka_unit_test(the_slope_is_the_derivative),
        cmocka_unit_test(both_sides_have_the_same_dropout),
        cmocka_unit_test(weights_stay_where_they_are),
        cmocka_unit_test(any_piece_has_the_same_direction),
        cmocka_unit_test(moving_rounds_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
