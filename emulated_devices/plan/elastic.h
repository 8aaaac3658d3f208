/* elastic.h -- devices for tasks with batches of different sizes: heavy tasks get more replicas.
 *
 * Source  D. Yu et al., "MoESys", arXiv:2205.10034, elastic training: tasks of 512, 256, 128 and 128 samples on 8
 *         devices get 4, 2, 1 and 1
 *
 * The next device goes to the task whose replicas have the most samples, until none is left.  The largest batch of a
 * replica is then as small as can be.  A task's replicas are neighbours and divide its batch as evenly as possible, in
 * order, so the samples of all tasks have the same order however many devices there are.
 *
 * Callers: cli/show/elastic.c, tests/devices/test_elastic.c.
 */
#ifndef ORRERY_ELASTIC_H
#define ORRERY_ELASTIC_H

#include "ref/error.h"
#include <stdint.h>

/**
 * Choose how many replicas each task gets; each gets at least one.
 * Local.
 * @param batch          [tasks] samples of each task, at least 0.
 * @param[out] replicas  [tasks]; their sum is `devices`.
 * @return OK, or ERR_USAGE: there are fewer devices than tasks.
 */
enum error_code elastic_replicas(const int64_t *batch, int tasks, int devices, int *replicas, struct error *);

/** The largest batch of a replica. */
int64_t elastic_most(const int64_t *batch, int tasks, const int *replicas);

#endif
