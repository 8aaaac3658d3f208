/* changes.c -- what to change in a plan so that it fits.
 *
 * run/plan.c calls search_changes where a plan does not fit.  A plan that cannot be made, or for which memory
 * is missing, is left out: the function returns no error.
 */
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/search/search.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This is a changed plan, with its bound, its estimate, and the words that choose the plan. */
struct variant { struct plan plan; struct candidate found; char words[PLAN_WORDS]; };
enum { MOST_VARIANTS = 256, MOST_PLANNED = 16, MOST_AT_ONCE = 4 };

struct variants {
    const struct plan_space *space;
    uint64_t memory;
    struct estimator estimator;
    const char *words;                  /* of the plan */
    struct variant *of;
    int count;
};

/* Several changes may come to the same; some to none. */
static bool is_new(const struct variants *variants, const char *words)
{
    bool new = strcmp(words, variants->words) != 0;
    for (int i = 0; i < variants->count && new; i++) new = strcmp(words, variants->of[i].words) != 0;
    return new;
}

/* Keep a changed plan with its estimate, if the plan is new and legal, and its lower bound fits the memory.  A full
 * list takes no more. */
static void consider(struct variants *variants, const struct plan *plan)
{
    struct variant *new = &variants->of[variants->count];
    struct error unread;
    if (variants->count == MOST_VARIANTS) return;
    new->plan = *plan, new->found = (struct candidate){ .time = 0 };
    plan_space_words(&new->plan, new->words, sizeof new->words);
    if (!is_new(variants, new->words) || !plan_space_is_legal(&new->plan)) return;
    /* The lower bound of memory is cheap, and comes before the estimate of the time. */
    if (search_bound(&new->plan, &new->found.least, &unread) || new->found.least > variants->memory) return;
    struct estimate step;
    if (estimate_step(&variants->estimator, &new->plan, &step, &unread)) return;
    new->found.estimate = step.time;
    variants->count++;
}

/* Several changes at once are all of what decides most about memory. */
static bool saves(enum dimension dimension)
{
    return dimension == BY_MICROS || dimension == BY_RECOMPUTE || dimension == BY_DATA || dimension == BY_OFFLOAD;
}

/* Try every other value of a dimension, and with each, values of a later dimension. */
static void vary(struct variants *variants, const struct plan *plan, enum dimension first, int more)
{
    for (enum dimension d = first; d < DIMENSION_COUNT; d++)
        for (int i = 0; i < plan_space_values(variants->space, d, plan) && (first == BY_MESH || saves(d)); i++) {
            struct plan q = *plan;
            if (!plan_space_set(variants->space, d, &q, i)) continue;
            if (more > 0) vary(variants, &q, d + 1, more - 1);
            else consider(variants, &q);
        }
}

/* Variants with the smallest estimate come first. */
static int by_estimate(const void *a, const void *b)
{
    const picoseconds x = ((const struct variant *)a)->found.estimate, y = ((const struct variant *)b)->found.estimate;
    return x < y ? -1 : x > y;
}

/* Changes with the shortest step come first. */
static int changes_by_time(const void *a, const void *b)
{
    const picoseconds x = ((const struct change *)a)->time, y = ((const struct change *)b)->time;
    return x < y ? -1 : x > y;
}

/* Copy the words of a plan that the other plan does not have. */
static void changed_words(const char *had, const char *has, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (const char *at = has; at && *at; ) {
        const char *end = strstr(at, " --");
        const size_t n = end ? (size_t)(end - at) : strlen(at);
        char word[PLAN_WORDS];
        snprintf(word, sizeof word, "%.*s", (int)n, at);
        /* A word counts as had only where it ends in the old plan, too: --tp 1 is not --tp 16. */
        const char *in = strstr(had, word);
        if ((in == NULL || (in[n] != ' ' && in[n] != '\0')) && used + n + 2 < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", word);
        at = end ? end + 1 : NULL;
    }
}

/* Plan the variants from `first` on, those that promise most first, until there are `most` changes. */
static int plan_variants(struct variants *variants, int first, struct change *out, int n, int most)
{
    struct error unread;
    qsort(variants->of + first, (size_t)(variants->count - first), sizeof *variants->of, by_estimate);
    for (int i = first; i < variants->count && i < first + MOST_PLANNED && n < most; i++) {
        struct variant *w = &variants->of[i];
        if (search_plan(&w->plan, &w->found, &unread) || w->found.peak > variants->memory) continue;
        out[n] = (struct change){ .time = w->found.time, .peak = w->found.peak };
        changed_words(variants->words, w->words, out[n].words, sizeof out[n].words);
        n += out[n].words[0] != '\0';
    }
    return n;
}

int search_changes(const struct plan_space *space, const struct plan *plan, uint64_t memory,
                   struct change *out, int most)
{
    char words[PLAN_WORDS];
    struct variants v = { .space = space, .memory = memory, .words = plan_space_words(plan, words, sizeof words),
                          .of = calloc(MOST_VARIANTS, sizeof *v.of) };
    int n = 0;
    for (int more = 0; more < MOST_AT_ONCE && v.of && n < (more < 2 ? most : 1); more++) {
        /* One or two changed dimensions fill the list; more are tried only while there is no change. */
        const int first = v.count;
        vary(&v, plan, more ? BY_MICROS : BY_MESH, more);
        n = plan_variants(&v, first, out, n, most);
    }
    free(v.of);
    estimator_close(&v.estimator);
    if (n > 0) qsort(out, (size_t)n, sizeof *out, changes_by_time);
    return n;
}
