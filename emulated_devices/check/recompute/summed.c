/* summed.c -- operations that read a sum whose parts ranks have.
 *
 * Nobody knows the exact sum: whoever reads the parts adds them up in the format, in any order.  A program does either:
 *     it adds the parts up, then computes     the input is off by a rounding of each addition, e.  The result is then
 *                                             off by the operation's slope times e.  PROBES random signs s give the
 *                                             size of this: by Higham and Mary, of each element ten times the root
 *                                             mean square of f(x + s e) - f(x)
 *     it computes with each part, then adds   a backward pass is linear in the gradient, so parts of a result come from
 *                                             parts of the gradient; bounds are those of the parts together.  Ranks
 *                                             with copies of key/value heads do so
 * Where the result has parts, too, the second is certain.  Else both are allowed.
 * walk.c calls sums_run for a pass that lacks nothing but the exact sum.
 */
#include "emulated_devices/check/recompute/summed.h"
#include <string.h>

/* Estimated from 8 signs, a root mean square is seldom below a third of the true one; errors are uniform, so ten times
 * the estimate is then still five of their standard deviations. */
enum { PROBES = 8 };
static const double TIMES_ROOT = 10,
    WIDE = 0.1, TOO_WIDE = 1;           /* of the result, norm over norm: what is outside such a bound is left open, and
                                         * all is beyond the second (docs/checking/checking.md) */

/* A sign for an element of a probe: the lowest bit of a hash (splitmix64). */
static double sign_of(int probe, int64_t i)
{
    uint64_t x = (uint64_t)i * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)probe * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (x ^ (x >> 31)) & 1 ? 1 : -1;
}

void sums_probe(const struct single *single, struct tensor x, struct single_sizes sizes)
{
    const struct single_sum_reading *const sum = &single->reading.sum;
    const int64_t first = single->cursor.first * tensor_cols(x);
    for (int64_t i = 0; !single->failed && i < tensor_count(x); i++) {
        const double off =
            (sizes.parts - 1) * rounding_when_stored(&single->rounding, numbers(sizes.absolute)[i], 0);
        numbers(x)[i] = (sum->gradient ? 0 : numbers(x)[i]) + sign_of(sum->number, first + i) * off;
    }
}

struct single_value sums_take(struct single *single, const struct single_node *node, single_pass *pass,
                              struct single_sum_reading as)
{
    const struct single_reading outer = single_read_anew(single);
    single->reading.sum = as;
    const struct single_value value = pass(single, node);
    const enum single_status status = single_status(single);
    single->reading = outer;
    return status == SINGLE_DONE ? value : (struct single_value){ .status = status };
}

/* Add to `off` how far a result may be off because its input is a rounded sum. */
static void add_probes(struct single *single, const struct single_node *node, single_pass *pass,
                       struct single_sum_reading sum, const struct single_value *exact, struct tensor off)
{
    const int used = single->memory.used;
    const struct tensor squares = single_new(single, tensor_rows(off), tensor_cols(off));
    const int kept = single->memory.used;
    sum.take = SUM_PROBE;
    for (sum.number = 1; sum.number <= PROBES && !single->failed; sum.number++) {
        const struct single_value one = sums_take(single, node, pass, sum);
        for (int64_t i = 0; one.status == SINGLE_DONE && i < tensor_count(off); i++) {
            const double d = numbers(one.y)[i] - (sum.gradient ? 0 : numbers(exact->y)[i]);
            numbers(squares)[i] += d * d / PROBES;
        }
        single_release(single, kept);
    }
    for (int64_t i = 0; !single->failed && i < tensor_count(off); i++)
        numbers(off)[i] += TIMES_ROOT * sqrt(numbers(squares)[i]);
    single_release(single, used);
}

/* The bounds of what all parts give: each is stored.  added: the program adds the results up, one by one. */
static void take_parts(struct single *single, const struct single_node *node, single_pass *pass,
                       struct single_sum_reading sum, bool added, struct single_value *value)
{
    const struct tensor absolute = single_new(single, tensor_rows(value->y), tensor_cols(value->y));
    const int used = single->memory.used;
    if (single->failed) return;
    memset(value->fused.data, 0, tensor_bytes(value->fused)), memset(value->steps.data, 0, tensor_bytes(value->steps));
    sum.take = SUM_PART;
    for (sum.number = 0; sum.number <= sum.parts && !single->failed; sum.number++) {
        const struct single_value part = single_settled(single, sums_take(single, node, pass, sum));
        for (int64_t i = 0; part.status == SINGLE_DONE && !single->failed && i < tensor_count(value->y); i++) {
            numbers(absolute)[i] += fabs(numbers(part.y)[i]);
            numbers(value->fused)[i] += numbers(part.fused)[i], numbers(value->steps)[i] += numbers(part.steps)[i];
        }
        single_release(single, used);
    }
    for (int64_t i = 0; added && !single->failed && i < tensor_count(value->y); i++) {
        const double off = (sum.parts - 1) * rounding_when_stored(&single->rounding, numbers(absolute)[i], 0);
        numbers(value->fused)[i] += off, numbers(value->steps)[i] += off;
    }
    value->stored = true;
}

/* Whether so much of a result, norm over norm, is rounding. */
static bool is_wider(struct tensor off, struct tensor y, double than)
{
    double offs = 0, size = 0;
    for (int64_t i = 0; i < tensor_count(y); i++)
        offs += numbers(off)[i] * numbers(off)[i], size += numbers(y)[i] * numbers(y)[i];
    return offs > than * than * size;
}

struct single_value sums_run(struct single *single, const struct single_node *node, single_pass *pass)
{
    struct single_sum_reading sum = single->reading.sum;
    const struct single_reading lacking = single->reading;
    const struct single_name result = single_name("", single->verdict.result.name);
    single->reading = (struct single_reading){ 0 };
    const bool in_parts = single_has_parts(single, result);
    sum.take = SUM_WHOLE;
    struct single_value value = !in_parts || sum.gradient ? sums_take(single, node, pass, sum) : single_stop(single);
    const bool done = (!in_parts || sum.gradient) && value.status == SINGLE_DONE && !single->failed;
    const struct tensor off = done ? single_new(single, tensor_rows(value.y), tensor_cols(value.y)) : tensor_none;
    if (done && !in_parts) add_probes(single, node, pass, sum, &value, off);
    if (!done || single->failed || is_wider(off, value.y, TOO_WIDE)) {
        single->reading = lacking;
        return single_stop(single);
    }
    if (is_wider(off, value.y, WIDE)) memcpy(single->verdict.doubt, lacking.lacks, sizeof single->verdict.doubt);
    if (sum.gradient) take_parts(single, node, pass, sum, !in_parts, &value);
    for (int64_t i = 0; !single->failed && i < tensor_count(value.y); i++)
        numbers(value.fused)[i] += numbers(off)[i], numbers(value.steps)[i] += numbers(off)[i];
    return value;
}
