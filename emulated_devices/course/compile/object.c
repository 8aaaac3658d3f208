/* object.c -- looks at the object file of a student: sections, symbols, and what it uses.  build.c calls
 * object_is_fine before it links anything.  Every offset is checked, because a student's text may have put anything
 * into the file.  A file that cannot be read is not fine, and `why` says so. */
#include "emulated_devices/course/compile/object.h"
#if defined(__ELF__)
#include "ref/io/output.h"
#include <elf.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STATIC_MOST = 4096, OBJECT_MOST = 32 << 20 };

/* Everything that a student's file may call, and what compilers call by themselves. */
static const char *const may_use[] = {
    /* course.h */
    "group_of", "message_send", "message_receive", "message_wait", "exchange_both", "all_reduce", "reduce_scatter",
    "all_gather", "broadcast", "all_to_all", "add_into", "matrix_product", "work", "stream_begin", "stream_end",
    "stream_join", "time_now", "allocate", "release", "say",
    /* string.h, and what compilers call by themselves */
    "memcpy", "memmove", "memset", "memcmp", "strlen", "strcmp", "strncmp", "__stack_chk_fail",
    "_GLOBAL_OFFSET_TABLE_",
    /* math.h */
    "fabs", "fabsf", "sqrt", "sqrtf", "exp", "expf", "exp2", "exp2f", "expm1", "expm1f", "log", "logf", "log2", "log2f",
    "log1p", "log1pf", "log10", "log10f", "pow", "powf", "sin", "sinf", "cos", "cosf", "sincos", "sincosf", "tan",
    "tanf", "tanh", "tanhf", "erf", "erff", "erfc", "erfcf", "floor", "floorf", "ceil", "ceilf", "round", "roundf",
    "trunc", "truncf", "rint", "rintf", "nearbyint", "nearbyintf", "lrint", "lrintf", "llrint", "llrintf", "lround",
    "lroundf", "llround", "llroundf", "fmod", "fmodf", "fmax", "fmaxf", "fmin", "fminf", "fma", "fmaf", "ldexp",
    "ldexpf", "frexp", "frexpf", "scalbn", "scalbnf", "hypot", "hypotf", "nextafter", "nextafterf", "copysign",
    "copysignf", "cbrt", "cbrtf", NULL
};

/* Whether a name is in a list that ends with NULL. */
static bool object_is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0) return true;
    return false;
}

/* The findings are lines of this text. */
struct finding { char *to; size_t size, used; int count; };

/* Add a line about what is not allowed; twelve are enough. */
static void object_find(struct finding *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void object_find(struct finding *finding, const char *format, ...)
{
    va_list list;
    finding->count++;
    if (finding->used + 1 >= finding->size || finding->count > 12) return;
    va_start(list, format);
    const int n = vsnprintf(finding->to + finding->used, finding->size - finding->used, format, list);
    va_end(list);
    finding->used += n > 0 ? (size_t)n : 0;
    if (finding->used >= finding->size) finding->used = finding->size - 1;
}

struct object { const char *bytes; size_t count; const Elf64_Ehdr *head; const Elf64_Shdr *section; int sections; };

/* Whether a range lies inside the file; an object may say anything. */
static bool is_inside(const struct object *object, uint64_t at, uint64_t bytes)
{
    return at <= object->count && bytes <= object->count - at;
}

/* Open an ELF file of this machine, and check that all offsets are inside.  @return false: it is none. */
static bool open_object(struct object *object)
{
    const Elf64_Ehdr *h = object->head = (const void *)object->bytes;
    if (object->count < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0 || h->e_ident[EI_CLASS] != ELFCLASS64 ||
        h->e_type != ET_REL || h->e_shentsize != sizeof(Elf64_Shdr)) return false;
    if (h->e_shoff % sizeof h->e_shoff != 0 || h->e_shstrndx >= h->e_shnum ||
        !is_inside(object, h->e_shoff, sizeof(Elf64_Shdr) * (uint64_t)h->e_shnum)) return false;
    object->sections = h->e_shnum, object->section = (const void *)(object->bytes + h->e_shoff);
    for (int i = 0; i < object->sections; i++) {
        const Elf64_Shdr *s = &object->section[i];
        if (s->sh_type != SHT_NOBITS && !is_inside(object, s->sh_offset, s->sh_size)) return false;
        if (s->sh_type == SHT_SYMTAB && s->sh_offset % sizeof h->e_shoff != 0) return false;
    }
    return true;
}

/* A name of a table of strings; "" if it is not there. */
static const char *string_at(const struct object *object, uint32_t table, uint64_t at)
{
    if (table >= (uint32_t)object->sections) return "";
    const Elf64_Shdr *s = &object->section[table];
    if (s->sh_type != SHT_STRTAB || at >= s->sh_size || object->bytes[s->sh_offset + s->sh_size - 1] != 0) return "";
    return object->bytes + s->sh_offset + at;
}

/* Whether compilers make this section of a text in C.  Names may go on behind a point, as ".text.unlikely".  Other
 * sections may be code for somebody else, such as a linker that optimizes. */
static bool is_usual(const char *name)
{
    static const char *const usual[] = { ".text", ".rodata", ".data", ".bss", ".tdata", ".tbss", ".comment", ".note",
                                         ".eh_frame", ".debug", ".symtab", ".strtab", ".shstrtab", ".group",
                                         ".llvm_addrsig", ".rela.text", ".rela.rodata", ".rela.data", ".rela.eh_frame",
                                         ".rela.debug", NULL };
    if (name[0] == '\0') return true;
    for (int i = 0; usual[i]; i++) {
        const size_t n = strlen(usual[i]);
        if (strncmp(name, usual[i], n) == 0 && (name[n] == '\0' || name[n] == '.' || name[n] == '_')) return true;
    }
    return false;
}

/* Sections that run code by themselves, and static memory beyond what a lesson allows. */
static void look_at_sections(const struct object *object, struct finding *finding)
{
    uint64_t memory = 0;
    for (int i = 0; i < object->sections; i++) {
        const Elf64_Shdr *s = &object->section[i];
        const char *name = string_at(object, object->head->e_shstrndx, s->sh_name);
        if (s->sh_type == SHT_INIT_ARRAY || s->sh_type == SHT_FINI_ARRAY || s->sh_type == SHT_PREINIT_ARRAY ||
            strncmp(name, ".init", 5) == 0 || strncmp(name, ".fini", 5) == 0 || strncmp(name, ".ctors", 6) == 0 ||
            strncmp(name, ".dtors", 6) == 0 || strncmp(name, ".preinit", 8) == 0)
            object_find(finding, "it has code that runs before or after the function that is called (section %.40s)\n",
                        printable(name).text);
        else if (!is_usual(name))
            object_find(finding, "it has a section %.40s, which is not of a text in C\n", printable(name).text);
        if ((s->sh_flags & SHF_WRITE) && (s->sh_flags & SHF_EXECINSTR))
            object_find(finding, "it has memory that can be written and executed (section %.40s)\n",
                        printable(name).text);
        if ((s->sh_flags & SHF_WRITE) && (s->sh_flags & SHF_ALLOC))
            memory += s->sh_size < OBJECT_MOST ? s->sh_size : OBJECT_MOST;
    }
    if (memory > STATIC_MOST)
        object_find(finding, "it has %llu bytes of static and global variables, %d are allowed: use allocate()\n",
                    (unsigned long long)memory, STATIC_MOST);
}

/* A symbol that the object uses must be allowed; a symbol that it defines must be asked for. */
static void look_at_symbol(const struct object *object, const Elf64_Shdr *table, const Elf64_Sym *s,
                           const char *const *may_define, struct finding *finding)
{
    const char *name = string_at(object, table->sh_link, s->st_name);
    const int binding = ELF64_ST_BIND(s->st_info), type = ELF64_ST_TYPE(s->st_info);
    if (type == STT_GNU_IFUNC)
        object_find(finding, "%.60s is chosen when the program starts: not allowed\n", printable(name).text);
    if (binding == STB_LOCAL || name[0] == 0) return;
    if (s->st_shndx == SHN_UNDEF) {
        if (!object_is_one_of(name, may_use) && !object_is_one_of(name, may_define))
            object_find(finding,
                        "it uses %.60s, which is neither in course.h nor in math.h: it cannot be called here\n",
                        printable(name).text);
    } else if (!object_is_one_of(name, may_define))
        object_find(finding, "it defines %.60s, which the lesson does not ask for: write `static` in front of it\n",
                    printable(name).text);
}

/* Whether a function of this name is there for others to call. */
static bool defines(const struct object *object, const char *name)
{
    for (int i = 0; i < object->sections; i++) {
        const Elf64_Shdr *t = &object->section[i];
        if (t->sh_type != SHT_SYMTAB || t->sh_entsize != sizeof(Elf64_Sym)) continue;
        const Elf64_Sym *s = (const void *)(object->bytes + t->sh_offset);
        for (uint64_t k = 1; k < t->sh_size / sizeof *s; k++)
            if (s[k].st_shndx != SHN_UNDEF && ELF64_ST_BIND(s[k].st_info) != STB_LOCAL &&
                strcmp(string_at(object, t->sh_link, s[k].st_name), name) == 0) return true;
    }
    return false;
}

/* Look at the whole object.  @return whether nothing was found; `why` has a line for each finding. */
bool object_is_fine(const char *path, const char *const *must_define, char *why, size_t size)
{
    struct object o = { 0 };
    struct finding f = { why, size, 0, 0 };
    struct error err = { OK, "" };
    char *bytes = NULL;
    why[0] = 0;
    if (file_read_all(path, OBJECT_MOST, &bytes, &o.count, &err) != OK) {
        object_find(&f, "what was compiled cannot be read: %s\n", err.text);
        return false;
    }
    o.bytes = bytes;
    if (!open_object(&o)) object_find(&f, "what was compiled is no object file of this machine\n");
    else {
        look_at_sections(&o, &f);
        for (int i = 0; i < o.sections; i++) {
            const Elf64_Shdr *t = &o.section[i];
            if (t->sh_type != SHT_SYMTAB || t->sh_entsize != sizeof(Elf64_Sym)) continue;
            const Elf64_Sym *s = (const void *)(o.bytes + t->sh_offset);
            for (uint64_t k = 1; k < t->sh_size / sizeof *s; k++) look_at_symbol(&o, t, &s[k], must_define, &f);
        }
        for (const char *const *name = must_define; *name; name++)
            if (!defines(&o, *name)) object_find(&f, "it does not define %s, which the lesson asks for\n", *name);
    }
    free(bytes);
    return f.count == 0;
}
#else
/* Systems with other objects have no cage either: a student runs his own code, and the linker says what is missing. */
bool object_is_fine(const char *path, const char *const *must_define, char *why, size_t size)
{
    (void)path, (void)must_define, (void)size;
    why[0] = '\0';
    return true;
}
#endif
