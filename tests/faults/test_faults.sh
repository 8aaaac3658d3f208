# The quick faults are noticed, in `make verify` all of them; and the machinery notices faults that are none.
# verify parts: 24
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

quick=--quick
[ "$TIER" = verify ] && quick=
echo "[ RUN      ] faults $quick ${SHARE:-}"
bash tests/faults/run.sh "$BUILD" $quick || failed=1
unset SHARE                             # the machinery's own faults are tried whole

# What is wrong with each of these faults is what the report must say.
refused() {                             # refused NAME WORDS <FAULT
    printf '[ RUN      ] refuses_%s\n' "$1"
    cat >"$place/$1.fault"
    if FAULT_DIR=$place bash tests/faults/run.sh "$BUILD" "$1" >"$place/out" 2>&1; then echo 'it was accepted'
    elif grep -qF -- "$2" "$place/out"; then echo "[       OK ] refuses_$1"; return
    fi
    sed 's/^/    | /' "$place/out"
    echo "[  FAILED  ] refuses_$1"
    failed=1
}
refused what_does_not_apply 'no longer applies: ref/optim/sgd.c has nowhere: this line is not there' <<'END'
title: no such line
file: ref/optim/sgd.c
-    this line is not there
+    nor is this
caught by: test_optimizer
says: .
END
refused what_applies_twice 'no longer applies: ref/optim/sgd.c has 2 times: const int64_t n = tensor_count(w);' <<'END'
title: not said where
file: ref/optim/sgd.c
-    const int64_t n = tensor_count(w);
+    const int64_t n = 0;
caught by: test_optimizer
says: .
END
refused what_changes_nothing 'changes nothing' <<'END'
title: other words for the same
file: ref/optim/sgd.c
-    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale + coupled * W[i]);
+    for (int64_t i = 0; i < n; ++i) W[i] = keep * W[i] - lr * (G[i] * scale + coupled * W[i]);
caught by: test_optimizer
says: .
END
refused what_does_not_compile 'ref/optim/sgd.c does not compile' <<'END'
title: no C
file: ref/optim/sgd.c
-    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale + coupled * W[i]);
+    for all i
caught by: test_optimizer
says: .
END
refused what_survives 'survives: test_philox' <<'END'
title: a fault that this check cannot see
file: ref/optim/sgd.c
-    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale + coupled * W[i]);
+    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] + lr * (G[i] * scale + coupled * W[i]);
caught by: test_philox
says: .
END
refused what_is_caught_without_a_name 'but the report does not say' <<'END'
title: a fault whose report leads nobody to it
file: ref/optim/sgd.c
-    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale + coupled * W[i]);
+    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] + lr * (G[i] * scale + coupled * W[i]);
caught by: test_optimizer
says: h\.0\.ln_1\.weight
END
refused what_ends_by_force 'no kill, but an end by force, `' <<'END'
title: a test that crashes has noticed nothing, whatever it said before
file: ref/optim/sgd.c
-    const real scale = (real)s.gradient_scale, keep = (real)f.keep, coupled = (real)f.coupled, lr = (real)s.lr;
+    __builtin_trap();
+    const real scale = (real)s.gradient_scale, keep = (real)f.keep, coupled = (real)f.coupled, lr = (real)s.lr;
caught by: test_optimizer
says: FAILED
END
refused what_runs_out_of_time 'no kill, but an end by force, `status 124`' <<'END'
title: a test that never ends has noticed nothing
file: ref/optim/sgd.c
-    const real scale = (real)s.gradient_scale, keep = (real)f.keep, coupled = (real)f.coupled, lr = (real)s.lr;
+    for (volatile int i = 0; i < 1;) { }
+    const real scale = (real)s.gradient_scale, keep = (real)f.keep, coupled = (real)f.coupled, lr = (real)s.lr;
caught by: timeout 5 test_optimizer
says: RUN
END
refused whom_a_signal_stops 'no kill, but an end by force, ' <<'END'
title: devices that abort have noticed nothing, though there is a report of it
file: ref/optim/sgd.c
-    const real scale = (real)s.gradient_scale, keep = (real)f.keep, coupled = (real)f.coupled, lr = (real)s.lr;
+    __builtin_trap();
+    const real scale = (real)s.gradient_scale, keep = (real)f.keep, coupled = (real)f.coupled, lr = (real)s.lr;
caught by: orrery train --model tiny --batch 4 --seq 7 --steps 1 --optimizer sgd --dp 2
says: orrery: 
END
refused a_check_that_always_fails 'fails on the tree as it is' <<'END'
title: a check that would catch anything
file: ref/optim/sgd.c
-    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale + coupled * W[i]);
+    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] + lr * (G[i] * scale + coupled * W[i]);
caught by: orrery train --no-such-flag
says: no-such-flag
END

# Where an end by force is what a mistake leads to, a fault may ask for it.
printf '[ RUN      ] accepts_the_end_that_is_asked_for\n'
cat >"$place/asked.fault" <<'END'
title: a crash is what must come of it
file: ref/optim/sgd.c
-    const real scale = (real)s.gradient_scale, keep = (real)f.keep, coupled = (real)f.coupled, lr = (real)s.lr;
+    __builtin_trap();
+    const real scale = (real)s.gradient_scale, keep = (real)f.keep, coupled = (real)f.coupled, lr = (real)s.lr;
caught by: test_optimizer
says: Test failed with exception: Illegal instruction
END
if FAULT_DIR=$place bash tests/faults/run.sh "$BUILD" asked >"$place/out" 2>&1; then echo '[       OK ] accepts_the_end_that_is_asked_for'
else
    sed 's/^/    | /' "$place/out"
    echo '[  FAILED  ] accepts_the_end_that_is_asked_for'
    failed=1
fi
[ -z "${failed:-}" ]
