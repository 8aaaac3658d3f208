#include "emulated_devices/model/probe.h"
#include <string.h>

static const struct activation activations[] = {
    { "embedding", WIDTH_MODEL, "the embeddings of tokens and positions, added", "the backward pass of h.0.ln_1 for its input, added to the gradient of h.0.mid" },
    { "ln_1", WIDTH_MODEL, "the layernorm %sln_1", "the backward pass of the linear layer %sattn.c_attn for its input" },
    { "attn.qkv", WIDTH_QKV, "the linear layer %sattn.c_attn", "the backward pass of attention in %sattn" },
    { "attn.rotated", WIDTH_QKV, "the rotary positions in %sattn", "the backward pass of attention in %sattn" },
    { "attn.heads", WIDTH_HEADS, "attention in %sattn", "the backward pass of the linear layer %sattn.c_proj for its input" },
    { "attn.out", WIDTH_MODEL, "the linear layer %sattn.c_proj", "the gradient of %smid, through dropout" },
    { "mid", WIDTH_MODEL, "the residual sum after %sattn", "the backward pass of %sln_2 for its input, added to the gradient of the block's output" },
    { "ln_2", WIDTH_MODEL, "the layernorm %sln_2", "the backward pass of the linear layer %smlp.c_fc for its input" },
    { "mlp.up", WIDTH_UP, "the linear layer %smlp.c_fc", "the backward pass of gelu in %smlp" },
    { "mlp.act", WIDTH_ACT, "gelu in %smlp", "the backward pass of the linear layer %smlp.c_proj for its input" },
    { "mlp.out", WIDTH_MODEL, "the linear layer %smlp.c_proj", "the gradient of %sout, through dropout" },
    { "out", WIDTH_MODEL, "the residual sum after %smlp", "the backward pass of the norm that reads %sout, added to the gradient of the residual sum after it" },
    { "ln_f", WIDTH_MODEL, "the layernorm ln_f", "the backward pass of the output matrix for its input" },
    { "logits", WIDTH_VOCABULARY, "the output matrix", "the backward pass of the cross-entropy" },
};

const struct activation *activation_find(const char *name)
{
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (strcmp(activations[i].name, name) == 0) return &activations[i];
    return NULL;
}

int plan_stage_of(const struct plan *p, const char *name, int layer, bool gradient)
{
    const int l = layer + (gradient && strcmp(name, "out") == 0);
    int stage = 0;
    while (stage + 1 < p->stages && plan_first_layer(p, stage + 1) <= l) stage++;
    return stage;
}

/* Keys, then values. */
static void add_keys(struct spans *s, const struct model_config *c, struct heads h)
{
    spans_add(s, (c->H + h.key) * c->A, h.keys * c->A);
    spans_add(s, (c->H + c->K + h.key) * c->A, h.keys * c->A);
}

struct spans activation_columns(const struct tensor_parallel *tp, enum activation_width width, bool gradient)
{
    const struct heads h = tp->heads;
    const struct model_config *c = tp->config;
    struct spans s = { 0 };
    switch (width) {
    case WIDTH_MODEL:      spans_add(&s, tp->channel, tp->channels); break;
    case WIDTH_QKV:
        spans_add(&s, h.query * c->A, h.queries * c->A);
        if (!gradient || h.copies == 1) add_keys(&s, c, h);
        break;
    case WIDTH_HEADS:      spans_add(&s, h.query * c->A, h.queries * c->A); break;
    case WIDTH_UP:
        for (int64_t first = 0; first < up_width(c); first += c->F) spans_add(&s, first + tp->column, tp->columns);
        break;
    case WIDTH_ACT:        spans_add(&s, tp->column, tp->columns); break;
    case WIDTH_VOCABULARY: spans_add(&s, tp->token, tp->tokens); break;
    }
    return s;
}

/* A device's share in the plan's tensor scheme; place: room for its group. */
static struct tensor_parallel share_of(const struct plan *p, int rank, struct group *place)
{
    const struct tensor_scheme *scheme = NULL;
    *place = (struct group){ .size = p->mesh.size[TP], .rank = mesh_coordinate(&p->mesh, rank, TP) };
    tensor_scheme_find(&scheme, p->tensor, NULL);
    struct tensor_parallel tp = { .scheme = scheme, .config = &p->model, .group = place, .S = p->S };
    tensor_share(&tp);
    return tp;
}

int64_t plan_columns(const struct plan *p, int rank, const struct activation *a)
{
    struct group place;
    const struct tensor_parallel tp = share_of(p, rank, &place);
    const struct spans columns = activation_columns(&tp, a->width, false);
    return spans_extent(&columns);
}

struct part plan_part(const struct plan *p, int rank, const struct activation *a, int64_t cols, int micro, bool gradient)
{
    const struct sequences own = plan_microbatch(p, mesh_coordinate(&p->mesh, rank, DP), micro);
    struct group place;
    const struct tensor_parallel tp = share_of(p, rank, &place);
    const struct rows rows = tensor_rows_at(&tp, a->width == WIDTH_MODEL ? STREAM : INNER, own.count * p->S);
    struct part part = { .dim = { p->B * p->S, cols }, .cols = activation_columns(&tp, a->width, gradient) };
    spans_add(&part.rows, own.first * p->S + rows.first, rows.count);
    return part;
}
