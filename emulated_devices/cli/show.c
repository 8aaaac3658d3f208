/* show.c -- `orrery show`: pictures of what is registered.  One process; nothing is sent. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/show_schedule.h"

static enum error_code show_schedule_topic(int argc, char **argv, int *status, struct error *err)
{
    (void)status;
    return show_schedule(argc - 3, argv + 3, stdout, err);
}

static const struct command topics[] = {
    { "schedule", "a pipeline schedule as a timeline, with its bubble, memory and messages", show_schedule_topic },
    { 0 }
};

enum error_code command_show(int argc, char **argv, int *status, struct error *err)
{
    return run_topic("Show what something does, without training anything.", topics, false, argc, argv, status, err);
}
