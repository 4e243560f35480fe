"""The small surfaces: configuration, caches, statistics, versions, CORS, methods, telnet."""

from recorder import ALL, DEFAULTS

HOUR = 1356998400
VERSION = ("short_revision", "repo", "host", "version", "full_revision", "repo_status", "user", "branch", "timestamp")


def record(rig):
    settings = {**DEFAULTS, "tsd.http.show_stack_trace": "false"}
    with rig.section("small", "pages", settings) as section:
        pages(section)
    with rig.section("small", "methods", settings) as section:
        methods(section)
    for name, domains in (
        ("cors_unset", None),
        ("cors_all", "*"),
        ("cors_list", "http://a.example.com,http://b.example.com:8080"),
    ):
        more = {} if domains is None else {"tsd.http.request.cors_domains": domains}
        with rig.section("small", name, {**settings, **more}) as section:
            cors(section)
    with rig.section("small", "stack_trace", {**DEFAULTS, "tsd.http.show_stack_trace": "true"}) as section:
        stack_trace(section)
    with rig.section("small", "telnet", ALL) as section:
        telnet(section)


def pages(s):
    s.get("names", "/api/uid/assign?metric=sys.cpu,sys.mem,other&tagk=host,dc&tagv=web01,web02")
    s.points("a point", [("sys.cpu", HOUR, 1, {"host": "web01"})])
    # Only some settings are the same everywhere: the test looks for these.
    s.get("config", "/api/config", mask=("tsd.http.cachedir", "tsd.http.staticroot", "tsd.network.port",
          "tsd.storage.hbase.zk_quorum", "tsd.network.bind", "tsd.storage.hbase.data_table",
          "tsd.storage.hbase.uid_table", "tsd.storage.hbase.tree_table", "tsd.storage.hbase.meta_table"))
    s.get("config filters", "/api/config/filters")
    s.get("below config", "/api/config/bogus", mask=("tsd.http.cachedir", "tsd.http.staticroot", "tsd.network.port",
          "tsd.storage.hbase.zk_quorum", "tsd.network.bind", "tsd.storage.hbase.data_table",
          "tsd.storage.hbase.uid_table", "tsd.storage.hbase.tree_table", "tsd.storage.hbase.meta_table"))
    s.get("dropcaches", "/api/dropcaches")
    s.delete("DELETE dropcaches", "/api/dropcaches")
    s.post("POST dropcaches", "/api/dropcaches", {})
    s.get("dropcaches without api", "/dropcaches")
    s.get("serializers", "/api/serializers")
    s.get("aggregators", "/api/aggregators", unordered=True)
    s.get("aggregators without api", "/aggregators", unordered=True)
    s.get("version", "/api/version", mask=VERSION)
    s.get("version without api", "/version", text_mask=(r"(?s).+",))
    s.get("version without api, json", "/version?json", mask=VERSION)
    s.get("suggest", "/api/suggest?type=metrics")
    s.get("suggest a prefix", "/api/suggest?type=metrics&q=sys")
    s.get("suggest max", "/api/suggest?type=metrics&q=sys&max=1")
    s.get("suggest without type", "/api/suggest?q=sys")
    s.get("suggest without api", "/suggest?type=metrics&q=sys")
    s.get("suggest without api, max", "/suggest?type=metrics&max=1")
    s.get("suggest tagk without api", "/suggest?type=tagk&q=")
    s.get("suggest without api and type", "/suggest?q=sys")
    s.get("suggest without api and type, json", "/suggest?q=sys&json")
    s.get("suggest without api, unknown type", "/suggest?type=bogus&q=sys")
    s.get("suggest without api, unknown type, json", "/suggest?type=bogus&q=sys&json")
    s.get("suggest without api, a word as max", "/suggest?type=metrics&q=sys&max=x&json")
    s.get("logs", "/logs")
    s.get("logs, json", "/logs?json")
    s.get("logs, level", "/logs?level=INFO")
    s.get("api logs", "/api/logs")
    s.get("stats", "/api/stats", each=True, mask=("value", "tags", "metric"))
    s.get("stats without api", "/stats", text_mask=(r"(?s)(?<=^tsd\.).+",))
    s.get("stats without api, json", "/stats?json", each=True)
    s.get("stats jvm", "/api/stats/jvm", mask=("memory", "os", "runtime", "pools", "gc", "collectors"))
    s.get("stats threads", "/api/stats/threads", each=True, mask=("threadID", "name", "state", "interrupted", "priority", "stack"))
    s.get("stats query", "/api/stats/query", mask=("completed", "running"))
    s.get("stats region_clients", "/api/stats/region_clients", each=True, mask=(
        "pendingBreached", "writesBlocked", "inflightBreached", "dead", "rpcsInFlight", "rpcsSent", "rpcResponsesUnknown",
        "pendingBatchedRPCs", "endpoint", "rpcResponsesTimedout", "rpcid", "rpcsTimedout", "pendingRPCs"))
    s.get("stats bogus", "/api/stats/bogus", each=True, mask=("value", "tags", "metric"))
    s.get("a query", f"/api/query?start={HOUR}&end={HOUR + 10}&m=sum:sys.cpu")
    s.get("stats query after a query", "/api/stats/query", mask=(
        "queryStartTimestamp", "queryCompletedTimestamp", "remote", "user", "stats", "headers", "executed"))
    s.get("home", "/", text_mask=(r"(?s).+",))
    s.get("unknown", "/bogus", text_mask=(r"(?s).+",))
    s.get("unknown api", "/api/bogus")
    s.get("api", "/api")
    s.get("api slash", "/api/")
    s.get("api v1", "/api/v1")
    s.get("api v2", "/api/v2/version")
    s.get("favicon", "/favicon.ico", text_mask=(r"(?s).+",))
    s.get("static", "/s/bogus.js", text_mask=(r"(?s).+",))


def methods(s):
    paths = (
        "/api/version", "/api/aggregators", "/api/config", "/api/config/filters", "/api/dropcaches", "/api/stats",
        "/api/stats/query", "/api/stats/jvm", "/api/stats/threads", "/api/stats/region_clients", "/api/suggest?type=metrics",
        "/api/put", "/api/query", "/api/query/last", "/api/query/exp", "/api/query/gexp", "/api/search/lookup?m=x",
        "/api/annotation?start_time=1", "/api/annotation/bulk", "/api/annotations?start_time=1", "/api/tree", "/api/tree/rule",
        "/api/tree/rules", "/api/tree/branch", "/api/tree/test", "/api/tree/collisions", "/api/tree/notmatched",
        "/api/uid/assign", "/api/uid/rename", "/api/uid/uidmeta", "/api/uid/tsmeta", "/api/serializers", "/api/rollup",
        "/api/histogram", "/version", "/aggregators", "/suggest?type=metrics", "/stats", "/logs", "/dropcaches", "/",
    )
    for method in ("HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"):
        for path in paths:
            # These shut nothing down, but their bodies are pages.
            page = not path.startswith("/api")
            s.send(f"{method} {path}", method, path, mask=VERSION, text_mask=(r"(?s).+",) if page else (),
                   unordered=path.endswith("aggregators"))
    s.get("HEAD is not GET", "/api/aggregators", unordered=True)


def cors(s):
    for origin in ("http://a.example.com", "http://b.example.com:8080", "HTTP://A.EXAMPLE.COM", "http://c.example.com", "null", ""):
        headers = {"Origin": origin}
        s.get(f"GET from {origin or 'nowhere'}", "/api/version", headers=headers, mask=VERSION)
        s.send(f"OPTIONS from {origin or 'nowhere'}", "OPTIONS", "/api/version", headers=headers)
        s.post(f"POST from {origin or 'nowhere'}", "/api/uid/assign", {"metric": []}, headers=headers)
    preflight = {"Origin": "http://a.example.com", "Access-Control-Request-Method": "POST",
                 "Access-Control-Request-Headers": "content-type"}
    s.send("preflight", "OPTIONS", "/api/query", headers=preflight)
    s.send("preflight of an unknown path", "OPTIONS", "/api/bogus", headers=preflight)
    s.send("preflight without api", "OPTIONS", "/suggest", headers=preflight)
    s.send("OPTIONS without an origin", "OPTIONS", "/api/query")
    s.get("GET without an origin", "/api/version", mask=VERSION)
    s.get("an error with an origin", "/api/suggest", headers={"Origin": "http://a.example.com"})
    s.get("an unknown path with an origin", "/api/bogus", headers={"Origin": "http://a.example.com"})
    s.send("PUT with an origin", "PUT", "/api/version", headers={"Origin": "http://a.example.com"})


def stack_trace(s):
    s.get("a bad request", "/api/uid/assign", mask=("trace",))
    s.get("an exception", "/api/uid/uidmeta?uid=01&type=metric", mask=("trace",))
    s.get("not found", "/api/tree?treeid=9", mask=("trace",))
    s.get("unknown", "/api/bogus", mask=("trace",))
    s.put("a wrong method", "/api/version", mask=("trace",))
    s.post("broken JSON", "/api/tree", "{", mask=("trace",))


def telnet(s):
    s.telnet("version", "version", 2, text_mask=(r"(?s).+",))
    s.telnet("version with arguments", "version x y", 2, text_mask=(r"(?s).+",))
    s.telnet("dropcaches", "dropcaches")
    s.telnet("dropcaches with arguments", "dropcaches x")
    s.telnet("stats", "stats", 10, text_mask=(r"(?s).+",))
    s.telnet("help", "help", 2)
    s.telnet("help with arguments", "help put", 2)
    s.telnet("unknown", "bogus")
    s.telnet("an empty line", "")
    s.telnet("capital letters", "VERSION")
    s.telnet("blanks before", "  version")
    s.telnet("exit", "exit")
    s.telnet("annotation is no command", "annotation x")
    s.telnet("suggest is no command", "suggest metrics")
    s.get("diediedie by POST", "/api/version", mask=VERSION)
    s.telnet("diediedie", "diediedie", 1)
