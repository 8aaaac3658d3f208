# `orrery verify`, everything on all meshes of up to 8 devices.
# tier: verify
# verify parts: 48
. "$(dirname "$0")/lib.sh"
seconds=3600

test_everything() { run verify --devices 8 --part "${SHARE:-1/1}"; expect_status 0; expect_silent; expect_no_out 'FAILED'; expect_out '^[0-9]+ cases?, [0-9]+ passed'; }

run_tests test_everything
