/* step.c -- a training step without numbers: who holds and sends what when (`show data`), and how much (`show
 * memory`).  show.c calls show_data() and show_memory().  ERR_USAGE is for more devices than can be shown; other
 * errors are a plan's, and ERR_MEMORY. */
#include "emulated_devices/cli/show/planned.h"
#include "emulated_devices/draw/step.h"
#include "emulated_devices/draw/svg.h"

static enum error_code watch(struct trainer *trainer, void *context, struct error *err)
{
    (void)err;
    step_watch((struct step_record *)context + trainer->comm->rank, trainer);
    return OK;
}

static enum error_code watched(struct trainer *trainer, void *context, struct error *err)
{
    struct step_record *r = (struct step_record *)context + trainer->comm->rank;
    step_watched(r, trainer);
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

struct kind {
    void (*draw)(FILE *, const struct step_drawing *);
    enum error_code (*svg)(FILE *, const void *, struct error *);
    bool fullest;                       /* the device with most memory is drawn; else device 0 */
    const char *what;                   /* "show data" */
};

static enum error_code step_draw(const struct planned *planned, const struct kind *kind, struct step_record *record,
                                 struct error *err)
{
    const int devices = planned->options.plan.mesh.devices;
    struct step_drawing d = { .plan = &planned->options.plan };
    struct dry_run run;
    enum error_code e = dry_run(d.plan, 1, true, NULL, watch, watched, record, &run, err);
    if (e) return e;
    d.device = kind->fullest ? step_fullest(record, devices) : 0, d.record = &record[d.device];
    kind->draw(stdout, &d);
    step_document(&d);
    fflush(stdout);                     /* the file may be the standard output */
    if (planned->svg) e = svg_file(planned->svg, kind->svg, &d, err);
    return !e && planned->page ? step_page(&d, record, kind->what, planned->page, err) : e;
}

static enum error_code step_show(const struct run_kind *run, const struct kind *kind, const char *name_flag, int argc,
                                 char **argv, struct error *err)
{
    static struct step_record record[STEP_DEVICES];
    struct planned p;
    enum error_code e = planned_parse(&p, run, name_flag, argc, argv, err);
    if (!e && !p.options.help && p.options.plan.mesh.devices > STEP_DEVICES)
        e = fail(err, ERR_USAGE, "%s: %d devices; at most %d can be shown", run->command, p.options.plan.mesh.devices,
                 STEP_DEVICES);
    if (!e && !p.options.help) e = step_draw(&p, kind, record, err);
    for (int d = 0; d < STEP_DEVICES; d++) step_free(&record[d]);
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
