/* encoders.c -- which plans can have encoders of what is not text beside the language model.
 *
 * plan_check calls.  ERR_PLAN names what the encoders cannot be combined with.
 */
#include "emulated_devices/plan/plan.h"

enum error_code plan_check_encoders(const struct plan *plan, struct error *err)
{
    const struct tensor_scheme *s;
    const struct encoder_request *r = &plan->encoders;
    if (r->kinds == 0) return OK;
    enum error_code e = tensor_scheme_find(&s, plan->tensor, err);
    if (e) return e;
    /* An embedding is written as a row of the residual stream, so every device needs whole rows. */
    for (int rank = 0; rank < plan->mesh.devices; rank++)
        if (plan_tensor_share(plan, rank).channels.count != plan->model.D)
            return fail(err, ERR_PLAN, "--modalities: --tensor %s cuts rows of the stream; encoders need whole rows",
                        plan->tensor);
    if (plan->optimizer->low_rank || plan->optimizer->forward_only)
        return fail(err, ERR_PLAN, "--modalities: encoders are trained by sgd, momentum or adamw, not by %s",
                    plan->optimizer->name);
    if (dtype_size(plan->dtype) < 4 || plan->loss_scale != 0)
        return fail(err, ERR_PLAN, "--modalities: encoders compute in fp32 or fp64");
    if (plan->mesh.devices > MESH_MOST_LISTED)
        return fail(err, ERR_PLAN, "--modalities: encoders are spread over at most %d devices", MESH_MOST_LISTED);
    if (STREAMS(&plan->model) > 1)
        return fail(err, ERR_PLAN, "--modalities: a clip has one row in the batch; model %s has %lld streams of rows",
                    plan->model.name, (long long)STREAMS(&plan->model));
    if (plan->batches || plan->packed || plan->updates > 1)
        return fail(err, ERR_PLAN, "--modalities: needs equal steps of whole sequences with one optimizer step each");
    if (!attention_mask_is_causal(&plan->model.mask))
        return fail(err, ERR_PLAN, "--modalities: clips go with causal attention, not with --mask %s",
                    attention_mask_text(&plan->model.mask).text);
    return OK;
}
