# The parts of a run, one after the other, with their times; sourced by `.ci/run` and `tests/nightly.sh`.

unset CARGO_TARGET_DIR CARGO_INCREMENTAL
# What a test needs and does not find is a failure, not a skipped test.
export CI=true CARGO_TERM_COLOR=never

passed=0
failed=0
times=
# The process groups of the part and of those beside it, while they run.
running=
beside=() beside_names=() beside_files=()

# Stops what is still running: each part runs in a process group of its own.
finish_parts() {
  local group
  for group in $running "${beside[@]}"; do
    kill -TERM -- "-$group" 2>/dev/null || true
  done
}
trap finish_parts EXIT
trap 'exit 130' INT TERM

# part NAME SECONDS COMMAND...: a failed part stops nothing, so that one run shows all that is wrong.
part() {
  local name="$1" limit="$2" began=$SECONDS status=0 processor
  processor=$(processor_time)
  shift 2
  echo "=== $name"
  setsid timeout --kill-after=30 "$limit" "$@" &
  running=$!
  wait "$running" || status=$?
  # A part that was stopped may have left programs behind.
  kill -KILL -- "-$running" 2>/dev/null || true
  running=
  count_part "$name" $((SECONDS - began)) "$status" ", $(($(processor_time) - processor)) s of processor time"
}

# Seconds of processor time of all parts that have ended: `cutime` and `cstime` of proc_pid_stat(5), in hundredths.
processor_time() {
  awk '{ print int(($16 + $17) / 100) }' "/proc/$$/stat"
}

# part_beside NAME SECONDS NICENESS COMMAND...: begins a part that runs beside the next ones until `join_parts`, which prints its output.
# With a niceness of 10 it has what they leave of the processors, with 3 about a third.
part_beside() {
  local name="$1" limit="$2" niceness="$3" files
  shift 3
  files=$(mktemp -d)
  echo "=== $name: begins, beside the next parts"
  setsid nice -n "$niceness" timeout --kill-after=30 "$limit" bash -c '
    # Linux shares the processors among sessions first: `nice` alone orders the processes of this one.
    { nice >"/proc/$$/autogroup"; } 2>/dev/null || true
    began=$SECONDS status=0
    files=$1
    shift
    "$@" || status=$?
    echo $((SECONDS - began)) >"$files/seconds"
    exit "$status"' - "$files" "$@" >"$files/output" 2>&1 &
  beside+=("$!")
  beside_names+=("$name")
  beside_files+=("$files")
}

# Waits for the parts that run beside others.
join_parts() {
  local index status files
  for index in "${!beside[@]}"; do
    status=0
    files="${beside_files[index]}"
    wait "${beside[index]}" || status=$?
    kill -KILL -- "-${beside[index]}" 2>/dev/null || true
    echo "=== ${beside_names[index]}"
    cat "$files/output"
    count_part "${beside_names[index]}, beside others" "$(cat "$files/seconds" 2>/dev/null || echo 0)" "$status"
    rm -rf "$files"
  done
  beside=() beside_names=() beside_files=()
}

# count_part NAME SECONDS STATUS [MORE]
count_part() {
  local result=ok
  if [ "$3" = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    result="FAILED with $3"
  fi
  printf -v result '%5d s  %s: %s%s' "$2" "$1" "$result" "${4:-}"
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
