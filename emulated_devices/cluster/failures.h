/* failures.h -- when something of a cluster breaks, and what it takes with it.
 *
 * Failures come at random, as often for each device as --device-mtbf says.  Kinds have the shares of 419 failures that
 * were counted in 54 days on 16,384 devices:
 *
 *     268  a device     its processor, memory or sensors: the device is broken
 *      53  a node       host maintenance, network card, disk, power, board: all devices of the node are broken
 *      35  the network  a switch or cable: jobs of four nodes end; nothing is broken for longer
 *      63  software     a bug, a watchdog: the job of the device ends
 *
 * Source  Llama Team, "The Llama 3 herd of models", arXiv:2407.21783, table 5: its counts, not its percentages, which
 *         do not agree with them
 *
 * simulate.c calls failure_draw.  Nothing here fails.
 */
#ifndef ORRERY_CLUSTER_FAILURES_H
#define ORRERY_CLUSTER_FAILURES_H

#include <stdbool.h>
#include <stdint.h>

enum failure_kind { FAILURE_DEVICE, FAILURE_NODE, FAILURE_NETWORK, FAILURE_SOFTWARE, FAILURE_KINDS };

enum { FAILURE_NODES = 4 };             /* behind one switch */

/* A failure at a time hits devices from `first` on. */
struct failure {
    int64_t at;                         /* virtual milliseconds */
    enum failure_kind kind;             /**< Part that fails: a device, a node, the network or software. */
    int first, devices;
    bool breaks;                        /* they are broken until they are repaired */
};

/** The failure after the last one.
 *  @param between  milliseconds between failures of one device, on average.  @param node  devices of a node. */
struct failure failure_draw(uint64_t seed, int64_t number, int64_t last, double between, int devices, int node);

#endif
