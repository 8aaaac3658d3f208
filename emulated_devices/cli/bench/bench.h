/* bench.h -- the topics of `orrery bench`, one file each. */
#ifndef ORRERY_BENCH_BENCH_H
#define ORRERY_BENCH_BENCH_H

#include "emulated_devices/cli/cli.h"

command_fn bench_step_topic, bench_schedules_topic, bench_collectives_topic, bench_tensor_topic,
           bench_quantized_topic, bench_offload_topic;

#endif
