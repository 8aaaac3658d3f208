/* link_cost.c -- predicts the traffic and the time of a part's lists on the tp group.  model/stage.c and
 * bench/schemes/tensor_predict.c call for N tokens; verify/cases/layer.c asks for a block.  Results are accounts of
 * bytes and messages, or picoseconds.  No function reports errors. */
#include "emulated_devices/model/link/link_cost.h"
#include "emulated_devices/model/whole_sequences.h"
#include "emulated_devices/schemes/attention/streams.h"
#include "emulated_devices/schemes/experts/expert_terms.h"
#include "ref/model/config.h"
#include "ref/model/node.h"

/* Whether devices along tp add up parts of every expert's result, before a row's results are added. */
static bool adds_in_experts(const struct seams *seams)
{
    return seams->tp->device->exact && !seams->ep.scheme->cuts_experts;
}

static void enter_mixture(struct forecast *forecast, enum tensor_pass pass, const struct seams *seams, int64_t N)
{
    const struct tensor_parallel *const tp = seams->tp;
    const struct mixture_config *const m = &tp->config->mixture;
    if (!adds_in_experts(seams)) forecast_mixture(forecast, pass, N);
    else forecast_expert_terms(forecast, &tp->along[tp->scheme->feed.columns], m->E, N * m->k, pass);
}

static void enter_node(struct forecast *forecast, const struct node *node, enum tensor_pass pass,
                       const struct seams *seams, int64_t N)
{
    switch (node->op) {
    case OP_EMBED:
    case OP_MATRIX:    forecast_matrix(forecast, node_role(node), pass, N); break;
    case OP_POSITIONS: forecast_positions(forecast, pass); break;
    case OP_NORM:      forecast_norm(forecast, pass, N); break;
    case OP_HEAD_NORM: forecast_head_norm(forecast, pass, N); break;
    case OP_JOIN:      forecast_shared_key(forecast, pass, N); break;
    case OP_ATTENTION:
    case OP_SINK_ATTENTION: forecast_exact_copies(forecast, pass, N); break;
    case OP_PREFIXED_ATTENTION:
        forecast_exact_copies(forecast, pass, N);
        if (pass == WEIGHT_PASS) forecast_copies(forecast, tensor_count(prefix_shape(&seams->cp, F32)));
        break;
    case OP_MIXTURE:   enter_mixture(forecast, pass, seams, N); break;
    case OP_LOSS:      forecast_cross_entropy(forecast, pass, N); break;
    default:           break;           /* sends nothing */
    }
}

static const enum tensor_pass pass_of[] = {
    [LIST_FORWARD] = FORWARD_PASS, [LIST_AGAIN] = FORWARD_PASS, [LIST_INPUT] = INPUT_PASS, [LIST_WEIGHT] = WEIGHT_PASS
};

static int64_t link_cost_rows_of(const struct linked *linked, const struct linked_node *node,
                                 const struct context_parallel *cp, int64_t N)
{
    return node->in[0] >= 0 && width_of_tokens(linked->slot[node->in[0]].width) ? stream_tokens(cp, N) : N;
}

/* Recomputation does not compute an output that has left the part, so nothing is reduced for it: but what experts keep
 * may be a sum. */
static bool is_left_out(const struct linked_node *node, const struct seams *seams)
{
    return leaves_part(node) && !(node->is->op == OP_MIXTURE && adds_in_experts(seams));
}

static void enter_lists(struct forecast *forecast, const struct linked *linked, const struct seams *seams, int64_t N)
{
    for (enum list which = 0; which < LIST_COUNT; which++)
        for (int i = 0; i < linked->list[which].count; i++) {
            const struct part_step step = linked->list[which].step[i];
            if (step.kind != STEP_RUN || (which == LIST_AGAIN && is_left_out(&linked->node[step.at], seams))) continue;
            if (which == LIST_WEIGHT && linked->node[step.at].still) continue;
            enter_node(forecast, linked->node[step.at].is, pass_of[which], seams,
                       link_cost_rows_of(linked, &linked->node[step.at], &seams->cp, N));
        }
}

struct account linked_cost(const struct linked *linked, const struct seams *seams, int64_t N)
{
    struct forecast f = { .tp = seams->tp };
    enter_lists(&f, linked, seams, N);
    return f.sum;
}

/* A router that drops or balances in each sequence gathers the choices of whole sequences. */
static void enter_route(struct forecast *forecast, const struct context_parallel *cp, enum list which, int64_t rows)
{
    const struct mixture_config *m = &cp->tp->config->mixture;
    const bool drops = m->capacity_factor > 0 && which != LIST_INPUT,
               balances = m->sequence_coefficient > 0 && which != LIST_AGAIN;
    if (drops || balances) whole_sequences_cost(forecast, cp, rows, drops);
}

struct account linked_attention_cost(const struct linked *linked, const struct context_parallel *cp, int64_t N)
{
    struct forecast f = { .tp = cp->tp };
    const int64_t rows = tensor_rows_at(cp->tp, AT_HEADS, N).count;
    for (enum list which = 0; which < LIST_COUNT; which++)
        for (int i = 0; i < linked->list[which].count; i++) {
            const struct part_step step = linked->list[which].step[i];
            const enum op op = step.kind == STEP_RUN ? linked->node[step.at].is->op : OP_END;
            if (op == OP_ROUTE && cp->scheme->cost) enter_route(&f, cp, which, rows);
            if (op == OP_BESIDE) streams_cost(&f, cp, N, which == LIST_FORWARD);
            if (!is_attention(op)) continue;
            const bool exchanges = which == LIST_AGAIN && only_exchanges(linked, &linked->node[step.at]);
            if (cp->scheme->cost) cp->scheme->cost(&f, cp, exchanges ? EXCHANGE_PASS : pass_of[which], rows);
        }
    return f.sum;
}

picoseconds linked_time(const struct linked *linked, const struct seams *seams, int64_t N)
{
    struct forecast f = { .tp = seams->tp, .timed = true };
    enter_lists(&f, linked, seams, N);
    return f.time;
}

struct traffic block_cost(const struct tensor_parallel *tp, int64_t N)
{
    struct account sum = { 0 };
    struct linked block;
    const struct seams alone = seams_alone(tp);
    if (link_layer(&block, tp->config, &alone, 0, NULL, false, NULL) == OK) sum = linked_cost(&block, &alone, N);
    return account_total(&sum);
}

picoseconds block_time(const struct tensor_parallel *tp, int64_t N)
{
    struct linked block;
    const struct seams alone = seams_alone(tp);
    return link_layer(&block, tp->config, &alone, 0, NULL, false, NULL) ? 0 : linked_time(&block, &alone, N);
}
