/* drawing.c -- the device of a replica that draws its tokens: with a request's own seed, from logits of an iteration;
 * proposals; the judge.  engine.c calls.  Errors: ERR_MEMORY; ERR_DIVERGED of logits; those of weights' files. */
#include "emulated_devices/serve/drawing.h"
#include "emulated_devices/device/device.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/serve/told.h"
#include <stdlib.h>
#include <string.h>

/* The logits of a sequence's answer so far, for the judge; what was proposed, if the rule's choice depends on it. */
struct kept_logits { void *data; int64_t rows, room; int32_t *proposed; double *q; };

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* Twice as much room for the rows of a sequence's logits. */
static enum error_code grow_kept(const struct drawing *drawing, struct kept_logits *kept, struct error *err)
{
    const struct speculation *const how = &drawing->job->speculation;
    const size_t room = kept->room > 0 ? 2 * (size_t)kept->room : 8, V = (size_t)drawing->V;
    void *const data = realloc(kept->data, room * V * dtype_size(drawing->device->dtype));
    if (data) kept->data = data;
    bool ok = data != NULL;
    if (ok && how->most > 0 && how->rule == RULE_RATIO) {
        int32_t *const proposed = realloc(kept->proposed, room * sizeof *proposed);
        if (proposed) kept->proposed = proposed;
        double *const q = how->config ? realloc(kept->q, room * V * sizeof *q) : NULL;
        if (q) kept->q = q;
        ok = proposed && (q || how->config == NULL);
    }
    if (!ok) return fail(err, ERR_MEMORY, "no memory for the logits of an answer");
    kept->room = (int64_t)room;
    return OK;
}

/* One more row of a sequence's logits. */
static enum error_code keep_row(struct drawing *drawing, int64_t request, const char *row,
                                const struct proposal *proposal, struct error *err)
{
    struct kept_logits *const kept = &drawing->kept[request];
    const size_t V = (size_t)drawing->V, bytes = V * dtype_size(drawing->device->dtype);
    const enum error_code e = kept->rows == kept->room ? grow_kept(drawing, kept, err) : OK;
    if (e) return e;
    memcpy((char *)kept->data + (size_t)kept->rows * bytes, row, bytes);
    if (kept->proposed) kept->proposed[kept->rows] = proposal->token;
    if (kept->q && proposal->q) memcpy(kept->q + (size_t)kept->rows * V, proposal->q, V * sizeof *kept->q);
    kept->rows++;
    return OK;
}

static void count_proposal(struct drawing *drawing, const struct proposal *proposal, int32_t token)
{
    struct proposal_counts *const c = &drawing->proposer.counts;
    if (proposal->token == NO_PROPOSAL) return;
    const double chance = proposal_chance(drawing->job->speculation.rule, drawing->p, drawing->V, *proposal);
    c->tested++, c->taken += token == proposal->token;
    c->expected += chance, c->variance += chance * (1 - chance);
}

/* The draws of an answer are numbered from 0 with the request's own seed: neither the batch nor a preemption has a
 * part in them. */
static enum error_code draw_token(struct drawing *drawing, const struct sequence *sequence, int64_t place,
                                  const struct proposal *proposal, struct tensor logits, int64_t row, int32_t *token,
                                  struct error *err)
{
    const struct request *const r = &drawing->job->requests->at[sequence->number];
    const int64_t V = drawing->V;
    const struct place_numbers numbers = place_numbers_of(r->how.seed, place);
    if (!drawing->device->backend->has_numbers) return *token = sequence_unseen(sequence, place), OK;
    const enum error_code e = sampling_distribution(&r->how, logits, row, drawing->p, err);
    if (e) return fail_about(err, e, r->name);
    *token = proposal_settle(drawing->job->speculation.rule, drawing->p, V, *proposal, &numbers, drawing->p + V);
    count_proposal(drawing, proposal, *token);
    return OK;
}

static bool ends_answer(const struct sequence *sequence, int32_t token)
{
    for (int i = 0; i < sequence->end.stops; i++)
        if (sequence->end.stop[i] == token) return true;
    return false;
}

/* The tokens of a piece: up to the first proposal that is not taken, or one more than proposals. */
static enum error_code draw_piece(struct drawing *drawing, const struct token_piece *piece, struct tensor logits,
                                  int64_t row, int32_t *token, int64_t *tokens, struct error *err)
{
    const struct sequence *const s = piece->of;
    bool goes_on = true;
    enum error_code e = OK;
    for (*tokens = 0; goes_on && !e; ++*tokens) {
        const int64_t i = *tokens;
        const struct proposal proposal = {
            i < piece->proposals ? s->token[s->count + i] : NO_PROPOSAL,
            i < piece->proposals ? proposer_distribution(&drawing->proposer, s->number, i) : NULL };
        e = draw_token(drawing, s, s->count - s->prompt + i, &proposal, logits, row + i, &token[i], err);
        if (!e && drawing->job->check)
            e = keep_row(drawing, s->number, tensor_rows_of(logits, row + i, 1).data, &proposal, err);
        goes_on = !e && token[i] == proposal.token && !ends_answer(s, token[i]);
    }
    return e;
}

/* Behind the tokens of a piece; the sequence has them already. */
static enum error_code propose_next(struct drawing *drawing, struct sequence *sequence, const int32_t *token,
                                    int64_t tokens, int32_t *proposal, int64_t *proposals, struct error *err)
{
    *proposals = 0;
    if (ends_answer(sequence, token[tokens - 1])) return OK;
    memcpy(sequence->token + sequence->count, token, (size_t)tokens * sizeof *token);
    return proposer_propose(&drawing->proposer, &drawing->job->requests->at[sequence->number], sequence,
                            sequence->count + tokens, proposal, proposals, err);
}

enum error_code drawing_draw(struct drawing *drawing, const struct iteration *now, const void *logits, int32_t *told,
                             struct error *err)
{
    const int64_t most = drawing->job->speculation.most;
    struct proposal_counts *const counts = &drawing->proposer.counts;
    const struct tensor all = tensor_2d((void *)logits, drawing->device->dtype, now->samples + now->proposals,
                                        drawing->V);
    enum error_code e = OK;
    for (int64_t i = 0, row = 0, n = 0; i < now->pieces && !e; i++) {
        if (!now->piece[i].samples) continue;
        int32_t *const piece = told_piece(told, most, n++), *const token = told_tokens(piece, most);
        int64_t tokens, proposals = 0;
        e = draw_piece(drawing, &now->piece[i], all, row, token, &tokens, err);
        if (!e && now->piece[i].proposals > 0)
            counts->passes[now->piece[i].proposals]++, counts->tokens += tokens;
        if (!e && most > 0 && drawing->proposes)
            e = propose_next(drawing, now->piece[i].of, token, tokens, told_proposals(piece, most), &proposals, err);
        told_count(piece, most, tokens, proposals);
        row += 1 + now->piece[i].proposals;
    }
    if (most > 0) proposer_charge(&drawing->proposer);
    return e;
}

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

/* The reference has the same weights: those of the files, or drawn from the same seed. */
static enum error_code open_judge(struct drawing *drawing, int64_t most, struct error *err)
{
    const struct plan *const p = drawing->job->plan;
    enum error_code e = transformer_open(&drawing->model, &p->model, p->dtype, p->seed, err);
    if (!e && drawing->job->saved)
        e = fail_about(err, checkpoint_load_serial(&drawing->model, drawing->job->saved, err), "--model");
    for (int64_t i = 0; i < drawing->job->requests->count; i++) {
        const struct request *const r = &drawing->job->requests->at[i];
        if (r->prompt.count + r->most > most) most = r->prompt.count + r->most;
    }
    return e ? e : judge_open(&drawing->judge, &drawing->model, most, ~p->seed, p->mesh.size[TP], err);
}

enum error_code drawing_open(struct drawing *drawing, const struct serving_job *job, struct device *device,
                             int64_t most, struct error *err)
{
    const int64_t n = job->requests->count, V = job->plan->model.V;
    *drawing = (struct drawing){ .job = job, .device = device, .V = V };
    drawing->kept = calloc((size_t)n + 1, sizeof *drawing->kept);
    drawing->p = malloc(2 * (size_t)V * sizeof *drawing->p);
    enum error_code e = drawing->kept && drawing->p ? OK : fail(err, ERR_MEMORY, "no memory to draw tokens");
    if (!e) e = proposer_open(&drawing->proposer, &job->speculation, device, &job->plan->model, n, &job->limits,
                              err);
    return !e && job->check ? open_judge(drawing, most, err) : e;
}

static void free_kept(struct kept_logits *kept)
{
    free(kept->data), free(kept->proposed), free(kept->q);
    *kept = (struct kept_logits){ .data = NULL };
}

void drawing_close(struct drawing *drawing)
{
    if (drawing->job == NULL) return;
    for (int64_t i = 0; i < drawing->job->requests->count && drawing->kept; i++) free_kept(&drawing->kept[i]);
    proposer_close(&drawing->proposer);
    judge_close(&drawing->judge);
    if (drawing->model.params) transformer_close(&drawing->model);
    free(drawing->kept), free(drawing->p);
    *drawing = (struct drawing){ .job = NULL };
}

enum error_code drawing_end(struct drawing *drawing, const struct sequence *sequence, struct verdict *verdict,
                            struct error *err)
{
    struct kept_logits *const kept = &drawing->kept[sequence->number];
    const struct tensor logits = tensor_2d(kept->data, drawing->device->dtype, kept->rows, drawing->V);
    enum error_code e = OK;
    drawing->judge.proposals = (struct judged_proposals){ drawing->job->speculation.rule, kept->proposed, kept->q };
    if (drawing->job->check)
        e = judge_answer(&drawing->judge, &drawing->job->requests->at[sequence->number], sequence->token,
                         sequence->count, logits, verdict, err);
    drawing_forget(drawing, sequence->number);
    return e;
}

void drawing_forget(struct drawing *drawing, int64_t request)
{
    free_kept(&drawing->kept[request]);
    proposer_forget(&drawing->proposer, request);
}

const void *drawing_row(const struct drawing *drawing, int64_t request) { return drawing->kept[request].data; }

enum error_code drawing_keep(struct drawing *drawing, int64_t request, const void *row, struct error *err)
{
    return keep_row(drawing, request, row, &(struct proposal){ NO_PROPOSAL, NULL }, err);
}
