/* Windows of attention, in every other layer, on every mesh and by every attention scheme: as on one device.
 * ranks: 1 2
 * verify ranks: 3 4 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  The window is shorter than most devices' part of a sequence, and longer than some: keys of other
 * devices are seen by some of a device's queries, by all, by none.
 */
#include "tests/devices/trained.h"
#include "emulated_devices/schemes/attention/positions.h"
#include "emulated_devices/verify/cases/attention.h"
#include <string.h>

static struct plan windowed(int dp, int tp, int pp, int64_t window)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_windows(&p);
    p.model.windows.size = window;
    return p;
}

static void test_every_mesh(void **state)
{
    (void)state;
    FOR_MESHES(dp, tp, pp) check_if_taken(windowed(dp, tp, pp, 3));
}

/* Of one key, of a few, of all but one, of more than there are. */
static const int64_t sizes[] = { 1, 3, 8, 20 };

static bool is_planned(const struct plan *p)
{
    const struct attention_scheme *s;
    return attention_scheme_find(&s, p->attention, &err) == OK && s->plan != NULL;
}

static void test_every_attention_scheme(void **state)
{
    (void)state;
    for (int i = 0; attention_scheme_at(i) && test_size > 1; i++)
        for (int w = in_verify() ? 0 : i % 4; w < (in_verify() ? 4 : i % 4 + 1); w++) {
            struct plan p = windowed(1, test_size == 4 ? 2 : 1, 1, sizes[w]);
            case_take_context(&p, test_size == 4 ? 2 : test_size, attention_scheme_at(i)->head.name);
            p.recompute = w % 2 ? "selective" : "none", p.packed = i % 2;
            const enum error_code e = plan_check(&p, &err);
            if (e == OK) check(&p);
            if (is_planned(&p) && sizes[w] < p.S)
                ASSERT_ALL(e != OK && strstr(err.text, "--model nasty windowed qwen2 with windows of"),
                           "%s with windows: %s", p.attention, e ? err.text : "accepted");
        }
}

/* All pairs of devices together have the pairs of the whole sequences, whatever the cut. */
static void test_pairs(void **state)
{
    static const char *const names[] = { "ring", "ring-striped", "ring-zigzag", "allgather-kv", "tokenring", "usp" };
    const struct attention_shape shape = { 2, 23, 4, 2, 2 };
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct plan p;
        struct device d;
        struct comm outline;
        struct attention_layer layer;
        struct positions at;
        enum error_code e = attention_layer_plan(&p, shape, F64, names[i], (struct context_split){ 0 }, 4, NULL, &err);
        p.model.windows.size = 6, windows_add(&p.model.windows, 0, 1);
        if (!e) e = device_open(&d, NULL, F64, 0, &err);
        if (!e) e = comm_outline(&outline, &d, 0, 4, &err);
        if (!e) e = attention_layer_open(&layer, &p, &outline, tensor_none, &err);
        if (!e) e = positions_open(&at, &layer.cp, &err);
        ASSERT_ALL(!e, "%s: %s", names[i], err.text);
        double pairs = 0;
        for (int pair = 0; pair < 16; pair++)
            pairs += positions_pairs(&at, layer.call.shape, shape.B, pair / 4, pair % 4);
        ASSERT_ALL(pairs == 2 * (6 * 7 / 2 + 17 * 6), "%s: %g pairs of tokens in windows of 6", names[i], pairs);
        positions_close(&at), attention_layer_close(&layer), comm_outline_close(&outline), device_close(&d);
    }
}

/* Fewer keys are fewer operations, by the formula of one layer. */
static void test_operations(void **state)
{
    const struct plan full = windowed(1, 1, 1, 20), few = windowed(1, 1, 1, 3);
    const struct model_config *c = &few.model;
    (void)state;
    const double pairs = 9.0 * 10 / 2 - (3 * 4 / 2 + 6 * 3), B = 2,
                 less = model_step_flops(&full.model, 2, 9) - model_step_flops(c, 2, 9);
    const double layers = (double)model_windowed_layers(c);
    ASSERT_ALL(less == 3.5 * 4 * (double)(c->H * c->A) * pairs * B * layers, "windows save %g operations", less);
    ASSERT_ALL(model_forward_flops_whole(&full.model, 2, 9) == model_forward_flops_whole(c, 2, 9),
               "windows change what counts all pairs");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh), MPI_TEST(test_every_attention_scheme), MPI_TEST(test_pairs),
        MPI_TEST(test_operations),
    };
    return MPI_RUN("windows", tests);
}
