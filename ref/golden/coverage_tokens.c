/* coverage_tokens.c -- looks at the tokens and labels of a batch: borders of the vocabulary, repeats, counted labels.
 *
 * The table of coverage.c has these looks, and cover.c asks where borders are.  No function here can fail.
 */
#include "ref/golden/coverage_rows.h"
#include "ref/numeric/float16.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BF16_EXACT = 256 };              /* all whole numbers up to this one are bf16 numbers */

void words_add(struct words *words, const char *format, ...)
{
    const size_t used = strlen(words->text);
    va_list list;
    va_start(list, format);
    if (used < words->size) vsnprintf(words->text + used, words->size - used, format, list);
    va_end(list);
}

/* ---- the vocabulary ---------------------------------------------------------------------------------------------- */

int coverage_most_ranks(const struct model_config *config)
{
    const int64_t most = config->H < config->V ? config->H : config->V;
    return most < COVERAGE_MOST_RANKS ? (int)most : COVERAGE_MOST_RANKS;
}

/* Where shard r begins, of shards that differ by one token, the larger first; or of a size that is rounded up. */
static int64_t shard_begin(int64_t V, int ranks, int r, bool rounded_up)
{
    const int64_t least = V / ranks, more = V % ranks;
    const int64_t begin = rounded_up ? r * (least + (more > 0)) : r * least + (r < more ? r : more);
    return begin < V ? begin : V;
}

static void border_add(const struct model_config *config, int64_t token, int64_t *list, int *count)
{
    bool known = token < 0 || token >= config->V || token + 1 == config->padding;
    for (int i = 0; i < *count; i++) known = known || list[i] == token;
    if (!known) list[(*count)++] = token;
}

int coverage_borders(const struct model_config *config, int ranks, int64_t token[COVERAGE_MOST_BORDERS])
{
    int count = 0;
    if (ranks == 1) border_add(config, 0, token, &count), border_add(config, config->V - 1, token, &count);
    for (int r = 1; r < ranks; r++)
        for (int rounded_up = 0; rounded_up < 2; rounded_up++) {
            const int64_t begin = shard_begin(config->V, ranks, r, rounded_up);
            border_add(config, begin - 1, token, &count), border_add(config, begin, token, &count);
        }
    return count;
}

int coverage_all_borders(const struct model_config *config, int64_t token[COVERAGE_ALL_BORDERS])
{
    int count = 0;
    for (int ranks = 1; ranks <= coverage_most_ranks(config); ranks++) {
        int64_t border[COVERAGE_MOST_BORDERS];
        const int n = coverage_borders(config, ranks, border);
        for (int i = 0; i < n; i++) border_add(config, border[i], token, &count);
    }
    return count;
}

static bool list_has(const int32_t *list, int64_t n, int64_t token)
{
    for (int64_t i = 0; i < n; i++)
        if (list[i] == token) return true;
    return false;
}

/* Say which border tokens are not in the list, for each number of ranks. */
static bool lacks_borders(const struct golden *golden, const int32_t *list, struct words *words)
{
    enum { SHOWN = 4 };
    bool any = false;
    for (int ranks = 1; ranks <= coverage_most_ranks(&golden->config); ranks++) {
        int64_t border[COVERAGE_MOST_BORDERS];
        int missing = 0;
        const int count = coverage_borders(&golden->config, ranks, border);
        for (int i = 0; i < count; i++) {
            if (list_has(list, coverage_tokens(golden), border[i])) continue;
            if (missing++ < SHOWN) words_add(words, "%s %lld", any ? "," : "", (long long)border[i]);
            any = true;
        }
        if (missing > SHOWN) words_add(words, " and %d more", missing - SHOWN);
        if (missing > 0) words_add(words, " (tp=%d)", ranks);
    }
    return any;
}

bool lacks_border_labels(const struct coverage_view *view, struct words *words)
{
    words_add(words, "no label is one of these tokens at borders of the vocabulary:");
    return lacks_borders(view->golden, view->golden->labels, words);
}

bool lacks_border_tokens(const struct coverage_view *view, struct words *words)
{
    words_add(words, "no input is one of these tokens at borders of the vocabulary:");
    return lacks_borders(view->golden, view->golden->ids, words);
}

/* A drawn batch has room for a border token at each token but a sequence's first and those without a label. */
static int64_t rooms_for_borders(const struct golden *golden, int64_t sequences)
{
    int64_t rooms = 0;
    for (int64_t b = 0; b < sequences; b++) {
        const int64_t room = golden->S - 1 - coverage_ignored(golden, b);
        rooms += room > 0 ? room : 0;
    }
    return rooms;
}

void needs_borders(const struct coverage_view *view, struct words *words)
{
    const struct golden *g = view->golden;
    int64_t token[COVERAGE_ALL_BORDERS], sequences = 1;
    const int count = coverage_all_borders(&g->config, token);
    if (g->S < 4) {
        words_add(words, "--tokens 4 or more");
        return;
    }
    while (rooms_for_borders(g, sequences) < count) sequences++;
    if (sequences > g->B) words_add(words, "--sequences %lld, or more tokens", (long long)sequences);
}

/* ---- tokens and labels ------------------------------------------------------------------------------------------- */

void needs_two_tokens(const struct coverage_view *view, struct words *words)
{
    if (view->golden->S < 2) words_add(words, "--tokens 2 or more");
}

bool lacks_repeats(const struct coverage_view *view, struct words *words)
{
    const struct golden *g = view->golden;
    words_add(words, "no token occurs twice in a sequence");
    for (int64_t b = 0; b < g->B; b++)
        for (int64_t s = 1; s < g->S; s++)
            if (list_has(g->ids + b * g->S, s, g->ids[b * g->S + s])) return false;
    return true;
}

bool lacks_ignored(const struct coverage_view *view, struct words *words)
{
    words_add(words, "no label is ignored");
    return !list_has(view->golden->labels, coverage_tokens(view->golden), IGNORE_LABEL);
}

bool lacks_last_labels(const struct coverage_view *view, struct words *words)
{
    const struct golden *g = view->golden;
    words_add(words, "the last token of no sequence has a label");
    for (int64_t b = 0; b < g->B; b++)
        if (g->labels[b * g->S + g->S - 1] != IGNORE_LABEL) return false;
    return true;
}

/* How a program may cut a batch among `parts` ranks: sequences side by side or in turn, tokens side by side or in
 * mirrored pairs (zigzag). */
enum cut { CUT_SEQUENCES, CUT_SEQUENCES_IN_TURN, CUT_TOKENS, CUT_TOKENS_ZIGZAG };

static int64_t part_of(const struct golden *golden, enum cut cut, int64_t parts, int64_t token)
{
    const int64_t b = token / golden->S, s = token % golden->S, chunk = s * 2 * parts / golden->S;
    const int64_t least = golden->B / parts, larger = golden->B % parts * (least + 1);
    switch (cut) {
    case CUT_SEQUENCES: return b < larger ? b / (least + 1) : golden->B % parts + (b - larger) / least;
    case CUT_SEQUENCES_IN_TURN: return b % parts;
    case CUT_TOKENS: return s * parts / golden->S;
    default: return chunk < parts ? chunk : 2 * parts - 1 - chunk;
    }
}

static bool counts_are_equal(const struct golden *golden, enum cut cut, int64_t parts)
{
    int64_t count[COVERAGE_MOST_RANKS] = { 0 };
    for (int64_t i = 0; i < coverage_tokens(golden); i++)
        count[part_of(golden, cut, parts, i)] += golden->labels[i] != IGNORE_LABEL;
    for (int64_t r = 1; r < parts; r++)
        if (count[r] != count[0]) return false;
    return true;
}

/* Say for which numbers of parts all have as many labels, in either way to cut. */
static bool lacks_uneven(const struct golden *golden, enum cut one, enum cut other, int64_t most, const char *over,
                         struct words *words)
{
    bool any = false;
    for (int64_t parts = 2; parts <= most && parts <= COVERAGE_MOST_RANKS; parts++) {
        if (!counts_are_equal(golden, one, parts) && !counts_are_equal(golden, other, parts)) continue;
        words_add(words, "%s%lld", any ? ", " : over, (long long)parts);
        any = true;
    }
    words_add(words, ", each part of the batch has as many labels that count");
    return any;
}

bool lacks_uneven_sequences(const struct coverage_view *view, struct words *words)
{
    return lacks_uneven(view->golden, CUT_SEQUENCES, CUT_SEQUENCES_IN_TURN, view->golden->B,
                        "along dp or in microbatches, at ", words);
}

bool lacks_uneven_tokens(const struct coverage_view *view, struct words *words)
{
    return lacks_uneven(view->golden, CUT_TOKENS, CUT_TOKENS_ZIGZAG, view->golden->S / 2, "along cp, at ", words);
}

static int64_t labels_that_count(const struct golden *golden)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < coverage_tokens(golden); i++) counted += golden->labels[i] != IGNORE_LABEL;
    return counted;
}

bool lacks_a_count_beyond_bf16(const struct coverage_view *view, struct words *words)
{
    const int64_t counted = labels_that_count(view->golden);
    words_add(words, "%lld labels count, a number that bf16 holds", (long long)counted);
    return bf16_to_double(bf16_from_double((double)counted)) == (double)counted;
}

void needs_more_labels(const struct coverage_view *view, struct words *words)
{
    const struct golden *g = view->golden;
    int64_t sequences = 0, labels = 0;
    while (labels <= BF16_EXACT + 1 && sequences < BF16_EXACT + 2) {
        const int64_t counted = g->S - coverage_ignored(g, sequences++);
        labels += counted > 0 ? counted : 0;
    }
    if (sequences > g->B) words_add(words, "--sequences %lld, or more tokens", (long long)sequences);
}

/* ---- what a drawn batch ignores ---------------------------------------------------------------------------------- */

int64_t coverage_ignored(const struct golden *golden, int64_t b)
{
    const int64_t some = golden->S / 4 > 1 ? golden->S / 4 : 1;
    if (golden->B * golden->S == 1) return 0;
    return b == 0 ? some : 0;
}
