/* plan_memory.c -- computes the memory that each device of a plan needs, and checks a budget.  run/session.c checks
 * before training; search/search.c and train/dry_run/alone.c ask for one device.  A budget that is too small is
 * ERR_PLAN, with a remedy if there is one.  Without memory for the list the code is ERR_MEMORY. */
#include "emulated_devices/train/dry_run/plan_memory.h"
#include "emulated_devices/model/trainer.h"
#include "ref/io/figures.h"
#include <stdio.h>
#include <stdlib.h>

/* ---- one device -------------------------------------------------------------------------------------------------- */

static void read_outline(struct trainer *trainer, int64_t steps, struct plan_memory *memory)
{
    struct model_state kept = { 0 }, slow = { 0 };
    struct trainer *part;
    for (int i = 0; (part = trainer_section(trainer, i)) != NULL; i++) {
        const struct model_state resident = data_resident(&part->data), offloaded = data_offloaded(&part->data);
        kept.weights += resident.weights, kept.gradients += resident.gradients, kept.optimizer += resident.optimizer;
        slow.weights += offloaded.weights, slow.gradients += offloaded.gradients,
            slow.optimizer += offloaded.optimizer;
        const struct model_state encoders = encoders_resident(part);
        kept.weights += encoders.weights, kept.gradients += encoders.gradients, kept.optimizer += encoders.optimizer;
        for (int m = 0; m < part->plan.encoders.kinds; m++) part->encoders.of[m].data.stepped = steps > 0;
        part->data.stepped = steps > 0;
        part->data.stepped_outward = outer_steps(&part->data.outer, 0, steps) > 0;
    }
    memory->offloaded = slow.weights + slow.gradients + slow.optimizer +
                   (steps > 0 ? trainer_activation_moves(trainer).bytes_written : 0);
    memory->peak = (struct arena_use){
        .tag = { [PARAMETERS] = kept.weights, [GRADIENTS] = kept.gradients, [OPTIMIZER] = kept.optimizer },
        .total = kept.weights + kept.gradients + kept.optimizer
    };
    for (int tag = 0; tag < BUFFERS && steps > 0; tag++) memory->peak.tag[tag] = trainer_peak(trainer, tag);
    if (steps > 0) memory->peak.total = trainer_least(trainer);
}

enum error_code plan_memory(const struct plan *plan, int rank, int64_t steps, struct plan_memory *out,
                            struct error *err)
{
    struct device device;
    struct trainer t;
    enum error_code e = device_open(&device, backend_find("count"), plan->dtype, 0, err);
    if (e) return e;
    if (plan->cluster) clock_open(&device.clock, plan->cluster, plan->dtype);
    struct comm nobody;
    e = comm_outline(&nobody, &device, rank, plan->mesh.devices, err);
    if (!e) {
        e = trainer_outline(&t, plan, &nobody, err);
        if (!e) read_outline(&t, steps, out);
        trainer_close(&t);
        comm_outline_close(&nobody);
    }
    device_close(&device);
    return e;
}

/* ---- all devices ------------------------------------------------------------------------------------------------- */

/* Copies along dp keep equal amounts; their peaks are equal if their microbatches have equal numbers of sequences, and
 * they have the same experts. */
static bool computes_as_much(const struct plan *plan, int dp, int other)
{
    const bool alike = plan->batches == NULL && !plan_cuts_experts(plan);
    for (int i = 0; i < plan->micros && alike; i++)
        if (plan_microbatch(plan, dp, i).count != plan_microbatch(plan, other, i).count) return false;
    return alike || dp == other;
}

static int first_like(const struct plan *plan, int dp)
{
    int first = 0;
    while (!computes_as_much(plan, first, dp)) first++;
    return first;
}

enum error_code plan_memory_of_all(const struct plan *plan, int64_t steps, struct plan_memories *out, struct error *err)
{
    struct plan_memory *known = calloc((size_t)plan->mesh.devices, sizeof *known);
    enum error_code e = known ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d devices", plan->mesh.devices);
    *out = (struct plan_memories){ 0 };
    for (int rank = 0; rank < plan->mesh.devices && !e; rank++) {
        const int like = mesh_neighbour(&plan->mesh, rank, DP,
                                        first_like(plan, mesh_coordinate(&plan->mesh, rank, DP)));
        if (like == rank) e = plan_memory(plan, rank, steps, &known[rank], err);
        else known[rank] = known[like];
        out->device_bytes += known[rank].peak.total;
        out->offloaded += known[rank].offloaded;
        if (rank == 0 || known[rank].peak.total > out->of_most.peak.total) out->most = rank, out->of_most = known[rank];
    }
    free(known);
    return e;
}

/* ---- a budget ---------------------------------------------------------------------------------------------------- */

/* Flags that reduce memory, the cheapest first. */
enum { SHARE = 1, RECOMPUTE = 2, OFFLOAD = 4 };
static const unsigned remedies[] = {
    SHARE, RECOMPUTE, OFFLOAD, SHARE | RECOMPUTE, SHARE | OFFLOAD, RECOMPUTE | OFFLOAD, SHARE | RECOMPUTE | OFFLOAD
};

static struct plan with_remedies(const struct plan *plan, unsigned remedy)
{
    struct plan q = *plan;
    if (remedy & SHARE) q.data.scheme = "zero3";
    if (remedy & RECOMPUTE) q.recompute = "full";
    if (remedy & OFFLOAD) q.data.offload = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER;
    return q;
}

static const char *name_remedies(unsigned remedy, char *text, size_t size)
{
    snprintf(text, size, "%s%s%s%s%s", remedy & SHARE ? "--zero 3" : "", remedy > SHARE && remedy & SHARE ? " " : "",
             remedy & RECOMPUTE ? "--recompute full" : "", remedy & OFFLOAD && remedy & RECOMPUTE ? " " : "",
             remedy & OFFLOAD ? "--offload optimizer,gradients,weights" : "");
    return text;
}

/* The first remedy with which the plan is valid and the lower bound of every device is within the budget. */
static unsigned find_remedy(const struct plan *plan, uint64_t budget, int64_t steps, uint64_t *needs)
{
    struct plan_memories m;
    struct error unread;
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++) {
        struct plan q = with_remedies(plan, remedies[i]);
        if (plan_check(&q, &unread) || plan_memory_of_all(&q, steps, &m, &unread) || m.of_most.peak.total > budget)
            continue;
        *needs = m.of_most.peak.total;
        return remedies[i];
    }
    return 0;
}

enum error_code plan_check_budget(const struct plan *plan, uint64_t budget, int64_t steps,
                                  const struct plan_memories *known, struct error *err)
{
    const struct arena_use *need = &known->of_most.peak;
    char place[64], flags[80], help[160] = "";
    uint64_t then;
    if (budget == 0 || need->total <= budget) return OK;
    const unsigned remedy = find_remedy(plan, budget, steps, &then);
    if (remedy)
        snprintf(help, sizeof help, "%s would take %s, or ", name_remedies(remedy, flags, sizeof flags),
                 size_format(then).text);
    return fail(err, ERR_PLAN,
                "--memory %s: device %d (%s) needs at least %s: weights %s, gradients %s, optimizer %s, activations "
                "%s at their peaks; %sgive it --memory %s or more",
                size_word(budget).text, known->most, mesh_describe(&plan->mesh, known->most, place, sizeof place),
                size_format(need->total).text, size_format(need->tag[PARAMETERS]).text,
                size_format(need->tag[GRADIENTS]).text, size_format(need->tag[OPTIMIZER]).text,
                size_format(need->tag[ACTIVATIONS]).text, help, size_enough(need->total).text);
}
