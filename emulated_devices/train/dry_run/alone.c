/* alone.c -- computes the time of a plan's step on one device.  run/plan.c and run/session.c call.  Outputs
 * are the virtual time in picoseconds and the bytes that stay between steps.  A step that one device cannot do is
 * ERR_PLAN. */
#include "emulated_devices/train/dry_run/alone.h"
#include "emulated_devices/train/dry_run/dry_batch.h"
#include "emulated_devices/train/dry_run/plan_memory.h"
#include "emulated_devices/train/training.h"

/* Every choice that several devices or little memory make, taken back. */
static enum error_code plan_alone(struct plan *one, const struct plan *plan, struct error *err)
{
    static const int size[AXIS_COUNT] = { 1, 1, 1, 1, 1 };
    if (plan->batches || plan->optimizer->forward_only || (plan->packed && !plan->lengths))
        return fail(err, ERR_PLAN, "there is no such step on one device");
    *one = (struct plan){
        .model = plan->model, .B = plan->B, .S = plan->S, .packed = plan->packed, .lengths = plan->lengths, .micros = 1,
        .chunks = 1, .dtype = plan->dtype,
        .load = plan->load, .loss_scale = plan->loss_scale, .seed = plan->seed, .cluster = plan->cluster, .degree = -1,
        .data = { .scheme = data_scheme_at(0)->head.name, .bucket = plan->data.bucket,
                  .offload_slice = plan->data.offload_slice, .narrow_gradients = plan->data.narrow_gradients },
        .tensor = tensor_scheme_at(0)->head.name, .attention = attention_scheme_at(0)->head.name,
        .dispatch = expert_scheme_at(0)->head.name, .schedule = schedule_generator_at(0)->head.name,
        .optimizer = plan->optimizer, .hyper = plan->hyper, .encoders = plan->encoders,
    };
    const enum error_code e = mesh_make(&one->mesh, size, err);
    return e ? e : plan_check(one, err);
}

/* The backend gives no more addresses than a processor has: a batch that would need more is several microbatches. */
static enum error_code cut_to_fit(struct plan *one, struct error *err)
{
    const uint64_t most = UINT64_C(1) << 43;
    struct plan_memory m = { .peak.total = most + 1 };
    enum error_code e = OK;
    for (int micros = 1; micros <= one->B && m.peak.total > most && !e; micros++) {
        /* Only divisors of the batch are tried, so that microbatches are equal. */
        if (one->B % micros != 0) continue;
        one->micros = micros;
        e = plan_check(one, err);
        if (!e) e = plan_memory(one, 0, 1, &m, err);
    }
    if (!e && m.peak.total > most) e = fail(err, ERR_PLAN, "one sequence needs more memory than can be addressed");
    return e;
}

static enum error_code alone_step(const struct plan *one, struct comm *nobody, struct error *err)
{
    struct trainer t;
    struct dry_batches batches;
    enum error_code e = dry_batches_open(&batches, one, 1, err);
    if (e) return e;
    e = trainer_open(&t, one, nobody, dry_batches_source(&batches), err);
    if (!e) {
        clock_restart(&nobody->device->clock, one->cluster, one->dtype);
        e = training_run(&t, 1, NULL, 0, NULL, err);
        trainer_close(&t);
    }
    dry_batches_close(&batches);
    return e;
}

enum error_code alone_state(const struct plan *plan, struct arena_use *kept, struct error *err)
{
    struct plan_memory memory = { .offloaded = 0 };
    struct plan one;
    enum error_code e = plan_alone(&one, plan, err);
    if (!e) e = plan_memory(&one, 0, 0, &memory, err);
    *kept = memory.peak;
    return e;
}

enum error_code alone_step_time(const struct plan *plan, picoseconds *time, uint64_t *kept, struct error *err)
{
    struct plan_memory memory = { .offloaded = 0 };
    struct plan one;
    struct device device;
    struct comm nobody;
    enum error_code e = plan_alone(&one, plan, err);
    if (!e) e = cut_to_fit(&one, err);
    if (!e) e = plan_memory(&one, 0, 0, &memory, err);
    *kept = memory.peak.total;
    if (!e) e = device_open(&device, backend_find("count"), one.dtype, 0, err);
    if (e) return e;
    e = comm_alone(&nobody, &device, err);
    if (!e) {
        e = alone_step(&one, &nobody, err);
        *time = device.clock.now;
        comm_alone_close(&nobody);
    }
    device_close(&device);
    return e;
}
