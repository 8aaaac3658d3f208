/* compose.c -- the table of what cannot be combined.
 *
 * plan_check calls plan_check_compose; cli/list/ prints the table; test_compose.c tries every row.  ERR_PLAN names
 * the two features that cannot be combined.
 */
#include "emulated_devices/plan/compose.h"
#include <stdio.h>
#include <string.h>

/* Sorted by the first of each pair. */
static const struct clash clashes[] = {
    { HAS_tp, HAS_low_rank, "cuts matrices, and @ projects whole matrices", "--dp and --pp" },

    { HAS_tp_keeps_inputs, HAS_norms_after,
      "keeps all rows of the results of norms, but matrices of @ read the residual stream", "--tensor 1d-sp" },

    { HAS_tp_cuts_columns, HAS_mixture,
      "cuts columns of the residual stream, but routers of @ need whole rows", "--tensor 1d or 1d-sp" },
    { HAS_tp_cuts_rows, HAS_experts_here,
      "devices along tp have different rows, but with @ each device needs all rows",
      "--dispatch alltoall, with --etp to cut experts" },
    { HAS_tp_cuts_rows, HAS_by_sequence, "cuts sequences, but @ balances or drops in whole sequences", "--tensor 1d" },

    { HAS_tp_cuts_columns, HAS_streams,
      "cuts columns of the residual stream, but a device that weighs the streams of @ needs whole rows",
      "--tensor 1d" },
    { HAS_tp_cuts_rows, HAS_streams,
      "devices along tp have different rows, but @ weighs streams on a device that has the whole token",
      "--tensor 1d" },
    { HAS_streams, HAS_packed, "a token sees the whole prefix, but the samples of @ see only parts of a sequence",
      "whole sequences" },
    { HAS_mask, HAS_streams, "tokens see parts of a sequence, but with @ a token sees the whole prefix",
      "--mask causal" },
    { HAS_mask, HAS_windows, "says what tokens see, and so do the windows of @", "models without windows" },
    { HAS_streams, HAS_skips_stages,
      "the one-device run computes every layer of a stream, but @ leaves layers out",
      "schedules that run every stage" },

    { HAS_context_plan, HAS_by_sequence, "a device has parts of samples, but @ balances or drops in whole sequences",
      "--attention ring-zigzag" },

    { HAS_plans_steps, HAS_balance_of_sequence,
      "may divide a sequence between microbatches, but @ needs all choices of a sequence in one microbatch",
      "--balance-over microbatch" },

    { HAS_context_plan, HAS_experts_predicted,
      "orders tokens by its plan, but @ orders tokens by their experts", "--attention whole or ring-zigzag" },

    { HAS_split_cp, HAS_one_dimension,
      "@ does not arrange the devices along cp in two dimensions", "--attention usp or loongtrain" },
    { HAS_context_plan, HAS_tp_cuts_sequences,
      "a device has parts of samples, but @ cuts the batch between whole sequences",
      "--tensor 1d, 1d-sp or 1d-sp-keep" },
    { HAS_packed, HAS_long_rotary,
      "packs samples of many lengths, but with @ the longest sample decides the angles of the whole batch",
      "a --seq of at most the original length" },
    { HAS_context_plan, HAS_sinks,
      "merges results of a query from several devices, without the sinks of @", "--attention ring-zigzag" },
    { HAS_stored_scores, HAS_sinks,
      "keeps no log-sum-exp, from which the gradient of the sinks of @ follows", "--attention ring" },
    { HAS_moves_experts, HAS_biased_experts, "sends matrices of experts, but not the biases that experts of @ have",
      "--dispatch alltoall" },
    { HAS_context_plan, HAS_windows,
      "makes one plan for all layers, but in @ tokens see other tokens in other layers",
      "--attention ring-zigzag" },
    { HAS_ring_window, HAS_one_ring, "@ has no inner rings", "--attention loongtrain" },

    { HAS_tiles, HAS_tp_moves_weights,
      "@ uses a matrix several times in one product, or sends it, and would gather each tile as often",
      "--tensor 1d, 1d-sp or 1d-sp-keep" },
    { HAS_tiles, HAS_tp_copies_keys,
      "with @ devices add up gradients of copied heads, and these gradients lie in several tiles", "a smaller --tp" },
    { HAS_tiles, HAS_weights_whole,
      "@ gathers no weights before use", "weights in shards, such as --zero 3 --dp 2, or --offload weights" },
    { HAS_tiles, HAS_keep_gathered,
      "@ keeps whole weights, and tiles exist to avoid whole weights", "--reshard-after-forward yes" },
    { HAS_tiles, HAS_gathers_once,
      "@ keeps whole weights, and tiles exist to avoid whole weights", "--data-parallel fsdp" },
    { HAS_tiles, HAS_quantized_weights, "quantisation blocks of @ span a whole layer", "--tiles 1" },
    { HAS_tiles, HAS_quantized_gradients, "quantisation blocks of @ span a whole layer", "--tiles 1" },
    { HAS_tp_cuts_columns, HAS_tp_copies_biases,
      "cuts biases between any two elements, and cannot sum biases of the keys and values that @ copies",
      "--tensor 1d, or --tp up to the number of key/value heads" },
    { HAS_tiles, HAS_mixture, "the experts of @ are not tiled", "--tiles 1" },

    { HAS_quantized_weights, HAS_nothing_shared,
      "@ gathers no weights", "a sharding scheme on several devices, such as --zero 3 --dp 2" },
    { HAS_quantized_weights, HAS_weights_late,
      "with @ a device has no codes of weights between steps, only numbers", "--data-parallel zero1" },
    { HAS_quantized_weights, HAS_apart,
      "the outer step of @ sends no codes", "schemes without an outer step" },
    { HAS_quantized_weights, HAS_tp_copies_keys,
      "with @ copied keys and values share quantisation blocks with different queries on each device, and would "
      "drift apart", "a smaller --tp" },
    { HAS_quantized_weights, HAS_mid_stream,
      "@ keeps two versions of the weights or steps them inside the schedule",
      "schedules with one version and one step" },
    { HAS_quantized_weights, HAS_draws,
      "@ moves weights by less than the distance between two codes", "optimizers with gradients" },
    { HAS_quantized_weights, HAS_experts_apart,
      "with @ other devices share experts than the other weights; a single device sends no codes",
      "--dispatch here" },
    { HAS_quantized_gradients, HAS_experts_apart,
      "with @ other devices share experts than the other weights; a single device sends no codes",
      "--dispatch here" },
    { HAS_quantized_gradients, HAS_nothing_shared,
      "@ reduce-scatters no gradients", "a sharding scheme on several devices, such as --zero 3 --dp 2" },
    { HAS_quantized_gradients, HAS_apart,
      "the outer step of @ sends no codes", "schemes without an outer step" },
    { HAS_quantized_gradients, HAS_tp_copies_keys,
      "with @ copied keys and values share quantisation blocks with different queries on each device, and would "
      "drift apart", "a smaller --tp" },
    { HAS_quantized_gradients, HAS_mid_stream,
      "@ keeps two versions of the weights or steps them inside the schedule",
      "schedules with one version and one step" },
    { HAS_quantized_gradients, HAS_forward_only, "@ has no gradients", "optimizers with gradients" },
    { HAS_reduce_scatter, HAS_quantized_gradients,
      "@ exchanges gradients by all-to-alls instead", "gradients that are not quantised" },

    { HAS_offload, HAS_low_rank, "@ needs ddp, with all state in the devices' memory", NULL },
    { HAS_offload_weights, HAS_state_shared_further,
      "with @ a device keeps weights that other devices step",
      "schemes that shard weights like optimizer state, such as --zero 3" },
    { HAS_offload_weights, HAS_two_versions,
      "@ keeps two versions of the weights on the device", "schedules that keep one" },
    { HAS_offload_activations, HAS_forward_only, "@ keeps no activations", "optimizers with gradients" },
    { HAS_offload_activations, HAS_few_layers,
      "the last two layers of a stage stay on the device, and @ have no further layers", "fewer stages" },
    { HAS_offload_activations, HAS_experts_apart, "the size of what leaves must be known before, and with @ it follows "
      "from the routing", "--dispatch here" },
    { HAS_offload_gradients, HAS_forward_only, "@ has no gradients", "optimizers with gradients" },
    { HAS_offload_gradients, HAS_allreduces_whole,
      "@ all-reduces whole gradients, in buckets", "schemes that shard optimizer state, such as --zero 2" },
    { HAS_offload_state_alone, HAS_stateless, "@ keeps no state", "optimizers with state, or formats with masters" },
    { HAS_host_steps, HAS_offload_to_folder,
      "the host steps only what is in its memory, and @ is a folder", "--offload-to host" },
    { HAS_host_steps, HAS_offload_experts,
      "the host steps only what lies in its memory, and @ moves only experts there", "--offload-stride 1" },
    { HAS_chosen_experts, HAS_trains, "@ steps all experts, also those that no token has chosen", "orrery infer" },
    { HAS_chosen_experts, HAS_experts_in_shards,
      "an expert comes over one link, but with @ devices gather the experts of a layer", "--data-parallel ddp" },
    { HAS_chosen_experts, HAS_moves_experts, "@ sends weights of all experts to the devices with their rows",
      "--dispatch alltoall" },
    { HAS_offload_experts, HAS_no_mixture, "@ has no experts", "--offload optimizer,gradients,weights" },
    { HAS_host_steps, HAS_step_needs_gradients,
      "the host steps only what is in its memory", "--offload optimizer,gradients" },
    { HAS_host_steps, HAS_step_needs_weights,
      "the host steps only what is in its memory, and without masters it steps the weights",
      "--offload optimizer,gradients,weights" },

    { HAS_outer_numbers, HAS_reduces_every_step,
      "@ reduces gradients in every step, and has no outer step", "--data-parallel local-sgd" },
    { HAS_outer_momentum, HAS_averages,
      "@ takes the mean of its copies, without momentum", "--data-parallel diloco" },
    { HAS_apart, HAS_forward_only,
      "exists to send fewer gradients, but @ has no gradients", NULL },
    { HAS_apart, HAS_low_rank, "@ needs ddp, which reduces projected gradients in every step", NULL },
    { HAS_apart, HAS_biased_router,
      "its copies train apart, and each would move the biases of @ by its own choices, which no outer step averages",
      "schemes without an outer step" },
    { HAS_weights_shared, HAS_two_versions,
      "gathers weights, but @ keeps two versions of all weights", "--data-parallel ddp, zero1 or zero2" },
    { HAS_weights_late, HAS_two_versions,
      "gathers new weights before their first use, but @ keeps two versions of whole weights",
      "--data-parallel zero1" },
    { HAS_state_shared, HAS_low_rank,
      "cuts a layer between any two elements, but a matrix that @ projects needs one owner with the whole "
      "gradient", "--data-parallel ddp" },
    { HAS_state_shared_further, HAS_forward_only,
      "shards gradients or optimizer state, but @ has neither", "--data-parallel ddp, zero3, fsdp, hsdp or mics" },

    { HAS_mid_stream, HAS_apart,
      "steps the weights inside the schedule, and @ needs schedules that step once, at the end", NULL },
    { HAS_mid_stream, HAS_forward_only,
      "steps the weights inside the schedule, by gradients, but @ has no gradients", NULL },
    { HAS_several_steps, HAS_several_stages, "steps the weights inside the schedule with @", "1 stage on each device" },
    { HAS_several_steps, HAS_biased_router,
      "@ moves its biases after each optimizer step by the choices of all devices, but inside the schedule devices "
      "do not exchange choices", "schedules with one version and one step" },
    { HAS_batches, HAS_apart,
      "@ takes the mean of its replicas' weights, whatever number of tokens each has seen",
      "schemes that reduce in every step, such as --zero 3" },
    { HAS_batches, HAS_mid_stream,
      "@ steps the weights after a fixed number of microbatches", "schedules with one version and one step" },
    { HAS_backward_before_last, HAS_balance_of_batch,
      "begins backward passes before the last forward pass, but the gradient of a balance loss of the whole batch, "
      "@, is known only after the last forward pass", "--balance-over microbatch, or --schedule gpipe" },

    { HAS_clip, HAS_several_steps,
      "@ steps the weights inside the schedule, where the norm of all gradients is not known", "--clip 0" },
    { HAS_clip, HAS_forward_only, "@ has no gradients to clip", "--clip 0" },
    { HAS_recompute, HAS_forward_only,
      "@ has no backward pass, so no activations to recompute", "--recompute none" },
    { HAS_keep_gathered, HAS_forward_only,
      "@ has no backward pass, so no reason to keep weights", "--reshard-after-forward yes" },
    { HAS_reduce_scatter, HAS_forward_only, "@ has no gradients to reduce", "optimizers with gradients" },
    { HAS_both_sides, HAS_has_gradients, "is for --optimizer mezo; @ has gradients", NULL },
    { HAS_low_rank, HAS_mixture, "does not step the experts of @", "--optimizer sgd, momentum or adamw" },
    { HAS_draws, HAS_mixture, "does not step the experts of @", "--optimizer sgd, momentum or adamw" },

    { HAS_needs_loss_scale, HAS_several_steps,
      "@ steps the weights inside the schedule, before devices can agree that no gradient overflows; --dtype bf16 "
      "needs no loss scale", NULL },
    { HAS_needs_loss_scale, HAS_apart,
      "needs a loss scale, and with @ each replica would need its own; --dtype bf16 needs no loss scale", NULL },
    { HAS_loss_scale, HAS_needs_no_loss_scale,
      "is for --dtype fp16; the exponent range of @ needs no loss scale", NULL },
    { HAS_loss_scale, HAS_forward_only, "@ has no gradients that could underflow", NULL },
    { HAS_narrow_gradients, HAS_apart,
      "@ keeps differences of fp32 weights in the gradients' memory", "--grad-dtype fp32" },
    { HAS_narrow_gradients, HAS_forward_only, "@ has no gradients", NULL },
    { HAS_narrow_gradients, HAS_low_rank,
      "@ projects gradients in the format of their sums", "--grad-dtype fp32" },

    { HAS_reduced_by_place, HAS_tp_uneven,
      "adds in an order that depends on an element's place, and @ cuts unevenly, so that copies of norms and "
      "biases have different places and would drift apart", "two_shot, one_shot, doubling or tree" },
    { HAS_scattered_by_place, HAS_tp_uneven,
      "adds in an order that depends on an element's place, and @ cuts unevenly, so that copies of norms and "
      "biases have different places and would drift apart", "direct or halving" },
    { HAS_reduced_by_nodes, HAS_apart_in_two_stages,
      "may add in another order on another pipeline stage, and @ needs the same order on both stages of a tied "
      "weight", "--allreduce ring" },

    { HAS_exact, HAS_fp64, "products of numbers of @ have more bits than fp64 adds exactly",
      "--dtype fp32, bf16 or fp16" },
    { HAS_exact, HAS_wide_vocabulary, "exponentials of @ add up to more bits than fp64 has",
      "a vocabulary of at most 524288 tokens" },
    { HAS_exact, HAS_many_tokens, "losses of @ add up to 2^25, beyond the bits there are",
      "a smaller --batch or --seq" },
    { HAS_exact, HAS_adds_by_layout, "@ rounds partial sums before they are finished",
      "a scheme with the field exact, such as 1d" },
    { HAS_exact, HAS_cuts_attention, "@ merges results of a query that are rounded before", "--attention ring" },
    { HAS_exact, HAS_adds_choices, "@ adds results of a token that are rounded before", "--dispatch alltoall" },
    { HAS_exact, HAS_balance_of_microbatch, "@ is another loss with another --micro or --dp",
      "--balance-over batch or sequence" },
    { HAS_exact, HAS_loss_by_rule, "@ has no exact sum", "the usual mean over labels" },
    { HAS_exact, HAS_low_rank, "@ projects gradients, in sums that round", "--optimizer sgd, momentum or adamw" },
    { HAS_exact, HAS_tiles, "tiles of @ round each on its own", "--tiles 1" },
    { HAS_exact, HAS_narrow_gradients, "@ rounds gradients before they are added", "--grad-dtype fp32" },
    { HAS_exact, HAS_quantized_weights, "@ rounds weights by blocks, which lie in other places on other meshes",
      "weights that are not quantised" },
    { HAS_exact, HAS_quantized_gradients, "@ rounds gradients before they are added",
      "gradients that are not quantised" },
    { HAS_exact, HAS_apart, "@ trains its replicas apart, which is another function on another --dp",
      "schemes without an outer step" },
    { HAS_exact, HAS_skips_stages, "@ is another function with another --pp", "schedules that run every stage" },
    { HAS_exact, HAS_mid_stream, "@ is another function with another --pp",
      "schedules with one version and one step" },

    { HAS_freezes, HAS_narrow, "@ rounds masters, and what does not train has none", "--dtype fp32" },
    { HAS_freezes, HAS_tiles, "@ uses matrices tile by tile, and one that does not train has no place in its list",
      "--zero 3" },
    { HAS_freezes, HAS_offload, "@ moves the states of all parameters", "--zero 3" },
    { HAS_freezes, HAS_low_rank, "@ projects the gradients of all matrices", "--optimizer adamw" },
    { HAS_freezes, HAS_draws, "@ moves all parameters along a direction", "--optimizer adamw" },
    { HAS_freezes, HAS_apart, "replicas of @ average all parameters", "schemes without an outer step" },
    { HAS_freezes, HAS_weights_late, "@ sends all weights in the next step", "--data-parallel zero1" },
    { HAS_freezes, HAS_two_versions, "@ keeps two versions of all weights", "schedules with one version" },
    { HAS_freezes, HAS_quantized_weights, "@ gives weights values that they do not train to",
      "weights that are not quantised" },
    { HAS_freezes, HAS_quantized_gradients, "@ follows the error of all gradients",
      "gradients that are not quantised" },
    { HAS_freezes, HAS_moves_experts, "@ sends the gradients of all experts", "--dispatch alltoall" },
    { HAS_freezes, HAS_sections, "sections of @ hand on the states of all parameters", "one mesh for all layers" },
    { HAS_adapters, HAS_exact, "adapters are merged in sums that round, but @ does not round", "--train-only" },

    { HAS_sections, HAS_apart, "replicas of @ have all layers", "schemes without an outer step" },
};
enum { CLASHES = sizeof clashes / sizeof *clashes };

const struct clash *clash_at(int place) { return place < CLASHES ? &clashes[place] : NULL; }

const struct clash *clash_of(const struct facts *facts, int place)
{
    /* The plan's clash is the first row of the table of which the plan has both features. */
    for (; place < CLASHES; place++)
        if (feature_of(facts, clashes[place].one, NULL) && feature_of(facts, clashes[place].other, NULL))
            return &clashes[place];
    return NULL;
}

/* The reason, with the name of the second feature for @, and the alternative. */
static void compose_text(const struct clash *clash, const char *other, char *text, size_t size)
{
    const char *at = strchr(clash->reason, '@'), *const end = clash->reason + strlen(clash->reason);
    const int before = (int)((at ? at : end) - clash->reason);
    snprintf(text, size, "%.*s%s%s%s%s", before, clash->reason, at ? other : "", at ? at + 1 : "",
             clash->takes ? "; use " : "", clash->takes ? clash->takes : "");
}

void clash_describe(const struct clash *clash, char *text, size_t size)
{
    const int used = strchr(clash->reason, '@') ? 0 : snprintf(text, size, "with %s: ", feature_name(clash->other));
    compose_text(clash, feature_name(clash->other), text + used, size - (size_t)used);
}

enum error_code plan_check_compose(const struct facts *facts, struct error *err)
{
    struct typed one, other;
    char text[sizeof err->text];
    const struct clash *c = clash_of(facts, 0);
    if (c == NULL) return OK;
    feature_of(facts, c->one, &one);
    feature_of(facts, c->other, &other);
    compose_text(c, other.text, text, sizeof text);
    return fail(err, ERR_PLAN, "%s: %.*s", one.text, (int)sizeof text - 1, text);
}
