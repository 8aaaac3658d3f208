/* tfevents.c -- writes numbers of a training run as event files of TensorBoard.
 *
 * orrery train calls it (--tensorboard); it writes at once, so that a viewer can follow.  Errors are ERR_FILE.
 */
#include "ref/io/tfevents.h"
#include "ref/io/output.h"
#include "ref/io/protobuf.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* The sum of a record, bit by bit, without a table: records are short and rare. */
uint32_t crc32c(const void *bytes, size_t count)
{
    const uint8_t *const b = bytes;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < count; i++) {
        crc ^= b[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);      /* reversed 0x1edc6f41 */
    }
    return ~crc;
}

enum { TAG = 200 };                     /* most bytes of a tag */

/* TensorFlow stores a sum in this form, because the sum of bytes that contain their sum would be of little use. */
static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

/* ---- records ----------------------------------------------------------------------------------------------------- */

static enum error_code fail_errno(const struct tfevents *tfevents, const char *what, struct error *err)
{
    return fail(err, ERR_FILE, "%s: %s: %s", printable_path(tfevents->path).text, what, strerror(errno));
}

/* A call may write fewer bytes than asked for, so the loop goes on until all are written. */
static enum error_code write_record(struct tfevents *tfevents, const struct proto *event, struct error *err)
{
    struct proto r = { .used = 0 };
    /* A record is the event's length, the sum of these 8 bytes, the event and its sum. */
    proto_little(&r, event->used, 8);
    proto_little(&r, masked(crc32c(r.byte, 8)), 4);
    proto_raw(&r, event->byte, event->used);
    proto_little(&r, masked(crc32c(event->byte, event->used)), 4);
    for (size_t at = 0; at < r.used;) {
        const ssize_t n = write(tfevents->fd, r.byte + at, r.used - at);
        if (n > 0) at += (size_t)n;
        else if (n == 0 || errno != EINTR) return fail_errno(tfevents, "writing failed", err);
    }
    return OK;
}

static struct proto tfevents_begin(int64_t step)
{
    struct proto m = { .used = 0 };
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    /* The fields of an event are 1 time, 2 step, 3 file version, 5 summary, 7 a session's start. */
    proto_double(&m, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    proto_number(&m, 2, (uint64_t)step);
    return m;
}

static void name_file(struct tfevents *tfevents, const char *dir)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(tfevents->path, sizeof tfevents->path, "%.3800s/events.out.tfevents.%lld.%s.%ld.orrery", dir,
             (long long)time(NULL), host, (long)getpid());
}

/* A run that continues begins with a session start at its first step, so that the viewer drops later steps. */
enum error_code tfevents_open(struct tfevents *tfevents, const char *dir, int64_t first, struct error *err)
{
    static const char version[] = "brain.Event:2";
    struct proto m = tfevents_begin(0), again = tfevents_begin(first), start = { .used = 0 };
    *tfevents = (struct tfevents){ .fd = -1 };
    snprintf(tfevents->path, sizeof tfevents->path, "%s", dir);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) return fail_errno(tfevents, "this folder cannot be made", err);
    name_file(tfevents, dir);
    tfevents->fd = open(tfevents->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (tfevents->fd < 0) return fail_errno(tfevents, "cannot be made", err);
    proto_bytes(&m, 3, version, sizeof version - 1);
    proto_number(&start, 1, 1);
    proto_bytes(&again, 7, start.byte, start.used);
    enum error_code e = write_record(tfevents, &m, err);
    if (!e && first > 0) e = write_record(tfevents, &again, err);
    if (e) tfevents_close(tfevents);
    return e;
}

enum error_code tfevents_write(struct tfevents *tfevents, int64_t step, const struct tfscalar *tfscalar, int count,
                               struct error *err)
{
    struct proto m = tfevents_begin(step), summary = { .used = 0 };
    for (int i = 0; i < count && i < TFEVENTS_MOST; i++) {
        struct proto value = { .used = 0 };
        /* A value of a summary has its tag in field 1 and its number in field 2. */
        proto_bytes(&value, 1, tfscalar[i].tag, strnlen(tfscalar[i].tag, TAG));
        proto_float(&value, 2, (float)tfscalar[i].value);
        proto_bytes(&summary, 1, value.byte, value.used);
    }
    proto_bytes(&m, 5, summary.byte, summary.used);
    return write_record(tfevents, &m, err);
}

void tfevents_close(struct tfevents *tfevents)
{
    if (tfevents->fd >= 0) close(tfevents->fd);
    tfevents->fd = -1;
}
