/* encoders.c -- which plans can have encoders of what is not text beside the language model.
 *
 * plan_check calls.  ERR_PLAN names what the encoders cannot be combined with.
 */
#include "emulated_devices/plan/sections.h"

struct data_request plan_encoder_data(const struct plan *plan)
{
    struct data_request r = plan->data;
    /* An encoder is small: it stays on the device, is gathered whole, and sends plain numbers. */
    r.tiles = 0, r.offload = 0, r.offload_experts = r.chosen = false, r.offload_to = NULL, r.host_cache = 0;
    r.quantise_weights = r.quantise_gradients = (struct block_format){ 0 };
    r.no_prefetch = true, r.keep = false, r.narrow_gradients = false;
    return r;
}

/* An encoder is shared by the devices that have it, and not by those along dp. */
static enum error_code check_shards(const struct plan *plan, struct error *err)
{
    const struct data_request request = plan_encoder_data(plan);
    for (int m = 0; m < plan->encoders.kinds; m++) {
        struct shards shards;
        struct error why;
        int n = 0;
        for (int d = 0; d < plan->mesh.devices; d++) n += encoder_is_on(&plan->encoders, plan->mesh.devices, m, d);
        if (data_shards(&shards, &request, n, 0, &why))
            return fail(err, ERR_PLAN, "--modalities: the %s encoder is on %d devices, and data parallelism cannot "
                        "share it: %s", modalities[m].name, n, why.text);
        if (shards.apart)
            return fail(err, ERR_PLAN, "--modalities: --data-parallel %s trains its replicas apart; an encoder is of "
                        "all of them", plan->data.scheme);
    }
    return OK;
}

/* A clip and a token of text before and behind it. */
static enum error_code check_room(const struct plan *plan, struct error *err)
{
    for (int m = 0; m < plan->encoders.kinds && !plan->encoders.given; m++)
        if (modalities[m].least + 2 > plan->S)
            return fail(err, ERR_PLAN, "--modalities %d: the %s encoder would never have a token: a clip has %lld "
                        "patches or more between two tokens of text, and --seq is %lld", plan->encoders.kinds,
                        modalities[m].name, (long long)modalities[m].least, (long long)plan->S);
    return OK;
}

enum error_code plan_check_encoders(const struct plan *plan, struct error *err)
{
    const struct tensor_scheme *s;
    const struct encoder_request *r = &plan->encoders;
    /* Rows of clips enter the model at its embedding. */
    const struct plan *const enters = plan_of_layer(plan, -1);
    if (r->kinds == 0) return OK;
    enum error_code e = tensor_scheme_find(&s, enters->tensor, err);
    if (e) return e;
    /* An embedding is written as a row of the residual stream, so every device needs whole rows. */
    for (int rank = enters->mesh.first; rank < enters->mesh.first + enters->mesh.devices; rank++)
        if (plan_tensor_share(enters, rank).channels.count != plan->model.D)
            return fail(err, ERR_PLAN, "--modalities: --tensor %s cuts rows of the stream; encoders need whole rows",
                        enters->tensor);
    if (plan->optimizer->low_rank || plan->optimizer->forward_only)
        return fail(err, ERR_PLAN, "--modalities: encoders are trained by sgd, momentum or adamw, not by %s",
                    plan->optimizer->name);
    if (plan->mesh.devices > MESH_MOST_LISTED)
        return fail(err, ERR_PLAN, "--modalities: encoders are spread over at most %d devices", MESH_MOST_LISTED);
    if (STREAMS(&plan->model) > 1)
        return fail(err, ERR_PLAN, "--modalities: a clip has one row in the batch; model %s has %lld streams of rows",
                    plan->model.name, (long long)STREAMS(&plan->model));
    if (plan->batches || plan->updates > 1)
        return fail(err, ERR_PLAN, "--modalities: needs equal steps of whole sequences with one optimizer step each");
    if (!attention_mask_is_causal(&plan->model.mask))
        return fail(err, ERR_PLAN, "--modalities: clips go with causal attention, not with --mask %s",
                    attention_mask_text(&plan->model.mask).text);
    if (r->given && plan->affinity)
        return fail(err, ERR_PLAN, "--dispatch speculative: expects experts by tokens; patches that --pack places have "
                    "none");
    e = check_shards(plan, err);
    return e ? e : check_room(plan, err);
}
