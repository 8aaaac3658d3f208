/* packing.c -- packs samples into sequences by best-fit decreasing, in time proportional to samples and S.
 *
 * samples.c calls this file.  Errors are ERR_USAGE for a length outside 1 ..  S, and ERR_MEMORY; then there is nothing
 * to free.
 */
#include "ref/io/packing.h"
#include <stdlib.h>
#include <string.h>

/* Sequences by the number of their free tokens, and samples by their length: lists that begin at [0 .. S]. */
struct lists { int64_t *head, *next; };

static void push(struct lists *lists, int64_t at, int64_t item)
{
    lists->next[item] = lists->head[at], lists->head[at] = item;
}

static int64_t pop(struct lists *lists, int64_t at)
{
    const int64_t item = lists->head[at];
    lists->head[at] = lists->next[item];
    return item;
}

static struct lists lists_open(int64_t S, int64_t items)
{
    struct lists l = { malloc((size_t)(S + 1) * sizeof *l.head), malloc((size_t)items * sizeof *l.next + 1) };
    for (int64_t i = 0; l.head && i <= S; i++) l.head[i] = -1;
    return l;
}

static void lists_close(struct lists *lists) { free(lists->head), free(lists->next); }

static enum error_code copy_lengths(struct packing *packing, const int64_t *length, struct error *err)
{
    for (int64_t i = 0; i < packing->samples; i++) {
        if (length[i] < 1 || length[i] > packing->S)
            return fail(err, ERR_USAGE, "sample %lld has %lld tokens; a sequence has room for 1 to %lld",
                        (long long)i + 1, (long long)length[i], (long long)packing->S);
        packing->length[i] = length[i], packing->start[i] = packing->tokens;
        packing->tokens += length[i], packing->pairs += (double)length[i] * (double)(length[i] + 1) / 2;
    }
    return OK;
}

/* The sequence for a sample: that with the fewest free tokens that suffice, else a new one. */
static int64_t best_fit(struct packing *packing, struct lists *free_, int64_t length)
{
    for (int64_t room = length; room < packing->S; room++)
        if (free_->head[room] >= 0) {
            const int64_t sequence = pop(free_, room);
            push(free_, room - length, sequence);
            return sequence;
        }
    push(free_, packing->S - length, packing->sequences);
    return packing->sequences++;
}

/* In descending length, of equal lengths in their order.  @param[out] of  the sequence of each sample. */
static void packing_place(struct packing *packing, struct lists *by_length, struct lists *free_, int64_t *of)
{
    /* A list gives its last item first, so samples are pushed from the last one back. */
    for (int64_t i = packing->samples - 1; i >= 0; i--) push(by_length, packing->length[i], i);
    for (int64_t n = packing->S; n > 0; n--)
        while (by_length->head[n] >= 0) {
            const int64_t sample = pop(by_length, n);
            of[sample] = best_fit(packing, free_, n);
        }
}

/* Samples of a sequence are listed in their order in the text. */
static enum error_code put_in_order(struct packing *packing, const int64_t *of, struct error *err)
{
    packing->first = calloc((size_t)packing->sequences + 2, sizeof *packing->first);
    if (packing->first == NULL)
        return fail(err, ERR_MEMORY, "no memory for %lld sequences", (long long)packing->sequences);
    /* Counted two places on, first[s + 1] moves from the start of sequence s to its end as samples are listed. */
    for (int64_t i = 0; i < packing->samples; i++) packing->first[of[i] + 2]++;
    for (int64_t s = 0; s < packing->sequences; s++) packing->first[s + 2] += packing->first[s + 1];
    for (int64_t i = 0; i < packing->samples; i++) packing->order[packing->first[of[i] + 1]++] = i;
    return OK;
}

/* packing->order lists samples by sequences: those of sequence s are order[first[s]] .. order[first[s + 1] - 1]. */
enum error_code packing_make(struct packing *packing, const int64_t *length, int64_t samples, int64_t S,
                             struct error *err)
{
    const size_t bytes = (size_t)samples * sizeof *length + 1;
    struct lists by_length = lists_open(S, samples), free_ = lists_open(S, samples);
    int64_t *of = malloc(bytes);
    *packing = (struct packing){ .S = S, .samples = samples, .length = malloc(bytes), .start = malloc(bytes),
                           .order = malloc(bytes) };
    enum error_code e = of && by_length.head && by_length.next && free_.head && free_.next && packing->length
        && packing->start &&
                                packing->order
                            ? copy_lengths(packing, length, err)
                            : fail(err, ERR_MEMORY, "no memory to pack %lld samples", (long long)samples);
    if (!e) packing_place(packing, &by_length, &free_, of), e = put_in_order(packing, of, err);
    free(of), lists_close(&by_length), lists_close(&free_);
    if (e) packing_free(packing);
    return e;
}

void packing_free(struct packing *packing)
{
    free(packing->length), free(packing->start), free(packing->order), free(packing->first);
    free(packing->patches);
    *packing = (struct packing){ 0 };
}
