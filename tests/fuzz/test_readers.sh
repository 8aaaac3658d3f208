# Every reader of files is in readers.md, with a fuzz target that has a corpus.
# tier: check

table=tests/fuzz/readers.md
reads='(^|[^>.[:alnum:]_])(json_read|json_parse|safetensors_open|file_read_all|file_open|fopen|getline|open)\('
writes='fopen\([^)]*"[wa]|\bopen\([^)]*(O_WRONLY|O_RDWR|O_CREAT|/dev/null)|^[^;]*\b(enum error_code|int) (json_read|json_parse|safetensors_open|file_read_all|file_open)\('

sources() { grep -nE "$reads" $(find ref emulated_devices -name '*.c') | grep -vE "$writes" | cut -d : -f 1 | sort -u; }
listed() { sed -nE 's/^\| `([^`]*\.c)`.*/\1/p' $table | sort -u; }
targets() { sed -nE 's/^\| `[^`]*\.c` \|.*\| `([^`]*)` \|$/\1/p' $table | sort -u; }

every_reader_is_listed() { comm -23 <(sources) <(listed) | sed "s|$|: reads a file and is not in $table|"; }
what_is_listed_reads() { comm -13 <(sources) <(listed) | sed "s|^|$table: |; s|$|: reads no file|"; }
every_target_has_a_corpus() {
    local t
    for t in $(targets); do
        [ -e "tests/fuzz/test_fuzz_$t.c" ] || echo "$table: there is no tests/fuzz/test_fuzz_$t.c"
        [ "$(ls "tests/fuzz/corpus/$t" 2>/dev/null | wc -l)" -ge 3 ] || echo "tests/fuzz/corpus/$t: fewer than 3 inputs"
    done
}

for test in every_reader_is_listed what_is_listed_reads every_target_has_a_corpus; do
    echo "[ RUN      ] $test"
    found=$($test)
    if [ -z "$found" ]; then echo "[       OK ] $test"; else printf '%s\n[  FAILED  ] %s\n' "$found" "$test"; failed=1; fi
done
[ -z "${failed:-}" ]
