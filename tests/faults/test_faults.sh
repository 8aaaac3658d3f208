# The quick faults are noticed, in `make verify` all of them; and the machinery notices faults that are none.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

quick=--quick
[ "$TIER" = verify ] && quick=
echo "[ RUN      ] faults $quick"
bash tests/faults/run.sh "$BUILD" $quick || failed=1

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
-    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale);
+    for (int64_t i = 0; i < n; ++i) W[i] = keep * W[i] - lr * (G[i] * scale);
caught by: test_optimizer
says: .
END
refused what_does_not_compile 'ref/optim/sgd.c does not compile' <<'END'
title: no C
file: ref/optim/sgd.c
-    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale);
+    for all i
caught by: test_optimizer
says: .
END
refused what_survives 'survives: test_philox' <<'END'
title: a fault that this check cannot see
file: ref/optim/sgd.c
-    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale);
+    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] + lr * (G[i] * scale);
caught by: test_philox
says: .
END
refused what_is_caught_without_a_name 'but the report does not say' <<'END'
title: a fault whose report leads nobody to it
file: ref/optim/sgd.c
-    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale);
+    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] + lr * (G[i] * scale);
caught by: test_optimizer
says: h\.0\.ln_1\.weight
END
refused a_check_that_always_fails 'fails on the tree as it is' <<'END'
title: a check that would catch anything
file: ref/optim/sgd.c
-    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] - lr * (G[i] * scale);
+    for (int64_t i = 0; i < n; i++) W[i] = keep * W[i] + lr * (G[i] * scale);
caught by: orrery train --no-such-flag
says: no-such-flag
END
[ -z "${failed:-}" ]
