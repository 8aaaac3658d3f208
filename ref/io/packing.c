#include "ref/io/packing.h"
#include <stdlib.h>
#include <string.h>

/* Sequences by the number of their free tokens, and samples by their length: lists that begin at [0 .. S]. */
struct lists { int64_t *head, *next; };

static void push(struct lists *l, int64_t at, int64_t item) { l->next[item] = l->head[at], l->head[at] = item; }

static int64_t pop(struct lists *l, int64_t at)
{
    const int64_t item = l->head[at];
    l->head[at] = l->next[item];
    return item;
}

static struct lists lists_open(int64_t S, int64_t items)
{
    struct lists l = { malloc((size_t)(S + 1) * sizeof *l.head), malloc((size_t)items * sizeof *l.next + 1) };
    for (int64_t i = 0; l.head && i <= S; i++) l.head[i] = -1;
    return l;
}

static void lists_close(struct lists *l) { free(l->head), free(l->next); }

static enum error_code copy_lengths(struct packing *p, const int64_t *length, struct error *err)
{
    for (int64_t i = 0; i < p->samples; i++) {
        if (length[i] < 1 || length[i] > p->S)
            return fail(err, ERR_USAGE, "sample %lld has %lld tokens; a sequence has room for 1 to %lld",
                        (long long)i + 1, (long long)length[i], (long long)p->S);
        p->length[i] = length[i], p->start[i] = p->tokens;
        p->tokens += length[i], p->pairs += (double)length[i] * (double)(length[i] + 1) / 2;
    }
    return OK;
}

/* The sequence for a sample: that with the fewest free tokens that suffice, else a new one. */
static int64_t best_fit(struct packing *p, struct lists *free_, int64_t length)
{
    for (int64_t room = length; room < p->S; room++)
        if (free_->head[room] >= 0) {
            const int64_t sequence = pop(free_, room);
            push(free_, room - length, sequence);
            return sequence;
        }
    push(free_, p->S - length, p->sequences);
    return p->sequences++;
}

/* In descending length, of equal lengths in their order.  @param[out] of  the sequence of each sample. */
static void place(struct packing *p, struct lists *by_length, struct lists *free_, int64_t *of)
{
    /* A list gives its last item first, so samples are pushed from the last one back. */
    for (int64_t i = p->samples - 1; i >= 0; i--) push(by_length, p->length[i], i);
    for (int64_t n = p->S; n > 0; n--)
        while (by_length->head[n] >= 0) {
            const int64_t sample = pop(by_length, n);
            of[sample] = best_fit(p, free_, n);
        }
}

static enum error_code put_in_order(struct packing *p, const int64_t *of, struct error *err)
{
    p->first = calloc((size_t)p->sequences + 2, sizeof *p->first);
    if (p->first == NULL) return fail(err, ERR_MEMORY, "no memory for %lld sequences", (long long)p->sequences);
    /* Counted two places on, first[s + 1] moves from the start of sequence s to its end as samples are listed. */
    for (int64_t i = 0; i < p->samples; i++) p->first[of[i] + 2]++;
    for (int64_t s = 0; s < p->sequences; s++) p->first[s + 2] += p->first[s + 1];
    for (int64_t i = 0; i < p->samples; i++) p->order[p->first[of[i] + 1]++] = i;
    return OK;
}

enum error_code packing_make(struct packing *p, const int64_t *length, int64_t samples, int64_t S, struct error *err)
{
    const size_t bytes = (size_t)samples * sizeof *length + 1;
    struct lists by_length = lists_open(S, samples), free_ = lists_open(S, samples);
    int64_t *of = malloc(bytes);
    *p = (struct packing){ .S = S, .samples = samples, .length = malloc(bytes), .start = malloc(bytes),
                           .order = malloc(bytes) };
    enum error_code e = of && by_length.head && by_length.next && free_.head && free_.next && p->length && p->start &&
                                p->order
                            ? copy_lengths(p, length, err)
                            : fail(err, ERR_MEMORY, "no memory to pack %lld samples", (long long)samples);
    if (!e) place(p, &by_length, &free_, of), e = put_in_order(p, of, err);
    free(of), lists_close(&by_length), lists_close(&free_);
    if (e) packing_free(p);
    return e;
}

void packing_free(struct packing *p)
{
    free(p->length), free(p->start), free(p->order), free(p->first);
    *p = (struct packing){ 0 };
}
