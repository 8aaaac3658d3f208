/* loss.c -- what the loss and its gradient are with one mistake of labels or of the divisor.
 * mistakes.c reads the table of rows.  loss_forward gives the loss, loss_input the gradient of the logits [N, V].
 * Labels below 0 are ignored. */
#include "emulated_devices/check/mistakes/conventions.h"
#include "emulated_devices/check/mistakes/whose.h"
#include "emulated_devices/check/recompute/routing.h"
#include "ref/model/kinds.h"
#include <stdio.h>
#include <string.h>

enum divisor { LABELS, ROWS, ONE };

/* A mistake of the parts of a batch: each divides by its own labels, and these means are averaged or added up; one
 * part alone counts, divided by all labels or by its own; each has the labels of the part so much further. */
enum cut_mistake { NO_CUT, MEANS, MEANS_ADDED, PART_ONLY, PART_MEAN, TURN };

struct loss_switches { int shift; bool ignored, smoothed; enum divisor by; double balance, z;
                       enum cut_mistake of_cut; const struct batch_cuts *cuts; const struct batch_cut *cut; int part; };

/* balance, z: how much more often than once these losses count.  LAYERS and CHOICES: as often as there are layers, or
 * choices of a token; negative: divided by these.  part: the part that counts, or how far parts turn. */
enum { LAYERS = 1000, CHOICES = 2000 };
static const struct loss_switches loss_right;
#define WITH(...) .with = &(const struct loss_switches){ __VA_ARGS__ }

/* Labels are smoothed by this, as in most programs. */
static const double SMOOTH = 0.1;

/* Tokens of the whole batch, of which the cursor's may be a tile. */
static int64_t tokens_of_batch(const struct single *single) { return single->context->all.B * single->context->all.S; }

/* This is the label that a row of the batch has, with the mistake.  A shift at the batch's end keeps the row's own
 * label. */
static int label_of(const struct single *single, const struct loss_switches *switches, int64_t row)
{
    const int64_t S = single->context->all.S,
                  at = switches->of_cut == TURN
                      ? cut_turned(switches->cuts, switches->cut, switches->part, (int)(row / S)) * S + row % S
                      : row + switches->shift;
    const int32_t label = single->context->all.labels[at < 0 ? 0 : at < tokens_of_batch(single) ? at : row];
    return label < 0 && switches->ignored ? 0 : label;
}

/* Labels that count, of a part of the batch; part < 0: of all of it.  At least 1, because the divisor must not be 0. */
static double counted(const struct single *single, const struct loss_switches *switches, int part)
{
    double n = 0;
    for (int64_t i = 0; i < tokens_of_batch(single); i++)
        if (part < 0 || switches->cut->part[i / single->context->all.S] == part)
            n += label_of(single, switches, i) >= 0;
    return n > 0 ? n : 1;
}

/* The factors of rows' cross entropies: 1 / labels, or the mistaken divisor; of a cut, one for each part. */
struct loss_shares { bool by_part; double of[CUT_SEQUENCES]; };

static double share_of_part(const struct single *single, const struct loss_switches *switches, int part)
{
    switch (switches->of_cut) {
    case MEANS: return 1 / (switches->cut->parts * counted(single, switches, part));
    case MEANS_ADDED: return 1 / counted(single, switches, part);
    default: return part != switches->part ? 0
                  : 1 / counted(single, switches, switches->of_cut == PART_MEAN ? part : -1);
    }
}

/* Labels are counted once for all rows. */
static struct loss_shares loss_shares(const struct single *single, const struct loss_switches *switches)
{
    struct loss_shares shares = { .by_part = switches->of_cut != NO_CUT && switches->of_cut != TURN };
    if (switches->by == ROWS) shares.of[0] = 1 / (double)tokens_of_batch(single);
    else if (switches->by == ONE) shares.of[0] = 1;
    else if (!shares.by_part) shares.of[0] = 1 / counted(single, switches, -1);
    for (int k = 0; shares.by_part && k < switches->cut->parts; k++)
        shares.of[k] = share_of_part(single, switches, k);
    return shares;
}

static double loss_share(const struct single *single, const struct loss_switches *switches,
                         const struct loss_shares *shares, int64_t row)
{
    return shares->of[shares->by_part ? switches->cut->part[row / single->context->all.S] : 0];
}

/* This is log(sum of exp(x)), with the maximum taken out so that exp does not overflow. */
static double log_sum(const double *x, int64_t V)
{
    double top = x[0], sum = 0;
    for (int64_t v = 1; v < V; v++) top = fmax(top, x[v]);
    for (int64_t v = 0; v < V; v++) sum += exp(x[v] - top);
    return top + log(sum);
}

/* Whether the model cannot have the mistake: it has no balance loss. */
static bool loss_cannot(const struct single *single, const struct loss_switches *switches)
{
    const struct mixture_config *m = &single->context->config->mixture;
    const bool routers = single->context->config->mlp == MLP_MIXTURE;
    if (switches->balance != 0 && !(routers && m->balance_coefficient > 0)) return true;
    return switches->z != 0 && !(routers && m->z_coefficient > 0);
}

/* How often the balance loss counts: once plus `balance`, or once for each layer or choice. */
static double times_balance(const struct model_config *config, const struct loss_switches *switches)
{
    const double n = fabs(switches->balance) == LAYERS ? (double)config->L : (double)config->mixture.k;
    return fabs(switches->balance) < LAYERS ? 1 + switches->balance : switches->balance > 0 ? n : 1 / n;
}

/* The routers' losses, each times its coefficient and its mistaken count. */
static double of_routers(struct single *single, const struct loss_switches *switches)
{
    const struct mixture_config *m = &single->context->config->mixture;
    if (single->context->config->mlp != MLP_MIXTURE || !router_has_losses(single)) return 0;
    const struct router_losses l = router_losses_of(single);
    return times_balance(single->context->config,
                         switches) * m->balance_coefficient * l.balance + (1 + switches->z) * m->z_coefficient * l.z +
           m->sequence_coefficient * l.sequence;
}

/* The losses of the rows of a tile, each times its share. */
static double losses_of_tile(const struct single *single, const struct loss_switches *v,
                             const struct loss_shares *shares, struct tensor X)
{
    const int64_t V = tensor_cols(X);
    double sum = 0;
    for (int64_t i = 0; i < single->cursor.N; i++) {
        const int64_t at = single->cursor.first + i;
        const int label = label_of(single, v, at);
        const double *x = numbers(X) + i * V;
        if (label < 0) continue;
        /* Smoothing takes a tenth of the label's logit from the mean of all logits. */
        double right = x[label], mean = 0;
        for (int64_t k = 0; k < V && v->smoothed; k++) mean += x[k] / (double)V;
        if (v->smoothed) right = (1 - SMOOTH) * right + SMOOTH * mean;
        sum += loss_share(single, v, shares, at) * (log_sum(x, V) - right);
    }
    return sum;
}

/* Y [1, 1] = sum over rows of share (log_sum(x) - x[label]), plus the routers' losses.  Logits are read tile by
 * tile. */
static struct tensor loss_forward(struct single *single, const struct single_node *node,
                                  const struct single_mistake *mistake)
{
    const struct loss_switches *v = mistake->with;
    if (!single_going(single) || loss_cannot(single, v)) return tensor_none;
    const struct loss_shares shares = loss_shares(single, v);
    const struct tensor Y = single_new(single, 1, 1);
    const int used = single->memory.used;
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        const struct tensor X = single_act(single, node->in[0]);
        if (single_going(single)) numbers(Y)[0] += losses_of_tile(single, v, &shares, X);
        single_release(single, used);
    }
    single_take_all(single);
    if (!single_going(single)) return tensor_none;
    const double more = of_routers(single, v);
    if (!single->failed) numbers(Y)[0] += more;
    return Y;
}

/* dX [N, V] = share (softmax(x) - onehot(label)).  Rows whose label is ignored stay zero. */
static struct tensor loss_input(struct single *single, const struct single_node *node,
                                const struct single_mistake *mistake)
{
    const struct loss_switches *v = mistake->with;
    const struct tensor X = single_act(single, node->in[0]);
    if (!single_going(single) || loss_cannot(single, v)) return tensor_none;
    const int64_t V = tensor_cols(X);
    const struct tensor dX = single_new(single, single->cursor.N, V);
    const struct loss_shares shares = loss_shares(single, v);
    for (int64_t i = 0; !single->failed && i < single->cursor.N; i++) {
        const int64_t at = single->cursor.first + i;
        const int label = label_of(single, v, at);
        const double *x = numbers(X) + i * V, top = log_sum(x, V), share = loss_share(single, v, &shares, at);
        /* Each column gets its share of (p - onehot), with smoothing's part of every column. */
        for (int64_t k = 0; k < V && label >= 0; k++)
            numbers(dX)[i * V + k] = share * (exp(x[k] - top) - (k == label) * (v->smoothed ? 1 - SMOOTH : 1) -
                                              (v->smoothed ? SMOOTH / (double)V : 0));
    }
    return dX;
}

#define MEANS(n)                                                                                                    \
    "a mean of means: " #n " parts of the batch, each divided by its own labels: "                                  \
    "--as ...,loss-mean=parts,loss-parts=" #n

static const struct single_mistake loss_rows[] = {
    { "labels are shifted by one: each row has that of the next", FORWARD | INPUT, WITH(.shift = 1) },
    { "labels are shifted by one: each row has that of the row before", FORWARD | INPUT, WITH(.shift = -1) },
    { "ignored labels count, as label 0", FORWARD | INPUT, WITH(.ignored = true) },
    { "labels are smoothed by 0.1: --as ...,torch-smoothing", FORWARD | INPUT, WITH(.smoothed = true) },
    { "divided by all rows, those whose label is ignored too: --as ...,row-mean", FORWARD | INPUT,
      WITH(.by = ROWS) },
    { "not divided by the number of labels: --as ...,loss-sum", FORWARD | INPUT, WITH(.by = ONE) },
    { "without what the routers' losses add", FORWARD, WITH(.balance = -1, .z = -1) },
    { "without the balance loss", FORWARD, WITH(.balance = -1) },
    { "without the z loss", FORWARD, WITH(.z = -1) },
    { "the balance loss counts once for each layer", FORWARD, WITH(.balance = LAYERS) },
    { "the balance loss is divided by the number of layers", FORWARD, WITH(.balance = -LAYERS) },
    { "the balance loss counts once for each of a token's choices", FORWARD, WITH(.balance = CHOICES) },
    { "the balance loss is divided by the number of choices", FORWARD, WITH(.balance = -CHOICES) },
    { "the balance loss counts twice", FORWARD, WITH(.balance = 1) },
    { 0 }
};

/* A row of zeros in the program's gradient: its label was ignored. */
static bool is_zero(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] != 0) return false;
    return true;
}

/* Labels are ignored although they count, so their rows are zero.  The divisor may still count them, or not. */
static void try_ignored(struct suspect *suspect, double *y)
{
    const struct single *s = suspect->s;
    int64_t ignored = 0, counted = 0, first = -1;
    for (int64_t row = 0; row < suspect->rows; row++) {
        if (label_of(s, &loss_right, s->cursor.first + row) < 0) continue;
        const bool zero = is_zero(suspect->have + row * suspect->cols, suspect->cols);
        ignored += zero, counted += !zero;
        if (zero && first < 0) first = s->cursor.first + row;
    }
    /* divisor 1: the other rows are divided by fewer labels, and so are larger; a tile does not show how many. */
    for (int divisor = 0; divisor < (single_is_tile(s) ? 1 : 2) && ignored > 0 && counted > 0; divisor++) {
        const double times = divisor ? (double)(counted + ignored) / (double)counted : 1;
        for (int64_t i = 0; i < suspect->count; i++)
            y[i] = is_zero(suspect->have + i / suspect->cols * suspect->cols, suspect->cols) ? 0
                : times * suspect->want[i];
        suspect_explained(suspect, y, "%lld of %lld labels are ignored, the first in row %lld", (long long)ignored,
                          (long long)(counted + ignored), (long long)first);
    }
}

/* No rank finds a label among its words (vocabulary parallel), so nothing is subtracted in its rows. */
static void try_lost_labels(struct suspect *suspect, double *y)
{
    const struct single *s = suspect->s;
    char labels[64] = "";
    size_t used = 0;
    int64_t lost = 0;
    const struct loss_shares shares = loss_shares(s, &loss_right);
    try_ignored(suspect, y);
    memcpy(y, suspect->want, (size_t)suspect->count * sizeof *y);
    for (int64_t row = 0; row < suspect->rows; row++) {
        const int label = label_of(s, &loss_right, s->cursor.first + row);
        const int64_t at = row * suspect->cols + label;
        /* Only the label's own element is wrong in such a row. */
        if (label < 0 || fabs(suspect->have[at] - suspect->want[at]) <= suspect->bound[at]) continue;
        y[at] += loss_share(s, &loss_right, &shares, s->cursor.first + row), lost++;
        if (used < sizeof labels)
            used += (size_t)snprintf(labels + used, sizeof labels - used, "%s%d", used ? ", " : "", label);
    }
    if (lost > 0) suspect_explained(suspect, y, "in %d rows nothing is subtracted for the label: %s",
                                    (int)lost, labels);
}

/* ---- parts of the batch ------------------------------------------------------------------------------------------ */

/* Offer the loss, or its gradient, with a mistake of a cut. */
static void offer_cut(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass,
                      const struct loss_switches *switches, const char *words)
{
    struct single *s = suspect->s;
    const int used = s->memory.used;
    const struct single_mistake mistake = { .with = switches };
    single_read_anew(s);
    const struct tensor y = pass == SINGLE_FORWARD ? loss_forward(s, node, &mistake) : loss_input(s, node, &mistake);
    if (!s->failed && tensor_present(y) && tensor_count(y) == suspect->count)
        suspect_explained(suspect, numbers(y), "%s", words);
    single_release(s, used);
}

/* A loss may be that of one part.  A single number agrees with some mistake by chance, so of parts that are guessed
 * only the first is tried. */
static void try_one_part(struct suspect *suspect, const struct single_node *node, struct loss_switches with)
{
    enum { FEW_PARTS = 8 };
    const struct batch_cut *const cut = with.cut;
    char words[SINGLE_MISTAKE];
    for (with.part = 0; with.part < (cut->known ? cut->parts : 1) && with.part < FEW_PARTS; with.part++) {
        with.of_cut = PART_ONLY;
        snprintf(words, sizeof words, "%s %d of %d only", cut->of, with.part, cut->parts);
        offer_cut(suspect, node, SINGLE_FORWARD, &with, words);
        with.of_cut = PART_MEAN;
        snprintf(words, sizeof words, "the mean of %s %d of %d alone", cut->of, with.part, cut->parts);
        if (cut->known) offer_cut(suspect, node, SINGLE_FORWARD, &with, words);
    }
}

/* Try the mistakes of a cut. */
static void try_cut(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass,
                    const struct batch_cuts *cuts, const struct batch_cut *cut)
{
    struct loss_switches with = { .cuts = cuts, .cut = cut };
    double labels[CUT_SEQUENCES];
    char words[SINGLE_MISTAKE];
    for (int k = 0; k < cut->parts; k++) labels[k] = counted(suspect->s, &with, k);
    for (int added = 0; added < 2; added++) {
        with.of_cut = added ? MEANS_ADDED : MEANS;
        offer_cut(suspect, node, pass, &with, whose_say_means(words, sizeof words, cut, labels, added));
    }
    if (pass == SINGLE_FORWARD) try_one_part(suspect, node, with);
    with.of_cut = TURN;
    for (with.part = 1; cut->known && with.part >= (cut->parts > 2 ? -1 : 1); with.part -= 2) {
        snprintf(words, sizeof words, "copies take turns: each %s has the labels of the %s", cut->of,
                 with.part > 0 ? "next" : "one before");
        offer_cut(suspect, node, pass, &with, words);
    }
}

/* No cuts are guessed for a single number if some are known. */
static void try_parts(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass, double *y)
{
    const struct batch_cuts cuts = suspect_cuts(suspect->s);
    const bool any_known = cuts.count > 0 && cuts.all[0].known;
    if (suspect->words[0] == 0) suspect_conventions(suspect, node, pass, y);
    if (pass == SINGLE_INPUT) try_lost_labels(suspect, y);
    for (int i = 0; i < cuts.count; i++)
        if (cuts.all[i].known || pass == SINGLE_INPUT || !any_known) try_cut(suspect, node, pass, &cuts, &cuts.all[i]);
}

const struct single_mistakes single_loss_mistakes = {
    .of = &single_loss, .rows = loss_rows, .make[SINGLE_FORWARD] = loss_forward,
    .make[SINGLE_INPUT] = loss_input, .parts = try_parts
};
