/* Copies that train apart, by each such scheme, beside their serial rule, beside ddp, and by what they send and when.
 * ranks: 1 2 4
 * verify ranks: 3 6 8
 *
 * In a case (verify/cases/case.h) they take two rounds of two steps and one more: after each, weights, states, anchor
 * and outer momentum of every device agree with one device's to 1e-12; messages, bytes, additions and memory equal
 * formulas.
 */
#include "tests/devices/session.h"
#include "tests/devices/trained.h"
#include "emulated_devices/model/collect.h"
#include "ref/model/local.h"
#include "ref/model/params.h"
#include <math.h>

/* ---- beside the reference ---------------------------------------------------------------------------------------- */

static struct plan apart_plan(int dp, int tp, int pp, const char *scheme)
{
    struct plan p = case_plan(dp, tp, pp);
    const struct data_scheme *s = NULL;
    (void)data_scheme_find(&s, scheme, NULL);
    case_take_data(&p, s);
    return p;
}

/* A scheme whose copies train apart, in order of registration; NULL behind the last. */
static const struct data_scheme *apart_scheme(int place)
{
    for (int i = 0; data_scheme_at(i); i++)
        if (data_scheme_at(i)->outer.every > 0 && place-- == 0) return data_scheme_at(i);
    return NULL;
}

/* Tied, over a pipeline, untied with dropout: a replica draws that of its own sequences. */
static void test_meshes(void **state)
{
    static const int mesh[][3] = { { 1, 1, 1 }, { 2, 1, 1 }, { 3, 1, 1 }, { 2, 2, 1 },
                                   { 2, 1, 2 }, { 3, 1, 2 }, { 2, 2, 2 } };
    (void)state;
    for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++) {
        if (mesh[i][0] * mesh[i][1] * mesh[i][2] != test_size) continue;
        struct plan p;
        for (int s = 0; apart_scheme(s); s++) {
            p = apart_plan(mesh[i][0], mesh[i][1], mesh[i][2], apart_scheme(s)->head.name);
            check(&p);
        }
        if (test_size == 8) continue;
        p = apart_plan(mesh[i][0], mesh[i][1], mesh[i][2], "local-sgd");
        case_take_dropout(&p);
        check(&p);
    }
}

/* Replicas of several devices, of which each keeps a part; momentum inside, clipped by each replica's own norm. */
static void test_replicas_of_several_devices(void **state)
{
    (void)state;
    if (test_size != 4 && test_size != 8) return;
    struct plan p = apart_plan(test_size, 1, 1, "diloco");
    (void)optimizer_find(&p.optimizer, "momentum", NULL);
    p.hyper = (struct hyperparameters){ .lr = 0.02, .momentum = 0.5, .clip = 0.2 };
    if (test_size == 4) p.data.group = 2;
    else p.data.shards[0] = 1, p.data.shards[1] = 2, p.data.shards[2] = 4;
    check(&p);
}

/* ---- a trainer of one's own -------------------------------------------------------------------------------------- */

/* Norm of a tensor's difference from a truth over the truth's; on rank 0. */
static double apart_from(struct session *s, int replica, int i, enum tensor_kind kind, struct tensor truth)
{
    double difference = 0, size = 0;
    struct tensor got = truth;
    got.data = malloc(tensor_bytes(truth) + 1);
    collect_replica(&s->trainer, replica, i, kind, got);
    for (int64_t n = 0; n < tensor_count(truth) && test_rank == 0; n++) {
        const double a = tensor_get(got, n), b = tensor_get(truth, n);
        difference += (a - b) * (a - b), size += b * b;
    }
    free(got.data);
    return difference == 0 ? 0 : sqrt(difference / size);
}

/* AdamW inside, clipped, with another rate in each step. */
static void follows_the_serial_rule(const char *scheme)
{
    struct plan p = test_size == 4 ? apart_plan(2, 2, 1, scheme) : apart_plan(test_size, 1, 1, scheme);
    struct session s;
    struct local_run l;
    p.optimizer = optimizers[0];
    p.hyper = p.optimizer->usual;
    p.hyper.warmup = 2, p.hyper.steps = 6, p.hyper.min_lr = p.hyper.lr / 7;
    p.hyper.clip = 0.3, p.hyper.eps = 1e-3;                     /* rounding noise is not blown up to a step */
    session_open(&s, &p, (struct batch_source){ fill_drawn, &p });
    const int R = plan_replicas(&s.trainer.plan);
    int64_t first[9];
    for (int r = 0; r < R; r++) first[r] = plan_microbatch(&s.trainer.plan, r, 0).first;
    first[R] = p.B;
    int32_t *ids = malloc(2 * (size_t)(p.B * p.S) * sizeof *ids);
    assert_non_null(ids);
    ASSERT_ALL(local_open(&l, R, &p.model, F64, p.seed, p.optimizer, &p.hyper, data_outer(&p.data), &err) == OK, "%s",
               err.text);
    for (int64_t at = 0; at < CASE_STEPS_APART; at++) {
        double loss = 0, squares = 0;
        fill_drawn(&s.trainer.plan, at, 0, p.B, ids, ids + p.B * p.S, NULL);
        ASSERT_ALL(local_step(&l, ids, ids + p.B * p.S, first, p.S, dropout_seed(p.seed, at), &err) == OK, "%s",
                   err.text);
        const struct step_result got = session_step(&s);
        for (int r = 0; r < R; r++)
            loss += l.replica[r].loss * (double)(first[r + 1] - first[r]) / (double)p.B,
                squares += l.replica[r].norm * l.replica[r].norm / R;
        ASSERT_ALL(fabs(got.loss - loss) <= 1e-12 * loss, "step %d: loss %.17g, serially %.17g", (int)at + 1, got.loss,
                   loss);
        ASSERT_ALL(fabs(got.norm - sqrt(squares)) <= 1e-12 * sqrt(squares), "step %d: norm %.17g, serially %.17g",
                   (int)at + 1, got.norm, sqrt(squares));
    }
    for (int i = 0; i < l.replica[0].model.params; i++) {
        const char *name = l.replica[0].model.spec[i].name;
        double off = apart_from(&s, 0, i, KIND_ANCHOR, l.anchor[i]);
        ASSERT_ALL(off <= 1e-12, "anchor of %s is off by %.3g", name, off);
        off = outer_has_momentum(&l.outer) ? apart_from(&s, 0, i, KIND_MOMENTUM, l.momentum[i]) : 0;
        ASSERT_ALL(off <= 1e-12, "outer momentum of %s is off by %.3g", name, off);
        for (int r = 0; r < R; r++) {
            off = apart_from(&s, r, i, KIND_WEIGHT, l.replica[r].model.w[i]);
            ASSERT_ALL(off <= 1e-12, "%s of replica %d is off by %.3g", name, r, off);
        }
    }
    local_close(&l);
    free(ids);
    session_close(&s);
}

/* The serial rules, which are held to PyTorch and released code. */
static void test_is_the_serial_rule(void **state)
{
    (void)state;
    for (int i = 0; apart_scheme(i) && test_size > 1 && test_size <= 4; i++)
        follows_the_serial_rule(apart_scheme(i)->head.name);
}

/* ---- beside ddp -------------------------------------------------------------------------------------------------- */

/* One step a round, sgd, lr 1, no momentum, as many labels in each replica:
 * the mean of steps is the step of the mean, but for rounding. */
static void test_rounds_of_one_step_are_ddp(void **state)
{
    (void)state;
    if (test_size > 3) return;
    struct plan ddp = case_plan(test_size, 1, 1), local;
    struct session a, b;
    ddp.B = 2 * test_size;
    local = ddp;
    local.data.scheme = "local-sgd", local.data.outer.every = 1;
    session_open(&a, &ddp, (struct batch_source){ fill_drawn, &ddp });
    for (int i = 0; i < 4; i++) session_step(&a);
    struct tensor *truth = calloc((size_t)model_param_count(&ddp.model), sizeof *truth);
    for (int i = 0; i < model_param_count(&ddp.model); i++) {
        const struct param_spec s = model_param(&ddp.model, i);
        truth[i] = tensor_1d(NULL, F64, s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1));
        truth[i].data = calloc(1, tensor_bytes(truth[i]));
        collect_whole(&a.trainer, i, KIND_WEIGHT, truth[i]);
    }
    session_close(&a);
    session_open(&b, &local, (struct batch_source){ fill_drawn, &local });
    for (int i = 0; i < 4; i++) session_step(&b);
    for (int i = 0; i < model_param_count(&ddp.model); i++)
        for (int r = 0; r < test_size; r++) {
            const double off = apart_from(&b, r, i, KIND_WEIGHT, truth[i]);
            ASSERT_ALL(off <= 1e-13, "%s of replica %d is off ddp's by %.3g", model_param(&ddp.model, i).name, r, off);
        }
    for (int i = 0; i < model_param_count(&ddp.model); i++) free(truth[i].data);
    free(truth);
    session_close(&b);
}

/* ---- what is sent, and when -------------------------------------------------------------------------------------- */

static double sent_along_dp(const struct comm *c)
{
    double bytes = 0, sum = 0;
    MPI_Request request;
    for (int op = 0; op < CONTROL; op++) bytes += (double)c->counted.of[TRAFFIC_DATA].of[op].bytes_sent;
    MPI_Iallreduce(&bytes, &sum, 1, MPI_DOUBLE, MPI_SUM, harness, &request);
    patience_meet(&request);
    return sum;
}

/* A ring sends every element 2 times, whoever sends it: once a round, and nothing on the way. */
static void test_sends_once_a_round(void **state)
{
    enum { H = 3 };
    (void)state;
    if (test_size > 4) return;
    struct plan p = apart_plan(test_size, 1, 1, "local-sgd");
    struct session s;
    p.data.outer.every = H;
    p.allreduce = "ring";
    session_open(&s, &p, (struct batch_source){ fill_drawn, &p });
    int64_t n = 0;
    for (int i = 0; i < model_param_count(&p.model); i++) {
        const struct param_spec spec = model_param(&p.model, i);
        n += spec.dim[0] * (spec.ndim == 2 ? spec.dim[1] : 1);
    }
    for (int t = 1; t <= 2 * H; t++) {
        session_step(&s);
        const double want = (double)(t / H) * 2 * (test_size - 1) * (double)n * 8, sent = sent_along_dp(&s.comm);
        ASSERT_ALL(sent == want, "after step %d, %.0f bytes were sent between replicas; of rounds of %d steps %.0f", t,
                   sent, H, want);
    }
    const uint64_t optimizer = s.device.arena.peak.tag[OPTIMIZER];
    ASSERT_ALL(optimizer == (uint64_t)n * 8, "sgd keeps %llu bytes besides; the anchor has %lld",
               (unsigned long long)optimizer, (long long)n * 8);
    session_close(&s);
}

/* ---- what does not fit ------------------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    if (test_size != 6) return;
    struct plan p = apart_plan(6, 1, 1, "diloco");
    p.data.group = 6, expect_refused(p, "--data-parallel diloco: all devices along --dp would be one replica");
    p.data.group = 4, expect_refused(p, "--shard-group 4: must divide --dp 6");
    p = apart_plan(6, 1, 1, "diloco"), p.dtype = F16, expect_refused(p, "--dtype fp16: needs a loss scale");
    p = apart_plan(6, 1, 1, "diloco"), p.dtype = BF16, p.data.narrow_gradients = true,
    expect_refused(p, "--grad-dtype bf16: ");
    p = apart_plan(3, 1, 2, "local-sgd"), p.allreduce = "auto",
    expect_refused(p, "--allreduce auto: may add in another order");
    p = apart_plan(3, 1, 2, "local-sgd"), p.schedule = "pipedream-2bw", p.micros = 4,
    expect_refused(p, "--schedule pipedream-2bw: steps the weights inside the schedule");
    p = apart_plan(6, 1, 1, "local-sgd"), p.data.outer.momentum = 0.5,
    expect_refused(p, "--outer-momentum 0.5: --data-parallel local-sgd takes the mean of its copies");
    p = apart_plan(6, 1, 1, "zero1"), p.data.outer.every = 2,
    expect_refused(p, "--local-steps 2: --data-parallel zero1 reduces gradients in every step");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_meshes),
        MPI_TEST(test_replicas_of_several_devices),
        MPI_TEST(test_is_the_serial_rule),
        MPI_TEST(test_rounds_of_one_step_are_ddp),
        MPI_TEST(test_sends_once_a_round),
        MPI_TEST(test_refusals),
    };
    return MPI_RUN("local updates", tests);
}
