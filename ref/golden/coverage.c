/* coverage.c -- a table of what a batch needs to show a kind of mistake, and the looks at its shape and its run.
 *
 * cli/golden/ and cover.c call coverage_gaps.  No function here can fail.  Most rows look at the first step, of which a
 * file has every tensor.
 */
#include "ref/golden/coverage_rows.h"
#include "ref/model/kinds.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BF16_POSITIONS = 258, ROWS_OF_KERNELS = 8 };     /* 257 is the first position that bf16 does not hold */

/* ---- the shape --------------------------------------------------------------------------------------------------- */

static bool lacks_sequences(const struct coverage_view *view, struct words *words)
{
    words_add(words, "there is one sequence only");
    return view->golden->B == 1;
}

static void needs_two_sequences(const struct coverage_view *view, struct words *words)
{
    (void)view;
    words_add(words, "--sequences 2 or more");
}

static bool lacks_pairs_of_tokens(const struct coverage_view *view, struct words *words)
{
    words_add(words, "a sequence is one token");
    return view->golden->S == 1;
}

static bool lacks_a_rest(const struct coverage_view *view, struct words *words)
{
    words_add(words, "a sequence has %lld tokens, a multiple of 8", (long long)view->golden->S);
    return view->golden->S % ROWS_OF_KERNELS == 0;
}

static void needs_a_rest(const struct coverage_view *view, struct words *words)
{
    words_add(words, "--tokens %lld", (long long)view->golden->S - 1);
}

static bool has_far_positions(const struct coverage_view *view)
{
    const struct model_config *c = &view->golden->config;
    return c->positions == POSITIONS_ROTARY && c->S >= BF16_POSITIONS && layer_set_count(&c->unturned, c->L) < c->L;
}

static bool lacks_far_positions(const struct coverage_view *view, struct words *words)
{
    words_add(words, "all positions are numbers that bf16 holds, up to 256");
    return view->golden->S < BF16_POSITIONS;
}

static void needs_far_positions(const struct coverage_view *view, struct words *words)
{
    (void)view;
    words_add(words, "--tokens %d or more", BF16_POSITIONS);
}

/* A window as long as the model's positions hides nothing in any batch. */
static bool has_windows(const struct coverage_view *view)
{
    const struct model_config *c = &view->golden->config;
    return model_windowed_layers(c) > 0 && c->windows.size < c->S;
}

static bool lacks_hidden_tokens(const struct coverage_view *view, struct words *words)
{
    const int64_t size = view->golden->config.windows.size;
    words_add(words, "a window of %lld tokens holds a whole sequence", (long long)size);
    return view->golden->S <= size;
}

static void needs_hidden_tokens(const struct coverage_view *view, struct words *words)
{
    words_add(words, "--tokens %lld or more", (long long)view->golden->config.windows.size + 1);
}

static bool has_long_factors(const struct coverage_view *view)
{
    const struct model_config *c = &view->golden->config;
    return c->positions == POSITIONS_ROTARY && rotary_by_length(&c->rotary, c->S);
}

static bool lacks_long_sequences(const struct coverage_view *view, struct words *words)
{
    const struct rotary *rotary = &view->golden->config.rotary;
    words_add(words, "sequences are no longer than LongRoPE's original %lld tokens",
              (long long)rotary->original_positions);
    return !rotary_by_length(rotary, view->golden->S);
}

static void needs_long_sequences(const struct coverage_view *view, struct words *words)
{
    words_add(words, "--tokens %lld or more", (long long)view->golden->config.rotary.original_positions + 1);
}

/* ---- sequences and steps ----------------------------------------------------------------------------------------- */

static bool batch_is_same(const struct golden *golden, int64_t a, int64_t b, int64_t tokens)
{
    const size_t bytes = (size_t)tokens * sizeof *golden->ids;
    return memcmp(golden->ids + a * tokens, golden->ids + b * tokens, bytes) == 0;
}

static bool lacks_different_sequences(const struct coverage_view *view, struct words *words)
{
    const struct golden *g = view->golden;
    for (int64_t b = 1; b < g->B; b++)
        for (int64_t a = 0; a < b; a++) {
            if (!batch_is_same(g, a, b, g->S)) continue;
            words_add(words, "sequences %lld and %lld have the same tokens", (long long)a, (long long)b);
            return true;
        }
    return false;
}

static bool is_packed(const struct coverage_view *view) { return view->golden->positions != NULL; }
static bool is_not_packed(const struct coverage_view *view) { return !is_packed(view); }

static bool lacks_documents(const struct coverage_view *view, struct words *words)
{
    const struct golden *g = view->golden;
    words_add(words, "no sequence has two documents");
    for (int64_t i = 0; i < coverage_tokens(g); i++)
        if (g->positions[i] == 0 && i % g->S > 0) return false;
    return true;
}

static bool lacks_steps(const struct coverage_view *view, struct words *words)
{
    words_add(words, "there is one step only");
    return view->golden->steps == 1;
}

static void needs_two_steps(const struct coverage_view *view, struct words *words)
{
    (void)view;
    words_add(words, "--steps 2 or more");
}

static bool lacks_different_steps(const struct coverage_view *view, struct words *words)
{
    const struct golden *g = view->golden;
    for (int64_t t = 1; t < g->steps; t++) {
        if (!batch_is_same(g, t - 1, t, coverage_tokens(g))) continue;
        words_add(words, "steps %lld and %lld have the same batch", (long long)t, (long long)t + 1);
        return true;
    }
    return false;
}

/* ---- experts: the choices of the run ----------------------------------------------------------------------------- */

static bool has_experts(const struct coverage_view *view)
{
    const struct model_config *c = &view->golden->config;
    return view->run != NULL && mixture_layers(c) > 0 && c->mixture.E > 1;
}

/* How many tokens of the first batch have chosen an expert of a layer, which is the nth with a router. */
static int64_t choices_of(const struct replay *run, int64_t nth, int64_t expert)
{
    const struct golden *g = run->golden;
    const int64_t n = coverage_tokens(g) * g->config.mixture.k;
    int64_t count = 0;
    for (int64_t i = nth * n; i < (nth + 1) * n && i < run->choices; i++) count += run->choice[i] == expert;
    return count;
}

static bool lacks_tokens_of_experts(const struct coverage_view *view, struct words *words)
{
    enum { SHOWN = 6 };
    const struct model_config *c = &view->golden->config;
    int64_t missing = 0, nth = 0;
    words_add(words, "no token goes to");
    for (int64_t l = 0; l < c->L; l++) {
        if (layer_mlp(c, l) != MLP_MIXTURE) continue;
        for (int64_t e = 0; e < c->mixture.E; e++) {
            if (choices_of(view->run, nth, e) > 0) continue;
            if (missing++ < SHOWN)
                words_add(words, "%s expert %lld of layer %lld", missing > 1 ? "," : "", (long long)e, (long long)l);
        }
        nth++;
    }
    if (missing > SHOWN) words_add(words, " and %lld more", (long long)(missing - SHOWN));
    return missing > 0;
}

static void needs_more_choices(const struct coverage_view *view, struct words *words)
{
    const struct golden *g = view->golden;
    const struct mixture_config *x = &g->config.mixture;
    const int64_t sequences = (x->E + x->k * g->S - 1) / (x->k * g->S);
    words_add(words, "--sequences %lld or more", (long long)(sequences > g->B ? sequences : 2 * g->B));
}

static bool has_spare_experts(const struct coverage_view *view)
{
    return has_experts(view) && view->golden->config.mixture.k < view->golden->config.mixture.E;
}

static bool lacks_idle_experts(const struct coverage_view *view, struct words *words)
{
    words_add(words, "every expert has a token in every step");
    return view->run->idle == 0;
}

static void needs_idle_experts(const struct coverage_view *view, struct words *words)
{
    if (view->golden->steps == 1) words_add(words, "--steps 2 or more");
    else words_add(words, "--sequences and --tokens that are fewer");
}

static bool has_a_capacity(const struct coverage_view *view)
{
    return has_experts(view) && view->golden->config.mixture.capacity_factor > 0;
}

static bool lacks_dropped_choices(const struct coverage_view *view, struct words *words)
{
    words_add(words, "no expert has more tokens than its capacity");
    for (int64_t i = 0; i < view->run->choices; i++)
        if (view->run->choice[i] < 0) return false;
    return true;
}

static bool has_a_clamp(const struct coverage_view *view)
{
    return has_experts(view) && view->golden->config.mixture.clamped.limit > 0;
}

static bool lacks_clamped_numbers(const struct coverage_view *view, struct words *words)
{
    const double limit = view->golden->config.mixture.clamped.limit;
    words_add(words, "no number of mlp.up reaches the clamp at %g", limit);
    for (int i = 0; i < view->run->records; i++) {
        const struct record *r = &view->run->record[i];
        if (strncmp(r->name, "act/", 4) != 0 || !name_ends(r->name, ".mlp.up")) continue;
        for (int64_t k = 0; k < tensor_count(r->values); k++)
            if (fabs(tensor_get(r->values, k)) > limit) return false;
    }
    return true;
}

/* The least and the largest norm of an optimizer's steps.  @return whether the run has such steps, and they clip. */
static bool norms_of(const struct coverage_view *view, const char *optimizer, double range[2], double *clip)
{
    char name[64];
    *clip = golden_hyperparameters(view->golden, optimizer).clip;
    range[0] = INFINITY, range[1] = 0;
    snprintf(name, sizeof name, "%s/norm", optimizer);
    for (int i = 0; i < view->run->records; i++) {
        const struct record *r = &view->run->record[i];
        if (strcmp(r->name, name) != 0) continue;
        for (int64_t t = 0; t < tensor_count(r->values); t++)
            range[0] = fmin(range[0], tensor_get(r->values, t)), range[1] = fmax(range[1], tensor_get(r->values, t));
    }
    return *clip > 0 && range[1] > 0;
}

static bool has_clipping(const struct coverage_view *view)
{
    char optimizer[32];
    double range[2], clip;
    for (const char *list = NULL;
         view->run && (list = golden_next_optimizer(view->golden, list, optimizer)) != NULL;)
        if (norms_of(view, optimizer, range, &clip)) return true;
    return false;
}

/* Norms that are all on one side of the clip.  @param above  the side. */
static bool lacks_a_side(const struct coverage_view *view, bool above, struct words *words)
{
    char optimizer[32];
    double range[2], clip;
    for (const char *list = NULL; (list = golden_next_optimizer(view->golden, list, optimizer)) != NULL;) {
        if (!norms_of(view, optimizer, range, &clip)) continue;
        if (above ? range[1] > clip : range[0] <= clip) continue;
        words_add(words, "%s: norms of gradients are %.3g to %.3g, never %s the largest norm allowed, %g", optimizer,
                  range[0], range[1], above ? "above" : "below", clip);
        return true;
    }
    return false;
}

static bool lacks_clipped_steps(const struct coverage_view *view, struct words *words)
{
    return lacks_a_side(view, true, words);
}

static bool lacks_whole_steps(const struct coverage_view *view, struct words *words)
{
    return lacks_a_side(view, false, words);
}

static void needs_another_clip(const struct coverage_view *view, struct words *words)
{
    char optimizer[32];
    double range[2], clip;
    for (const char *list = NULL; (list = golden_next_optimizer(view->golden, list, optimizer)) != NULL;) {
        if (!norms_of(view, optimizer, range, &clip) || (range[0] <= clip && clip < range[1])) continue;
        if (view->golden->steps == 1) words_add(words, "--steps 2 or more");
        else words_add(words, "--clip between %.4g and %.4g", range[0], range[1]);
        return;
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct coverage_row rows[] = {
    { NULL, lacks_border_labels, "a shard of the vocabulary that takes a label too many or too few", needs_borders },
    { NULL, lacks_border_tokens, "a shard of the embedding that begins or ends a token off", needs_borders },
    { NULL, lacks_repeats, "gradients of an embedding that overwrite each other, and are not summed",
      needs_two_tokens },
    { NULL, lacks_ignored, "ignored labels that count, and a mean over all tokens", NULL },
    { is_not_packed, lacks_last_labels, "a last label that is lost, or shifted to the next sequence", NULL },
    { NULL, lacks_uneven_sequences, "a mean of the parts' means", NULL },
    { NULL, lacks_uneven_tokens, "a mean of the parts' means", NULL },
    { NULL, lacks_a_count_beyond_bf16, "a number of labels that is kept in bf16", needs_more_labels },
    { NULL, lacks_sequences, "whatever mixes up sequences: positions that go on, tokens that see each other",
      needs_two_sequences },
    { NULL, lacks_different_sequences, "a sequence in the place of the other", NULL },
    { is_packed, lacks_documents, "documents that see each other, and positions that go on", NULL },
    { NULL, lacks_pairs_of_tokens, "attention: its mask, scores, softmax and positions", needs_two_tokens },
    { NULL, lacks_a_rest, "a kernel that computes whole tiles of tokens only", needs_a_rest },
    { has_far_positions, lacks_far_positions, "positions that are kept in bf16", needs_far_positions },
    { has_windows, lacks_hidden_tokens, "a window that is missing or has another size", needs_hidden_tokens },
    { has_long_factors, lacks_long_sequences, "the factors of longer sequences", needs_long_sequences },
    { NULL, lacks_steps, "what goes on from step to step: old weights, gradients that are not cleared",
      needs_two_steps },
    { NULL, lacks_different_steps, "a step that has the batch of the step before", NULL },
    { has_experts, lacks_tokens_of_experts, "mistakes of these experts", needs_more_choices },
    { has_spare_experts, lacks_idle_experts, "an expert without tokens that is left out: no gradient, no step",
      needs_idle_experts },
    { has_a_capacity, lacks_dropped_choices, "choices that must be dropped, and are not", NULL },
    { has_a_clamp, lacks_clamped_numbers, "a clamp that is missing", NULL },
    { has_clipping, lacks_clipped_steps, "clipping that is missing, or by another norm", needs_another_clip },
    { has_clipping, lacks_whole_steps, "small gradients that are made larger", needs_another_clip },
};

int coverage_gaps(const struct coverage_view *view, const struct coverage_listener *listener)
{
    int gaps = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct coverage_row *row = &rows[i];
        char lack[COVERAGE_TEXT] = "", need[COVERAGE_TEXT] = "";
        struct words words = { lack, sizeof lack }, sizes = { need, sizeof need };
        if ((row->applies && !row->applies(view)) || !row->lacks(view, &words)) continue;
        gaps++;
        if (row->needs) row->needs(view, &sizes);
        if (listener) listener->found(listener->context, lack, row->hides, need);
    }
    return gaps;
}
