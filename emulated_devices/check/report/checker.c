#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/report/sums.h"
#include "ref/io/pair.h"
#include "ref/numeric/finite.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *finding_words(enum finding f)
{
    static const char *const words[] = {
#define X(id, words, fails) words,
        FINDINGS(X)
#undef X
    };
    return words[f];
}

bool finding_fails(enum finding f)
{
    static const bool fails[] = {
#define X(id, words, fails) fails,
        FINDINGS(X)
#undef X
    };
    return fails[f];
}

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

/* The square norm of a microbatch's errors. */
struct micro { bool has; double difference; };

/* Some consecutive elements of the golden tensor, in fp64: those that a run is compared with, and those behind them. */
enum { WINDOW = 1 << 16 };
struct window { double *data; int64_t first, count, room; };

/* What has been seen of a rank, or of the ranks whose parts are added up. */
struct seen { struct sums sums; bool infinite; };

struct comparing {
    const struct golden *golden;
    const struct actual *actual;
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

/* Move the window, if need be, so that it has these elements.  @return where they begin in it. */
static int64_t look_at(struct comparing *c, int64_t at, int64_t length)
{
    struct window *w = &c->truth;
    const int64_t left = c->dim[0] * c->dim[1] - at, wanted = length > WINDOW ? length : WINDOW;
    if (at >= w->first && at + length <= w->first + w->count) return at - w->first;
    if (wanted > w->room) {
        free(w->data);
        *w = (struct window){ .data = malloc((size_t)wanted * sizeof *w->data), .room = wanted };
        if (w->data == NULL) c->failed = fail(c->err, ERR_MEMORY, "no memory to compare %s", c->out->name);
    }
    w->first = at, w->count = left < wanted ? left : wanted;
    if (!c->failed) c->failed = golden_read_some(c->golden, c->out->name, at, w->count, w->data, c->err);
    return 0;
}

static struct seen *seen_of(struct comparing *c, int group)
{
    while (group >= c->groups && !c->failed) {
        struct seen *more = realloc(c->seen, (size_t)(c->groups + 1) * sizeof *more);
        if (more) c->seen = more, c->seen[c->groups++] = (struct seen){ 0 };
        else c->failed = fail(c->err, ERR_MEMORY, "no memory to compare %s", c->out->name);
    }
    return c->failed ? NULL : &c->seen[group];
}

static void see_run(void *context, int group, const struct actual_piece *p, int64_t at, int64_t length,
                    const double *values)
{
    struct comparing *c = context;
    struct seen *seen = seen_of(c, group);
    const int64_t in_window = c->failed ? 0 : look_at(c, at, length);
    if (c->failed) return;
    const double before = seen->sums.difference;
    const struct tensor truth = tensor_1d(c->truth.data, F64, c->truth.count);
    seen->infinite = seen->infinite || !all_finite(values, length);
    sums_add(&seen->sums, tensor_1d((void *)(uintptr_t)values, F64, length), 0, truth, in_window, length);
    seen->sums.expected += length;
    if (p->micro == ACTUAL_NO_MICRO) return;
    c->micro[p->micro].has = true;
    c->micro[p->micro].difference += seen->sums.difference - before;
    if (p->micro >= c->micros) c->micros = p->micro + 1;
}

/* A rank's error is the error norm of its part over the norm of the whole.  Ranks whose parts are added up have the
 * error of the sum. */
static void end_group(void *context, int group, const int rank[], int ranks)
{
    struct comparing *c = context;
    const struct seen *seen = seen_of(c, group);
    if (seen == NULL) return;
    const double error = sums_error(&seen->sums, c->norm);
    const bool wrong = !(error <= c->out->bound);
    c->out->on->rounding = c->out->bound;
    for (int i = 0; i < ranks; i++)
        evidence_add(c->out->on, rank[i], wrong, sums_scale(&seen->sums), seen->sums.truth);
    if (exceeds(error, c->out->error)) c->out->error = error, c->out->rank = rank[0];
    if (wrong && c->out->finding != NOT_FINITE) c->out->finding = DIFFERS;
    if (seen->infinite) c->out->finding = NOT_FINITE;
}

/* ---- what the ranks together have -------------------------------------------------------------------------------- */

static void check_complete(struct comparing *c, const struct assembly *all)
{
    if (all->missing == 0 || c->out->finding != HOLDS) return;
    c->out->finding = INCOMPLETE;
    snprintf(c->out->why, sizeof c->out->why,
             "%lld of its %lld elements are on no rank; the first is row %lld, column %lld", (long long)all->missing,
             (long long)(c->dim[0] * c->dim[1]), (long long)(all->hole / c->dim[1]),
             (long long)(all->hole % c->dim[1]));
}

/* In 16 bits bounds are as wide as what they bound, so that copies may not be as far apart: twice what two numbers are
 * that rounding has parted. */
static void check_copies(struct comparing *c, const struct copies *copies)
{
    char first[96], second[96];
    const double most = dtype_is_narrow(c->format)
                            ? 2 * relative_when_stored(0, c->norm, c->dim[0] * c->dim[1], c->format) : c->out->bound;
    if (copies->elements == 0) return;
    const struct pair_text two = pair_text('g', 6, copies->value[1], copies->value[0]);
    snprintf(c->out->copies, sizeof c->out->copies, "%s has %s in row %lld, column %lld, but %s has %s; "
             "%lld copies are not the same",
             assembly_rank(c->actual, copies->rank[1], second, sizeof second), two.first,
             (long long)(copies->worst / c->dim[1]), (long long)(copies->worst % c->dim[1]),
             assembly_rank(c->actual, copies->rank[0], first, sizeof first), two.second,
             (long long)copies->elements);
    c->out->distance = sqrt(copies->apart) / c->norm;
    c->out->apart = !(sqrt(copies->apart) <= fmin(most, c->out->bound) * c->norm);
    if (c->out->finding != HOLDS || !c->out->apart) return;
    c->out->finding = COPIES;
    memcpy(c->out->why, c->out->copies, sizeof c->out->copies);
}

static bool micro_is_wrong(const struct comparing *c, int k)
{
    return c->micro[k].has && !(sqrt(c->micro[k].difference) <= c->out->bound * c->norm);
}

/* "wrong in microbatch 2; right in 0, 1, 3". */
static void describe_micros(struct comparing *c)
{
    int right = 0, wrong = 0;
    for (int k = 0; k < c->micros; k++) micro_is_wrong(c, k) ? wrong++ : (right += c->micro[k].has);
    if (right == 0 || wrong == 0) return;
    char *out = c->out->micros;
    size_t used = 0;
    const size_t size = sizeof c->out->micros;
    for (int pass = 0; pass < 2; pass++) {
        used += (size_t)snprintf(out + used, size - used, "%s", pass ? "; right in" : "wrong in microbatch");
        const char *before = " ";
        for (int k = 0; k < c->micros && used + 16 < size; k++) {
            if (!c->micro[k].has || micro_is_wrong(c, k) != (pass == 0)) continue;
            used += (size_t)snprintf(out + used, size - used, used + 32 < size ? "%s%d" : ", ...", before, k);
            before = ", ";
        }
    }
}

static void add_squares(void *context, const double *values, int64_t count)
{
    double *const all = context, sum = *all;
    for (int64_t i = 0; i < count; i++) sum += values[i] * values[i];
    *all = sum;
}

/* Its sizes and its norm. */
static enum error_code measure_truth(struct comparing *c, struct error *err)
{
    const struct safetensors_entry *entry = safetensors_find(&c->golden->file, c->out->name);
    c->dim[1] = entry->ndim > 1 ? entry->dim[entry->ndim - 1] : 1;
    c->dim[0] = c->dim[1] > 0 ? entry->count / c->dim[1] : 0;
    c->micro = calloc(ACTUAL_MOST_MICROS, sizeof *c->micro);
    c->out->on = calloc(1, sizeof *c->out->on);
    if (c->micro == NULL || c->out->on == NULL)
        return fail(err, ERR_MEMORY, "no memory to compare %s", c->out->name);
    double sum = 0;
    const enum error_code e = golden_each(c->golden, c->out->name, add_squares, &sum, err);
    c->norm = sqrt(sum);
    c->out->on->number = entry->count == 1;
    return e;
}

static enum error_code compare_all(struct comparing *c, struct error *err)
{
    const struct assembly_watch watch = { .see = see_run, .end = end_group, .context = c };
    struct assembly all;
    const enum error_code made = assembly_make(&all, c->actual, c->out->name, c->dim, NULL, &watch, err),
                          e = c->failed ? c->failed : made;
    if (e == ERR_CHECK) {
        c->out->finding = MISSHAPED;
        snprintf(c->out->why, sizeof c->out->why, "%.299s", err->text);
        return OK;
    }
    if (e) return e;
    check_complete(c, &all);
    check_copies(c, &all.copies);
    describe_micros(c);
    return OK;
}

/* This stands for a bound: what is not computed may only have been rounded, in any direction. */
static const double OF_STORING = -1;

static enum error_code check_tensor(const struct golden *g, const struct actual *a, struct checked *out,
                                    enum dtype format, struct error *err)
{
    struct comparing c = { .golden = g, .actual = a, .out = out, .format = format, .err = err };
    if (!actual_has(a, out->name)) {
        out->finding = MISSING;
        return OK;
    }
    enum error_code e = measure_truth(&c, err);
    if (out->bound == OF_STORING) out->bound = relative_or_absolute(0, c.norm, c.dim[0] * c.dim[1], format);
    if (!e) e = compare_all(&c, err);
    if (out->finding == HOLDS && !bound_decides(out->bound)) out->finding = OPEN;
    if (!e) actual_seen(a, out->name, c.dim[0] * c.dim[1]);
    out->compared = out->on != NULL;
    if (!finding_fails(out->finding)) free(out->on), out->on = NULL;    /* it is large, and there are many tensors */
    free(c.truth.data), free(c.seen), free(c.micro);
    return e;
}

/* ---- mixtures in 16 bits ----------------------------------------------------------------------------------------- */

static bool ends(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

/* From the first router with a different choice to the end of the pass, tensors cannot be judged.  Later tensors are
 * the optimizers'; their bounds allow for it. */
static enum error_code forgive_elsewhere(const struct golden *g, const struct actual *a, struct check_result *r,
                                         struct error *err)
{
    bool same = true;
    int layer = 0;
    enum error_code e = OK;
    for (int i = 0; i < r->count && !e; i++) {
        struct checked *c = &r->all[i];
        const bool pass =
            strncmp(c->name, "act/", 4) == 0 || strncmp(c->name, "grad/", 5) == 0 || strchr(c->name, '/') == NULL;
        if (!same && pass && (c->finding == HOLDS || c->finding == DIFFERS)) c->finding = ELSEWHERE;
        if (same && strncmp(c->name, "act/", 4) == 0 && ends(c->name, ".router.logits"))
            e = checker_same_route(g, a, layer++, &same, err);
    }
    return e;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

double checked_ratio(const struct checked *c) { return c->error == 0 || isinf(c->bound) ? 0 : c->error / c->bound; }

void check_result_count(struct check_result *r)
{
    memset(r->found, 0, sizeof r->found);
    r->first = -1;
    for (int i = r->count - 1; i >= 0; i--) {
        r->found[r->all[i].finding]++;
        if (finding_fails(r->all[i].finding)) r->first = i;
    }
}

static enum error_code summarize(struct check_result *r, const struct actual *a, struct error *err)
{
    int compared = 0;
    check_result_count(r);
    r->worst = -1;
    for (int i = 0; i < r->count; i++) {
        const struct checked *c = &r->all[i];
        if (!c->compared || c->finding == ELSEWHERE) continue;
        compared++;
        if (r->worst < 0 || exceeds(checked_ratio(c), checked_ratio(&r->all[r->worst]))) r->worst = i;
    }
    if (compared > 0) return OK;
    return fail(err, ERR_CHECK,
                "nothing to compare: none of the golden tensors' names is in ACTUAL, which has %s%s; --map can say "
                "what they are called there",
                a->file[0].st.count ? "such as " : "none",
                a->file[0].st.count ? printable(a->file[0].st.entry[0].name).text : "");
}

/* Where tensors after a name end that differ from it only after its last slash. */
static int end_of_group(const struct golden_list *l, int first)
{
    const char *name = l->all[first].name, *last = strrchr(name, '/');
    const size_t n = last ? (size_t)(last - name) + 1 : strlen(name) + 1;
    int end = first + 1;
    while (end < l->count && strncmp(l->all[end].name, name, n) == 0 && strchr(l->all[end].name + n, '/') == NULL)
        end++;
    return end;
}

/* "adamw/2/exp_avg/NAME" is a state of "adamw/2/weight/NAME". */
static bool is_state_of(const char *name, const char *weight)
{
    const char *is = strstr(weight, "/weight/"), *last = strrchr(name, '/');
    const size_t n = is ? (size_t)(is - weight) + 1 : 0;
    return is && last && (size_t)(last - name) > n && strncmp(name, weight, n) == 0 &&
           (size_t)(last - name) == n + strcspn(name + n, "/") && strncmp(name + n, "grad/", 5) != 0;
}

/* A step makes the states first, and the weights from them. */
static enum error_code put_states_first(struct golden_list *l, struct error *err)
{
    struct golden_tensor *weights = calloc((size_t)l->count + 1, sizeof *weights);
    if (weights == NULL) return fail(err, ERR_MEMORY, "no memory for %d tensors", l->count);
    for (int first = 0, end; first < l->count; first = end) {
        end = end_of_group(l, first);
        if (strstr(l->all[first].name, "/weight/") == NULL) continue;
        const int n = end - first;
        memcpy(weights, &l->all[first], (size_t)n * sizeof *weights);
        while (end < l->count && is_state_of(l->all[end].name, weights->name)) end++;
        memmove(&l->all[first], &l->all[first + n], (size_t)(end - first - n) * sizeof *weights);
        memcpy(&l->all[end - n], weights, (size_t)n * sizeof *weights);
    }
    free(weights);
    return OK;
}

/* The weights that ACTUAL begins with are what all is recomputed from.  Those that are not the golden file's are
 * wrong. */
static enum error_code check_starts(const struct golden *g, const struct actual *a, enum dtype format,
                                    struct check_result *r, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < g->file.count && !e; i++) {
        const char *name = g->file.entry[i].name;
        struct checked one = { .name = name, .bound = OF_STORING };
        if (strncmp(name, "start/", 6) != 0 || !actual_has(a, name)) continue;
        e = check_tensor(g, a, &one, format, err);
        if (finding_fails(one.finding)) r->all[r->count++] = one;
    }
    return e;
}

enum error_code check_files(const struct golden *g, const struct actual *a, enum dtype format, struct check_result *r,
                            struct error *err)
{
    *r = (struct check_result){ 0 };
    enum error_code e = golden_measure(g, format, 1, 1, &r->list, err);
    if (e) return e;
    e = put_states_first(&r->list, err);
    r->all = e ? NULL : calloc((size_t)r->list.count + (size_t)g->file.count + 1, sizeof *r->all);
    if (!e && r->all == NULL) e = fail(err, ERR_MEMORY, "no memory for %d tensors", r->list.count);
    if (!e) e = check_starts(g, a, format, r, err);
    for (int i = 0; i < r->list.count && !e; i++) {
        r->all[r->count] = (struct checked){ .name = r->list.all[i].name, .bound = r->list.all[i].bound };
        e = check_tensor(g, a, &r->all[r->count++], format, err);
    }
    if (!e && dtype_wide(format) != format) e = forgive_elsewhere(g, a, r, err);
    if (!e) checker_forgive_left_out(r);
    if (!e) e = checker_list_extras(g, a, r, err);
    if (!e) e = summarize(r, a, err);
    if (e) check_result_free(r);
    return e;
}

void check_result_free(struct check_result *r)
{
    for (int i = 0; i < r->count; i++) free(r->all[i].on);
    free(r->all), free(r->extra);
    golden_list_free(&r->list);
    *r = (struct check_result){ 0 };
}
