/* models.c -- two graphs, and what makes data, tensor and sequence parallelism of them: a few signatures.
 *
 * A gradient that several operations read has a copy for them, "dy.whole", which may lie otherwise than the residual
 * stream: brought there once, it serves them all.
 */
#include "emulated_devices/schemes/sbp/graph.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TENSOR(name, like, ...) graph_tensor(g, name, (struct shape){ __VA_ARGS__ }, like)
#define OP(operator, letters, out, ...) graph_op(g, &sbp_##operator, letters, out, (const int[]){ __VA_ARGS__ })

void graph_mlp(struct sbp_graph *g, struct sbp_sizes z)
{
    const int64_t N = z.B * z.S;
    *g = (struct sbp_graph){ 0 };
    const int x = TENSOR("x", -1, 2, { N, z.D }, z.S), w1 = TENSOR("w1", -1, 2, { z.F, z.D }, 1),
              w2 = TENSOR("w2", -1, 2, { z.D, z.F }, 1);
    const int up = TENSOR("up", -1, 2, { N, z.F }, z.S), act = TENSOR("act", -1, 2, { N, z.F }, z.S),
              y = TENSOR("y", x, 2, { N, z.D }, z.S);
    const int dy = TENSOR("dy", x, 2, { N, z.D }, z.S), dy_whole = TENSOR("dy.whole", -1, 2, { N, z.D }, z.S);
    const int dact = TENSOR("dact", -1, 2, { N, z.F }, z.S), dup = TENSOR("dup", -1, 2, { N, z.F }, z.S);
    const int dx = TENSOR("dx", x, 2, { N, z.D }, z.S), dw1 = TENSOR("dw1", w1, 2, { z.F, z.D }, 1),
              dw2 = TENSOR("dw2", w2, 2, { z.D, z.F }, 1);
    OP(linear, "nd,fd->nf", up, x, w1);
    OP(gelu, "nf->nf", act, up);
    OP(linear, "nf,df->nd", y, act, w2);
    OP(copy, "nd->nd", dy_whole, dy);
    OP(linear_dw, "nd,nf->df", dw2, dy_whole, act);
    OP(linear_dx, "nd,df->nf", dact, dy_whole, w2);
    OP(gelu_dx, "nf,nf->nf", dup, dact, up);
    OP(linear_dw, "nf,nd->fd", dw1, dup, x);
    OP(linear_dx, "nf,fd->nd", dx, dup, w1);
}

/* The numbers of the block's tensors. */
struct block {
    int x, ln1, qkv, att, mid, ln2, up, act, y;
    int ln1_wb, qkv_w, qkv_b, out_w, out_b, ln2_wb, up_w, up_b, down_w, down_b;
};

static struct block block_forward(struct sbp_graph *g, struct sbp_sizes z, int64_t granule, bool tokens_split)
{
    const int64_t N = z.B * z.S, D = z.D;
    struct block b;
    b.x = TENSOR("x", -1, 2, { N, D }, granule);
    b.ln1_wb = TENSOR("ln1.wb", -1, 2, { 2, D }, 1), b.qkv_w = TENSOR("qkv.w", -1, 4, { 3, z.H, z.A, D }, 1),
    b.qkv_b = TENSOR("qkv.b", -1, 3, { 3, z.H, z.A }, 1);
    b.out_w = TENSOR("out.w", -1, 3, { D, z.H, z.A }, 1), b.out_b = TENSOR("out.b", -1, 1, { D }, 1),
    b.ln2_wb = TENSOR("ln2.wb", -1, 2, { 2, D }, 1);
    b.up_w = TENSOR("up.w", -1, 2, { z.F, D }, 1), b.up_b = TENSOR("up.b", -1, 1, { z.F }, 1);
    b.down_w = TENSOR("down.w", -1, 2, { D, z.F }, 1), b.down_b = TENSOR("down.b", -1, 1, { D }, 1);
    b.ln1 = TENSOR("ln1", -1, 2, { N, D }, granule), b.qkv = TENSOR("qkv", -1, 4, { N, 3, z.H, z.A }, granule),
    b.att = TENSOR("att", -1, 3, { N, z.H, z.A }, granule);
    b.mid = TENSOR("mid", b.x, 2, { N, D }, granule), b.ln2 = TENSOR("ln2", -1, 2, { N, D }, granule);
    b.up = TENSOR("up", -1, 2, { N, z.F }, granule), b.act = TENSOR("act", -1, 2, { N, z.F }, granule),
    b.y = TENSOR("y", b.x, 2, { N, D }, granule);
    const int qkv = TENSOR("qkv.product", -1, 4, { N, 3, z.H, z.A }, granule),
              out = TENSOR("out.product", b.x, 2, { N, D }, granule);
    const int out_sum = TENSOR("out.sum", -1, 2, { N, D }, granule),
              up = TENSOR("up.product", -1, 2, { N, z.F }, granule);
    const int down = TENSOR("down.product", b.x, 2, { N, D }, granule),
              down_sum = TENSOR("down.sum", -1, 2, { N, D }, granule);
    const struct attention a = { .S = z.S, .A = z.A, .scale = 1 / sqrt((double)z.A) };
    OP(norm, "nD,TD->nD", b.ln1, b.x, b.ln1_wb);
    OP(linear, "nd,ThAd->nThA", qkv, b.ln1, b.qkv_w);
    OP(add_bias, "nThA,ThA->nThA", b.qkv, qkv, b.qkv_b);
    OP(attention, tokens_split ? "NThA->NhA" : "nThA->nhA", b.att, b.qkv)->attention = a;
    OP(linear, "nhA,dhA->nd", out, b.att, b.out_w);
    OP(add_bias, "nd,d->nd", out_sum, out, b.out_b);
    OP(add, "nd,nd->nd", b.mid, b.x, out_sum);
    OP(norm, "nD,TD->nD", b.ln2, b.mid, b.ln2_wb);
    OP(linear, "nd,fd->nf", up, b.ln2, b.up_w);
    OP(add_bias, "nf,f->nf", b.up, up, b.up_b);
    OP(gelu, "nf->nf", b.act, b.up);
    OP(linear, "nf,df->nd", down, b.act, b.down_w);
    OP(add_bias, "nd,d->nd", down_sum, down, b.down_b);
    OP(add, "nd,nd->nd", b.y, b.mid, down_sum);
    return b;
}

static int gradient_of(struct sbp_graph *g, const char *name, int of)
{
    return graph_tensor(g, name, g->tensor[of].shape, g->tensor[of].like >= 0 ? g->tensor[of].like : -1);
}

static int weight_gradient(struct sbp_graph *g, const char *name, int of)
{
    return graph_tensor(g, name, g->tensor[of].shape, of);
}

void graph_block(struct sbp_graph *g, struct sbp_sizes z, bool tokens_split)
{
    *g = (struct sbp_graph){ 0 };
    const struct block b = block_forward(g, z, tokens_split ? 1 : z.S, tokens_split);
    const struct shape stream = g->tensor[b.x].shape;
    const int dy = graph_tensor(g, "dy", stream, b.x), dact = gradient_of(g, "dact", b.act),
              dup = gradient_of(g, "dup", b.up);
    const int dln2 = graph_tensor(g, "dln2", stream, b.x), dbranch2 = graph_tensor(g, "dmid.branch", stream, -1),
              dmid = graph_tensor(g, "dmid", stream, b.x);
    const int datt = gradient_of(g, "datt", b.att), dqkv = gradient_of(g, "dqkv", b.qkv),
              dln1 = graph_tensor(g, "dln1", stream, b.x);
    const int dy_whole = graph_tensor(g, "dy.whole", stream, -1),
              dmid_whole = graph_tensor(g, "dmid.whole", stream, -1);
    const int dbranch1 = graph_tensor(g, "dx.branch", stream, -1), dx = graph_tensor(g, "dx", stream, b.x);
    OP(copy, "nd->nd", dy_whole, dy);
    OP(linear_dw, "nd,nf->df", weight_gradient(g, "ddown.w", b.down_w), dy_whole, b.act);
    OP(bias_dw, "nd->d", weight_gradient(g, "ddown.b", b.down_b), dy_whole);
    OP(linear_dx, "nd,df->nf", dact, dy_whole, b.down_w);
    OP(gelu_dx, "nf,nf->nf", dup, dact, b.up);
    OP(linear_dw, "nf,nd->fd", weight_gradient(g, "dup.w", b.up_w), dup, b.ln2);
    OP(bias_dw, "nf->f", weight_gradient(g, "dup.b", b.up_b), dup);
    OP(linear_dx, "nf,fd->nd", dln2, dup, b.up_w);
    OP(norm_dw, "nD,nD,TD->TD", weight_gradient(g, "dln2.wb", b.ln2_wb), dln2, b.mid, b.ln2_wb);
    OP(norm_dx, "nD,nD,TD->nD", dbranch2, dln2, b.mid, b.ln2_wb);
    OP(add, "nd,nd->nd", dmid, dy, dbranch2);
    OP(copy, "nd->nd", dmid_whole, dmid);
    OP(linear_dw, "nd,nhA->dhA", weight_gradient(g, "dout.w", b.out_w), dmid_whole, b.att);
    OP(bias_dw, "nd->d", weight_gradient(g, "dout.b", b.out_b), dmid_whole);
    OP(linear_dx, "nd,dhA->nhA", datt, dmid_whole, b.out_w);
    OP(attention_dx, tokens_split ? "NhA,NThA->NThA" : "nhA,nThA->nThA", dqkv, datt, b.qkv)->attention =
        (struct attention){ .S = z.S, .A = z.A, .scale = 1 / sqrt((double)z.A) };
    OP(linear_dw, "nThA,nd->ThAd", weight_gradient(g, "dqkv.w", b.qkv_w), dqkv, b.ln1);
    OP(bias_dw, "nThA->ThA", weight_gradient(g, "dqkv.b", b.qkv_b), dqkv);
    OP(linear_dx, "nThA,ThAd->nd", dln1, dqkv, b.qkv_w);
    OP(norm_dw, "nD,nD,TD->TD", weight_gradient(g, "dln1.wb", b.ln1_wb), dln1, b.x, b.ln1_wb);
    OP(norm_dx, "nD,nD,TD->nD", dbranch1, dln1, b.x, b.ln1_wb);
    OP(add, "nd,nd->nd", dx, dmid, dbranch1);
}

/* ---- strategies -------------------------------------------------------------------------------------------------- */

/* Where the weights of the pairs are cut, by rows and by columns of the product; 1-D.  Others are whole. */
static const struct { const char *tensor; int dim; } cut[] = {
    { "w1", 0 }, { "w2", 1 }, { "qkv.w", 1 }, { "qkv.b", 1 }, { "out.w", 1 }, { "up.w", 0 }, { "up.b", 0 },
    { "down.w", 1 },
};

static struct sbp weight_cut(const char *name)
{
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        if (strcmp(cut[i].tensor, name) == 0) return (struct sbp)ON_S(cut[i].dim);
    return (struct sbp)ON_B;
}

/* An input is what no operation makes and is like nothing else: x and the weights. */
static bool is_input(const struct sbp_graph *g, int tensor)
{
    for (int o = 0; o < g->ops; o++)
        if (g->op[o].out == tensor) return false;
    return g->tensor[tensor].like < 0;
}

/* cuts_weights: along this axis; then all tokens and a share of the columns lie between the products of a pair, else as
 * in the stream. */
struct strategy { const char *name; int axes; struct sbp stream[SBP_AXES]; bool cuts_weights[SBP_AXES]; };
static const struct strategy strategies[] = {
    { "dp", 1, { ON_S(0) }, { false } },
    { "1d", 1, { ON_B }, { true } },
    { "sp", 1, { ON_S(0) }, { true } },
    { "2d", 2, { ON_S(0), ON_B }, { false, true } },
};

static enum error_code pin_inputs(struct sbp_graph *g, const struct sbp_mesh *m, const struct strategy *s,
                                  struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < g->tensors && !e; i++) {
        if (!is_input(g, i)) continue;
        struct signature pin = { { ON_B, ON_B } };
        for (int k = 0; k < m->axes; k++)
            pin.on[k] = strcmp(g->tensor[i].name, "x") == 0 ? s->stream[k]
                        : s->cuts_weights[k]                ? weight_cut(g->tensor[i].name)
                                                            : (struct sbp)ON_B;
        e = graph_pin(g, m, g->tensor[i].name, pin, err);
    }
    return e;
}

static enum error_code pin_inside(struct sbp_graph *g, const struct sbp_mesh *m, const struct strategy *s,
                                  struct error *err)
{
    static const struct { const char *tensor; int dim; } inside[] = {
        { "up", 1 }, { "act", 1 }, { "dact", 1 }, { "dup", 1 }, { "qkv", 2 }, { "att", 1 }, { "datt", 1 },
        { "dqkv", 2 }, { "up.product", 1 }, { "qkv.product", 2 },
    };
    enum error_code e = OK;
    for (size_t i = 0; i < sizeof inside / sizeof *inside && !e; i++) {
        struct signature pin = { { ON_B, ON_B } };
        for (int k = 0; k < m->axes; k++)
            pin.on[k] = s->cuts_weights[k] ? (struct sbp)ON_S(inside[i].dim) : s->stream[k];
        if (graph_find(g, inside[i].tensor) >= 0) e = graph_pin(g, m, inside[i].tensor, pin, err);
    }
    return e;
}

enum error_code graph_strategy(struct sbp_graph *g, const struct sbp_mesh *m, const char *name, struct error *err)
{
    if (strcmp(name, "free") == 0) return OK;
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        const struct strategy *s = &strategies[i];
        if (strcmp(s->name, name) != 0) continue;
        if (s->axes != m->axes)
            return fail(err, ERR_PLAN, "strategy %s needs a mesh with %s, such as %s", name,
                        s->axes == 1 ? "one axis" : "two axes", s->axes == 1 ? "4" : "2x2");
        const enum error_code e = pin_inputs(g, m, s, err);
        return e ? e : pin_inside(g, m, s, err);
    }
    return fail(err, ERR_USAGE, "strategy %s: must be dp, 1d, sp, 2d or free", printable(name).text);
}
