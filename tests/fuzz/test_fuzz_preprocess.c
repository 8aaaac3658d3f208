/* The reader of a student's text (source.h) must see what preprocessors see: gcc -E and clang -E, of C and C++.
 * Texts are made of pieces that hide directives and names: trigraphs, continued lines, marks of UTF-8, returns,
 * digraphs, comments, quotes, raw strings, macros.  A text in which a compiler sees a file or a name that no lesson
 * needs must not be fine for the reader.
 */
#define _GNU_SOURCE
#include "emulated_devices/course/compile/source.h"
#include "tests/fuzz/fuzz.h"
#include <ctype.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* Most of what is seen stands in few pieces; the other pieces hide it, or parts of it. */
static const char *const pieces[] = {
    "\n", "\n", "\n", "\n", " ", "\t", "\v", "\f", "\r", "\r\n", "\n\r", "\\\n", "\\ \n", "\\\t\r\n", "\\\r",
    "?\?/\n", "?\?/", "?\?/ \n",
    "\xef\xbb\xbf", "\xfe\xff", "\xc2\xa0", "\xe2\x80\xa8", "/*", "*/", "/* */", "//", "/", "*",
    "\"", "\"", "'", "'", "\\", "\\\"", "\\'", "R\"(", ")\"", "u8R\"x(", ")x\"", "LR\"", "L\"", "u8'", "1'0", "0x",
    "#", "%:", "?\?=", "##", "%:%:", "?\?=?\?=", "<:", "?\?'", "?\?!", "include", "inc", "lude", "in\\\nclude",
    "#if 0\n", "#if 1\n", "#else\n", "#endif\n", "\n#endif\n", "#error don't ", "#define A ", "#define B(x) #x\n",
    "#define C(x,y) x##y\n", "#undef A\n", "A", "B(", "C(a,sm)", "__VA_ARGS__", "#pragma ", "GCC system_header",
    "GCC poison x\n", "once\n", "#line 1 \"x\"\n", "# 1 \"secret.h\"\n", "#ident \"x\"\n", "#warning x\n", "#\n",
    "#include \"secret.h\"\n", "#include \"secret.h\"\n", "\n#include \"secret.h\"\n", "\n#include <stdio.h>\n",
    "#include <secret.h>", "%:include \"secret.h\"\n", "?\?=include \"secret.h\"\n", "#include_next <secret.h>\n",
    "#import \"secret.h\"\n", "#embed \"secret.h\"\n", "#include A\n", "#include B(secret.h)\n", "\"secret.h\"",
    "<secret.h>", "#include \"ring.h\"\n", "#include <math.h>\n", "#include \"math.h\" \"secret.h\"\n",
    "#define A \"secret.h\"\n", "#define D <secret.h>\n#include D\n", "#include __FILE__\n",
    "\n#if __has_include(\"secret.h\")\nSEEN_has_include\n#endif\n", "__has_include", "(\"secret.h\")",
    "\n#ifdef __has_embed\n#if __has_embed(\"secret.h\")\nSEEN_has_embed\n#endif\n#endif\n",
    "_Pragma(\"GCC dependency \\\"secret.h\\\"\")", "_Pragma", "asm", "a", "sm", "a\\\nsm", "a?\?/\nsm", "__asm__",
    "__a", "sm__", "asm(\".incbin \\\"secret.h\\\"\");", "\\u0061sm", "a\\u0073m", "__attribute__((section(\"x\")))",
    "[[gnu::section(\"x\")]]", "__attribute__", "gnu", "::", "clang", ".section .gnu.lto_x", "$", "@", "`", ";", "x",
    "0", "(", ")", "{", "}", ",", "<", ">", "%", ":", "?", "?\?", "...", "a=b;", "int x;\n", "\x80", "\x01",
};
enum { PIECES = sizeof pieces / sizeof *pieces, MOST_PIECES = 60, MOST_BYTES = 8192 };

/* @return a text without NUL; a byte above all pieces is followed by a byte that is taken as it is. */
static size_t make_text(const uint8_t *data, size_t size, char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < size && i < MOST_PIECES; i++) {
        char one[2] = { (char)(i + 1 < size && data[i + 1] ? data[i + 1] : '\n'), '\0' };
        const char *piece = data[i] < PIECES ? pieces[data[i]] : one;
        if (data[i] >= PIECES) i++;
        const size_t more = strlen(piece);
        if (n + more >= MOST_BYTES) break;
        memcpy(to + n, piece, more), n += more;
    }
    to[n] = '\0';
    return n;
}

/* ---- compilers --------------------------------------------------------------------------------------------------- */

static const struct { const char *program, *language, *standard; } compilers[] = {
    { "gcc", "c", "-std=c11" }, { "clang", "c", "-std=c11" },
    { "gcc", "c++", "-std=gnu++17" }, { "clang", "c++", "-std=gnu++17" },
};
enum { COMPILERS = sizeof compilers / sizeof *compilers };
static bool there[COMPILERS];
static char headers[sizeof fuzz_folder + 20];

static void make_header(const char *name, const char *text)
{
    char path[sizeof headers + 40];
    snprintf(path, sizeof path, "%s/%s", headers, name);
    FILE *f = fopen(path, "w");
    must(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0, "%s: cannot be written", path);
}

static void remove_headers(void)
{
    static const char *const names[] = { "secret.h", "stdio.h", "ring.h", "course.h", "math.h", "" };
    char path[sizeof headers + 40];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        snprintf(path, sizeof path, "%s/%s", headers, names[i]), remove(path);
}

/* Run a compiler on a text.  @return how much of its output is in `to`; 0: it has said nothing, or is not there. */
static size_t preprocess(int compiler, const char *path, char *to, size_t room, int *how)
{
    int ends[2];
    size_t n = 0;
    must(pipe(ends) == 0, "no pipe");
    const pid_t child = fork();
    if (child == 0) {
        const int nothing = open("/dev/null", O_RDWR);
        setrlimit(RLIMIT_CPU, &(struct rlimit){ 5, 5 });
        dup2(nothing, 0), dup2(ends[1], 1), dup2(nothing, 2), close(ends[0]);
        execlp(compilers[compiler].program, compilers[compiler].program, "-x", compilers[compiler].language,
               compilers[compiler].standard, "-E", "-nostdinc", "-w", "-I", headers, path, (char *)NULL);
        _exit(127);
    }
    must(child > 0, "no process");
    close(ends[1]);
    for (ssize_t got; n < room - 1 && (got = read(ends[0], to + n, room - 1 - n)) > 0;) n += (size_t)got;
    to[n] = '\0';
    close(ends[0]);
    waitpid(child, how, 0);
    return n;
}

static void find_compilers(void)
{
    static bool done;
    char text[4096];
    int how;
    if (done) return;
    done = true;
    snprintf(headers, sizeof headers, "%s/headers", fuzz_place());
    must(mkdir(headers, 0700) == 0, "%s: cannot be made", headers);
    make_header("secret.h", "SEEN_secret\n"), make_header("stdio.h", "SEEN_stdio\n");
    make_header("ring.h", ""), make_header("course.h", ""), make_header("math.h", "");
    atexit(remove_headers);
    for (int i = 0; i < COMPILERS; i++) {
        const char *path = as_file_named("input.c", (const uint8_t *)"here\n", 5);
        there[i] = preprocess(i, path, text, sizeof text, &how) > 0 && how == 0 && strstr(text, "here");
    }
}

/* ---- what they see ----------------------------------------------------------------------------------------------- */

static const char *const forbidden[] = { "asm", "__asm", "__asm__", "__attribute", "__attribute__", "_Pragma", "gnu",
                                         "__has_include", "__has_embed", "clang", NULL };

static bool is_forbidden(const char *word, size_t n)
{
    for (int i = 0; forbidden[i]; i++)
        if (strlen(forbidden[i]) == n && memcmp(forbidden[i], word, n) == 0) return true;
    return n > 5 && memcmp(word, "SEEN_", 5) == 0;
}

/* The end of what stands in quotes from here on, or of the line. */
static const char *skip_quotes(const char *at)
{
    const char quote = *at++;
    while (*at && *at != quote && *at != '\n') at += at[0] == '\\' && at[1] && at[1] != '\n' ? 2 : 1;
    return at + (*at == quote);
}

/* A name in a preprocessor's output that no lesson needs, or that a header has left there.  Lines that begin with # say
 * where the next line is from; a #pragma among them is one that the compiler will do. */
static bool find_forbidden(const char *output, char *found, size_t size)
{
    for (const char *at = output; *at;) {
        const bool begins = at == output || at[-1] == '\n';
        if (begins && *at == '#') {
            const size_t n = strcspn(at, "\n");
            if (strncmp(at, "#pragma GCC dependency", 22) == 0) return snprintf(found, size, "%.*s", (int)n, at), true;
            at += n;
        } else if (*at == '"' || *at == '\'') at = skip_quotes(at);
        else if (isalpha((unsigned char)*at) || *at == '_') {
            size_t n = 1;
            while (isalnum((unsigned char)at[n]) || at[n] == '_' || at[n] == '$' || (at[n] & 0x80)) n++;
            if (is_forbidden(at, n)) return snprintf(found, size, "%.*s", (int)n, at), true;
            at += n;
        } else if (isdigit((unsigned char)*at)) while (isalnum((unsigned char)*at) || *at == '_' || *at == '.') at++;
        else at++;
    }
    return false;
}

/* Preprocessors remove what breaks a name, but its letters are there, one after another: most texts have none,
 * and need no compiler. */
static bool can_have_forbidden(const char *text)
{
    static const char *const letters[] = { "asm", "attribute", "_Pragma", "gnu", "has_", "clang", "include", "import",
                                           "embed", NULL };
    char left[MOST_BYTES + 1];
    size_t n = 0;
    if (strstr(text, "\\u") || strstr(text, "\\U")) return true;
    for (; *text; text++) if (isalpha((unsigned char)*text) || *text == '_') left[n++] = *text;
    left[n] = '\0';
    for (int i = 0; letters[i]; i++) if (strstr(left, letters[i])) return true;
    return false;
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */

static void try(const uint8_t *data, size_t size)
{
    static char text[MOST_BYTES + 1], output[1 << 18];
    char why[600], found[80];
    int how;
    find_compilers();
    const size_t n = make_text(data, size, text);
    if (n == 0 || !can_have_forbidden(text)) return;
    if (!source_is_fine(text, "ring.h", why, sizeof why)) return;     /* it is pointed at */
    const char *path = as_file_named("input.c", (const uint8_t *)text, n);
    for (int i = 0; i < COMPILERS; i++) {
        if (!there[i] || preprocess(i, path, output, sizeof output, &how) == 0) continue;
        must(!find_forbidden(output, found, sizeof found), "%s of %s sees %s, and the reader nothing, in:\n%s\n----",
             compilers[i].program, compilers[i].language, found, text);
    }
}

#ifdef FUZZING
FUZZ_TARGET("preprocess")
#else
#include "tests/fuzz/feed.h"

/* The generator has so many texts that each number is a text of its own. */
static uint64_t next_number(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static void try_seed(uint64_t seed)
{
    uint8_t data[MOST_PIECES];
    uint64_t state = seed;
    const size_t size = 1 + next_number(&state) % 14;
    for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(next_number(&state) % (PIECES + 2));
    feed_copy(data, size);
}

/* ORRERY_FUZZ_SEED and ORRERY_FUZZ_COUNT choose others. */
static void test_generated_texts(void **state)
{
    const char *from = getenv("ORRERY_FUZZ_SEED"), *count = getenv("ORRERY_FUZZ_COUNT");
    const uint64_t first = from ? strtoull(from, NULL, 10) : 1,
                   texts = count ? strtoull(count, NULL, 10) : tier_now() == TIER_VERIFY ? 40000 : 1000;
    bool some = false;
    (void)state;
    find_compilers();
    for (int i = 0; i < COMPILERS; i++) some |= there[i];
    if (!some) skip();
    for (uint64_t i = 0; i < texts; i++) {
        snprintf(feed_input, sizeof feed_input, "text %llu", (unsigned long long)(first + i));
        try_seed(first + i);
    }
}

/* Texts that were once seen by a compiler alone. */
static void test_kept_texts(void **state) { (void)state; feed_all(feed_whole); }

/* The comparison itself: what is in plain sight is found in each compiler's output. */
static void test_compilers_see(void **state)
{
    static const char *const texts[] = { "#include \"secret.h\"\n", "int x __attribute__((unused));\n", "asm(\"\");\n",
                                         "/* *?\?/\n/\n#include \"secret.h\"\n/* */" };
    static const char fine[] = "#include \"ring.h\"\n// asm\nint basm; char *a = \"asm\"; /* __asm__ */\n";
    static char output[1 << 16];
    char found[80];
    int how;
    (void)state;
    find_compilers();
    for (int i = 0; i < COMPILERS; i++) {
        for (size_t t = 0; there[i] && t < sizeof texts / sizeof *texts; t++) {
            const char *path = as_file_named("input.c", (const uint8_t *)texts[t], strlen(texts[t]));
            assert_true(preprocess(i, path, output, sizeof output, &how) > 0);
            const bool has_trigraphs = compilers[i].language[1] == '\0';
            assert_int_equal(find_forbidden(output, found, sizeof found), t < 3 || has_trigraphs);
        }
        if (!there[i]) continue;
        assert_true(preprocess(i, as_file_named("input.c", (const uint8_t *)fine, strlen(fine)), output, sizeof output,
                               &how) > 0);
        assert_false(find_forbidden(output, found, sizeof found));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_compilers_see), cmocka_unit_test(test_kept_texts),
                                        cmocka_unit_test(test_generated_texts) };
    feed_folder = "preprocess", feed_try = try;
    feed_start_timer();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
