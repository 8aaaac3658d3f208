/* reference_low_rank.c -- projects the gradients of truth and twin, as devices do, and says how far directions may
 * turn.  The caller is reference.c, before reduction and in the step; its errors are ERR_MEMORY and ERR_CHECK. */
#include "emulated_devices/verify/reference/reference_low_rank.h"
#include "ref/model/perturb.h"
#include <math.h>
#include <stdlib.h>

struct low_rank_parts reference_low_rank(const struct plan *plan, const struct param_spec *spec)
{
    /* A fused matrix is projected part by part, such as queries, keys and values. */
    int64_t rows[PARAM_MOST_PARTS];
    for (int i = 0; i < spec->parts; i++) rows[i] = spec->part[i].rows;
    return low_rank_parts_of(plan->optimizer, &plan->hyper, param_is_linear(spec), rows, spec->parts, spec->dim[1]);
}

struct tensor reference_numbers(const struct reference *reference, int i, int k, struct tensor state, int room)
{
    const struct low_rank_parts all = reference_low_rank(reference->plan, &reference->truth.model.spec[i]);
    return low_rank_read(reference->plan->optimizer, &reference->plan->hyper, &all, reference->truth.master[i], k,
                         state, reference->room[room]);
}

bool reference_make_room(struct reference *reference)
{
    const struct plan *p = reference->plan;
    size_t most = 0;
    bool ok = true;
    /* Each room must hold the numbers of the largest state that is kept in another format than the weights. */
    for (int k = 0; k < p->optimizer->states; k++)
        for (int i = 0; i < reference->truth.model.params; i++) {
            const struct tensor w = reference->truth.master[i];
            const struct low_rank_parts all = reference_low_rank(p, &reference->truth.model.spec[i]);
            const size_t bytes = (size_t)low_rank_numbers(p->optimizer, &p->hyper, &all, w, k) * dtype_size(w.dtype);
            const bool read = low_rank_format(p->optimizer, &p->hyper, k, w.dtype) != w.dtype;
            if (read && bytes > most) most = bytes;
        }
    for (int i = 0; i < 3 && most > 0 && ok; i++) ok = (reference->room[i] = malloc(most)) != NULL;
    return ok;
}

/* The result is the difference of sizes of column k's largest positive and largest negative element.  The larger one
 * decides its sign. */
static double sign_margin(struct tensor P, int64_t k)
{
    double highest = 0, lowest = 0;
    for (int64_t i = 0; i < P.dim[0]; i++) {
        const double v = tensor_get(P, i * P.dim[1] + k);
        highest = fmax(highest, v), lowest = fmin(lowest, v);
    }
    return highest + lowest;
}

/* square: squares of the singular values, [a], largest first; e: the largest error of an element of G. */
static struct turn turn_of(struct low_rank low_rank, struct tensor P, const double *square, double e)
{
    const double rounding = PERTURB_LAMBDA * dtype_unit(F64) * square[0];
    struct turn sum = { 0 };
    for (int64_t i = 0; i < low_rank.r; i++) {
        double turned = 0;
        for (int64_t j = 0; j < low_rank.a; j++) {
            /* angle = min(1, by / |si^2 - sj^2|): by how much vector i may turn towards vector j. */
            const double apart = fabs(square[i] - square[j]), by = (sqrt(square[i]) + sqrt(square[j])) * e + rounding;
            const double angle = i == j || by == 0 ? 0 : by < apart ? by / apart : 1;
            turned += angle * angle, sum.R += angle * angle * square[j];
        }
        /* such a turn changes the difference of two elements by at most this */
        const bool reversible = sign_margin(P, i) <= sqrt(2 * turned);
        /* A reversed vector differs by twice its length, whose square is 4. */
        sum.P += turned + (reversible ? 4 : 0), sum.R += reversible ? 4 * square[i] : 0;
    }
    return (struct turn){ .P = sqrt(sum.P), .R = sqrt(sum.R) };
}

/* This is one matrix of a parameter in the truth or the twin. */
struct matrix_run { struct tensor g, P; };

/* Find the gradient [rows, columns] and the projection of one part of parameter i in one run.  Both are views, no
 * copies. */
static struct matrix_run matrix_of(const struct reference *reference, const struct serial_run *run, int i,
                                   const struct low_rank_parts *all, int part)
{
    const struct tensor whole = run->state[i * OPTIMIZER_MAX_STATES + LOW_RANK_PROJECTION];
    return (struct matrix_run){
        .g = low_rank_rows(all->part[part], run->model.g[i]),
        .P = low_rank_part_state(reference->plan->optimizer, &reference->plan->hyper, all, part, run->master[i], whole,
                                 LOW_RANK_PROJECTION),
    };
}

/* Compute new directions in truth and twin and how far those of another program may turn.  The twin goes first,
 * because `square` must be the truth's. */
static enum error_code find_anew(struct low_rank low_rank, struct matrix_run truth, struct matrix_run twin,
                                 char *scratch, double *square, struct turn *turn, struct error *err)
{
    const double off = tensor_farthest(twin.g, truth.g);
    enum error_code e = galore_refresh(low_rank, twin.P, twin.g, scratch, NULL, err);
    if (!e) e = galore_refresh(low_rank, truth.P, truth.g, scratch, square, err);
    if (!e) *turn = turn_of(low_rank, truth.P, square, off);
    return e;
}

/* Replace one matrix's gradient G by R in truth and twin.  Directions are new if `anew`, else the state's. */
static enum error_code project_matrix(struct reference *reference, int i, const struct low_rank_parts *all,
                                      int part, bool anew, struct turn *turn, struct error *err)
{
    const struct low_rank p = all->part[part].p;
    const struct matrix_run truth = matrix_of(reference, &reference->truth, i, all, part),
        twin = matrix_of(reference, &reference->twin, i, all, part);
    char *scratch = malloc(galore_scratch(p, truth.g.dtype));
    double *square = malloc(sizeof *square * (size_t)p.a);
    enum error_code e = scratch && square ? OK
                                          : fail(err, ERR_MEMORY, "no memory to project the gradient of %s",
                                                 reference->truth.model.spec[i].name);
    if (!e && anew) e = find_anew(p, truth, twin, scratch, square, turn, err);
    if (!e) galore_project(p, truth.g, truth.P, scratch);
    if (!e) galore_project(p, twin.g, twin.P, scratch);
    free(scratch), free(square);
    return e;
}

/* For several matrices the squares of their turns are summed. */
static enum error_code project_one(struct reference *reference, int i, bool anew, struct error *err)
{
    const struct low_rank_parts all = reference_low_rank(reference->plan, &reference->truth.model.spec[i]);
    struct turn sum = { 0 };
    enum error_code e = OK;
    if (!low_rank_projects(&all)) return OK;
    /* Old directions may be off by turn.P already; R is off by at most that times |G|. */
    if (!anew) reference->turn[i].R = reference->turn[i].P
        * sqrt(ops_squares(reference->truth.model.ops, reference->truth.model.g[i]));
    for (int part = 0; part < all.count && !e; part++) {
        struct turn one = { 0 };
        e = project_matrix(reference, i, &all, part, anew, &one, err);
        sum.P = hypot(sum.P, one.P), sum.R = hypot(sum.R, one.R);
    }
    if (anew && !e) reference->turn[i] = sum;
    return e;
}

/* Project the gradient of parameter i in the twin alone, part by part, with the directions that the twin has. */
static enum error_code project_twin(struct reference *reference, int i, struct error *err)
{
    const struct low_rank_parts all = reference_low_rank(reference->plan, &reference->truth.model.spec[i]);
    for (int part = 0; part < all.count && low_rank_projects(&all); part++) {
        const struct low_rank p = all.part[part].p;
        const struct matrix_run twin = matrix_of(reference, &reference->twin, i, &all, part);
        char *scratch = malloc(galore_scratch(p, twin.g.dtype));
        if (scratch == NULL)
            return fail(err, ERR_MEMORY, "no memory to project the gradient of %s",
                        reference->truth.model.spec[i].name);
        galore_project(p, twin.g, twin.P, scratch);
        free(scratch);
    }
    return OK;
}

/* Whether gradients are projected at this point. */
static bool projects(const struct plan *plan, int64_t t, enum project_when when)
{
    return plan->optimizer->low_rank && (when == IN_THE_STEP) == low_rank_takes_whole(&plan->hyper, t);
}

enum error_code reference_project_twin(struct reference *reference, int64_t t, enum project_when when,
                                       struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < reference->truth.model.params && !e && projects(reference->plan, t, when); i++)
        e = project_twin(reference, i, err);
    return e;
}

enum error_code reference_project(struct reference *reference, int64_t t, enum project_when when, struct error *err)
{
    const struct plan *p = reference->plan;
    enum error_code e = OK;
    const bool whole = p->optimizer->low_rank && low_rank_takes_whole(&p->hyper, t);
    /* Whole gradients are compared before the step projects them, so their bound has no turn. */
    for (int i = 0; i < reference->truth.model.params && whole && when == BEFORE_REDUCTION; i++)
        reference->turn[i].R = 0;
    for (int i = 0; i < reference->truth.model.params && !e && projects(p, t, when); i++)
        e = project_one(reference, i, low_rank_refreshes(&p->hyper, t), err);
    return e;
}
