/* records.h -- the records of all devices of a run, read from the folder of --record.  cli/diagnose.c and tests call
 * these functions. */
#ifndef ORRERY_RECORDS_H
#define ORRERY_RECORDS_H

#include "emulated_devices/comm/recorder.h"

/* The devices of a run.  A copy of each file is read, so a run that goes on does not change what is judged. */
struct records {
    int size;                           /* devices */
    struct recorder *of;                /* [size] */
};

/** Read DIR/device-NNNNN.record of all devices.
 *  @return OK; ERR_FILE, a file is missing; ERR_FORMAT, a file is none of this program's; ERR_MEMORY. */
enum error_code records_read(struct records *, const char *folder, struct error *);

/** Check the bytes of a file, which begin at an address for any integer.
 *  @param where  names the file.  @return OK, or ERR_FORMAT. */
enum error_code records_check(const void *bytes, size_t count, const char *where, struct error *);

void records_close(struct records *);

/** The steps that all devices have, in all of their rings: from `first` up to before `end`, as counted from the start
 *  of the run.  @return how many. */
int records_steps(const struct records *, uint64_t *first, uint64_t *end);

/** Step i of a device, and the cells of its senders in that step. */
static inline const struct step_record *records_step(const struct recorder *recorder, uint64_t i)
{
    return &recorder->step[i % recorder->head->steps_room];
}

static inline const struct record_cell *records_cells(const struct recorder *recorder, uint64_t i)
{
    return recorder->cell + i % recorder->head->steps_room * recorder->head->size;
}

#endif
