"""/api/annotation, /api/annotations, and annotations in results of /api/query."""

from recorder import ALL, DEFAULTS, missing

ONE = "/api/annotation"
BULK = "/api/annotation/bulk"
ALL_GLOBAL = "/api/annotations"
HOUR = 1356998400
# sys.cpu host=web01
SERIES = "000001000001000001"


def record(rig):
    settings = {**DEFAULTS, "tsd.http.show_stack_trace": "false", "tsd.core.auto_create_metrics": "true"}
    for step in (local, time_forms, globals_, errors, bulk, queries):
        with rig.section("annotation", step.__name__, settings) as section:
            step(section)
    with rig.section("annotation", "tracking", ALL) as section:
        tracking(section)


def a_series(s):
    s.points("a point", [("sys.cpu", HOUR, 1, {"host": "web01"})])


def local(s):
    a_series(s)
    first = f"{ONE}?tsuid={SERIES}&start_time={HOUR + 10}"
    s.get("GET what is absent", first)
    s.post("POST", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "description": "d", "notes": "n"})
    s.get("GET", first)
    s.cells("tsdb")
    s.post("POST it again", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "description": "d", "notes": "n"})
    s.post("POST nothing", ONE, {"tsuid": SERIES, "startTime": HOUR + 10})
    s.post("POST merges", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "endTime": HOUR + 20})
    s.post("POST other notes", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "notes": "é € \"q\" \\ / <t> \n"})
    s.post("POST an empty description", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "description": ""})
    s.post("POST a zero end", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "endTime": 0})
    s.cells("tsdb")
    s.post("POST custom", ONE, {
        "tsuid": SERIES, "startTime": HOUR + 10,
        "custom": {"owner": "Jane", "department": "Ops", "z": "1", "a": "2", "é": "3", "€": "4", "B": "5"}})
    s.get("GET custom", first)
    s.post("POST the same custom", ONE, {
        "tsuid": SERIES, "startTime": HOUR + 10,
        "custom": {"a": "2", "z": "1", "department": "Ops", "owner": "Jane", "é": "3", "€": "4", "B": "5"}})
    s.cells("tsdb")
    s.post("POST other custom", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "custom": {"one": "1"}})
    s.post("POST custom with numbers", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "custom": {"n": 1, "t": True, "x": None}})
    s.post("POST an empty custom", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "custom": {}})
    s.post("POST a null custom", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "custom": None})
    s.post("POST null notes", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "notes": None})
    s.cells("tsdb")
    s.put("PUT", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "description": "put"})
    s.put("PUT it again", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "description": "put"})
    s.put("PUT nothing", ONE, {"tsuid": SERIES, "startTime": HOUR + 10})
    s.put("PUT a new one", ONE, {"tsuid": SERIES, "startTime": HOUR + 30, "notes": "new"})
    s.put("PUT nothing to a new one", ONE, {"tsuid": SERIES, "startTime": HOUR + 31})
    s.post("POST nothing to a new one", ONE, {"tsuid": SERIES, "startTime": HOUR + 32})
    s.get("GET the empty one", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 32}")
    s.post("small letters", ONE, {"tsuid": "00000a00000b00000c", "startTime": HOUR + 10, "notes": "unknown series"})
    s.get("GET small letters", f"{ONE}?tsuid=00000a00000b00000c&start_time={HOUR + 10}")
    s.get("GET capital letters", f"{ONE}?tsuid=00000A00000B00000C&start_time={HOUR + 10}")
    s.post("POST capital letters", ONE, {"tsuid": "00000A00000B00000C", "startTime": HOUR + 10, "notes": "capital"})
    s.cells("tsdb")
    s.get("method_override=post", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 40}&end_time={HOUR + 41}&description=q1&notes=q2"
          "&method_override=post")
    s.get("method_override=post again", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 40}&notes=q3&method_override=post")
    s.get("method_override=put", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 40}&notes=q4&method_override=put")
    s.get("custom in the query string", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 40}&custom=x&method_override=post")
    s.get("an unknown method_override", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 40}&method_override=patch")
    s.post("POST by the query string", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 42}&notes=q5")
    s.cells("tsdb")
    s.delete("DELETE", first)
    s.get("GET after DELETE", first, until=missing)
    s.delete("DELETE again", first)
    s.delete("DELETE by body", ONE, {"tsuid": SERIES, "startTime": HOUR + 30})
    s.get("GET after DELETE by body", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 30}", until=missing)
    s.get("method_override=delete", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 40}&method_override=delete")
    s.get("GET after method_override=delete", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 40}", until=missing)
    s.post("POST after DELETE", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "notes": "anew"})
    s.cells("tsdb")


def time_forms(s):
    a_series(s)
    odd = 1369141261
    s.post("seconds", ONE, {"tsuid": SERIES, "startTime": odd, "notes": "s"})
    s.get("GET seconds", f"{ONE}?tsuid={SERIES}&start_time={odd}")
    s.get("GET seconds as ms", f"{ONE}?tsuid={SERIES}&start_time={odd}000")
    s.post("ms", ONE, {"tsuid": SERIES, "startTime": odd * 1000 + 5, "notes": "ms"})
    s.get("GET ms", f"{ONE}?tsuid={SERIES}&start_time={odd}005")
    s.post("a whole second in ms", ONE, {"tsuid": SERIES, "startTime": (odd + 1) * 1000, "notes": "whole"})
    s.get("GET the whole second", f"{ONE}?tsuid={SERIES}&start_time={odd + 1}")
    s.get("GET the whole second as ms", f"{ONE}?tsuid={SERIES}&start_time={odd + 1}000")
    s.post("seconds over ms", ONE, {"tsuid": SERIES, "startTime": odd + 1, "notes": "seconds"})
    s.post("ms over seconds", ONE, {"tsuid": SERIES, "startTime": odd * 1000, "notes": "ms over s"})
    s.cells("tsdb")
    s.post("a multiple of 1000", ONE, {"tsuid": SERIES, "startTime": 1369141000, "notes": "multiple"})
    s.get("GET a multiple of 1000", f"{ONE}?tsuid={SERIES}&start_time=1369141000")
    s.post("a small time", ONE, {"tsuid": SERIES, "startTime": 1, "notes": "one"})
    s.get("GET a small time", f"{ONE}?tsuid={SERIES}&start_time=1")
    s.post("the time 1000", ONE, {"tsuid": SERIES, "startTime": 1000, "notes": "thousand"})
    s.post("a zero time", ONE, {"tsuid": SERIES, "startTime": 0, "notes": "zero"})
    s.post("a negative time", ONE, {"tsuid": SERIES, "startTime": -5, "notes": "negative"})
    s.post("the last second of 32 bits", ONE, {"tsuid": SERIES, "startTime": 4294967295, "notes": "last"})
    s.post("the first millisecond", ONE, {"tsuid": SERIES, "startTime": 4294967297, "notes": "ms"})
    s.post("a large time", ONE, {"tsuid": SERIES, "startTime": 9999999999999, "notes": "large"})
    s.post("a fraction", ONE, {"tsuid": SERIES, "startTime": HOUR + 0.5, "notes": "fraction"})
    s.post("a text", ONE, {"tsuid": SERIES, "startTime": str(HOUR + 7), "notes": "text"})
    s.post("a word", ONE, {"tsuid": SERIES, "startTime": "1h-ago", "notes": "word"})
    s.post("an end before the start", ONE, {"tsuid": SERIES, "startTime": HOUR + 8, "endTime": HOUR, "notes": "x"})
    s.post("an end in ms", ONE, {"tsuid": SERIES, "startTime": HOUR + 9, "endTime": (HOUR + 9) * 1000, "notes": "x"})
    s.get("a date", f"{ONE}?tsuid={SERIES}&start_time=2013/01/01-00:00:07")
    s.get("a relative time", f"{ONE}?tsuid={SERIES}&start_time=1h-ago")
    s.get("a fraction", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 7}.5")
    s.get("a word as start", f"{ONE}?tsuid={SERIES}&start_time=x")
    s.get("ms in the query string", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 50}123&notes=qms&method_override=post")
    s.get("end in ms in the query string", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 51}&end_time={HOUR + 52}999&method_override=post")
    s.cells("tsdb")


def globals_(s):
    s.post("POST", ONE, {"startTime": HOUR + 10, "description": "global", "notes": "n"})
    s.get("GET", f"{ONE}?start_time={HOUR + 10}")
    s.post("POST with an empty tsuid", ONE, {"tsuid": "", "startTime": HOUR + 20, "description": "empty"})
    s.post("POST with a null tsuid", ONE, {"tsuid": None, "startTime": HOUR + 21, "description": "null"})
    s.post("POST ms", ONE, {"startTime": (HOUR + 30) * 1000 + 1, "description": "ms", "custom": {"b": "1", "a": "2"}})
    s.post("POST a later hour", ONE, {"startTime": HOUR + 3600, "description": "later"})
    s.post("POST much later", ONE, {"startTime": HOUR + 86400, "endTime": HOUR + 90000, "description": "next day"})
    s.post("POST it again", ONE, {"startTime": HOUR + 10, "description": "global"})
    s.put("PUT", ONE, {"startTime": HOUR + 10, "description": "put"})
    s.cells("tsdb")
    s.get("all in a range", f"{ALL_GLOBAL}?start_time={HOUR}&end_time={HOUR + 3599}")
    s.get("a narrow range", f"{ALL_GLOBAL}?start_time={HOUR + 20}&end_time={HOUR + 30}")
    s.get("inclusive", f"{ALL_GLOBAL}?start_time={HOUR + 10}&end_time={HOUR + 20}")
    s.get("ms", f"{ALL_GLOBAL}?start_time={HOUR + 30}001&end_time={HOUR + 30}001")
    s.get("two days", f"{ALL_GLOBAL}?start_time={HOUR}&end_time={HOUR + 2 * 86400}")
    s.get("to now", f"{ALL_GLOBAL}?start_time={HOUR}")
    s.get("dates", f"{ALL_GLOBAL}?start_time=2013/01/01-00:00:00&end_time=2013/01/02-00:00:00")
    s.get("relative", f"{ALL_GLOBAL}?start_time=1h-ago")
    s.get("nothing there", f"{ALL_GLOBAL}?start_time={HOUR - 86400}&end_time={HOUR - 1}")
    s.get("end before start", f"{ALL_GLOBAL}?start_time={HOUR + 20}&end_time={HOUR + 10}")
    s.get("no start", f"{ALL_GLOBAL}?end_time={HOUR}")
    s.get("nothing", ALL_GLOBAL)
    s.get("a word", f"{ALL_GLOBAL}?start_time=x")
    s.post("POST a search", ALL_GLOBAL, {"startTime": HOUR, "endTime": HOUR + 3599})
    s.put("PUT a search", f"{ALL_GLOBAL}?start_time={HOUR}", {})
    s.delete("DELETE a search", f"{ALL_GLOBAL}?start_time={HOUR}&end_time={HOUR + 1}")
    s.get("below annotations", f"{ALL_GLOBAL}/bulk")
    s.delete("DELETE", f"{ONE}?start_time={HOUR + 10}")
    s.get("GET after DELETE", f"{ONE}?start_time={HOUR + 10}", until=missing)
    s.cells("tsdb")


def errors(s):
    a_series(s)
    s.get("nothing", ONE)
    s.get("no start", f"{ONE}?tsuid={SERIES}")
    s.get("an empty start", f"{ONE}?tsuid={SERIES}&start_time=")
    s.get("absent", f"{ONE}?tsuid={SERIES}&start_time={HOUR}")
    s.get("absent global", f"{ONE}?start_time={HOUR}")
    s.get("a tsuid that is not hex", f"{ONE}?tsuid=00000100000100000G&start_time={HOUR}")
    s.get("an odd tsuid", f"{ONE}?tsuid=00000100000100000&start_time={HOUR}")
    s.get("a short tsuid", f"{ONE}?tsuid=000001&start_time={HOUR}")
    s.get("an uneven tsuid", f"{ONE}?tsuid=0000010000010000&start_time={HOUR}")
    s.post("POST no start", ONE, {"tsuid": SERIES, "notes": "x"})
    s.post("POST an empty object", ONE, {})
    s.post("POST a null start", ONE, {"tsuid": SERIES, "startTime": None, "notes": "x"})
    s.post("POST broken JSON", ONE, '{"startTime":')
    s.post("POST an array", ONE, [])
    s.post("POST without a body", ONE)
    s.post("POST an unknown field", ONE, {"tsuid": SERIES, "startTime": HOUR, "bogus": 1, "notes": "x"})
    s.post("POST a list as custom", ONE, {"tsuid": SERIES, "startTime": HOUR, "custom": ["x"]})
    s.post("POST numbers as texts", ONE, {"tsuid": SERIES, "startTime": HOUR + 1, "notes": 5})
    s.post("POST a tsuid that is not hex", ONE, {"tsuid": "xyz", "startTime": HOUR, "notes": "x"})
    s.post("POST an odd tsuid", ONE, {"tsuid": "00000100000100000", "startTime": HOUR, "notes": "x"})
    s.post("POST a short tsuid", ONE, {"tsuid": "000001", "startTime": HOUR, "notes": "x"})
    s.put("PUT no start", ONE, {"tsuid": SERIES, "notes": "x"})
    s.put("PUT broken JSON", ONE, "{")
    s.delete("DELETE nothing", ONE)
    s.delete("DELETE no start", f"{ONE}?tsuid={SERIES}")
    s.delete("DELETE absent", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 77}")
    s.send("PATCH", "PATCH", f"{ONE}?start_time={HOUR}")
    s.get("below annotation", f"{ONE}/bogus?start_time={HOUR}")
    s.get("version 1", f"/api/v1/annotation?tsuid={SERIES}&start_time={HOUR}")
    s.get("jsonp", f"{ONE}?tsuid={SERIES}&start_time={HOUR}&jsonp=callback")
    s.cells("tsdb")


def bulk(s):
    a_series(s)
    s.get("GET", BULK)
    s.post("POST", BULK, [
        {"tsuid": SERIES, "startTime": HOUR + 10, "description": "one"},
        {"tsuid": SERIES, "startTime": (HOUR + 20) * 1000 + 1, "description": "two", "custom": {"z": "1", "a": "2"}},
        {"startTime": HOUR + 30, "description": "three", "endTime": HOUR + 31},
        {"tsuid": "000001000001000002", "startTime": HOUR + 7200, "description": "four"},
    ])
    s.cells("tsdb")
    s.post("POST some changed", BULK, [
        {"tsuid": SERIES, "startTime": HOUR + 10, "notes": "merged"},
        {"startTime": HOUR + 30},
        {"startTime": HOUR + 33, "notes": "new"},
    ])
    s.post("POST none changed", BULK, [{"startTime": HOUR + 30}])
    s.post("POST one twice", BULK, [
        {"startTime": HOUR + 34, "notes": "twice"},
        {"startTime": HOUR + 34, "notes": "twice"},
    ])
    s.put("PUT", BULK, [
        {"tsuid": SERIES, "startTime": HOUR + 10, "notes": "replaced"},
        {"startTime": HOUR + 30, "notes": "replaced too"},
    ])
    s.cells("tsdb")
    s.post("POST an empty array", BULK, [])
    s.post("POST without a start", BULK, [{"startTime": HOUR + 40, "notes": "good"}, {"notes": "x"}])
    s.get("was the good one stored?", f"{ONE}?start_time={HOUR + 40}")
    s.post("POST an object", BULK, {"startTime": HOUR + 41, "notes": "x"})
    s.post("POST broken JSON", BULK, "[{")
    s.post("POST without a body", BULK)
    s.post("POST nulls", BULK, [None])
    s.put("PUT an empty array", BULK, [])
    s.delete("DELETE nothing", BULK)
    s.delete("DELETE an empty object", BULK, {})
    s.delete("DELETE without a start", BULK, {"global": True})
    s.delete("DELETE without a target", BULK, {"startTime": HOUR})
    s.delete("DELETE with an empty list", BULK, {"startTime": HOUR, "tsuids": []})
    s.delete("DELETE a word", BULK, {"startTime": "x", "global": True})
    s.delete("DELETE an unknown field", BULK, {"startTime": HOUR, "global": True, "bogus": 1, "endTime": HOUR})
    s.delete("DELETE one series", BULK, {"tsuids": [SERIES], "startTime": HOUR, "endTime": HOUR + 15})
    s.get("GET after DELETE", f"{ONE}?tsuid={SERIES}&start_time={HOUR + 10}", until=missing)
    s.cells("tsdb")
    s.delete("DELETE dates", BULK, {"tsuids": [SERIES], "startTime": "2013/01/01-00:00:00", "endTime": "2013/01/01-01:00:00"})
    s.delete("DELETE globals", BULK, {"global": True, "startTime": HOUR, "endTime": HOUR + 3600})
    s.get("GET after DELETE of globals", f"{ONE}?start_time={HOUR + 30}", until=missing)
    s.delete("DELETE both", BULK, {"global": True, "tsuids": [SERIES, "000001000001000002"], "startTime": HOUR, "endTime": HOUR + 86400})
    s.delete("DELETE by the query string", f"{BULK}?start_time={HOUR}&end_time={HOUR + 10}&global=true")
    s.delete("DELETE tsuids by the query string", f"{BULK}?start_time={HOUR}&end_time={HOUR + 10}&tsuids={SERIES},000001000001000002")
    s.delete("DELETE nothing by the query string", f"{BULK}?start_time={HOUR}&end_time={HOUR + 10}")
    s.delete("DELETE to now", BULK, {"tsuids": [SERIES], "startTime": HOUR})
    s.post("method_override is not honoured", f"{BULK}?method_override=delete", {"global": True, "startTime": HOUR})
    s.get("method_override of GET", f"{BULK}?method_override=delete&global=true&start_time={HOUR}&end_time={HOUR + 1}")
    s.cells("tsdb")


def queries(s):
    s.points("points", [
        ("sys.cpu", HOUR, 1, {"host": "web01"}),
        ("sys.cpu", HOUR + 60, 2, {"host": "web01"}),
        ("sys.cpu", HOUR, 3, {"host": "web02"}),
        ("sys.mem", HOUR, 4, {"host": "web01"}),
    ])
    other = "000001000001000002"
    memory = "000002000001000001"
    s.post("annotations", BULK, [
        {"tsuid": SERIES, "startTime": HOUR + 10, "description": "one", "custom": {"b": "1", "a": "2"}},
        {"tsuid": SERIES, "startTime": (HOUR + 5) * 1000 + 1, "description": "ms", "endTime": HOUR + 30},
        {"tsuid": other, "startTime": HOUR + 3, "description": "other"},
        {"tsuid": other, "startTime": HOUR + 7300, "description": "a row without points"},
        {"tsuid": memory, "startTime": HOUR + 3000, "description": "memory"},
        {"startTime": HOUR + 20, "description": "global"},
        {"startTime": (HOUR + 21) * 1000 + 500, "description": "global ms"},
        {"startTime": HOUR + 7200, "description": "global later"},
    ])
    m = "m=sum:sys.cpu"
    span = f"start={HOUR}&end={HOUR + 3599}"
    s.get("one group", f"/api/query?{span}&{m}")
    s.get("by host", f"/api/query?{span}&{m}%7Bhost=*%7D", unordered=True)
    s.get("one host", f"/api/query?{span}&{m}%7Bhost=web01%7D")
    s.get("with tsuids", f"/api/query?{span}&{m}%7Bhost=web01%7D&show_tsuids")
    s.get("globals", f"/api/query?{span}&{m}%7Bhost=web01%7D&global_annotations")
    s.get("globals of all groups", f"/api/query?{span}&{m}%7Bhost=*%7D&global_annotations", unordered=True)
    s.get("globals=true", f"/api/query?{span}&{m}%7Bhost=web01%7D&global_annotations=true")
    s.get("globals=false", f"/api/query?{span}&{m}%7Bhost=web01%7D&global_annotations=false")
    s.get("none", f"/api/query?{span}&{m}%7Bhost=web01%7D&no_annotations")
    s.get("none=true", f"/api/query?{span}&{m}%7Bhost=web01%7D&no_annotations=true")
    s.get("none and globals", f"/api/query?{span}&{m}%7Bhost=web01%7D&no_annotations&global_annotations")
    s.get("ms", f"/api/query?{span}&{m}%7Bhost=web01%7D&ms")
    s.get("a narrow range", f"/api/query?start={HOUR}&end={HOUR + 5}&{m}%7Bhost=web01%7D&global_annotations")
    s.get("a range that starts later", f"/api/query?start={HOUR + 8}&end={HOUR + 60}&{m}%7Bhost=web01%7D&global_annotations")
    s.get("three hours", f"/api/query?start={HOUR}&end={HOUR + 10800}&{m}&global_annotations")
    s.get("a row without points", f"/api/query?start={HOUR + 7200}&end={HOUR + 10799}&{m}&global_annotations")
    s.get("downsampled", f"/api/query?{span}&m=sum:1m-avg:sys.cpu&global_annotations")
    s.get("rate", f"/api/query?{span}&m=sum:rate:sys.cpu%7Bhost=web01%7D")
    s.get("two sub-queries", f"/api/query?{span}&{m}%7Bhost=web01%7D&m=sum:sys.mem&global_annotations")
    s.get("two metrics with one host", f"/api/query?{span}&{m}%7Bhost=web02%7D&m=sum:sys.mem", )
    s.get("none aggregator", f"/api/query?{span}&m=none:sys.cpu&global_annotations", unordered=True)
    s.get("arrays", f"/api/query?{span}&{m}%7Bhost=web01%7D&arrays&global_annotations")
    s.get("by tsuid", f"/api/query?{span}&tsuid=sum:{SERIES}&global_annotations")
    query = {"start": HOUR, "end": HOUR + 3599,
             "queries": [{"aggregator": "sum", "metric": "sys.cpu", "tags": {"host": "web01"}}]}
    s.post("POST", "/api/query", query)
    s.post("POST globals", "/api/query", {**query, "globalAnnotations": True})
    s.post("POST none", "/api/query", {**query, "noAnnotations": True})
    s.post("POST none and globals", "/api/query", {**query, "noAnnotations": True, "globalAnnotations": True})
    s.post("POST globals and query", "/api/query", {**query, "globalAnnotations": True, "showQuery": True, "showTSUIDs": True})
    s.post("a series that has no points", ONE, {"tsuid": "000002000001000002", "startTime": HOUR + 1, "description": "lonely"})
    s.get("a series that has no points", f"/api/query?{span}&m=sum:sys.mem%7Bhost=*%7D", unordered=True)
    s.post("an annotation only, metric", "/api/uid/assign", {"metric": ["only"]})
    s.post("an annotation only", ONE, {"tsuid": "000003000001000001", "startTime": HOUR + 1, "description": "only"})
    s.get("a metric that has no points", f"/api/query?{span}&m=sum:only")
    s.get("a metric that has no points, globals", f"/api/query?{span}&m=sum:only&global_annotations")
    s.get("last", "/api/query/last?timeseries=sys.cpu%7Bhost=web01%7D&back_scan=24")
    s.cells("tsdb")


def tracking(s):
    a_series(s)
    s.post("POST a series without points", ONE, {"tsuid": "000001000001000002", "startTime": HOUR + 10, "description": "d"})
    s.post("POST", ONE, {"tsuid": SERIES, "startTime": HOUR + 10, "description": "d"})
    s.get("TSMeta", f"/api/uid/tsmeta?tsuid={SERIES}", until=lambda status, text: '"totalDatapoints":1' in text)
    s.cells("tsdb", "tsdb-meta")
