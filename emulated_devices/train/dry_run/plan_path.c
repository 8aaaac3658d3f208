/* plan_path.c -- adds up a planned step's critical path and waits, by sort.  run/plan.c calls after a dry run.
 * plan_path_of reports ERR_MEMORY, and then the path has no rows. */
#include "emulated_devices/train/dry_run/plan_path.h"
#include <stdlib.h>
#include <string.h>

struct adding { struct plan_path *path; const struct cluster *cluster; bool *on; int devices; };

static bool alike(const struct path_row *path_row, const struct path_piece *piece, int level)
{
    if (path_row->like.kind != piece->kind || path_row->level != level) return false;
    if (piece->kind == PATH_IDLE) return true;
    if (path_row->like.stream != piece->stream) return false;
    return piece->kind == PATH_MESSAGE ? path_row->like.traffic == piece->traffic
           : strcmp(path_row->like.what, piece->what) == 0;
}

static struct path_row *plan_report_row_of(struct plan_path *path, const struct path_piece *piece, int level)
{
    int i = 0;
    while (i < path->rows && !alike(&path->row[i], piece, level)) i++;
    if (i == path->rows && path->rows < PATH_ROWS)
        path->row[path->rows++] = (struct path_row){ *piece, level, 0, 0, 0 };
    return &path->row[i < path->rows ? i : path->rows - 1];
}

static void add_piece(const struct path_piece *piece, void *context)
{
    struct adding *a = context;
    const int level = piece->kind == PATH_MESSAGE
        ? link_between(a->cluster->link, a->cluster->levels, piece->sender, piece->device) : 0;
    struct path_row *r = plan_report_row_of(a->path, piece, level);
    bool *on = &a->on[(r - a->path->row) * a->devices + piece->device];
    r->takes += piece->to - piece->from;
    r->pieces++;
    r->devices += !*on;
    *on = true;
}

static int longest_first(const void *a, const void *b)
{
    const picoseconds x = ((const struct path_row *)a)->takes, y = ((const struct path_row *)b)->takes;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The mean of all devices: each that ran stands for as many. */
static void add_shares_of_all(struct plan_path *path, const struct folding *folding, struct events *const *events)
{
    struct step_share sum = { 0 };
    path->least = path->total;
    const int lives = folding_lives(folding);
    for (int d = 0; d < folding->mesh.devices; d++) {
        if (folding_stands_for(folding, d) != d) continue;
        const struct step_share s = step_share(events[d], path->total);
        if (s.computing < path->least) path->least = s.computing;
        if (s.computing > path->most) path->most = s.computing;
        sum.computing += s.computing, sum.engines += s.engines, sum.ended += s.ended;
        for (int k = 0; k < TRAFFIC_KIND_COUNT; k++) sum.waiting[k] += s.waiting[k];
    }
    sum.computing /= lives, sum.engines /= lives, sum.ended /= lives;
    for (int k = 0; k < TRAFFIC_KIND_COUNT; k++) sum.waiting[k] /= lives;
    path->share = sum;
}

enum error_code plan_path_of(struct plan_path *path, const struct cluster *cluster, const struct folding *folding,
                             struct events *const *events, struct error *err)
{
    struct adding a = { path, cluster, calloc((size_t)folding->mesh.devices * PATH_ROWS, sizeof *a.on),
                       folding->mesh.devices };
    *path = (struct plan_path){ .rows = 0 };
    if (a.on == NULL) return fail(err, ERR_MEMORY, "no memory for the path of %d devices", folding->mesh.devices);
    path->total = step_path(folding, events, add_piece, &a);
    free(a.on);
    if (path->total < 0) return OK;
    qsort(path->row, (size_t)path->rows, sizeof *path->row, longest_first);
    add_shares_of_all(path, folding, events);
    return OK;
}

struct plan_peak plan_peak_of(const struct trainer *trainer)
{
    const struct arena *a = &trainer->device->arena;
    struct plan_peak p = { .use = a->at_peak, .doing = a->doing_at_peak };
    memcpy(p.blocks, a->blocks_at_peak, sizeof p.blocks);
    return p;
}
