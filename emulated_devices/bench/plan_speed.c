/* plan_speed.c -- what a plan takes of this machine: runs it in a process of its own.  cli/bench/plan.c prints.
 * Errors: ERR_MEMORY, and those of the plan that is measured. */
#include "emulated_devices/bench/plan_speed.h"
#include "emulated_devices/plan/padding.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "ref/io/child.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum error_code plan_of(struct plan *plan, const struct plan_speed *wanted, int devices, struct error *err)
{
    enum { PARTS = PLAN_SPEED_PARTS, PADDED = 128 };
    const int size[AXIS_COUNT] = { [PP] = PARTS, [DP] = devices / PARTS / PARTS, [CP] = 1, [EP] = 1, [TP] = PARTS };
    int64_t batch;
    *plan = (struct plan){
        .micros = wanted->micro, .chunks = 1, .dtype = BF16, .cluster = &wanted->cluster, .degree = -1,
        .comm_streams = wanted->streams,
        .data = { .scheme = data_scheme_at(0)->head.name, .bucket = 25 << 20, .offload_slice = 1 << 16 },
        .tensor = tensor_scheme_at(0)->head.name, .attention = attention_scheme_at(0)->head.name,
        .dispatch = expert_scheme_at(0)->head.name, .schedule = schedule_generator_at(0)->head.name,
        .optimizer = optimizers[0], .hyper = optimizers[0]->usual,
    };
    enum error_code e = model_config_preset(&plan->model, &batch, wanted->model, err);
    plan->model.V = padded_vocabulary(plan->model.V, PADDED, PARTS);
    if (!e) e = mesh_make(&plan->mesh, size, err);
    plan->S = plan->model.S, plan->B = (int64_t)size[DP] * wanted->micro;
    return e ? e : plan_check(plan, err);
}

static enum error_code note_time(struct trainer *trainer, void *step, struct error *err)
{
    (void)err;
    if (trainer->device->clock.now > *(picoseconds *)step) *(picoseconds *)step = trainer->device->clock.now;
    return OK;
}

static struct plan_speed_row run_plan_of(const struct plan_speed *wanted, int devices)
{
    struct plan_speed_row r = { .code = OK };
    struct plan p;
    r.code = plan_of(&p, wanted, devices, &r.err);
    struct dry_run run;
    if (!r.code) r.code = dry_run(&p, 1, wanted->unfolded, NULL, NULL, note_time, &r.step, &run, &r.err);
    if (!r.code) folding_describe(&run.folding, r.folded, sizeof r.folded), r.crew = run.crew;
    return r;
}

/* In a process of its own, whose peak of memory is the plan's. */
enum error_code plan_speed_measure(const struct plan_speed *wanted, int devices, struct plan_speed_row *row,
                                   struct error *err)
{
    int ends[2];
    struct child_end end = { 0 };
    fflush(NULL);
    if (pipe(ends) != 0) return fail(err, ERR_MEMORY, "no pipe to a process");
    const pid_t child = child_start();
    if (child == 0) {
        const struct plan_speed_row own = run_plan_of(wanted, devices);
        _exit(write(ends[1], &own, sizeof own) == (ssize_t)sizeof own ? 0 : 1);
    }
    close(ends[1]);
    const bool got = child > 0 && read(ends[0], row, sizeof *row) == (ssize_t)sizeof *row;
    close(ends[0]);
    if (child > 0) child_wait(child, 0, &end);
    const struct rusage used = end.used;
    if (!got) return fail(err, ERR_MEMORY, "the process for a plan of %d devices has ended", devices);
    row->kilobytes = used.ru_maxrss;
    row->seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    return row->code ? fail(err, row->code, "%d devices: %s", devices, row->err.text) : OK;
}
