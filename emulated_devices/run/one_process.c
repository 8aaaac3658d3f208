/* one_process.c -- `orrery train` and `orrery infer` with all devices in this process: for places that allow neither
 * other processes nor a network, such as the cage in which a student's run is graded.  cli/train/train.c calls this
 * file.  Errors are those of run/session.c, and ERR_MEMORY without room for the devices. */
#include "emulated_devices/run/session.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/run/elastic/elastic.h"
#include <stdlib.h>
#include <string.h>

bool one_process(void)
{
    const char *asked = getenv("ORRERY_ONE_PROCESS");
    return asked != NULL && strcmp(asked, "1") == 0;
}

struct one_run { const struct train_options *options; int *status; };

static enum error_code be_device_of_run(struct crew *crew, int rank, const void *asked, struct error *err)
{
    const struct one_run *run = asked;
    struct device device;
    struct comm comm;
    enum error_code e = session_open_device(&device, run->options, err);
    if (e) return e;
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        crew_agree_by_messages(&comm);
        e = session_run(&comm, run->options, run->status, err);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

enum error_code train_in_one_process(const struct train_options *options, int *status, struct error *err)
{
    const struct one_run run = { options, status };
    return crew_run(elastic_devices(options), be_device_of_run, &run, err);
}
