/* places.cpp -- what an address is.
 *
 * Shared arrays are variables of the processor's thread: their names, places and sizes stand in the symbol table of the
 * program.  Other variables of the .cu file stand there, too: they are watched as if they had been allocated and zeroed.
 * red_zones.awk leaves room behind each, so that an index that is too large does not meet the next one.
 */
#include "emulated_devices/device/cuda/emulated/judge/judge.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <link.h>
#include <list>
#include <map>

extern thread_local unsigned char dynamic_shared[];

namespace emulated {

/* ---- shared arrays ----------------------------------------------------------------------------------------------- */

struct array { std::string name; size_t bytes; };     /* no name: the compiler's note whether an array has been made */
struct variable { std::string symbol; size_t bytes; };  /* no symbol: none of a .cu file */
struct module {
    std::string file;
    std::map<size_t, array> arrays;     /* by their place in the module's thread memory */
    std::map<size_t, variable> variables;               /* by their place behind `base` */
    const char *base;                   /* where it is loaded */
    const char *tls;                    /* of the thread that runs kernels */
    size_t tls_bytes, first;            /* first: of its bytes among those of all modules */
    const char *low, *high;             /* the program itself: constants, and variables of the device */
    const char *changes, *changes_end;  /* its part that may be written */
};
static std::vector<module> modules;
static size_t room;
enum { ZONE = 256 };

static std::string demangled(const char *name)
{
    int status;
    char *text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    std::string found = status == 0 ? text : name;
    free(text);
    const size_t at = found.rfind("::");
    return at == std::string::npos ? found : found.substr(at + 2);
}

/* Whether a variable may be one of a .cu file: no table of the compiler's, of the library's or of the emulator's. */
static bool is_of_kernels(const char *name)
{
    static const char *const others[] = { "_ZN8emulated", "_ZNK8emulated", "_ZGV", "_ZTV", "_ZTI", "_ZTS", "_ZSt", "_ZNSt",
                                          "_ZN9__gnu_cxx", "__", "_IO_", "_DYNAMIC", "emulated_" };
    for (const char *other : others)
        if (strncmp(name, other, strlen(other)) == 0) return false;
    return true;
}

static void read_symbol(module *m, const ElfW(Sym) &s, const char *name, const ElfW(Shdr) &section)
{
    const int type = s.st_info & 0xf;
    const bool is_note = strncmp(name, "_ZGV", 4) == 0, is_theirs = is_of_kernels(name), changes = section.sh_flags & SHF_WRITE;
    if (type == STT_TLS && (is_note || is_theirs)) m->arrays[s.st_value] = { is_note ? "" : demangled(name), s.st_size };
    if (type == STT_OBJECT && changes) m->variables[s.st_value] = { is_theirs ? name : "", s.st_size };
}

static void read_symbols(module *m)
{
    std::ifstream in(m->file, std::ios::binary);
    const std::vector<char> f((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (f.size() < sizeof(ElfW(Ehdr)) || memcmp(f.data(), ELFMAG, SELFMAG) != 0) return;
    const ElfW(Ehdr) *h = reinterpret_cast<const ElfW(Ehdr) *>(f.data());
    const ElfW(Shdr) *s = reinterpret_cast<const ElfW(Shdr) *>(f.data() + h->e_shoff);
    for (int i = 0; i < h->e_shnum; i++) {
        if (s[i].sh_type != SHT_SYMTAB && s[i].sh_type != SHT_DYNSYM) continue;
        const ElfW(Sym) *symbol = reinterpret_cast<const ElfW(Sym) *>(f.data() + s[i].sh_offset);
        const char *names = f.data() + s[s[i].sh_link].sh_offset;
        for (size_t k = 0; k < s[i].sh_size / sizeof *symbol; k++) {
            const unsigned section = symbol[k].st_shndx;
            if (section != SHN_UNDEF && section < h->e_shnum && symbol[k].st_size > 0)
                read_symbol(m, symbol[k], names + symbol[k].st_name, s[section]);
        }
    }
}

static int see_module(struct dl_phdr_info *info, size_t, void *)
{
    module m = {};
    m.file = info->dlpi_name[0] ? info->dlpi_name : "/proc/self/exe";
    m.base = reinterpret_cast<const char *>(info->dlpi_addr);
    for (const module &known : modules)
        if (known.file == m.file) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) &p = info->dlpi_phdr[i];
        const char *at = reinterpret_cast<const char *>(info->dlpi_addr + p.p_vaddr);
        if (p.p_type == PT_LOAD && (m.low == nullptr || at < m.low)) m.low = at;
        if (p.p_type == PT_LOAD && at + p.p_memsz > m.high) m.high = at + p.p_memsz;
        if (p.p_type == PT_LOAD && p.p_flags & PF_W) m.changes = at, m.changes_end = at + p.p_memsz;
        if (p.p_type == PT_TLS) m.tls_bytes = p.p_memsz, m.tls = static_cast<const char *>(info->dlpi_tls_data);
    }
    if (m.tls != nullptr) read_symbols(&m), m.first = room, room += m.tls_bytes;
    modules.push_back(m);
    return 0;
}

/* Before each launch: a plug-in may have been loaded, and its memory exists when it is first used. */
void places_begin()
{
    static unsigned seen;
    unsigned count = 0;
    dl_iterate_phdr([](struct dl_phdr_info *, size_t, void *n) { return ++*static_cast<unsigned *>(n), 0; }, &count);
    if (count != seen) modules.clear(), room = 0, dl_iterate_phdr(see_module, nullptr);
    seen = count;
}

size_t shared_room() { return room; }

/* Whether a byte between two arrays is one before the second, rather than one behind the first: of the array that the
 * launch has used, or else of the nearer one. */
static bool is_before(const module &m, size_t at, size_t end, const std::pair<const size_t, array> &first,
                      const std::pair<const size_t, array> &second)
{
    if (at < end || second.second.name.empty() || first.second.name == "dynamic_shared") return false;
    const bool one = shadow_uses_array(m.first + first.first), other = shadow_uses_array(m.first + second.first);
    return one != other ? other : second.first - at < at - end;
}

static bool in_shared(const char *p, place *found)
{
    for (const module &m : modules) {
        if (m.tls == nullptr || m.arrays.empty() || p < m.tls - ZONE || p >= m.tls + m.tls_bytes) continue;
        const size_t at = (size_t)(p - m.tls);
        auto next = p < m.tls ? m.arrays.begin() : m.arrays.upper_bound(at);
        if (next != m.arrays.begin()) --next;           /* else it is before the first */
        if (next->second.name.empty()) return found->kind = OWN, true;
        const auto after = std::next(next);
        if (p >= m.tls && after != m.arrays.end() && is_before(m, at, next->first + next->second.bytes, *next, *after)) next = after;
        const bool dynamic = next->second.name == "dynamic_shared";
        *found = { SHARED, nullptr, at - next->first, next->second.name.c_str(),
                   dynamic ? now.shared_bytes : next->second.bytes, m.first + at, dynamic };
        return true;
    }
    return false;
}

/* ---- allocations ------------------------------------------------------------------------------------------------- */

static std::map<const char *, allocation> all;
static std::list<char *> freed;
static size_t freed_bytes;
static allocation *last;
static const size_t FREED_MOST = (size_t)256 << 20;

static void allocated(void *p, size_t bytes)
{
    allocation a = {};
    a.base = static_cast<char *>(p), a.bytes = bytes, a.live = true, a.launch = now.launch;
    a.written.resize(bytes);
    all[a.base] = std::move(a);
    last = nullptr;
}

/* Freed memory is kept for a while: who uses it is found. */
static void let_go(void *p)
{
    allocation &a = all[static_cast<char *>(p)];
    a.live = false, a.launch = now.launch;
    a.cells = std::vector<cell>();
    freed.push_back(a.base);
    freed_bytes += a.bytes;
    last = nullptr;
    while (freed_bytes > FREED_MOST) {
        char *old = freed.front();
        freed.pop_front();
        freed_bytes -= all[old].bytes;
        all.erase(old);
        free(old - red_zone);
    }
}

std::vector<allocation *> live_allocations()
{
    std::vector<allocation *> found;
    for (auto &a : all)
        if (a.second.live) found.push_back(&a.second);
    return found;
}

static bool near(const allocation &a, const char *p)
{
    return p >= a.base - red_zone && p < a.base + a.bytes + red_zone;
}

static allocation *memory_at(const char *p)
{
    if (last != nullptr && p >= last->base && p < last->base + last->bytes) return last;
    auto next = all.upper_bound(p);
    if (next != all.begin()) {
        auto before = std::prev(next);
        if (near(before->second, p)) return last = &before->second;
    }
    if (next != all.end() && near(next->second, p)) return &next->second;
    return nullptr;
}

typedef std::pair<const size_t, variable> placed;

/* The variable at a place, or the one that an access has missed: the nearer one, if nothing else lies there. */
static const placed *variable_near(const module &m, const char *p)
{
    const size_t at = (size_t)(p - m.base);
    if (p < m.changes || p >= m.changes_end) return nullptr;
    auto next = m.variables.upper_bound(at);
    const placed *after = next != m.variables.end() && next->first - at <= ZONE / 2 ? &*next : nullptr;
    if (next == m.variables.begin()) return after;
    const placed *before = &*--next;
    const size_t end = before->first + before->second.bytes;
    if (at >= end && after != nullptr && !after->second.symbol.empty() && after->first - at < at - end) return after;
    return before;
}

/* A variable at this address or near it, as an allocation of its own. */
static allocation *variable_at(const char *p)
{
    static std::map<const char *, allocation> known;
    for (const module &m : modules) {
        if (p < m.low || p >= m.high) continue;
        const placed *near = variable_near(m, p);
        if (near == nullptr || near->second.symbol.empty()) return nullptr;
        const char *begin = m.base + near->first;
        auto found = known.find(begin);
        if (found != known.end()) return &found->second;
        allocation a = {};
        a.name = demangled(near->second.symbol.c_str()), a.base = const_cast<char *>(begin), a.bytes = near->second.bytes;
        a.live = true;
        a.written.assign(a.bytes, 1);
        return &known.emplace(begin, std::move(a)).first->second;
    }
    return nullptr;
}

place find_place_of_host(const void *address)
{
    const char *p = static_cast<const char *>(address);
    if (modules.empty()) places_begin();
    allocation *a = memory_at(p);
    if (a == nullptr) a = variable_at(p);
    return a == nullptr ? place{} : place{ GLOBAL, a, (size_t)(p - a->base), nullptr, 0, 0, false };
}

place find_place(const void *address)
{
    const char *p = static_cast<const char *>(address), *low, *high;
    place found = {};
    stack_now(&low, &high);
    const char *indices = reinterpret_cast<const char *>(&emulated_indices);
    if ((p >= indices && p < indices + sizeof emulated_indices) || (p >= low && p < high)
        || (p >= now.closure && p < now.closure_end))
        return found.kind = OWN, found;
    if (last != nullptr && p >= last->base && p < last->base + last->bytes)
        return place{ GLOBAL, last, (size_t)(p - last->base), nullptr, 0, 0, false };
    if (in_shared(p, &found)) return found;
    if (allocation *a = memory_at(p)) return place{ GLOBAL, a, (size_t)(p - a->base), nullptr, 0, 0, false };
    if (allocation *a = variable_at(p)) return place{ GLOBAL, a, (size_t)(p - a->base), nullptr, 0, 0, false };
    for (const module &m : modules)
        if (p >= m.low && p < m.high) return found.kind = OWN, found;
    return found;
}

static const struct joins {
    joins()
    {
        extern struct watcher judge_watcher;
        judge_watcher.allocated = allocated, judge_watcher.freed = let_go;
    }
} joined;

}
