/* data parallelism, local-sgd: copies of the model train apart; every H steps all of them are set to their mean.
 *
 * Source   S. U. Stich, "Local SGD converges fast and communicates little", arXiv:1805.09767, algorithm 1.  With AdamW
 *          inside it is federated averaging: H. B. McMahan et al., arXiv:1602.05629
 * Group    P devices; replicas of one device each, with --shard-group N of N adjacent devices, with --shards W,G,O of O
 * Shares   between replicas nothing: 1 | 1 | 1; N | N | N; W | G | O.  Inside a replica gradients are reduced in every
 *          step
 * Layout   as ddp, hsdp or chain.  The device that steps an element also keeps its anchor: its value after the last
 *          outer step
 * Sends    inside a replica as zero3 on N devices, or chain.  Between replicas only at the end of every round of H
 *          steps: one all-reduce of anchor - theta, in the optimizer's format, unit by unit: n/N elements on a device,
 *          2 n/N (R-1)/R sent with a ring, R = P/N replicas; 1/H of what ddp sends.  Messages for reported losses and
 *          norms are counted as CONTROL
 * Memory   as ddp, hsdp or chain, and the anchor: n/N.  The outer gradient reuses the memory of the gradient
 * Counts   a replica's loss is the mean over its own labels, and its gradient is clipped by its own norm.  In the outer
 *          step all replicas have equal weight, as in the paper, regardless of their numbers of labels.  The reported
 *          norm is the root mean square of the replicas' norms
 * Ends     a run that ends inside a round saves the model of the last outer step; the replicas' later steps are in the
 *          checkpoint
 * Equals   reassociates: ref/model/local.h, with replicas added in the order of the all-reduce.  With H = 1, sgd, no
 *          clipping and equal numbers of labels it equals ddp apart from rounding: the mean of steps is the step of the
 *          mean
 * Called   schemes/registry.c lists the scheme; data_shards (request.c) calls share_replica, and makes an ERR_PLAN of
 *          a text that is returned.  stages/outer.c calls the function for the outer step, and returns its errors.
 */
#include "emulated_devices/schemes/data/data.h"

static struct outward average(const struct outer *outer, double rate)
{
    (void)rate;
    return (struct outward){ .by_way = outer->lr };
}

const struct data_scheme data_scheme_local_sgd = {
    .head = { .kind = DATA_SCHEME, .equality = DIFFERS,
              .name = "local-sgd",
              .description = "copies train apart, and take their mean after every H steps (--local-steps, 8)",
              .source = "Local SGD, arXiv:1805.09767; with AdamW FedAvg, arXiv:1602.05629",
              .volume = "2 n/N (R-1)/R elements between R = P/N replicas in every H-th step; inside a replica as hsdp "
                        "inside a group",
              .memory = "as ddp, or hsdp with --shard-group N, and the anchor: n (N = 1), n/N elements" },
    .share = share_replica, .outer = { .rule = &outer_average, .every = 8, .lr = 1 }, .outward = average,
};
