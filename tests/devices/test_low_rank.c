/* GaLore and Natural GaLore on devices: one device's numbers, bytes and memory by formula in both kinds of steps,
 * projections that are equal on all copies, refusals.
 * ranks: 1 2
 * verify ranks: 3 6
 */
#include "tests/devices/batches.h"
#include "tests/devices/trained.h"
#include "emulated_devices/verify/reference/replicas.h"
#include "ref/model/params.h"
#include "ref/optim/galore.h"
#include <math.h>
#include <string.h>

static const struct optimizer *named(const char *name)
{
    const struct optimizer *o = NULL;
    optimizer_find(&o, name, NULL);
    return o;
}

/* A Llama, whose queries, keys and values are three matrices in one parameter, with fewer rows of
 * keys than the rank; and a GPT-J. */
static struct plan of_parts(struct plan p, int which)
{
    const struct optimizer *o = p.optimizer;
    if (which == 1) case_take_llama(&p), p.model.K = 1;
    if (which == 2) case_take_gptj(&p);
    case_take_low_rank(&p, o);
    return p;
}

static struct plan low_rank_plan(int dp, int pp, const char *optimizer)
{
    struct plan p = case_plan(dp, 1, pp);
    p.model.L = pp;
    case_take_low_rank(&p, named(optimizer));
    return p;
}

/* Steps 1 and 3 find directions anew, step 2 projects before it reduces.
 * With clipping, whole gradients are reduced in all of them. */
static void test_agrees_with_one_device(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct plan dp = low_rank_plan(test_size, 1, i ? "natural-galore" : "galore"),
                    pp = low_rank_plan(1, test_size, i ? "galore" : "natural-galore");
        check(&dp);
        check(&pp);
        dp.hyper.clip = pp.hyper.clip = 0.01;
        check(&dp);
        check(&pp);
        if (test_size % 2 != 0 || test_size == 2) continue;
        struct plan both = low_rank_plan(test_size / 2, 2, i ? "natural-galore" : "galore");
        ASSERT_ALL(case_take_schedule(&both, "chimera", &err) == OK, "%s", err.text);     /* two copies of each stage */
        check(&both);
    }
}

static void test_parts_agree_with_one_device(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int which = 1; which <= 2; which++) {
            struct plan dp = of_parts(low_rank_plan(test_size, 1, i ? "natural-galore" : "galore"), which);
            check(&dp);
            dp.hyper.clip = 0.01;
            check(&dp);
            if (test_size % 2 != 0) continue;
            struct plan both = of_parts(low_rank_plan(test_size / 2, 2, i ? "natural-galore" : "galore"), which);
            both.model.tied = which == 1;
            check(&both);
        }
}

/* Optimizer steps inside the schedule count as steps, skipped ones do not. */
static void test_steps_are_the_optimizers(void **state)
{
    (void)state;
    if (test_size != 2 && test_size != 4) return;
    struct plan p = low_rank_plan(test_size / 2, 2, "galore");
    ASSERT_ALL(case_take_schedule(&p, "pipedream-2bw", &err) == OK, "%s", err.text);
    check(&p);
    int64_t some = 0;
    for (int power = 16; power <= 24; power++) {
        struct plan half = low_rank_plan(test_size, 1, "natural-galore");
        half.dtype = F16;
        half.loss_scale = ldexp(1, power);
        const struct outcome o = check(&half);
        some += o.skipped > 0 && o.skipped < CASE_STEPS;
    }
    ASSERT_ALL(some > 0, "no run skipped some steps and took others");
}

/* ---- formulas, once more by hand --------------------------------------------------------------------------------- */

struct sizes { uint64_t all, packed, states; };

/* Numbers of the model; of them what a projected step sends; and what the optimizer keeps. */
static struct sizes sizes_of(const struct plan *p)
{
    const uint64_t r = (uint64_t)p->hyper.rank, s = p->optimizer->natural ? (uint64_t)p->hyper.history : 0;
    struct sizes sum = { 0 };
    for (int i = 0; i < model_param_count(&p->model); i++) {
        const struct param_spec x = model_param(&p->model, i);
        const bool projected =
            x.ndim == 2 && (strncmp(x.name, "h.", 2) == 0 || strncmp(x.name, "model.layers.", 13) == 0);
        for (int k = 0; k < x.parts; k++) {                 /* each is a matrix of its own */
            const uint64_t m = (uint64_t)x.part[k].rows, n = x.ndim == 2 ? (uint64_t)x.dim[1] : 1, a = m < n ? m : n,
                           b = m < n ? n : m;
            const uint64_t own = r < a ? r : a;
            sum.all += m * n;
            sum.packed += projected ? b * own : m * n;
            sum.states += projected ? a * own + 2 * b * own + s * b * own : 2 * m * n;
        }
    }
    return sum;
}

struct counted { int steps; struct collective_cost sent; uint64_t optimizer; bool equal; };

static enum error_code train(const struct plan *p, struct counted *out)
{
    struct device device;
    struct comm comm;
    struct trainer t;
    struct step_result result;
    uint64_t compared = 0;
    enum error_code e = device_open(&device, NULL, p->dtype, 0, &err);
    if (e) return e;
    e = comm_open(&comm, &device, &err);
    if (!e) e = trainer_open(&t, p, &comm, (struct batch_source){ fill_strided, p }, &err);
    for (int i = 0; i < out->steps && !e; i++) {
        e = trainer_gradients(&t, &result, &err);
        if (!e) e = replicas_check(&t, BEFORE_OPTIMIZER, &compared, &err);
        if (!e) e = trainer_update(&t, &result, &err);
        if (!e) e = replicas_check(&t, AFTER_OPTIMIZER, &compared, &err);
    }
    const struct traffic *sent = &comm.counted.of[TRAFFIC_DATA].of[ALLREDUCE];
    out->sent = (struct collective_cost){ .messages = sent->messages_sent,
                                          .bytes = sent->bytes_sent,
                                          .additions = sent->additions };
    out->optimizer = device.arena.peak.tag[OPTIMIZER];
    if (!e) trainer_close(&t);
    comm_close(&comm);
    device_close(&device);
    return e;
}

/* A star of P devices, one bucket: whoever is not in the middle sends everything once, and the middle
 * adds and sends it P-1 times. */
static void test_bytes_and_memory(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++)
        for (int steps = 1; steps <= 5; steps++)
            for (int clips = 0; clips < 2; clips++) {
                struct plan p = of_parts(low_rank_plan(test_size, 1, i % 2 ? "natural-galore" : "galore"), i / 2);
                struct counted r = { .steps = steps };
                p.hyper.clip = clips;      /* by the norm of whole gradients, so that these are reduced in every step */
                p.hyper.refresh = 3;                        /* steps 1 and 4 reduce whole gradients */
                p.allreduce = "star", p.data.bucket = 1 << 30;
                ASSERT_ALL(plan_check(&p, &err) == OK && train(&p, &r) == OK, "%s, %d steps%s: %s", p.optimizer->name,
                           steps, clips ? " with clipping" : "", err.text);
                const struct sizes size = sizes_of(&p);
                const uint64_t whole = clips       ? (uint64_t)steps
                                       : steps < 4 ? 1
                                                   : 2,
                               times = test_size == 1   ? 0
                                       : test_rank == 0 ? (uint64_t)test_size - 1
                                                        : 1;
                const uint64_t want = 8 * times * (whole * size.all + ((uint64_t)steps - whole) * size.packed);
                ASSERT_ALL(r.sent.bytes == want, "%d steps: device %d has sent %llu bytes, by formula %llu", steps,
                           test_rank, (unsigned long long)r.sent.bytes, (unsigned long long)want);
                ASSERT_ALL(r.optimizer == 8 * size.states, "the optimizer keeps %llu bytes, by formula %llu",
                           (unsigned long long)r.optimizer, (unsigned long long)(8 * size.states));
            }
}

/* Embedding and both matrices of the MLP have as many numbers in a moment as become codes, with a rank of the whole
 * shorter side; all others have fewer. */
static void test_codes_take_a_byte(void **state)
{
    (void)state;
    struct plan p = low_rank_plan(test_size, 1, "galore");
    struct counted r = { .steps = 2 };
    uint64_t want = 0;
    p.model.F = p.model.V = 160, p.hyper.rank = 27;
    ASSERT_ALL(conventions_parse(&p.hyper.as, "galore-torch,states=8-bit", &err) == OK, "%s", err.text);
    ASSERT_ALL(plan_check(&p, &err) == OK && train(&p, &r) == OK, "%s", err.text);
    for (int i = 0; i < model_param_count(&p.model); i++) {
        const struct param_spec x = model_param(&p.model, i);
        const uint64_t m = (uint64_t)x.dim[0], n = x.ndim == 2 ? (uint64_t)x.dim[1] : 1,
                       codes = m * n == 160 * 27 ? 2 * (160 * 27 + 17 * 8) : 2 * 8 * m * n,
                       P = strncmp(x.name, "h.", 2) == 0 && x.ndim == 2 ? 8 * 27 * 27 : 0;
        want += codes + P;
    }
    ASSERT_ALL(r.optimizer == want, "the optimizer keeps %llu bytes, by formula %llu", (unsigned long long)r.optimizer,
               (unsigned long long)want);
}

/* Of a rank that is the whole shorter side some directions have no gradient but rounding noise, whose sign decides a
 * code; the next steps go on from it. */
static void test_codes_agree_with_one_device(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        struct plan p = low_rank_plan(test_size, 1, "galore");
        p.model.F = p.model.V = 160, p.hyper.rank = 27, p.seed = seed;
        ASSERT_ALL(conventions_parse(&p.hyper.as, "galore-torch,states=8-bit", &err) == OK, "%s", err.text);
        check(&p);
    }
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void test_what_does_not_fit_is_refused(void **state)
{
    const struct plan fits = low_rank_plan(test_size, 1, "natural-galore");
    struct plan p = fits;
    (void)state;
    p.hyper.rank = 0, expect_refused(p, "--rank 0: must be 1 to 27,");
    p.hyper.rank = 28, expect_refused(p, "--rank 28: must be 1 to 27,");
    p.hyper.rank = 27;
    ASSERT_ALL(plan_check(&p, &err) == OK, "--rank 27, the shorter side itself: %s", err.text);
    p = fits, p.hyper.refresh = 0, expect_refused(p, "--refresh 0");
    p = fits, p.hyper.history = 65, expect_refused(p, "--history 65: must be 1 to 64");
    p = fits, p.hyper.damping = 0, expect_refused(p, "--damping 0");
    p = fits, p.hyper.galore_scale = NAN, expect_refused(p, "--galore-scale nan");
    if (test_size == 1) return;
    p = fits, p.data.scheme = "zero1";
    expect_refused(p, "--data-parallel zero1: cuts a layer between any two elements");
    p = case_plan(1, test_size, 1);
    case_take_low_rank(&p, named("galore"));
    expect_refused(p, "cuts matrices");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_agrees_with_one_device),
        MPI_TEST(test_parts_agree_with_one_device),
        MPI_TEST(test_steps_are_the_optimizers),
        MPI_TEST(test_bytes_and_memory),
        MPI_TEST(test_codes_take_a_byte),
        MPI_TEST(test_codes_agree_with_one_device),
        MPI_TEST(test_what_does_not_fit_is_refused),
    };
    return MPI_RUN("low_rank", tests);
}
