/* check.c -- judges lesson 24.  The student writes pages.c: where a token lies in a cache of pages, attention over such
 * a cache, which pages a new sequence can share, which pages are vacant when one ends, and the plan of an iteration.
 * All checks compare with what is computed here.  emulated_devices/course/judge.c runs each check in a process of its
 * own; a failed check is a line for the student. */
#include "emulated_devices/course/lesson.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS = 16, MOST_PAGES = 24, MOST_WIDTH = 8, MOST_TOKENS = 40, MOST_SEQUENCES = 6 };

/* Small cases come first. */
static int size_of(struct judge *j, int run, int low, int high)
{
    return j->hidden ? (int)judge_draw(j, low, high) : low + run % (high - low + 1);
}

/* Numbers 0 .. count-1 in a drawn order. */
static void shuffle(struct judge *j, int32_t *list, int count)
{
    for (int i = 0; i < count; i++) {
        const int at = (int)judge_draw(j, 0, i);
        list[i] = list[at], list[at] = i;
    }
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static void check_place(struct judge *j)
{
    for (int i = 0; i < RUNS && !j->failed; i++) {
        const int B = size_of(j, i, 2, 6), token = i == 0 ? 0 : (int)judge_draw(j, 0, 6 * B - 1);
        int32_t table[MOST_PAGES];
        shuffle(j, table, MOST_PAGES);
        struct trial *r = trial_open(j, "place_of", 1, "pages of %d tokens", B);
        trial_copy(r, 0, 0, table, 6 * sizeof *table, BUFFER_IN);
        r->device[0].number[0] = B, r->device[0].number[1] = token;
        const int page = table[token / B], want = page * B + token % B;
        if (trial_call(r) && r->device[0].result != want)
            trial_fails(r, "it returned %lld; token %d is token %d of page %d, at place %d",
                        (long long)r->device[0].result, token, token % B, page, want);
        trial_close(r);
    }
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* Keys and values of a sequence, and what attention gives for them. */
struct attended { int B, n, width; int32_t table[MOST_PAGES]; float query[MOST_WIDTH];
                  float cache[MOST_PAGES * 6 * 2 * MOST_WIDTH]; double want[MOST_WIDTH], bound[MOST_WIDTH]; };

/* Scores are around 0, or around some hundred. */
enum scores { SMALL_SCORES, LARGE_SCORES };

static const float *half_at(const struct judge *j, const struct attended *a, int t, bool key)
{
    const bool first = key == (judge_choice(j, "HALVES") == 0);
    return a->cache + 2 * a->width * (a->table[t / a->B] * a->B + t % a->B) + (first ? 0 : a->width);
}

static void attend_here(struct judge *j, struct attended *a)
{
    double score[MOST_TOKENS], most = -INFINITY, all = 0;
    for (int t = 0; t < a->n; t++) {
        score[t] = 0;
        for (int i = 0; i < a->width; i++) score[t] += (double)a->query[i] * half_at(j, a, t, true)[i];
        score[t] /= sqrt(a->width);
        most = fmax(most, score[t]);
    }
    for (int i = 0; i < a->width; i++) a->want[i] = 0, a->bound[i] = 1e-2;
    for (int t = 0; t < a->n; t++) {
        const double weight = exp(score[t] - most);
        all += weight;
        for (int i = 0; i < a->width; i++) a->want[i] += weight * half_at(j, a, t, false)[i];
    }
    for (int i = 0; i < a->width; i++) a->want[i] /= all;
}

/* All places of the cache have numbers, those of other sequences, too. */
static void fill(struct judge *j, struct attended *a, int run, enum scores scores)
{
    a->B = size_of(j, run, 2, 5), a->width = 2 + 2 * size_of(j, run, 0, 3);
    a->n = run == 0 ? 1 : (int)judge_draw(j, 1, 6 * a->B);
    shuffle(j, a->table, MOST_PAGES);
    judge_whole(j, a->query, a->width, 4);
    judge_whole(j, a->cache, (int64_t)MOST_PAGES * a->B * 2 * a->width, 20);
    a->query[0] = 3;
    for (int i = 0; i < a->width; i++) a->query[i] /= 16;
    for (int t = 0; t < a->n && scores == LARGE_SCORES; t++) {
        float *const key = (float *)half_at(j, a, t, true);
        key[0] = 2000 + (float)judge_draw(j, 0, 40);
    }
    attend_here(j, a);
}

static void try_attend(struct judge *j, enum scores scores)
{
    for (int i = 0; i < RUNS && !j->failed; i++) {
        struct attended *const a = calloc(1, sizeof *a);
        if (a == NULL) abort();
        fill(j, a, i, scores);
        struct trial *r = trial_open(j, "attend", 1, "%d tokens in pages of %d, width %d", a->n, a->B, a->width);
        trial_in(r, 0, 0, a->query, a->width);
        trial_in(r, 0, 1, a->cache, (int64_t)MOST_PAGES * a->B * 2 * a->width);
        trial_copy(r, 0, 2, a->table, sizeof a->table, BUFFER_IN);
        trial_out(r, 0, 3, a->width);
        r->device[0].number[0] = a->B, r->device[0].number[1] = a->n, r->device[0].number[2] = a->width;
        if (trial_call(r)) trial_expect_near(r, 0, 3, a->want, a->bound, a->width, "out");
        trial_close(r);
        free(a);
    }
}

static void check_attend(struct judge *j) { try_attend(j, SMALL_SCORES); }
static void check_large(struct judge *j) { try_attend(j, LARGE_SCORES); }

/* ---- shared prefixes --------------------------------------------------------------------------------------------- */

/* The cache of sequences that were there before, and a new prompt. */
struct prefix { int B, C, n; int32_t tokens[MOST_PAGES * 6], before[MOST_PAGES], prompt[MOST_TOKENS], want[MOST_PAGES];
                int found; };

/* The prompt goes on where the cache ends, ends where a page ends, or has pages of other sequences in it. */
enum prefix_case { PREFIX_ENDS, PREFIX_IS_ALL, PREFIX_LIES_APART };

/* A chain of `pages` pages with the prompt's tokens at drawn numbers; others begin with a token that it lacks. */
static void fill_prefix(struct judge *j, struct prefix *p, int run, enum prefix_case kind)
{
    int32_t number[MOST_PAGES];
    const int pages = kind == PREFIX_IS_ALL ? size_of(j, run, 1, 4) : size_of(j, run, kind == PREFIX_ENDS ? 0 : 1, 4);
    p->B = size_of(j, run, 2, 4), p->C = 8 + run % 8, p->found = kind == PREFIX_IS_ALL ? pages - 1 : pages;
    shuffle(j, number, p->C);
    for (int i = 0; i < MOST_TOKENS; i++) p->prompt[i] = 4 * i + (int32_t)judge_draw(j, 0, 3);
    for (int page = 0; page < p->C; page++) {
        for (int i = 0; i < p->B; i++) p->tokens[page * p->B + i] = 1000 + page * p->B + i;
        p->before[page] = page % 3 ? page - 1 : -1;
    }
    for (int k = 0; k < pages; k++) {
        memcpy(&p->tokens[number[k] * p->B], &p->prompt[k * p->B], (size_t)p->B * sizeof *p->prompt);
        p->before[number[k]] = k ? number[k - 1] : -1;
    }
    memcpy(p->want, number, sizeof number);
    /* A prompt that ends soon has no further page that could be missed; one that is longer has. */
    const int more = (int)judge_draw(j, 1, p->B) + (kind == PREFIX_LIES_APART || run % 2 ? p->B : 0);
    p->n = pages * p->B + (kind == PREFIX_IS_ALL ? 0 : more);
    if (kind != PREFIX_LIES_APART) return;
    /* A page of another sequence has the prompt's next tokens, behind other tokens. */
    memcpy(&p->tokens[number[pages] * p->B], &p->prompt[pages * p->B], (size_t)p->B * sizeof *p->prompt);
    p->before[number[pages]] = number[pages + 1];
}

static void expect_pages(struct trial *r, const struct prefix *p, enum prefix_case kind)
{
    static const char *const why[] = {
        "so many have its tokens one behind another", "its last token must be computed",
        "the next one has its tokens, but another page is before it" };
    const int32_t *const table = r->device[0].buffer[3].data;
    if (r->device[0].result != p->found) {
        trial_fails(r, "it returned %lld pages for %d tokens, and should return %d: %s",
                    (long long)r->device[0].result, p->n, p->found, why[kind]);
        return;
    }
    for (int k = 0; k < p->found; k++)
        if (table[k] != p->want[k]) {
            trial_fails(r, "table[%d] is page %d, and should be %d", k, table[k], p->want[k]);
            return;
        }
}

static void try_prefix(struct judge *j, enum prefix_case kind)
{
    for (int i = 0; i < RUNS && !j->failed; i++) {
        struct prefix p = { 0 };
        fill_prefix(j, &p, i, kind);
        struct trial *r = trial_open(j, "found_pages", 1, "%d tokens, %d pages of %d", p.n, p.C, p.B);
        trial_copy(r, 0, 0, p.prompt, (uint64_t)p.n * sizeof *p.prompt, BUFFER_IN);
        trial_copy(r, 0, 1, p.tokens, (uint64_t)(p.C * p.B) * sizeof *p.tokens, BUFFER_IN);
        trial_copy(r, 0, 2, p.before, (uint64_t)p.C * sizeof *p.before, BUFFER_IN);
        trial_buffer(r, 0, 3, (uint64_t)(p.n / p.B) * sizeof(int32_t), BUFFER_OUT);
        r->device[0].number[0] = p.n, r->device[0].number[1] = p.C, r->device[0].number[2] = p.B;
        if (trial_call(r)) expect_pages(r, &p, kind);
        trial_close(r);
    }
}

static void check_prefix(struct judge *j) { try_prefix(j, PREFIX_ENDS); }
static void check_last(struct judge *j) { try_prefix(j, PREFIX_IS_ALL); }
static void check_apart(struct judge *j) { try_prefix(j, PREFIX_LIES_APART); }

/* ---- vacant pages ------------------------------------------------------------------------------------------------ */

static void expect_vacant(struct trial *r, const int32_t *table, int pages, const int32_t *users, int before)
{
    const int32_t *const got = r->device[0].buffer[1].data, *const vacant = r->device[0].buffer[2].data;
    int count = before;
    for (int p = 0; p < MOST_PAGES; p++) {
        int want = users[p];
        for (int k = 0; k < pages; k++) want -= table[k] == p;
        if (got[p] != want) {
            trial_fails(r, "page %d has %d users afterwards, and should have %d", p, got[p], want);
            return;
        }
    }
    for (int k = 0; k < pages; k++) count += users[table[k]] == 1;
    if (r->device[0].result != count)
        trial_fails(r, "it returned %lld; %d pages are vacant: %d were, and %d have no other user; those that others "
                    "use stay", (long long)r->device[0].result, count, before, count - before);
    int at = before;
    for (int k = pages - 1; k >= 0; k--)
        if (users[table[k]] == 1) {
            if (!r->judge->failed && vacant[at] != table[k]) {
                trial_fails(r, "vacant[%d] is page %d, and should be %d: the last page of the sequence goes first",
                            at, vacant[at], table[k]);
                return;
            }
            at++;
        }
}

/* Some pages of the sequence are shared, at its beginning. */
static void check_release(struct judge *j)
{
    for (int i = 0; i < RUNS && !j->failed; i++) {
        const int pages = size_of(j, i, 1, 8), shared = (int)judge_draw(j, 0, pages), before = (int)judge_draw(j, 0, 4);
        int32_t table[MOST_PAGES], users[MOST_PAGES];
        shuffle(j, table, MOST_PAGES);
        for (int p = 0; p < MOST_PAGES; p++) users[table[p]] = p < shared ? 2 + p % 2 : p < pages;
        struct trial *r = trial_open(j, "release_pages", 1, "%d pages, %d of them shared", pages, shared);
        trial_copy(r, 0, 0, table, (uint64_t)pages * sizeof *table, BUFFER_IN);
        trial_copy(r, 0, 1, users, sizeof users, BUFFER_BOTH);
        int32_t vacant[MOST_PAGES] = { 0 };
        memcpy(vacant, table + MOST_PAGES - before, (size_t)before * sizeof *table);
        trial_copy(r, 0, 2, vacant, sizeof vacant, BUFFER_BOTH);
        r->device[0].number[0] = pages, r->device[0].number[1] = before;
        if (trial_call(r)) expect_vacant(r, table, pages, users, before);
        trial_close(r);
    }
}

/* ---- iterations -------------------------------------------------------------------------------------------------- */

/* What an iteration is planned from, and afterwards the plan. */
struct step { int n, B, budget; int32_t length[MOST_SEQUENCES], computed[MOST_SEQUENCES], pages[MOST_SEQUENCES], left,
              take[MOST_SEQUENCES]; };

static int pages_for(int tokens, int B) { return tokens / B + (tokens % B > 0); }

/* Each sequence is asked for in turn; a plan ends with the first that has no room. */
static int plan_here(const struct judge *j, struct step *s)
{
    const int most = judge_choice(j, "CHUNK") == 0 ? 8 : 6;
    int running = s->n, spent = 0;
    memset(s->take, 0, sizeof s->take);
    for (int i = 0; i < running; i++) {
        int take = s->length[i] - s->computed[i];
        if (take > most) take = most;
        if (take > s->budget - spent) take = s->budget - spent;
        const int needs = pages_for(s->computed[i] + take, s->B);
        while (running > i && needs - s->pages[i] > s->left) {
            running--;
            s->left += s->pages[running], s->pages[running] = 0, s->computed[running] = 0;
        }
        if (running == i) break;
        if (needs > s->pages[i]) s->left -= needs - s->pages[i], s->pages[i] = needs;
        s->take[i] = take, spent += take;
    }
    return running;
}

/* There is room for all; the first sequence needs pages of the last ones; the last one needs pages and gets none. */
enum room { ROOM_FOR_ALL, ROOM_FOR_SOME, ROOM_FOR_OTHERS };

static void draw_step(struct judge *j, struct step *s, int run, enum room room)
{
    s->n = size_of(j, run, room == ROOM_FOR_ALL ? 1 : 2, MOST_SEQUENCES), s->B = size_of(j, run, 2, 4);
    s->budget = run % 4 ? 9 + run : 64;
    for (int i = 0; i < s->n; i++) {
        const int prompt = (int)judge_draw(j, 0, 2) == 0;
        s->computed[i] = prompt ? s->B * (int32_t)judge_draw(j, 0, 2) : (int32_t)judge_draw(j, 1, 12);
        s->length[i] = s->computed[i] + (prompt ? (int32_t)judge_draw(j, 1, 14) : 1);
        s->pages[i] = pages_for(s->computed[i], s->B);
    }
    s->left = room == ROOM_FOR_ALL ? 40 : 0;
    if (room == ROOM_FOR_ALL) return;
    /* The one that lacks a page is the first, or the last. */
    const int lacks = room == ROOM_FOR_SOME ? 0 : s->n - 1;
    for (int i = 0; i < s->n; i++) {
        s->computed[i] = s->B * (1 + i % 2) - (i != lacks), s->length[i] = s->computed[i] + 1;
        s->pages[i] = pages_for(s->computed[i], s->B);
    }
    /* The others' pages are enough for the first sequence. */
    const int most = room == ROOM_FOR_SOME ? (s->n - 1) * s->B - 1 : 5;
    s->length[lacks] += (int32_t)judge_draw(j, 0, most < 5 ? most : 5), s->budget = 64;
}

static void expect_step(struct trial *r, const struct step *want, int running, int had)
{
    const struct { const char *name; int buffer; const int32_t *want; } array[] = {
        { "take", 4, want->take }, { "pages", 2, want->pages }, { "computed", 1, want->computed } };
    const int32_t left = *(const int32_t *)r->device[0].buffer[3].data;
    for (size_t a = 0; a < sizeof array / sizeof *array; a++) {
        const int32_t *const got = r->device[0].buffer[array[a].buffer].data;
        for (int i = 0; i < want->n; i++)
            if (got[i] != array[a].want[i]) {
                trial_fails(r, "%s[%d] is %d, and should be %d; %d of %d sequences still run", array[a].name, i, got[i],
                            array[a].want[i], running, want->n);
                return;
            }
    }
    if (left != want->left)
        trial_fails(r, "*left is %d, and should be %d: it was %d", left, want->left, had);
    else if (r->device[0].result != running)
        trial_fails(r, "it returned %lld, and %d of %d sequences still run", (long long)r->device[0].result, running,
                    want->n);
}

static void try_plan(struct judge *j, enum room room)
{
    for (int i = 0; i < 2 * RUNS && !j->failed; i++) {
        struct step s = { 0 };
        draw_step(j, &s, i, room);
        const int had = s.left;
        const uint64_t bytes = (uint64_t)s.n * sizeof(int32_t);
        struct trial *r = trial_open(j, "plan_step", 1, "%d sequences, %d pages of %d left, budget %d", s.n, s.left,
                                     s.B, s.budget);
        trial_copy(r, 0, 0, s.length, bytes, BUFFER_IN);
        trial_copy(r, 0, 1, s.computed, bytes, BUFFER_BOTH);
        trial_copy(r, 0, 2, s.pages, bytes, BUFFER_BOTH);
        trial_copy(r, 0, 3, &s.left, sizeof s.left, BUFFER_BOTH);
        trial_buffer(r, 0, 4, bytes, BUFFER_OUT);
        r->device[0].number[0] = s.n, r->device[0].number[1] = s.B, r->device[0].number[2] = s.budget;
        const int running = plan_here(j, &s);
        if (trial_call(r)) expect_step(r, &s, running, had);
        trial_close(r);
    }
}

static void check_plan(struct judge *j) { try_plan(j, ROOM_FOR_ALL); }
static void check_preempts(struct judge *j) { try_plan(j, ROOM_FOR_SOME); }
static void check_itself(struct judge *j) { try_plan(j, ROOM_FOR_OTHERS); }

static const char *const functions[] = { "place_of", "attend", "found_pages", "release_pages", "plan_step", NULL };

extern const struct lesson lesson_24_pages;
const struct lesson lesson_24_pages = {
    .folder = "24_pages", .title = "A cache in pages", .file = "pages.c", .functions = functions,
    .vary = { { "HALVES", 2 }, { "CHUNK", 2 } },
    .check = {
        { 1, "place", "a token is found by its page", 2, { check_place },
          { "Which entry of the table has the token, and which token of that page is it?" } },
        { 2, "attend", "attention reads the sequence's own pages", 4, { check_attend },
          { "place_of says where each token's key and value are.",
            "The last page may have room for more tokens than there are: only n count.",
            "Divide by the sum of all weights at the end." } },
        { 2, "large", "large scores do not overflow", 2, { check_large },
          { "In fp32 exp(89) is infinite.",
            "Weights stay the same if all scores become smaller by the same number." } },
        { 3, "prefix", "pages with the prompt's tokens are found", 3, { check_prefix },
          { "The first page has the page -1 before it.",
            "The next one has the page before it that was found last." } },
        { 3, "last", "the last token is computed", 2, { check_last },
          { "Without the last token nobody knows the next one's logits.  So n - 1 tokens can be found." } },
        { 3, "apart", "the same tokens elsewhere are others", 2, { check_apart },
          { "Keys and values of a token depend on all tokens before it.", "Compare before[p], too." } },
        { 4, "release", "a page is vacant when nobody uses it", 3, { check_release },
          { "What if another sequence uses the page, too?",
            "The last page of the table goes first: others may still want the beginning." } },
        { 5, "plan", "sequences take tokens in turn", 2, { check_plan },
          { "Three limits: tokens not computed, the most for one sequence, and what is left of the budget.",
            "Pages for all computed tokens and the new ones, rounded up; of these it has some." } },
        { 5, "preempts", "the last sequences give up their pages", 3, { check_preempts },
          { "Who began last is preempted first, until the pages suffice.",
            "A preempted sequence computes all its tokens again: computed is 0." } },
        { 5, "itself", "a sequence may have to give up its own", 1, { check_itself },
          { "If the last sequence that runs is the one that lacks pages, it stops, too." } },
    },
};
