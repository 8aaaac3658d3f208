/* check.c -- judges lesson 15.  The student writes checkpoints.c: which numbers a device has, a plan of reads, and
 * saving that survives a crash.  Reads are followed here one by one, and the disk is simulated from a log of
 * operations.  No file is written.  emulated_devices/course/judge.c runs each check in a process of its own; a failed
 * check is a line for the student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include "ref/io/figures.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS = 5, MOST = 3000, LOG = 16 };
enum cut { CUT_ROWS, CUT_COLUMNS, CUT_NOTHING };

/* This is a tensor of rows and columns, and how tp cuts it.  A mesh has dp copies of tp parts. */
struct tensor { int64_t rows, columns, cut; };
struct mesh { int dp, tp; };

static struct { struct tensor of[TENSORS]; int count; int64_t numbers; } model;

/* A list of numbers of a tensor, or of all tensors. */
struct list { int64_t number[MOST], count; };

/* This is the device at an index of dp and an index of tp; the variant ORDER swaps the axes. */
static int device_at(const struct judge *j, struct mesh m, int d, int t)
{
    return judge_choice(j, "ORDER") == 1 ? t * m.dp + d : d * m.tp + t;
}

/* List the numbers of tp's piece t, and of these those of dp's index d. */
static void list_shard(const struct tensor *x, struct mesh m, int d, int t, struct list *out)
{
    static struct list piece;
    const struct interval rows = block_at(x->rows, m.tp, t), columns = block_at(x->columns, m.tp, t);
    piece.count = 0;
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t c = 0; c < x->columns; c++) {
            /* Each of the three cuts keeps the numbers inside its own ranges. */
            const bool in_rows = r >= rows.first && r < rows.first + rows.count;
            const bool in_columns = c >= columns.first && c < columns.first + columns.count;
            if ((x->cut == CUT_ROWS && !in_rows) || (x->cut == CUT_COLUMNS && !in_columns)) continue;
            piece.number[piece.count++] = r * x->columns + c;
        }
    const struct interval own = block_at(piece.count, m.dp, d);
    out->count = own.count;
    memcpy(out->number, piece.number + own.first, sizeof *out->number * (size_t)own.count);
}

/* A tensor that tp does not cut is written by one device only, WRITER says which. */
static bool writes(const struct judge *j, const struct tensor *x, struct mesh m, int t)
{
    return x->cut != CUT_NOTHING || t == (judge_choice(j, "WRITER") == 1 ? m.tp - 1 : 0);
}

/* Each number of each tensor has a place: tensor i's numbers begin at first(i). */
static int64_t first(int i)
{
    int64_t sum = 0;
    for (int k = 0; k < i; k++) sum += model.of[k].rows * model.of[k].columns;
    return sum;
}

/* Add a shard's numbers to a list, at their places. */
static void append(struct list *to, int i, const struct list *shard)
{
    for (int64_t k = 0; k < shard->count; k++) to->number[to->count++] = first(i) + shard->number[k];
}

/* List what a device has in memory, or in its file.  The variant FILES reverses the order of tensors in a file. */
static void list_device(const struct judge *j, struct mesh m, int d, int t, bool in_file, struct list *out)
{
    static struct list shard;
    out->count = 0;
    for (int k = 0; k < model.count; k++) {
        const int i = in_file && judge_choice(j, "FILES") == 1 ? model.count - 1 - k : k;
        if (in_file && !writes(j, &model.of[i], m, t)) continue;
        list_shard(&model.of[i], m, d, t, &shard);
        append(out, i, &shard);
    }
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* The model is one of two; hidden inputs have tensors of other sizes and cuts. */
static void draw_model(struct judge *j, int i)
{
    static const struct tensor usual[][TENSORS] = {
        { { 8, 12, CUT_ROWS }, { 12, 8, CUT_COLUMNS }, { 1, 12, CUT_NOTHING } },
        { { 10, 7, CUT_COLUMNS }, { 1, 5, CUT_NOTHING }, { 9, 11, CUT_ROWS }, { 3, 3, CUT_COLUMNS }, { 1, 1,
                                                                                                       CUT_ROWS } },
    };
    static const int counts[] = { 3, 5 };
    model.count = counts[i % 2];
    for (int k = 0; k < model.count; k++) {
        model.of[k] = usual[i % 2][k];
        /* Hidden inputs have the same number of tensors, with drawn rows, columns and cuts. */
        if (!j->hidden) continue;
        model.of[k] = (struct tensor){ judge_draw(j, 1, 18), judge_draw(j, 1, 18), judge_draw(j, 0, 2) };
    }
    model.numbers = first(model.count);
}

/* Choose a mesh of at most 8 devices. */
static struct mesh draw_mesh(struct judge *j, int i)
{
    static const struct mesh usual[] = { { 1, 1 }, { 1, 2 }, { 3, 1 }, { 2, 2 }, { 2, 3 }, { 3, 2 }, { 1, 5 }, { 4,
                                                                                                                 2 } };
    if (!j->hidden) return usual[i % 8];
    const int tp = (int)judge_draw(j, 1, 5);
    return (struct mesh){ (int)judge_draw(j, 1, 8 / tp), tp };
}

enum { MESHES = 8 };

/* The tensors of the model are the first buffer of every call. */
static void give_model(struct trial *r, int d)
{
    trial_copy(r, d, 0, model.of, sizeof *model.of * (uint64_t)model.count, BUFFER_IN);
    r->device[d].number[0] = model.count;
}

static void give_mesh(struct trial *r, int d, int at, struct mesh m)
{
    r->device[d].number[at] = m.dp, r->device[d].number[at + 1] = m.tp;
}

/* Name a device with its indices of dp and tp, for a message. */
struct who { char text[80]; };
static struct who who(int device, int d, int t)
{
    struct who w;
    snprintf(w.text, sizeof w.text, "device %d (index %d of dp, %d of tp)", device, d, t);
    return w;
}

/* ---- shards ------------------------------------------------------------------------------------------------------ */

/* Every number of every shard is compared, in order. */
static void expect_shards(const struct judge *j, struct trial *r, struct mesh m, int d, int t)
{
    static const char *const how[] = { "by rows", "by columns", "not at all" };
    static struct list shard;
    const int device = device_at(j, m, d, t);
    const int64_t *counts = r->device[device].buffer[1].data, *numbers = r->device[device].buffer[2].data;
    for (int i = 0; i < model.count; i++) {
        const struct tensor *x = &model.of[i];
        char tensor[80];
        snprintf(tensor, sizeof tensor, "a tensor of %lld x %lld, cut %s", (long long)x->rows, (long long)x->columns,
                 how[x->cut]);
        /* The shard is listed by the numbers of the tensor that the device must have. */
        list_shard(x, m, d, t, &shard);
        if (counts[i] != shard.count) {
            trial_fails(r, "%s: of %s its shard has %lld numbers; it should be %lld", who(device, d, t).text, tensor,
                        (long long)counts[i], (long long)shard.count);
            return;
        }
        /* The numbers of all tensors follow each other in the buffer. */
        for (int64_t k = 0; k < shard.count; k++, numbers++)
            if (*numbers != shard.number[k]) {
                trial_fails(r, "%s: of %s number %lld of its shard is number %lld of the tensor; it should be "
                            "%lld", who(device, d, t).text, tensor, (long long)k, (long long)*numbers,
                            (long long)shard.number[k]);
                return;
            }
    }
}

/* Both models are cut on eight meshes. */
static void check_shards(struct judge *j)
{
    for (int i = 0; i < 2 * MESHES && !j->failed; i++) {
        const struct mesh m = draw_mesh(j, i);
        draw_model(j, i / MESHES);
        struct trial *r = trial_open(j, "shard_number", m.dp * m.tp, "dp = %d, tp = %d", m.dp, m.tp);
        for (int d = 0; d < r->devices; d++) {
            /* Buffer 1 gets a count for each tensor, buffer 2 the numbers of all shards. */
            give_model(r, d), give_mesh(r, d, 1, m);
            trial_buffer(r, d, 1, sizeof(int64_t) * (uint64_t)model.count, BUFFER_OUT);
            trial_buffer(r, d, 2, sizeof(int64_t) * (uint64_t)model.numbers, BUFFER_OUT);
        }
        if (trial_call(r))
            for (int d = 0; d < m.dp; d++)
                for (int t = 0; t < m.tp && !j->failed; t++) expect_shards(j, r, m, d, t);
        trial_close(r);
    }
}

/* A file of a device has its shard of each tensor that it writes. */
static void check_files(struct judge *j)
{
    static struct list shard;
    for (int i = 0; i < MESHES && !j->failed; i++) {
        const struct mesh m = draw_mesh(j, i);
        draw_model(j, i);
        struct trial *r = trial_open(j, "file_count", m.dp * m.tp, "dp = %d, tp = %d", m.dp, m.tp);
        for (int d = 0; d < r->devices; d++) {
            give_model(r, d), give_mesh(r, d, 1, m);
            trial_buffer(r, d, 1, sizeof(int64_t) * (uint64_t)model.count, BUFFER_OUT);
        }
        if (trial_call(r))
            for (int d = 0; d < m.dp; d++)
                for (int t = 0; t < m.tp; t++)
                    for (int k = 0; k < model.count && !j->failed; k++) {
                        const int device = device_at(j, m, d, t);
                        const int64_t got = ((const int64_t *)r->device[device].buffer[1].data)[k];
                        list_shard(&model.of[k], m, d, t, &shard);
                        /* A device that does not write a tensor has 0 numbers of it in its file. */
                        const int64_t want = writes(j, &model.of[k], m, t) ? shard.count : 0;
                        if (got != want)
                            trial_fails(r, "%s: of tensor %d, %s, its file has %lld numbers; it should be %lld",
                                        who(device, d, t).text, k,
                                        model.of[k].cut == CUT_NOTHING ? "which tp does not cut" : "which tp cuts",
                                        (long long)got, (long long)want);
                    }
        trial_close(r);
    }
}

/* ---- reads ------------------------------------------------------------------------------------------------------- */

/* A read takes consecutive numbers of one file to a place in memory. */
struct read { int64_t file, from, count, to; };

/* Find where in the files each number is. */
static struct read place[MOST];
static int64_t file_length[64];

static void list_files(const struct judge *j, struct mesh m)
{
    static struct list file;
    for (int d = 0; d < m.dp; d++)
        for (int t = 0; t < m.tp; t++) {
            const int device = device_at(j, m, d, t);
            list_device(j, m, d, t, true, &file);
            file_length[device] = file.count;
            for (int64_t k = 0; k < file.count; k++) place[file.number[k]] = (struct read){ device, k, 1, 0 };
        }
}

/* The least number of reads: a number that follows the last one in the same file joins its read. */
static int64_t fewest(const struct list *memory)
{
    int64_t reads = 0;
    struct read before = { -1, 0, 0, 0 };
    for (int64_t k = 0; k < memory->count; k++) {
        const struct read p = place[memory->number[k]];
        reads += p.file != before.file || p.from != before.from + 1;
        before = p;
    }
    return reads;
}

/* Follow the plan of one device.  @return whether memory is filled with the right numbers, in order. */
static bool follow(struct trial *r, struct mesh then, int device, const struct who w, const struct list *memory)
{
    const struct read *read = r->device[device].buffer[1].data;
    const int64_t count = r->device[device].result;
    int64_t filled = 0;
    if (count < 0 || count > memory->count)
        return trial_fails(r, "%s: it returns %lld reads for %lld numbers", w.text, (long long)count,
                           (long long)memory->count);
    for (int64_t i = 0; i < count; i++) {
        const struct read a = read[i];
        const long long file = a.file, from = a.from, n = a.count, to = a.to;
        /* A read must lie inside its file. */
        if (a.file < 0 || a.file >= then.dp * then.tp || a.count < 1 || a.from < 0 || a.count > MOST ||
            a.from > file_length[a.file] - a.count)
            return trial_fails(r, "%s: read %lld wants %lld numbers of file %lld, from %lld on, which are not there",
                               w.text, (long long)i, n, file, from);
        if (a.to != filled || a.count > memory->count - filled)
            return trial_fails(r, "%s: read %lld puts %lld numbers to %lld; the next free place is %lld, of %lld",
                               w.text, (long long)i, n, to, (long long)filled, (long long)memory->count);
        /* Each number that the read brings must be the next of memory. */
        for (int64_t k = 0; k < a.count; k++, filled++) {
            const struct read p = place[memory->number[filled]];
            if (p.file != a.file || p.from != a.from + k)
                return trial_fails(r, "%s: the plan reads number %lld of file %lld as number %lld of its memory; it "
                                   "should be number %lld of file %lld", w.text, (long long)(a.from + k), file,
                                   (long long)filled, (long long)p.from, (long long)p.file);
        }
    }
    if (filled < memory->count)
        return trial_fails(r, "%s: only %lld of its %lld numbers are read", w.text, (long long)filled,
                           (long long)memory->count);
    return true;
}

/* Plans of all devices, and with `few` their number of reads. */
static void look_at_plan(const struct judge *j, struct trial *r, struct mesh then, struct mesh now, bool few)
{
    static struct list memory;
    for (int d = 0; d < now.dp; d++)
        for (int t = 0; t < now.tp && !j->failed; t++) {
            const int device = device_at(j, now, d, t);
            list_device(j, now, d, t, false, &memory);
            if (!follow(r, then, device, who(device, d, t), &memory) || !few) continue;
            if (r->device[device].result != fewest(&memory))
                trial_fails(r, "%s: %lld reads; %lld are enough", who(device, d, t).text,
                            (long long)r->device[device].result, (long long)fewest(&memory));
        }
}

enum look { AT_READS, AT_FEW };

/* Old and new meshes differ, and are once the same. */
static void try_plans(struct judge *j)
{
    for (int i = 0; i <= 2 * MESHES && !j->failed; i++) {
        const bool same = i == 2 * MESHES;              /* the mesh has not changed */
        const struct mesh then = draw_mesh(j, same ? 3 : i);
        const struct mesh now = same ? then : draw_mesh(j, i < MESHES ? (3 * i + 1) % 8 : 7 - i % 8);
        draw_model(j, i / MESHES);
        /* The files of the old mesh are listed before the new mesh asks for its reads. */
        list_files(j, then);
        struct trial *r = trial_open(j, "plan_reads", now.dp * now.tp, "dp = %d, tp = %d; files of dp = %d, tp = %d",
                                     now.dp, now.tp, then.dp, then.tp);
        for (int d = 0; d < r->devices; d++) {
            give_model(r, d), give_mesh(r, d, 1, then), give_mesh(r, d, 3, now);
            /* A plan may have as many reads as the model has numbers. */
            trial_buffer(r, d, 1, sizeof(struct read) * (uint64_t)model.numbers, BUFFER_OUT);
        }
        if (trial_call(r)) look_at_plan(j, r, then, now, j->check->look == AT_FEW);
        trial_close(r);
    }
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

/* These are the numbers of files: the manifest, the new manifest, and 100 step + 10 + device for shards. */
enum { MANIFEST = 0, MANIFEST_NEW = 1, DISK_WRITE = 1, DISK_SYNC, DISK_RENAME, DISK_REMOVE, FILES = 4096 };

/* An operation takes effect when it begins; a sync takes effect when it has ended. */
struct done { int64_t what, file, step, time; int device, order; };

static struct { struct done of[LOG * WORKER_MOST_DEVICES]; int count; } history;

/* Operations of one device stay in order, if they begin at one time. */
static int by_time(const void *a, const void *b)
{
    const struct done *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->device != y->device ? x->device - y->device : x->order - y->order;
}

/* Collect all operations of all devices in the order of their times. */
static bool read_history(struct trial *r)
{
    history.count = 0;
    for (int d = 0; d < r->devices; d++) {
        const int64_t *log = r->device[d].buffer[0].data, used = r->device[d].result;
        if (used < 0 || used > LOG)
            return trial_fails(r, "device %d does %lld things with the disk; %d are more than enough", d,
                               (long long)used, LOG);
        /* An entry of the log has 5 numbers: operation, file, step, and the times of begin and end. */
        for (int i = 0; i < used; i++, log += 5) {
            if (log[0] < DISK_WRITE || log[0] > DISK_REMOVE || log[1] < 0 || log[1] >= FILES)
                return trial_fails(r, "device %d: there is no file %lld", d, (long long)log[1]);
            /* A sync counts when it ends, all else when it begins. */
            history.of[history.count++] = (struct done){ log[0], log[1], log[2], log[0] == DISK_SYNC ? log[4] :
                                                         log[3], d, i };
        }
    }
    qsort(history.of, (size_t)history.count, sizeof *history.of, by_time);
    return true;
}

/* The files there are, and whether each is certain to survive a crash. */
struct file { bool there, synced; int64_t step; };
static struct file files[FILES], replaced;              /* replaced: the manifest before a rename that was not synced */
static bool pending;

/* Find the number of a device's file after a step. */
static int64_t shards_of(int64_t step, int device) { return 100 * step + 10 + device; }

/* Before the save there is a complete checkpoint of the step before. */
static void begin_disk(int W, int64_t before)
{
    memset(files, 0, sizeof files);
    pending = false;
    files[MANIFEST] = (struct file){ true, true, before };
    for (int d = 0; d < W; d++) files[shards_of(before, d)] = (struct file){ true, true, before };
}

/* A rename is not certain until the new name is synced; both manifests are kept until then. */
static void take_effect(const struct done *o)
{
    struct file *f = &files[o->file];
    if (o->what == DISK_WRITE) *f = (struct file){ true, false, o->step };
    if (o->what == DISK_SYNC && f->there) f->synced = true;
    if (o->what == DISK_SYNC && o->file == MANIFEST) pending = false;
    if (o->what == DISK_REMOVE) f->there = false;
    if (o->what == DISK_RENAME) {
        if (!pending) replaced = files[MANIFEST];
        files[MANIFEST] = files[MANIFEST_NEW], pending = true;
        files[MANIFEST_NEW].there = false;
    }
}

/* Whether a crash now leaves a complete checkpoint, whichever of two manifests is found.  The message says what
 * happened last. */
static bool is_safe(struct trial *r, const struct file *manifest, const struct done *o)
{
    static const char *const name[] = { "", "writes", "has synced", "renames to", "removes" };
    char when[120];
    snprintf(when, sizeof when, "a crash at %s, after device %d %s file %lld", picoseconds_exact(o->time).text,
             o->device, name[o->what], (long long)o->file);
    if (!manifest->there) return trial_fails(r, "%s: there is no manifest", when);
    if (!manifest->synced) return trial_fails(r, "%s: the manifest may be empty, it was not synced", when);
    for (int d = 0; d < r->devices; d++) {
        /* The manifest names a step, and every device's file of that step must be certain. */
        const int64_t number = shards_of(manifest->step, d);
        const struct file *f = number >= 0 && number < FILES ? &files[number] : &files[MANIFEST_NEW];
        if (f->there && f->synced && f->step == manifest->step) continue;
        return trial_fails(r, "%s: the manifest that may be found names step %lld, and file %lld of device %d %s", when,
                           (long long)manifest->step, (long long)number, d,
                           f->there ? "may be incomplete, it was not synced" : "is not there");
    }
    return true;
}

enum view { AT_END, AT_CRASH, AT_REST, AT_TIME };

/* At the end: the new checkpoint is there, certain, and nothing of the old is left. */
static void look_at_end(struct trial *r, int64_t step, enum view view)
{
    const struct file *m = &files[MANIFEST];
    if (!m->there || m->step != step) trial_fails(r, "at the end the manifest does not name step %lld",
                                                  (long long)step);
    for (int d = 0; d < r->devices && !r->judge->failed; d++)
        if (!files[shards_of(step, d)].there || files[shards_of(step, d)].step != step)
            trial_fails(r, "at the end there is no file %lld, the shards of device %d after step %lld",
                        (long long)shards_of(step, d), d, (long long)step);
    /* Only AT_REST asks for what is certain after a crash, and for files that are left over. */
    if (view != AT_REST || r->judge->failed) return;
    if (pending || !m->synced) trial_fails(r, "at the end it is not certain that the manifest is there: nobody "
                                           "synced it");
    /* Old shards must be gone, and the new shards must be on the disk. */
    for (int f = 1; f < FILES && !r->judge->failed; f++) {
        const bool new = f >= shards_of(step, 0) && f < shards_of(step, r->devices);
        if (files[f].there && !new) trial_fails(r, "at the end file %d is still there", f);
        else if (new && !files[f].synced) trial_fails(r, "at the end it is not certain that file %d is there", f);
    }
}

/* A device may write or remove only its own file; only device 0 touches manifests. */
static void expect_own_files(struct trial *r, int64_t before, int64_t step)
{
    for (int i = 0; i < history.count && !r->judge->failed; i++) {
        const struct done *o = &history.of[i];
        const bool own = o->file == shards_of(before, o->device) || o->file == shards_of(step, o->device);
        if (o->file > MANIFEST_NEW ? !own : o->device != 0)
            trial_fails(r, "device %d does something with file %lld, which is not its own", o->device,
                        (long long)o->file);
    }
}

/* The log is followed operation by operation; a crash is tried after each. */
static void look_at_save(struct trial *r, int64_t before, int64_t step, double slowest, enum view view)
{
    if (!read_history(r)) return;
    begin_disk(r->devices, before);
    for (int i = 0; i < history.count && !r->judge->failed; i++) {
        take_effect(&history.of[i]);
        if (view != AT_CRASH) continue;
        if (is_safe(r, &files[MANIFEST], &history.of[i]) && pending) is_safe(r, &replaced, &history.of[i]);
    }
    if (r->judge->failed) return;
    look_at_end(r, step, view);
    if (view == AT_END && !r->judge->failed) expect_own_files(r, before, step);
    if (view != AT_TIME || r->judge->failed) return;
    /* The limit counts writes and syncs, the manifest's four operations, and a removal.  Two all-reduces of at most
     * 2 (W-1) messages each come on top. */
    const picoseconds most = (picoseconds)(1e6 * slowest * (200 + 301 + 1)) +
        2 * 2 * r->devices * r->cluster.link[0].latency;
    if (trial_time(r) > most)
        trial_fails(r, "it took %s; %s are enough, if all devices write at the same time",
                    picoseconds_exact(trial_time(r)).text, picoseconds_exact(most).text);
}

/* Devices with different speeds show a device that waits for another. */
static void try_saves(struct judge *j)
{
    const enum view view = j->check->look;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (*W == 1 ? 1 : 3) && !j->failed; i++) {
            const int64_t before = judge_draw(j, 1, 15), step = before + judge_draw(j, 1, 15);
            double slowest = 1;
            struct trial *r = trial_open(j, "save_checkpoint", *W, "step %lld after %lld", (long long)step,
                                         (long long)before);
            r->cluster.flop_rate[F32] = 1000000;            /* an operation takes a picosecond */
            for (int d = 0; d < *W; d++) {
                /* A slow device takes up to 20 times as long for each operation of the disk. */
                const double slow = i == 0 ? 1 : (double)judge_draw(j, 1, 20);
                trial_buffer(r, d, 0, 40 * LOG, BUFFER_OUT);
                r->device[d].number[0] = before, r->device[d].number[1] = step, r->device[d].given[0] = slow;
                slowest = slow > slowest ? slow : slowest;
            }
            if (trial_call(r)) look_at_save(r, before, step, slowest, view);
            trial_close(r);
        }
}

static const char *const functions[] = { "shard_count", "shard_number", "file_count", "plan_reads", "save_checkpoint",
                                         NULL };

extern const struct lesson lesson_15_checkpoints;
const struct lesson lesson_15_checkpoints = {
    .folder = "15_checkpoints", .title = "Checkpoints of one mesh on another", .file = "checkpoints.c",
    .functions = functions,
    .vary = { { "ORDER", 2 }, { "WRITER", 2 }, { "FILES", 2 } },
    .check = {
        { 1, "shards", "which numbers of a tensor each device has", 4, { check_shards },
          { "First the device's two indices: checkpoints.h says how its number is made of them.  Try dp = 2, tp = 3 "
            "on paper.",
            "A piece is block_of rows and all columns, or all rows and block_of columns; or everything.",
            "Number i of a piece is in its row i / (columns of the piece), and in its column i % (columns of the "
                "piece).",
            "To this row and column add where the piece begins; in the tensor a row has all columns." } },
        { 1, "files", "how many of them are in its file", 1, { check_files },
          { "What all indices of tp have is written by one of them: which?" } },
        { 2, "plan", "reads that fill the memory of every device", 4, { try_plans, AT_READS },
          { "Take the numbers of memory one after another: which number of the tensor is it, and where is that in "
            "the files?",
            "To find it: which piece has its row and column, which block of dp has its place in that piece?",
            "In a file other tensors come first.  How many numbers of them?  file_count says it, also 0." } },
        { 2, "reads", "as few reads as possible", 2, { try_plans, AT_FEW },
          { "If a number follows the last one in the same file, the last read becomes longer by one.",
            "The end of one tensor and the beginning of the next can be one read, too." } },
        { 3, "save", "a new manifest, and the files of all devices", 2, { try_saves, AT_END },
          { "Each device writes its own file; device 0 writes MANIFEST_NEW, and renames it." } },
        { 3, "crash", "at every moment there is a complete checkpoint", 4, { try_saves, AT_CRASH },
          { "The manifest must not name a step before all devices have synced its files.  How does device 0 know?",
            "MANIFEST_NEW must be synced before it becomes MANIFEST, or an empty file may be found.",
            "After a crash the old manifest may be there until MANIFEST is synced.  What must still be there until "
                "then?",
            "all_reduce of one number: nobody leaves it before all have come." } },
        { 3, "rest", "what is left is certain, and nothing more is left", 1, { try_saves, AT_REST },
          { "The old files go when the manifest that names the new ones is certain." } },
        { 3, "time", "all devices write at the same time", 1, { try_saves, AT_TIME },
          { "Do devices wait for each other before they write?  They need not." } },
    },
};
