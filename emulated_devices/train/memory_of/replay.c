/* replay.c -- replays the steps of a device through the caching allocator, as a memory profile says.
 *
 * run/plan.c calls memory_profile_check, then memory_of.  The walk over the device's list of actions is that of the
 * trainer's own formulas (model/trainer_cost.c).  ERR_PLAN: a plan that the profile cannot say; ERR_MEMORY.
 *
 * CUDA's context is assumed to take 512 MiB.  NCCL: a connection has a buffer for each protocol, LL 512 KiB, LL128
 * 4,915,200 bytes, Simple 4 MiB (NVIDIA/nccl, src/init.cc: DEFAULT_LL_BUFFSIZE, DEFAULT_LL128_BUFFSIZE,
 * DEFAULT_BUFFSIZE).  Assumed: a communicator has 16 channels, and in each one connection that receives, of a ring.
 */
#include "emulated_devices/model/trainer.h"
#include "emulated_devices/train/memory_of/part_memory.h"
#include <stdlib.h>

enum { STEPS = 3, CHANNELS = 16 };
static const uint64_t CONTEXT = UINT64_C(512) << 20, CONNECTION = (512 << 10) + 4915200 + (4 << 20);

struct replay {
    const struct trainer *trainer;
    struct pieces pieces;
    struct states states;
    int parts;                          /* of a stage at most: its layers, embedding and loss */
    struct part_memory **memory;        /* [chunks, micros, parts]; NULL: the microbatch is not there */
    struct replayed **stream;  /* [chunks, micros] on the way into a stage, or kept behind it */
    struct replayed *apart;                /* a list: receive buffers that exist all the time */
};

static size_t place_of_micro(const struct replay *replay, int chunk, int micro)
{
    return (size_t)chunk * (size_t)replay->trainer->plan.micros + (size_t)micro;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

static enum keeping_mode mode_of(const struct replay *replay, const struct model_part *part)
{
    const struct plan *p = &replay->trainer->plan;
    if (part->layer < 0 || part->layer == p->model.L) return KEEP_ALL;
    switch (recompute_of(p->recompute, part->layer)) {
    case RECOMPUTE_FULL: return KEEP_INPUT;
    case RECOMPUTE_BUT_ATTENTION: return KEEP_ATTENTION;
    case RECOMPUTE_SELECTIVE: return replay->states.profile->saves_matrices ? KEEP_MATRICES : KEEP_ALL;
    default: return KEEP_ALL;
    }
}

static bool pass_begin(struct replay *replay, struct part_pass *pass, const struct action *action, int part,
                       const char *name)
{
    struct stage *stage = &replay->trainer->stage[action->chunk];
    struct part_memory **memory = &replay->memory[place_of_micro(replay, action->chunk, action->micro)
                                                  * (size_t)replay->parts + (size_t)part];
    const bool has = part == 0 ? stage->first : part <= stage->layers || stage->last;
    if (!has) return false;
    if (*memory == NULL) *memory = calloc(1, sizeof **memory);
    if (*memory == NULL) replay->pieces.failed = true;
    *pass = (struct part_pass){
        .states = &replay->states, .stage = stage, .part = &stage->part[part], .memory = *memory,
        .seams = stage_seams(stage, &stage->micro[action->micro], &stage->part[part]),
        .N = stage->micro[action->micro].N, .mode = mode_of(replay, &stage->part[part]),
    };
    replay->pieces.doing = (struct doing){
        .pass = name, .micro = action->micro, .layer = pass->part->layer,
        .part = part == 0 ? "the embedding" : part <= stage->layers ? "layer" : "the loss",
    };
    return *memory != NULL;
}

static uint64_t stream_bytes(const struct replay *replay, const struct action *action)
{
    return stage_message_bytes(&replay->trainer->stage[action->chunk], action->micro);
}

static void replay_forward(struct replay *replay, const struct action *action)
{
    const struct stage *stage = &replay->trainer->stage[action->chunk];
    const size_t at = place_of_micro(replay, action->chunk, action->micro);
    struct replayed *stream = replay->stream[at];
    struct part_pass pass;
    replay->stream[at] = NULL;
    if (!stage->first && stream == NULL)
        stream = replayed_make(&replay->pieces, OF_ACTIVATIONS, ON_COMPUTE, stream_bytes(replay, action));
    for (int p = 0; p < stage->layers + 2; p++) {
        if (!pass_begin(replay, &pass, action, p, "forward")) continue;
        states_acquire(&replay->states, pass.part->index, false);
        stream = part_forward(&pass, stream);
        states_release(&replay->states, pass.part->index, false);
    }
    if (replay->states.profile->keeps_sent) replay->stream[at] = stream;
    else replayed_drop(&replay->pieces, &stream);
}

/* Where a backward pass is cut in two, what forward saved lives until the second part: the replay has both there. */
static bool is_backward(const struct action *action)
{
    return action->kind == BACKWARD || action->kind == BACKWARD_WEIGHT;
}

/* Whether no later action of the device's list is a backward pass of this chunk. */
static bool is_last_backward(const struct action *list, int count, int i)
{
    for (int k = i + 1; k < count; k++)
        if (is_backward(&list[k]) && list[k].chunk == list[i].chunk) return false;
    return true;
}

static void replay_backward(struct replay *replay, const struct action *action, bool last)
{
    const struct stage *stage = &replay->trainer->stage[action->chunk];
    const size_t at = place_of_micro(replay, action->chunk, action->micro);
    struct replayed *gradient = NULL;
    struct part_pass pass;
    if (!stage->last) gradient = replayed_make(&replay->pieces, OF_WORK, ON_COMPUTE, stream_bytes(replay, action));
    for (int p = stage->layers + 1; p >= 0; p--) {
        if (!pass_begin(replay, &pass, action, p, "backward")) continue;
        states_acquire(&replay->states, pass.part->index, true);
        gradient = part_backward(&pass, gradient);
        states_release(&replay->states, pass.part->index, true);
        states_part_done(&replay->states, pass.part->index, last);
        free(pass.memory);
        replay->memory[at * (size_t)replay->parts + (size_t)p] = NULL;
    }
    replayed_drop(&replay->pieces, &gradient);
    replayed_drop(&replay->pieces, &replay->stream[at]);
    states_pass_done(&replay->states);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

static void replay_step(struct replay *replay)
{
    const struct trainer *t = replay->trainer;
    const struct action *list = t->schedule.actions[t->pp.rank];
    const int count = t->schedule.count[t->pp.rank];
    states_begin(&replay->states);
    for (int i = 0; i < count && !replay->pieces.failed; i++) {
        if (list[i].kind == FORWARD) replay_forward(replay, &list[i]);
        if (is_backward(&list[i])) replay_backward(replay, &list[i], is_last_backward(list, count, i));
    }
    states_step(&replay->states);
}

/* A program that receives into buffers of its own has two for each microbatch: an input and a gradient. */
static void make_receive_buffers(struct replay *replay)
{
    const struct trainer *t = replay->trainer;
    if (!replay->states.profile->receives_apart || t->plan.stages == 1) return;
    for (int c = 0; c < t->plan.chunks; c++)
        for (int m = 0; m < t->plan.micros; m++)
            for (int side = 0; side < 2; side++)
                if (side == 0 ? !t->stage[c].first : !t->stage[c].last)
                    replayed_push(&replay->apart, replayed_make(&replay->pieces, OF_MESSAGES, ON_COMPUTE,
                                                          stage_message_bytes(&t->stage[c], m)));
}

static uint64_t nccl_bytes(const struct trainer *trainer)
{
    int communicators = 0;
    for (enum axis a = 0; a < AXIS_COUNT; a++) communicators += trainer->plan.mesh.size[a] > 1;
    if (trainer->plan.mesh.devices > 1) communicators++;        /* of all devices, for norms and losses */
    return (uint64_t)communicators * CHANNELS * CONNECTION;
}

static enum error_code replay_open(struct replay *replay, struct error *err)
{
    const struct trainer *t = replay->trainer;
    const size_t places = (size_t)t->plan.chunks * (size_t)t->plan.micros;
    for (int c = 0; c < t->plan.chunks; c++)
        if (t->stage[c].layers + 2 > replay->parts) replay->parts = t->stage[c].layers + 2;
    replay->memory = calloc(places * (size_t)replay->parts, sizeof *replay->memory);
    replay->stream = calloc(places, sizeof *replay->stream);
    if (replay->memory == NULL || replay->stream == NULL)
        return fail(err, ERR_MEMORY, "no memory to replay %d microbatches", t->plan.micros);
    return states_open(&replay->states, err);
}

static void replay_close(struct replay *replay)
{
    const size_t places = (size_t)replay->trainer->plan.chunks * (size_t)replay->trainer->plan.micros;
    for (size_t i = 0; i < places && replay->stream; i++) replayed_drop(&replay->pieces, &replay->stream[i]);
    for (size_t i = 0; i < places * (size_t)replay->parts && replay->memory; i++) free(replay->memory[i]);
    replayed_drop_all(&replay->pieces, &replay->apart);
    states_close(&replay->states);
    free(replay->memory), free(replay->stream);
    caching_close(&replay->pieces.allocator);
}

enum error_code memory_profile_check(const struct memory_profile *profile, const struct plan *plan, struct error *err)
{
    const char *const why = !dtype_is_narrow(plan->dtype) ? "computes in 16 bits: use --dtype bf16"
        : plan->optimizer->forward_only ? "trains, and this plan has no backward pass"
        : plan->data.offload || plan->data.offload_experts || plan->offload_activations
            ? "keeps everything on the device: plan without --offload"
        : plan->encoders.kinds > 0 ? "trains a model of text: plan without --modalities"
        : plan->data.tiles > 1 ? "has whole matrices: plan without --tiles"
        : plan_replicas(plan) > 1 ? "reduces gradients in every step: its copies do not train apart" : NULL;
    return why ? fail(err, ERR_PLAN, "--memory-of %s: a program that the profile knows %s", profile->name, why) : OK;
}

enum error_code memory_of(const struct trainer *trainer, const struct memory_profile *profile,
                          struct memory_of *memory, struct error *err)
{
    *memory = (struct memory_of){ .context = CONTEXT, .nccl = nccl_bytes(trainer) };
    struct replay r = { .trainer = trainer, .pieces.result = memory };
    r.states = (struct states){ .pieces = &r.pieces, .trainer = trainer, .profile = profile };
    caching_open(&r.pieces.allocator, profile->expandable);
    enum error_code e = replay_open(&r, err);
    if (!e) make_receive_buffers(&r);
    for (int i = 0; i < STEPS && !e && !r.pieces.failed; i++) replay_step(&r);
    memory->reserved = r.pieces.allocator.peak.reserved;
    if (!e && r.pieces.failed) e = fail(err, ERR_MEMORY, "no memory for the blocks of a replay");
    replay_close(&r);
    return e;
}
