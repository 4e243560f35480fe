# The parts of a run, one after the other, with their times; sourced by `.ci/run` and `tests/nightly.sh`.

unset CARGO_TARGET_DIR CARGO_INCREMENTAL
# What a test needs and does not find is a failure, not a skipped test.
export CI=true CARGO_TERM_COLOR=never

passed=0
failed=0
running=
times=

# Stops what is still running: each part runs in a process group of its own.
finish_parts() {
  [ -z "$running" ] || kill -TERM -- "-$running" 2>/dev/null || true
}
trap finish_parts EXIT
trap 'exit 130' INT TERM

# part NAME SECONDS COMMAND...: a failed part stops nothing, so that one run shows all that is wrong.
part() {
  local name="$1" limit="$2" began=$SECONDS status=0 result=ok
  shift 2
  echo "=== $name"
  setsid timeout --kill-after=30 "$limit" "$@" &
  running=$!
  wait "$running" || status=$?
  # A part that was stopped may have left programs behind.
  kill -KILL -- "-$running" 2>/dev/null || true
  running=
  if [ "$status" = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    result="FAILED with $status"
  fi
  printf -v result '%5d s  %s: %s' $((SECONDS - began)) "$name" "$result"
  times+="$result"$'\n'
  echo "=== $result"
}

# Prints all parts with their times; fails if one has failed.
end_parts() {
  printf '\n%s%d passed, %d failed in %d s\n' "$times" "$passed" "$failed" "$SECONDS"
  [ "$failed" = 0 ]
}

# One seed for all parts but README's second command, so that their result does not depend on chance. README's has other seeds
# each time, and prints them.
fix_seeds() {
  export OXTSDB_TEST_SEED="${OXTSDB_TEST_SEED:-4}" PROPTEST_RNG_SEED="${PROPTEST_RNG_SEED:-4}"
  export OXTSDB_DIFFERENTIAL_SEED="${OXTSDB_DIFFERENTIAL_SEED:-4}"
}
