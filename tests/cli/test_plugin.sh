# --plugin: variants from files of their own are listed, run, verified and measured as built-in ones; what is no plug-in is refused in one line.
. "$(dirname "$0")/lib.sh"
plugins=$top/tutorials/plugins

test_every_template() {
    local f
    run list all --plugin "$plugins/lion.c" --plugin "$plugins/mirrored_ring.c" --plugin "$plugins/dealt_ring.c" --plugin "$plugins/half_states.c" \
        --plugin "$plugins/last_first.c"
    expect_status 0; expect_silent
    for f in mirrored-ring lion dealt-ring half-states last-first; do expect_out "^  $f "; done
}

test_a_collective_is_verified_and_measured() {
    run verify collectives --devices 3 --plugin "$plugins/mirrored_ring.c"
    expect_status 0; expect_silent; expect_out '^ *allreduce .*mirrored-ring|^ *mirrored-ring'
    run bench collectives allreduce --algo ring,mirrored-ring --devices 2 --bytes 4K --plugin "$plugins/mirrored_ring.c"
    expect_status 0; expect_out 'mirrored-ring'
    run show allreduce mirrored-ring --devices 3 --plugin="$plugins/mirrored_ring.c"
    expect_status 0; expect_out '^  0 -> 2  b0\(0\)   1 -> 0  b1\(1\)   2 -> 1  b2\(2\)$'
}

# All kinds in one run, on devices that mpiexec starts, beside one device.
test_a_run() {
    local all=(--plugin "$plugins/mirrored_ring.c" --plugin "$plugins/lion.c" --plugin "$plugins/dealt_ring.c" --plugin "$plugins/half_states.c")
    train "${all[@]}" --dp 2 --cp 2 --optimizer lion --allreduce mirrored-ring --data-parallel half-states --attention dealt-ring --steps 2 --check ref
    expect_status 0; expect_silent; expect_out '^OK: every activation'
    train --plugin "$plugins/last_first.c" --pp 2 --micro 3 --batch 6 --schedule last-first --steps 2 --check ref
    expect_status 0; expect_out '^OK: every activation'
    train_under 2 --plugin "$plugins/lion.c" --dp 2 --optimizer lion --steps 1 --check ref
    expect_status 0; expect_out '^OK: every activation'
}

test_a_shared_object() {
    run list --plugin "$plugins/lion.c"; expect_status 0
    ${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -fPIC -shared -I"$top" "$plugins/lion.c" -o lion.so || complain 'a plug-in cannot be compiled by hand'
    train --plugin lion.so --optimizer lion --dp 2 --steps 1; expect_status 0; expect_silent
    mkdir 'with space'; cp "$plugins/lion.c" 'with space/my lion.c'
    run list optimizers --plugin 'with space/my lion.c'; expect_status 0; expect_out '^  lion '
}

# What is wrong with somebody's variant is found as in the tree.
test_wrong_variants() {
    sed 's/.messages = 2 \*/.messages = 1 + 2 */' "$plugins/mirrored_ring.c" >cost.c
    run verify collectives --devices 3 --plugin cost.c
    expect_status 3; expect_out 'mirrored-ring'; expect_out 'messages'
    sed 's/imod(r - phase + step, P), take/imod(r - phase + 2 * step, P), take/' "$plugins/mirrored_ring.c" >wrong.c
    run verify collectives --devices 4 --plugin wrong.c
    expect_status 3; expect_out 'mirrored-ring'
    sed 's/W\[i\] = keep/W[i] = (i == 3 ? 1.001f : 1) * keep/' "$plugins/lion.c" >place.c        # the step must not depend on the place
    train --plugin place.c --optimizer lion --dp 3 --zero 1 --steps 1 --check ref
    expect_status 3
}

test_refusals() {
    run list --plugin;                          expect_status 2; expect_error '--plugin: needs FILE'
    run list --plugin nowhere.c;                expect_status 1; expect_error '--plugin nowhere.c: No such file'
    echo 'int x = ;' >broken.c
    run list --plugin broken.c;                 expect_status 1; grep -q '^orrery: --plugin broken.c: does not compile$' "$place/err" || complain 'not said'
    echo 'int x;' >none.c
    run list --plugin none.c;                   expect_status 1; expect_error '--plugin none.c: it has no PLUGIN'
    echo 'struct { unsigned long interface; void *item; } orrery_plugin = { 1, 0 };' >old.c
    run list --plugin old.c;                    expect_status 1; expect_error 'old.c: it was compiled with the headers of another version'
    sed 's/"mirrored-ring", .desc/"ring", .desc/' "$plugins/mirrored_ring.c" >taken.c
    run list --plugin taken.c;                  expect_status 1; expect_error 'taken.c: allreduce ring: there is an algorithm of this name'
    run list --plugin "$plugins/lion.c" --plugin "$plugins/lion.c"; expect_status 1; expect_error 'lion: there is an optimizer of this name'
    sed 's/, .cost = cost//' "$plugins/mirrored_ring.c" >free.c
    run list --plugin free.c;                   expect_status 1; grep -q 'an algorithm mirrored-ring: needs a function cost' "$place/err" || complain 'not said'
    sed 's/, .make = make//' "$plugins/last_first.c" >empty.c
    run list --plugin empty.c;                  expect_status 1; grep -q 'scheme last-first: needs the function make' "$place/err" || complain 'not said'
    sed 's/, .step_f64 = step_f64//' "$plugins/lion.c" >half.c
    run list --plugin half.c;                   expect_status 1; grep -q 'an optimizer lion: needs step_f32 and step_f64' "$place/err" || complain 'not said'
    echo 'void nobody(void); void f(void) { nobody(); }' >undefined.c
    run list --plugin undefined.c;              expect_status 1; expect_error 'undefined.c: cannot be loaded: .*nobody'
    echo text >text.txt
    run list --plugin text.txt;                 expect_status 2; expect_error 'text.txt: is neither a .c file nor a .so'
    echo text >text.so
    run list --plugin text.so;                  expect_status 1; expect_error 'text.so: cannot be loaded'
    CC=no-such-compiler run list --plugin "$plugins/lion.c"; expect_status 1; grep -q 'there is no compiler' "$place/err" || complain 'not said'
}

# A shared object that was compiled with other headers is refused, also if all sizes are the same.
test_other_headers() {
    local change
    compile_there() { ${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -O2 -fPIC -shared -Ithere "$plugins/mirrored_ring.c" -o other.so || complain "the headers do not compile: $1"; }
    mkdir there; (cd "$top" && find ref emulated_devices -name '*.h' -o -name '*.def' | tar cf - -T -) | tar xf - -C there
    compile_there 'as they are'; run list --plugin other.so; expect_status 0
    for change in 's|const char \*needs;  |const char *source;|; t; s|const char \*source;  |const char *needs;|' 's|BY_RANK, |BY_SWAP, |; s|BY_TREE, |BY_RANK, |; s|BY_SWAP, |BY_TREE, |'; do
        cp "$top/emulated_devices/collectives/collective.h" there/emulated_devices/collectives/; sed -i "$change" there/emulated_devices/collectives/collective.h
        ! cmp -s "$top/emulated_devices/collectives/collective.h" there/emulated_devices/collectives/collective.h || complain 'nothing was changed'
        compile_there "$change"; run list --plugin other.so; expect_status 1; expect_error 'other.so: it was compiled with the headers of another version'
    done
}

# What would leave a device without work, or a plan without its costs, is refused by name before anything runs.
test_attention_without_tokens() {
    sed 's/cp->S > 2 \* (cp->devices - 1) ?/true ?/' "$plugins/dealt_ring.c" >empty.c
    run plan --model tiny --attention dealt-ring --cp 4 --seq 5 --plugin empty.c; expect_status 2; expect_error '--attention dealt-ring: its cut of 5 tokens leaves device 3 of --cp 4 without any'
    sed 's/? 1 : 2 });/? 1 : 1 });/' "$plugins/dealt_ring.c" >holes.c
    run plan --model tiny --attention dealt-ring --cp 2 --plugin holes.c; expect_status 2; expect_error 'its cut of 32 tokens over --cp 2 gives away 16'
    sed 's/, .cost = ring_attention_cost//' "$plugins/dealt_ring.c" >free.c
    run list --plugin free.c;                       expect_status 1; expect_error 'scheme dealt-ring: needs the functions refuses and cost'
}

# Compiled plug-ins are temporary files.
test_nothing_is_left() {
    mkdir temporary
    TMPDIR=$PWD/temporary run verify collectives --devices 2 --plugin "$plugins/mirrored_ring.c"; expect_status 0
    expect_nothing temporary
    echo 'int x = ;' >broken.c
    TMPDIR=$PWD/temporary run list --plugin broken.c; expect_status 1
    expect_nothing temporary
}

# An installed program has what a plug-in is compiled with.
test_installed() {
    make -s -C "$top" install PREFIX="$PWD/there" >log 2>&1 || complain "make install: $(tail -n 3 log)"
    local program=$PWD/there/bin/orrery
    run list optimizers --plugin "$plugins/lion.c"; expect_status 0; expect_out '^  lion '
    expect_file there/include/orrery/emulated_devices/schemes/plugin.h
}

every=(test_wrong_variants test_installed)
[ "$TIER" = verify ] || every=()
run_tests test_every_template test_a_collective_is_verified_and_measured test_a_run test_a_shared_object test_refusals test_other_headers test_attention_without_tokens test_nothing_is_left "${every[@]}"
