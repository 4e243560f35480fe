"""A large import file with known query results: values are linear in time.

    import_file.py write FILE            writes it
    import_file.py check URL ERRORS      queries the server at URL, after `tsdb import --errors ERRORS`

Ten metrics of a hundred hosts, each a point every ten seconds; a few lines are bad on purpose. A
missing point in the middle of a line changes no sum: sums fill it in by a straight line.
"""

import json
import re
import sys
import urllib.parse
import urllib.request

START = 1_500_000_000
STEP = 10
INSTANTS = 1000
HOSTS = 100
METRICS = 10

# Line numbers (from 1) and the invalid text in place of a point; all at instants in the middle.
BAD_LINES = {
    250_001: "import.m0",
    250_002: "import.m0 1500002500",
    300_003: "import.m0 1500003000 abc host=host0",
    350_004: "import.m0 1500003500 NaN host=host0",
    400_005: "import.m0 yesterday 1 host=host0",
    450_006: "import.m0 1500004500 1",
    500_007: "import.m0 1500005000 1 host",
    550_008: "import.m0 1500005500 1 host=a host=b",
    600_009: "import:m0 1500006000 1 host=host0",
    650_010: "import.m0 1500006500 99999999999999999999 host=host0",
    700_011: "import.m0 1500007000 1 a=1 b=1 c=1 d=1 e=1 f=1 g=1 h=1 i=1",
    750_012: "import.m0 0 1 host=host0",
}


def value(metric, host, instant):
    """Integers for the first half of the metrics, quarters for the rest: both have exact sums."""
    if metric < METRICS // 2:
        return host * 1000 + instant * (metric + 1)
    return host * 0.5 + instant * 0.25 * (metric - METRICS // 2 + 1)


def place(line):
    """Metric and instant that a line number stands for."""
    number = line - 1
    return number % METRICS, number // (METRICS * HOSTS)


def write(path):
    line = 0
    with open(path, "w", encoding="ascii") as file:
        for instant in range(INSTANTS):
            for host in range(HOSTS):
                for metric in range(METRICS):
                    line += 1
                    if line in BAD_LINES:
                        file.write(f"{BAD_LINES[line]}\n")
                        continue
                    file.write(
                        f"import.m{metric} {START + instant * STEP} {value(metric, host, instant)}"
                        f" host=host{host} dc=dc{host % 4}\n"
                    )
    print(f"{path}: {line} lines, {len(BAD_LINES)} of them bad")


def ask(url, expression):
    query = urllib.parse.urlencode(
        {"start": START, "end": START + INSTANTS * STEP, "m": expression}
    )
    with urllib.request.urlopen(f"{url}/api/query?{query}", timeout=120) as response:
        return json.load(response)


class Checks:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def equal(self, what, actual, expected):
        if actual == expected:
            self.passed += 1
        else:
            self.failed += 1
            print(f"{what}: expected {str(expected)[:300]}, got {str(actual)[:300]}")


def check(url, errors):
    checks = Checks()
    with open(errors, encoding="utf-8") as file:
        text = file.read()
    rejected = {int(number) for number in re.findall(r"line (\d+)|^(?:\S*:)?(\d+):", text, re.M) for number in number if number}
    checks.equal("rejected lines", sorted(rejected), sorted(BAD_LINES))

    last = START + (INSTANTS - 1) * STEP
    for metric in range(METRICS):
        name = f"import.m{metric}"
        bad = [place(line)[1] for line in BAD_LINES if place(line)[0] == metric]

        counted = ask(url, f"none:1h-count:{name}")
        checks.equal(f"{name}: series", len(counted), HOSTS)
        count = sum(number for group in counted for number in group["dps"].values())
        # The first interval begins before the range and is left out.
        first_hour = (START // 3600 + 1) * 3600
        before = sum(START + instant * STEP < first_hour for instant in range(INSTANTS)) * HOSTS
        lost = sum(START + instant * STEP >= first_hour for instant in bad)
        checks.equal(f"{name}: points", count, HOSTS * INSTANTS - before - lost)

        summed = ask(url, f"sum:{name}")
        expected = {
            str(START + instant * STEP): sum(value(metric, host, instant) for host in range(HOSTS))
            for instant in range(INSTANTS)
        }
        checks.equal(f"{name}: groups of the sum", len(summed), 1)
        checks.equal(f"{name}: sums over hosts", summed[0]["dps"], expected)

        one = ask(url, f"max:{name}{{host=host7}}")
        checks.equal(f"{name}: tags of one host", one[0]["tags"], {"host": "host7", "dc": "dc3"})
        checks.equal(f"{name}: last of one host", one[0]["dps"][str(last)], value(metric, 7, INSTANTS - 1))
        by_dc = ask(url, f"count:{name}{{dc=*}}")
        counts = sorted((group["tags"]["dc"], group["dps"][str(last)]) for group in by_dc)
        checks.equal(f"{name}: hosts by dc", counts, [(f"dc{dc}", HOSTS // 4) for dc in range(4)])
        rates = ask(url, f"max:rate:{name}{{host=host7}}")[0]["dps"].values()
        slope = (value(metric, 0, 1) - value(metric, 0, 0)) / STEP
        wrong = [rate for rate in rates if abs(rate - slope) > 1e-9 * max(1, slope)]
        checks.equal(f"{name}: rate", wrong, [])
    print(f"import: {checks.passed} passed, {checks.failed} failed")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](*sys.argv[2:])
