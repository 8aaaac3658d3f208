#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/block.h"
#include "emulated_devices/model/ends.h"
#include "emulated_devices/model/memory.h"

/* ---- the embedding ----------------------------------------------------------------------------------------------- */

enum error_code embedding_forward(struct stage *s, struct microbatch *m, struct tensor x, struct error *err)
{
    const struct parameter *wte = parameter_find(s->parameters, PARAM_WTE), *wpe = parameter_find(s->parameters, param_positions(&s->plan->model));
    enum error_code e = s->tp->scheme->embedding_forward(s->tp, x, m->ids, wte->w, err);
    if (e) return e;
    dev_embedding_forward(s->device, x, m->positions, wpe->w, 0, true);
    dev_dropout(s->device, x, x, dropout_of(s, m, s->plan->model.dropout_embedding, -1, "embedding"));
    return OK;
}

void embedding_backward_weight(struct stage *s, struct microbatch *m)
{
    s->tp->scheme->embedding_backward_weight(s->tp, parameter_find(s->parameters, PARAM_WTE)->g, m->d_in, m->ids);
    dev_embedding_backward_weight(s->device, parameter_find(s->parameters, param_positions(&s->plan->model))->g, m->d_in, m->positions, 0);
    drop_tensor(s->device, &m->d_in);
}

/* ---- the loss ---------------------------------------------------------------------------------------------------- */

static struct tensor half(struct tensor sums, int which)
{
    const int64_t N = tensor_count(sums) / 2;
    return tensor_1d((char *)sums.data + (size_t)(which * N) * dtype_size(sums.dtype), sums.dtype, N);
}

enum error_code loss_forward(struct stage *s, struct microbatch *m, int micro, struct error *err)
{
    const struct model_config *c = &s->plan->model;
    struct allocator a = { s->device, ACTIVATIONS, false };
    const int final = param_final_norm(c);
    double loss = 0;
    m->lnf_mean = allocate_statistics(&a, m->N, 0), m->lnf_rstd = allocate_statistics(&a, m->N, 0), m->lnf = allocate_matrix(&a, m->N, c->D);
    m->logits = allocate_matrix(&a, m->N, s->tp->tokens), m->top = allocate_statistics(&a, m->N, 0), m->sums = allocate_statistics(&a, 2 * m->N, 0);
    if (a.failed) return fail(err, ERR_MEMORY, "the machine has no memory left for the loss of microbatch %d", micro);
    dev_layernorm_forward(s->device, m->lnf, m->lnf_mean, m->lnf_rstd, m->out, parameter_find(s->parameters, final)->w,
                          parameter_find(s->parameters, final + 1)->w, c->eps);
    enum error_code e = s->tp->scheme->linear_forward(s->tp, ROLE_HEAD, m->logits, m->lnf,
                                                      parameter_find(s->parameters, param_head(c))->w, tensor_none, err);
    if (!e) e = s->tp->scheme->cross_entropy_forward(s->tp, &loss, m->top, half(m->sums, 0), half(m->sums, 1), m->logits, m->labels, err);
    s->loss += loss;
    return e;
}

struct kept loss_keeps(const struct stage *s)
{
    /* out, lnf; logits;  mean, rstd; top, total, hit */
    return (struct kept){ .elements = 2 * s->plan->model.D + s->tp->tokens, .statistics = 2 + 3 };
}

enum error_code loss_backward_input(struct stage *s, struct microbatch *m, struct error *err)
{
    const struct model_config *c = &s->plan->model;
    struct allocator a = { s->device, BUFFERS, false };
    m->d_out = allocate_matrix(&a, m->N, c->D);
    m->d_lnf = allocate_matrix(&a, m->N, c->D);
    if (a.failed) return fail(err, ERR_MEMORY, "no memory for the gradient of the loss");
    s->tp->scheme->cross_entropy_backward(s->tp, m->logits, m->logits, half(m->sums, 0), m->top, m->labels,
                                          1 / (double)(s->counted ? s->counted : 1));
    enum error_code e = s->tp->scheme->linear_backward_input(s->tp, ROLE_HEAD, m->d_lnf, m->logits,
                                                             parameter_find(s->parameters, param_head(c))->w, err);
    if (!e) dev_layernorm_backward_input(s->device, m->d_out, m->d_lnf, m->out, parameter_find(s->parameters, param_final_norm(c))->w,
                                         m->lnf_mean, m->lnf_rstd);
    return e;
}

void loss_backward_weight(struct stage *s, struct microbatch *m)
{
    const struct model_config *c = &s->plan->model;
    const int final = param_final_norm(c);
    s->tp->scheme->linear_backward_weight(s->tp, ROLE_HEAD, parameter_find(s->parameters, param_head(c))->g, tensor_none, m->logits, m->lnf);
    dev_layernorm_backward_weight(s->device, parameter_find(s->parameters, final)->g, parameter_find(s->parameters, final + 1)->g,
                                  m->d_lnf, m->out, m->lnf_mean, m->lnf_rstd);
    struct tensor *const all[] = { &m->out, &m->lnf_mean, &m->lnf_rstd, &m->lnf, &m->logits, &m->top, &m->sums, &m->d_lnf };
    drop_tensors(s->device, all, sizeof all / sizeof *all);
}
