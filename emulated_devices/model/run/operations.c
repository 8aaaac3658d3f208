/* operations.c -- the properties of each operation, for all models.  model/link/, model/probe.c, model/sbp/ and
 * check/recompute/replay.c look up operations here.  No function returns an error code. */
#include "emulated_devices/model/program.h"
#include "ref/model/node.h"
#include "ref/model/params.h"

static const struct operation_info infos[OP_COUNT] = {
    [OP_EMBED]     = { .words = "the token embedding", .has_weight_pass = true, .over = -1 },
    [OP_POSITIONS] = { .words = "the embeddings of tokens and positions, added", .has_weight_pass = true, .over = 0,
                       .passes_on = true },
    [OP_NORM]      = { .words = "the layernorm %s", .has_input_pass = true, .has_weight_pass = true, .over = -1,
                       .input_reads = READS_IN | READS_STATISTICS,
                       .weight_reads = READS_IN | READS_STATISTICS, .statistic = { ROW_OF_LAYERNORM, ROW } },
    [OP_MATRIX]    = { .words = "the linear layer %s", .has_input_pass = true, .has_weight_pass = true, .over = -1,
                       .weight_reads = READS_IN },
    [OP_HEAD_NORM] = { .words = "the rmsnorms of heads %s", .has_input_pass = true, .has_weight_pass = true, .over = -1,
                       .input_reads = READS_IN | READS_STATISTICS,
                       .weight_reads = READS_IN | READS_STATISTICS, .statistic = { INNER_HEADS } },
    [OP_LATENT_NORM] = { .words = "the rmsnorm of the latent %s", .has_input_pass = true, .has_weight_pass = true,
                         .over = -1, .input_reads = READS_IN | READS_STATISTICS,
                         .weight_reads = READS_IN | READS_STATISTICS, .statistic = { ROW } },
    [OP_JOIN]      = { .words = "queries, keys and values of latents in %s", .has_input_pass = true, .over = -1 },
    [OP_NARROW]    = { .words = "the values without zeros in %s", .has_input_pass = true, .over = -1 },
    [OP_ROTARY]    = { .words = "the rotary positions in %s", .has_input_pass = true, .over = 0,
                       .gradient_over = true },
    [OP_ATTENTION] = { .words = "attention in %s", .has_input_pass = true, .over = -1,
                       .statistic = { ATTENTION_KEPT } },
    [OP_SINK_ATTENTION] = { .words = "attention with the sinks %s", .has_input_pass = true, .has_weight_pass = true,
                       .over = -1, .statistic = { ATTENTION_KEPT }, .gradient = { SINK_GRADIENT } },
    [OP_PREFIXED_ATTENTION] = { .words = "attention to %s and the tokens", .has_input_pass = true,
                       .has_weight_pass = true, .over = -1, .statistic = { ATTENTION_KEPT },
                       .gradient = { PREFIX_GRADIENT } },
    [OP_GELU]      = { .words = "gelu in %s", .has_input_pass = true, .over = -1, .gradient_over = true,
                       .input_reads = READS_IN },
    [OP_SILU]      = { .words = "silu in %s", .has_input_pass = true, .over = -1, .gradient_over = true,
                       .input_reads = READS_IN },
    [OP_SWIGLU]    = { .words = "swiglu in %s", .has_input_pass = true, .over = -1, .input_reads = READS_IN },
    [OP_GEGLU]     = { .words = "geglu in %s", .has_input_pass = true, .over = -1, .input_reads = READS_IN },
    [OP_SCALE]     = { .words = "the factor of %s", .has_input_pass = true, .over = 0, .gradient_over = true },
    [OP_CAP]       = { .words = "the soft cap of %s", .has_input_pass = true, .over = 0, .gradient_over = true,
                       .input_reads = READS_OUT },
    [OP_DROPOUT]   = { .words = "dropout in %s", .has_input_pass = true, .over = 0, .gradient_over = true },
    [OP_ADD]       = { .words = "the residual sum %s", .has_input_pass = true, .over = 1, .passes_on = true },
    [OP_ROUTE]     = { .words = "the router's choice in %s", .has_input_pass = true, .over = -1,
                       .input_reads = READS_IN | READS_OUT | READS_STATISTICS,
                       .statistic = { EXPERT_CHOICES } },
    [OP_MIXTURE]   = { .words = "the experts %s", .has_input_pass = true, .has_weight_pass = true, .over = -1,
                       .input_reads = READS_IN | READS_WEIGHTS | READS_STATISTICS,
                       .weight_reads = READS_STATISTICS, .statistic = { EXPERTS_KEPT }, .gradient = { EXPERTS_LEFT } },
    [OP_GATE]      = { .words = "the gate in %s", .has_input_pass = true, .over = -1,
                       .input_reads = READS_IN | READS_WEIGHTS },
    [OP_BESIDE]    = { .words = "the streams side by side in %s", .has_input_pass = true, .over = -1 },
    [OP_MIX]       = { .words = "the mean of the streams %s", .has_input_pass = true, .over = -1,
                       .input_reads = READS_IN | READS_STATISTICS, .statistic = { STREAM_WEIGHTS } },
    [OP_LOSS]      = { .words = "the cross-entropy", .has_input_pass = true, .over = -1, .gradient_over_value = true,
                       .input_reads = READS_IN | READS_STATISTICS, .statistic = { INNER_ROW, TWO_INNER_ROWS } },
};

const char *const sorted_by_expert[] = { "mlp.up", "mlp.act", "experts.out", NULL };

const struct operation_info *operation_info(enum op op) { return &infos[op]; }

static enum activation_width latent_width(enum block_param param)
{
    return param == KV_LATENT_W ? WIDTH_KV_LATENT : param == KV_NORM_W ? WIDTH_KV_NORMED : WIDTH_Q_LATENT;
}

enum activation_width operation_width(const struct node *node, enum activation_width in)
{
    const enum param_role role = node_role(node);
    switch (node->op) {
    case OP_MATRIX:
        return role == ROLE_QKV             ? WIDTH_QKV
               : role == ROLE_LATENT        ? latent_width(node->param)
               : role == ROLE_QUERIES    ? WIDTH_HEADS
               : role == ROLE_KEYS_VALUES ? WIDTH_EXPANDED
               : role == ROLE_UP     ? WIDTH_UP
               : role == ROLE_HEAD   ? WIDTH_VOCABULARY
               : role == ROLE_ROUTER ? WIDTH_EXPERTS
               : role == ROLE_SHARED_UP   ? WIDTH_SHARED_UP
               : role == ROLE_DENSE_UP    ? WIDTH_DENSE_UP
               : role == ROLE_SHARED_GATE ? WIDTH_GATE
               : role == ROLE_STREAMS_UP   ? WIDTH_MEAN
               : role == ROLE_STREAMS_DOWN ? WIDTH_STREAMS
                                        : WIDTH_MODEL;
    case OP_LATENT_NORM: return latent_width(node->param);
    case OP_JOIN:      return WIDTH_QKV;
    case OP_NARROW:    return WIDTH_VALUES;
    case OP_ATTENTION:
    case OP_SINK_ATTENTION:
    case OP_PREFIXED_ATTENTION: return WIDTH_HEADS;
    case OP_BESIDE:    return WIDTH_BESIDE;
    case OP_MIX:       return WIDTH_MEAN;
    case OP_ROUTE:     return WIDTH_CHOICES;
    case OP_MIXTURE:   return WIDTH_MODEL;
    case OP_GELU:
    case OP_GEGLU:     return WIDTH_ACT;
    case OP_SWIGLU:    return in == WIDTH_SHARED_UP ? WIDTH_SHARED_ACT : in == WIDTH_DENSE_UP ? WIDTH_DENSE_ACT
                                                                                               : WIDTH_ACT;
    case OP_EMBED:     return WIDTH_MODEL;
    default:           return in;
    }
}
