#include "ref/optim/outer.h"

void outer_step(const struct outer *o, struct tensor anchor, struct tensor m, const struct tensor theta[], int replicas)
{
    for (int64_t i = 0; i < tensor_count(anchor); i++) {
        double gradient = 0;                    /* not of the mean: in fp64 that is rounded, and the ways are short */
        for (int r = 0; r < replicas; r++) gradient += (tensor_get(anchor, i) - tensor_get(theta[r], i)) / replicas;
        double way = gradient;
        if (o->momentum > 0) {
            tensor_set(m, i, o->momentum * tensor_get(m, i) + gradient);
            way += o->momentum * tensor_get(m, i);
        }
        tensor_set(anchor, i, tensor_get(anchor, i) - o->lr * way);
        for (int r = 0; r < replicas; r++) tensor_set(theta[r], i, tensor_get(anchor, i));
    }
}
