/* lock.c -- takes, renews and releases the locks that lock.h describes.  run/keeping.c calls.  Errors: ERR_FILE of a
 * lock that somebody holds or that cannot be made, ERR_MEMORY.  A failed call leaves no file behind. */
#define _XOPEN_SOURCE 700               /* realpath */
#include "ref/io/lock.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- who holds a lock -------------------------------------------------------------------------------------------- */

enum { WORD = 80 };                     /* bytes of a word in a lock's file */

/* This holds the content of a lock's file.  Words have no blanks. */
struct holder {
    char run[WORD], host[WORD], boot[WORD], space[WORD];
    long pid, shown;                    /* of the process that renews it; of the one that a user would stop */
    unsigned long long started;         /* when the kernel started it, in ticks since the boot; 0: not known */
    long long since;                    /* seconds since 1970, when the lock was taken */
};

static const char FORMAT[] = "orrery-lock 1\nrun %s\nhost %s\nboot %s\nspace %s\nprocess %ld\nshown %ld\nstarted %llu\n"
                             "since %lld\n";
static const char SCAN[] = "orrery-lock 1 run %79s host %79s boot %79s space %79s process %ld shown %ld started %llu "
                           "since %lld";

/* The first word of a text; "-" if it has none. */
static void take_word(char word[WORD], const char *text)
{
    if (sscanf(text, "%79s", word) != 1) strcpy(word, "-");
}

/* @return 0: it has ended, or the system does not tell. */
static unsigned long long start_of(long pid)
{
    struct system_process process;
    return system_process(pid, &process) && strchr("ZX", process.state) == NULL ? process.started : 0;
}

static struct holder this_process(const struct lock_owner *owner)
{
    struct holder h = { .pid = (long)getpid(), .since = (long long)time(NULL) };
    char name[256] = "";
    h.shown = owner->process > 0 ? owner->process : h.pid;
    take_word(h.run, owner->run);
    take_word(h.host, gethostname(name, sizeof name - 1) == 0 ? name : "");
    take_word(h.boot, system_boot(name) ? name : "");
    take_word(h.space, system_space(name) ? name : "");
    h.started = start_of(h.pid);
    return h;
}

static bool same_machine(const struct holder *a, const struct holder *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->boot, b->boot) == 0 && strcmp(a->space, b->space) == 0;
}

/* A process that may not be signalled is there.  A number that is used again has another start. */
static bool is_running(const struct holder *holder)
{
    if (kill((pid_t)holder->pid, 0) != 0 && errno == ESRCH) return false;
    const unsigned long long started = start_of(holder->pid);
    return holder->started == 0 ? true : started == holder->started;
}

/* A device ends in a moment when the process that has started the devices has ended. */
static bool has_lost_its_parent(const struct holder *holder)
{
    return holder->shown != holder->pid && holder->shown > 0 && kill((pid_t)holder->shown, 0) != 0 && errno == ESRCH;
}

/* ---- a lock's file ----------------------------------------------------------------------------------------------- */

enum lock_state { LOCK_NONE, LOCK_OWN, LOCK_HELD, LOCK_ENDS, LOCK_IS_VOID };

static enum error_code lock_read(const char *path, char **text, struct holder *holder, bool *told)
{
    size_t count;
    const enum error_code e = file_read_all(path, 4096, text, &count, NULL);
    *told = !e && sscanf(*text, SCAN, holder->run, holder->host, holder->boot, holder->space, &holder->pid,
                         &holder->shown, &holder->started, &holder->since) == 8 && holder->pid > 0;
    return e;
}

static double seconds_of(struct timespec t) { return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec; }

static double age_of(const char *path, double now)
{
    struct stat st;
    return stat(path, &st) == 0 ? now - (seconds_of(system_changed(&st))) : 0;
}

/* "now" by the clock that stamps files here, which on a network is not ours: the time of a file just made. */
static double now_here(const char *folder)
{
    char path[LOCK_PATH + 64];
    struct stat st;
    double now = (double)time(NULL);
    snprintf(path, sizeof path, "%s/.orrery.now.%ld", folder, (long)getpid());
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return now;
    if (fstat(fd, &st) == 0) now = seconds_of(system_changed(&st));
    close(fd);
    unlink(path);
    return now;
}

/* The folder of a lock's file. */
static const char *folder_of(const char *path, char folder[LOCK_PATH])
{
    snprintf(folder, LOCK_PATH, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL) strcpy(folder, ".");
    else slash[slash == folder] = '\0';
    return folder;
}

#define LAST_SEEN ", last seen "        /* of a lock whose process cannot be looked at */

/* A lock, judged.  @param[out] words  who holds or held it, and for how long. */
static enum lock_state lock_judge(const char *path, char *words, size_t size)
{
    static const struct lock_owner nobody = { .run = "-" };
    const struct holder own = this_process(&nobody);
    struct holder h;
    bool told;
    char *text = NULL, folder[LOCK_PATH];
    if (lock_read(path, &text, &h, &told) != OK && access(path, F_OK) != 0) return LOCK_NONE;
    free(text);
    const bool here = told && same_machine(&h, &own);
    const double age = here ? 0 : age_of(path, now_here(folder_of(path, folder)));
    if (!told) {
        snprintf(words, size, "somebody who does not say who" LAST_SEEN "%s ago", time_format(age).text);
        return age > LOCK_VOID ? LOCK_IS_VOID : LOCK_HELD;
    }
    if (here && h.pid == own.pid && h.started == own.started) return LOCK_OWN;
    const double since = difftime(time(NULL), (time_t)h.since);
    int n = snprintf(words, size, "run %s, process %ld on %s, begun %s ago", printable(h.run).text, h.shown,
                     printable(h.host).text, time_format(since > 0 ? since : 0).text);
    if (!here && n > 0 && (size_t)n < size)
        snprintf(words + n, size - (size_t)n, LAST_SEEN "%s ago", time_format(age > 0 ? age : 0).text);
    if (here && is_running(&h) && has_lost_its_parent(&h)) return LOCK_ENDS;
    return (here ? is_running(&h) : age <= LOCK_VOID) ? LOCK_HELD : LOCK_IS_VOID;
}

/* Only of a lock of this machine it is known that its process runs. */
static enum error_code refuse(const char *path, const char *words, struct error *err)
{
    if (strstr(words, LAST_SEEN) == NULL)
        return fail(err, ERR_FILE, "%s, writes here: wait for its end, or give another place", words);
    return fail(err, ERR_FILE, "%s, writes here: wait for its end, or give another place; if it has ended, remove %s, "
                "or wait until it has not been seen for %d s", words, printable_path(path).text, LOCK_VOID);
}

/* The file of this process, put in place as a whole.  @return 0: it is there; EEXIST: another is; or why not. */
static int lock_place(const char *path, const char *text)
{
    char temp[LOCK_PATH + 64];
    struct stat st;
    snprintf(temp, sizeof temp, "%s.%ld", path, (long)getpid());
    unlink(temp);                       /* of a process that had our number */
    int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return errno;
    const size_t n = strlen(text);
    bool written = write(fd, text, n) == (ssize_t)n;
    int why = written ? 0 : errno ? errno : ENOSPC;
    if (close(fd) != 0 && written) why = errno, written = false;
    if (written && link(temp, path) != 0) {
        why = errno;
        if (stat(temp, &st) == 0 && st.st_nlink == 2) why = 0;          /* NFS may answer a repeated request */
    }
    unlink(temp);
    if (why != EPERM && why != ENOTSUP && why != EOPNOTSUPP && why != ENOSYS && why != EMLINK) return why;
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);     /* a file system without links */
    if (fd < 0) return errno;
    written = write(fd, text, n) == (ssize_t)n;
    why = written ? 0 : errno ? errno : ENOSPC;
    close(fd);
    if (why) unlink(path);
    return why;
}

static bool says(const char *path, const char *text)
{
    char *there = NULL;
    size_t count;
    const bool same = file_read_all(path, 4096, &there, &count, NULL) == OK && strcmp(there, text) == 0;
    free(there);
    return same;
}

/* Remove a void lock.  Of two processes that have judged the same one, the slower must not remove the lock of the
 * faster.  So one at a time looks again and removes, behind a lock of its own, which is held for a moment. */
static void remove_void(const char *path, const char *text)
{
    char guard[LOCK_PATH + 16], words[400];
    const struct timespec moment = { .tv_nsec = 10000000 };
    snprintf(guard, sizeof guard, "%s.take", path);
    for (int tries = 0; lock_place(guard, text) != 0; tries++) {
        if (tries == 200) return;
        if (lock_judge(guard, words, sizeof words) == LOCK_IS_VOID) unlink(guard);
        nanosleep(&moment, NULL);
    }
    if (lock_judge(path, words, sizeof words) == LOCK_IS_VOID) unlink(path);
    unlink(guard);
}

/* ---- renewing ---------------------------------------------------------------------------------------------------- */

enum { MOST_LOCKS = 16 };
static struct {
    pthread_mutex_t mutex;
    const struct lock *lock[MOST_LOCKS];
    bool started;
} renewed = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static void *lock_beat(void *unused)
{
    const struct timespec pause = { .tv_sec = LOCK_BEAT };
    for (;;) {
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&renewed.mutex);
        for (int i = 0; i < MOST_LOCKS; i++)            /* the lock of somebody who has taken over is not renewed */
            if (renewed.lock[i] != NULL && says(renewed.lock[i]->path, renewed.lock[i]->text))
                utimensat(AT_FDCWD, renewed.lock[i]->path, NULL, 0);
        pthread_mutex_unlock(&renewed.mutex);
    }
    return unused;
}

/* Without the thread only processes of other hosts might take this one for ended. */
static void start_beat(void)
{
    pthread_attr_t small;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);        /* the main thread gets signals */
    renewed.started = pthread_create(&thread, &small, lock_beat, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&small);
}

/* Put one lock in the place of another among those that are renewed; NULL: none. */
static void renew_instead(const struct lock *old, const struct lock *now)
{
    pthread_mutex_lock(&renewed.mutex);
    int i = 0;
    while (i < MOST_LOCKS && renewed.lock[i] != old) i++;
    if (i < MOST_LOCKS) renewed.lock[i] = now;
    if (now != NULL && !renewed.started) start_beat();
    pthread_mutex_unlock(&renewed.mutex);
}

/* ---- taking and releasing ---------------------------------------------------------------------------------------- */

static bool lock_finds_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The path of the lock's file.  A link is followed, so that each name of a place has one lock.
 * @return false: this place has no lock. */
static bool lock_path(const char *path, bool folder, char lock[LOCK_PATH])
{
    struct stat st;
    char *real = realpath(path, NULL);
    const char *at = real != NULL ? real : path;
    size_t n = strlen(at);
    while (n > 1 && at[n - 1] == '/') n--;
    bool has = strcmp(path, "-") != 0 && n > 0 && n < LOCK_PATH - 100;
    if (has && stat(path, &st) == 0) has = folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode);
    if (has && folder) snprintf(lock, LOCK_PATH, "%.*s/.orrery.lock", (int)n, at);
    else if (has) {
        const char *slash = strrchr(at, '/');
        const int before = slash != NULL ? (int)(slash - at) + 1 : 0;
        snprintf(lock, LOCK_PATH, "%.*s.%s.lock", before, at, at + before);
    }
    free(real);
    return has;
}

static enum error_code place_or_refuse(struct lock *lock, char *void_of, size_t size, struct error *err)
{
    const struct timespec moment = { .tv_nsec = 20000000 };
    char words[400] = "another run, which takes and releases this lock all the time";
    for (int tries = 0; tries < 150; tries++) {         /* 3 s, if a device does not end */
        const int why = lock_place(lock->path, lock->text);
        if (why == 0 && says(lock->path, lock->text)) return OK;
        if (why == EACCES || why == EROFS || why == ENOENT || why == ENOTDIR) return lock->path[0] = '\0', OK;
        if (why != 0 && why != EEXIST)
            return fail(err, ERR_FILE, "%s: this lock cannot be made: %s", printable_path(lock->path).text,
                        strerror(why));
        switch (lock_judge(lock->path, words, sizeof words)) {
        case LOCK_OWN: return lock->path[0] = '\0', OK;                 /* by another option of the same run */
        case LOCK_HELD: return refuse(lock->path, words, err);
        case LOCK_IS_VOID:
            snprintf(void_of, size, "%s", words);
            remove_void(lock->path, lock->text);
            break;
        case LOCK_ENDS: nanosleep(&moment, NULL); break;
        case LOCK_NONE: break;
        }
    }
    return refuse(lock->path, words, err);
}

enum error_code lock_take(struct lock *lock, const char *path, bool folder, const struct lock_owner *owner,
                          char *void_of, size_t size, struct error *err)
{
    const struct holder h = this_process(owner);
    char text[1024];
    *lock = (struct lock){ .text = NULL };
    void_of[0] = '\0';
    if (folder && !lock_finds_folder(path)) {
        if (strlen(path) >= LOCK_PATH || mkdir(path, 0777) != 0) return OK;
        strcpy(lock->folder, path);
    }
    if (!lock_path(path, folder, lock->path)) return lock->path[0] = '\0', OK;
    snprintf(text, sizeof text, FORMAT, h.run, h.host, h.boot, h.space, h.pid, h.shown, h.started, h.since);
    lock->text = strdup(text);
    const enum error_code e = lock->text != NULL ? place_or_refuse(lock, void_of, size, err)
                                                 : fail(err, ERR_MEMORY, "no memory for a lock");
    if (e) lock->path[0] = '\0';
    if (lock->path[0]) renew_instead(NULL, lock);
    else lock_release(lock);
    return e;
}

enum error_code lock_look(const char *path, bool folder, struct error *err)
{
    char file[LOCK_PATH], words[400];
    if ((folder && !lock_finds_folder(path)) || !lock_path(path, folder, file)) return OK;
    return lock_judge(file, words, sizeof words) == LOCK_HELD ? refuse(file, words, err) : OK;
}

enum error_code lock_stands(const struct lock *lock, struct error *err)
{
    char words[400];
    if (lock->path[0] == '\0' || says(lock->path, lock->text)) return OK;
    if (lock_judge(lock->path, words, sizeof words) == LOCK_NONE) snprintf(words, sizeof words, "nobody");
    return fail(err, ERR_FILE, "%s: this run's lock is no longer there, but that of %s: two runs would mix",
                printable_path(lock->path).text, words);
}

void lock_release(struct lock *lock)
{
    if (lock->path[0]) {
        renew_instead(lock, NULL);
        if (says(lock->path, lock->text)) unlink(lock->path);
    }
    if (lock->folder[0]) rmdir(lock->folder);           /* stays if something is in it */
    free(lock->text);
    *lock = (struct lock){ .text = NULL };
}
