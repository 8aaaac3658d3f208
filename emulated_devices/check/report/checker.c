/* checker.c -- compares every golden tensor with what all ranks of ACTUAL have together.
 * emulated_devices/cli/check_judged.c calls check_files; first.c calls the parts of it.  A tensor that differs is a
 * finding, not an error.  check_result_free frees the lists. */
#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/report/adapted.h"
#include "emulated_devices/check/report/sums.h"
#include "ref/golden/bounds.h"
#include "ref/golden/golden.h"
#include "ref/io/pair.h"
#include "ref/numeric/finite.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *finding_words(enum finding finding)
{
    static const char *const words[] = {
#define X(id, words, fails) words,
        FINDINGS(X)
#undef X
    };
    return words[finding];
}

bool finding_fails(enum finding finding)
{
    static const bool fails[] = {
#define X(id, words, fails) fails,
        FINDINGS(X)
#undef X
    };
    return fails[finding];
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

/* This is the square norm of a microbatch's errors. */
struct micro { bool has; double difference; };

/* Some consecutive elements of the golden tensor, in fp64: those that a run is compared with, and those behind them. */
enum { WINDOW = 1 << 16 };
struct window { double *data; int64_t first, count, room; };

/* These are the sums of a rank, or of the ranks whose parts are added up. */
struct seen { struct sums sums; bool infinite; };

struct comparing {
    const struct golden *golden;
    const struct actual *actual;
    struct tensor instead;              /* F64 numbers in place of the golden file's; tensor_none: there are none */
    struct checked *out;
    enum dtype format;
    struct window truth;
    enum error_code failed;             /* to read the truth */
    struct error *err;
    int64_t dim[2];
    double norm;
    struct seen *seen;                  /* [groups] */
    int groups;
    struct micro *micro;                /* [ACTUAL_MOST_MICROS] */
    int micros;                         /* the highest number, and 1 */
};

/* Move the window, if need be, so that it has these elements.  A window is at least as long as the run.  @return
 * where they begin in it. */
static int64_t checker_look_at(struct comparing *comparing, int64_t at, int64_t length)
{
    struct window *w = &comparing->truth;
    const int64_t left = comparing->dim[0] * comparing->dim[1] - at, wanted = length > WINDOW ? length : WINDOW;
    if (tensor_present(comparing->instead)) {
        *w = (struct window){ .data = comparing->instead.data, .count = tensor_count(comparing->instead) };
        return at;
    }
    if (at >= w->first && at + length <= w->first + w->count) return at - w->first;
    if (wanted > w->room) {
        free(w->data);
        *w = (struct window){ .data = malloc((size_t)wanted * sizeof *w->data), .room = wanted };
        if (w->data == NULL) comparing->failed = fail(comparing->err, ERR_MEMORY, "no memory to compare %s",
                                                      comparing->out->name);
    }
    w->first = at, w->count = left < wanted ? left : wanted;
    if (!comparing->failed) comparing->failed = golden_read_some(comparing->golden, comparing->out->name, at, w->count,
                                                                 w->data, comparing->err);
    return 0;
}

/* Find the sums of a group of ranks.  Groups are numbered as they appear, so the list grows by one.  NULL: no memory,
 * and comparing->failed is set. */
static struct seen *seen_of(struct comparing *comparing, int group)
{
    while (group >= comparing->groups && !comparing->failed) {
        struct seen *more = realloc(comparing->seen, (size_t)(comparing->groups + 1) * sizeof *more);
        if (more) comparing->seen = more, comparing->seen[comparing->groups++] = (struct seen){ 0 };
        else comparing->failed = fail(comparing->err, ERR_MEMORY, "no memory to compare %s", comparing->out->name);
    }
    return comparing->failed ? NULL : &comparing->seen[group];
}

/* assembly_make calls this for each run of each group's numbers, before these are laid into the whole. */
static void see_run(void *context, int group, const struct actual_piece *piece, int64_t at, int64_t length,
                    const double *values)
{
    struct comparing *c = context;
    struct seen *seen = seen_of(c, group);
    const int64_t in_window = c->failed ? 0 : checker_look_at(c, at, length);
    if (c->failed) return;
    const double before = seen->sums.difference;
    const struct tensor truth = tensor_1d(c->truth.data, F64, c->truth.count);
    seen->infinite = seen->infinite || !all_finite(values, length);
    sums_add(&seen->sums, tensor_1d((void *)(uintptr_t)values, F64, length), 0, truth, in_window, length);
    /* sums_error is NaN unless as many elements were compared as were expected. */
    seen->sums.expected += length;
    /* The difference that this run has added belongs to its microbatch. */
    if (piece->micro == ACTUAL_NO_MICRO) return;
    c->micro[piece->micro].has = true;
    c->micro[piece->micro].difference += seen->sums.difference - before;
    if (piece->micro >= c->micros) c->micros = piece->micro + 1;
}

/* A group is complete.  A rank's error is the error norm of its part over the norm of the whole.  Ranks whose parts
 * are added up have the error of the sum. */
static void end_group(void *context, int group, const int rank[], int ranks)
{
    struct comparing *c = context;
    const struct seen *seen = seen_of(c, group);
    if (seen == NULL) return;
    const double error = sums_error(&seen->sums, c->norm);
    /* The negated comparison makes a NaN wrong. */
    const bool wrong = !(error <= c->out->bound);
    c->out->on->rounding = c->out->bound;
    for (int i = 0; i < ranks; i++)
        evidence_add(c->out->on, rank[i], wrong, sums_scale(&seen->sums), seen->sums.truth);
    if (exceeds(error, c->out->error)) c->out->error = error, c->out->rank = rank[0];
    if (wrong && c->out->finding != NOT_FINITE) c->out->finding = DIFFERS;
    if (seen->infinite) c->out->finding = NOT_FINITE;
}

/* ---- what the ranks together have -------------------------------------------------------------------------------- */

/* Elements on no rank are a finding of their own, if nothing else is wrong. */
static void check_complete(struct comparing *comparing, const struct assembly *all)
{
    if (all->missing == 0 || comparing->out->finding != HOLDS) return;
    comparing->out->finding = INCOMPLETE;
    snprintf(comparing->out->why, sizeof comparing->out->why,
             "%lld of its %lld elements are on no rank; the first is row %lld, column %lld", (long long)all->missing,
             (long long)(comparing->dim[0] * comparing->dim[1]), (long long)(all->hole / comparing->dim[1]),
             (long long)(all->hole % comparing->dim[1]));
}

/* Copies of one element differ between ranks.  In 16 bits the bound is as wide as what it bounds.  So copies may be
 * apart by at most twice what rounding does to two numbers. */
static void check_copies(struct comparing *comparing, const struct copies *copies)
{
    char first[96], second[96];
    const double most = dtype_is_narrow(comparing->format)
                            ? 2 * relative_when_stored(0, comparing->norm, comparing->dim[0] * comparing->dim[1],
                                                       comparing->format) : comparing->out->bound;
    if (copies->elements == 0) return;
    /* value[1] is the copy of rank[1], which was laid later; value[0] is the copy before it. */
    const struct pair_text two = pair_text('g', 6, copies->value[1], copies->value[0]);
    snprintf(comparing->out->copies, sizeof comparing->out->copies,
             "%s has %s in row %lld, column %lld, but %s has %s; "
             "%lld copies are not the same",
             assembly_rank(comparing->actual, copies->rank[1], second, sizeof second), two.first,
             (long long)(copies->worst / comparing->dim[1]), (long long)(copies->worst % comparing->dim[1]),
             assembly_rank(comparing->actual, copies->rank[0], first, sizeof first), two.second,
             (long long)copies->elements);
    /* The distance is relative to the golden tensor's norm, as errors are. */
    comparing->out->distance = sqrt(copies->apart) / comparing->norm;
    comparing->out->apart = !(sqrt(copies->apart) <= fmin(most, comparing->out->bound) * comparing->norm);
    /* A tensor that is wrong already keeps its finding; copies then are only mentioned. */
    if (comparing->out->finding != HOLDS || !comparing->out->apart) return;
    comparing->out->finding = COPIES;
    memcpy(comparing->out->why, comparing->out->copies, sizeof comparing->out->copies);
}

/* A microbatch is wrong if its own errors alone exceed the tensor's bound. */
static bool micro_is_wrong(const struct comparing *comparing, int k)
{
    return comparing->micro[k].has
           && !(sqrt(comparing->micro[k].difference) <= comparing->out->bound * comparing->norm);
}

/* Write "wrong in microbatch 2; right in 0, 1, 3".  Nothing is written if all microbatches are alike. */
static void describe_micros(struct comparing *comparing)
{
    int right = 0, wrong = 0;
    for (int k = 0; k < comparing->micros; k++)
        micro_is_wrong(comparing, k) ? wrong++ : (right += comparing->micro[k].has);
    if (right == 0 || wrong == 0) return;
    char *out = comparing->out->micros;
    size_t used = 0;
    const size_t size = sizeof comparing->out->micros;
    /* Pass 0 lists the wrong microbatches, pass 1 the right ones; a list that is too long ends with "...". */
    for (int pass = 0; pass < 2; pass++) {
        used += (size_t)snprintf(out + used, size - used, "%s", pass ? "; right in" : "wrong in microbatch");
        const char *before = " ";
        for (int k = 0; k < comparing->micros && used + 16 < size; k++) {
            if (!comparing->micro[k].has || micro_is_wrong(comparing, k) != (pass == 0)) continue;
            used += (size_t)snprintf(out + used, size - used, used + 32 < size ? "%s%d" : ", ...", before, k);
            before = ", ";
        }
    }
}

/* golden_each calls this with some numbers at a time. */
static void checker_add_squares(void *context, const double *values, int64_t count)
{
    double *const all = context, sum = *all;
    for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
    *all = sum;
}

/* A golden tensor's last dimension is its columns; a vector has one column. */
static void dims_of_entry(const struct safetensors_entry *entry, int64_t dim[2])
{
    dim[1] = entry->ndim > 1 ? entry->dim[entry->ndim - 1] : 1;
    dim[0] = dim[1] > 0 ? entry->count / dim[1] : 0;
}

/* Set the tensor's sizes and its norm, and make room for what is seen of ranks and microbatches. */
static enum error_code measure_truth(struct comparing *comparing, struct error *err)
{
    const struct safetensors_entry *entry = safetensors_find(&comparing->golden->file, comparing->out->name);
    const struct tensor *const instead = &comparing->instead;
    const int64_t count = tensor_present(*instead) ? tensor_count(*instead) : entry->count;
    if (tensor_present(*instead)) {
        comparing->dim[1] = instead->ndim > 1 ? tensor_cols(*instead) : 1;
        comparing->dim[0] = comparing->dim[1] > 0 ? count / comparing->dim[1] : 0;
    } else dims_of_entry(entry, comparing->dim);
    comparing->micro = calloc(ACTUAL_MOST_MICROS, sizeof *comparing->micro);
    comparing->out->on = calloc(1, sizeof *comparing->out->on);
    if (comparing->micro == NULL || comparing->out->on == NULL)
        return fail(err, ERR_MEMORY, "no memory to compare %s", comparing->out->name);
    double sum = 0;
    enum error_code e = OK;
    if (tensor_present(comparing->instead))
        checker_add_squares(&sum, comparing->instead.data, tensor_count(comparing->instead));
    else e = golden_each(comparing->golden, comparing->out->name, checker_add_squares, &sum, err);
    comparing->norm = sqrt(sum);
    comparing->out->on->number = count == 1;
    return e;
}

/* The shape is the program's mistake, so the text of the error becomes the finding's reason. */
static enum error_code take_misfit(struct checked *out, const struct error *err)
{
    out->finding = MISSHAPED;
    snprintf(out->why, sizeof out->why, "%.299s", err->text);
    return OK;
}

/* Compare all pieces.  ERR_CHECK of the assembly means that pieces do not fit: this becomes a finding, and the
 * check goes on. */
static enum error_code compare_all(struct comparing *comparing, struct error *err)
{
    const struct assembly_watch watch = { .see = see_run, .end = end_group, .context = comparing };
    struct assembly all;
    const enum error_code made = assembly_make(&all, comparing->actual, comparing->out->name, comparing->dim, NULL,
                                               &watch, err),
                          e = comparing->failed ? comparing->failed : made;
    if (e == ERR_CHECK) return take_misfit(comparing->out, err);
    if (e) return e;
    check_complete(comparing, &all);
    check_copies(comparing, &all.copies);
    describe_micros(comparing);
    return OK;
}

enum error_code checker_fit(const struct golden *golden, const struct actual *actual, const char *first,
                            struct checked *checked, struct error *err)
{
    const enum finding before = checked->finding;
    struct comparing c = { .out = checked };
    struct assembly all;
    dims_of_entry(safetensors_find(&golden->file, first), c.dim);
    const enum error_code e = assembly_make(&all, actual, checked->name, c.dim, NULL, NULL, err);
    if (e == ERR_CHECK) return take_misfit(checked, err);
    /* check_complete speaks only where nothing else is wrong. */
    checked->finding = HOLDS;
    if (!e) check_complete(&c, &all);
    if (checked->finding == HOLDS) checked->finding = before;
    return e;
}

/* This stands for a bound: what is not computed may only have been rounded, in any direction. */
static const double OF_STORING = -1;

/* Compare one tensor and set its finding.  `on` is kept only for a tensor that fails, because it is large. */
static enum error_code check_tensor(const struct golden *golden, const struct actual *actual, struct tensor instead,
                                    struct checked *out, enum dtype format, struct error *err)
{
    struct comparing c = { .golden = golden, .actual = actual, .instead = instead, .out = out, .format = format,
                           .err = err };
    if (!actual_has(actual, out->name)) {
        out->finding = MISSING;
        return OK;
    }
    enum error_code e = measure_truth(&c, err);
    /* A weight that is only stored has a bound that follows from its own norm. */
    if (out->bound == OF_STORING) out->bound = relative_or_absolute(0, c.norm, c.dim[0] * c.dim[1], format);
    if (!e) e = compare_all(&c, err);
    /* A bound that is too wide decides nothing. */
    if (out->finding == HOLDS && !bound_decides(out->bound)) out->finding = OPEN;
    if (!e) actual_seen(actual, out->name, c.dim[0] * c.dim[1]);
    out->compared = out->on != NULL;
    if (!finding_fails(out->finding)) free(out->on), out->on = NULL;    /* it is large, and there are many tensors */
    if (!tensor_present(instead)) free(c.truth.data);
    free(c.seen), free(c.micro);
    return e;
}

enum error_code checker_compare(const struct golden *golden, const struct actual *actual, struct tensor truth,
                                struct checked *checked, enum dtype format, struct error *err)
{
    free(checked->on);
    *checked = (struct checked){ .name = checked->name, .bound = checked->bound };
    return check_tensor(golden, actual, truth, checked, format, err);
}

/* ---- mixtures in 16 bits ----------------------------------------------------------------------------------------- */

/* Tensors cannot be judged from the first router with another choice to the end of the pass.  Later tensors are the
 * optimizers'; their bounds allow for this.  The result may have some of the list's tensors only. */
static enum error_code forgive_elsewhere(const struct golden *golden, const struct actual *actual,
                                         struct check_result *result, struct error *err)
{
    bool same = true;
    int layer = 0, at = 0;
    enum error_code e = OK;
    for (int i = 0; i < result->list.count && !e; i++) {
        const char *const name = result->list.all[i].name;
        const bool pass = strncmp(name, "act/", 4) == 0 || strncmp(name, "grad/", 5) == 0 || strchr(name, '/') == NULL;
        while (at < result->count && strncmp(result->all[at].name, "start/", 6) == 0) at++;
        /* From the first difference on, findings of the pass are set aside. */
        struct checked *const c = at < result->count && result->all[at].name == name ? &result->all[at++] : NULL;
        if (!same && pass && c && (c->finding == HOLDS || c->finding == DIFFERS)) c->finding = ELSEWHERE;
        if (same && strncmp(name, "act/", 4) == 0 && name_ends(name, ".router.logits"))
            e = sscanf(name, "act/h.%d.", &layer) == 1 ? checker_same_route(golden, actual, layer, &same, err) : OK;
    }
    return e;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

double checked_ratio(const struct checked *checked) { return checked->error == 0 || isinf(checked->bound) ? 0
                                                     : checked->error / checked->bound; }

/* The list is walked backwards, so `first` ends at the first tensor that fails.  A tensor that was not compared has no
 * error, and one set aside says nothing. */
void check_result_count(struct check_result *result)
{
    memset(result->found, 0, sizeof result->found);
    result->first = result->worst = -1;
    for (int i = result->count - 1; i >= 0; i--) {
        const struct checked *c = &result->all[i];
        result->found[c->finding]++;
        if (finding_fails(c->finding)) result->first = i;
        if (!c->compared || c->finding == ELSEWHERE) continue;
        if (result->worst < 0 || !exceeds(checked_ratio(&result->all[result->worst]), checked_ratio(c)))
            result->worst = i;
    }
}

/* Count the findings and find the worst error over bound.  ERR_CHECK: no golden name is in ACTUAL. */
static enum error_code summarize(struct check_result *result, const struct actual *actual, struct error *err)
{
    check_result_count(result);
    if (result->worst >= 0 || result->found[ALONE] > 0) return OK;
    return fail(err, ERR_CHECK,
                "nothing to compare: none of the golden tensors' names is in ACTUAL, which has %s%s; --map can say "
                "what they are called there",
                actual->file[0].st.count ? "such as " : "none",
                actual->file[0].st.count ? printable(actual->file[0].st.entry[0].name).text : "");
}

/* The end of the group of tensors whose names differ only after their last slash. */
static int end_of_group(const struct golden_list *list, int first)
{
    const char *name = list->all[first].name, *last = strrchr(name, '/');
    const size_t n = last ? (size_t)(last - name) + 1 : strlen(name) + 1;
    int end = first + 1;
    while (end < list->count && strncmp(list->all[end].name, name, n) == 0
           && strchr(list->all[end].name + n, '/') == NULL)
        end++;
    return end;
}

/* Whether a tensor is a state of this weight's step: "adamw/2/exp_avg/NAME" is one of "adamw/2/weight/NAME". */
static bool is_state_of(const char *name, const char *weight)
{
    const char *is = strstr(weight, "/weight/"), *last = strrchr(name, '/');
    const size_t n = is ? (size_t)(is - weight) + 1 : 0;
    return is && last && (size_t)(last - name) > n && strncmp(name, weight, n) == 0 &&
           (size_t)(last - name) == n + strcspn(name + n, "/") && strncmp(name + n, "grad/", 5) != 0;
}

/* Move each step's weights behind its states, in place.  A step makes the states first, and the weights from them. */
static enum error_code put_states_first(struct golden_list *list, struct error *err)
{
    struct golden_tensor *weights = calloc((size_t)list->count + 1, sizeof *weights);
    if (weights == NULL) return fail(err, ERR_MEMORY, "no memory for %d tensors", list->count);
    for (int first = 0, end; first < list->count; first = end) {
        end = end_of_group(list, first);
        if (strstr(list->all[first].name, "/weight/") == NULL) continue;
        const int n = end - first;
        /* The weights are kept aside, the states move up, and the weights follow. */
        memcpy(weights, &list->all[first], (size_t)n * sizeof *weights);
        while (end < list->count && is_state_of(list->all[end].name, weights->name)) end++;
        memmove(&list->all[first], &list->all[first + n], (size_t)(end - first - n) * sizeof *weights);
        memcpy(&list->all[end - n], weights, (size_t)n * sizeof *weights);
    }
    free(weights);
    return OK;
}

/* The weights that ACTUAL begins with are what all is recomputed from.  Weights that are not the golden file's are
 * wrong. */
static enum error_code check_starts(const struct golden *golden, const struct actual *actual, enum dtype format,
                                    struct check_result *result, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < golden->file.count && !e; i++) {
        const char *name = golden->file.entry[i].name;
        struct checked one = { .name = name, .bound = OF_STORING };
        /* Only weights that ACTUAL has are compared here. */
        if (strncmp(name, "start/", 6) != 0 || !actual_has(actual, name)) continue;
        bool adapted;
        e = adapted_start(golden, actual, &one, &adapted, format, err);
        if (!e && !adapted) e = check_tensor(golden, actual, tensor_none, &one, format, err);
        if (finding_fails(one.finding)) result->all[result->count++] = one;
    }
    return e;
}

/* The list has room for all golden tensors and all starting weights. */
enum error_code check_files_begin(const struct golden *golden, const struct actual *actual, enum dtype format,
                                  struct check_result *result, struct error *err)
{
    *result = (struct check_result){ .first = -1, .worst = -1 };
    enum error_code e = checker_check_begins(golden, actual, err);
    if (!e) e = adapted_check(golden, actual, err);
    if (!e) e = golden_measure(golden, format, 1, 1, &result->list, err);
    if (e) return e;
    e = checker_check_declared(golden, actual, &result->list, err);
    if (!e) e = put_states_first(&result->list, err);
    const size_t most = (size_t)(result->list.count * adapted_most(actual));
    result->all = e ? NULL : calloc(most + (size_t)golden->file.count + 1, sizeof *result->all);
    result->adapted = e ? NULL : calloc(most + 1, sizeof *result->adapted);
    if (!e && (result->all == NULL || result->adapted == NULL))
        e = fail(err, ERR_MEMORY, "no memory for %d tensors", result->list.count);
    if (!e) e = check_starts(golden, actual, format, result, err);
    if (!e) e = adapted_frozen(golden, actual, result, format, err);
    if (!e) check_result_count(result);
    else check_result_free(result);
    return e;
}

/* The order of the calls matters: findings of kinds that are left out change before all is counted. */
enum error_code check_files_some(const struct golden *golden, const struct actual *actual, enum dtype format,
                                 const struct check_wanted *wanted, struct check_result *result, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < result->list.count && !e; i++) {
        const struct golden_tensor *const t = &result->list.all[i];
        if (checker_is_before(golden, actual, t->name) || (wanted && !wanted->is(wanted->context, t->name))) continue;
        const struct checked of = { .name = t->name, .bound = t->bound };
        bool adapted;
        e = adapted_take(golden, actual, &of, &adapted, result, format, err);
        if (e || adapted) continue;
        result->all[result->count] = of;
        e = check_tensor(golden, actual, tensor_none, &result->all[result->count++], format, err);
    }
    if (!e && dtype_wide(format) != format) e = forgive_elsewhere(golden, actual, result, err);
    if (!e) checker_forgive_left_out(golden, actual, result);
    if (!e) check_result_count(result);
    else check_result_free(result);
    return e;
}

/* Tensors with other names than golden ones come last. */
enum error_code check_files(const struct golden *golden, const struct actual *actual, enum dtype format,
                            struct check_result *result, struct error *err)
{
    enum error_code e = check_files_begin(golden, actual, format, result, err);
    return e ? e : check_files_rest(golden, actual, format, result, err);
}

enum error_code check_files_rest(const struct golden *golden, const struct actual *actual, enum dtype format,
                                 struct check_result *result, struct error *err)
{
    enum error_code e = check_files_some(golden, actual, format, NULL, result, err);
    if (e) return e;
    e = checker_list_later(golden, actual, result, err);
    if (!e) e = checker_list_extras(golden, actual, result, err);
    if (!e) e = summarize(result, actual, err);
    if (e) check_result_free(result);
    return e;
}

void check_result_free(struct check_result *result)
{
    for (int i = 0; i < result->count; i++) free(result->all[i].on);
    free(result->all), free(result->extra), free(result->later), free(result->adapted);
    golden_list_free(&result->list);
    *result = (struct check_result){ 0 };
}
