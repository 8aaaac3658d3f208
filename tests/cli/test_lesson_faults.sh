# Lesson 16: each run that its script records is wrong first in the tensor that the solution names, in every variant.
# tier: verify
. "$(dirname "$0")/lib.sh"

test_every_case() {
    local variant number said
    for variant in 0 1; do                      # 0 has the first of each two, 1 the second
        run course --teacher "teacher.$variant" --student "student.$variant" --variant "$variant"; expect_status 0
        solution=$(find "teacher.$variant" -name faults.txt | head -n 1)
        for number in 1 2 3 4 5; do
            command="variant $variant, case $number"
            (cd "student.$variant" && ORRERY=$program ORRERY_SOURCES=$top bash 16_faults/case.sh "$number") >out 2>err || complain "$(tail -n 1 err)"
            said=$(sed -nE 's/^orrery: ([^ ]+) (differs([:;].*)?|is not what its own inputs give .*)$/\1/p' err)
            [ -n "$said" ] && awk -v n="$number" '/^case /{on = $2 == n} on && $1 == "tensor" {print $2}' "$solution" | grep -qxF -- "$said" ||
                complain "the check names ${said:-nothing}, the solution another tensor"
        done
        rm -rf "student.$variant"
    done
}

run_tests test_every_case
