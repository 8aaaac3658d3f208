/* singles.c -- collects the verdicts on single operations, and judges copies rank by rank.
 *
 * ACTUAL is the dump of the program that `orrery check` judges.  A single is one operation's result, judged by the
 * operation's own inputs in ACTUAL (recompute/single.h).
 * emulated_devices/cli/check_judged.c calls singles_check once for a dump, and check_found.c singles_check_copy for
 * results whose copies differ.  singles_find_parts is in singles_find.c and calls singles_check_copy, too.
 * singles_read.c reads the tensors.  Errors are ERR_FILE, ERR_FORMAT and ERR_MEMORY; then `out` is empty, and there
 * is nothing to free. */
#include "emulated_devices/check/report/singles.h"
#include "emulated_devices/check/report/singles_read.h"
#include "emulated_devices/check/report/diagnose.h"
#include "emulated_devices/check/mistakes/explainer.h"
#include "emulated_devices/check/report/holders.h"
#include "emulated_devices/check/recompute/replay.h"
#include "emulated_devices/check/recompute/steps.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Append which size of the mesh a factor is, such as "= dp". */
static void name_factor(const struct checking *checking, struct single_result *result)
{
    char names[96];
    const size_t n = strlen(result->mistake);
    diagnose_factor(names, sizeof names, &checking->actual->mesh, 1, result->factor, result->allowed);
    if (names[0]) snprintf(result->mistake + n, sizeof result->mistake - n, " = %s%s",
                           result->factor < 0 ? "-" : "", names);
}

/* Write which ranks and microbatches have the wrong rectangle.  A vector is a row for recompute/, but a column for
 * ranks. */
static void find_holders(const struct checking *checking, const struct single_result *result, char *out, size_t size)
{
    int64_t dim[2];
    singles_dims(checking->golden, result->name, tensor_2d(NULL, F64, result->rows, result->cols), dim);
    const struct interval rows = { result->first_row, result->last_row + 1 - result->first_row },
                          cols = { result->first_col, result->last_col + 1 - result->first_col };
    const bool vector = dim[0] == result->cols && result->rows == 1;
    holders_describe(checking->actual, result->name, dim, vector ? cols : rows,
                     vector ? (struct interval){ 0, 1 } : cols, out, size);
}

/* judge_copy checks single results again, so both functions need each other. */
static enum error_code judge_copy(struct checking *, int i, struct error *);

/* Stop behind the first wrong result, once its copies are judged.  A number says less than the tensor that follows: a
 * wrong loss is followed by the gradient of logits. */
static void stop_if_wrong(struct checking *checking)
{
    const int last = checking->out->count - 1;
    checking->failed = judge_copy(checking, last, checking->err);
    const struct single_result *const r = &checking->out->all[last];
    const bool wrong = r->verdict == SINGLE_WRONG;
    checking->stop = checking->failed || checking->number_is_wrong || (wrong && r->rows * r->cols > 1);
    checking->number_is_wrong = wrong;
}

/* recompute/ calls this with each verdict, in order.  The four lists grow together; without memory `failed` stops
 * the check at its end. */
static void singles_note(void *context, const struct single_result *of)
{
    struct checking *c = context;
    struct single_result named = *of;
    const struct single_result *const result = &named;
    memcpy(named.name, singles_name(c, of->name).text, sizeof named.name);
    if (strncmp(of->lacks, "act/", 4) == 0 || strncmp(of->lacks, "grad/", 5) == 0
        || strncmp(of->lacks, "start/", 6) == 0)
        memcpy(named.lacks, singles_name(c, of->lacks).text, sizeof named.lacks);
    actual_seen(c->actual, result->name, result->rows * result->cols);
    void *where = realloc(c->out->where, (size_t)(c->out->count + 1) * sizeof *c->out->where);
    if (where) c->out->where = where;
    void *mixed = realloc(c->mixed, (size_t)(c->out->count + 1) * sizeof *c->mixed);
    if (mixed) c->mixed = mixed;
    void *each = realloc(c->out->each, (size_t)(c->out->count + 1) * sizeof *c->out->each);
    if (each) c->out->each = each;
    void *more = realloc(c->out->all, (size_t)(c->out->count + 1) * sizeof *c->out->all);
    if (more) c->out->all = more;
    if (more == NULL || where == NULL || mixed == NULL || each == NULL) {
        c->failed = fail(c->err, ERR_MEMORY, "no memory for the results of all operations");
        return;
    }
    c->out->where[c->out->count][0] = '\0', c->out->each[c->out->count] = false;
    /* Each result notes whether copies that differ have been read for it. */
    c->mixed[c->out->count] = c->reads_apart, c->reads_apart = false;
    if (result->verdict == SINGLE_WRONG) find_holders(c, result, c->out->where[c->out->count], sizeof *c->out->where);
    c->out->all[c->out->count++] = *result;
    c->out->found[result->verdict]++;
    if (result->scaled) name_factor(c, &c->out->all[c->out->count - 1]);
    if (c->view.until_wrong) stop_if_wrong(c);
}

/* Whether a result is of the first pass: of a step "OPTIMIZER/..." it is not. */
static bool is_of_pass(const char *name)
{
    return strchr(name, '/') == NULL || strncmp(name, "act/", 4) == 0 || strncmp(name, "grad/", 5) == 0;
}

/* The name by which recomputation knows the only result that is wanted; NULL: it is not of this pass. */
static const char *singles_only(const struct checking *checking, const char *only)
{
    const struct pass_name prefix = singles_name(checking, "");
    const size_t n = strlen(prefix.text);
    return strncmp(only, prefix.text, n) == 0 ? only + n : NULL;
}

/* Whether ACTUAL has activations of the pass, or the norm of its gradients. */
static bool singles_has_pass(const struct checking *checking)
{
    const struct pass_name prefix = singles_name(checking, "act/"), norm = singles_name(checking, "norm");
    if (actual_has(checking->actual, norm.text)) return true;
    for (int f = 0; f < checking->actual->files; f++)
        for (int i = 0; i < checking->actual->file[f].st.count; i++)
            if (strncmp(checking->actual->file[f].st.entry[i].name, prefix.text, strlen(prefix.text)) == 0) return true;
    return false;
}

/* Recompute a later pass whose activations ACTUAL has: from its weights before that step.  Copies of our model are of
 * the first batch only. */
static enum error_code check_later_pass(struct checking *checking, const char *optimizer, int64_t step,
                                        struct rounding rounding, struct single_source source, struct error *err)
{
    const struct golden *g = checking->golden;
    const int64_t at = step * g->B * g->S;
    const struct single_batch batch = { g->ids + at, g->labels + at, g->B, g->S, golden_balance_micros(g),
                                        golden_positions(g, step, 0) };
    struct single_notes *notes = NULL;          /* those of the first pass are of its gradients */
    enum error_code e = OK;
    checking->optimizer = optimizer, checking->step = step, source.copies = 0, source.step = step;
    source.notes = &notes;
    const bool wanted = source.only == NULL || (source.only = singles_only(checking, source.only)) != NULL;
    if (wanted && singles_has_pass(checking)) e = replay_check(&g->config, batch, rounding, source, err);
    checking->step = 0;
    if (notes) mistakes_explainer.forget(notes);
    return e == ERR_PLAN ? OK : e;              /* the first pass has said so */
}

/* Recompute all steps of all optimizers, if the golden file has what each begins with: then ACTUAL can have that,
 * too. */
static enum error_code check_steps(struct checking *checking, struct rounding rounding, struct single_source source,
                                   struct error *err)
{
    const struct golden *g = checking->golden;
    const struct single_batch batch = { g->ids, g->labels, g->B, g->S, golden_balance_micros(g), g->positions };
    double lr[GOLDEN_MOST_STEPS];
    char optimizer[32], name[64];
    const int64_t begins = checking->actual->begins;
    struct single_source stepping = source;
    enum error_code e = OK;
    if (source.stepped) stepping.params = source.stepped;
    if (begins == 0 && (source.only == NULL || is_of_pass(source.only)))
        e = single_check_micros(&g->config, g->micros, batch, rounding, source, err);
    /* Without every step's tensors only microbatches can be checked. */
    if ((!g->every_step && g->steps > 1) || (source.only && is_of_pass(source.only))) return e;
    for (const char *at = golden_next_optimizer(g, NULL, optimizer); at && !e;
         at = golden_next_optimizer(g, at, optimizer)) {
        const struct single_steps steps = { optimizer, golden_hyperparameters(g, optimizer), g->steps, lr,
                                           checking->format, begins };
        snprintf(name, sizeof name, "%s/lr", optimizer);
        e = golden_read(g, name, F64, g->steps, lr, err);
        if (!e) e = single_check_norms(&g->config, &steps, rounding, stepping, err);
        for (int64_t k = begins; k < g->steps && !e; k++) {
            if (k > 0) e = check_later_pass(checking, optimizer, k, rounding, source, err);
            if (!e) e = single_check_step(&g->config, &steps, k, rounding, stepping, err);
        }
    }
    return e;
}

/* Find the notes of the ranks that a view reads from; a new set of ranks begins without notes.  NULL: no memory. */
static struct single_notes **notes_of(struct shared *shared, const struct view *view)
{
    static const struct devices none;
    const struct devices *over = view->over ? view->over : &none, *last = view->last ? view->last : &none;
    for (struct noted *n = shared->noted; n; n = n->next)
        if (memcmp(&n->over, over, sizeof *over) == 0 && memcmp(&n->last, last, sizeof *last) == 0) return &n->notes;
    struct noted *more = malloc(sizeof *more);
    if (more == NULL) return NULL;
    *more = (struct noted){ *over, *last, NULL, shared->noted };
    shared->noted = more;
    return &more->notes;
}

static void shared_free(struct shared *shared)
{
    for (struct noted *n = shared->noted, *next; n; n = next) {
        next = n->next;
        if (n->notes) mistakes_explainer.forget(n->notes);
        free(n);
    }
    model_copies_free(&shared->copies), single_params_free(&shared->params),
        single_params_free(&shared->stepped);
}

/* Recompute the pass, the sums over microbatches and the steps, or the only result that is wanted. */
static enum error_code check_all(struct checking *checking, struct rounding rounding, struct single_source source,
                                 struct error *err)
{
    const struct golden *g = checking->golden;
    const struct single_batch batch = { g->ids, g->labels, g->B, g->S, golden_balance_micros(g), g->positions };
    const bool wanted = source.only == NULL || is_of_pass(source.only);
    enum error_code e = OK;
    if (wanted && checking->actual->begins == 0) e = replay_check(&g->config, batch, rounding, source, err);
    /* A model without a table of operations is checked against the golden file only; why_none says so. */
    if (e == ERR_PLAN) {
        snprintf(checking->out->why_none, sizeof checking->out->why_none, "%.199s", err->text);
        e = OK;
    }
    return e ? e : check_steps(checking, rounding, source, err);
}

/* One check: the pass, the steps, then copies that differ.  A view with `only` recomputes a single result and
 * judges no copies. */
static enum error_code report_singles_check(const struct golden *golden, const struct actual *actual, enum dtype format,
                                            struct rounding rounding, struct view view, struct shared *shared,
                                            struct singles *out, struct error *err)
{
    struct checking c = { .golden = golden, .actual = actual, .format = format, .out = out, .view = view,
                          .shared = shared, .rounding = rounding, .err = err };
    const struct batch_parts parts = batch_parts_of(golden, actual);
    *out = (struct singles){ .format = format };
    const struct single_source source = { .fetch = singles_fetch, .fetch_rows = singles_fetch_rows,
                                          .found = singles_note, .parts = singles_parts_of, .part = parts.part,
                                          .parts_of_batch = parts.count, .parts_are_scaled = parts.scaled,
                                          .context = &c, .copies = shared->copies.n, .only = view.only,
                                          .stop = &c.stop, .explainer = &mistakes_explainer, .some = view.last != NULL,
                                          .params = &shared->params,
                                          .notes = notes_of(shared, &view), .cuts = &shared->cuts,
                                          .mesh = shared->mesh, .steps = golden->steps,
                                          .adapters = shared->stepped.spec ? &actual->adapters : NULL,
                                          .stepped = shared->stepped.spec ? &shared->stepped : NULL,
                                          .begins = actual->begins };
    enum error_code e = source.notes ? check_all(&c, rounding, source, err)
                                     : fail(err, ERR_MEMORY, "no memory for the results of all operations");
    if (!e) e = c.failed;
    for (int i = 0; i < out->count && !e && view.only == NULL && !view.until_wrong; i++) e = judge_copy(&c, i, err);
    if (!e) e = singles_sort(out, err);
    free(c.apart), free(c.mixed), free(parts.part), free(parts.owner);
    if (e) singles_free(out);
    return e;
}

/* A tensor whose copies are judged. */
struct copies_of {
    struct checking *of;
    struct rounding rounding;
    char name[SINGLE_NAME];
    int64_t dim[2];
    struct devices wrong;               /* the ranks whose own is */
    bool open;                          /* what some have cannot be judged */
    struct single_result first, right;  /* of the first of them; of some that are right.  No name: of none */
};

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Find the ranks that read each other's pieces: all with the same place along tp.  Ranks beside them along tp have
 * their own copies of the rows. */
static struct devices together(const struct mesh *mesh, const struct devices *ranks)
{
    struct devices all = { 0 };
    int first = 0;
    while (!devices_have(ranks, first)) first++;
    for (int i = 0; i < mesh->devices; i++)
        if (mesh_coordinate(mesh, i, TP) == mesh_coordinate(mesh, first, TP)) devices_add(&all, i);
    return all;
}

/* Recompute the result of some ranks from what these ranks have themselves.  An empty name: it could not be
 * recomputed. */
static enum error_code judge_ranks(const struct copies_of *copies_of, const struct devices *ranks,
                                   struct single_result *result, struct error *err)
{
    const struct checking *c = copies_of->of;
    const struct devices over = together(&c->actual->mesh, ranks);
    const struct view view = { .over = &over, .last = ranks, .only = copies_of->name };
    struct singles one;
    const enum error_code e = report_singles_check(c->golden, c->actual, c->format, copies_of->rounding,
                                                   view, c->shared, &one, err);
    *result = (struct single_result){ 0 };
    if (e) return e;
    c->out->read += one.read;
    if (one.count > 0) *result = one.all[0];
    singles_free(&one);
    return OK;
}

/* Take ranks out of a set. */
static void remove_ranks(struct devices *from, const struct devices *some)
{
    for (size_t i = 0; i < sizeof from->word / sizeof *from->word; i++) from->word[i] &= ~some->word[i];
}

/* Judge the ranks one by one: some of them together are wrong. */
static enum error_code find_wrong(struct copies_of *copies_of, const struct devices *ranks, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < copies_of->of->actual->mesh.devices && !e; i++) {
        struct devices one = { 0 };
        struct single_result r;
        if (!devices_have(ranks, i)) continue;
        devices_add(&one, i);
        e = judge_ranks(copies_of, &one, &r, err);
        if (e || r.verdict != SINGLE_WRONG) continue;
        /* The first wrong rank's result is the one that the report shows. */
        if (devices_count(&copies_of->wrong) == 0) copies_of->first = r;
        devices_add(&copies_of->wrong, i);
    }
    return e;
}

/* Judge what each of these ranks has; ranks without common elements are judged at once.  Copies that could not be
 * judged leave the verdict open. */
static enum error_code judge_each(struct copies_of *copies_of, struct devices todo, struct error *err)
{
    enum error_code e = OK;
    while (!e && devices_count(&todo) > 0) {
        const struct devices some = holders_apart(copies_of->of->actual, copies_of->name, copies_of->dim, &todo, TP);
        struct single_result r;
        if (devices_count(&some) == 0) return OK;
        e = judge_ranks(copies_of, &some, &r, err);
        /* A set that is wrong together is judged rank by rank, to find who is wrong. */
        if (!e && r.verdict == SINGLE_WRONG) e = find_wrong(copies_of, &some, err);
        else if (!e && r.name[0] && r.verdict < SINGLE_WRONG) copies_of->right = r;
        else copies_of->open = true;
        remove_ranks(&todo, &some);
    }
    return e;
}

/* Take the verdict of the copies.  A wrong result is right if it was judged by other copies than its ranks read.  A
 * right one may be wrong on ranks other than the first. */
static void take_verdict(struct singles *out, int i, const struct copies_of *copies_of)
{
    struct single_result *r = &out->all[i];
    const bool wrong = devices_count(&copies_of->wrong) > 0;
    /* copies_explain reads `each`: all copies were judged, and none is wrong. */
    out->each[i] = !wrong && !copies_of->open;
    if (wrong == (r->verdict == SINGLE_WRONG)) return;
    if (!wrong && (copies_of->open || copies_of->right.name[0] == 0)) return;
    out->found[r->verdict]--;
    *r = wrong ? copies_of->first : copies_of->right;
    out->found[r->verdict]++;
    out->where[i][0] = 0;
    if (!wrong) return;
    struct evidence on = { .failing = copies_of->wrong,
                          .holding = holders_all(copies_of->of->actual, copies_of->name, copies_of->dim) };
    diagnose_place(out->where[i], sizeof *out->where, &copies_of->of->actual->mesh, &on);
}

/* Judge the copies of one result, rank by rank, if they differ.  Rounding parts copies where ranks add up in different
 * orders; a wrong copy may be nearer than a bound of 16 bits.  So each rank's copy is held to what the rank has read
 * itself. */
static enum error_code judge_copy(struct checking *checking, int i, struct error *err)
{
    const struct single_result *r = &checking->out->all[i];
    const struct apart *apart = singles_apart(checking, r->name);
    struct copies_of k = { .of = checking, .rounding = checking->rounding };
    /* A right result without differing copies, or one without a verdict, needs nothing. */
    if (r->verdict != SINGLE_WRONG && (apart == NULL || r->verdict > SINGLE_WRONG)) return OK;
    /* A wrong result that read no differing copies is wrong on all ranks. */
    if (r->verdict == SINGLE_WRONG && !checking->mixed[i]) return OK;
    memcpy(k.name, r->name, sizeof k.name);
    singles_dims(checking->golden, k.name, tensor_2d(NULL, F64, r->rows, r->cols), k.dim);
    const enum error_code e = judge_each(&k, r->verdict == SINGLE_WRONG
                                                 ? holders_all(checking->actual, k.name, k.dim) : apart->on, err);
    if (!e) take_verdict(checking->out, i, &k);
    return e;
}

/* One device may have written what several have computed, so its mesh says nothing. */
static struct single_mesh mesh_of(const struct actual *actual)
{
    const int *const size = actual->mesh.size;
    const struct single_mesh mesh = { size[PP], size[DP], size[CP], size[EP], size[TP], 0 };
    struct single_mesh of = actual->mesh.devices > 1 ? mesh : (struct single_mesh){ 0 };
    of.micros = actual_micros(actual);
    return of;
}

/* Begin and end what the checks of a dump share, around one of them. */
static enum error_code singles_check_shared(const struct golden *golden, const struct actual *actual,
                                            enum dtype format, struct rounding rounding, struct view view,
                                            struct singles *out, struct error *err)
{
    struct shared shared = { .mesh = mesh_of(actual), .cuts = batch_cuts_of(golden, actual) };
    shared.copies = model_copies_of(golden, &shared.params, cuts_of_ranks(&shared.cuts));
    enum error_code e = single_params_make(&shared.params, &golden->config, err);
    if (!e && actual->adapters.count > 0)
        e = single_params_adapted(&shared.stepped, &shared.params, &actual->adapters, err);
    if (!e) e = report_singles_check(golden, actual, format, rounding, view, &shared, out, err);
    shared_free(&shared);
    return e;
}

enum error_code singles_check(const struct golden *golden, const struct actual *actual, enum dtype format,
                              struct rounding rounding, struct singles *out, struct error *err)
{
    return singles_check_shared(golden, actual, format, rounding, (struct view){ 0 }, out, err);
}

enum error_code singles_check_first(const struct golden *golden, const struct actual *actual, enum dtype format,
                                    struct rounding rounding, struct singles *out, struct error *err)
{
    return singles_check_shared(golden, actual, format, rounding, (struct view){ .until_wrong = true }, out, err);
}

/* cli/check_found.c asks this when a result may be right on other ranks than the first. */
enum error_code singles_check_copy(const struct golden *golden, const struct actual *actual, enum dtype format,
                                   struct rounding rounding, const char *name, const struct devices *over,
                                   struct single_result *result, struct error *err)
{
    struct singles all;
    const enum error_code e = singles_check_shared(golden, actual, format, rounding,
                                                   (struct view){ .over = over, .only = name }, &all, err);
    *result = (struct single_result){ 0 };
    if (e) return e;
    if (all.count > 0) *result = all.all[0];
    singles_free(&all);
    return OK;
}

void singles_free(struct singles *singles)
{
    free(singles->all), free(singles->where), free(singles->each), free(singles->by_name);
    *singles = (struct singles){ 0 };
}
