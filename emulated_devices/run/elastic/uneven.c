/* uneven.c -- takes the copies that lost devices belong to out of their stages, and cuts the layers again.
 * elastic_words.c calls.  Errors: ERR_PLAN, ERR_MEMORY. */
#include "emulated_devices/run/elastic/uneven.h"
#include "emulated_devices/model/collection/collection.h"
#include "emulated_devices/schemes/pipeline/placement.h"
#include <stdlib.h>

/* Speeds are whole numbers of at most 1e6, so that a stage whose copies have one row each has this many. */
enum { SPEED_OF_ONE_ROW = 10000, USUAL_SPEED = 100 };

static int job_device(const int *process, int rank) { return process ? process[rank] : rank; }

/* Whether a copy of a stage has lost a device. */
static bool copy_is_broken(const struct mesh *mesh, struct interval stage, const int *process,
                           const struct losses *gone, int copy)
{
    for (int r = (int)stage.first; r < interval_end(stage); r++)
        if (mesh_coordinate(mesh, r, DP) == copy && losses_has(gone, job_device(process, r))) return true;
    return false;
}

/* A stage that is left: its copies, and its slowest device. */
struct stage_left { int copies, percent; struct mesh mesh; };

/* Add the devices of a stage's whole copies, in their order. */
static enum error_code take_stage(struct uneven *to, const struct plan *before, int place, const int *process,
                                  const struct losses *gone, struct stage_left *left, struct error *err)
{
    const struct interval stage = plan_place_devices(before, place);
    const struct mesh *const mesh = &plan_of_device(before, (int)stage.first)->mesh;
    const int first = to->devices;
    int size[AXIS_COUNT];
    *left = (struct stage_left){ 0, USUAL_SPEED };
    for (int copy = 0; copy < mesh->size[DP]; copy++) left->copies += !copy_is_broken(mesh, stage, process, gone, copy);
    for (int r = (int)stage.first; r < interval_end(stage); r++) {
        if (copy_is_broken(mesh, stage, process, gone, mesh_coordinate(mesh, r, DP))) continue;
        const int device = job_device(process, r);
        const int percent = before->cluster ? cluster_percent(before->cluster, r) : USUAL_SPEED;
        left->percent = percent < left->percent ? percent : left->percent;
        to->process[to->devices++] = device;
    }
    if (left->copies == 0) return OK;
    for (enum axis a = 0; a < AXIS_COUNT; a++) size[a] = mesh->size[a];
    size[PP] = 1, size[DP] = left->copies;
    const enum error_code e = mesh_make(&left->mesh, size, err);
    left->mesh.first = first;
    return e;
}

int64_t uneven_speed(const struct plan *plan, int copies, int percent)
{
    /* The first microbatch has the most rows, and of its copies the first. */
    const int64_t rows = block_at(block_at(plan->B, plan->micros, 0).count, copies, 0).count;
    const int64_t speed = (int64_t)SPEED_OF_ONE_ROW * percent / USUAL_SPEED / (rows > 0 ? rows : 1);
    return speed > 0 ? speed : 1;
}

/* Equal layers are cut among the stages that are left. */
static enum error_code cut_layers(struct uneven *to, const struct plan *before, const struct stage_left *left,
                                  int stages, struct error *err)
{
    const int layers = (int)before->model.L;
    int64_t *const time = calloc((size_t)layers + 1, sizeof *time), *const speed = calloc((size_t)stages + 1,
                                                                                           sizeof *speed);
    int *const count = calloc((size_t)stages + 1, sizeof *count);
    enum error_code e = time && speed && count ? OK : fail(err, ERR_MEMORY, "no memory for %d layers", layers);
    for (int i = 0; i < layers && !e; i++) time[i] = 1;
    for (int s = 0; s < stages && !e; s++) speed[s] = uneven_speed(before, left[s].copies, left[s].percent);
    if (!e) e = layers_by_time(time, layers, stages, speed, count, err);
    struct plan plain = *before;
    plain.sections = NULL;
    if (!e) e = sections_open(&to->sections, &plain, stages, err);
    for (int s = 0, next = 0; s < stages && !e; next += count[s++]) {
        to->sections.at[s].layers = (struct interval){ next, count[s] };
        to->sections.at[s].mesh = left[s].mesh;
    }
    free(time), free(speed), free(count);
    return e;
}

/* Sections have no groups of experts along an axis of their own, and one stage on each place. */
static enum error_code check_before(const struct plan *before, struct error *err)
{
    const bool copies = before->sections || before->mesh.size[DP] > 1, stages = plan_places(before) > 1;
    if (!copies || !stages) return fail(err, ERR_PLAN, "a mesh without copies or without stages has no uneven one");
    if (before->mesh.size[EP] > 1 || before->chunks > 1)
        return fail(err, ERR_PLAN, "stages with groups of experts, or several on a place, have equal copies");
    return OK;
}

enum error_code uneven_open(struct uneven *to, const struct plan *before, const int *process, const struct losses *gone,
                            struct error *err)
{
    const int places = plan_places(before);
    *to = (struct uneven){ 0 };
    enum error_code e = check_before(before, err);
    if (e) return e;
    struct stage_left *const left = calloc((size_t)places + 1, sizeof *left);
    to->process = calloc((size_t)before->mesh.devices + 1, sizeof *to->process);
    int stages = 0;
    if (left == NULL || to->process == NULL) e = fail(err, ERR_MEMORY, "no memory for %d stages", places);
    for (int place = 0; place < places && !e; place++) {
        e = take_stage(to, before, place, process, gone, &left[stages], err);
        stages += !e && left[stages].copies > 0;
    }
    if (!e && stages == 0) e = fail(err, ERR_PLAN, "no stage has a copy that is whole");
    if (!e) e = cut_layers(to, before, left, stages, err);
    free(left);
    if (e) uneven_close(to);
    return e;
}

void uneven_close(struct uneven *uneven)
{
    if (uneven->sections.at) sections_free(&uneven->sections);
    free(uneven->process);
    *uneven = (struct uneven){ 0 };
}
