/* python.c -- finds python3, and runs a student's file in Python with it (tutorials/worker/worker.py).
 * judge.c, serve.c and trial.c call these functions for a file whose name ends with .py.  What a student wrote wrong is
 * text in `why`; ERR_USAGE means that this machine has no python3 with numpy, ERR_FILE that it cannot be locked in. */
#include "emulated_devices/course/python.h"
#include "emulated_devices/course/lesson.h"
#include "ref/io/child.h"
#include "ref/io/output.h"
#include "ref/machine/system.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER = 1 << 16, LOAD_SECONDS = 60, CHECK_SECONDS = 20, ASK_SECONDS = 60, PROCESSES = 256, SAID = 1 << 20,
       MEGABYTES = 560 };

/* ---- which python3 ----------------------------------------------------------------------------------------------- */

/* This is python3 with numpy, once it is found: its program, the folder of numpy, and the files that both read. */
static struct { char program[PATH_MAX], numpy[PATH_MAX]; struct cage_files files; bool found; } python;

/* python3 says what it reads: a word and a path in each line.  -I keeps the folder that it starts in out of it. */
static const char question[] =
    "import os, site, sys\n"
    "sys.path.append(site.getusersitepackages())\n"
    "import ctypes, resource, numpy\n"
    "print('program', sys.executable)\n"
    "print('numpy', os.path.dirname(os.path.dirname(os.path.abspath(numpy.__file__))))\n"
    "sees = [p for p in sys.path if p != site.getusersitepackages()]\n"
    "sees += [sys.executable, os.path.dirname(os.__file__), os.path.join(sys.prefix, 'pyvenv.cfg')]\n"
    "sees += [os.path.dirname(os.path.dirname(os.path.abspath(numpy.__file__)))]\n"
    "maps = os.path.join('/', 'proc', 'self', 'maps')\n"
    "lines = open(maps) if os.path.exists(maps) else []\n"
    "sees += [l[l.index('/'):].strip() for l in lines if ' r-xp ' in l and '/' in l]\n"
    "for p in dict.fromkeys(sees):\n"
    "    if os.path.exists(p): print('sees', p)\n";

/* Ask one python3, outside of any cage.  @return whether it has answered: it has numpy then. */
static bool python_ask(const char *program, char *answer)
{
    char *words[] = { (char *)(uintptr_t)program, (char *)"-I", (char *)"-B", (char *)"-c",
                      (char *)(uintptr_t)question, NULL };
    int ends[2];
    size_t used = 0;
    struct child_end end = { .how = 1 };
    answer[0] = '\0';
    if (!system_pipe(ends)) return false;
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) {
        const int nothing = open("/dev/null", O_RDWR);
        if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(ends[1], 1) < 0 || dup2(nothing, 2) < 0) _exit(126);
        alarm(ASK_SECONDS);
        execv(program, words);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t n; used < ANSWER - 1; used += (size_t)n) {
        n = read(ends[0], answer + used, ANSWER - 1 - used);
        if (n <= 0) break;
    }
    answer[used] = '\0';
    close(ends[0]);
    if (child > 0) child_wait(child, 0, &end);
    return WIFEXITED(end.how) && WEXITSTATUS(end.how) == 0 && strstr(answer, "numpy /") != NULL;
}

/* Take the answer apart. */
static void python_take(char *answer)
{
    python.files = (struct cage_files){ 0 };
    cage_add_system(&python.files);
    cage_add_path(&python.files, "/etc/alternatives");      /* where Debian has its libraries of matrices */
    for (char *rest = NULL, *line = strtok_r(answer, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "program ", 8) == 0) snprintf(python.program, sizeof python.program, "%s", line + 8);
        if (strncmp(line, "numpy ", 6) == 0) snprintf(python.numpy, sizeof python.numpy, "%s", line + 6);
        if (strncmp(line, "sees ", 5) == 0) cage_add_path(&python.files, line + 5);
    }
    python.found = true;
}

/* PYTHON names one; else all folders of PATH are looked through, because the first python3 may have no numpy. */
enum error_code python_find(struct error *err)
{
    const char *asked = getenv("PYTHON"), *path = getenv("PATH");
    char one[PATH_MAX], copy[4 * PATH_MAX], *answer;
    bool any = false;
    if (python.found) return OK;
    if ((answer = malloc(ANSWER)) == NULL) return fail(err, ERR_MEMORY, "no memory for python3's answer");
    const bool named = asked && asked[0];
    snprintf(copy, sizeof copy, "%s", named && strchr(asked, '/') ? asked : path ? path : "/usr/local/bin:/usr/bin");
    for (char *rest = NULL, *at = strtok_r(copy, ":", &rest); at && !python.found; at = strtok_r(NULL, ":", &rest)) {
        if (named && strchr(asked, '/')) snprintf(one, sizeof one, "%s", asked);
        else path_of(one, sizeof one, at, named ? asked : "python3");
        if (access(one, X_OK) != 0) continue;
        any = true;
        if (python_ask(one, answer)) python_take(answer);
    }
    free(answer);
    if (python.found) return OK;
    const struct printable said = printable(named ? asked : "python3");
    return any ? fail(err, ERR_USAGE, "%s: it has no numpy, which a file in Python needs; PYTHON names another python3",
                      said.text)
               : fail(err, ERR_USAGE, "%s: there is no such program, which a file in Python needs; PYTHON names one",
                      said.text);
}

bool is_python(const char *path)
{
    const size_t n = strlen(path);
    return n > 3 && strcmp(path + n - 3, ".py") == 0;
}

bool python_file(const struct lesson *lesson, char *to, size_t size)
{
    const size_t n = strlen(lesson->file);
    if (lesson->functions == NULL || n < 3 || strcmp(lesson->file + n - 2, ".c") != 0) return false;
    return snprintf(to, size, "%.*s.py", (int)n - 2, lesson->file) < (int)size;
}

/* ---- a text ------------------------------------------------------------------------------------------------------ */

/* No thread of numpy's libraries: a process may not start one. */
static const char *const surroundings[] = { "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1", "MKL_NUM_THREADS=1",
                                            "LC_ALL=C.UTF-8", "HOME=/", "PATH=/usr/local/bin:/usr/bin:/bin", NULL };

struct cage_view python_view(const struct build *build)
{
    return (struct cage_view){ .files = &python.files, .inside = build->folder, .reads = { "run" }, .build = true,
                               .processes = true, .user = build->user };
}

/* Copy what worker.py loads, and the student's text, into run/. */
static enum error_code python_lay_out(struct build *build, const struct lesson *lesson, const char *text, size_t bytes,
                                      struct error *err)
{
    char tutorials[PATH_MAX / 2], folder[PATH_MAX], from[PATH_MAX], name[100], inside[PATH_MAX];
    static const char *const common[] = { "course.py", "worker/worker.py", "worker/device.py" };
    enum error_code e = course_folder(tutorials, sizeof tutorials, err);
    if (e) return e;
    if (!python_file(lesson, name, sizeof name)) return fail(err, ERR_FILE, "lesson %s is no lesson in Python",
                                                             lesson->folder);
    for (size_t i = 0; i < sizeof common / sizeof *common && !e; i++) {
        const char *base = strrchr(common[i], '/');
        path_of(from, sizeof from, tutorials, common[i]);
        path_of(inside, sizeof inside, "run", base ? base + 1 : common[i]);
        e = build_copy(build, from, inside, err);
    }
    path_of(folder, sizeof folder, tutorials, lesson->folder);
    path_of(from, sizeof from, folder, "calls.py");
    if (!e && access(from, R_OK) != 0)
        return fail(err, ERR_USAGE, "lesson %s cannot be solved in Python yet, only in C", lesson->folder);
    if (!e) e = build_copy(build, from, "run/calls.py", err);
    if (!e) e = build_copy_all(build, folder, "_given.py", "run", err);
    path_of(inside, sizeof inside, "run", name), path_of(build->source, sizeof build->source, build->folder, inside);
    return e ? e : build_put(build, inside, text, bytes, err);
}

/* The command line of worker.py. */
static void python_words(struct words *words, const char *worker, const char *source, const char *what)
{
    const char *const all[] = { python.program, "-I", "-B", worker, what, cage_python_rules(), python.numpy, source };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) add_word(words, all[i]);
}

/* Copy what the first look has said, without characters that steer a terminal. */
static void python_say(char *to, size_t size, const char *said)
{
    size_t n = 0;
    for (; *said && n + 1 < size; said++) to[n++] = *said == '\n' || !iscntrl((unsigned char)*said) ? *said : '?';
    to[n] = '\0';
}

/* Run the text once, locked in: its functions must be there.  @return OK also if the text is wrong: `why` has it. */
static enum error_code python_look(const struct build *build, const struct lesson *lesson, char *why, size_t size,
                                   struct error *err)
{
    struct words w = { 0 };
    struct cage_end end;
    python_words(&w, build->worker, build->source, "check");
    for (int i = 0; lesson->functions[i]; i++) add_word(&w, lesson->functions[i]);
    w.word[w.count] = NULL;
    const struct cage_command c = { .word = w.word, .environment = surroundings, .view = python_view(build),
                                    .each = { CHECK_SECONDS, 0, 1, USER_PROCESSES }, .starts_in = "run",
                                    .all = { .seconds = CHECK_SECONDS, .memory = (uint64_t)MEGABYTES << 20,
                                             .said = SAID, .asleep = ASLEEP_SECONDS, .wall = COMMAND_SECONDS } };
    enum error_code e = cage_run(&c, &end, err);
    if (e) return e;
    const int n = (int)strcspn(end.said, "\n");
    if (end.unstarted || (WIFEXITED(end.how) && (WEXITSTATUS(end.how) == 3 || WEXITSTATUS(end.how) > 1)))
        return fail(err, ERR_FILE, "%s%s%s: python3 cannot be used here: %.*s", python.program,
                    build->user ? " by user " : "", build->user ? build->user : "", n, end.said);
    if (WIFEXITED(end.how) && WEXITSTATUS(end.how) == 0) return OK;
    const int s = WIFSIGNALED(end.how) ? WTERMSIG(end.how) : 0;
    if (end.over) snprintf(why, size, "while it was loaded it was stopped: %s\n", end.over);
    else if (s == SIGSYS)
        snprintf(why, size, "while it was loaded it asked the operating system for something; your code may only call "
                 "what course has, and compute\n");
    else if (s == SIGPROF || s == SIGXCPU || s == SIGKILL)
        snprintf(why, size, "while it was loaded it computed for more than 5 seconds\n");
    else if (s) snprintf(why, size, "while it was loaded it crashed: signal %d\n", s);
    else python_say(why, size, end.said);
    if (why[0] == '\0') snprintf(why, size, "it ended while it was loaded\n");
    return OK;
}

enum error_code build_python(struct build *build, const struct lesson *lesson, const char *text, size_t bytes,
                             const struct judging *how, char *why, size_t size, struct error *err)
{
    *build = (struct build){ 0 };
    why[0] = '\0';
    if (strlen(text) != bytes) return snprintf(why, size, "it has a NUL character\n"), OK;
    enum error_code e = python_find(err);
    if (!e) e = build_open_text(build, how, err);
    build->python = true;
    if (!e) e = python_lay_out(build, lesson, text, bytes, err);
    path_of(build->worker, sizeof build->worker, build->folder, "run/worker.py");
    if (!e) e = python_look(build, lesson, why, size, err);
    if (e || why[0]) build->worker[0] = '\0';
    return e;
}

/* ---- worker.py, in a check's process ----------------------------------------------------------------------------- */

/* Become worker.py, in the child, without rights.  Its socket is number 3. */
static void become_python(const struct judge *judge, int end)
{
    char source[PATH_MAX], name[100];
    const struct cage_limits most = { .seconds = LOAD_SECONDS, .file = 1, .processes = PROCESSES };
    struct words w = { 0 };
    if (!python_file(judge->lesson, name, sizeof name)) _exit(126);
    snprintf(source, sizeof source, "%.*s%s", (int)(strrchr(judge->worker, '/') + 1 - judge->worker), judge->worker,
             name);
    python_words(&w, judge->worker, source, "judge");
    w.word[w.count] = NULL;
    const int nothing = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; fd++) if (nothing < 0 || dup2(nothing, fd) < 0) _exit(126);
    const int high = fcntl(end, F_DUPFD, 4);
    cage_close_at_exec();
    if (high < 0 || dup2(high, 3) < 0 || !cage_become(judge->cage, &most)) _exit(126);
    execve(python.program, (char *const *)(uintptr_t)w.word, (char *const *)(uintptr_t)surroundings);
    _exit(127);
}

bool python_open(struct judge *judge, char *why, size_t size)
{
    int ends[2];
    char said[200] = "";
    if (judge->python > 0) return true;
    if (!system_sockets(ends))
        return snprintf(why, size, "no socket: %s", strerror(errno)), false;
    fflush(NULL);
    const pid_t child = child_start();
    if (child == 0) become_python(judge, ends[1]);
    close(ends[1]);
    const ssize_t n = child > 0 ? recv(ends[0], said, sizeof said - 1, 0) : -1;
    if (n == 1 && said[0] == 'r') return judge->python = ends[0], judge->python_process = (int32_t)child, true;
    snprintf(why, size, "python3 does not start in the cage%s%.*s", n > 0 ? ": " : "", n > 0 ? (int)n : 0, said);
    close(ends[0]);
    if (child > 0) waitpid(child, NULL, 0);
    return false;
}

void python_close(struct judge *judge)
{
    if (judge->python > 0) close(judge->python);
    judge->python = 0, judge->python_seconds = 0;
    cage_clear();
}

/* ---- a run ------------------------------------------------------------------------------------------------------- */

struct asked { int32_t kind, number; };

int python_start_devices(const struct trial *trial, const int *ends)
{
    struct asked a = { PYTHON_RUN, trial->devices };
    union { struct cmsghdr head; char room[CMSG_SPACE(sizeof(int) * WORKER_MOST_DEVICES)]; } control;
    struct iovec words = { &a, sizeof a };
    const size_t bytes = sizeof *ends * (size_t)trial->devices;
    memset(&control, 0, sizeof control);
    struct msghdr m = { .msg_iov = &words, .msg_iovlen = 1, .msg_control = &control,
                        .msg_controllen = CMSG_SPACE(bytes) };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(c), ends, bytes);
    return sendmsg(trial->judge->python, &m, system_send_flags(trial->judge->python)) == (ssize_t)sizeof a ? 0 : errno;
}

int python_status(const struct trial *trial, int32_t process)
{
    const struct asked a = { PYTHON_STATUS, process };
    int32_t how = -1;
    const int python = trial->judge->python;
    if (send(python, &a, sizeof a, system_send_flags(python)) != (ssize_t)sizeof a) return -1;
    return recv(python, &how, sizeof how, MSG_WAITALL) == (ssize_t)sizeof how ? how : -1;
}

/* The first device's process leads a group of all: it is no other's number before worker.py has waited for it. */
void python_end_run(struct judge *judge, int32_t first)
{
    const struct asked a = { PYTHON_END, 0 };
    double seconds = 0;
    if (judge->python <= 0) return;
    if (first > 1) kill(-first, SIGKILL);
    const bool well = send(judge->python, &a, sizeof a, system_send_flags(judge->python)) == (ssize_t)sizeof a &&
                      recv(judge->python, &seconds, sizeof seconds, MSG_WAITALL) == (ssize_t)sizeof seconds;
    judge->python_seconds = seconds;
    if (!well) python_close(judge);
}
