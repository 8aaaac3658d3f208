/* run_node.h -- runs one node of a model's table on one microbatch, by calling the device or the tensor scheme.
 * Files of model/run/ call these functions. */
#ifndef ORRERY_RUN_NODE_H
#define ORRERY_RUN_NODE_H

#include "emulated_devices/model/stage.h"
#include "ref/model/node.h"

struct node_call {
    struct stage *stage;                /* of this device */
    struct microbatch *micro;           /* whose tensors are read and written */
    const struct model_part *part;      /* of which the node is */
    const struct linked_node *node;     /* with its buffers */
    bool again;                         /* recomputation: outputs that leave the part are not computed */
    unsigned phases;                    /* of a mixture; of others ALL_PHASES */
};

static inline struct tensor node_buffer(const struct node_call *call, int b)
{
    return b < 0 ? tensor_none : *stage_buffer(call->micro, call->part, b);
}

/* The rows of the microbatch, before tensor parallelism cuts them, that a node computes: tokens of each stream, or, of
 * what follows the streams' mean, tokens. */
static inline int64_t node_rows(const struct node_call *call)
{
    const int in = call->node->in[0];
    return in < 0 ? call->micro->N : stage_rows(call->stage, call->micro, call->part->linked.slot[in].width);
}

/* This device's part of one of the microbatch's tables of integers. */
static inline struct tensor node_integers(const struct node_call *call, struct tensor table, enum tensor_place place)
{
    const struct interval r = tensor_rows_at(call->stage->tp, place, node_rows(call));
    return tensor_1d((int32_t *)table.data + r.first, I32, r.count);
}

/* Norms of heads, rotary positions and attention: run_attention.c. */
enum error_code node_head_norm_forward(const struct node_call *, struct error *);
enum error_code node_head_norm_input(const struct node_call *, struct error *);
enum error_code node_head_norm_weight(const struct node_call *, struct error *);
enum error_code node_rotary_forward(const struct node_call *, struct error *);
enum error_code node_rotary_input(const struct node_call *, struct error *);
struct attention node_attention(const struct node_call *);     /* whole sequences of this device's heads */
enum error_code node_attention_forward(const struct node_call *, struct error *);
enum error_code node_attention_input(const struct node_call *, struct error *);

/* Latent attention: run_latent.c. */
enum error_code node_latent_norm_forward(const struct node_call *, struct error *);
enum error_code node_latent_norm_input(const struct node_call *, struct error *);
enum error_code node_latent_norm_weight(const struct node_call *, struct error *);
enum error_code node_join_forward(const struct node_call *, struct error *);
enum error_code node_join_input(const struct node_call *, struct error *);
enum error_code node_narrow_forward(const struct node_call *, struct error *);
enum error_code node_narrow_input(const struct node_call *, struct error *);

enum error_code node_sink_input(const struct node_call *, struct error *);
enum error_code node_sink_weight(const struct node_call *, struct error *);

/* Parallel streams: run_streams.c. */
enum error_code node_prefixed_forward(const struct node_call *, struct error *);
enum error_code node_prefixed_input(const struct node_call *, struct error *);
enum error_code node_prefixed_weight(const struct node_call *, struct error *);
enum error_code node_beside_forward(const struct node_call *, struct error *);
enum error_code node_beside_input(const struct node_call *, struct error *);
enum error_code node_mix_forward(const struct node_call *, struct error *);
enum error_code node_mix_input(const struct node_call *, struct error *);

/* The router's choice, and the experts: run_mixture.c. */
enum error_code node_route_forward(const struct node_call *, struct error *);
enum error_code node_route_input(const struct node_call *, struct error *);
enum error_code node_mixture_forward(const struct node_call *, struct error *);
enum error_code node_mixture_input(const struct node_call *, struct error *);
enum error_code node_mixture_weight(const struct node_call *, struct error *);
/* Experts' passes, for an expert scheme: run_experts.c.  _shows: whether a probe wants to see their rows.
 * _are_finished: whether devices along tp that cut F have finished sums, so that they add up none. */
struct expert_body run_experts_body(const struct node_call *);
bool run_experts_shows(const struct node_call *);
bool run_experts_are_finished(const struct node_call *);
/* Before a pass of the experts: begin to bring the weights that it reads; after it: add the sums of its gradients. */
enum error_code node_mixture_bring(const struct node_call *, enum tensor_pass, struct error *);
void node_mixture_finish(const struct node_call *);

/** Run the pass of a node that a list needs: forward, backward for its inputs, or backward for its weights.  Collective
 *  over the tp group.  @return OK; ERR_MEMORY; ERR_COMM. */
enum error_code run_node(const struct node_call *, enum list, struct error *);

/** Run a node of a layer forward on some parts of the rows at a time, as the stage's answering has cut them.  A node
 *  whose rows depend on each other runs on all.  Collective over the tp group.
 *  @param behind  whether it comes behind attention.  @return as run_node. */
enum error_code run_node_in_parts(const struct node_call *, bool behind, struct error *);

/* The layer's number for random numbers. */
static inline int node_layer(const struct node_call *call)
{
    return call->node->is->second ? (int)second_block(&call->stage->plan->model, call->part->layer) : call->part->layer;
}

#endif
