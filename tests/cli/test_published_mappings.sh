# The table of published mappings in docs/parallelism/experts.md: its plans take the times, shares of the peak and memory that it says, and the faster
# mapping of the paper is the faster one here.
# tier: verify
. "$(dirname "$0")/lib.sh"
here=$(cd "$(dirname "$0")/../.." && pwd)

# Rows of the table: model|options|step|MFU|printed MFU|GiB.
rows() {
    awk -F'|' '/^### The published mappings/ { on = 1 } /^## / { on = 0 }
        on && NF > 7 && /`--/ { if ($2 ~ /`/) { split($2, m, "`"); model = m[2] } gsub(/`/, "", $4); gsub(/ s *$/, "", $5); gsub(/[ %]/, "", $6); gsub(/[ %]/, "", $7); gsub(/ /, "", $8)
                      print model "|" $4 "|" $5 "|" $6 "|" $7 "|" $8 }' "$here/docs/parallelism/experts.md"
}

test_rows() {
    local model options step share printed size n=0 before= before_printed=
    while IFS='|' read -r model options step share printed size; do
        n=$((n + 1))
        case $model in mixtral-8x22b|qwen2-57b-a14b) ;; *) continue ;; esac
        case $options in *--data-parallel*) before= ;; *) options+=' --zero 1' ;; esac
        case $options in *'--tp '*) options+=' --tensor 1d-sp' ;; esac
        run plan --cluster h100-infiniband --dtype bf16 --batch 256 --seq 4096 --memory 0 --model "$model" $options;    expect_status 0
        expect_out "^virtual ${step// /} s a step "; expect_out "MFU $share % \(attention whole\)"; expect_out "^peak +of device 0, $size GiB"
        [ -z "$before" ] || awk "BEGIN { exit !(($share > $before) == ($printed > $before_printed)) }" || complain "$options: $share % after $before %, printed $printed % after $before_printed %"
        case $options in *--data-parallel*) ;; *) before=$share before_printed=$printed ;; esac
    done < <(rows)
    [ "$n" = 18 ] || complain "the table has $n rows, not 18"
}

run_tests test_rows
