/* proposer.c -- proposals from a sequence's own past, or from a draft model.  engine.c calls.  Errors:
 * ERR_MEMORY, ERR_USAGE of a draft model that does not fit, ERR_DIVERGED of its logits, those of its weights' files. */
#include "emulated_devices/serve/proposer.h"
#include "emulated_devices/device/arena_list.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/serve/hidden.h"
#include "ref/model/params.h"
#include "ref/model/predictor.h"
#include "ref/model/weights.h"
#include <stdlib.h>
#include <string.h>

/* One sequence, as the draft model, or the module, knows it. */
struct draft_sequence {
    struct past past;                   /* keys and values; of no tokens: not begun */
    struct tensor memory;               /* the device's memory for them */
    double *q;                          /* [most, V] of the last proposals */
    int64_t heard;                      /* tokens whose keys and values a module has of the model's stream */
};

/* A pass of the draft model over all sequences, for the clock. */
struct draft_pass { double pairs, all; int64_t rows, keys, drawn; };

struct draft {
    struct transformer model;           /* with its weights; not of a module */
    struct predictor predictor;         /* of a module */
    struct transformer *runs;           /* the model, or the module's block */
    struct hidden hidden;               /* of a module */
    struct tensor rows;                 /* [room, D] of the stream, in the host's memory */
    struct tensor memory;               /* the device's memory for the weights */
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

static enum error_code open_model(struct proposer *proposer, const struct model_config *model, struct error *err)
{
    const struct speculation *const how = proposer->how;
    struct draft *const d = proposer->draft;
    struct model_config config = *how->config;
    config.exact = model->exact, d->runs = &d->model;
    enum error_code e = transformer_open(&d->model, &config, proposer->device->dtype, how->seed, err);
    if (!e && how->saved) e = fail_about(err, checkpoint_load_serial(&d->model, how->saved, err), "--draft");
    return e ? e : take_memory(proposer->device, model_elements(&config), "the draft model's weights", &d->memory, err);
}

static enum error_code read_module(struct predictor *predictor, const char *dir, struct error *err)
{
    struct weights w;
    enum error_code e = weights_open(&w, dir, err);
    if (e) return e;
    e = predictor_read(predictor, &w, err);
    weights_close(&w);
    return e;
}

static enum error_code open_module(struct proposer *proposer, const struct serving_limits *limits, struct error *err)
{
    const struct speculation *const how = proposer->how;
    struct draft *const d = proposer->draft;
    d->runs = &d->predictor.block;
    enum error_code e = predictor_open(&d->predictor, how->config, proposer->device->dtype, how->seed, err);
    if (!e && how->saved) e = fail_about(err, read_module(&d->predictor, how->saved->dir, err), "--draft mtp");
    if (!e) e = hidden_open(&d->hidden, proposer->device, limits, how->config->D, err);
    if (e) return e;
    int64_t numbers = model_elements(&d->runs->config);
    for (int i = 0; i < PREDICTOR_PARAMS; i++) numbers += tensor_count(d->predictor.w[i]);
    return take_memory(proposer->device, numbers, "the weights of the layer that predicts", &d->memory, err);
}

static enum error_code draft_open(struct proposer *proposer, const struct model_config *model, int64_t requests,
                                  const struct serving_limits *limits, struct error *err)
{
    const struct speculation *const how = proposer->how;
    struct draft *const d = proposer->draft = calloc(1, sizeof *d);
    if (d == NULL) return fail(err, ERR_MEMORY, "no memory for a draft model");
    d->requests = requests;
    d->sequence = calloc((size_t)requests + 1, sizeof *d->sequence);
    d->pass = calloc((size_t)how->most, sizeof *d->pass);
    if (d->sequence == NULL || d->pass == NULL) return fail(err, ERR_MEMORY, "no memory for a draft model");
    return how->module ? open_module(proposer, limits, err) : open_model(proposer, model, err);
}

enum error_code proposer_open(struct proposer *proposer, const struct speculation *how, struct device *device,
                              const struct model_config *model, int64_t requests, const struct serving_limits *limits,
                              struct error *err)
{
    *proposer = (struct proposer){ .how = how, .device = device, .V = model->V };
    return how->config ? draft_open(proposer, model, requests, limits, err) : OK;
}

enum error_code proposer_read_stream(struct proposer *proposer, const struct iteration *now, struct tensor stream,
                                     struct error *err)
{
    return hidden_keep(&proposer->draft->hidden, now, stream, err);
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
    predictor_close(&d->predictor);
    hidden_close(&d->hidden);
    if (tensor_present(d->memory)) device_free(proposer->device, d->memory);
    free(d->sequence), free(d->pass), free(d->rows.data), free(d);
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
    const struct model_config *const c = &proposer->draft->runs->config;
    const int64_t most = proposer->how->most;
    enum error_code e = past_open(&s->past, proposer->draft->runs, tokens, err);
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

/* Rows of the draft model, or of the module, whose logits and stream are then those of these rows.
 * @param hidden  of the module: [tokens, D] what each row reads beside its token. */
static enum error_code compute_draft(struct draft *draft, struct draft_sequence *s, struct tensor hidden,
                                     const int32_t *token, int64_t tokens, struct error *err)
{
    return draft->runs == &draft->model ? transformer_continue(&draft->model, &s->past, token, tokens, err)
                                        : predictor_continue(&draft->predictor, &s->past, hidden, token, tokens, err);
}

/* Proposal i, whose token stands behind those that the model computes now. */
static enum error_code draft_one(struct proposer *proposer, const struct request *request, struct draft_sequence *s,
                                 struct tensor hidden, const int32_t *token, int64_t tokens, int64_t i, int64_t place,
                                 int32_t *proposed, struct error *err)
{
    struct draft *const d = proposer->draft;
    const struct place_numbers numbers = place_numbers_of(request->how.seed, place);
    double *const q = s->q + i * proposer->V;
    note_pass(&d->pass[i], s->past.count, tokens);
    enum error_code e = compute_draft(d, s, hidden, token, tokens, err);
    const struct tensor logits = d->runs->config.logit_cap > 0 ? d->runs->capped : d->runs->logits;
    if (!e) e = fail_about(err, sampling_distribution(&request->how, logits, tokens - 1, q, err), "--draft");
    if (!e) *proposed = sampling_draw(q, proposer->V, proposal_number(proposer->how->rule, &numbers));
    return e;
}

/* The model's stream of some tokens of a sequence, behind its final norm. */
static enum error_code hear_stream(struct draft *draft, const struct sequence *sequence, int64_t first, int64_t count,
                                   struct tensor *hidden, struct error *err)
{
    const struct tensor kept = draft->hidden.kept;
    *hidden = tensor_2d(NULL, kept.dtype, count, tensor_cols(kept));
    if (draft->rows.data == NULL || tensor_bytes(draft->rows) < tensor_bytes(*hidden)) {
        free(draft->rows.data);
        draft->rows = *hidden, draft->rows.data = malloc(tensor_bytes(*hidden));
        if (draft->rows.data == NULL)
            return draft->rows = tensor_none, fail(err, ERR_MEMORY, "no memory for %lld rows", (long long)count);
    }
    hidden->data = draft->rows.data;
    hidden_of(&draft->hidden, sequence, first, count, *hidden);
    return predictor_norm(&draft->predictor, *hidden, *hidden, err);
}

/* The first proposal is computed from new tokens; by a module also from the stream of those before them.
 * @return how many; *token: the first. */
static int64_t begin_draft(struct proposer *proposer, struct draft_sequence *s, const struct sequence *sequence,
                           int64_t count, const int32_t **token, struct tensor *hidden, enum error_code *e,
                           struct error *err)
{
    /* The last token of the sequence is new; of those before it the past has at most what was taken. */
    if (s->past.count > count - 1) s->past.count = count - 1;
    *token = sequence->token + s->past.count, *hidden = tensor_none;
    if (!proposer->how->module) return count - s->past.count;
    const int64_t first = s->past.count = s->heard;
    s->heard = count - 1, *token = sequence->token + first + 1;
    *e = hear_stream(proposer->draft, sequence, first, s->heard - first, hidden, err);
    return s->heard - first;
}

static enum error_code draft_propose(struct proposer *proposer, const struct request *request,
                                     const struct sequence *sequence, int64_t count, int64_t tokens, int32_t *token,
                                     struct error *err)
{
    struct draft_sequence *const s = &proposer->draft->sequence[sequence->number];
    const int64_t place = count - sequence->prompt;
    const int32_t *new;
    struct tensor hidden;
    enum error_code e = s->q ? OK : begin_sequence(proposer, s, request->prompt.count + request->most, err);
    if (e) return e;
    int64_t rows = begin_draft(proposer, s, sequence, count, &new, &hidden, &e, err);
    for (int64_t i = 0; i < tokens && !e; i++) {
        e = draft_one(proposer, request, s, hidden, new, rows, i, place + i, token + i, err);
        /* A module's next row reads its own stream of the last one. */
        if (proposer->how->module && !e) hidden = tensor_rows_of(proposer->draft->runs->lnf, rows - 1, 1);
        new = token + i, rows = 1;
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

/* Rows of a pass that a matrix multiplies: of an expert an even part, as if all had as many. */
static int64_t rows_of_matrix(const struct model_config *config, const struct param_spec *spec, int64_t rows)
{
    const int64_t all = rows * config->mixture.k, busy = all < config->mixture.E ? all : config->mixture.E;
    if (spec->expert < 0) return rows;
    return spec->expert < busy ? (all + busy - 1) / busy : 0;
}

/* A module joins two normed rows of each token, and multiplies them. */
static void charge_joining(struct device *device, const struct model_config *config, int64_t rows)
{
    device_charge(device, "rmsnorm forward", elementwise_cost(3 * rows * config->D, 2, 4, device->dtype));
    device_charge(device, "linear forward", linear_cost(rows, 2 * config->D, config->D, device->dtype));
}

/* The kernels of a pass: a product for each matrix, attention and the norms of each layer, drawing. */
static void charge_pass(struct proposer *proposer, const struct draft_pass *pass)
{
    struct device *const device = proposer->device;
    const struct model_config *const c = &proposer->draft->runs->config;
    const struct attention shape = { .S = pass->keys, .H = c->H, .K = c->K, .A = c->A, .pairs = pass->pairs };
    for (int i = 0; i < model_param_count(c); i++) {
        const struct param_spec spec = model_param(c, i);
        const bool head = i == param_head(c);
        const int64_t rows = rows_of_matrix(c, &spec, pass->rows);
        if ((param_is_linear(&spec) || (spec.ndim == 2 && spec.role == ROLE_ROUTER)) && rows > 0)
            device_charge(device, "linear forward", linear_cost(rows, spec.dim[1], spec.dim[0], device->dtype));
        /* Only rows of which a token is drawn have logits. */
        if (head) device_charge(device, "linear forward", linear_cost(pass->drawn, c->D, c->V, device->dtype));
    }
    if (proposer->how->module) charge_joining(device, c, pass->rows);
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
