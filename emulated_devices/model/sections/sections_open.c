/* sections_open.c -- makes the trainers of a plan's sections, and the boxings between them.
 * model/trainer_open.c calls.  Errors: ERR_MEMORY, and those of a trainer's outline; sections_close works after all. */
#include "emulated_devices/model/away.h"
#include "emulated_devices/model/balance.h"
#include "emulated_devices/model/sections/sections_run.h"
#include "emulated_devices/model/sections/tied.h"
#include "emulated_devices/model/trainer_parts.h"
#include "emulated_devices/plan/sections.h"
#include <stdlib.h>

const struct trainer *trainer_of_layer(const struct trainer *trainer, int layer)
{
    const struct plan *const plan = &trainer->plan;
    return trainer->section ? &trainer->section[plan_of_layer(plan, layer) - plan->sections->at] : trainer;
}

struct trainer *trainer_section(struct trainer *trainer, int i)
{
    const int count = trainer->section ? trainer->plan.sections->count : 1;
    return i >= count ? NULL : trainer->section ? &trainer->section[i] : trainer;
}

enum error_code trainer_track(struct trainer *trainer, struct error *err)
{
    enum error_code e = data_track(&trainer->data, err);
    for (int i = 0; trainer->section && i < trainer->plan.sections->count && !e; i++)
        if (trainer_takes_part(&trainer->section[i])) e = data_track(&trainer->section[i].data, err);
    return e;
}

/* Whether a microbatch's pass is in a list of one place: messages are not. */
static bool is_pass(const struct action *action) { return !action_is_message(action->kind); }

enum error_code sections_list(struct schedule *schedule, const struct schedule *whole, int place, struct error *err)
{
    struct action *const list = calloc((size_t)whole->count[place] + 1, sizeof *list);
    if (list == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d actions", whole->count[place]);
    int n = 0;
    for (int i = 0; i < whole->count[place]; i++)
        if (is_pass(&whole->actions[place][i])) list[n] = whole->actions[place][i], list[n++].peer = -1;
    free(schedule->actions[0]);
    schedule->actions[0] = list, schedule->count[0] = n;
    return OK;
}

/* ---- between sections -------------------------------------------------------------------------------------------- */

static bool crosses_back(enum crossing crossing)
{
    return crossing == CROSSES_GRADIENT || crossing == CROSSES_SLOPES;
}

/* The boxing of one microbatch: what is of routers is cut by sequences or copies, not by tokens. */
static enum error_code make_crossing(struct boxing *boxing, enum crossing crossing, const struct plan *from,
                                     const struct plan *to, int rank, int micro, struct error *err)
{
    const bool back = crosses_back(crossing);
    struct boxing_side before = { 0 }, after = { 0 };
    if (crossing == CROSSES_STREAM || crossing == CROSSES_GRADIENT)
        return boxing_make(boxing, from, to, rank, micro, back, err);
    enum error_code e = boxing_side_open(&before, from, err);
    if (!e) e = boxing_side_open(&after, to, err);
    for (int i = 0; i < from->mesh.devices && !e; i++)
        before.part[i] = balance_part(from, from->mesh.first + i, micro, back, false);
    for (int i = 0; i < to->mesh.devices && !e; i++)
        after.part[i] = balance_part(to, to->mesh.first + i, micro, back, !back);
    if (!e) e = boxing_between(boxing, &before, &after, rank, err);
    boxing_side_close(&before), boxing_side_close(&after);
    return e;
}

static enum error_code open_crossing(struct boundary *boundary, enum crossing crossing, const struct trainer *trainer,
                                     int section, struct error *err)
{
    const struct plan *const before = &trainer->section[section - 1].plan,
        *const after = &trainer->section[section].plan;
    const bool back = crosses_back(crossing);
    const int rank = trainer->comm->rank, M = trainer->plan.micros;
    enum error_code e = OK;
    boundary->of[crossing] = calloc((size_t)M, sizeof *boundary->of[crossing]);
    if (boundary->of[crossing] == NULL) return fail(err, ERR_MEMORY, "no memory for the boxings of %d microbatches", M);
    for (int m = 0; m < M && !e; m++)
        if (boundary->like[m] == m)
            e = make_crossing(&boundary->of[crossing][m], crossing, back ? after : before, back ? before : after, rank,
                              m, err);
    return e;
}

/* Whether two microbatches of a section give each copy as many sequences, and nothing of their data decides who has
 * which tokens. */
static bool cut_alike(const struct plan *section, int one, int other)
{
    bool alike = one == other || !(plan_follows_data(section) || plan_shuffles(section));
    for (int dp = 0; dp < section->mesh.size[DP] && alike; dp++)
        alike = plan_microbatch(section, dp, one).count == plan_microbatch(section, dp, other).count;
    return alike;
}

/* Find for each microbatch the first that both sections cut in the same way. */
static enum error_code find_likes(struct boundary *boundary, const struct plan *before, const struct plan *after,
                                  struct error *err)
{
    const int M = before->micros;
    boundary->like = calloc((size_t)M, sizeof *boundary->like);
    if (boundary->like == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d microbatches", M);
    for (int m = 1; m < M; m++) {
        int like = boundary->like[m - 1];
        if (!cut_alike(before, m, like) || !cut_alike(after, m, like)) like = 0;
        while (like < m && !(cut_alike(before, m, like) && cut_alike(after, m, like))) like++;
        boundary->like[m] = like;
    }
    return OK;
}

static enum error_code open_boundary(struct boundary *boundary, const struct trainer *trainer, int section,
                                     struct error *err)
{
    const struct plan *const before = &trainer->section[section - 1].plan,
        *const after = &trainer->section[section].plan;
    const bool sums = balance_joins_layers(&trainer->plan);
    if (!mesh_has(&before->mesh, trainer->comm->rank) && !mesh_has(&after->mesh, trainer->comm->rank)) return OK;
    enum error_code e = find_likes(boundary, before, after, err);
    for (enum crossing c = 0; c < CROSSINGS && !e; c++)
        if (sums || c == CROSSES_STREAM || c == CROSSES_GRADIENT) e = open_crossing(boundary, c, trainer, section, err);
    return e;
}

static void close_boundary(struct boundary *boundary, int micros)
{
    for (enum crossing c = 0; c < CROSSINGS; c++) {
        for (int m = 0; m < micros && boundary->of[c]; m++) boxing_free(&boundary->of[c][m]);
        free(boundary->of[c]);
    }
    free(boundary->like);
    *boundary = (struct boundary){ .like = NULL };
}

enum error_code sections_box(struct trainer *trainer, struct error *err)
{
    enum error_code e = OK;
    for (int i = 1; i < trainer->plan.sections->count && !e; i++) {
        close_boundary(&trainer->boundary[i], trainer->plan.micros);
        e = open_boundary(&trainer->boundary[i], trainer, i, err);
    }
    return e;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static enum error_code open_between(struct trainer *trainer, struct error *err)
{
    int *const all = malloc((size_t)trainer->comm->size * sizeof *all);
    if (all == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", trainer->comm->size);
    for (int r = 0; r < trainer->comm->size; r++) all[r] = r;
    const enum error_code e = group_of(&trainer->between, trainer->comm, all, trainer->comm->size, TRAFFIC_PIPELINE,
                                       AXIS_BIT(PP), err);
    free(all);
    if (!e) group_sends_alike(&trainer->between);       /* train/dry_run/alike.c has looked at the parts */
    return e;
}

static enum error_code make_times(struct trainer *trainer, struct error *err)
{
    const int place = plan_place(&trainer->plan, trainer->comm->rank);
    trainer->times = calloc((size_t)trainer->schedule.count[place] + 1, sizeof *trainer->times);
    trainer->counted = calloc(1, sizeof *trainer->counted);
    return trainer->times && trainer->counted ? OK : fail(err, ERR_MEMORY, "no memory for times of a list of actions");
}

/* The step of a batch plan that holds most counts. */
static enum error_code note_steps(struct trainer *trainer, struct error *err)
{
    enum error_code e = OK;
    for (int s = trainer->plan.batches->steps - 1; s >= 0 && !e; s--) {
        for (int i = 0; i < trainer->plan.sections->count && !e; i++)
            e = trainer_cut_step(&trainer->section[i], s, err);
        if (!e) sections_note_held(trainer);
    }
    return e;
}

enum error_code sections_outline(struct trainer *trainer, struct error *err)
{
    const struct sections *const all = trainer->plan.sections;
    trainer->section = calloc((size_t)all->count, sizeof *trainer->section);
    trainer->boundary = calloc((size_t)all->count, sizeof *trainer->boundary);
    enum error_code e = trainer->section && trainer->boundary ? open_between(trainer, err)
        : fail(err, ERR_MEMORY, "no memory for %d sections", all->count);
    for (int i = 0; i < all->count && !e; i++) {
        struct plan own = all->at[i];
        own.optimizer = trainer->plan.optimizer, own.hyper = trainer->plan.hyper;
        e = trainer_outline_part(&trainer->section[i], &own, trainer->comm, &trainer->schedule, all->stage[i], err);
        /* A run may set the rate of each step: all sections read the whole plan's. */
        trainer->section[i].data.hyper = &trainer->plan.hyper;
        if (!e && i > 0) e = open_boundary(&trainer->boundary[i], trainer, i, err);
    }
    if (!e && trainer->plan.batches) e = note_steps(trainer, err);
    if (!e) e = tied_open(&trainer->tied, trainer, err);
    if (!e) e = make_times(trainer, err);
    /* As if no rows came; where samples decide who has which tokens, nothing is known yet. */
    if (!e && plan_routes_rows(&trainer->plan)) sections_note_held(trainer);
    if (plan_follows_data(&trainer->plan)) trainer->held = (struct held){ 0 };
    return e;
}

enum error_code sections_fill(struct trainer *trainer, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < trainer->plan.sections->count && !e; i++) {
        struct trainer *const part = &trainer->section[i];
        part->source = trainer->source;
        const int64_t tokens = plan_most_sequences(&part->plan) * part->plan.S;
        /* Each section that has work here reads the batch by itself, as devices do. */
        const bool reads = trainer_takes_part(part) && part->source.fill && !part->source.share;
        if (reads) part->scratch = calloc((size_t)(3 * tokens), sizeof *part->scratch);
        if (reads && part->scratch == NULL)
            return fail(err, ERR_MEMORY, "no memory for a batch of %lld tokens", (long long)tokens);
        e = data_fill(&part->data, part->plan.seed, err);
        for (int c = 0; c < part->stages_open && !e; c++) e = away_open(&part->stage[c], err);
        part->held = (struct held){ 0 };
    }
    return e;
}

void sections_close(struct trainer *trainer)
{
    const int count = trainer->section ? trainer->plan.sections->count : 0;
    for (int i = 0; i < count; i++) {
        if (trainer->section[i].comm) trainer_close(&trainer->section[i]);
        if (trainer->boundary) close_boundary(&trainer->boundary[i], trainer->plan.micros);
    }
    tied_close(trainer->tied);
    if (trainer->section) group_close(&trainer->between);
    free(trainer->section), free(trainer->boundary);
    trainer->section = NULL, trainer->boundary = NULL, trainer->tied = NULL;
}
