/* compose.c -- the table of what does not go together. */
#include "emulated_devices/plan/compose.h"
#include <stdio.h>
#include <string.h>

/* Sorted by the first of each pair. */
static const struct clash clashes[] = {
    { HAS_tp, HAS_low_rank, "cuts matrices, and @ projects whole ones", "--dp and --pp" },

    { HAS_tp_cuts_stream, HAS_mixture, "cuts the stream, whose rows the routers of @ need whole", "--tensor 1d" },

    { HAS_tiles, HAS_tp, "with @ a matrix is cut already, and devices talk in the midst of it", "--tp 1" },
    { HAS_tiles, HAS_weights_whole,
      "@ gathers no weights before use", "weights in shards, such as --zero 3 --dp 2, or --offload weights" },
    { HAS_tiles, HAS_keep_gathered, "@ keeps what tiles are for never to have whole", "--reshard-after-forward yes" },
    { HAS_tiles, HAS_quantized_weights, "@ makes blocks of codes across all of a layer", "whole layers" },
    { HAS_tiles, HAS_quantized_gradients, "@ makes blocks of codes across all of a layer", "whole layers" },
    { HAS_tiles, HAS_mixture, "the experts of @ are not tiled", "--tiles 1" },

    { HAS_quantized_weights, HAS_nothing_shared,
      "@ gathers no weights", "a scheme and devices that share, such as --zero 3 --dp 2" },
    { HAS_quantized_weights, HAS_offload,
      "with @ shards move on their own link as they are", "everything in the device's memory" },
    { HAS_quantized_weights, HAS_apart,
      "@ has replicas that train apart, whose outer step sends no codes", "schemes without an outer step" },
    { HAS_quantized_weights, HAS_tp,
      "with @ the devices' copies of norms and biases would lie in different blocks and drift apart", "--tp 1" },
    { HAS_quantized_weights, HAS_mid_stream,
      "@ keeps two versions of the weights or steps them in mid-stream", "one version and one step" },
    { HAS_quantized_weights, HAS_forward_only,
      "@ moves weights by less than a code can say", "optimizers with gradients" },
    { HAS_quantized_gradients, HAS_nothing_shared,
      "@ reduce-scatters no gradients", "a scheme and devices that share, such as --zero 3 --dp 2" },
    { HAS_quantized_gradients, HAS_offload,
      "with @ shards move on their own link as they are", "everything in the device's memory" },
    { HAS_quantized_gradients, HAS_apart,
      "@ has replicas that train apart, whose outer step sends no codes", "schemes without an outer step" },
    { HAS_quantized_gradients, HAS_tp,
      "with @ the devices' copies of norms and biases would lie in different blocks and drift apart", "--tp 1" },
    { HAS_quantized_gradients, HAS_mid_stream,
      "@ keeps two versions of the weights or steps them in mid-stream", "one version and one step" },
    { HAS_quantized_gradients, HAS_forward_only, "@ has no gradients", "optimizers that have" },
    { HAS_reduce_scatter, HAS_quantized_gradients, "@ exchanges them all to all instead", "gradients as they are" },

    { HAS_offload, HAS_apart,
      "@ ends rounds with what lies on the device", "schemes that reduce in every step, such as --zero 3" },
    { HAS_offload, HAS_low_rank, "@ takes ddp, with everything on the devices", NULL },
    { HAS_offload_weights, HAS_state_shared_further,
      "each device would keep several times what it steps of them with @",
      "schemes that share weights among as many devices as the optimizer's state, such as --zero 3" },
    { HAS_offload_weights, HAS_two_versions, "@ keeps two versions of them on the device", "schedules that keep one" },
    { HAS_offload_gradients, HAS_forward_only, "@ has none", "optimizers that have" },
    { HAS_offload_gradients, HAS_allreduces_whole,
      "@ all-reduces them whole, in buckets", "schemes that share the optimizer's state, such as --zero 2" },
    { HAS_offload_state_alone, HAS_stateless, "@ keeps nothing", "optimizers with state, and formats with masters" },
    { HAS_host_steps, HAS_offload_to_folder,
      "the host steps what lies in its memory, and @ is a folder", "--offload-to host" },
    { HAS_host_steps, HAS_step_needs_gradients, "the host steps what lies with it", "--offload optimizer,gradients" },
    { HAS_host_steps, HAS_step_needs_weights,
      "the host steps what lies with it, and without masters that is weights too",
      "--offload optimizer,gradients,weights" },

    { HAS_outer_numbers, HAS_reduces_every_step,
      "@ reduces gradients in every step; copies train apart with local-sgd and diloco", NULL },
    { HAS_apart, HAS_forward_only, "saves sending gradients, and @ has none; ddp sends 16 bytes a step with it", NULL },
    { HAS_apart, HAS_low_rank, "@ takes ddp, which reduces in every step what it projects", NULL },
    { HAS_apart, HAS_mixture, "the routers' losses of @ are of the whole batch, and its copies train apart", NULL },
    { HAS_weights_shared, HAS_two_versions,
      "gathers weights, and @ keeps two versions of them; ddp, zero1 and zero2 go with it", NULL },
    { HAS_state_shared, HAS_low_rank, "keeps parts of matrices, and @ projects whole ones; it takes ddp", NULL },
    { HAS_state_shared_further, HAS_forward_only,
      "shares gradients or optimizer state, and @ has none; ddp, zero3, fsdp, hsdp and mics keep and step the "
      "same", NULL },

    { HAS_mid_stream, HAS_apart,
      "steps the weights in mid-stream, and @ goes with schedules that step once, at the end", NULL },
    { HAS_mid_stream, HAS_forward_only,
      "steps the weights in mid-stream, by gradients; @ steps once, after both losses", NULL },
    { HAS_mid_stream, HAS_mixture, "steps in mid-stream; the routers' losses of @ are of the whole batch", NULL },
    { HAS_several_steps, HAS_several_stages, "steps the weights in mid-stream with @", "1 stage on each" },
    { HAS_backward_before_last, HAS_balance_loss,
      "the slope of the balance loss of @ is known after the last forward pass of the batch; --schedule gpipe "
      "does all of them first", NULL },

    { HAS_clip, HAS_several_steps,
      "@ steps the weights in mid-stream, where nobody knows the norm of all gradients", "--clip 0" },
    { HAS_clip, HAS_forward_only, "@ has no gradients to clip", "--clip 0" },
    { HAS_recompute, HAS_forward_only, "@ has no backward pass to compute activations again for", "--recompute none" },
    { HAS_keep_gathered, HAS_forward_only,
      "there is no backward pass to keep weights for with @", "--reshard-after-forward yes" },
    { HAS_reduce_scatter, HAS_forward_only, "@ has no gradients to reduce", "optimizers that have" },
    { HAS_both_sides, HAS_has_gradients, "is for --optimizer mezo; @ has gradients", NULL },
    { HAS_low_rank, HAS_mixture, "is not for the experts of @; sgd, momentum and adamw are", NULL },
    { HAS_forward_only, HAS_mixture, "is not for the experts of @; sgd, momentum and adamw are", NULL },

    { HAS_needs_loss_scale, HAS_several_steps,
      "@ steps the weights in mid-stream, before devices can agree that no gradient overflows; --dtype bf16 "
      "needs no loss scale", NULL },
    { HAS_needs_loss_scale, HAS_apart,
      "needs a loss scale, and with @ each replica would need its own; --dtype bf16 needs none", NULL },
    { HAS_loss_scale, HAS_needs_no_loss_scale, "is for --dtype fp16; @ has exponents enough", NULL },
    { HAS_loss_scale, HAS_forward_only, "@ has no gradients that could underflow", NULL },
    { HAS_narrow_gradients, HAS_apart, "@ sends differences of fp32 weights where gradients are", "--grad-dtype fp32" },
    { HAS_narrow_gradients, HAS_forward_only, "@ has no gradients", NULL },
    { HAS_narrow_gradients, HAS_low_rank,
      "@ projects gradients in the format that sums are made in", "--grad-dtype fp32" },

    { HAS_reduced_by_place, HAS_tp_uneven,
      "adds in an order that depends on an element's place, and @ cuts unevenly, so that copies of norms and "
      "biases lie in different places and would drift apart", "two_shot, one_shot, doubling or tree" },
    { HAS_scattered_by_place, HAS_tp_uneven,
      "adds in an order that depends on an element's place, and @ cuts unevenly, so that copies of norms and "
      "biases lie in different places and would drift apart", "direct or halving" },
    { HAS_reduced_by_nodes, HAS_apart_in_two_stages,
      "may add in another order on another stage of the pipeline, and @ keeps weights that two stages have "
      "equal by adding alike", "--allreduce ring" },
};
enum { CLASHES = sizeof clashes / sizeof *clashes };

const struct clash *clash_at(int place) { return place < CLASHES ? &clashes[place] : NULL; }

const struct clash *clash_of(const struct facts *f, int place)
{
    for (; place < CLASHES; place++)
        if (feature_of(f, clashes[place].one, NULL) && feature_of(f, clashes[place].other, NULL))
            return &clashes[place];
    return NULL;
}

/* The reason with the second feature in its place, and what would do. */
static void compose_text(const struct clash *c, const char *other, char *text, size_t size)
{
    const char *at = strchr(c->reason, '@'), *const end = c->reason + strlen(c->reason);
    const int before = (int)((at ? at : end) - c->reason);
    snprintf(text, size, "%.*s%s%s%s%s", before, c->reason, at ? other : "", at ? at + 1 : "",
             c->takes ? "; it takes " : "", c->takes ? c->takes : "");
}

void clash_describe(const struct clash *c, char *text, size_t size)
{
    const int used = strchr(c->reason, '@') ? 0 : snprintf(text, size, "with %s: ", feature_name(c->other));
    compose_text(c, feature_name(c->other), text + used, size - (size_t)used);
}

enum error_code plan_check_compose(const struct facts *f, struct error *err)
{
    struct typed one, other;
    char text[sizeof err->text];
    const struct clash *c = clash_of(f, 0);
    if (c == NULL) return OK;
    feature_of(f, c->one, &one);
    feature_of(f, c->other, &other);
    compose_text(c, other.text, text, sizeof text);
    return fail(err, ERR_PLAN, "%s: %.*s", one.text, (int)sizeof text - 1, text);
}
