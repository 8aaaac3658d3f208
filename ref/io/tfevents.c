#include "ref/io/tfevents.h"
#include "ref/io/output.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

/* TensorFlow stores a sum in this form, because the sum of bytes that contain their sum would be of little use. */
static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

/* ---- protocol buffers -------------------------------------------------------------------------------------------- */

enum { MESSAGE = 4096, TAG = 200 };
enum wire { VARINT, FIXED64, BYTES, FIXED32 = 5 };

struct message { uint8_t byte[MESSAGE]; size_t used; };

static void put(struct message *m, const void *bytes, size_t n)
{
    memcpy(m->byte + m->used, bytes, n);
    m->used += n;
}

static void put_varint(struct message *m, uint64_t x)
{
    for (; x >= 0x80; x >>= 7) m->byte[m->used++] = (uint8_t)(x | 0x80);
    m->byte[m->used++] = (uint8_t)x;
}

static void put_little(struct message *m, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++) m->byte[m->used++] = (uint8_t)(x >> 8 * i);
}

static void put_key(struct message *m, int field, enum wire wire) { put_varint(m, (uint64_t)field << 3 | wire); }

static void put_bytes(struct message *m, int field, const void *bytes, size_t n)
{
    put_key(m, field, BYTES);
    put_varint(m, n);
    put(m, bytes, n);
}

static void put_double(struct message *m, int field, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, FIXED64);
    put_little(m, bits, 8);
}

static void put_float(struct message *m, int field, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    put_key(m, field, FIXED32);
    put_little(m, bits, 4);
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static enum error_code fail_errno(const struct tfevents *t, const char *what, struct error *err)
{
    return fail(err, ERR_FILE, "%s: %s: %s", printable_path(t->path).text, what, strerror(errno));
}

static enum error_code write_record(struct tfevents *t, const struct message *event, struct error *err)
{
    struct message r = { .used = 0 };
    put_little(&r, event->used, 8);
    put_little(&r, masked(crc32c(r.byte, 8)), 4);
    put(&r, event->byte, event->used);
    put_little(&r, masked(crc32c(event->byte, event->used)), 4);
    for (size_t at = 0; at < r.used;) {
        const ssize_t n = write(t->fd, r.byte + at, r.used - at);
        if (n > 0) at += (size_t)n;
        else if (n == 0 || errno != EINTR) return fail_errno(t, "writing failed", err);
    }
    return OK;
}

static struct message begin(int64_t step)
{
    struct message m = { .used = 0 };
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    put_double(&m, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    put_key(&m, 2, VARINT);
    put_varint(&m, (uint64_t)step);
    return m;
}

static void name_file(struct tfevents *t, const char *dir)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(t->path, sizeof t->path, "%.3800s/events.out.tfevents.%lld.%s.%ld.orrery", dir, (long long)time(NULL),
             host, (long)getpid());
}

enum error_code tfevents_open(struct tfevents *t, const char *dir, int64_t first, struct error *err)
{
    static const char version[] = "brain.Event:2";
    static const uint8_t start[] = { 1 << 3 | VARINT, 1 };
    struct message m = begin(0), again = begin(first);
    *t = (struct tfevents){ .fd = -1 };
    snprintf(t->path, sizeof t->path, "%s", dir);
    if (mkdir(dir, 0777) != 0 && errno != EEXIST) return fail_errno(t, "this folder cannot be made", err);
    name_file(t, dir);
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (t->fd < 0) return fail_errno(t, "cannot be made", err);
    put_bytes(&m, 3, version, sizeof version - 1);
    put_bytes(&again, 7, start, sizeof start);
    enum error_code e = write_record(t, &m, err);
    if (!e && first > 0) e = write_record(t, &again, err);
    if (e) tfevents_close(t);
    return e;
}

enum error_code tfevents_write(struct tfevents *t, int64_t step, const struct tfscalar *s, int count, struct error *err)
{
    struct message m = begin(step), summary = { .used = 0 };
    for (int i = 0; i < count && i < TFEVENTS_MOST; i++) {
        struct message value = { .used = 0 };
        const size_t n = strlen(s[i].tag);
        put_bytes(&value, 1, s[i].tag, n < TAG ? n : TAG);
        put_float(&value, 2, (float)s[i].value);
        put_bytes(&summary, 1, value.byte, value.used);
    }
    put_bytes(&m, 5, summary.byte, summary.used);
    return write_record(t, &m, err);
}

void tfevents_close(struct tfevents *t)
{
    if (t->fd >= 0) close(t->fd);
    t->fd = -1;
}
