/* system.c -- the system under the C library in a browser: a clock, two streams that the page keeps, no files.
 *
 * The C library is emscripten's, for 64-bit addresses, because the addresses of a plan's tensors are those of terabytes
 * (device/backends/count.c).  wasm-opt then makes the memory one of 32 bits.  The library calls these functions; each
 * that needs a file returns that there is none.  Reading and writing of streams goes to the page (engine.js).
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#define IMPORT(name) __attribute__((import_module("env"), import_name(#name)))

IMPORT(page_seconds) double page_seconds(void);
IMPORT(page_abort) _Noreturn void page_abort(void);

/* ---- files: there are none --------------------------------------------------------------------------------------- */

#define NONE(name, parameters) long name parameters; long name parameters { return -ENOENT; }
#define REFUSED(name, parameters) long name parameters; long name parameters { return -ENOSYS; }
NONE(__syscall_open, (long path, long flags, long more))
NONE(__syscall_unlink, (long path))
NONE(__syscall_rename, (long from, long to))
NONE(__syscall_stat64, (long path, long to))
NONE(__syscall_lstat64, (long path, long to))
NONE(__syscall_fstatat64, (long folder, long path, long to, long flags))
NONE(__syscall_faccessat, (long folder, long path, long mode, long flags))
REFUSED(__syscall_fstat64, (long file, long to))
REFUSED(__syscall_getdents64, (long file, long to, long bytes))
REFUSED(__syscall_ioctl, (long file, long what, long more))
REFUSED(__syscall_fcntl64, (long file, long what, long more))
REFUSED(__syscall_dup3, (long from, long to, long flags))
REFUSED(__syscall_mprotect, (long at, long bytes, long how))
REFUSED(__syscall_madvise, (long at, long bytes, long advice))
REFUSED(_mmap_js, (long at, long bytes, long how, long flags, long file, long from, long allocated))
REFUSED(_munmap_js, (long at, long bytes, long how, long flags, long file, long from))
NONE(__syscall_mkdir, (long path, long mode))
NONE(__syscall_rmdir, (long path))
NONE(__syscall_getcwd, (long to, long bytes))

/* A stream's number stays what it is. */
long __syscall_dup(long file);
long __syscall_dup(long file) { return file; }

long __syscall_uname(long to);
long __syscall_uname(long to)
{
    struct utsname *const u = (void *)(uintptr_t)to;
    *u = (struct utsname){ .sysname = "browser", .nodename = "page", .machine = "wasm" };
    return 0;
}

/* ---- time, signals, memory --------------------------------------------------------------------------------------- */

int __clock_gettime(clockid_t clock, struct timespec *now);
int __clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    const double seconds = page_seconds();
    now->tv_sec = (time_t)seconds, now->tv_nsec = (long)(1e9 * (seconds - (double)now->tv_sec));
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *now) { return __clock_gettime(clock, now); }

double emscripten_get_now(void);
double emscripten_get_now(void) { return 1e3 * page_seconds(); }

/* Devices of a plan are a crew's: none of them is a process that waits for a signal (comm/recorder.c). */
REFUSED(__syscall_pause, (void))

void __call_sighandler(void (*handler)(int), int signal);
void __call_sighandler(void (*handler)(int), int signal) { handler(signal); }

void abort(void) { page_abort(); }

size_t emscripten_get_heap_max(void);
size_t emscripten_get_heap_max(void) { return (size_t)1 << 32; }

/* Memory ends below 4 GiB.  The C library asks for whole sizes; the page makes its memory larger. */
IMPORT(page_grow) int page_grow(double bytes);
int emscripten_resize_heap(size_t bytes);
int emscripten_resize_heap(size_t bytes) { return bytes < (size_t)1 << 32 && page_grow((double)bytes); }
size_t emscripten_get_heap_size(void);
size_t emscripten_get_heap_size(void) { return __builtin_wasm_memory_size(0) << 16; }

/* ---- comparisons of long doubles: emscripten's have results of 64 bits here, which no caller expects ------------ */

/* How a number lies to another one: -1, 0, 1; 2: one is no number. */
static int compare_long(long double a, long double b)
{
    unsigned __int128 x, y;
    const unsigned __int128 sign = (unsigned __int128)1 << 127, infinite = (unsigned __int128)0x7fff << 112;
    memcpy(&x, &a, sizeof x), memcpy(&y, &b, sizeof y);
    if ((x & ~sign) > infinite || (y & ~sign) > infinite) return 2;
    if (((x | y) & ~sign) == 0 || x == y) return 0;
    if ((x ^ y) & sign) return x & sign ? -1 : 1;
    return (x < y) == !(x & sign) ? -1 : 1;
}

int __eqtf2(long double a, long double b);
int __netf2(long double a, long double b);
int __lttf2(long double a, long double b);
int __letf2(long double a, long double b);
int __gttf2(long double a, long double b);
int __getf2(long double a, long double b);
int __unordtf2(long double a, long double b);
int __eqtf2(long double a, long double b) { return compare_long(a, b) != 0; }
int __netf2(long double a, long double b) { return compare_long(a, b) != 0; }
int __lttf2(long double a, long double b) { return compare_long(a, b); }
int __letf2(long double a, long double b) { return compare_long(a, b); }
int __gttf2(long double a, long double b) { const int c = compare_long(a, b); return c == 2 ? -1 : c; }
int __getf2(long double a, long double b) { const int c = compare_long(a, b); return c == 2 ? -1 : c; }
int __unordtf2(long double a, long double b) { return compare_long(a, b) == 2; }
