/* plan.c -- `orrery show plan`: draws which device has which part of the model and of the batch.  show.c calls
 * show_plan().  ERR_USAGE is for more devices than can be shown; other errors are a plan's. */
#include "emulated_devices/cli/show/planned.h"
#include "emulated_devices/draw/holdings.h"
#include "emulated_devices/draw/svg.h"

static enum error_code plan_note(struct trainer *trainer, void *context, struct error *err)
{
    (void)err;
    holding_note((struct holding *)context + trainer->comm->rank, trainer);
    return OK;
}

static enum error_code plan_draw(const struct planned *planned, struct error *err)
{
    static struct holding of[HOLDINGS_DEVICES];
    const struct holdings all = { &planned->options.plan, of };
    struct dry_run run;
    if (all.plan->mesh.devices > HOLDINGS_DEVICES)
        return fail(err, ERR_USAGE, "show plan: %d devices; at most %d can be shown", all.plan->mesh.devices,
                    HOLDINGS_DEVICES);
    enum error_code e = dry_run(all.plan, 0, true, NULL, NULL, plan_note, of, &run, err);
    if (e) return e;
    holdings_draw(stdout, &all);
    fflush(stdout);                     /* the file may be the standard output */
    if (planned->svg) e = svg_file(planned->svg, holdings_svg, &all, err);
    return !e && planned->page ? planned_page(planned, err) : e;
}

enum error_code show_plan(int argc, char **argv, int *status, struct error *err)
{
    struct planned p;
    (void)status;
    enum error_code e = planned_parse(&p, &run_show_plan, NULL, argc, argv, err);
    if (!e && !p.options.help) e = plan_draw(&p, err);
    train_options_free(&p.options);
    return e;
}
