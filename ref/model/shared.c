/* shared.c -- the shared experts of a mixture: a feed-forward that every token goes through, beside those that its
 * router has chosen.
 *
 * Source  D. Dai et al., "DeepSeekMoE", arXiv:2401.06066, section 3.2: N_s experts that are always active are one that
 *         is N_s times as wide; the gate: Qwen1.5-MoE, class Qwen2MoeSparseMoeBlock of transformers
 * Called  mixture.c calls these functions.  No function returns an error code.
 */
#include "ref/model/params.h"
#include "ref/model/transformer_parts.h"

/* model->branch += the shared experts of the block's ln2. */
void shared_forward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    struct block_activations *a = &model->block[layer];
    struct tensor result = a->shared;

    /* shared [N,D] = W_down (silu(gate) up), of all tokens. */
    op->linear_forward(a->shared_up, a->ln2, W(SHARED_UP_W), tensor_none);
    computed(model, "shared.up", layer, a->shared_up, c->D);
    op->swiglu_forward(a->shared_act, a->shared_up);
    computed(model, "shared.act", layer, a->shared_act, 1);
    op->linear_forward(a->shared, a->shared_act, W(SHARED_DOWN_W), tensor_none);
    computed(model, "shared.out", layer, a->shared, c->mixture.shared);
    if (c->mixture.shared_gate) {
        /* gate [N,1]; result = sigmoid(gate) shared. */
        op->linear_forward(a->gate, a->ln2, W(SHARED_GATE_W), tensor_none);
        computed(model, "shared.gate", layer, a->gate, c->D);
        result = model->d_shared;                           /* free at this time */
        op->gate_forward(result, a->shared, a->gate);
        computed(model, "shared.gated", layer, result, 1);
    }
    op->add(model->branch, model->branch, result);
}

/* model->d_shared = the gradient of the block's ln2 by the shared experts; model->d_branch stays that of the mixture's
 * output. */
void shared_backward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    struct block_activations *a = &model->block[layer];
    const struct tensor from_gate = model->d_step;     /* free at this time */
    struct tensor d_result = model->d_branch;

    if (c->mixture.shared_gate) {
        computed_gradient(model, "shared.gated", layer, model->d_branch, 1);
        d_result = model->d_shared;
        /* d_shared = sigmoid(gate) d_branch;  d_gate [N,1] = sigmoid' times the sum of d_branch shared over the row. */
        op->gate_backward_input(d_result, model->d_gate, model->d_branch, a->shared, a->gate);
        computed_gradient(model, "shared.gate", layer, model->d_gate, c->D);
        op->linear_backward_weight(G(SHARED_GATE_W), tensor_none, model->d_gate, a->ln2);
    }
    computed_gradient(model, "shared.out", layer, d_result, 1);
    op->linear_backward_weight(G(SHARED_DOWN_W), tensor_none, d_result, a->shared_act);
    op->linear_backward_input(model->d_shared_act, d_result, W(SHARED_DOWN_W));
    computed_gradient(model, "shared.act", layer, model->d_shared_act, c->D);
    op->swiglu_backward_input(model->d_shared_up, model->d_shared_act, a->shared_up);
    computed_gradient(model, "shared.up", layer, model->d_shared_up, 1);
    op->linear_backward_weight(G(SHARED_UP_W), tensor_none, model->d_shared_up, a->ln2);
    op->linear_backward_input(model->d_shared, model->d_shared_up, W(SHARED_UP_W));
    if (!c->mixture.shared_gate) return;
    /* ln2 is read by the experts and by the gate. */
    op->linear_backward_input(from_gate, model->d_gate, W(SHARED_GATE_W));
    op->add(model->d_shared, model->d_shared, from_gate);
}
