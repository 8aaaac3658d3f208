/* reports.c -- collects each device's report on rank 0.  plan.c and session.c call these functions.  Errors:
 * ERR_MEMORY, ERR_COMM of a report; ERR_CHECK if counts differ from predictions. */
#include "emulated_devices/run/report/report.h"
#include "emulated_devices/verify/reference/counts.h"
#include "ref/machine/system.h"

struct device_report report_of_device(struct trainer *trainer, int64_t steps)
{
    struct device_report r = { .rank = trainer->comm->rank, .peak = trainer->device->arena.peak,
                              .resident = system_resident(),
                               .virtual_time = trainer->device->clock.now,
                                   .computing = trainer->device->clock.computing,
                              .held = trainer->device->clock.starts.held,
                               .flops = trainer->device->clock.flops };
    struct trainer *part;
    for (int n = 0; (part = trainer_section(trainer, n)) != NULL; n++) {
        r.fingerprint += data_fingerprint_part(&part->data);
        for (int i = 0; i < part->parameters.count; i++)
            r.parameters += (uint64_t)layout_count(&part->parameters.all[i].layout);
        const struct model_state offloaded = data_offloaded(&part->data);
        const struct drive_use drive = data_drive_use(&part->data);
        r.offloaded.weights += offloaded.weights, r.offloaded.gradients += offloaded.gradients;
        r.offloaded.optimizer += offloaded.optimizer;
        tier_traffic_add(&r.drive.moved, drive.moved, 1);
        r.drive.requests += drive.requests, r.drive.hits += drive.hits;
    }
    r.activations_away = trainer_activation_moves(trainer).bytes_written;
    r.tier = trainer_tier_traffic_counted(trainer);
    r.counted = trainer->comm->counted;
    traffic_check(trainer, steps, &r.wrong_traffic);
    memory_check(trainer, steps, &r.wrong_memory);
    if (!r.wrong_traffic.code) charged_check_device(trainer->device, trainer->comm->rank, &r.wrong_traffic);
    return r;
}

enum error_code collect_reports(struct trainer *trainer, int64_t steps, const double *processor,
                                struct device_report *all, struct error *err)
{
    struct device_report own = report_of_device(trainer, steps);
    own.processor = report_median(processor, steps);
    return comm_bring(trainer->comm, &own, sizeof own, all, err);
}

uint64_t train_fingerprint(const struct train_record *record)
{
    uint64_t sum = 0;
    for (int n = 0; n < folding_lives(&record->folded.folding); n++) sum += record->device[n].fingerprint;
    return sum;
}
