/* steps.c -- recomputes the steps of an optimizer and the sums over microbatches from the program's own tensors.
 * report/singles.c calls single_check_norms, single_check_step and single_check_micros; mistakes/steps.c uses
 * stepping.h.  Verdicts are results, not errors: only reading and memory fail. */
#include "emulated_devices/check/recompute/steps.h"
#include "ref/model/params.h"
#include "ref/optim/factors.h"
#include "emulated_devices/check/recompute/stepping.h"
#include "ref/model/config.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

struct single_name stepping_after(const struct single_steps *steps, int64_t k, const char *what, const char *param)
{
    struct single_name n;
    if (k < 0) snprintf(n.text, sizeof n.text, "start/%s", param);
    else if (k + 1 == steps->steps) snprintf(n.text, sizeof n.text, "%s/%s/%s", steps->optimizer, what, param);
    else snprintf(n.text, sizeof n.text, "%s/%lld/%s/%s", steps->optimizer, (long long)k + 1, what, param);
    return n;
}

struct single_name stepping_gradient(const struct single_steps *steps, int64_t k, const char *param)
{
    struct single_name n;
    if (k == 0) snprintf(n.text, sizeof n.text, "grad/%s", param);
    else snprintf(n.text, sizeof n.text, "%s/%lld/grad/%s", steps->optimizer, (long long)k + 1, param);
    return n;
}

/* ---- what a step reads ------------------------------------------------------------------------------------------- */

/* Read the rows of a tensor that are now computed. */
static struct tensor steps_input(const struct stepping *stepping, struct single_name name)
{
    return single_input_block(stepping->s, name, (struct single_block){ stepping->first, stepping->rows },
                              stepping->whole, stepping->cols);
}

/* Find the unit roundoff of the format that a tensor has been rounded to: 16 bits if all its numbers are some of that
 * format. */
static double steps_unit_of(const struct stepping *stepping, struct tensor x)
{
    double buffer;
    const struct tensor one = tensor_1d(&buffer, stepping->o->format, 1);
    if (!dtype_is_narrow(stepping->o->format)) return stepping->u;
    for (int64_t i = 0; i < tensor_count(x); i++) {
        tensor_set(one, 0, numbers(x)[i]);
        if (tensor_get(one, 0) != numbers(x)[i]) return stepping->u;
    }
    return dtype_unit(stepping->o->format);
}

/* This is the state or weight before the step, and how far the program's own number may have been from it,
 * relative. */
struct before { struct tensor x; double off, tiny; };

/* States begin at zero.  A rounded copy may be half a spacing from the master. */
static struct before before_of(const struct stepping *stepping, const char *what)
{
    if (stepping->k == 0 && strcmp(what, "weight") != 0)
        return (struct before){ .x = single_new(stepping->s, stepping->rows, stepping->cols) };
    struct before b = { .x = steps_input(stepping,
                                         stepping_after(stepping->o, stepping->k - 1, what, stepping->param.name)) };
    if (single_going(stepping->s) && steps_unit_of(stepping, b.x) > stepping->u)
        b.off = steps_unit_of(stepping, b.x), b.tiny = rounding_of(stepping->o->format, DTYPE_COUNT, 1).tiny;
    return b;
}

/* Read the program's norm of this step: one of those of all steps or, in a file of this step alone, its own number. */
static double stepping_norm(const struct stepping *stepping)
{
    struct single *const s = stepping->s;
    char name[64];
    const struct single_reading outer = single_read_anew(s);
    snprintf(name, sizeof name, "%s/norm", stepping->o->optimizer);
    const struct tensor all = single_input(s, single_name("", name), 1, stepping->o->steps);
    const bool has_all = single_going(s);
    const struct single_reading without_all = single_read_anew(s);
    if (stepping->k == 0) snprintf(name, sizeof name, "norm");
    else snprintf(name, sizeof name, "%s/%lld/norm", stepping->o->optimizer, (long long)stepping->k + 1);
    const struct tensor own = has_all ? tensor_none : single_input(s, single_name("", name), 1, 1);
    const bool has_own = !has_all && single_going(s);
    s->reading = has_all || has_own || outer.lacks[0] ? outer : without_all;
    return has_all ? numbers(all)[stepping->k] : has_own ? numbers(own)[0] : 0;
}

/* The factor of clipping follows from the program's own norm of this step. */
double stepping_clip(const struct stepping *stepping)
{
    if (stepping->o->hyper.clip == 0) return 1;
    const double norm = stepping_norm(stepping);
    return single_going(stepping->s) ? clip_scale(&stepping->o->hyper, norm) : 1;
}

/* ---- results ----------------------------------------------------------------------------------------------------- */

/* Begin a result after the step.  `store` is then the unit of the format that the result has been rounded to. */
static bool steps_begin(struct stepping *stepping, const char *what, const char *words, const struct rounding *usual)
{
    if (!single_begin_block(stepping->s, stepping_after(stepping->o, stepping->k, what, stepping->param.name), words,
                            (struct single_block){ stepping->first, stepping->rows }, stepping->rows < stepping->whole
                                ? stepping->whole : 0, stepping->cols))
        return false;
    /* A result's rounding is its own: a weight may have 32 bits where its state has 16. */
    stepping->s->rounding = *usual;
    stepping->s->rounding.store = steps_unit_of(stepping, stepping->s->verdict.have);
    if (stepping->s->rounding.store == stepping->u) stepping->s->rounding.tiny = stepping->tiny;
    return true;
}

/* These are the numbers that a step of ref/optim reads. */
static struct step steps_step_of(const struct stepping *stepping)
{
    return (struct step){ .lr = stepping->o->lr[stepping->k],
                          .t = stepping->k + 1,
                          .hyper = &stepping->o->hyper,
                          .weight_decay = weight_decay_of(&stepping->o->hyper, stepping->param.decay) };
}

/* This is the gradient of a step.  Where ranks have parts of the gradient, each part is clipped and rounded, then the
 * parts are added. */
struct clipped { struct tensor g; struct single_sizes sizes; double clip; };

static struct clipped clipped_of(const struct stepping *stepping)
{
    const struct single_name name = stepping_gradient(stepping->o, stepping->k, stepping->param.name);
    struct clipped c = { .g = steps_input(stepping, name), .clip = stepping_clip(stepping) };
    if (single_going(stepping->s))
        c.sizes = single_sizes_of(stepping->s, name, c.g, stepping->first,
                                  stepping->rows < stepping->whole ? stepping->whole : 0);
    return c;
}

/* Each rank rounds its own part, so sizes of parts count, not that of the sum. */
static double off_by_parts(const struct stepping *stepping, const struct clipped *clipped, int64_t i)
{
    return clipped->sizes.parts > 1
           ? stepping->u * clipped->sizes.parts * clipped->clip * numbers(clipped->sizes.absolute)[i] : 0;
}

/* Note an element where both numbers are 16-bit ones.  In the first step nothing has moved yet.  Weights may start
 * with 16-bit numbers and then all move by the learning rate.  So their second step does not count either. */
static void note_kept(struct stepping *stepping, const struct before *before, int64_t i, double left, double rest)
{
    if (stepping->k < (stepping->state < 0 ? 2 : 1) || before->off == 0 || stepping->s->rounding.store == stepping->u)
        stepping->kept.wide = true;
    else kept_add(&stepping->kept, stepping->o->format, numbers(before->x)[i], left, rest,
                  numbers(stepping->s->verdict.have)[i]);
}

/* state = keep state + part term; in the first step the state is 0.  By steps 1 - keep is computed in the format.
 * coupled: decay that is in the gradient. */
static struct single_value mean(struct stepping *stepping, const char *what, double keep, double part, bool squared,
                                double coupled)
{
    const struct before m = before_of(stepping, what);
    const struct before w = coupled > 0 ? before_of(stepping, "weight") : (struct before){ 0 };
    const struct clipped c = clipped_of(stepping);
    if (!single_going(stepping->s)) return single_stop(stepping->s);
    const struct single_value v = single_value_new(stepping->s, stepping->rows, stepping->cols);
    for (int64_t i = 0; !stepping->s->failed && i < tensor_count(c.g); i++) {
        /* x is the clipped gradient; `moved` is what the ranks' parts may move the new state by. */
        const double old = keep * numbers(m.x)[i], x = c.clip * numbers(c.g)[i], off = off_by_parts(stepping, &c, i),
                     new = part * (squared ? x * x : x), moved = part * off * (squared ? 2 * fabs(x) + off : 1);
        const double decay = coupled > 0 ? coupled * numbers(w.x)[i] : 0;
        note_kept(stepping, &m, i, old, new + decay);
        single_put(v, i,
                   (struct element){ old + new + decay,
                                    m.tiny + (m.off + 3 * stepping->u) * fabs(old) + 8 * stepping->u * fabs(new) +
                                                            moved + (w.off + 3 * stepping->u) * fabs(decay) +
                                                            stepping->tiny * (3 + part * (1 + 2 * fabs(x) * squared)) },
                   stepping->u * (fabs(new) / part + fabs(old) + fabs(decay)));
    }
    return v;
}

/* A step of adamw is off by this if a moment has been rounded to 16 bits and is small. */
static double off_by_underflow(const struct stepping *stepping, const struct adam_factors *factors, double x, double y)
{
    const double tiny = rounding_of(stepping->o->format, DTYPE_COUNT, 1).tiny,
                 most = 1 / (sqrt(fmax(0, y - tiny)) * factors->root + factors->eps),
                 least = 1 / (sqrt(y + tiny) * factors->root + factors->eps);
    return factors->rate * (fabs(x) * (most - least) + tiny * most);
}

/* The decayed weight minus what the optimizer adds: adamw from its two states, others from one state, or from the
 * gradient. */
static struct single_value steps_weight(struct stepping *stepping)
{
    const bool adam = stepping->is->states == 2;
    const struct adam_factors f = adam_factors(steps_step_of(stepping));
    const struct sgd_factors d = sgd_factors(steps_step_of(stepping));
    const struct before w = before_of(stepping, "weight");
    const char *const param = stepping->param.name;
    const bool plain = stepping->is->states == 0;
    const struct clipped c = plain ? clipped_of(stepping) : (struct clipped){ .clip = 1 };
    const struct tensor x = plain ? c.g
        : steps_input(stepping, stepping_after(stepping->o, stepping->k, stepping->is->state_name[0], param)),
                        y = adam ? steps_input(stepping,
                                               stepping_after(stepping->o, stepping->k, stepping->is->state_name[1],
                                                              param)) : tensor_none;
    const double lr = stepping->o->lr[stepping->k], coupled = plain ? d.coupled : 0;
    if (!single_going(stepping->s)) return single_stop(stepping->s);
    const double off_x = !plain && steps_unit_of(stepping, x) > stepping->u ? steps_unit_of(stepping, x) : 0,
                 off_y = adam && steps_unit_of(stepping, y) > stepping->u ? steps_unit_of(stepping, y) : 0;
    const struct single_value v = single_value_new(stepping->s, stepping->rows, stepping->cols);
    /* left: the decayed old weight; rest: what the step adds, negative. */
    for (int64_t i = 0; !stepping->s->failed && i < tensor_count(x); i++) {
        const double old = numbers(w.x)[i],
                     step = adam ? f.rate * numbers(x)[i] / (sqrt(numbers(y)[i]) * f.root + f.eps)
                                 : lr * (c.clip * numbers(x)[i] + coupled * old),
                     left = adam ? f.after * f.before * old : d.keep * old, rest = adam ? -f.after * step : -step,
                     times = adam ? 2 * f.rate / (sqrt(numbers(y)[i]) * f.root + f.eps) : lr;
        note_kept(stepping, &w, i, left, rest);
        single_put(v, i,
                   (struct element){ left + rest,
                                     w.tiny + (w.off + 4 * stepping->u) * fabs(old) +
                                         (off_x + off_y + 16 * stepping->u) * fabs(step) +
                                         (off_y > 0 ? off_by_underflow(stepping, &f, numbers(x)[i],
                                                                       numbers(y)[i]) : 0) +
                                         (plain ? lr * off_by_parts(stepping, &c, i) : 0) + stepping->tiny
                                             * (4 + times) },
                   adam ? stepping->u * (1 / f.c1 + 1 / f.c2) * fabs(step) : 0);
    }
    return v;
}

/* A result of a step: a mean of gradients, or the weight. */
struct made { const char *what, *words; bool is_mean; double keep, part; bool squared; double coupled; };

static struct single_value steps_make(struct stepping *stepping, const struct made *made)
{
    return made->is_mean ? mean(stepping, made->what, made->keep, made->part, made->squared, made->coupled)
           : steps_weight(stepping);
}

/* Whether a tensor is kept in 16 bits, and no option has said so. */
static bool steps_is_kept(const struct stepping *stepping, const struct rounding *usual)
{
    return !usual->stored_states && kept_is_clear(&stepping->kept);
}

/* Begin some rows of a result, and compute them. */
static bool steps_begin_rows(struct stepping *stepping, const struct made *made, const struct rounding *usual,
                             int64_t first, int64_t rows)
{
    stepping->first = first, stepping->rows = rows;
    return steps_begin(stepping, made->what, made->words, usual);
}

/* A result that is right is called wrong if the program goes on from rounded numbers: then these are the words. */
static const char *kept_words(const struct stepping *stepping, const struct rounding *usual, char *words, size_t size)
{
    if (!steps_is_kept(stepping, usual)) return NULL;
    snprintf(words, size, "kept in %s: step %lld goes on from rounded numbers, which --stored-states allows",
             dtype_name(stepping->o->format), (long long)stepping->k + 1);
    return words;
}

/* Say why a large matrix is wrong, by some rows from the first wrong one on.  @return whether they were computed. */
static bool explain_rows(struct stepping *stepping, const struct made *made, const struct rounding *usual,
                         const struct single_tally *tally)
{
    struct single *const s = stepping->s;
    char words[SINGLE_MISTAKE];
    const int64_t rows = single_window(s, stepping->cols), first = tally->sum.first_row, last = stepping->whole - rows;
    const char *const anyway = kept_words(stepping, usual, words, sizeof words);
    if (!steps_begin_rows(stepping, made, usual, last < 0 ? 0 : first < last ? first : last,
                          last < 0 ? stepping->whole : rows)) return false;
    s->verdict.wrong_anyway = anyway;
    const bool explained = single_end_window(s, steps_make(stepping, made), stepping->first, tally, stepping->whole);
    s->verdict.wrong_anyway = NULL;
    return explained;
}

/* Compute some rows at a time.  @return whether the result has been reported. */
static bool judged_in_blocks(struct stepping *stepping, const struct made *made, const struct rounding *usual)
{
    const int64_t whole = stepping->whole, step = single_block(stepping->s, stepping->cols);
    struct single_tally tally = { 0 };
    bool judged = step < whole;
    stepping->kept = (struct kept){ 0 };
    /* A block of rows is compared as a tile, and added to the result. */
    for (int64_t first = 0; first < whole && judged; first += step)
        judged = steps_begin_rows(stepping, made, usual, first, whole - first < step ? whole - first : step)
            && single_count_tile(stepping->s, steps_make(stepping, made), first, &tally);
    if (judged && (tally.sum.wrong > 0 || steps_is_kept(stepping, usual)))
        judged = explain_rows(stepping, made, usual, &tally);
    else if (judged) single_end_tiles(stepping->s, &tally, whole);
    stepping->first = 0, stepping->rows = whole;
    free(tally.col);
    return judged || stepping->s->failed;
}

/* The whole is computed at once if it is one block, so that a diagnosis sees all of it. */
static void check_result(struct stepping *stepping, const struct made *made, const struct rounding *usual)
{
    char words[SINGLE_MISTAKE];
    if (judged_in_blocks(stepping, made, usual) || !steps_begin(stepping, made->what, made->words, usual)) return;
    stepping->kept = (struct kept){ 0 };
    const struct single_value v = steps_make(stepping, made);
    if (single_going(stepping->s)) stepping->s->verdict.wrong_anyway = kept_words(stepping, usual, words, sizeof words);
    single_end(stepping->s, v);
    stepping->s->verdict.wrong_anyway = NULL;
}

/* All states of a parameter, then its weight, which is made from the states. */
static void check_parameter(struct stepping *stepping)
{
    const struct rounding usual = stepping->s->rounding;
    const struct adam_factors f = adam_factors(steps_step_of(stepping));
    const double coupled = sgd_factors(steps_step_of(stepping)).coupled;
    stepping->s->verdict.stepping = stepping;
    /* adamw has two states, the mean of gradients and the mean of squares; momentum has one, sgd none. */
    for (int i = 0; i < stepping->is->states; i++) {
        const bool adam = stepping->is->states == 2;
        const struct made m = { .what = stepping->is->state_name[i], .is_mean = true, .squared = adam && i,
                                .words = adam && i ? "the mean of squared gradients" : "the mean of gradients",
                                .keep = adam ? i ? f.beta2 : f.beta1 : stepping->o->hyper.momentum,
                                .part = adam ? i ? f.new2 : f.new1 : 1, .coupled = adam ? 0 : coupled };
        stepping->state = i;
        check_result(stepping, &m, &usual);
    }
    stepping->state = -1;
    check_result(stepping, &(struct made){ .what = "weight", .words = "the optimizer's step" }, &usual);
    stepping->s->rounding = usual, stepping->s->verdict.stepping = NULL;
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* These are sums over gradients.  off: in units of roundoff, what ranks' parts may move the sum by.  fourth: the sum
 * of squares of parameters' sums. */
struct squares { double sum, fourth, off; int64_t terms; };

/* Add the squares of some rows of a gradient. */
static void steps_add_squares(struct single *single, struct single_name name, struct single_block block, int64_t whole,
                              int64_t cols, struct squares *to)
{
    const int used = single->memory.used;
    const struct tensor g = single_input_block(single, name, block, whole, cols);
    const bool parts = single_going(single) && single_has_parts(single, name);
    const struct single_sizes sizes =
        parts ? single_sizes_of(single, name, g, block.first, block.rows < whole ? whole : 0)
              : (struct single_sizes){ .parts = 1 };
    /* sum += g^2.  parts - 1 additions may move g, and g^2 moves twice as much. */
    for (int64_t j = 0; single_going(single) && j < tensor_count(g); j++) {
        to->sum += numbers(g)[j] * numbers(g)[j];
        to->off += parts ? 2 * (sizes.parts - 1) * numbers(sizes.absolute)[j] * fabs(numbers(g)[j]) : 0;
    }
    to->terms += tensor_count(g);
    single_release(single, used);
}

/* Add up the squares of all gradients of a step, some rows at a time. */
static struct squares squares_of(struct single *single, const struct single_steps *steps, int64_t k)
{
    struct squares all = { 0 };
    const int params = single_spec_count(single);
    for (int i = 0; i < params; i++) {
        const struct param_spec p = single_spec(single, i);
        const int64_t rows = p.ndim > 1 ? p.dim[0] : 1, cols = p.dim[p.ndim - 1], most = single_block(single, cols);
        /* `fourth` needs each parameter's own sum of squares, which is the difference. */
        const double before = all.sum;
        for (int64_t first = 0; first < rows && single_going(single); first += most)
            steps_add_squares(single, stepping_gradient(steps, k, p.name),
                              (struct single_block){ first, rows - first < most ? rows - first : most },
                              rows, cols, &all);
        all.fourth += (all.sum - before) * (all.sum - before);
    }
    return all;
}

/* The norms of all steps are one tensor of the program. */
static void check_norms(struct single *single, const struct single_steps *steps)
{
    char name[64];
    snprintf(name, sizeof name, "%s/norm", steps->optimizer);
    if (!single_begin(single, single_name("", name), "the norm of all gradients", 1, steps->steps)) return;
    struct single_value v = single_value_new(single, 1, steps->steps);
    for (int64_t k = 0; k < steps->begins && k < steps->steps; k++) single_put(v, k, (struct element){ 0, 0 }, 0);
    /* Each step has a norm of its own. */
    for (int64_t k = steps->begins; k < steps->steps && single_going(single); k++) {
        const struct squares all = squares_of(single, steps, k);
        const double norm = sqrt(all.sum), off = norm > 0 ? all.off * single->rounding.sum / norm / 2 : all.off;
        single_put(v, k, (struct element){ norm, norm * (rounding_of_sum(single->rounding.sum, all.terms) / 2 +
                                                         2 * single->rounding.sum) + off +
                                                     single_tiny_squares(single, norm, all.terms) },
                   single_stored_norms(single, norm, all.fourth));
    }
    v.number = true;
    single_end(single, v);
}

/* ---- all steps --------------------------------------------------------------------------------------------------- */

/* Find the optimizer with a name, or NULL. */
static const struct optimizer *steps_find(const char *name)
{
    for (int i = 0; optimizers[i]; i++)
        if (strcmp(optimizers[i]->name, name) == 0) return optimizers[i];
    return NULL;
}

/* Whether the formula is known here: sgd, momentum and adamw are. */
static bool is_known(const struct optimizer *is)
{
    return is && !is->low_rank && !is->forward_only &&
           (strcmp(is->name, "sgd") == 0 || strcmp(is->name, "momentum") == 0 || strcmp(is->name, "adamw") == 0);
}

/* With an unknown optimizer every weight is reported as not recomputed. */
static void report_unknown(struct stepping *stepping)
{
    static const char words[] = "the step of an optimizer that is not known";
    if (!single_begin(stepping->s, stepping_after(stepping->o, stepping->k, "weight", stepping->param.name), words,
                      stepping->rows, stepping->cols)) return;
    stepping->s->reading.unknown = words;
    single_end(stepping->s, single_stop(stepping->s));
}

/* Recompute what a step makes of a parameter. */
static void check_step_of(struct single *single, const struct single_steps *steps, const struct optimizer *is,
                          int64_t k, int param)
{
    struct stepping t = { single, steps, is, k, single_spec(single, param), .number = param,
                          .u = dtype_unit(dtype_wide(steps->format)),
                          .tiny = dtype_step(dtype_wide(steps->format)) / 2 };
    /* A vector counts as one row, so blocks of rows never cut it. */
    t.rows = t.whole = t.param.ndim > 1 ? t.param.dim[0] : 1, t.cols = t.param.dim[t.param.ndim - 1];
    if (is_known(is)) check_parameter(&t);
    else report_unknown(&t);
}

/* Find the parameter of the only result that is wanted, so that no other is looked at.  -1: all are wanted, or there
 * is no list. */
static int steps_only_param(const struct single *single)
{
    const struct single_source *source = &single->context->source;
    const char *slash = source->only ? strrchr(source->only, '/') : NULL;
    return slash && source->params ? single_params_find(source->params, slash + 1) : -1;
}

enum error_code single_check_norms(const struct model_config *config, const struct single_steps *steps,
                                   struct rounding rounding, struct single_source source, struct error *err)
{
    const struct single_context context = { .config = config, .ops = ops_for(F64), .source = source, .err = err };
    struct single s = { .context = &context, .rounding = rounding };
    check_norms(&s, steps);
    single_close(&s);
    return s.failed;
}

/* Results come parameter by parameter.  One `single` serves all, so its matrices are freed after each result. */
enum error_code single_check_step(const struct model_config *config, const struct single_steps *steps, int64_t k,
                                  struct rounding rounding, struct single_source source, struct error *err)
{
    const struct single_context context = { .config = config, .ops = ops_for(F64), .source = source, .err = err };
    struct single s = { .context = &context, .rounding = rounding };
    const struct optimizer *is = steps_find(steps->optimizer);
    const int params = single_spec_count(&s), only = steps_only_param(&s);
    for (int i = only < 0 ? 0 : only; i < (only < 0 ? params : only + 1) && !s.failed; i++)
        check_step_of(&s, steps, is, k, i);
    single_close(&s);
    return s.failed;
}

/* ---- microbatches ------------------------------------------------------------------------------------------------ */

/* The gradient of a parameter, and what each microbatch adds to it. */
struct added { struct single_name sum; const char *param; int64_t micros, rows, cols; };

static bool begin_sum(struct single *single, const struct added *added, struct single_block block)
{
    return single_begin_block(single, added->sum, "the sum over microbatches", block,
                              block.rows < added->rows ? added->rows : 0, added->cols);
}

/* Add up some rows of all microbatches: values, absolute values (in `fused`), stored sums (in `steps`).  @return
 * SINGLE_LACKING, with nothing noted, if the program does not have the first term. */
static struct single_value add_up(struct single *single, const struct added *added, struct single_block block)
{
    char term[SINGLE_NAME];
    const struct single_value v = single_value_new(single, block.rows, added->cols);
    const int used = single->memory.used;
    for (int64_t k = 0; k < added->micros && single_going(single); k++) {
        snprintf(term, sizeof term, "micro/%lld/grad/%s", (long long)k, added->param);
        const struct tensor g = single_input_block(single, single_name("", term), block, added->rows, added->cols);
        /* Without the first term the sum is not checked; a later term that is missing is reported. */
        if (k == 0 && single->reading.lacks[0]) {
            single_read_anew(single);
            return (struct single_value){ .status = SINGLE_LACKING };
        }
        /* sum += g_k, and each stored sum may be off by a unit roundoff of itself. */
        for (int64_t i = 0; single_going(single) && i < block.rows * added->cols; i++) {
            numbers(v.y)[i] += numbers(g)[i], numbers(v.fused)[i] += fabs(numbers(g)[i]);
            numbers(v.steps)[i] += single->rounding.store * fabs(numbers(v.y)[i]);
        }
        single_release(single, used);
    }
    return v;
}

/* Find the largest sum of absolute values of any element. */
static double largest_of(struct single_value value)
{
    double largest = 0;
    for (int64_t i = 0; i < tensor_count(value.fused); i++) largest = fmax(largest, numbers(value.fused)[i]);
    return largest;
}

/* Bound the sum.  The program may also have computed the whole at once from the same tokens.  largest: of absolute
 * values. */
static struct single_value bound_sum(struct single *single, const struct added *added, struct single_value value,
                                     double largest)
{
    const double at_once = rounding_of_sum(single->rounding.sum, single->cursor.N) * largest,
                 each = rounding_of_sum(single->rounding.sum, added->micros) + single->rounding.store;
    for (int64_t i = 0; single_going(single) && i < tensor_count(value.y); i++)
        single_put(value, i, (struct element){ numbers(value.y)[i], at_once + each * numbers(value.fused)[i] },
                   numbers(value.steps)[i] + (double)added->micros * single->rounding.tiny);
    return single_going(single) ? value : single_stop(single);
}

/* Two passes over all rows: for the largest element, then for the sums.  @return whether all are right and have
 * been reported. */
static bool sum_is_right_in_blocks(struct single *single, const struct added *added, int64_t step)
{
    struct single_tally tally = { 0 };
    double largest = 0;
    bool right = true;
    /* The bound needs the largest element of the whole, which only the first pass knows. */
    for (int pass = 0; pass < 2; pass++)
        for (int64_t first = 0; first < added->rows && right; first += step) {
            const struct single_block block = { first, added->rows - first < step ? added->rows - first : step };
            right = begin_sum(single, added, block);
            const struct single_value v = right ? add_up(single, added, block) : single_stop(single);
            right = right && tensor_present(v.y);
            if (right && pass == 0) largest = fmax(largest, largest_of(v));
            if (right && pass == 1) right = single_end_tile(single, bound_sum(single, added, v, largest), first,
                                                            &tally);
            else single_release(single, 0);
        }
    if (right) single_end_tiles(single, &tally, added->rows);
    free(tally.col);
    return right || single->failed;
}

/* Rows at a time if the matrix is large; the whole again if that was not right. */
static void check_sum(struct single *single, const struct added *added)
{
    const int64_t step = single_block(single, added->cols);
    const struct single_block all = { 0, added->rows };
    if ((step < added->rows && sum_is_right_in_blocks(single, added, step)) || !begin_sum(single, added, all)) return;
    const struct single_value v = add_up(single, added, all);
    if (!single_going(single) || tensor_present(v.y)) single_end(single, bound_sum(single, added, v, largest_of(v)));
    else single_release(single, 0);
}

/* The loss of the whole is the sum of the microbatches' losses, which a program must divide before it adds. */
static void check_loss(struct single *single, int64_t micros)
{
    if (!single_begin(single, single_name("", "loss"), "the sum over microbatches", 1, 1)) return;
    const struct single_value v = single_value_new(single, 1, 1);
    const struct tensor loss = single_input(single, single_name("", "micro/loss"), 1, micros);
    if (single->failed || single->reading.lacks[0]) {
        single_release(single, 0);
        return;
    }
    double sum = 0, absolute = 0;
    for (int64_t k = 0; k < micros; k++) sum += numbers(loss)[k], absolute += fabs(numbers(loss)[k]);
    single_put(v, 0, (struct element){ sum, (rounding_of_sum(single->rounding.sum, micros) + single->rounding.store)
                                      * absolute },
               single->rounding.store * (double)micros * absolute);
    single_end(single, v);
}

enum error_code single_check_micros(const struct model_config *config, int64_t micros, struct single_batch batch,
                                    struct rounding rounding, struct single_source source, struct error *err)
{
    const struct single_context context = { config, NULL, ops_for(F64), batch, source, err };
    struct single s = { .context = &context, .cursor = { .batch = batch, .N = batch.B * batch.S },
                        .rounding = rounding };
    const int params = single_spec_count(&s), only = steps_only_param(&s);
    for (int i = only < 0 ? 0 : only; i < (only < 0 ? params : only + 1) && micros > 0; i++) {
        const struct param_spec p = single_spec(&s, i);
        check_sum(&s, &(struct added){ single_name("grad/", p.name), p.name, micros, p.ndim > 1 ? p.dim[0] : 1,
                                       p.dim[p.ndim - 1] });
    }
    if (micros > 0) check_loss(&s, micros);
    single_close(&s);
    return s.failed;
}
