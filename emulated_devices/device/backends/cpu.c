/* cpu -- memory is the host's, operations are ref/'s: OpenMP and BLAS.
 *
 * A host view is the memory itself and costs nothing.  Large blocks come from the pool, if there is one, so that other
 * devices of the machine can take messages straight out of them.
 *
 * device_open calls this file for --backend cpu, the usual one of release builds.  NULL from cpu_allocate means that
 * the machine has no memory; nothing else can fail.
 */
#include "emulated_devices/device/backend.h"
#include "emulated_devices/device/pool.h"
#include "emulated_devices/device/strided.h"
#include "ref/numeric/convert.h"
#include <string.h>

static void *cpu_allocate(struct device *device, size_t bytes) { return (void)device, host_block_take(bytes); }

static void cpu_release(struct device *device, void *data, size_t bytes) { (void)device, host_block_give(data, bytes); }

static void cpu_copy(struct device *device, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                     size_t width, size_t rows)
{
    (void)device;
    strided_rows(to, (int64_t)to_pitch, from, (int64_t)from_pitch, (int64_t)rows, (int64_t)width);
}

static const void *read_it(struct device *device, const void *data, size_t bytes)
{
    return (void)device, (void)bytes, data;
}

static void *write_it(struct device *device, void *data, size_t bytes) { return (void)device, (void)bytes, data; }

static void done(struct device *device, const void *view) { (void)device, (void)view; }

const struct backend backend_cpu = {
    .name = "cpu", .description = "computes on this machine's cores: OpenMP and BLAS",
    .has_numbers = true,
    .allocate = cpu_allocate, .release = cpu_release, .copy = cpu_copy,
    .host_read = read_it, .host_write = write_it, .host_done = done,
    .ops = ops_for,
};
