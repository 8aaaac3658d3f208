/* Every rule of a router on devices equals the one-device model: over copies, parts of layers, of sequences and of the
 * pipeline, with weights in shards, and with experts on other devices.
 * ranks: 1 2
 * verify ranks: 3 4 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12, each on another batch; messages, bytes,
 * additions and memory peaks by formula.  A router whose logits are not finite is named, with the row of the batch.
 */
#include "emulated_devices/verify/reference/counts.h"
#include "ref/model/config.h"
#include "tests/devices/session.h"
#include "tests/devices/trained.h"
#include <math.h>

static struct plan routed(int dp, int tp, int pp, const struct router *r)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_mixtral(&p);
    case_take_router(&p, r);
    return p;
}

/* Parts of sequences on each device, which no rule that needs whole sequences takes; with shared experts without a
 * gate, whose result and gradient have the memory of the sum with the others. */
static void take_sequence_parallel(struct plan *p, const char *tensor)
{
    case_take_experts(p, test_size, "alltoall");
    if (test_size > 1) p->tensor = tensor;
    p->model.mixture.sequence_coefficient = p->model.mixture.capacity_factor = 0;
    p->model.mixture.shared = 11;
}

/* A layout of all devices, in p.  @return whether there is such a one. */
static bool layout(int which, const struct router *r, struct plan *p)
{
    const int n = test_size;
    switch (which) {
    case 0: *p = routed(n, 1, 1, r); return true;
    case 1: *p = routed(n, 1, 1, r), p->data.scheme = "zero3"; return true;
    case 2: *p = routed(1, n, 1, r); return true;
    case 3: *p = routed(1, 1, n, r); return true;
    case 4:
        if (n > CASE_TOKENS) return false;
        *p = routed(1, 1, 1, r), case_take_context(p, n, n > 1 ? "ring-zigzag" : "whole");
        if (r->rule.groups > 1) p->recompute = "full";
        return true;
    case 5: *p = routed(n, 1, 1, r), case_take_experts(p, n, "alltoall"); return true;
    case 6:
        if (n % 2 != 0) return false;
        *p = routed(n / 2, 2, 1, r), case_take_experts(p, n, "alltoall");
        return true;
    case 7:
        *p = routed(1, n, 1, r), take_sequence_parallel(p, r->rule.biased ? "1d-sp-keep" : "1d-sp");
        return true;
    case 8:
        if (n % 2 != 0) return false;
        *p = routed(n, 1, 1, r), case_take_experts(p, n / 2, n > 2 ? "two-step" : "tutel"), p->etp = 2;
        return true;
    default: return false;
    }
}
enum { LAYOUTS = 9 };

/* Below `make verify`, and on more than 4 devices, each rule has one layout, another for each number of devices. */
static void test_every_rule_on_every_layout(void **state)
{
    (void)state;
    for (int r = 0; routers[r]; r++)
        for (int i = 0; i < LAYOUTS; i++) {
            struct plan p;
            if (i != (r + test_size) % LAYOUTS && (tier_now() != TIER_VERIFY || test_size > 4)) continue;
            if (!layout(i, routers[r], &p)) continue;
            ASSERT_ALL(plan_check(&p, &err) == OK, "refused: %s", err.text);
            check(&p);
        }
}

/* ---- logits that are not finite ---------------------------------------------------------------------------------- */

enum { BAD_TOKEN = 5 };

static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    const struct plan *p = context;
    (void)step, (void)within;
    for (int64_t i = 0; i < count * p->S; i++) {
        const int64_t at = first * p->S + i;
        ids[i] = at == (p->B - 1) * p->S ? BAD_TOKEN : (int32_t)(at % BAD_TOKEN);
        labels[i] = (int32_t)(at % p->model.V);
    }
}

/* On the device that has it, make an embedding not finite: that of the last sequence's first token, and of no other. */
static void spoil(struct trainer *t)
{
    for (int u = 0; u < t->data.units; u++) {
        const struct unit *unit = &t->data.unit[u];
        if (unit->count == 0 || unit->parameter[0].spec.role != ROLE_TOKENS) continue;
        struct views v = views_of(t->comm->device);
        const struct tensor w = view_write(&v, unit->own_w);
        tensor_set(w, BAD_TOKEN * t->plan.model.D, NAN);
        views_end(&v);
    }
}

/* Copies, stages, or parts of sequences on all devices. */
static void test_the_first_row_that_is_lost(void **state)
{
    struct session s;
    const int n = test_size;
    (void)state;
    for (int which = 0; which < (n > 1 ? 3 : 1); which++) {
        struct plan p = routed(which == 0 ? n : 1, which == 2 ? n : 1, which == 1 ? n : 1, routers[0]);
        if (which == 2) take_sequence_parallel(&p, "1d-sp");
        session_open(&s, &p, (struct batch_source){ fill, &p });
        struct step_result result = session_step(&s);
        ASSERT_ALL(result.lost_layer == 0, "layer %d is lost before anything is", (int)result.lost_layer - 1);
        spoil(&s.trainer);
        result = session_gradients(&s);
        ASSERT_ALL(result.lost_layer == 1 && result.lost_row == (p.B - 1) * p.S, "layer %d, row %d instead of 0, %d",
                   (int)result.lost_layer - 1, (int)result.lost_row, (int)((p.B - 1) * p.S));
        ASSERT_ALL(traffic_check(&s.trainer, 2, &err) == OK, "%s", err.text);
        session_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_every_rule_on_every_layout),
                                        MPI_TEST(test_the_first_row_that_is_lost) };
    return MPI_RUN("router layouts", tests);
}
