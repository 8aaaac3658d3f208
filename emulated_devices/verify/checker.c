#include "emulated_devices/verify/checker.h"
#include "emulated_devices/verify/sums.h"
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

struct comparing {
    const struct golden *golden;
    const struct actual *actual;
    struct checked *out;
    struct tensor truth;                /* F64 */
    int64_t dim[2];
    double norm;
    unsigned char *seen;                /* [elements] whether some rank has it */
    struct tensor part;                 /* F64: the current part */
    struct sums sums;
    bool finite;
};

static void add_run(void *context, struct run r)
{
    struct comparing *c = context;
    for (int64_t i = 0; i < r.length; i++) {
        c->finite = c->finite && isfinite(tensor_get(c->part, r.piece + i));
        c->seen[r.whole + i] = 1;
    }
    sums_add(&c->sums, c->part, r.piece, c->truth, r.whole, r.length);
}

/* A rank's error is the error norm of its part over the norm of the whole. */
static enum error_code compare_rank(struct comparing *c, const char *theirs, int rank, struct error *err)
{
    struct actual_piece p;
    enum error_code e = actual_read(c->actual, c->out->name, theirs, rank, c->dim, &p, err);
    if (e == ERR_CHECK) {
        c->out->finding = MISSHAPED;
        c->out->rank = rank;
        snprintf(c->out->why, sizeof c->out->why, "%.299s", err->text);
        return OK;
    }
    if (e) return e;
    c->sums = (struct sums){ 0 };
    c->finite = true;
    double *data = p.data;
    for (int i = 0; i < p.parts; i++) {
        const int64_t count = part_count(&p.part[i]);
        c->part = tensor_1d(data, F64, count);
        part_each_run(&p.part[i], add_run, c);
        c->sums.expected += count;
        data += count;
    }
    actual_piece_free(&p);
    const double error = sums_error(&c->sums, c->norm);
    const bool wrong = !(error <= c->out->bound);
    c->out->on->rounding = c->out->bound;
    evidence_add(c->out->on, rank, wrong, sums_scale(&c->sums), c->sums.truth);
    if (exceeds(error, c->out->error)) c->out->error = error, c->out->rank = rank;
    if (wrong && c->out->finding != NOT_FINITE) c->out->finding = DIFFERS;
    if (!c->finite) c->out->finding = NOT_FINITE;
    return OK;
}

static void check_complete(struct comparing *c)
{
    int64_t have = 0;
    const int64_t n = c->dim[0] * c->dim[1];
    for (int64_t i = 0; i < n; i++) have += c->seen[i];
    if (have == n || c->out->finding != HOLDS) return;
    c->out->finding = INCOMPLETE;
    snprintf(c->out->why, sizeof c->out->why, "%lld of its %lld elements are on no rank", (long long)(n - have),
             (long long)n);
}

static bool any_rank_has(const struct actual *a, const char *theirs)
{
    for (int r = 0; r < a->ranks; r++)
        if (safetensors_find(&a->file[r], theirs)) return true;
    return false;
}

static enum error_code read_truth(struct comparing *c, struct error *err)
{
    const struct safetensors_entry *entry = safetensors_find(&c->golden->file, c->out->name);
    c->dim[1] = entry->ndim > 1 ? entry->dim[entry->ndim - 1] : 1;
    c->dim[0] = c->dim[1] > 0 ? entry->count / c->dim[1] : 0;
    c->truth = tensor_1d(malloc((size_t)(entry->count + 1) * sizeof(double)), F64, entry->count);
    c->seen = calloc((size_t)entry->count + 1, 1);
    c->out->on = calloc(1, sizeof *c->out->on);
    if (c->truth.data == NULL || c->seen == NULL || c->out->on == NULL)
        return fail(err, ERR_MEMORY, "no memory to compare %s", c->out->name);
    enum error_code e = golden_read(c->golden, c->out->name, F64, entry->count, c->truth.data, err);
    double sum = 0;
    for (int64_t i = 0; i < entry->count && !e; i++) sum += tensor_get(c->truth, i) * tensor_get(c->truth, i);
    c->norm = sqrt(sum);
    c->out->on->number = entry->count == 1;
    return e;
}

static enum error_code check_tensor(const struct golden *g, const struct actual *a, struct checked *out,
                                    struct error *err)
{
    struct comparing c = { .golden = g, .actual = a, .out = out };
    char theirs[256];
    actual_name(a, out->name, theirs, sizeof theirs);
    if (!any_rank_has(a, theirs)) {
        out->finding = MISSING;
        return OK;
    }
    enum error_code e = read_truth(&c, err);
    for (int r = 0; r < a->ranks && !e && out->finding != MISSHAPED; r++)
        if (safetensors_find(&a->file[r], theirs)) e = compare_rank(&c, theirs, r, err);
    if (!e) check_complete(&c);
    if (out->finding == HOLDS && !bound_decides(out->bound)) out->finding = OPEN;
    free(c.truth.data), free(c.seen);
    return e;
}

/* ---- missing tensors --------------------------------------------------------------------------------------------- */

static bool ends(const char *name, const char *with)
{
    const size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

/* A program that dumps one tensor of a kind must dump all of them.  Kinds: "act", "grad" of activations, "grad" of
 * weights, "adamw/weight", ... */
static bool same_kind(const char *a, const char *b)
{
    const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');
    const size_t n = slash_a ? (size_t)(slash_a - a) : 0, m = slash_b ? (size_t)(slash_b - b) : 0;
    const bool weight_a = ends(a, ".weight") || ends(a, ".bias"), weight_b = ends(b, ".weight") || ends(b, ".bias");
    if (n == 0 || m == 0) return strcmp(a, b) == 0;
    return n == m && strncmp(a, b, n) == 0 && weight_a == weight_b;
}

static void forgive_left_out(struct check_result *r)
{
    for (int i = 0; i < r->count; i++) {
        bool given = false;
        if (r->all[i].finding != MISSING) continue;
        for (int j = 0; j < r->count && !given; j++)
            given = r->all[j].finding != MISSING && r->all[j].finding != LEFT_OUT &&
                    same_kind(r->all[i].name, r->all[j].name);
        if (!given) r->all[i].finding = LEFT_OUT;
    }
}

static bool is_expected(const struct golden *g, const struct actual *a, const struct check_result *r,
                        const char *theirs)
{
    char name[256];
    for (int i = 0; i < r->count; i++)
        if (strcmp(actual_name(a, r->all[i].name, name, sizeof name), theirs) == 0) return true;
    return safetensors_find(&g->file, theirs) != NULL;          /* an input, such as ids: it is not computed */
}

static enum error_code list_extras(const struct golden *g, const struct actual *a, struct check_result *r,
                                   struct error *err)
{
    for (int rank = 0; rank < a->ranks; rank++)
        for (int i = 0; i < a->file[rank].count; i++) {
            const char *name = a->file[rank].entry[i].name;
            bool known = is_expected(g, a, r, name);
            for (int k = 0; k < r->extras && !known; k++) known = strncmp(r->extra[k], name, sizeof *r->extra - 1) == 0;
            if (known) continue;
            void *grown = realloc(r->extra, (size_t)(r->extras + 1) * sizeof *r->extra);
            if (grown == NULL) return fail(err, ERR_MEMORY, "no memory for the names of extra tensors");
            r->extra = grown;
            snprintf(r->extra[r->extras++], sizeof *r->extra, "%.95s", printable(name).text);
        }
    return OK;
}

/* ---- mixtures in 16 bits ----------------------------------------------------------------------------------------- */

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

static enum error_code summarize(struct check_result *r, const struct actual *a, struct error *err)
{
    int compared = 0;
    r->first = r->worst = -1;
    for (int i = 0; i < r->count; i++) {
        const struct checked *c = &r->all[i];
        r->found[c->finding]++;
        if (finding_fails(c->finding) && r->first < 0) r->first = i;
        if (c->on == NULL || c->finding == ELSEWHERE) continue;
        compared++;
        if (r->worst < 0 || exceeds(checked_ratio(c), checked_ratio(&r->all[r->worst]))) r->worst = i;
    }
    if (compared > 0) return OK;
    return fail(err, ERR_CHECK,
                "nothing to compare: none of the golden tensors' names is in ACTUAL, which has %s%s; --map can say "
                "what they are called there",
                a->ranks && a->file[0].count ? "such as " : "none",
                a->ranks && a->file[0].count ? printable(a->file[0].entry[0].name).text : "");
}

enum error_code check_files(const struct golden *g, const struct actual *a, enum dtype format, struct check_result *r,
                            struct error *err)
{
    *r = (struct check_result){ 0 };
    enum error_code e = golden_measure(g, format, 1, 1, &r->list, err);
    if (e) return e;
    r->all = calloc((size_t)r->list.count + 1, sizeof *r->all);
    if (r->all == NULL) e = fail(err, ERR_MEMORY, "no memory for %d tensors", r->list.count);
    for (int i = 0; i < r->list.count && !e; i++) {
        r->all[r->count] = (struct checked){ .name = r->list.all[i].name, .bound = r->list.all[i].bound };
        e = check_tensor(g, a, &r->all[r->count++], err);
    }
    if (!e && dtype_wide(format) != format) e = forgive_elsewhere(g, a, r, err);
    if (!e) forgive_left_out(r);
    if (!e) e = list_extras(g, a, r, err);
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
