/* boxing.c -- finds the steps from one signature to another that send least.
 *
 * The functions give costs and steps of journeys, and send nothing.  assign.c and assign_run.c ask for journeys;
 * cli/show/sbp.c only prints those of assign.c.  boxing_run.c and boxing_time.c ask for parcels.
 * All functions are local and pure, and cannot fail for signatures that fit.
 */
#include "emulated_devices/schemes/sbp/boxing.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/cluster.h"

/* Whether a receiver asks a sender.  Where several devices have the same old part, each receiver asks the device in its
 * own row. */
static bool asks(const struct sbp_mesh *sbp_mesh, struct signature from, int receiver, int sender)
{
    bool other_part = false;
    /* On an axis that is not split, sender and receiver must have the same place. */
    for (int k = 0; k < sbp_mesh->axes; k++) {
        const bool same = sbp_place(sbp_mesh, sender, k) == sbp_place(sbp_mesh, receiver, k);
        if (from.on[k].kind != SBP_S && !same) return false;
        other_part = other_part || !same;
    }
    return other_part || sender == receiver;
}

struct box boxing_parcel(const struct shape *shape, const struct sbp_mesh *sbp_mesh,
                         const struct boxing_step *step, int sender, int receiver)
{
    /* The parcel is the sender's old part where it meets the receiver's new one. */
    if (!asks(sbp_mesh, step->from, receiver, sender)) return (struct box){ 0 };
    return box_intersect(signature_box(shape, sbp_mesh, step->from, sender),
                         signature_box(shape, sbp_mesh, step->to, receiver), shape->ndim);
}

/* Count the elements that a sender gives to all other devices in a REDISTRIBUTE. */
static int64_t redistributed(const struct shape *shape, const struct sbp_mesh *sbp_mesh,
                             const struct boxing_step *step, int sender)
{
    int64_t n = 0;
    for (int r = 0; r < sbp_devices(sbp_mesh); r++)
        if (r != sender) n += box_count(boxing_parcel(shape, sbp_mesh, step, sender, r), shape->ndim);
    return n;
}

/* Count the elements that a device sends for a sum by a ring.  A reduce-scatter sends all parts but the own one; an
 * all-reduce sends each part 2 (p-1) times. */
static int64_t summed(const struct shape *shape, const struct sbp_mesh *sbp_mesh,
                      const struct boxing_step *step, int device)
{
    const int64_t old = box_count(signature_box(shape, sbp_mesh, step->from, device), shape->ndim),
                  new = box_count(signature_box(shape, sbp_mesh, step->to, device), shape->ndim);
    if (step->kind == SUM_AND_SPLIT) return old - new;
    const int P = sbp_mesh->size[step->axis], r = sbp_place(sbp_mesh, device, step->axis);
    /* A byte stands for an element here, so the collective's bytes are elements. */
    const struct collective c = { .count = old, .dtype = U8 };
    return (int64_t)collective_cost(algorithm_find(ALLREDUCE, "ring"), r, P, &c).bytes;
}

int64_t boxing_sent(const struct shape *shape, const struct sbp_mesh *sbp_mesh,
                    const struct boxing_step *step, int device)
{
    if (step->kind == REDISTRIBUTE) return redistributed(shape, sbp_mesh, step, device);
    return step->kind == MAKE_PARTIAL ? 0 : summed(shape, sbp_mesh, step, device);
}

/* ---- which steps there are --------------------------------------------------------------------------------------- */

/* Whether axis k's cut of a dimension is the last: then the parts along k make up the part before it. */
static bool cuts_last(struct signature signature, int k, int dim)
{
    for (int later = k + 1; later < SBP_AXES; later++)
        if (signature.on[later].kind == SBP_S && signature.on[later].dim == dim) return false;
    return true;
}

/* The one step between two signatures, if there is one. */
static bool step_between(struct signature a, struct signature b, struct boxing_step *step)
{
    /* A step changes any number of axes between S and B, or one axis from or to P. */
    int changed = -1, changes = 0;
    bool partial = false;
    for (int k = 0; k < SBP_AXES; k++) {
        if (sbp_equal(a.on[k], b.on[k])) continue;
        changed = k, changes++;
        partial = partial || a.on[k].kind == SBP_P || b.on[k].kind == SBP_P;
    }
    *step = (struct boxing_step){ .kind = REDISTRIBUTE, .axis = changed, .from = a, .to = b };
    if (!partial) return changes > 0;
    if (changes > 1) return false;
    const struct sbp was = a.on[changed], is = b.on[changed];
    step->kind = is.kind == SBP_P ? MAKE_PARTIAL : is.kind == SBP_B ? SUM_ALL : SUM_AND_SPLIT;
    /* A split axis may become partial, or the reverse, only if its parts join without a gap. */
    return (was.kind != SBP_S || cuts_last(a, changed, was.dim)) && (is.kind != SBP_S || cuts_last(b, changed, is.dim));
}

/* Redistribution counts what devices get: each gets the elements of its new part that its old one has not. */
static int64_t step_elements(const struct shape *shape, const struct sbp_mesh *sbp_mesh, const struct boxing_step *step)
{
    int64_t n = 0;
    for (int d = 0; d < sbp_devices(sbp_mesh); d++) {
        const struct box old = signature_box(shape, sbp_mesh, step->from, d),
            new = signature_box(shape, sbp_mesh, step->to, d);
        n += step->kind == REDISTRIBUTE
                 ? box_count(new, shape->ndim) - box_count(box_intersect(old, new, shape->ndim), shape->ndim)
                 : boxing_sent(shape, sbp_mesh, step, d);
    }
    return n;
}

/* The search makes this small: picoseconds on a cluster, else elements. */
static int64_t step_length(const struct shape *shape, const struct sbp_mesh *sbp_mesh, const struct boxing_step *step)
{
    return sbp_mesh->cluster ? boxing_time(shape, sbp_mesh, step) : step_elements(shape, sbp_mesh, step);
}

/* ---- the shortest row of them ------------------------------------------------------------------------------------ */

/* The search has an entry for each signature: length so far (-1: not yet), steps, and the step that led here. */
struct reached { int64_t length; int steps; int before; struct boxing_step by; bool done; };

/* A shorter way is nearer; of equal lengths the way with fewer steps. */
static bool nearer(int64_t length, int steps, const struct reached *than)
{
    return than->length < 0 || length < than->length || (length == than->length && steps < than->steps);
}

/* Find the nearest signature that is reached and not done; -1: none is left. */
static int nearest(const struct reached *reached, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!reached[i].done && reached[i].length >= 0
            && (best < 0 || nearer(reached[i].length, reached[i].steps, &reached[best]))) best = i;
    return best;
}

/* Find the shortest journey over all signatures of the shape, by Dijkstra's search. */
static struct boxing shortest(const struct shape *shape, const struct sbp_mesh *sbp_mesh, struct signature from,
                              struct signature to)
{
    struct signature all[SBP_MOST_SIGNATURES];
    struct reached r[SBP_MOST_SIGNATURES] = { { 0 } };
    struct boxing b = { 0 };
    const int n = signature_all(shape, sbp_mesh, all);
    int goal = -1;
    for (int i = 0; i < n; i++) {
        r[i] = (struct reached){ .length = signature_equal(all[i], from) ? 0 : -1 };
        if (signature_equal(all[i], to)) goal = i;
    }
    /* Dijkstra's search over all signatures: the nearest one is done, then its neighbours are tried. */
    for (int at = nearest(r, n); at >= 0 && at != goal; at = nearest(r, n)) {
        r[at].done = true;
        for (int i = 0; i < n; i++) {
            struct boxing_step s;
            if (r[i].done || !step_between(all[at], all[i], &s)) continue;
            const int64_t length = r[at].length + step_length(shape, sbp_mesh, &s);
            if (nearer(length, r[at].steps + 1, &r[i]))
                r[i] = (struct reached){ length, r[at].steps + 1, at, s, false };
        }
    }
    /* A signature that does not fit has no journey; the caller must not ask for one. */
    if (goal < 0 || r[goal].steps > BOXING_MOST_STEPS) return b;
    b.steps = r[goal].steps;
    /* The row of steps is read from its end, by way of `before`. */
    for (int i = b.steps, at = goal; i > 0; at = r[at].before) b.step[--i] = r[at].by;
    for (int i = 0; i < b.steps; i++) b.elements += step_elements(shape, sbp_mesh, &b.step[i]);
    b.time = sbp_mesh->cluster ? r[goal].length : 0;
    return b;
}

/* Between all signatures, those with partial sums by way of any others (Floyd and Warshall). */
void boxing_costs(const struct shape *shape, const struct sbp_mesh *sbp_mesh, int64_t cost[])
{
    struct signature all[SBP_MOST_SIGNATURES];
    const int n = signature_all(shape, sbp_mesh, all);
    /* A quarter of the largest number lets two of them be added without overflow. */
    const int64_t never = INT64_MAX / 4;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            struct boxing_step s;
            cost[i * n + k] = i == k ? 0 : step_between(all[i], all[k], &s) ? step_length(shape, sbp_mesh, &s) : never;
        }
    for (int by = 0; by < n; by++)
        for (int i = 0; i < n; i++)
            for (int k = 0; k < n; k++) {
                const int64_t sum = cost[i * n + by] + cost[by * n + k];
                if (sum < cost[i * n + k]) cost[i * n + k] = sum;
            }
}

/* Without partial sums one step moves to each device what it has not, and nothing can move less. */
struct boxing boxing_plan(const struct shape *shape, const struct sbp_mesh *sbp_mesh, struct signature from,
                          struct signature to)
{
    struct boxing b = { 0 };
    if (sbp_mesh->cluster || signature_has(from, SBP_P) || signature_has(to, SBP_P))
        return shortest(shape, sbp_mesh, from, to);
    b.steps = step_between(from, to, &b.step[0]);
    if (b.steps > 0) b.elements = step_elements(shape, sbp_mesh, &b.step[0]);
    return b;
}
