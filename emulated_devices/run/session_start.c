/* session_start.c -- how a run begins on one device: its outputs are looked at and locked, its text is read, and then
 * the session runs, or with --elastic one session after another.
 * cli/train/train.c and one_process.c call.  ERR_PLAN means that another number of devices was started; other errors
 * are those of files, memory and the session. */
#include "emulated_devices/launch/machine.h"
#include "emulated_devices/model/checkpoint/series.h"
#include "emulated_devices/run/elastic/elastic.h"
#include "emulated_devices/run/keeping.h"
#include "emulated_devices/run/origin.h"
#include "emulated_devices/run/run.h"
#include "emulated_devices/run/session.h"
#include "emulated_devices/run/survive/surviving.h"
#include "emulated_devices/train/dry_run/plan_memory.h"
#include "ref/io/output.h"
#include "ref/machine/threads.h"
#include <string.h>

/* The outputs that grow, or have several files.  @return their number. */
static int list_kept(const struct train_options *options, struct kept kept[KEPT_MOST])
{
    const char *const dump = options->dump;
    const bool folder = dump && dump[0] && dump[strlen(dump) - 1] == '/';
    const struct kept all[] = {
        { "--save", options->save, true }, { "--log", options->log, false },
        { "--tensorboard", options->tensorboard, true }, { "--trace", options->trace, false },
        { "--record", options->record, true }, { "--dump", dump, folder },
    };
    memcpy(kept, all, sizeof all);
    return sizeof all / sizeof *all;
}

static enum error_code lock_outputs(const struct train_options *options, struct error *err)
{
    struct kept kept[KEPT_MOST];
    const int count = list_kept(options, kept);
    return keeping_take(kept, count, run_stream(options), err);
}

/* A later checkpoint would be taken for the newest of this run: --keep would keep that one and remove the run's own,
 * and --resume auto would go on from there. */
static enum error_code session_check_series(const struct train_options *options, struct error *err)
{
    const int64_t begin = options->resume ? options->saved.step : 0;
    const int64_t last = options->save && options->save_every ? series_last(options->save) : -1;
    if (last <= begin) return OK;
    return fail(err, ERR_FILE, "--save %s: has a checkpoint of step %lld, and this run begins with step %lld: go on "
                "from there (--resume auto), or give another folder", printable_path(options->save).text,
                (long long)last, (long long)begin);
}

/* The locks first: the look into a folder removes what a killed writer has left, and another run may be writing. */
enum error_code session_probe_outputs(const struct train_options *options, struct error *err)
{
    struct kept kept[KEPT_MOST];
    const int count = list_kept(options, kept);
    enum error_code e = keeping_look(kept, count, err);
    if (e) return e;
    e = options->save ? fail_about(err, checkpoint_probe(options->save, err), "--save") : OK;
    if (!e && options->log && !options->resume) e = fail_about(err, output_probe(options->log, err), "--log");
    if (!e && options->trace) e = fail_about(err, output_probe(options->trace, err), "--trace");
    if (!e && options->timeline) e = fail_about(err, output_probe(options->timeline, err), "--timeline");
    if (!e && options->page) e = fail_about(err, output_probe(options->page, err), "--page");
    if (!e && options->live != LIVE_OFF) e = live_probe(options->live, err);
    if (!e && options->json) e = fail_about(err, output_probe(options->json, err), "--json");
    if (!e && options->owners_out) e = fail_about(err, output_probe(options->owners_out, err), "--owners-out");
    if (!e && options->save_load) e = fail_about(err, output_probe(options->save_load, err), "--save-load");
    return e;
}

/* Before devices start, check the memory budget.  @param[out] together  bytes of all devices, on this machine. */
static enum error_code check_budget(const struct train_options *options, uint64_t *together, struct error *err)
{
    struct plan_memories m;
    enum error_code e = plan_memory_of_all(&options->plan, options->steps, &m, err);
    if (!e) e = plan_check_budget(&options->plan, options->memory, options->steps, &m, err);
    *together = m.device_bytes + (options->plan.data.offload_to ? 0 : m.offloaded);
    return e;
}

enum error_code session_check_memory(const struct train_options *options, struct error *err)
{
    uint64_t together;
    enum error_code e = check_budget(options, &together, err);
    if (!e) e = machine_check_memory(options->plan.mesh.devices, together, err);
    for (int i = 0; i < elastic_changes(options) && !e; i++)
        e = elastic_about(options, i, session_check_memory(options->elastic->change[i].options, err), err);
    return e;
}

/* Devices on several machines read files of their own. */
static enum error_code agree_on_data(struct comm *comm, const struct train_data *data, struct error *err)
{
    const struct data_facts facts = train_data_facts(data);
    const struct sha256_text sum = sha256_of(&facts, sizeof facts);
    return group_same(comm->everyone, sum.text, sizeof sum.text - 1, "--data: the text", err);
}

enum error_code session_open_device(struct device *device, const struct train_options *options, struct error *err)
{
    const enum error_code e = device_open(device, NULL, options->plan.dtype, options->memory, err);
    if (e) return e;
    clock_open(&device->clock, &options->cluster, options->plan.dtype);
    if (options->check || options->golden || options->paranoid)
        device->streams = (struct flight_mode){ FLIGHT_RANDOM, options->plan.seed };
    return OK;
}

enum error_code session_load_data(struct train_data *data, const struct train_options *options, struct error *err)
{
    const struct train_data_source source = {
        .plan = &options->plan, .data = options->data, .eval_data = options->eval_data, .tokenizer = options->tokenizer,
            .pack = options->pack,
        .golden = options->golden, .resumed = options->resume ? &options->saved : NULL,
    };
    return train_data_load(data, &source, err);
}

enum error_code session_run(struct comm *comm, const struct train_options *options, int *status, struct error *err)
{
    struct train_data data = { 0 };
    char place[64], overridden[240] = "";
    uint64_t together;
    enum error_code e = OK;
    /* only now a device knows its rank, and so its speed */
    const struct cluster own = cluster_of_rank(&options->cluster, comm->rank);
    clock_restart(&comm->device->clock, &own, options->plan.dtype);
    if (comm->size != elastic_devices(options))
        e = fail(err, ERR_PLAN,
                 "the launcher started %d process%s, but --dp %d --tp %d --pp %d --cp %d --ep %d is a mesh of %d",
                 comm->size, comm->size == 1 ? "" : "es", options->plan.mesh.size[DP], options->plan.mesh.size[TP],
                 options->plan.mesh.size[PP], options->plan.mesh.size[CP], options->plan.mesh.size[EP],
                 elastic_devices(options));
    threads_use(comm->cores);
    if (comm->rank == 0) origin_name_run();
    if (!e) {
        const bool begins = mesh_has(&options->plan.mesh, comm->rank);
        announce_process(comm->rank, begins ? mesh_describe(&options->plan.mesh, comm->rank, place, sizeof place)
                         : "it joins later");
        e = group_same(comm->everyone, options->words.digest.text, sizeof options->words.digest.text - 1,
                       "--config: the file", err);
        if (!e && options->plan.batches) e = batch_plan_agree(options->plan.batches, comm, err);
        if (!e) e = session_load_data(&data, options, err);
        if (!e && comm->rank == 0) e = train_check_saved(options, &data, overridden, sizeof overridden, err);
        if (!e && comm->rank == 0) e = lock_outputs(options, err);
        /* After a kill the later checkpoint is the run's own. */
        if (!e && comm->rank == 0 && !surviving_again(options)) e = session_check_series(options, err);
        if (!e && comm->rank == 0) e = session_probe_outputs(options, err);
        if (!e && comm->rank == 0)
            e = under_launcher() ? check_budget(options, &together, err) : session_check_memory(options, err);
        e = comm_agree(comm, e, err);
        if (!e && !options->golden) e = agree_on_data(comm, &data, err);
    }
    if (!e && options->golden) e = train_golden(comm, options, &data, err);
    else if (!e && options->survive) e = surviving_run(comm, options, &data, overridden, status, err);
    else if (!e && options->elastic) e = elastic_run(comm, options, &data, overridden, status, err);
    else if (!e) e = session_on_device(comm, options, &data, overridden, NULL, status, err);
    if (comm->rank == 0) keeping_release();
    train_data_free(&data);
    return e;
}
