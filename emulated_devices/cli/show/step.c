/* step.c -- a training step without numbers: who holds and sends what when (`show data`), and how much (`show
 * memory`).  show.c calls show_data() and show_memory().  ERR_USAGE is for more devices than can be shown; other
 * errors are a plan's, and ERR_MEMORY. */
#include "emulated_devices/cli/show/planned.h"
#include "emulated_devices/draw/step.h"
#include "emulated_devices/draw/svg.h"

/* All devices are watched, though a drawing may show one of them. */
struct watched { struct step_record record[STEP_DEVICES]; struct holding of[STEP_DEVICES]; };

static enum error_code watch(struct trainer *trainer, void *context, struct error *err)
{
    (void)err;
    step_watch(&((struct watched *)context)->record[trainer->comm->rank], trainer);
    return OK;
}

static enum error_code watched(struct trainer *trainer, void *context, struct error *err)
{
    struct watched *w = context;
    struct step_record *r = &w->record[trainer->comm->rank];
    step_watched(r, trainer);
    holding_note(&w->of[trainer->comm->rank], trainer);
    return r->failed ? fail(err, ERR_MEMORY, "no memory for the record of what happened") : OK;
}

static uint64_t most(const struct step_record *record)
{
    uint64_t held = 0;
    for (int i = 0; i < record->lines; i++)
        held = record->line[i].held.total > held ? record->line[i].held.total : held;
    return held;
}

/* Return the device with most memory, the first of equal ones. */
static int step_fullest(const struct step_record *record, int devices)
{
    int full = 0;
    for (int d = 1; d < devices; d++)
        if (most(&record[d]) > most(&record[full])) full = d;
    return full;
}

/* How a step is drawn. */
struct kind {
    void (*draw)(FILE *, const struct step_drawing *);          /* as text; NULL: only a page is wanted */
    enum error_code (*svg)(FILE *, const void *, struct error *);
    bool fullest;                       /* the device with most memory is drawn; else device 0 */
    const char *what;                   /* "show data" */
};

static enum error_code step_draw(const struct planned *planned, const struct kind *kind, struct watched *all,
                                 struct error *err)
{
    const struct plan *plan = &planned->options.plan;
    struct dry_run run;
    enum error_code e = dry_run(plan, 1, true, NULL, watch, watched, all, &run, err);
    if (e) return e;
    if (kind->draw) {
        const int device = kind->fullest ? step_fullest(all->record, plan->mesh.devices) : 0;
        const struct step_drawing d = { .plan = plan, .device = device, .record = &all->record[device] };
        kind->draw(stdout, &d);
        step_document(&d);
        fflush(stdout);                 /* the file may be the standard output */
        if (planned->svg) e = svg_file(planned->svg, kind->svg, &d, err);
    }
    return !e && planned->page ? step_page(plan, all->record, all->of, kind->what, planned->page, err) : e;
}

/* Run a step, draw it, and forget it. */
static enum error_code step_run(const struct planned *planned, const struct kind *kind, struct error *err)
{
    static struct watched all;
    const int devices = planned->options.plan.mesh.devices;
    if (devices > STEP_DEVICES)
        return fail(err, ERR_USAGE, "%s: %d devices; at most %d can be shown", kind->what, devices, STEP_DEVICES);
    const enum error_code e = step_draw(planned, kind, &all, err);
    for (int d = 0; d < STEP_DEVICES; d++) step_free(&all.record[d]);
    return e;
}

enum error_code planned_page(const struct planned *planned, struct error *err)
{
    static const struct kind kind = { NULL, NULL, false, "show plan" };
    return step_run(planned, &kind, err);
}

static enum error_code step_show(const struct run_kind *run, const struct kind *kind, const char *name_flag, int argc,
                                 char **argv, struct error *err)
{
    struct planned p;
    enum error_code e = planned_parse(&p, run, name_flag, argc, argv, err);
    if (!e && !p.options.help) e = step_run(&p, kind, err);
    train_options_free(&p.options);
    return e;
}

enum error_code show_data(int argc, char **argv, int *status, struct error *err)
{
    static const struct kind kind = { step_draw_data, step_svg_data, false, "show data" };
    (void)status;
    return step_show(&run_show_data, &kind, "--data-parallel", argc, argv, err);
}

enum error_code show_memory(int argc, char **argv, int *status, struct error *err)
{
    static const struct kind kind = { step_draw_memory, step_svg_memory, true, "show memory" };
    (void)status;
    return step_show(&run_show_memory, &kind, NULL, argc, argv, err);
}
