/* plan.c -- who has what in a plan. */
#include "emulated_devices/cli/show/planned.h"
#include "emulated_devices/draw/holdings.h"
#include "emulated_devices/draw/svg.h"

static enum error_code note(struct trainer *t, void *context, struct error *err)
{
    (void)err;
    holding_note((struct holding *)context + t->comm->rank, t);
    return OK;
}

static enum error_code draw(const struct planned *p, struct error *err)
{
    static struct holding of[HOLDINGS_DEVICES];
    const struct holdings all = { &p->options.plan, of };
    struct dry_run run;
    if (all.plan->mesh.devices > HOLDINGS_DEVICES)
        return fail(err, ERR_USAGE, "show plan: %d devices; at most %d can be shown", all.plan->mesh.devices,
                    HOLDINGS_DEVICES);
    const enum error_code e = dry_run(all.plan, 0, true, NULL, NULL, note, of, &run, err);
    if (e) return e;
    holdings_draw(stdout, &all);
    fflush(stdout);                     /* the file may be the standard output */
    return p->svg ? svg_file(p->svg, holdings_svg, &all, err) : OK;
}

enum error_code show_plan(int argc, char **argv, int *status, struct error *err)
{
    struct planned p;
    (void)status;
    enum error_code e = planned_parse(&p, &run_show_plan, NULL, argc, argv, err);
    if (!e && !p.options.help) e = draw(&p, err);
    train_options_free(&p.options);
    return e;
}
