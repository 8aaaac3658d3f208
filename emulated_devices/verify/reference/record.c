/* record.c -- keeps the truth's activations in order of execution and measures each twin's distance from them.
 * reference.c installs both observers.  An observer cannot return an error: recording.error keeps the first, and
 * reference.c reports it. */
#include "emulated_devices/verify/reference/record.h"
#include "emulated_devices/model/probe.h"
#include "emulated_devices/model/program.h"
#include "ref/exact/unrounded.h"
#include "ref/model/kinds.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The next entry of the list.  The first step creates the entries; all later steps have the same ones, perhaps with
 * other numbers of rows. */
static struct recorded *next_place(struct recording *recording, const char *name, int layer, bool gradient,
                                   struct tensor t)
{
    /* The list doubles; pointers to older entries become invalid. */
    if (recording->next == recording->room) {
        const int room = recording->room ? 2 * recording->room : 64;
        struct recorded *grown = realloc(recording->all, (size_t)room * sizeof *grown);
        if (grown == NULL) return NULL;
        recording->all = grown;
        recording->room = room;
    }
    struct recorded *a = &recording->all[recording->next];
    if (recording->next == recording->count) {
        *a = (struct recorded){ .layer = layer, .gradient = gradient };
        snprintf(a->name, sizeof a->name, "%s", name);
        recording->count++;
    }
    if (a->truth.data == NULL || tensor_count(a->truth) != tensor_count(t)) {
        free(a->truth.data);
        a->truth = t;
        a->truth.data = malloc(tensor_bytes(t) + 1);
        if (a->truth.data == NULL) return NULL;
    }
    recording->next++;
    return a;
}

/* Whether a tensor's rows are in the order of experts.  Devices have these rows in another order, so they are not
 * compared. */
static bool is_sorted_by_expert(const struct recording *recording, const char *name)
{
    for (int i = 0; sorted_by_expert[i] && recording->model->mlp == MLP_MIXTURE; i++)
        if (strcmp(sorted_by_expert[i], name) == 0) return true;
    return false;
}

/* Whether a tensor is not recorded: a parameter, rows by expert, or anything after an error.  A name that no probe
 * knows is an error of the program: activation_width_of (model/probe.h) must know every activation. */
static bool leave_out(struct recording *recording, const char *name)
{
    if (recording->error.code || param_is_name(name) || is_sorted_by_expert(recording, name)) return true;
    enum activation_width width;
    if (activation_width_of(recording->model, name, &width)) return false;
    fail(&recording->error, ERR_PLAN, "the one-device model announces %s, of which no probe knows how it is cut", name);
    return true;
}

/* Copy one tensor of the truth, with its norm.  The twin's distance starts at 0 and no golden bound is known yet. */
static void record_truth(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct recording *r = context;
    (void)terms;
    if (leave_out(r, name)) return;
    struct recorded *a = next_place(r, name, layer, gradient, t);
    if (a == NULL) {
        fail(&r->error, ERR_MEMORY, "no memory to record %s", name);
        return;
    }
    memcpy(a->truth.data, t.data, tensor_bytes(t));
    a->norm = sqrt(squared_distance(t, tensor_none));
    a->distance = a->known = 0;
    free(a->file.data);
    a->file = tensor_none;
    free(a->unrounded.data);
    a->unrounded = unrounded_take(t);
}

/* Disturb one tensor of the twin, then measure its distance from the truth's tensor at the same place.  The twin
 * computes the same tensors in the same order, so no name is looked up. */
static void measure_twin(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct recording *r = context;
    r->disturb.see(r->disturb.context, name, layer, gradient, t, terms);
    if (leave_out(r, name)) return;
    struct recorded *a = &r->all[r->next++];
    const double distance = sqrt(squared_distance(t, a->truth));
    /* The largest distance of all twins counts.  A distance that is NaN exceeds any other. */
    if (exceeds(distance, a->distance)) a->distance = distance;
}

struct observer recording_observer(struct recording *recording)
{
    return (struct observer){ .see = record_truth, .context = recording };
}

struct observer measuring_observer(struct recording *recording, struct observer disturb)
{
    recording->disturb = disturb;
    return (struct observer){ .see = measure_twin, .context = recording };
}

double recorded_bound(const struct recording *recording, const struct recorded *recorded)
{
    (void)recording;
    if (recorded->known > 0 && !tensor_present(recorded->file)) return recorded->known;
    return relative_or_absolute(recorded->distance, recorded->norm, tensor_count(recorded->truth),
                                recorded->truth.dtype);
}

const char *activation_name(char *out, size_t size, const char *name, int layer, int layers)
{
    if (layer >= 0 && layer < layers) snprintf(out, size, "h.%d.%s", layer, name);
    else snprintf(out, size, "%s", name);
    return out;
}

void record_free(struct recording *recording)
{
    for (int i = 0; i < recording->count; i++)
        free(recording->all[i].truth.data), free(recording->all[i].file.data), free(recording->all[i].unrounded.data);
    free(recording->all);
    *recording = (struct recording){ 0 };
}
