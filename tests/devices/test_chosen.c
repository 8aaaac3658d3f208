/* Inference with experts on the slow tier that are read when they are chosen: all tensors that a device computes have
 * the same bits as with all experts on it, and what is read follows from the routers' choices.
 * ranks: 1 2 4
 * verify ranks: 3 6 8
 */
#include "tests/devices/session.h"
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/hash.h"
#include "ref/io/output.h"
#include "ref/model/params.h"
#include <string.h>

static struct error err;

enum { STEPS = 2, MOST_LAYERS = 32, MOST_EXPERTS = 8, MOST_MICROS = 2 };

/* What a device computes in all passes: a hash of all tensors; the experts that its tokens have chosen. */
struct seen {
    struct device *device;
    uint64_t hash;
    int step;
    unsigned char chosen[STEPS][MOST_LAYERS][MOST_MICROS][MOST_EXPERTS];
};

/* What a run of a plan comes to, on this device. */
struct inferred {
    struct seen seen;
    uint64_t weights, others;           /* peaks */
    struct tier_traffic moved, predicted;
    struct drive_use drive;
};
static struct inferred one, other;

static void see(void *context, const char *name, int layer, bool gradient, int micro, struct tensor t)
{
    struct seen *s = context;
    struct views v = views_of(s->device);
    const struct tensor here = view_read(&v, t);
    const bool chooses = !gradient && strcmp(name, "router.experts") == 0;
    s->hash = hash_bytes(s->hash, here.data, tensor_bytes(here));
    for (int64_t i = 0; i < tensor_count(here) && chooses; i++) {
        const int32_t e = ((const int32_t *)here.data)[i];
        if (e >= 0 && e < MOST_EXPERTS) s->chosen[s->step][layer][micro][e] = 1;
    }
    views_end(&v);
}

static enum error_code passes(struct trainer *t, struct inferred *r)
{
    struct step_result result;
    enum error_code e = OK;
    const struct probe probe = { .see = see, .context = &r->seen };
    trainer_watch(t, &probe);
    for (r->seen.step = 0; r->seen.step < STEPS && !e; r->seen.step++) {
        e = trainer_gradients(t, &result, &err);
        if (!e) e = trainer_update(t, &result, &err);
        r->seen.hash = hash_bytes(r->seen.hash, &result.loss, sizeof result.loss);
    }
    r->weights = t->device->arena.peak.tag[PARAMETERS];
    r->others = t->device->arena.peak.tag[GRADIENTS] + t->device->arena.peak.tag[OPTIMIZER];
    r->moved = trainer_tier_traffic_counted(t), r->predicted = trainer_tier_traffic_so_far(t, STEPS);
    r->drive = data_drive_use(&t->data);
    return e;
}

static void infer(struct plan *p, struct inferred *r)
{
    struct session s;
    *r = (struct inferred){ .seen = { .device = &s.device, .hash = HASH_START } };
    session_open(&s, p, (struct batch_source){ fill_drawn, p });
    const enum error_code e = passes(&s.trainer, r);
    session_close(&s);
    ASSERT_ALL(e == OK, "%s", err.text);
    ASSERT_ALL(r->others == 0, "%llu bytes of gradients, states or copies of weights", (unsigned long long)r->others);
    ASSERT_ALL(memcmp(&r->moved, &r->predicted, sizeof r->moved) == 0, "counted %llu bytes in %llu reads, predicted "
               "%llu in %llu", (unsigned long long)r->moved.bytes_read, (unsigned long long)r->moved.reads,
               (unsigned long long)r->predicted.bytes_read, (unsigned long long)r->predicted.reads);
}

/* Few tokens, so some experts have none. */
static struct plan inference(void)
{
    struct plan p = case_plan(test_size, 1, 1);
    case_take_mixtral(&p);
    p.model.L = 4, p.B = 2 * test_size, p.S = 1;
    p.optimizer = &no_optimizer, p.hyper = no_optimizer.usual;
    return p;
}

static void choose(struct plan *p)
{
    p->data.offload = 1u << PARAMETERS, p->data.offload_experts = p->data.chosen = true, p->data.offload_slice = 64;
}

/* ---- experts by choice ------------------------------------------------------------------------------------------- */

/* The experts of this device that tokens of any device have chosen, once in each layer and microbatch. */
static uint64_t chosen_here(struct seen *s, struct interval own, bool of_all)
{
    uint64_t n = 0;
    MPI_Request request;
    unsigned char *const all = &s->chosen[0][0][0][0];
    if (of_all) {
        MPI_Iallreduce(MPI_IN_PLACE, all, sizeof s->chosen, MPI_UNSIGNED_CHAR, MPI_MAX, harness, &request);
        patience_meet(&request);
    }
    for (size_t i = 0; i < sizeof s->chosen; i++) {
        const int64_t e = (int64_t)(i % MOST_EXPERTS);
        n += e >= own.first && e < interval_end(own) && all[i];
    }
    return n;
}

static uint64_t expert_bytes(const struct model_config *c) { return 3 * sizeof(double) * (uint64_t)(c->D * c->F); }

static void test_only_chosen_experts_are_read(void **state)
{
    static const char *const schemes[] = { "alltoall", "allgather", "two-step" };
    (void)state;
    for (int i = -1; i < (test_size > 1 ? 3 : 0); i++) {
        struct plan p = inference();
        if (i >= 0) case_take_experts(&p, test_size, schemes[i]);
        const char *what = i < 0 ? "here" : schemes[i];
        infer(&p, &one);
        choose(&p);
        infer(&p, &other);
        const struct interval own = block_at(p.model.mixture.E, i < 0 ? 1 : test_size, i < 0 ? 0 : test_rank);
        const uint64_t want = chosen_here(&other.seen, own, i >= 0),
                       all = (uint64_t)(STEPS * p.micros * p.model.L * own.count);
        ASSERT_ALL(other.seen.hash == one.seen.hash, "%s: other bits than with all experts on the device", what);
        ASSERT_ALL(other.moved.reads == want && other.moved.bytes_read == want * expert_bytes(&p.model),
                   "%s: %llu experts are read, %llu bytes; %llu of %llu are chosen", what,
                   (unsigned long long)other.moved.reads, (unsigned long long)other.moved.bytes_read,
                   (unsigned long long)want, (unsigned long long)all);
        ASSERT_ALL(i >= 0 || want < all, "all experts are chosen: nothing is tested");
    }
}

/* A host's cache has what its device asks for most: experts with tokens. */
static void test_the_cache_follows_choices(void **state)
{
    (void)state;
    if (test_size > 2) return;
    struct plan p = inference();
    choose(&p);
    p.data.offload_to = temporary_folder(), p.data.host_cache = 1 << 30;
    infer(&p, &one);
    uint64_t different = 0;
    for (int l = 0; l < p.model.L; l++)
        for (int e = 0; e < p.model.mixture.E; e++) {
            bool any = false;
            for (int s = 0; s < STEPS; s++)
                for (int m = 0; m < p.micros; m++) any = any || one.seen.chosen[s][l][m][e];
            different += any;
        }
    ASSERT_ALL(one.drive.requests == one.moved.reads && one.drive.moved.reads == different &&
                   one.drive.moved.bytes_read == different * expert_bytes(&p.model),
               "%llu requests for %llu reads; the drive reads %llu blocks, %llu experts are chosen",
               (unsigned long long)one.drive.requests, (unsigned long long)one.moved.reads,
               (unsigned long long)one.drive.moved.reads, (unsigned long long)different);
}

/* ---- beside one device ------------------------------------------------------------------------------------------- */

static void test_as_one_device(void **state)
{
    static const char *const schemes[] = { "alltoall", "allgather", "two-step", "alltoall-2dh" };
    static struct outcome o;
    (void)state;
    for (int i = test_size > 1 ? 0 : 3; i < 4; i++) {
        struct plan p = inference();
        p.S = CASE_TOKENS;
        if (test_size > 1) case_take_experts(&p, test_size, schemes[i]);
        choose(&p);
        if (plan_check(&p, &err) != OK) continue;       /* a scheme that needs nodes */
        ASSERT_ALL(case_run(&p, &o, &err) == OK, "%s", err.text);
        ASSERT_ALL(o.verdict.code == OK, "%s: %s", p.dispatch, o.verdict.text);
    }
}

/* On the device is room for the experts of one layer, and all else. */
static void test_memory(void **state)
{
    (void)state;
    struct plan p = inference();
    uint64_t dense = 0;
    for (int i = 0; i < model_param_count(&p.model); i++) {
        const struct param_spec s = model_param(&p.model, i);
        if (s.expert < 0) dense += sizeof(double) * (uint64_t)(s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1));
    }
    choose(&p);
    infer(&p, &one);
    const uint64_t want = dense + (uint64_t)p.model.mixture.E * expert_bytes(&p.model);
    ASSERT_ALL(one.weights == want, "%llu bytes of weights, want %llu and a layer's experts: %llu",
               (unsigned long long)one.weights, (unsigned long long)dense, (unsigned long long)want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_only_chosen_experts_are_read),
        MPI_TEST(test_the_cache_follows_choices),
        MPI_TEST(test_memory),
        MPI_TEST(test_as_one_device),
    };
    return MPI_RUN("chosen", tests);
}
