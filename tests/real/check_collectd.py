"""Compares the log of collectd's csv plug-in with the results of /api/query.

    check_collectd.py CSV_FOLDER HOST URL

The csv plug-in writes `PLUGIN[-INSTANCE]/TYPE[-INSTANCE]-DATE` with a column for each data source;
write_tsdb sends the same values under a metric made of these names, with the time in whole seconds.
"""

import csv
import json
import sys
import time
import urllib.parse
import urllib.request
from collections import defaultdict
from pathlib import Path

# The csv plug-in writes six digits after the dot.
TOLERANCE = 0.51e-6
# The last points may be in flight when collectd has exited.
PATIENCE_SECONDS = 20


def metric(plugin_folder, file_name, source):
    """The name that write_tsdb gives a data source.

    An instance of the type stands before the type if the plug-in has no instance, else after it.
    Source: collectd 5.12, write_tsdb.c, wt_format_name.
    """
    plugin, _, plugin_instance = plugin_folder.partition("-")
    kind, _, type_instance = file_name.partition("-")
    if plugin_instance:
        parts = [plugin, plugin_instance, kind, type_instance]
    else:
        parts = [plugin, type_instance, kind]
    if source != "value":
        parts.append(source)
    return ".".join(part for part in parts if part)


def logged(folder):
    """By metric and second, the values in the order in which they were logged."""
    values = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("*/*")):
        file_name = path.name[: -len("-2000-01-01")]
        with path.open(newline="") as file:
            rows = csv.DictReader(file)
            for row in rows:
                instant = float(row.pop("epoch"))
                for source, value in row.items():
                    if value == "nan":
                        continue
                    values[metric(path.parent.name, file_name, source)][instant].append(float(value))
    return values


def stored(url, name, host):
    """By second, the result of a query for the series."""
    query = urllib.parse.urlencode({"start": "1d-ago", "m": f"none:{name}{{fqdn={host}}}"})
    try:
        with urllib.request.urlopen(f"{url}/api/query?{query}", timeout=60) as response:
            groups = json.load(response)
    except urllib.error.HTTPError as error:
        return {}, f"{error.code} {error.read().decode()}"
    if len(groups) != 1:
        return {}, f"{len(groups)} series"
    if groups[0]["tags"] != {"fqdn": host, "source": "collectd"}:
        return {}, f"tags {groups[0]['tags']}"
    return {int(second): value for second, value in groups[0]["dps"].items()}, None


def compare(values, url, host):
    """Compares all; returns how many values were looked for, and what is wrong."""
    count, wrong = 0, []
    for name, instants in sorted(values.items()):
        found, problem = stored(url, name, host)
        if problem:
            wrong.append(f"{name}: {problem}")
            continue
        by_second = defaultdict(list)
        for instant, logged_values in instants.items():
            # write_tsdb rounds to the nearest second. The log has milliseconds, so just at the half
            # it is one of two.
            seconds = {int(instant + 0.499), int(instant + 0.501)}
            for second in seconds:
                by_second[second].extend(logged_values)
            count += len(logged_values)
            for value in logged_values:
                if not any(second in found for second in seconds):
                    wrong.append(f"{name}: {value} at {instant} is missing")
        for second, value in found.items():
            # Two values in one second are one point: the one sent later.
            allowed = by_second.get(second, [])
            if not any(abs(value - other) <= TOLERANCE + abs(other) * 1e-15 for other in allowed):
                wrong.append(f"{name}: {value} at {second} is none of {allowed}")
    return count, wrong


def main(folder, host, url):
    values = logged(Path(folder))
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        count, wrong = compare(values, url, host)
        if not wrong or time.monotonic() > end:
            break
        time.sleep(0.5)
    plugins = sorted({name.split(".")[0] for name in values})
    print(f"collectd: {count} values of {len(values)} series ({', '.join(plugins)}), {len(wrong)} wrong")
    for line in wrong[:20]:
        print(line)
    expected = {"cpu", "df", "disk", "interface", "load", "memory", "processes"}
    # A machine without a disk or a network reports nothing about it.
    unseen = expected - set(plugins) - {"disk", "interface"}
    if unseen:
        print(f"collectd logged nothing about {', '.join(sorted(unseen))}")
    sys.exit(1 if wrong or unseen or not count else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
