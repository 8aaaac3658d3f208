/* survive_words.c -- refuses what a run that survives kills cannot have.  train.c calls.  Errors: ERR_USAGE,
 * and ERR_COMM if this process cannot start devices. */
#include "emulated_devices/cli/train/survive_words.h"
#include "emulated_devices/cli/train/elastic_words.h"
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/run/run.h"
#include "emulated_devices/run/session.h"
#include <stdlib.h>

/* Who starts the devices owns their snapshots, and starts them again. */
static enum error_code check_launcher(struct error *err)
{
    if (under_launcher() && getenv("ORRERY_LAUNCHED") == NULL)
        return fail(err, ERR_USAGE, "--survive: another launcher has started this process, as mpiexec or srun do, and "
                    "nobody would start it again; `orrery train` without them starts the devices itself");
    if (!under_launcher() && one_process())
        return fail(err, ERR_USAGE, "--survive: ORRERY_ONE_PROCESS=1 has all devices in this process: if it is killed, "
                    "nobody starts them again");
    return under_launcher() ? OK : launch_check(err);
}

enum error_code survive_check(const struct train_options *o, struct error *err)
{
    const struct { bool given; const char *what, *why; } no[] = {
        { o->golden, "--check FILE", "what a golden file was compared with is lost with the process; --check ref "
          "compares from the snapshot on" },
        { o->dry_run, "--dry-run", "a dry run has one process" },
        { o->elastic_file, "--elastic", "snapshots are of one mesh" },
        { o->lose, "--lose", "its snapshots are those of the emulated devices" },
        { o->trace, "--trace", "a trace is lost with its process" },
        { o->record, "--record", "a device's records begin anew with its process" },
        { o->timeline, "--timeline", "a timeline is lost with its process" },
        { o->page, "--page", "a page is lost with its process" },
        { o->film, "--film", "a film is lost with its process" },
        { o->live != LIVE_OFF, "--live", "a page is lost with its process" },
        { o->owners_out, "--owners-out", "loads are lost with their process" },
        { o->save_load, "--save-load", "choices are lost with their process" },
        { data_outer(&o->plan.data).every > 0, "--data-parallel", "the anchors of its replicas are not in the "
          "snapshots" },
    };
    if (o->survive == 0) return OK;
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (no[i].given) return fail(err, ERR_USAGE, "--survive: not with %s: %s", no[i].what, no[i].why);
    const enum error_code e = elastic_refuse_state(o, "--survive", err);
    return e ? e : check_launcher(err);
}
