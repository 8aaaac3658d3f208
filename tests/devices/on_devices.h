/* on_devices.h -- tests of devices: each test begins with a new device and a new comm.
 *
 *     static void test_x(void **state) { ... device, comm ... }
 *     const struct CMUnitTest tests[] = { ON_DEVICES(test_x) };
 *
 * Devices compute in fp64 and have no clock, unless DEVICE_FORMAT and DEVICE_CLUSTER are defined before.  Tests of
 * tests/devices/ include this file.  A device that cannot be opened fails the test.
 */
#ifndef ORRERY_ON_DEVICES_H
#define ORRERY_ON_DEVICES_H

#include "tests/mpi_cmocka.h"
#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/device.h"

static struct device device;
static struct comm comm;

#ifndef DEVICE_FORMAT
#define DEVICE_FORMAT F64
#define DEVICE_CLUSTER NULL
#endif

static int open_on(void **state, const struct cluster *cluster)
{
    struct error err;
    assert_int_equal(device_open(&device, NULL, DEVICE_FORMAT, 0, &err), OK);
    if (cluster) clock_open(&device.clock, cluster, DEVICE_FORMAT);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    return harness_before(state);
}

static int open_devices(void **state) { return open_on(state, DEVICE_CLUSTER); }

static int close_devices(void **state)
{
    (void)state;
    comm_close(&comm);
    device_close(&device);
    return 0;
}

#define ON_DEVICES(f) cmocka_unit_test_setup_teardown(f, open_devices, close_devices)

#endif
