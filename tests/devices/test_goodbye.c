/* A device tells MPICH's proxy that it ends (cmd=finalize) before it closes its line to it.  For the proxy a line that
 * closes without that is a death: it kills the other devices, even if all of them are about to end.
 *
 * The test is one plain process.  It starts this program again under mpiexec, between the proxy and a device, where it
 * reads what passes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/comm/comm.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAYS_NOTHING = 70, FAILS, NO_PROXY };            /* statuses of the process in between */

static char *program;

/* Opens a second comm, as a device of `verify` does for each case. */
static enum error_code meet(struct comm *c, const void *asked, struct error *err)
{
    struct device device;
    struct comm second;
    (void)asked;
    enum error_code e = device_open(&device, NULL, F64, 0, err);
    if (!e) e = comm_open(&second, &device, err);
    if (e) return e;
    e = comm_agree(&second, OK, err);
    comm_close(&second);
    device_close(&device);
    return e ? e : comm_agree(c, OK, err);
}

static int be_the_device(char **argv)
{
    struct error err;
    prepare_process(argv);
    return end_process(error_exit_status(be_a_device(F64, NULL, meet, NULL, &err)));
}

static pid_t start_device(int line)
{
    char number[16];
    const pid_t device = fork();
    if (device != 0) return device;
    snprintf(number, sizeof number, "%d", line);
    setenv("PMI_FD", number, 1);
    setenv("ORRERY_LAUNCHED", "1", 1);                  /* the device has a witness, and says goodbye to it */
    execlp(program, program, "device", (char *)NULL);
    _exit(127);
}

/* Pass on what there is.  @return false at the end. */
static bool pass(int from, int to, char *text, size_t room)
{
    const ssize_t n = read(from, text, room - 1);
    if (n <= 0) return false;
    text[n] = '\0';
    return write(to, text, (size_t)n) == n;
}

static int stand_between(void)
{
    const char *told = getenv("PMI_FD");
    int line[2], how;
    bool said = false;
    if (told == NULL || socketpair(AF_UNIX, SOCK_STREAM, 0, line) != 0) return NO_PROXY;
    const int proxy = atoi(told);
    const pid_t device = start_device(line[1]);
    close(line[1]);
    for (char text[4096];;) {
        struct pollfd p[2] = { { .fd = line[0], .events = POLLIN }, { .fd = proxy, .events = POLLIN } };
        poll(p, 2, -1);
        if (p[0].revents && !pass(line[0], proxy, text, sizeof text)) break;
        said = said || (p[0].revents && strstr(text, "cmd=finalize") != NULL);
        if (p[1].revents && !pass(proxy, line[0], text, sizeof text)) break;
    }
    waitpid(device, &how, 0);
    return !WIFEXITED(how) || WEXITSTATUS(how) != 0 ? FAILS : said ? 0 : SAYS_NOTHING;
}

static void test_the_proxy_hears_of_the_end(void **state)
{
    char command[1000];
    const char *mpiexec = getenv("MPIEXEC");
    (void)state;
    snprintf(command, sizeof command, "MPIEXEC_TIMEOUT=60 %s -n 1 %s between </dev/null", mpiexec ? mpiexec : "mpiexec",
             program);
    const int status = WEXITSTATUS(system(command));
    if (status == NO_PROXY) skip();                     /* another MPI */
    if (status == SAYS_NOTHING) print_error("the device closed its line to the proxy without cmd=finalize\n");
    assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
    program = argv[0];
    if (argc == 2) return strcmp(argv[1], "device") == 0 ? be_the_device(argv) : stand_between();
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_the_proxy_hears_of_the_end) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
