/* recovery.c -- counts what recovering from a lost device takes.  cli/bench/recovery.c calls.  Errors: ERR_PLAN of a
 * pipeline, ERR_MEMORY. */
#include "emulated_devices/bench/recovery.h"
#include "emulated_devices/model/collection/moves.h"
#include "emulated_devices/schemes/pipeline/placement.h"
#include <stdlib.h>

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* Ends of connections that each device opens; count NULL: there was no memory. */
struct opened { int64_t *of; int devices; };

static void open_between(struct opened *opened, int a, int b) { opened->of[a]++, opened->of[b]++; }

static int mesh_stride(const int size[RECOVERY_AXES], int axis)
{
    int stride = 1;
    for (int a = 0; a < axis; a++) stride *= size[a];
    return stride;
}

/* The members of the group of a rank along an axis, without the lost rank.  @return how many. */
static int group_left(const int size[RECOVERY_AXES], int rank, int axis, int lost, int *member)
{
    const int stride = mesh_stride(size, axis), first = rank - rank / stride % size[axis] * stride;
    int left = 0;
    for (int i = 0; i < size[axis]; i++)
        if (first + i * stride != lost) member[left++] = first + i * stride;
    return left;
}

/* All meet at the first member, and each connects with the next one of the ring. */
static void recovery_meet(struct opened *opened, const int *member, int members)
{
    for (int i = 1; i < members; i++) open_between(opened, member[0], member[i]);
    for (int i = 0; i < members && members > 1 && !(members == 2 && i == 1); i++)
        open_between(opened, member[i], member[(i + 1) % members]);
}

static bool has_lost(const int size[RECOVERY_AXES], int rank, int axis, int lost)
{
    const int stride = mesh_stride(size, axis);
    return rank - rank / stride % size[axis] * stride == lost - lost / stride % size[axis] * stride;
}

/* Groups along an axis, each once: by its first member. */
static void open_axis(struct opened *opened, const int size[RECOVERY_AXES], int axis, int lost, enum rebuild way,
                      int *member)
{
    const int stride = mesh_stride(size, axis);
    for (int rank = 0; rank < opened->devices; rank++) {
        if (rank / stride % size[axis] != 0 || size[axis] == 1) continue;
        const bool hit = has_lost(size, rank, axis, lost);
        const int left = group_left(size, rank, axis, lost, member);
        if (way == REBUILD_FULL || (way == REBUILD_PARTIAL && hit)) recovery_meet(opened, member, left);
        const int at = lost / stride % size[axis];      /* the lost device's neighbours have met where 3 were a ring */
        if (way == REBUILD_IN_PLACE && hit && left > 2)
            open_between(opened, member[(at + left - 1) % left], member[at % left]);
    }
}

enum error_code recovery_rebuild(const int size[RECOVERY_AXES], int lost, enum rebuild way,
                                 struct rebuild_count *count, struct error *err)
{
    const int devices = mesh_stride(size, RECOVERY_AXES);
    struct opened opened = { calloc((size_t)devices, sizeof *opened.of), devices };
    int *const member = calloc((size_t)devices, sizeof *member);
    const bool room = opened.of && member;
    *count = (struct rebuild_count){ 0 };
    const int meets = lost == 0 ? 1 : 0;
    for (int r = 0; r < devices && room && way == REBUILD_FULL; r++)
        if (r != lost && r != meets) open_between(&opened, meets, r);
    for (int axis = 0; axis < RECOVERY_AXES && room; axis++) open_axis(&opened, size, axis, lost, way, member);
    for (int r = 0; r < devices && room; r++) {
        count->connections += opened.of[r];
        count->busiest = opened.of[r] > count->busiest ? opened.of[r] : count->busiest;
    }
    count->connections /= 2;
    free(opened.of), free(member);
    return room ? OK : fail(err, ERR_MEMORY, "no memory for %d devices", devices);
}

/* ---- pace -------------------------------------------------------------------------------------------------------- */

enum { PERCENT = 100 };

/* @param count  layers of each stage.  @param speed  of each stage, in hundredths of a copy. */
static double step_time(const struct recovery_pipeline *pipeline, const int *count, const int64_t *speed, double micros)
{
    double slowest = 0, all = 0;
    for (int k = 0; k < pipeline->stages; k++) {
        const double own = (double)count[k] / ((double)speed[k] / (PERCENT * pipeline->copies));
        slowest = own > slowest ? own : slowest, all += own;
    }
    return (micros - 1) * slowest + all;
}

/* All bubbles of the stage but those before its first microbatch and after its last one are filled. */
static double shared_time(const struct recovery_pipeline *pipeline, const int *count, double before)
{
    const double micros = (double)pipeline->micros * pipeline->copies / (pipeline->copies - 1),
        own = (micros + pipeline->lost) * count[pipeline->lost];
    return own > before ? own : before;
}

enum error_code recovery_pace(const struct recovery_pipeline *pipeline, enum pace pace, double *ratio, int *count,
                              struct error *err)
{
    const int stages = pipeline->stages, copies = pipeline->copies;
    if (copies < 2) return fail(err, ERR_PLAN, "a stage with one copy has nobody who takes over its work");
    int64_t *const time = calloc((size_t)pipeline->layers + 1, sizeof *time),
        *const speed = calloc((size_t)stages + 1, sizeof *speed);
    int *const layers = calloc((size_t)stages + 1, sizeof *layers);
    enum error_code e = time && speed && layers ? OK : fail(err, ERR_MEMORY, "no memory for %d layers",
                                                            pipeline->layers);
    for (int i = 0; i < pipeline->layers && !e; i++) time[i] = 1;
    for (int k = 0; k < stages && !e; k++) speed[k] = (int64_t)copies * PERCENT;
    if (!e) e = layers_by_time(time, pipeline->layers, stages, speed, layers, err);
    const double before = e ? 1 : step_time(pipeline, layers, speed, pipeline->micros);
    double micros = pipeline->micros;
    if (pace == PACE_DROPPED) micros *= (double)copies / (copies - 1);
    else if (!e)
        speed[pipeline->lost] = (int64_t)(copies - 1) * (PERCENT + (pace == PACE_RAISED ? pipeline->raise : 0));
    if (!e && pace >= PACE_MOVED) e = layers_by_time(time, pipeline->layers, stages, speed, layers, err);
    if (!e) *ratio = (pace == PACE_SHARED ? shared_time(pipeline, layers, before)
                      : step_time(pipeline, layers, speed, micros)) / before;
    for (int k = 0; k < stages && count && !e; k++) count[k] = layers[k];
    free(time), free(speed), free(layers);
    return e;
}

/* ---- restoring --------------------------------------------------------------------------------------------------- */

enum rebuild recovery_rebuild_of(enum restore restore)
{
    static const enum rebuild of[RESTORE_COUNT] = {
#define X(restore, name, rebuild) rebuild,
        RESTORES(X)
#undef X
    };
    return of[restore];
}

/* A loss comes at any moment, so on the average half of what lies between two snapshots is lost. */
struct restore_cost recovery_restore(const struct recovery_state *state, const struct cluster *cluster,
                                     enum restore restore)
{
    const struct link *const link = &cluster->link[cluster->levels - 1];
    struct restore_cost cost = { 0, 0.5 };
    switch (restore) {
    case RESTORE_CHECKPOINT:
        cost.lost = (double)state->every / 2;
        cost.restoring = time_at_rate(state->bytes, cluster->host.drive_rate);
        break;
    case RESTORE_SHARED: cost.restoring = time_at_rate(state->bytes, cluster->host.memory_rate); break;
    default: cost.restoring = link->latency + time_at_rate(state->bytes, link->rate);
    }
    return cost;
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* Stages have `before` layers and one less or one more afterwards; their copies follow one another. */
struct slices { int layers, copies; int64_t bytes; bool interleaved; };

/* The part of a copy's range that lies in a layer, as a box of the layer.
 * @param first, count  layers of the stage. */
static void add_slice(const struct slices *slices, int layer, int first, int count, int copy, struct boxes *to)
{
    if (layer < first || layer >= first + count) return;
    const int64_t all = slices->interleaved ? slices->bytes : slices->bytes * count,
        begin = slices->interleaved ? 0 : slices->bytes * (layer - first);
    const struct interval own = block_at(all, slices->copies, copy),
        both = interval_meet(own, (struct interval){ begin, slices->bytes });
    const struct box box = { .start = { both.first - begin }, .extent = { both.count } };
    if (both.count > 0) boxes_add(to, &box, 1);
}

static enum error_code move_layer(struct moves *moves, const struct slices *slices, int layer, struct boxes *has,
                                  struct boxes *wants, struct error *err)
{
    for (int copy = 0; copy < slices->copies; copy++)
        for (int stage = 0; stage < 2; stage++) {
            const int rank = stage * slices->copies + copy, first = stage * slices->layers;
            add_slice(slices, layer, first, slices->layers, copy, &has[rank]);
            add_slice(slices, layer, first - stage, slices->layers + (stage ? 1 : -1), copy, &wants[rank]);
        }
    const enum error_code e = moves_add(moves, layer, "a layer", 1, 1, has, wants, err);
    for (int r = 0; r < 2 * slices->copies; r++) boxes_free(&has[r]), boxes_free(&wants[r]);
    return e;
}

/* Layers that stay on their stage move among its copies, too, where the copies share all layers together. */
static enum error_code busiest_link(const struct moves *moves, uint64_t *busiest, struct error *err)
{
    uint64_t *const link = calloc((size_t)moves->ranks * (size_t)moves->ranks + 1, sizeof *link);
    if (link == NULL) return fail(err, ERR_MEMORY, "no memory for the links of %d devices", moves->ranks);
    *busiest = 0;
    for (int i = 0; i < moves->count; i++) {
        const struct move *const m = &moves->at[i];
        uint64_t *const own = &link[m->from * moves->ranks + m->to];
        *own += (uint64_t)m->box.extent[0];
        *busiest = *own > *busiest ? *own : *busiest;
    }
    free(link);
    return OK;
}

enum error_code recovery_slices(int layers, int copies, int64_t bytes, int interleaved, uint64_t *busiest,
                                uint64_t *moved, struct error *err)
{
    const struct slices slices = { layers, copies, bytes, interleaved != 0 };
    struct moves moves;
    struct boxes *const has = calloc(4 * (size_t)copies, sizeof *has), *const wants = has + 2 * copies;
    enum error_code e = moves_open(&moves, 2 * copies, NULL, err);
    if (!e && has == NULL) e = fail(err, ERR_MEMORY, "no memory for the slices of %d copies", copies);
    for (int l = 0; l < 2 * layers && !e; l++) e = move_layer(&moves, &slices, l, has, wants, err);
    if (!e) e = busiest_link(&moves, busiest, err);
    *moved = moves.bytes;
    free(has);
    moves_close(&moves);
    return e;
}
