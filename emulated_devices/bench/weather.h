/* weather.h -- a training step of a weather model on several meshes: memory, bytes and virtual time of a device, each
 * from a run of all devices in this process.  cli/bench/weather.c and tests call bench_weather_run.
 */
#ifndef ORRERY_BENCH_WEATHER_H
#define ORRERY_BENCH_WEATHER_H

#include "emulated_devices/weather/learner.h"

/** This holds what a step comes to on a mesh: of the device with the most, in bytes and virtual time. */
struct bench_weather_found {
    uint64_t activations, peak;         /**< kept between forward and backward; all memory */
    uint64_t tiles, copies;             /**< sent for fields; for gradients between copies */
    picoseconds time;                   /**< of the step */
};

/** Run one step of a job on a cluster.  Local: the devices are a crew of this process.
 *  @return OK; ERR_PLAN of the job; ERR_CHECK: memory is not that of the formula; ERR_MEMORY. */
enum error_code bench_weather_run(const struct weather_job *, const struct cluster *, struct bench_weather_found *,
                                  struct error *);

#endif
