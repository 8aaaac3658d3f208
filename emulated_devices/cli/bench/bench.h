/* bench.h -- the topics of `orrery bench`, one file each, here and in cli/bench/schemes/.  bench.c calls the
 * topic that a user names. */
#ifndef ORRERY_BENCH_BENCH_H
#define ORRERY_BENCH_BENCH_H

#include "emulated_devices/cli/cli.h"

command_fn bench_step_topic, bench_schedules_topic, bench_collectives_topic, bench_tensor_topic,
           bench_attention_topic, bench_dispatch_topic, bench_quantized_topic, bench_offload_topic,
           bench_streams_topic, bench_check_topic, bench_published_topic,
           bench_plan_topic, bench_segments_topic, bench_lengths_topic, bench_sums_topic, bench_planners_topic,
            bench_serving_topic, bench_rl_topic, bench_cluster_topic, bench_paths_topic, bench_partial_topic,
            bench_packing_topic, bench_recovery_topic, bench_recorder_topic, bench_weather_topic, bench_temporal_topic,
            bench_decoding_topic;

#define BENCH_CLUSTER "h100-infiniband"         /* unless another is named: published figures are of such machines */

/** Read --devices of a benchmark with several jobs: numbers from 1 to most, such as "2,4,8".
 *  @param[out] devices  [room].  @param[in,out] count  how many; 0 before.  @return OK or ERR_USAGE. */
enum error_code bench_devices(const char *list, int most, int room, int *devices, int *count, struct error *);

#endif
