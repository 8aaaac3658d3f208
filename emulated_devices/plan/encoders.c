/* encoders.c -- which plans can have encoders of what is not text beside the language model. */
#include "emulated_devices/plan/plan.h"

enum error_code plan_check_encoders(const struct plan *p, struct error *err)
{
    const struct tensor_scheme *s;
    const struct encoder_request *r = &p->encoders;
    if (r->kinds == 0) return OK;
    enum error_code e = tensor_scheme_find(&s, p->tensor, err);
    if (e) return e;
    for (int rank = 0; rank < p->mesh.devices; rank++)
        if (plan_tensor_share(p, rank).channels.count != p->model.D)
            return fail(err, ERR_PLAN, "--modalities: --tensor %s cuts rows of the stream; encoders need whole rows",
                        p->tensor);
    if (p->optimizer->low_rank || p->optimizer->forward_only)
        return fail(err, ERR_PLAN, "--modalities: encoders are trained by sgd, momentum or adamw, not by %s",
                    p->optimizer->name);
    if (dtype_size(p->dtype) < 4 || p->loss_scale != 0)
        return fail(err, ERR_PLAN, "--modalities: encoders compute in fp32 or fp64");
    if (STREAMS(&p->model) > 1)
        return fail(err, ERR_PLAN, "--modalities: a clip has one row in the batch; model %s has %lld streams of rows",
                    p->model.name, (long long)STREAMS(&p->model));
    if (p->batches || p->packed || p->updates > 1)
        return fail(err, ERR_PLAN, "--modalities: needs equal steps of whole sequences with one optimizer step each");
    return OK;
}
