/* device.c -- runs one device of a job, for commands that run something on devices and then end.  Files of cli/ call
 * be_a_device().  Errors: those of opening a device or connecting (ERR_MEMORY, ERR_DEVICE, ERR_COMM), then those of
 * `run`. */
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/comm/comm.h"
#include <stdio.h>

enum error_code be_a_device(enum dtype dtype, const struct cluster *cluster, device_fn *run, const void *asked,
                            struct error *err)
{
    struct device device;
    struct comm world;
    char place[32];
    enum error_code e = device_open(&device, NULL, dtype, 0, err);
    if (e) return e;
    if (cluster) clock_open(&device.clock, cluster, dtype);
    e = comm_open(&world, &device, err);
    if (!e) {
        snprintf(place, sizeof place, "of %d", world.size);
        announce_process(world.rank, place);
        threads_use(world.cores);
        e = run(&world, asked, err);
        comm_close(&world);
    }
    device_close(&device);
    return e;
}
