"""/api/search and all below it."""

from recorder import ALL, DEFAULTS

LOOKUP = "/api/search/lookup"
HOUR = 1356998400
TIME = ("time",)


def record(rig):
    for name, settings in (("lookup", ALL), ("untracked", {**DEFAULTS, "tsd.http.show_stack_trace": "false"})):
        with rig.section("search", name, settings) as section:
            lookup(section) if name == "lookup" else untracked(section)
    with rig.section("search", "others", ALL) as section:
        others(section)


def series(s):
    s.get("names", "/api/uid/assign?metric=sys.cpu,sys.mem,unused&tagk=host,dc,cpu,unusedk&tagv=web01,web02,lax,dal,0,unusedv")
    s.points("points", [
        ("sys.cpu", HOUR, 1, {"host": "web01"}),
        ("sys.cpu", HOUR, 1, {"host": "web02"}),
        ("sys.cpu", HOUR, 1, {"host": "web01", "dc": "lax"}),
        ("sys.cpu", HOUR, 1, {"host": "web02", "dc": "dal", "cpu": "0"}),
        ("sys.mem", HOUR, 1, {"host": "web01"}),
        ("sys.mem", HOUR + 3600, 1, {"host": "web01"}),
        ("sys.mem", HOUR, 1, {"dc": "lax"}),
    ])


def look_up(s, name, path, body=None, **options):
    if body is None:
        return s.get(name, path, mask=TIME, unordered=True, **options)
    return s.post(name, path, body, mask=TIME, unordered=True, **options)


def tags(*pairs):
    return [{"key": key, "value": value} for key, value in pairs]


def lookup(s):
    series(s)
    look_up(s, "all of a metric", f"{LOOKUP}?m=sys.cpu", until=lambda _, text: '"totalResults":4' in text)
    look_up(s, "all of another metric", f"{LOOKUP}?m=sys.mem", until=lambda _, text: '"totalResults":2' in text)
    s.cells("tsdb-meta")
    for name, query in (
        ("a metric and a tag", "m=sys.cpu%7Bhost=web01%7D"),
        ("a metric and a key", "m=sys.cpu%7Bhost=*%7D"),
        ("a metric and a key without value", "m=sys.cpu%7Bhost=%7D"),
        ("a metric and a value", "m=sys.cpu%7B*=web01%7D"),
        ("a metric and a value without key", "m=sys.cpu%7B=web01%7D"),
        ("two tags", "m=sys.cpu%7Bhost=web01,dc=lax%7D"),
        ("two tags in the other order", "m=sys.cpu%7Bdc=lax,host=web01%7D"),
        ("two tags, one a wildcard", "m=sys.cpu%7Bhost=*,dc=lax%7D"),
        ("two keys", "m=sys.cpu%7Bhost=*,dc=*%7D"),
        ("two values of a key", "m=sys.cpu%7Bhost=web01,host=web02%7D"),
        ("three tags", "m=sys.cpu%7Bhost=web02,dc=dal,cpu=0%7D"),
        ("all tags wildcards", "m=sys.cpu%7B*=*%7D"),
        ("empty braces", "m=sys.cpu%7B%7D"),
        ("a tag without metric", "m=%7Bhost=web01%7D"),
        ("a tag with a wildcard metric", "m=*%7Bhost=web01%7D"),
        ("a wildcard metric", "m=*"),
        ("a value without metric", "m=%7B*=lax%7D"),
        ("a key without metric", "m=%7Bdc=*%7D"),
        ("nothing matches", "m=sys.mem%7Bhost=web02%7D"),
        ("a metric without series", "m=unused"),
        ("a key without series", "m=sys.cpu%7Bunusedk=*%7D"),
        ("a value without series", "m=sys.cpu%7B*=unusedv%7D"),
        ("limit", "m=sys.cpu&limit=2"),
        ("limit 1", "m=sys.cpu&limit=1"),
        ("limit 0", "m=sys.cpu&limit=0"),
        ("a negative limit", "m=sys.cpu&limit=-1"),
        ("a large limit", "m=sys.cpu&limit=1000000"),
        ("a word as limit", "m=sys.cpu&limit=x"),
        ("start_index", "m=sys.cpu&start_index=1"),
        ("start_index and limit", "m=sys.cpu&start_index=1&limit=1"),
        ("startIndex", "m=sys.cpu&startIndex=1"),
        ("an unknown metric", "m=unknown"),
        ("an unknown key", "m=sys.cpu%7Bunknown=web01%7D"),
        ("an unknown value", "m=sys.cpu%7Bhost=unknown%7D"),
        ("an unknown key with a wildcard", "m=sys.cpu%7Bunknown=*%7D"),
        ("an unknown value with a wildcard", "m=sys.cpu%7B*=unknown%7D"),
        ("broken tags", "m=sys.cpu%7Bhost%7D"),
        ("an unclosed brace", "m=sys.cpu%7Bhost=web01"),
        ("alternatives", "m=sys.cpu%7Bhost=web01%7Cweb02%7D"),
        ("a metric with blanks", "m=sys%20cpu"),
        ("query instead of m", "query=sys.cpu"),
        ("an empty m", "m="),
        ("nothing", ""),
        ("use_meta=true", "m=sys.mem&use_meta=true"),
        ("use_meta=false", "m=sys.mem&use_meta=false"),
        ("useMeta=false", "m=sys.mem&useMeta=false"),
        ("use_meta=false, one tag", "m=sys.mem%7Bhost=web01%7D&use_meta=false"),
        ("use_meta=false, a value", "m=%7B*=lax%7D&use_meta=false"),
        ("use_meta=false, limit", "m=sys.cpu&use_meta=false&limit=1"),
    ):
        look_up(s, name, f"{LOOKUP}?{query}")
    for name, body in (
        ("POST a metric", {"metric": "sys.cpu"}),
        ("POST a metric and a tag", {"metric": "sys.cpu", "tags": tags(("host", "web01"))}),
        ("POST a tag", {"tags": tags(("host", "web01"))}),
        ("POST a key", {"metric": "sys.cpu", "tags": tags(("host", "*"))}),
        ("POST a key with null", {"metric": "sys.cpu", "tags": tags(("host", None))}),
        ("POST a value", {"metric": "sys.cpu", "tags": tags(("*", "web01"))}),
        ("POST a value with an empty key", {"metric": "sys.cpu", "tags": tags(("", "web01"))}),
        ("POST two tags", {"metric": "sys.cpu", "tags": tags(("host", "web01"), ("dc", "lax"))}),
        ("POST two values", {"metric": "sys.cpu", "tags": tags(("host", "web01"), ("host", "web02"))}),
        ("POST a wildcard metric", {"metric": "*", "tags": tags(("dc", "lax"))}),
        ("POST an empty metric", {"metric": "", "tags": tags(("dc", "lax"))}),
        ("POST no tags", {"metric": "sys.cpu", "tags": []}),
        ("POST null tags", {"metric": "sys.cpu", "tags": None}),
        ("POST limit", {"metric": "sys.cpu", "limit": 2}),
        ("POST limit and startIndex", {"metric": "sys.cpu", "limit": 2, "startIndex": 1}),
        ("POST limit 0", {"metric": "sys.cpu", "limit": 0}),
        ("POST useMeta", {"metric": "sys.mem", "useMeta": True}),
        ("POST useMeta false", {"metric": "sys.mem", "useMeta": False}),
        ("POST useMeta false and a tag", {"metric": "sys.cpu", "useMeta": False, "tags": tags(("host", "web01"))}),
        ("POST useMeta false and a value", {"useMeta": False, "tags": tags(("*", "lax"))}),
        ("POST an unknown metric", {"metric": "unknown"}),
        ("POST an unknown key", {"metric": "sys.cpu", "tags": tags(("unknown", "web01"))}),
        ("POST an unknown value", {"metric": "sys.cpu", "tags": tags(("host", "unknown"))}),
        ("POST an empty object", {}),
        ("POST an unknown field", {"metric": "sys.mem", "bogus": 1}),
        ("POST a type", {"type": "LOOKUP", "metric": "sys.mem"}),
        ("POST another type", {"type": "TSMETA", "metric": "sys.mem"}),
        ("POST a query", {"query": "sys.mem"}),
        ("POST tags as a map", {"metric": "sys.cpu", "tags": {"host": "web01"}}),
        ("POST an array", []),
        ("POST broken JSON", "{"),
        ("POST both wildcards", {"metric": "*", "tags": tags(("*", "*"))}),
    ):
        look_up(s, name, LOOKUP, body)
    s.post("POST without a body", LOOKUP)
    s.post("POST the query string", f"{LOOKUP}?m=sys.mem", mask=TIME, unordered=True)
    s.put("PUT", LOOKUP, {"metric": "sys.cpu"})
    s.delete("DELETE", f"{LOOKUP}?m=sys.cpu")
    look_up(s, "capital letters", "/api/search/LOOKUP?m=sys.mem")
    look_up(s, "version 1", "/api/v1/search/lookup?m=sys.mem")
    look_up(s, "method_override", f"{LOOKUP}?m=sys.mem&method_override=post")


def untracked(s):
    series(s)
    look_up(s, "from tsdb-meta", f"{LOOKUP}?m=sys.cpu")
    look_up(s, "POST from tsdb", LOOKUP, {"metric": "sys.cpu", "useMeta": False},
            until=lambda _, text: '"totalResults":4' in text)
    look_up(s, "from tsdb", f"{LOOKUP}?m=sys.cpu&use_meta=false")
    look_up(s, "a series with two rows", f"{LOOKUP}?m=sys.mem&use_meta=false")
    look_up(s, "a tag", f"{LOOKUP}?m=sys.cpu%7Bhost=web01%7D&use_meta=false")
    look_up(s, "a tag without metric", f"{LOOKUP}?m=%7Bhost=web01%7D&use_meta=false")
    look_up(s, "POST a series with two rows", LOOKUP, {"metric": "sys.mem", "useMeta": False})
    look_up(s, "POST a tag", LOOKUP, {"metric": "sys.cpu", "useMeta": False, "tags": tags(("host", "web01"))})
    look_up(s, "POST a tag without metric", LOOKUP, {"useMeta": False, "tags": tags(("host", "web01"))})
    look_up(s, "POST a limit", LOOKUP, {"metric": "sys.mem", "useMeta": False, "limit": 2})
    look_up(s, "POST from tsdb-meta", LOOKUP, {"metric": "sys.cpu", "useMeta": True})
    look_up(s, "POST without useMeta", LOOKUP, {"metric": "sys.cpu"})


def others(s):
    for kind in ("tsmeta", "tsmeta_summary", "tsuids", "uidmeta", "annotation"):
        s.get(kind, f"/api/search/{kind}?query=name:*")
        s.get(f"{kind} without a query", f"/api/search/{kind}")
        s.post(f"POST {kind}", f"/api/search/{kind}", {"query": "name:*", "limit": 4, "startIndex": 5})
        s.post(f"POST {kind}, broken JSON", f"/api/search/{kind}", "{")
        s.put(f"PUT {kind}", f"/api/search/{kind}", {"query": "name:*"})
    s.get("an unknown kind", "/api/search/bogus?query=x")
    s.post("POST an unknown kind", "/api/search/bogus", {"query": "x"})
    s.get("no kind", "/api/search")
    s.get("no kind, slash", "/api/search/")
    s.get("no kind, query", "/api/search?query=x")
    s.delete("DELETE", "/api/search/tsmeta?query=x")
    s.get("capital letters", "/api/search/TSMETA?query=x")
    s.get("below", "/api/search/tsmeta/bogus?query=x")
    s.get("a limit that is a word", "/api/search/tsmeta?query=x&limit=y")
