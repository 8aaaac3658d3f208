/* against.c -- `orrery plan A --against "B"`: why plan A needs more memory than plan B, or less.  train.c calls on rank
 * 0.  The other plan has the words of this one, but for those that --against gives.  Errors are those of the words, of
 * both plans, and ERR_MEMORY. */
#include "emulated_devices/cli/train/compare.h"
#include "emulated_devices/run/report/held_tensors.h"
#include "ref/io/columns.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A plan, its step, and what its fullest device holds at the peak. */
struct side {
    const struct train_options *options;
    struct planned_step planned;
    struct held_tensors held;
};

/* Tensors of a name in both plans; NULL: the plan has none. */
struct pair { const struct held_tensor *a, *b; };

struct against { struct side a, b; struct pair pair[2 * HELD_MOST]; int pairs; };

static int64_t pair_difference(const struct pair *pair)
{
    return (int64_t)(pair->b ? pair->b->bytes : 0) - (int64_t)(pair->a ? pair->a->bytes : 0);
}

static int largest_first(const void *a, const void *b)
{
    const int64_t x = llabs(pair_difference(a)), y = llabs(pair_difference(b));
    return x != y ? (x > y ? -1 : 1) : 0;
}

static const struct held_tensor *named_like(const struct held_tensors *list, const struct held_tensor *like)
{
    for (int i = 0; i < list->count; i++)
        if (list->of[i].tag == like->tag && strcmp(list->of[i].name, like->name) == 0) return &list->of[i];
    return NULL;
}

/* Every name of both plans once, what differs most first. */
static void make_pairs(struct against *against)
{
    const struct held_tensors *const a = &against->a.held, *const b = &against->b.held;
    for (int i = 0; i < a->count; i++)
        against->pair[against->pairs++] = (struct pair){ &a->of[i], named_like(b, &a->of[i]) };
    for (int i = 0; i < b->count; i++)
        if (named_like(a, &b->of[i]) == NULL) against->pair[against->pairs++] = (struct pair){ NULL, &b->of[i] };
    qsort(against->pair, (size_t)against->pairs, sizeof *against->pair, largest_first);
}

/* ---- reasons ----------------------------------------------------------------------------------------------------- */

/* A tensor's size grows with this number, or shrinks with it. */
struct cause { const char *name; int64_t a, b; bool shrinks; };

enum { CAUSES = 6 };

static int shards_of(const struct plan *plan, enum arena_tag tag)
{
    struct shards s;
    struct error unread;
    if (tag > OPTIMIZER || data_shards(&s, &plan->data, plan_copies(plan), 0, &unread)) return 1;
    return tag == PARAMETERS ? s.weights : tag == GRADIENTS ? s.gradients : s.optimizer;
}

static void make_causes(const struct plan *a, const struct plan *b, enum arena_tag tag,
                        struct cause cause[CAUSES])
{
    const bool state = tag <= OPTIMIZER;
    cause[0] = (struct cause){ "tp", a->mesh.size[TP], b->mesh.size[TP], true };
    cause[1] = state ? (struct cause){ "devices that share them", shards_of(a, tag), shards_of(b, tag), true }
                     : (struct cause){ "cp", a->mesh.size[CP], b->mesh.size[CP], true };
    cause[2] = state ? (struct cause){ "pp", a->mesh.size[PP], b->mesh.size[PP], true }
                     : (struct cause){ "sequences of a microbatch", plan_microbatch(a, 0, 0).count,
                                       plan_microbatch(b, 0, 0).count, false };
    cause[3] = (struct cause){ "bytes of a number", (int64_t)dtype_size(a->dtype), (int64_t)dtype_size(b->dtype),
                               false };
    cause[4] = state ? (struct cause){ "ep", a->ep, b->ep, true }
                     : (struct cause){ "tokens", a->S, b->S, false };
    cause[5] = (struct cause){ NULL, 1, 1, false };
}

/* By which factor the scale makes the other plan's tensors larger. */
static double cause_factor(const struct cause *cause)
{
    const double f = (double)cause->b / (double)cause->a;
    return cause->shrinks ? 1 / f : f;
}

static bool is_equal(double a, double b) { return fabs(a - b) <= 1e-3 * fabs(b); }

/* "1/4", "2", "1.33" times. */
static struct figure times_of(double factor)
{
    struct figure f;
    if (factor < 1 && is_equal(round(1 / factor), 1 / factor)) snprintf(f.text, sizeof f.text, "1/%.0f", 1 / factor);
    else snprintf(f.text, sizeof f.text, is_equal(round(factor), factor) ? "%.0f" : "%.2f", factor);
    return f;
}

/* Say that a factor comes from one scale, or from two together.  @return whether one is found. */
static bool explain_factor(double factor, const struct cause *cause, char *text, size_t size)
{
    for (int i = 0; i < CAUSES; i++)
        for (int j = i; j < CAUSES; j++) {
            const bool two = j > i;
            const struct cause *const x = &cause[i], *const y = &cause[j];
            if (x->name == NULL || x->a == x->b || (two && (y->name == NULL || y->a == y->b))) continue;
            if (!is_equal(cause_factor(x) * (two ? cause_factor(y) : 1), factor)) continue;
            const int n = snprintf(text, size, "%s %lld, not %lld", x->name, (long long)x->b, (long long)x->a);
            if (two && n < (int)size)
                snprintf(text + n, size - (size_t)n, " and %s %lld, not %lld", y->name, (long long)y->b,
                         (long long)y->a);
            return true;
        }
    return false;
}

/* Why there are more tensors of a name, or fewer: of other layers, or of other microbatches in flight. */
static int explain_count(const struct pair *pair, char *text, size_t size)
{
    const struct held_tensor *const a = pair->a, *const b = pair->b;
    int used = snprintf(text, size, "%d, not %d", b->count, a->count);
    if (a->layers != b->layers)
        used += snprintf(text + used, size - (size_t)used, ": of %d layer%s, not %d", b->layers, plural(b->layers),
                         a->layers);
    if (a->micros != b->micros)
        used += snprintf(text + used, size - (size_t)used, "%s of %d microbatch%s, not %d",
                         a->layers != b->layers ? " and" : ":", b->micros, b->micros == 1 ? "" : "es", a->micros);
    return used;
}

static bool other_recomputation(const struct plan *a, const struct plan *b)
{
    return strcmp(a->recompute ? a->recompute : "none", b->recompute ? b->recompute : "none") != 0;
}

/* Why only one of both plans holds it. */
static void explain_only(const struct pair *pair, const struct plan *a, const struct plan *b, char *text, size_t size)
{
    const struct held_tensor *const has = pair->a ? pair->a : pair->b;
    const struct plan *const lacks = pair->a ? b : a, *const holds = pair->a ? a : b;
    const char *const where = pair->a ? "only this plan" : "only the other";
    if (has->tag == ACTIVATIONS && lacks->recompute && other_recomputation(a, b))
        snprintf(text, size, "%s keeps it; --recompute %s computes it again", where, lacks->recompute);
    else if (strncmp(has->name, "gathered", 8) == 0)
        snprintf(text, size, "%s gathers them: --data-parallel %s", where, holds->data.scheme);
    else snprintf(text, size, "%s, at its peak", where);
}

static void against_explain(const struct pair *pair, const struct plan *a, const struct plan *b, char *text,
                            size_t size)
{
    struct cause cause[CAUSES];
    char why[160];
    int used = 0;
    if (pair->a == NULL || pair->b == NULL) {
        explain_only(pair, a, b, text, size);
        return;
    }
    const double factor = ((double)pair->b->bytes / pair->b->count) / ((double)pair->a->bytes / pair->a->count);
    text[0] = '\0';
    if (pair->a->count != pair->b->count) used = explain_count(pair, text, size);
    if (pair->a->tag == ACTIVATIONS && pair->a->layers != pair->b->layers && other_recomputation(a, b))
        used += snprintf(text + used, size - (size_t)used, ", --recompute %s", b->recompute ? b->recompute : "none");
    if (is_equal(factor, 1)) return;
    make_causes(a, b, pair->a->tag, cause);
    used += snprintf(text + used, size - (size_t)used, "%seach %s times", used ? "; " : "", times_of(factor).text);
    if (explain_factor(factor, cause, why, sizeof why)) snprintf(text + used, size - (size_t)used, ": %s", why);
}

/* ---- saying ------------------------------------------------------------------------------------------------------ */

static void side_print(FILE *out, const char *which, const struct side *side)
{
    const struct plan_findings *const f = &side->planned.findings;
    const struct plan_peak *const p = &f->peak[f->fullest];
    const struct plan *const plan = &side->options->plan;
    char words[PLAN_WORDS], place[64], when[160];
    say(out, 8, "%-7s %s", which, plan_space_words(plan, words, sizeof words));
    say(out, 8, "        peak %s of device %d (%s), in %s", size_format(p->use.total).text, f->fullest,
        mesh_describe(&plan->mesh, f->fullest, place, sizeof place), doing_describe(&p->doing, when, sizeof when));
}

static uint64_t side_peak(const struct side *side)
{
    return side->planned.findings.peak[side->planned.findings.fullest].use.total;
}

static struct figure signed_size(const struct figure_scale *scale, int64_t bytes)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%s%.30s", bytes > 0 ? "+" : bytes < 0 ? "-" : "",
             scale_format(scale, (double)llabs(bytes)).text);
    return f;
}

static void add_row(struct columns *columns, const struct figure_scale *scale, const char *name, int64_t difference,
                    uint64_t a, uint64_t b, const char *why)
{
    columns_add(columns, LEFT_ALIGNED, "%s", name);
    columns_add(columns, RIGHT_ALIGNED, "%s", scale_format(scale, (double)a).text);
    columns_add(columns, RIGHT_ALIGNED, "%s", scale_format(scale, (double)b).text);
    columns_add(columns, RIGHT_ALIGNED, "%s", signed_size(scale, difference).text);
    columns_add(columns, LEFT_ALIGNED, "%s", why);
    columns_end_row(columns);
}

static void against_print(FILE *out, const struct against *against)
{
    const struct plan *const a = &against->a.options->plan, *const b = &against->b.options->plan;
    const uint64_t peak[2] = { side_peak(&against->a), side_peak(&against->b) };
    const struct figure_scale scale = size_scale(peak[0] > peak[1] ? peak[0] : peak[1]);
    struct columns c = columns_start(out);
    char name[120], why[200];
    c.keys = 1;
    side_print(out, "this", &against->a), side_print(out, "other", &against->b);
    say(out, 0, "\nheld at the two peaks, in %s", scale.name);
    do {
        uint64_t same = 0;
        columns_add(&c, LEFT_ALIGNED, "what"), columns_add(&c, RIGHT_ALIGNED, "this");
        columns_add(&c, RIGHT_ALIGNED, "other"), columns_add(&c, RIGHT_ALIGNED, "more");
        columns_add(&c, LEFT_ALIGNED, "why"), columns_end_row(&c);
        for (int i = 0; i < against->pairs; i++) {
            const struct pair *p = &against->pair[i];
            const struct held_tensor *any = p->a ? p->a : p->b;
            if (pair_difference(p) == 0) same += any->bytes;
            if (pair_difference(p) == 0) continue;
            snprintf(name, sizeof name, "%s: %s", arena_tag_name(any->tag), any->name);
            against_explain(p, a, b, why, sizeof why);
            add_row(&c, &scale, name, pair_difference(p), p->a ? p->a->bytes : 0, p->b ? p->b->bytes : 0, why);
        }
        add_row(&c, &scale, "the same in both", 0, same, same, "");
        add_row(&c, &scale, "together", (int64_t)peak[1] - (int64_t)peak[0], peak[0], peak[1], "");
    } while (columns_again(&c));
}

static void side_json(cJSON *root, const char *which, const struct side *side)
{
    const struct plan_findings *const f = &side->planned.findings;
    char words[PLAN_WORDS], when[160];
    json_add(cJSON_AddObjectToObject(root, which), "words %s peak_bytes %g device %d when %s",
             plan_space_words(&side->options->plan, words, sizeof words), (double)side_peak(side), f->fullest,
             doing_describe(&f->peak[f->fullest].doing, when, sizeof when));
}

static void add_held(cJSON *row, const char *which, const struct held_tensor *held)
{
    if (held)
        json_add(cJSON_AddObjectToObject(row, which), "bytes %g tensors %d layers %d microbatches %d",
                 (double)held->bytes, held->count, held->layers, held->micros);
}

static enum error_code against_json(const struct against *against, const char *path, struct error *err)
{
    cJSON *root = document_start("orrery plan --against"), *list;
    char why[200];
    side_json(root, "this", &against->a), side_json(root, "other", &against->b);
    json_add(root, "difference_bytes %g", (double)side_peak(&against->b) - (double)side_peak(&against->a));
    list = cJSON_AddArrayToObject(root, "tensors");
    for (int i = 0; i < against->pairs; i++) {
        const struct pair *p = &against->pair[i];
        const struct held_tensor *any = p->a ? p->a : p->b;
        cJSON *row = json_add(json_row(list), "class %s name %s difference_bytes %g", arena_tag_name(any->tag),
                              any->name, (double)pair_difference(p));
        add_held(row, "this", p->a), add_held(row, "other", p->b);
        if (pair_difference(p) == 0) continue;
        against_explain(p, &against->a.options->plan, &against->b.options->plan, why, sizeof why);
        json_add(row, "why %s", why);
    }
    return fail_about(err, json_finish(path, root, err), "--json");
}

/* ---- the other plan ---------------------------------------------------------------------------------------------- */

enum { AGAINST_WORDS = 200 };
struct against_words { char *word[AGAINST_WORDS]; int count; char text[2000]; };

/* Whether a word is the name of an option; several words in quotes are a value. */
static bool is_option(const char *word) { return strncmp(word, "--", 2) == 0 && strchr(word, ' ') == NULL; }

/* Whether two words name the same option: "--tp", "--tp=2". */
static bool same_option(const char *a, const char *b)
{
    const size_t n = strcspn(a, "=");
    return strncmp(a, "--", 2) == 0 && strcspn(b, "=") == n && strncmp(a, b, n) == 0;
}

/* The words of this plan, without those that the other one has in their place, then the other one's.  A word that does
 * not begin with two dashes belongs to the option before it. */
static enum error_code other_words(struct against_words *other, const struct train_options *options, const char *words,
                                   struct error *err)
{
    char *own[AGAINST_WORDS];
    int count = 0;
    if (strlen(words) >= sizeof other->text || options->argc >= AGAINST_WORDS / 2)
        return fail(err, ERR_USAGE, "--against: too many words");
    strcpy(other->text, words);
    for (char *at = strtok(other->text, " "); at && count < AGAINST_WORDS / 2; at = strtok(NULL, " "))
        own[count++] = at;
    if (count == 0 || strncmp(own[0], "--", 2) != 0)
        return fail(err, ERR_USAGE, "--against \"%.60s\": must be options of the other plan, in quotes, such as "
                    "\"--tp 4 --recompute full\"", words);
    other->count = 0;
    for (int i = 0, leaves = 0; i < options->argc; i++) {
        char *const word = options->argv[i];
        if (is_option(word) || same_option("--against", word)) {
            leaves = same_option("--against", word) || same_option("--json", word);
            for (int k = 0; k < count; k++) leaves = leaves || same_option(own[k], word);
            leaves = leaves || (same_option("--zero", word) && options_given(count, own, "--data-parallel"))
                || (same_option("--data-parallel", word) && options_given(count, own, "--zero"));
        }
        if (!leaves) other->word[other->count++] = word;
    }
    for (int k = 0; k < count; k++) other->word[other->count++] = own[k];
    return options_given(count, own, "--against") || options_ask_for_help(count, own)
        ? fail(err, ERR_USAGE, "--against: its words are options of a plan") : OK;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code side_open(struct side *side, const struct train_options *options, struct error *err)
{
    side->options = options;
    const enum error_code e = planned_step_open(&side->planned, options, err);
    return e ? e : held_tensors_of(&side->held, &side->planned, err);
}

static enum error_code against_both(const struct train_options *this_one, const struct train_options *other,
                                    struct error *err)
{
    struct against *const against = calloc(1, sizeof *against);
    if (against == NULL) return fail(err, ERR_MEMORY, "no memory to compare two plans");
    enum error_code e = side_open(&against->a, this_one, err);
    if (!e) e = fail_about(err, side_open(&against->b, other, err), "--against:");
    if (!e) {
        make_pairs(against);
        against_print(run_stream(this_one), against);
        if (this_one->json) e = against_json(against, this_one->json, err);
    }
    planned_step_close(&against->a.planned), planned_step_close(&against->b.planned);
    free(against);
    return e;
}

enum error_code compare_against(const struct train_options *options, const char *words, struct error *err)
{
    static struct against_words other;
    struct train_options a = *options, b;
    enum error_code e = other_words(&other, options, words, err);
    if (e) return e;
    e = fail_about(err, train_parse(&b, &run_plan, other.count, other.word, err), "--against:");
    a.timeline = b.timeline = NULL;
    a.plan.cluster = &a.cluster;
    if (!e && b.json) e = fail(err, ERR_USAGE, "--against: --json belongs to the first plan");
    if (!e) e = against_both(&a, &b, err);
    train_options_free(&b);
    return e;
}
