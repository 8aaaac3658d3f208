#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/block.h"
#include "emulated_devices/model/ends.h"
#include "emulated_devices/model/matrix.h"
#include "emulated_devices/model/memory.h"

/* ---- the embedding ----------------------------------------------------------------------------------------------- */

enum error_code embedding_forward(struct stage *s, struct microbatch *m, struct tensor x, struct error *err)
{
    const int positions = param_positions(&s->plan->model);
    enum error_code e = tokens_forward(s, x, m->ids, err);
    if (!e && positions >= 0) e = tensor_positions_forward(s->tp, x, rows_of(m->positions, m->stream), stage_weight(s, positions), err);
    if (!e) dev_dropout(s->device, x, x, dropout_of(s, m, s->plan->model.dropout_embedding, -1, "embedding"));
    if (!e) stage_show(s, m, "embedding", -1, x);
    return e;
}

enum error_code embedding_backward_weight(struct stage *s, struct microbatch *m, struct error *err)
{
    const int positions = param_positions(&s->plan->model);
    enum error_code e = tokens_backward_weight(s, m->d_in, m->ids, err);
    if (!e && positions >= 0)
        e = tensor_positions_backward_weight(s->tp, stage_gradient(s, positions), m->d_in, rows_of(m->positions, m->stream), err);
    drop_tensor(s->device, &m->d_in);
    return e;
}

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

enum error_code loss_forward(struct stage *s, struct microbatch *m, int micro, struct error *err)
{
    const struct model_config *c = &s->plan->model;
    struct allocator a = { s->device, ACTIVATIONS, false };
    const int64_t n = m->stream.count, inner = m->inner.count;
    double loss = 0;
    if (c->norm == NORM_LAYER) m->lnf_mean = allocate_statistics(&a, n, 0);
    m->lnf_rstd = allocate_statistics(&a, n, 0), m->lnf = allocate_matrix(&a, m->input.count, s->tp->channels);
    m->logits = allocate_matrix(&a, inner, s->tp->tokens), m->top = allocate_statistics(&a, inner, 0), m->sums = allocate_statistics(&a, 2 * inner, 0);
    if (a.failed) return fail(err, ERR_MEMORY, "the machine has no memory left for the loss of microbatch %d", micro);
    enum error_code e = tensor_norm_forward(s->tp, tensor_own_rows(s->tp, m->lnf, m->N), m->lnf_mean, m->lnf_rstd, m->out,
                                            stage_weight(s, param_final_norm(c)), stage_weight(s, param_final_bias(c)), c->eps, err);
    if (!e) stage_show(s, m, "ln_f", (int)c->L, tensor_own_rows(s->tp, m->lnf, m->N));
    if (!e) e = matrix_forward(s, ROLE_HEAD, (int)c->L, m->N, m->logits, m->lnf, err);
    if (!e) stage_show(s, m, "logits", (int)c->L, m->logits);
    if (!e) e = tensor_cross_entropy_forward(s->tp, &loss, m->top, m->sums, m->logits, rows_of(m->labels, m->inner), err);
    s->loss += loss;
    return e;
}

void loss_drop(struct stage *s, struct microbatch *m)
{
    struct tensor *const all[] = { &m->out, &m->lnf_mean, &m->lnf_rstd, &m->lnf, &m->logits, &m->top, &m->sums, &m->d_lnf };
    drop_tensors(s->device, all, sizeof all / sizeof *all);
}

struct kept loss_keeps(const struct stage *s, const struct microbatch *m)
{
    /* out;  lnf;  logits.  Of statistics two or one of the norm;  top, total and hit */
    return (struct kept){
        .elements = (m->stream.count + m->input.count) * s->tp->channels + m->inner.count * s->tp->tokens,
        .statistics = (s->plan->model.norm == NORM_LAYER ? 2 : 1) * m->stream.count + 3 * m->inner.count,
    };
}

enum error_code loss_backward_input(struct stage *s, struct microbatch *m, struct error *err)
{
    const struct model_config *c = &s->plan->model;
    struct allocator a = { s->device, BUFFERS, false };
    m->d_out = allocate_matrix(&a, m->stream.count, s->tp->channels);
    m->d_lnf = allocate_matrix(&a, m->stream.count, s->tp->channels);
    if (a.failed) return fail(err, ERR_MEMORY, "no memory for the gradient of the loss");
    tensor_cross_entropy_backward(s->tp, m->logits, m->sums, m->top, rows_of(m->labels, m->inner), s->loss_scale / (double)(s->counted ? s->counted : 1));
    stage_show_gradient(s, m, "logits", (int)c->L, m->logits);
    enum error_code e = matrix_backward_input(s, ROLE_HEAD, (int)c->L, m->N, m->d_lnf, m->logits, err);
    if (!e) stage_show_gradient(s, m, "ln_f", (int)c->L, m->d_lnf);
    if (!e) e = tensor_norm_backward_input(s->tp, m->d_out, m->d_lnf, m->out, stage_weight(s, param_final_norm(c)),
                                           m->lnf_mean, m->lnf_rstd, err);
    if (!e) stage_show_gradient(s, m, "out", (int)c->L - 1, m->d_out);
    return e;
}

enum error_code loss_backward_weight(struct stage *s, struct microbatch *m, struct error *err)
{
    const struct model_config *c = &s->plan->model;
    enum error_code e = matrix_backward_weight(s, ROLE_HEAD, (int)c->L, m->N, m->logits, m->lnf, err);
    if (!e) e = tensor_norm_backward_weight(s->tp, stage_gradient(s, param_final_norm(c)), stage_gradient(s, param_final_bias(c)),
                                            m->d_lnf, m->out, m->lnf_mean, m->lnf_rstd, err);
    loss_drop(s, m);
    return e;
}
