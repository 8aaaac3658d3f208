/* Encoders of what is not text on one device, forward and backward, against PyTorch's autograd
 * (golden/encoders.safetensors).
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/model/modality.h"
#include "ref/ops/ops.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <math.h>

enum { D = 10 };
static struct safetensors file;
static struct error err;

static const struct safetensors_entry *find(int modality, const char *what)
{
    char full[64];
    snprintf(full, sizeof full, "%s/%s", modalities[modality].name, what);
    const struct safetensors_entry *e = safetensors_find(&file, full);
    if (e == NULL) fail_msg("golden/encoders.safetensors has no %s", full);
    return e;
}

static void take(int modality, const char *what, struct tensor t)
{
    const struct safetensors_entry *e = find(modality, what);
    assert_int_equal(e->count, tensor_count(t));
    if (safetensors_read(&file, e, F64, t.data, &err) != OK) fail_msg("%s", err.text);
}

static void expect(int modality, const char *what, struct tensor is)
{
    double want[512], off = 0, size = 0;
    const double *x = is.data;
    assert_true(tensor_count(is) <= 512);
    take(modality, what, tensor_1d(want, F64, tensor_count(is)));
    for (int64_t i = 0; i < tensor_count(is); i++)
        off = fmax(off, fabs(x[i] - want[i])), size = fmax(size, fabs(want[i]));
    if (!(off <= 1e-13 * size))
        fail_msg("%s/%s is off by %.3g, of %.3g", modalities[modality].name, what, off, size);
}

static struct tensor view(struct serial_encoders *s, int m, bool gradient, enum encoder_param p)
{
    return encoder_view(&modalities[m], D, gradient ? s->g[m] : s->w[m], p);
}

/* One clip of each modality, with as many patches as the file has. */
static void place_clips(struct serial_encoders *s)
{
    s->clips = (struct clips){ .clip = calloc(MODALITIES, sizeof *s->clips.clip) };
    assert_non_null(s->clips.clip);
    for (int m = 0; m < MODALITIES; m++) {
        const int64_t n = find(m, "x")->count / modalities[m].C;
        s->clips.clip[s->clips.count++] = (struct clip){ m, 0, n, s->clips.patches };
        s->clips.patches += n;
    }
}

static void test_as_autograd(void **state)
{
    static const char *const name[ENCODER_PARAMS] = { "up.w", "up.b", "out.w", "out.b" };
    struct serial_encoders s;
    double dy[512];
    (void)state;
    assert_int_equal(serial_encoders_open(&s, MODALITIES, D, ops_for(F64), 1, 0, &err), OK);
    place_clips(&s);
    for (int m = 0; m < MODALITIES; m++)
        for (enum encoder_param p = 0; p < ENCODER_PARAMS; p++) take(m, name[p], view(&s, m, false, p));
    assert_int_equal(serial_encoders_begin(&s, &err), OK);
    for (int m = 0; m < MODALITIES; m++) take(m, "x", s.x[m]);
    serial_encoders_compute(&s, ops_for(F64));
    for (int m = 0; m < MODALITIES; m++) {
        const struct clip *c = &s.clips.clip[m];
        expect(m, "y", tensor_2d((double *)s.rows.data + c->first * D, F64, c->count, D));
        take(m, "dy", tensor_2d(dy, F64, c->count, D));
        memcpy((double *)s.d_rows.data + c->first * D, dy, (size_t)(c->count * D) * sizeof *dy);
    }
    assert_int_equal(serial_encoders_backward(&s, ops_for(F64), &err), OK);
    for (int m = 0; m < MODALITIES; m++)
        for (enum encoder_param p = 0; p < ENCODER_PARAMS; p++) {
            char what[16];
            snprintf(what, sizeof what, "d.%s", name[p]);
            expect(m, what, view(&s, m, true, p));
        }
    serial_encoders_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_as_autograd) };
    if (safetensors_open(&file, "golden/encoders.safetensors", &err) != OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    safetensors_close(&file);
    return failed;
}
