/* proposer.c -- proposals from a sequence's own past, or from a draft model.  engine.c calls.  Errors:
 * ERR_MEMORY, ERR_USAGE of a draft model that does not fit, ERR_DIVERGED of its logits, those of its weights' files. */
#include "emulated_devices/serve/proposer.h"
#include "emulated_devices/device/arena_list.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "ref/model/params.h"
#include "ref/model/past.h"
#include <stdlib.h>
#include <string.h>

/* One sequence, as the draft model knows it. */
struct draft_sequence {
    struct past past;                   /* keys and values; of no tokens: not begun */
    struct tensor memory;               /* the device's memory for them */
    double *q;                          /* [most, V] of the last proposals */
};

/* A pass of the draft model over all sequences, for the clock. */
struct draft_pass { double pairs, all; int64_t rows, keys, drawn; };

struct draft {
    struct transformer model;           /* with its weights */
    struct tensor memory;               /* the device's memory for them */
    struct draft_sequence *sequence;    /* [requests] */
    int64_t requests;                   /* how many */
    struct draft_pass *pass;            /* [most] since the clock was charged */
};

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

enum error_code proposer_takes(const struct model_config *draft, const struct model_config *model, int64_t tokens,
                               struct error *err)
{
    const struct transformer alone = { .config = *draft };
    if (draft->V != model->V)
        return fail(err, ERR_USAGE, "has %lld tokens; the model that it proposes for has %lld", (long long)draft->V,
                    (long long)model->V);
    if (draft->S < tokens)
        return fail(err, ERR_USAGE, "has %lld positions; requests may have %lld tokens", (long long)draft->S,
                    (long long)tokens);
    if (draft->mixture.E > 0)
        return fail(err, ERR_USAGE, "is a mixture: only dense models propose");
    if (!past_serves(&alone, tokens))
        return fail(err, ERR_USAGE, "its tokens depend on more than those before them: it cannot keep keys and values");
    return OK;
}

/* Memory of the device that a number of values of its format takes. */
static enum error_code take_memory(struct device *device, int64_t numbers, const char *name, struct tensor *memory,
                                   struct error *err)
{
    *memory = device_tensor_2d(device, BUFFERS, 1, numbers);
    if (memory->data == NULL) return fail(err, ERR_MEMORY, "no memory for %s", name);
    arena_name(&device->arena, memory->data, name);
    return OK;
}

static enum error_code draft_open(struct proposer *proposer, const struct model_config *model, int64_t requests,
                                  struct error *err)
{
    const struct speculation *const how = proposer->how;
    struct draft *const d = proposer->draft = calloc(1, sizeof *d);
    if (d == NULL) return fail(err, ERR_MEMORY, "no memory for a draft model");
    struct model_config config = *how->config;
    config.exact = model->exact;
    d->requests = requests;
    d->sequence = calloc((size_t)requests + 1, sizeof *d->sequence);
    d->pass = calloc((size_t)how->most, sizeof *d->pass);
    enum error_code e = d->sequence && d->pass ? OK : fail(err, ERR_MEMORY, "no memory for a draft model");
    if (!e) e = transformer_open(&d->model, &config, proposer->device->dtype, how->seed, err);
    if (!e && how->saved) e = fail_about(err, checkpoint_load_serial(&d->model, how->saved, err), "--draft");
    return e ? e : take_memory(proposer->device, model_elements(&config), "the draft model's weights", &d->memory, err);
}

enum error_code proposer_open(struct proposer *proposer, const struct speculation *how, struct device *device,
                              const struct model_config *model, int64_t requests, struct error *err)
{
    *proposer = (struct proposer){ .how = how, .device = device, .V = model->V };
    return how->config ? draft_open(proposer, model, requests, err) : OK;
}

void proposer_forget(struct proposer *proposer, int64_t number)
{
    if (proposer->draft == NULL) return;
    struct draft_sequence *const s = &proposer->draft->sequence[number];
    past_close(&s->past);
    if (tensor_present(s->memory)) device_free(proposer->device, s->memory);
    free(s->q);
    *s = (struct draft_sequence){ .q = NULL };
}

void proposer_close(struct proposer *proposer)
{
    struct draft *const d = proposer->draft;
    if (d == NULL) return;
    for (int64_t i = 0; i < d->requests && d->sequence; i++) proposer_forget(proposer, i);
    if (d->model.params) transformer_close(&d->model);
    if (tensor_present(d->memory)) device_free(proposer->device, d->memory);
    free(d->sequence), free(d->pass), free(d);
    proposer->draft = NULL;
}

/* ---- n-gram ------------------------------------------------------------------------------------------------------ */

/* How many of the last tokens are also those before a place. */
static int64_t alike_before(const int32_t *token, int64_t count, int64_t place, int64_t longest)
{
    int64_t n = 0;
    while (n < longest && n < place && token[place - 1 - n] == token[count - 1 - n]) n++;
    return n;
}

int64_t ngram_find(const int32_t *token, int64_t count, int64_t longest, int64_t *place)
{
    int64_t best = 0;
    *place = count;
    for (int64_t at = count - 1; at > 0 && best < longest; at--) {
        const int64_t n = alike_before(token, count, at, longest);
        if (n > best) best = n, *place = at;
    }
    return count - *place;
}

/* ---- the draft model --------------------------------------------------------------------------------------------- */

static enum error_code begin_sequence(struct proposer *proposer, struct draft_sequence *s, int64_t tokens,
                                      struct error *err)
{
    const struct model_config *const c = &proposer->draft->model.config;
    const int64_t most = proposer->how->most;
    enum error_code e = past_open(&s->past, &proposer->draft->model, tokens, err);
    if (!e) e = take_memory(proposer->device, s->past.blocks * tokens * 2 * c->K * c->A,
                            "the draft model's keys and values", &s->memory, err);
    s->q = malloc((size_t)(most * proposer->V) * sizeof *s->q);
    return e || s->q ? e : fail(err, ERR_MEMORY, "no memory for the probabilities of proposals");
}

static void note_pass(struct draft_pass *pass, int64_t first, int64_t count)
{
    const double before = (double)first, n = (double)count;
    pass->rows += count, pass->drawn++;
    pass->pairs += n * before + n * (n + 1) / 2, pass->all += n * (before + n);
    if (first + count > pass->keys) pass->keys = first + count;
}

/* Proposal i, whose token stands behind those that the model computes now. */
static enum error_code draft_one(struct proposer *proposer, const struct request *request, struct draft_sequence *s,
                                 const int32_t *token, int64_t tokens, int64_t i, int64_t place, int32_t *proposed,
                                 struct error *err)
{
    struct draft *const d = proposer->draft;
    const struct place_numbers numbers = place_numbers_of(request->how.seed, place);
    double *const q = s->q + i * proposer->V;
    note_pass(&d->pass[i], s->past.count, tokens);
    enum error_code e = transformer_continue(&d->model, &s->past, token, tokens, err);
    const struct tensor logits = d->model.config.logit_cap > 0 ? d->model.capped : d->model.logits;
    if (!e) e = fail_about(err, sampling_distribution(&request->how, logits, tokens - 1, q, err), "--draft");
    if (!e) *proposed = sampling_draw(q, proposer->V, proposal_number(proposer->how->rule, &numbers));
    return e;
}

static enum error_code draft_propose(struct proposer *proposer, const struct request *request,
                                     const struct sequence *sequence, int64_t count, int64_t tokens, int32_t *token,
                                     struct error *err)
{
    struct draft_sequence *const s = &proposer->draft->sequence[sequence->number];
    const int64_t place = count - sequence->prompt;
    enum error_code e = s->q ? OK : begin_sequence(proposer, s, request->prompt.count + request->most, err);
    /* The last token of the sequence is new; of those before it the past has at most what was taken. */
    if (s->past.count > count - 1) s->past.count = count - 1;
    for (int64_t i = 0; i < tokens && !e; i++) {
        const int64_t first = s->past.count;
        e = i == 0 ? draft_one(proposer, request, s, sequence->token + first, count - first, i, place, token, err)
                   : draft_one(proposer, request, s, token + i - 1, 1, i, place + i, token + i, err);
    }
    return e;
}

const double *proposer_distribution(const struct proposer *proposer, int64_t number, int64_t i)
{
    return proposer->draft ? proposer->draft->sequence[number].q + i * proposer->V : NULL;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

enum error_code proposer_propose(struct proposer *proposer, const struct request *request,
                                 const struct sequence *sequence, int64_t count, int32_t *token, int64_t *tokens,
                                 struct error *err)
{
    /* The answer's last token is the model's own. */
    const int64_t left = sequence->end.most - (count - sequence->prompt) - 1;
    int64_t n = left < proposer->how->most ? left : proposer->how->most, place;
    enum error_code e = OK;
    if (n > 0 && proposer->draft == NULL) {
        const int64_t found = ngram_find(sequence->token, count, proposer->how->longest, &place);
        if (found < n) n = found;
        memcpy(token, sequence->token + place, (size_t)n * sizeof *token);
    } else if (n > 0) e = draft_propose(proposer, request, sequence, count, n, token, err);
    *tokens = n > 0 && !e ? n : 0;
    proposer->counts.proposed += *tokens;
    return e;
}

/* The kernels of a pass: a product for each matrix, attention and the norms of each layer, drawing. */
static void charge_pass(struct proposer *proposer, const struct draft_pass *pass)
{
    struct device *const device = proposer->device;
    const struct model_config *const c = &proposer->draft->model.config;
    const struct attention shape = { .S = pass->keys, .H = c->H, .K = c->K, .A = c->A, .pairs = pass->pairs };
    for (int i = 0; i < model_param_count(c); i++) {
        const struct param_spec spec = model_param(c, i);
        const bool head = i == param_head(c);
        if (param_is_linear(&spec))
            device_charge(device, "linear forward", linear_cost(pass->rows, spec.dim[1], spec.dim[0], device->dtype));
        /* Only rows of which a token is drawn have logits. */
        if (head) device_charge(device, "linear forward", linear_cost(pass->drawn, c->D, c->V, device->dtype));
    }
    for (int64_t layer = 0; layer < c->L; layer++) {
        struct op_cost cost = attention_part_forward_cost(pass->pairs, pass->rows, pass->keys, shape, device->dtype);
        cost.columns = pass->keys, cost.seen = pass->pairs / pass->all;
        device_charge(device, "attention forward", cost);
        device_charge(device, "rmsnorm forward", elementwise_cost(2 * pass->rows * c->D, 2, 4, device->dtype));
    }
    device_charge(device, "draw tokens", elementwise_cost(pass->drawn * c->V, 2, 4, device->dtype));
}

void proposer_charge(struct proposer *proposer)
{
    for (int64_t i = 0; i < proposer->how->most && proposer->draft; i++) {
        if (proposer->draft->pass[i].drawn > 0) charge_pass(proposer, &proposer->draft->pass[i]);
        proposer->draft->pass[i] = (struct draft_pass){ .rows = 0 };
    }
}
