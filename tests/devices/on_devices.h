/* on_devices.h -- tests of fp64 devices without a clock: each test begins with a new device and a new comm.
 *
 *     static void test_x(void **state) { ... device, comm ... }
 *     const struct CMUnitTest tests[] = { ON_DEVICES(test_x) };
 */
#ifndef ORRERY_ON_DEVICES_H
#define ORRERY_ON_DEVICES_H

#include "tests/mpi_cmocka.h"
#include "emulated_devices/comm/comm.h"
#include "emulated_devices/device/device.h"

static struct device device;
static struct comm comm;

static int open_devices(void **state)
{
    struct error err;
    assert_int_equal(device_open(&device, NULL, F64, 0, &err), OK);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    return harness_before(state);
}

static int close_devices(void **state)
{
    (void)state;
    comm_close(&comm);
    device_close(&device);
    return 0;
}

#define ON_DEVICES(f) cmocka_unit_test_setup_teardown(f, open_devices, close_devices)

#endif
