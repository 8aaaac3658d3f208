/* report.cpp -- what the judge says, and the lines of the code that it speaks of. */
#include "emulated_devices/device/cuda/emulated/judge/judge.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <set>
#include <unistd.h>

namespace emulated {

running now;

/* The program's end reads these, after its other objects have been destroyed: they never are. */
static auto &reports = *new std::vector<std::string>;
static auto &said = *new std::set<std::string>;
static bool printing = true;
enum { PRINTED_MOST = 20 };

std::string thread_name(uint32_t block, int thread)
{
    char text[96];
    const unsigned bx = now.grid.x, by = now.grid.y, tx = now.block_size.x, ty = now.block_size.y, t = (unsigned)thread;
    snprintf(text, sizeof text, "block (%u,%u,%u) thread (%u,%u,%u)", block % bx, block / bx % by, block / (bx * by),
             t % tx, t / tx % ty, t / (tx * ty));
    return text;
}

/* Only the file's name: paths differ from machine to machine. */
static std::string short_line(const std::string &line)
{
    const size_t slash = line.rfind('/'), blank = line.find(' ');
    return line.substr(slash == std::string::npos ? 0 : slash + 1, blank == std::string::npos ? blank : blank - slash - 1);
}

/* addr2line names inlined functions from the inside out: the first line that is not the emulator's own. */
static std::string ask_addr2line(const void *pc)
{
    Dl_info info;
    char command[600], text[600];
    std::string found = "an unknown line";
    if (dladdr(pc, &info) == 0) return found;
    /* Of the program itself: as it was typed. */
    const char *file = info.dli_fname[0] == '/' ? info.dli_fname : "/proc/self/exe";
    char exe[400] = "";
    if (strcmp(file, "/proc/self/exe") == 0 && readlink(file, exe, sizeof exe - 1) > 0) file = exe;
    snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%lx 2>/dev/null", file,
             (unsigned long)((const char *)pc - 1 - (const char *)info.dli_fbase));
    FILE *in = popen(command, "r");
    while (in != nullptr && fgets(text, sizeof text, in) != nullptr) {
        text[strcspn(text, "\n")] = '\0';
        if (strstr(text, "/emulated/") || text[0] == '?') continue;
        found = short_line(text);
        break;
    }
    if (in != nullptr) pclose(in);
    return found;
}

/* ---- by another process, if this one may start none -------------------------------------------------------------- */

enum { LINE_MOST = 256 };
static int asks = -1, hears = -1;

static bool whole(ssize_t (*move)(int, void *, size_t), int fd, void *data, size_t bytes)
{
    char *at = static_cast<char *>(data);
    while (bytes > 0) {
        const ssize_t n = move(fd, at, bytes);
        if (n <= 0) return false;
        at += n, bytes -= (size_t)n;
    }
    return true;
}

static ssize_t put(int fd, void *data, size_t bytes) { return write(fd, data, bytes); }

/* Answers until nobody can ask any more. */
static void answer_for_lines(int from, int to)
{
    for (const void *pc; whole(read, from, &pc, sizeof pc);) {
        char line[LINE_MOST] = "";
        snprintf(line, sizeof line, "%s", ask_addr2line(pc).c_str());
        if (!whole(put, to, line, sizeof line)) break;
    }
    _exit(0);
}

static std::string ask_for_line(const void *pc)
{
    char line[LINE_MOST];
    if (asks < 0) return ask_addr2line(pc);
    if (!whole(put, asks, &pc, sizeof pc) || !whole(read, hears, line, sizeof line)) return "an unknown line";
    line[LINE_MOST - 1] = '\0';
    return line;
}

std::string line_of(const void *pc)
{
    static auto &known = *new std::map<const void *, std::string>;      /* also at the program's end */
    auto found = known.find(pc);
    if (found == known.end()) found = known.emplace(pc, ask_for_line(pc)).first;
    return found->second;
}

std::string line_of(where at) { return short_line(std::string(at.file) + ":" + std::to_string(at.line)); }

/* A loop that is unrolled, or a function that is inlined, has many instructions of one line. */
static std::string key_of(const void *pc)
{
    char number[40];
    const std::string line = pc == nullptr ? "" : line_of(pc);
    snprintf(number, sizeof number, "%p", pc);
    return line.find(':') == std::string::npos ? number : line;
}

void report(const char *kind, const void *pc, const void *other_pc, const std::string &text)
{
    static const char shared[] = "shared array ";
    const std::string a = key_of(pc), b = key_of(other_pc);
    const size_t at = text.find(shared), name = at + sizeof shared - 1;
    const std::string array = at == std::string::npos ? "" : text.substr(name, text.find_first_of(", ", name) - name);
    report_once(kind, pc == nullptr ? text : std::min(a, b) + " " + std::max(a, b) + " " + array, text);
}

static void add_report(const std::string &text)
{
    reports.push_back(text);
    if (!printing) return;
    if (reports.size() <= PRINTED_MOST) fprintf(stderr, "judge: %s\n", text.c_str());
    else if (reports.size() == PRINTED_MOST + 1) fprintf(stderr, "judge: ...\n");
}

void report_host(const char *kind, const void *pc, const std::string &text)
{
    if (said.insert(std::string(kind) + " " + key_of(pc)).second) add_report(std::string(kind) + ": " + text);
}

void report_once(const char *kind, const std::string &key, const std::string &text)
{
    if (!said.insert(std::string(kind) + " " + key).second) return;
    add_report(std::string(kind) + ": " + (now.kernel.empty() ? "" : "kernel " + now.kernel + ": ") + text);
}

}

using namespace emulated;

int judge_reports(void) { return (int)reports.size(); }

const char *judge_report(int i) { return reports[(size_t)i].c_str(); }

void judge_forget(void) { reports.clear(), said.clear(); }

void judge_print(bool yes) { printing = yes; }

bool judge_lines_apart(void)
{
    int question[2], reply[2];
    if (pipe(question) != 0 || pipe(reply) != 0) return false;
    const pid_t child = fork();
    if (child == 0) {
        close(question[1]), close(reply[0]), close(0), close(1);
        answer_for_lines(question[0], reply[1]);
    }
    close(question[0]), close(reply[1]);
    asks = question[1], hears = reply[0];
    return child > 0;
}

void judge_look_for_leaks(void)
{
    const auto left = live_allocations();
    size_t bytes = 0;
    for (const allocation *a : left) bytes += a->bytes;
    if (!left.empty())
        report("leak", nullptr, nullptr, "after it " + std::to_string(left.size()) + " allocations, " + std::to_string(bytes)
               + " bytes, have not been freed");
}

/* A program whose kernels were wrong does not end well, whatever it says itself. */
static void at_the_end()
{
    if (counting) judge_counts();
    if (!printing || reports.empty()) return;
    fflush(nullptr);
    fprintf(stderr, "judge: %zu faults of kernels\n", reports.size());
    _exit(3);
}

void (*judge_gives_up)(void);

static const struct ends { ends() { atexit(at_the_end); } } ends_at_exit;
