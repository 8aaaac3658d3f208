/* seams.c -- the seams of a part of the model on one device of cp and ep.
 *
 * model/link/ counts a layer with these seams, whose only splitting is by tp; tests use the seams without a job.  The
 * function cannot fail.
 */
#include "emulated_devices/schemes/seams.h"
#include "ref/model/config.h"

struct seams seams_alone(const struct tensor_parallel *tp)
{
    /* Place 0 of each kind is the default scheme: attention over whole sequences, experts that are here. */
    return (struct seams){ .tp = tp,
                           .cp = { .scheme = attention_scheme_at(0), .tp = tp, .heads = tp ? &tp->heads : NULL,
                                   .devices = 1, .S = tp ? tp->S : 0,
                                   .streams = tp ? STREAMS(tp->config) : 1 },
                           .ep = { .scheme = expert_scheme_at(0), .tp = tp, .devices = 1, .slices = 1, .node = 1 } };
}
