/* bench.c -- `orrery bench`: measurements, each beside its limit or a published value.  cli/main.c calls
 * command_bench().  ERR_USAGE is for an unknown topic or a list of devices that cannot be read; other errors are a
 * topic's. */
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/output.h"
#include <stdlib.h>

enum error_code bench_devices(const char *list, int most, int room, int *devices, int *count, struct error *err)
{
    for (const char *rest = list; *rest != '\0';) {
        char *end;
        const long n = strtol(rest, &end, 10);
        if (end == rest || (*end != '\0' && *end != ',') || n < 1 || n > most || *count == room)
            return fail(err, ERR_USAGE, "--devices %s: must be numbers from 1 to %d, such as 2,4,8",
                        printable(list).text, most);
        devices[(*count)++] = (int)n;
        rest = *end ? end + 1 : end;
    }
    return *count > 0 ? OK : fail(err, ERR_USAGE, "--devices: names no number");
}

/* The first is the default. */
static const struct command topics[] = {
    { "step", "the speed of a training step, beside this machine's matrix product", bench_step_topic },
    { "published", "what papers printed beside what is computed here: bubbles, memory, times of steps",
      bench_published_topic },
    { "plan", "a plan of up to 1048576 devices: its time for each message, and its memory", bench_plan_topic },
    { "schedules", "published bubble rates beside ours; all schedules side by side", bench_schedules_topic },
    { "collectives", "every algorithm of a collective beside MPI's own", bench_collectives_topic },
    { "segments", "how long the segments of pipelined collectives are, beside the best of all lengths",
      bench_segments_topic },
    { "tensor", "the tensor schemes for one layer: counted costs beside the claims of papers", bench_tensor_topic },
    { "attention", "the attention schemes for one layer: time, sends and memory, and the claims of papers",
      bench_attention_topic },
    { "lengths", "schemes that plan by the lengths of samples beside static ones, and the claims of papers",
      bench_lengths_topic },
    { "dispatch", "the expert schemes for one layer: messages, bytes between nodes, and the claims of papers",
      bench_dispatch_topic },
    { "quantized", "the error of sums that are sent as int8 or int4 codes, beside the proven bound",
      bench_quantized_topic },
    { "sums", "the error of sums that do not round before they are finished, beside ordinary ones in fp32",
      bench_sums_topic },
    { "offload", "loading weights over all links or one; the offloaded update by stride; rings of layers",
      bench_offload_topic },
    { "streams", "models with parallel streams: published parameters, and the law of their losses",
      bench_streams_topic },
    { "partial", "trainings by partial pipelines beside a whole one: losses, times, half of the layers",
      bench_partial_topic },
    { "planners", "planners by layers: what their papers claim beside ours", bench_planners_topic },
    { "serving", "serving systems: what their papers claim beside ours", bench_serving_topic },
    { "decoding", "a decoded token: matrices of 16 bits read in place, and meshes beside one device",
      bench_decoding_topic },
    { "cluster", "schedulers of clusters: what their papers claim beside ours, in simulation", bench_cluster_topic },
    { "rl", "reinforcement learning: what its papers claim beside ours", bench_rl_topic },
    { "weather", "a step of a weather model on several meshes: memory, bytes, time, and the claims of its paper",
      bench_weather_topic },
    { "paths", "flows over leaves and spines: paths by a hash beside paths assigned for all together",
      bench_paths_topic },
    { "temporal", "memories of a graph's nodes by batches of events, with and without prediction",
      bench_temporal_topic },
    { "packing", "columns, heads, halos and boxes: packing them, and how they are best sent", bench_packing_topic },
    { "recovery", "a lost device: groups built anew or edited, steps without it, layers that move",
      bench_recovery_topic },
    { "recorder", "what it costs that devices always record their collectives", bench_recorder_topic },
    { "check", "the speed and memory of `orrery check`, on a dump that is made for it", bench_check_topic },
    { 0 }
};

enum error_code command_bench(int argc, char **argv, int *status, struct error *err)
{
    return run_topic("Measure something, beside a limit or a published value. Without WHAT: `step`.", topics, true,
                     argc, argv, status, err);
}
