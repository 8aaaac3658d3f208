/* masked.c -- evaluates policies of masked-diffusion models on tasks whose answers are known.  masked_claims.c calls.
 * Errors: ERR_MEMORY. */
#include "emulated_devices/bench/serving/masked.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- distributions ----------------------------------------------------------------------------------------------- */

/* Answers of a list: the task's, in some order. */
struct answers { const struct masked_task *task; int64_t *number; int64_t count; };

static const int8_t *answer_at(const struct answers *a, int64_t i)
{
    return a->task->answer + a->number[i] * a->task->length;
}

/* Probabilities of each place's tokens among the answers. */
static void distributions(const struct answers *a, double *p)
{
    const int length = a->task->length, words = a->task->words;
    memset(p, 0, (size_t)(length * words) * sizeof *p);
    for (int64_t i = 0; i < a->count; i++)
        for (int at = 0; at < length; at++) p[at * words + answer_at(a, i)[at]] += 1;
    for (int i = 0; i < length * words; i++) p[i] /= (double)a->count;
}

/* ---- which places ------------------------------------------------------------------------------------------------ */

struct candidate_place { int at; double key; };

/* The largest key first; equals from the left. */
static int by_key(const void *a, const void *b)
{
    const struct candidate_place *const x = a, *const y = b;
    return x->key != y->key ? (x->key < y->key) - (x->key > y->key) : (x->at > y->at) - (x->at < y->at);
}

static double confidence_of(const double *p, int words)
{
    double most = 0;
    for (int v = 0; v < words; v++) most = fmax(most, p[v]);
    return most;
}

/* The first block from the left with a masked place. */
static int first_block(const struct masked_task *task, int block, const int8_t *token, int *end)
{
    int at = 0;
    while (at < task->length && token[at] != MASKED) at++;
    const int first = at / block * block;
    *end = first + block < task->length ? first + block : task->length;
    return first;
}

/* Places that a pass of a fixed number takes: of n in `steps` passes, the first n % steps take one more. */
static int share_of(int n, int steps, int step)
{
    return n / steps + (step < n % steps);
}

static int count_taken(const struct masked_policy *policy, const struct candidate_place *place, int masked, int all)
{
    int n = 1;
    switch (policy->order) {
    case ORDER_THRESHOLD:
        while (n < masked && place[n].key >= policy->threshold) n++;
        return n;
    case ORDER_FACTOR:
        while (n < masked && place[n].key >= 1 - policy->threshold / (n + 2)) n++;
        return n;
    case ORDER_RANDOM:
    case ORDER_CONFIDENCE:
        break;
    }
    /* The pass of the block is known from what it has left. */
    int step = 0, left = all;
    while (left > masked) left -= share_of(all, policy->steps, step++);
    return step < policy->steps ? share_of(all, policy->steps, step) : masked;
}

int masked_choose(const struct masked_task *task, const struct masked_policy *policy, const double *p,
                  const int8_t *token, int pass, uint64_t seed, int *place)
{
    struct candidate_place all[MASKED_MOST];
    int end, masked = 0;
    const int block = policy->block > 0 ? policy->block : task->length, first = first_block(task, block, token, &end);
    for (int at = first; at < end; at++) {
        if (token[at] != MASKED) continue;
        const uint64_t number = (uint64_t)(pass * MASKED_MOST + at);
        all[masked++] = (struct candidate_place){
            at, policy->order == ORDER_RANDOM ? random_uniform(seed, random_stream("masked places"), number)
                                              : confidence_of(p + at * task->words, task->words) };
    }
    if (masked == 0) return 0;
    qsort(all, (size_t)masked, sizeof *all, by_key);
    int n = count_taken(policy, all, masked, end - first);
    if (n > masked) n = masked;
    for (int i = 0; i < n; i++) place[i] = all[i].at;
    return n;
}

/* ---- all answers ------------------------------------------------------------------------------------------------- */

/* One evaluation. */
struct evaluation { const struct masked_policy *policy; uint64_t seed; bool failed; };

/* The answers of a list with the same tokens at these places come together. */
static void sort_answers(const struct answers *a, const int *place, int places, int64_t *to)
{
    int64_t *from = a->number;
    for (int i = places - 1; i >= 0; i--) {
        int64_t begin[129] = { 0 };
        for (int64_t k = 0; k < a->count; k++) begin[answer_at(a, k)[place[i]] + 1]++;
        for (int v = 0; v < a->task->words; v++) begin[v + 1] += begin[v];
        for (int64_t k = 0; k < a->count; k++)
            to[begin[a->task->answer[from[k] * a->task->length + place[i]]]++] = from[k];
        memcpy(from, to, (size_t)a->count * sizeof *to);
    }
}

static bool same_at(const struct answers *a, int64_t i, int64_t k, const int *place, int places)
{
    for (int j = 0; j < places; j++)
        if (answer_at(a, i)[place[j]] != answer_at(a, k)[place[j]]) return false;
    return true;
}

/* From here on: all tokens that agree with the answers are there. */
static struct masked_result evaluate(struct evaluation *e, const struct answers *a, const int8_t *token, int pass)
{
    struct masked_result sum = { 0, 0, 1 };
    int place[MASKED_MOST];
    int8_t next[MASKED_MOST];
    const int words = a->task->words;
    double *const p = malloc((size_t)(a->task->length * words) * sizeof *p);
    int64_t *const room = malloc((size_t)a->count * sizeof *room);
    if (p == NULL || room == NULL) return free(p), free(room), e->failed = true, sum;
    distributions(a, p);
    const int places = masked_choose(a->task, e->policy, p, token, pass, e->seed, place);
    if (places == 0) return free(p), free(room), (struct masked_result){ 1, 0, 0 };
    sort_answers(a, place, places, room);
    for (int64_t i = 0, n; i < a->count && !e->failed; i += n) {
        double q = 1;
        for (n = 1; i + n < a->count && same_at(a, i, i + n, place, places); n++) continue;
        memcpy(next, token, sizeof next);
        for (int j = 0; j < places; j++) {
            next[place[j]] = answer_at(a, i)[place[j]];
            q *= p[place[j] * words + next[place[j]]];
        }
        const struct answers some = { a->task, a->number + i, n };
        const struct masked_result r = evaluate(e, &some, next, pass + 1);
        const double part = (double)n / (double)a->count;
        sum.validity += q * r.validity, sum.loss += part * (log(part / q) + r.loss), sum.passes += part * r.passes;
    }
    free(p), free(room);
    return sum;
}

enum error_code masked_evaluate(const struct masked_task *task, const struct masked_policy *policy, uint64_t seed,
                                struct masked_result *result, struct error *err)
{
    struct answers all = { task, malloc((size_t)task->count * sizeof *all.number), task->count };
    struct evaluation e = { policy, seed, all.number == NULL };
    int8_t token[MASKED_MOST];
    memset(token, MASKED, sizeof token);
    for (int64_t i = 0; i < task->count && all.number; i++) all.number[i] = i;
    if (all.number) *result = evaluate(&e, &all, token, 0);
    free(all.number);
    return e.failed ? fail(err, ERR_MEMORY, "no memory for %lld answers", (long long)task->count) : OK;
}

/* ---- one answer -------------------------------------------------------------------------------------------------- */

static int8_t draw_word(const double *p, int words, double u)
{
    double sum = 0;
    for (int v = 0; v < words - 1; v++)
        if ((sum += p[v]) > u) return (int8_t)v;
    return (int8_t)(words - 1);
}

/* Keep the answers with this token at this place. */
static void keep_answers(struct answers *a, int at, int8_t token)
{
    int64_t n = 0;
    for (int64_t i = 0; i < a->count; i++)
        if (answer_at(a, i)[at] == token) a->number[n++] = a->number[i];
    a->count = n;
}

bool masked_decode(const struct masked_task *task, const struct masked_policy *policy, uint64_t seed, int8_t *token)
{
    struct answers left = { task, malloc((size_t)task->count * sizeof *left.number), task->count };
    double *const p = malloc((size_t)(task->length * task->words) * sizeof *p);
    int place[MASKED_MOST], places = 1;
    memset(token, MASKED, (size_t)task->length);
    for (int64_t i = 0; i < task->count && left.number; i++) left.number[i] = i;
    for (int pass = 0; places > 0 && p && left.number && left.count > 0; pass++) {
        distributions(&left, p);
        places = masked_choose(task, policy, p, token, pass, seed, place);
        for (int j = 0; j < places; j++) {
            const uint64_t number = (uint64_t)(pass * MASKED_MOST + place[j]);
            token[place[j]] = draw_word(p + place[j] * task->words, task->words,
                                        random_uniform(seed, random_stream("masked tokens"), number));
        }
        for (int j = 0; j < places; j++) keep_answers(&left, place[j], token[place[j]]);
    }
    const bool right = left.number && p && left.count > 0;
    free(left.number), free(p);
    return right;
}

struct masked_result masked_shuffle_formula(int n)
{
    const double loss = n * log(n) - lgamma(n + 1.0);
    return (struct masked_result){ .validity = exp(-loss), .loss = loss, .passes = 1 };
}
