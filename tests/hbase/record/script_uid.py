"""/api/uid and all below it."""

from recorder import ALL, DEFAULTS

UIDMETA = "/api/uid/uidmeta"
TSMETA = "/api/uid/tsmeta"
HOUR = 1356998400


def ok(status, _):
    return status == 200


def missing(status, _):
    return status == 404


def record(rig):
    for step in (assign, assign_errors, rename, uidmeta, uidmeta_defaults, tsmeta, tsmeta_many, tsmeta_defaults):
        name = step.__name__
        settings = DEFAULTS if name.endswith("_defaults") else ALL
        if name.endswith("_defaults"):
            settings = {**settings, "tsd.http.show_stack_trace": "false"}
        with rig.section("uid", name, settings) as section:
            step(section)


def assign(s):
    path = "/api/uid/assign"
    s.get("a metric", f"{path}?metric=sys.cpu")
    s.get("one of each kind", f"{path}?metric=sys.mem&tagk=host&tagv=web01")
    s.get("several", f"{path}?metric=c,a,b&tagk=z,y")
    s.get("a known name", f"{path}?metric=sys.cpu")
    s.get("known and new names", f"{path}?metric=sys.cpu,d,sys.mem,e")
    s.get("a name twice", f"{path}?metric=twice,twice")
    s.get("names of both kinds known", f"{path}?metric=a&tagk=host")
    s.get("an illegal name", f"{path}?metric=sys%20cpu")
    s.get("an illegal and a good name", f"{path}?tagv=b%24d,good")
    s.get("latin-1", f"{path}?tagv=%C3%A9t%C3%A9")
    s.get("not latin-1", f"{path}?tagv=%E2%82%AC")
    s.get("empty between commas", f"{path}?metric=f,,g")
    s.get("a comma at the end", f"{path}?metric=h,")
    s.get("no value", f"{path}?metric=")
    s.get("blanks", f"{path}?metric=%20")
    s.get("version 1", "/api/v1/uid/assign?metric=v1")
    s.get("trailing slash", "/api/uid/assign/?metric=slash")
    s.get("capital letters", "/API/UID/Assign?metric=capital")
    s.post("POST a metric", path, {"metric": ["p1"]})
    s.post("POST all kinds", path, {"metric": ["p2", "p1"], "tagk": ["pk"], "tagv": ["pv", "pv2"]})
    s.post("POST an empty list", path, {"metric": []})
    s.post("POST an empty list and a name", path, {"metric": [], "tagk": ["pk3"]})
    s.post("POST an empty name", path, {"metric": [""]})
    s.post("POST illegal names", path, {"metric": ["a b", "ok"], "tagk": ["<x>"]})
    s.post("POST a null name", path, {"tagv": [None]})
    s.post("POST null", path, {"tagv": None})
    s.post("POST plural kinds", path, {"metrics": ["x"]})
    s.post("method_override is not honoured", f"{path}?metric=m1&method_override=post")
    s.cells("tsdb-uid")


def assign_errors(s):
    path = "/api/uid/assign"
    s.get("nothing", path)
    s.get("an unknown kind", f"{path}?measurement=x")
    s.get("kind in the plural", f"{path}?metrics=x")
    s.post("POST without a body", path)
    s.post("POST an empty body", path, "")
    s.post("POST an empty object", path, {})
    s.post("POST broken JSON", path, '{"metric":["a"')
    s.post("POST an array", path, ["a"])
    s.post("POST a string in place of a list", path, {"metric": "a"})
    s.post("POST a number in place of a list", path, {"metric": 1})
    s.post("POST an unknown kind", path, {"measurement": ["x"]})
    s.post("POST an unknown kind beside a known one", path, {"metric": ["k1"], "measurement": ["x"]})
    s.put("PUT", f"{path}?metric=a", {"metric": ["a"]})
    s.delete("DELETE", f"{path}?metric=a")
    s.get("nothing below uid", "/api/uid")
    s.get("nothing below uid, slash", "/api/uid/")
    s.get("unknown below uid", "/api/uid/bogus")
    s.get("delete below uid", "/api/uid/delete?metric=a")
    s.post("POST unknown below uid", "/api/uid/bogus", {})
    s.get("more below assign", f"{path}/more?metric=below")
    s.get("version 2", "/api/v2/uid/assign?metric=v2")
    s.get("version in letters", "/api/v1x/uid/assign?metric=v2")
    s.get("jsonp", f"{path}?metric=jsonp&jsonp=callback")
    s.get("an unknown serializer", f"{path}?metric=serializer&serializer=bogus")
    s.get("the serializer", f"{path}?metric=serializer2&serializer=json")
    s.cells("tsdb-uid")


def rename(s):
    path = "/api/uid/rename"
    s.get("names", "/api/uid/assign?metric=m1,m2,m3&tagk=k1,k2&tagv=v1,v2,v3")
    s.get("a metric", f"{path}?metric=m1&name=m1.new")
    s.get("back", f"{path}?metric=m1.new&name=m1")
    s.get("a tag key", f"{path}?tagk=k1&name=k1.new")
    s.get("a tag value", f"{path}?tagv=v1&name=v1.new")
    s.get("to itself", f"{path}?metric=m1&name=m1")
    s.get("to a taken name", f"{path}?metric=m1&name=m2")
    s.get("of an unknown name", f"{path}?metric=unknown&name=x")
    s.get("to an illegal name", f"{path}?metric=m1&name=a%20b")
    s.get("to an empty name", f"{path}?metric=m1&name=")
    s.get("without a name", f"{path}?metric=m1")
    s.get("without a kind", f"{path}?name=x")
    s.get("nothing", path)
    s.get("two kinds", f"{path}?metric=m3&tagk=k2&name=two")
    s.get("an unknown kind", f"{path}?measurement=m1&name=x")
    s.get("an unknown argument", f"{path}?metric=m3&name=m3.new&bogus=1")
    s.get("to a name of another kind", f"{path}?tagv=v2&name=m2")
    s.post("POST", path, {"metric": "m2", "name": "m2.new"})
    s.post("POST to a taken name", path, {"metric": "m2.new", "name": "m1"})
    s.post("POST of an unknown name", path, {"tagv": "unknown", "name": "x"})
    s.post("POST without a name", path, {"metric": "m1"})
    s.post("POST without a kind", path, {"name": "x"})
    s.post("POST an empty object", path, {})
    s.post("POST broken JSON", path, "{")
    s.post("POST without a body", path)
    s.post("POST a list", path, {"metric": ["m1"], "name": "x"})
    s.post("POST a null", path, {"metric": None, "name": "x"})
    s.post("POST an unknown kind", path, {"measurement": "m1", "name": "x"})
    s.put("PUT", path, {"metric": "m1", "name": "x"})
    s.delete("DELETE", f"{path}?metric=m1&name=x")
    s.get("the old name is assigned anew", "/api/uid/assign?metric=m2")
    s.get("the old name is suggested no more", "/api/suggest?type=tagv&q=v1")
    s.cells("tsdb-uid")


def uidmeta(s):
    s.get("names", "/api/uid/assign?metric=sys.cpu,sys.mem&tagk=host&tagv=web01,web02")
    m1 = f"{UIDMETA}?uid=000001&type=metric"
    s.get("GET what was assigned", m1, until=lambda status, text: '"created":0' not in text)
    s.get("GET a tag key", f"{UIDMETA}?uid=000001&type=tagk", until=lambda status, text: '"created":0' not in text)
    s.get("GET a tag value", f"{UIDMETA}?uid=000001&type=TAGV", until=lambda status, text: '"created":0' not in text)
    s.get("type in the plural", f"{UIDMETA}?uid=000001&type=metrics")
    s.get("type in capitals", f"{UIDMETA}?uid=000001&type=METRIC")
    s.get("an unknown type", f"{UIDMETA}?uid=000001&type=measurement")
    s.get("an empty type", f"{UIDMETA}?uid=000001&type=")
    s.get("no type", f"{UIDMETA}?uid=000001")
    s.get("no uid", f"{UIDMETA}?type=metric")
    s.get("an empty uid", f"{UIDMETA}?uid=&type=metric")
    s.get("nothing", UIDMETA)
    s.get("an unknown uid", f"{UIDMETA}?uid=0000FF&type=metric")
    s.get("a short uid", f"{UIDMETA}?uid=01&type=metric")
    s.get("an odd uid", f"{UIDMETA}?uid=00001&type=metric")
    s.get("a long uid", f"{UIDMETA}?uid=00000001&type=metric")
    s.get("a uid that is not hex", f"{UIDMETA}?uid=00000G&type=metric")
    s.get("a uid in small letters", f"{UIDMETA}?uid=0000ff&type=metric")
    s.cells("tsdb-uid")

    s.post("POST a display name", UIDMETA, {"uid": "000001", "type": "metric", "displayName": "CPU"})
    s.post("POST it again", UIDMETA, {"uid": "000001", "type": "metric", "displayName": "CPU"})
    s.post("POST nothing", UIDMETA, {"uid": "000001", "type": "metric"})
    s.post("POST notes and description", UIDMETA,
           {"uid": "000001", "type": "metric", "notes": "n é €", "description": "d \"quoted\" \\ / <tag> \n"})
    s.get("GET after POST", m1)
    s.cells("tsdb-uid")
    s.post("POST custom", UIDMETA, {
        "uid": "000001", "type": "metric",
        "custom": {"owner": "Jane", "department": "Ops", "z": "1", "a": "2", "mm": "3"}})
    s.get("GET custom", m1)
    s.post("POST the same custom in another order", UIDMETA, {
        "uid": "000001", "type": "metric",
        "custom": {"a": "2", "z": "1", "mm": "3", "department": "Ops", "owner": "Jane"}})
    s.post("POST other custom", UIDMETA, {"uid": "000001", "type": "metric", "custom": {"one": "1"}})
    s.post("POST many custom", UIDMETA, {
        "uid": "000001", "type": "metric", "custom": {f"key{n}": str(n) for n in range(30)}})
    s.post("POST colliding custom", UIDMETA, {
        "uid": "000001", "type": "metric", "custom": {"BB": "1", "Aa": "2", "C#": "3", "é": "4", "€": "5", "": "6"}})
    s.cells("tsdb-uid")
    s.post("POST an empty custom", UIDMETA, {"uid": "000001", "type": "metric", "custom": {}})
    s.post("POST a null custom", UIDMETA, {"uid": "000001", "type": "metric", "custom": None})
    s.post("POST created", UIDMETA, {"uid": "000001", "type": "metric", "created": 1300000000})
    s.post("POST a later created", UIDMETA, {"uid": "000001", "type": "metric", "created": 1400000000, "notes": "x"})
    s.post("POST created in ms", UIDMETA, {"uid": "000001", "type": "metric", "created": 1300000000000})
    s.post("POST a name", UIDMETA, {"uid": "000001", "type": "metric", "name": "other"})
    s.post("POST an unknown field", UIDMETA, {"uid": "000001", "type": "metric", "bogus": "x"})
    s.post("POST an unknown field and a change", UIDMETA,
           {"uid": "000001", "type": "metric", "bogus": "x", "notes": "with bogus"})
    s.post("POST an empty display name", UIDMETA, {"uid": "000001", "type": "metric", "displayName": ""})
    s.post("POST display_name in the body", UIDMETA, {"uid": "000001", "type": "metric", "display_name": "x"})
    s.post("POST null notes", UIDMETA, {"uid": "000001", "type": "metric", "notes": None})
    s.cells("tsdb-uid")
    s.put("PUT notes", UIDMETA, {"uid": "000001", "type": "metric", "notes": "put"})
    s.put("PUT it again", UIDMETA, {"uid": "000001", "type": "metric", "notes": "put"})
    s.put("PUT nothing", UIDMETA, {"uid": "000001", "type": "metric"})
    s.put("PUT nothing again", UIDMETA, {"uid": "000001", "type": "metric"})
    s.put("PUT all", UIDMETA, {
        "uid": "000001", "type": "METRIC", "displayName": "D", "description": "de", "notes": "no",
        "created": 1310000000, "custom": {"k": "v"}})
    s.put("PUT a name", UIDMETA, {"uid": "000001", "type": "metric", "name": "other", "notes": "named"})
    s.get("GET after PUT", m1)
    s.cells("tsdb-uid")

    s.post("POST no uid", UIDMETA, {"type": "metric", "notes": "x"})
    s.post("POST no type", UIDMETA, {"uid": "000001", "notes": "x"})
    s.post("POST an unknown type", UIDMETA, {"uid": "000001", "type": "bogus", "notes": "x"})
    s.post("POST an unknown uid", UIDMETA, {"uid": "0000FF", "type": "metric", "notes": "x"})
    s.post("POST a short uid", UIDMETA, {"uid": "01", "type": "metric", "notes": "x"})
    s.post("POST an empty object", UIDMETA, {})
    s.post("POST broken JSON", UIDMETA, '{"uid":')
    s.post("POST an array", UIDMETA, [])
    s.post("POST without a body", UIDMETA)
    s.post("POST a number as notes", UIDMETA, {"uid": "000002", "type": "metric", "notes": 5})
    s.post("POST a list as custom", UIDMETA, {"uid": "000002", "type": "metric", "custom": ["x"]})
    s.post("POST numbers in custom", UIDMETA, {"uid": "000002", "type": "metric", "custom": {"a": 1, "b": True, "c": None}})
    s.post("POST an object in custom", UIDMETA, {"uid": "000002", "type": "metric", "custom": {"a": {}}})
    s.put("PUT an unknown uid", UIDMETA, {"uid": "0000FF", "type": "metric", "notes": "x"})
    s.put("PUT no uid", UIDMETA, {"type": "metric", "notes": "x"})
    s.post("POST the query string", f"{UIDMETA}?uid=000002&type=metric&notes=q")
    s.get("GET with method_override=post", f"{UIDMETA}?uid=000002&type=metric&display_name=q1&description=q2&notes=q3"
          "&method_override=post")
    s.get("again", f"{UIDMETA}?uid=000002&type=metric&display_name=q1&method_override=post")
    s.get("GET with method_override=put", f"{UIDMETA}?uid=000002&type=metric&notes=q4&method_override=put")
    s.get("created in the query string", f"{UIDMETA}?uid=000002&type=metric&created=1320000000&method_override=post")
    s.get("created that is no number", f"{UIDMETA}?uid=000002&type=metric&created=x&method_override=post")
    s.get("custom in the query string", f"{UIDMETA}?uid=000002&type=metric&custom=x&method_override=post")
    s.get("an unknown method_override", f"{UIDMETA}?uid=000002&type=metric&method_override=patch")
    s.get("method_override without a value", f"{UIDMETA}?uid=000002&type=metric&method_override=")
    s.post("method_override on POST", f"{UIDMETA}?method_override=delete", {"uid": "000002", "type": "metric", "notes": "n"})
    s.cells("tsdb-uid")
    s.delete("DELETE", f"{UIDMETA}?uid=000001&type=metric")
    s.get("GET after DELETE", m1, until=lambda _, text: '"notes":""' in text)
    s.delete("DELETE again", f"{UIDMETA}?uid=000001&type=metric")
    s.delete("DELETE by body", UIDMETA, {"uid": "000002", "type": "metric"})
    s.get("GET after DELETE by body", f"{UIDMETA}?uid=000002&type=metric", until=lambda _, text: '"notes":""' in text)
    s.delete("DELETE an unknown uid", f"{UIDMETA}?uid=0000FF&type=metric")
    s.delete("DELETE a short uid", f"{UIDMETA}?uid=01&type=metric")
    s.delete("DELETE nothing", UIDMETA)
    s.get("GET with method_override=delete", f"{UIDMETA}?uid=000001&type=tagk&method_override=delete")
    s.get("GET after method_override=delete", f"{UIDMETA}?uid=000001&type=tagk", until=lambda _, text: '"created":0' in text)
    s.post("POST after DELETE", UIDMETA, {"uid": "000001", "type": "metric", "notes": "anew"})
    s.put("PUT after DELETE", UIDMETA, {"uid": "000002", "type": "metric", "notes": "anew"})
    s.cells("tsdb-uid")
    s.get("a rename", "/api/uid/rename?metric=sys.cpu&name=sys.cpu.new")
    s.get("GET after a rename", m1)
    s.send("PATCH", "PATCH", m1)


def uidmeta_defaults(s):
    s.get("names", "/api/uid/assign?metric=sys.cpu,sys.mem&tagk=host&tagv=web01")
    s.get("GET what is not stored", f"{UIDMETA}?uid=000001&type=metric")
    s.post("POST nothing", UIDMETA, {"uid": "000001", "type": "metric"})
    s.post("POST notes", UIDMETA, {"uid": "000001", "type": "metric", "notes": "n"})
    s.put("PUT notes", UIDMETA, {"uid": "000002", "type": "metric", "notes": "n"})
    s.put("PUT a tag value", UIDMETA, {"uid": "000001", "type": "tagv"})
    s.get("GET", f"{UIDMETA}?uid=000001&type=metric")
    s.cells("tsdb-uid")


SERIES = "000001000001000001"


def tsmeta(s):
    s.points("a point", [("sys.cpu", HOUR, 1, {"host": "web01"})])
    s.get("GET", f"{TSMETA}?tsuid={SERIES}", until=lambda status, text: status == 200 and '"totalDatapoints":1' in text)
    s.points("another", [("sys.cpu", HOUR + 1, 2, {"host": "web01"})])
    s.get("GET the second count", f"{TSMETA}?tsuid={SERIES}", until=lambda _, text: '"totalDatapoints":2' in text)
    s.cells("tsdb-meta", "tsdb-uid")
    s.get("small letters", f"{TSMETA}?tsuid={SERIES.lower()}")
    s.get("by metric and tags", f"{TSMETA}?m=sys.cpu%7Bhost=web01%7D")
    s.get("by metric", f"{TSMETA}?m=sys.cpu")
    s.get("by metric and a wildcard", f"{TSMETA}?m=sys.cpu%7Bhost=*%7D")
    s.post("POST", TSMETA, {"tsuid": SERIES, "displayName": "D", "units": "pct"})
    s.post("POST again", TSMETA, {"tsuid": SERIES, "displayName": "D", "units": "pct"})
    s.post("POST nothing", TSMETA, {"tsuid": SERIES})
    s.post("POST all", TSMETA, {
        "tsuid": SERIES, "displayName": "D2", "description": "de é €", "notes": "no", "created": 1300000000,
        "custom": {"owner": "Jane", "department": "Ops", "z": "1", "a": "2", "mm": "3"},
        "units": "ms", "dataType": "counter", "retention": 30, "max": 100, "min": -1.5})
    s.cells("tsdb-meta")
    s.get("GET all", f"{TSMETA}?tsuid={SERIES}")
    s.post("POST numbers", TSMETA, {"tsuid": SERIES, "max": 1e10, "min": 1e-5})
    s.post("POST more numbers", TSMETA, {"tsuid": SERIES, "max": 12345678.5, "min": 0.1})
    s.cells("tsdb-meta")
    s.post("POST NaN", TSMETA, {"tsuid": SERIES, "max": "NaN", "min": "Infinity"})
    s.post("POST numbers as texts", TSMETA, {"tsuid": SERIES, "max": "5.5", "retention": "7"})
    s.post("POST a word as a number", TSMETA, {"tsuid": SERIES, "max": "high"})
    s.post("POST a negative retention", TSMETA, {"tsuid": SERIES, "retention": -1})
    s.post("POST a fraction as retention", TSMETA, {"tsuid": SERIES, "retention": 1.9})
    s.post("POST totalDatapoints", TSMETA, {"tsuid": SERIES, "totalDatapoints": 77, "lastReceived": 5})
    s.post("POST nested metadata", TSMETA, {"tsuid": SERIES, "notes": "nested", "metric": {"uid": "000001", "type": "METRIC", "notes": "x"}})
    s.post("POST an unknown field", TSMETA, {"tsuid": SERIES, "bogus": 1})
    s.post("POST an empty custom", TSMETA, {"tsuid": SERIES, "custom": {}})
    s.cells("tsdb-meta")
    s.put("PUT", TSMETA, {"tsuid": SERIES, "notes": "put"})
    s.put("PUT again", TSMETA, {"tsuid": SERIES, "notes": "put"})
    s.put("PUT nothing", TSMETA, {"tsuid": SERIES})
    s.cells("tsdb-meta")
    s.get("GET with method_override=post", f"{TSMETA}?tsuid={SERIES}&display_name=q1&description=q2&notes=q3&units=q4"
          "&data_type=q5&retention=9&max=1.5&min=-3&created=1310000000&method_override=post")
    s.get("GET with method_override=put", f"{TSMETA}?tsuid={SERIES}&notes=q6&method_override=put")
    s.get("a word as retention", f"{TSMETA}?tsuid={SERIES}&retention=x&method_override=post")
    s.get("a word as max", f"{TSMETA}?tsuid={SERIES}&max=x&method_override=post")
    s.cells("tsdb-meta")

    s.get("nothing", TSMETA)
    s.get("an empty tsuid", f"{TSMETA}?tsuid=")
    s.get("an unknown tsuid", f"{TSMETA}?tsuid=000001000001000009")
    s.get("an unknown metric in a tsuid", f"{TSMETA}?tsuid=000009000001000001")
    s.get("a short tsuid", f"{TSMETA}?tsuid=000001")
    s.get("an odd tsuid", f"{TSMETA}?tsuid=00000100000100000")
    s.get("a tsuid that is not hex", f"{TSMETA}?tsuid=00000100000100000G")
    s.get("an unknown metric", f"{TSMETA}?m=unknown%7Bhost=web01%7D")
    s.get("an unknown tag value", f"{TSMETA}?m=sys.cpu%7Bhost=unknown%7D")
    s.get("an unknown tag key", f"{TSMETA}?m=sys.cpu%7Bunknown=web01%7D")
    s.get("broken tags", f"{TSMETA}?m=sys.cpu%7Bhost%7D")
    s.get("an unclosed brace", f"{TSMETA}?m=sys.cpu%7Bhost=web01")
    s.get("an empty m", f"{TSMETA}?m=")
    s.post("POST an unknown tsuid", TSMETA, {"tsuid": "000001000001000009", "notes": "x"})
    s.post("POST an unknown metric", TSMETA, {"tsuid": "000009000001000001", "notes": "x"})
    s.post("POST no tsuid", TSMETA, {"notes": "x"})
    s.post("POST an empty object", TSMETA, {})
    s.post("POST broken JSON", TSMETA, "{")
    s.post("POST an array", TSMETA, [])
    s.post("POST without a body", TSMETA)
    s.post("POST a short tsuid", TSMETA, {"tsuid": "000001", "notes": "x"})
    s.put("PUT an unknown tsuid", TSMETA, {"tsuid": "000001000001000009", "notes": "x"})
    s.send("PATCH", "PATCH", f"{TSMETA}?tsuid={SERIES}")

    s.get("names without points", "/api/uid/assign?metric=sys.new&tagv=web09")
    new = "000002000001000002"
    s.post("POST a series without metadata", TSMETA, {"tsuid": new, "notes": "x"})
    s.post("POST m without create", f"{TSMETA}?m=sys.new%7Bhost=web09%7D", {"notes": "x"})
    s.post("POST m with create=false", f"{TSMETA}?m=sys.new%7Bhost=web09%7D&create=false", {"notes": "x"})
    s.post("POST m with create=true", f"{TSMETA}?m=sys.new%7Bhost=web09%7D&create=true", {"notes": "made"})
    s.get("GET the created", f"{TSMETA}?tsuid={new}")
    s.cells("tsdb-meta")
    s.post("POST m with create=true again", f"{TSMETA}?m=sys.new%7Bhost=web09%7D&create=true", {"notes": "again"})
    s.post("POST m, no create, existing", f"{TSMETA}?m=sys.cpu%7Bhost=web01%7D", {"units": "by m"})
    s.post("POST m, unchanged", f"{TSMETA}?m=sys.cpu%7Bhost=web01%7D", {"units": "by m"})
    s.post("POST m, unknown metric", f"{TSMETA}?m=unknown%7Bhost=web01%7D&create=true", {"notes": "x"})
    s.post("POST m with a wildcard", f"{TSMETA}?m=sys.cpu%7Bhost=*%7D&create=true", {"notes": "x"})
    s.get("GET m with method_override and create", f"{TSMETA}?m=sys.new%7Bhost=web01%7D&create=true&method_override=post&notes=q")
    s.put("PUT m", f"{TSMETA}?m=sys.cpu%7Bhost=web01%7D", {"units": "put by m"})
    s.put("PUT m with create", f"{TSMETA}?m=sys.cpu%7Bhost=web09%7D&create=true", {"notes": "put"})
    s.cells("tsdb-meta")
    s.delete("DELETE", f"{TSMETA}?tsuid={new}")
    s.get("GET after DELETE", f"{TSMETA}?tsuid={new}", until=missing)
    s.delete("DELETE again", f"{TSMETA}?tsuid={new}")
    s.delete("DELETE by body", TSMETA, {"tsuid": SERIES})
    s.get("GET after DELETE by body", f"{TSMETA}?tsuid={SERIES}", until=missing)
    s.delete("DELETE an unknown tsuid", f"{TSMETA}?tsuid=000001000001000009")
    s.delete("DELETE nothing", TSMETA)
    s.delete("DELETE by m", f"{TSMETA}?m=sys.new%7Bhost=web01%7D")
    s.get("GET with method_override=delete", f"{TSMETA}?tsuid={new}&method_override=delete")
    s.post("POST after DELETE", TSMETA, {"tsuid": SERIES, "notes": "x"})
    s.cells("tsdb-meta")


def tsmeta_many(s):
    hosts = [("sys.cpu", HOUR, 1, {"host": f"web0{n}"}) for n in (1, 2, 3)]
    s.points("points of three hosts", hosts)
    s.points("points", [("sys.cpu", HOUR, 1, {"host": "web01", "cpu": "0"}), ("sys.mem", HOUR, 1, {"cpu": "0"})])
    for tsuid in ("000001000001000001", "000001000001000002", "000001000001000003", "000002000002000004"):
        s.get(f"GET {tsuid}", f"{TSMETA}?tsuid={tsuid}", until=ok)
    s.get("GET two tags", f"{TSMETA}?tsuid=000001000001000001000002000004", until=ok)
    s.cells("tsdb-meta", "tsdb-uid")
    s.get("all of a metric", f"{TSMETA}?m=sys.cpu", until=lambda _, text: text.count("tsuid") == 4)
    s.get("one host", f"{TSMETA}?m=sys.cpu%7Bhost=web01%7D")
    s.get("a wildcard", f"{TSMETA}?m=sys.cpu%7Bhost=*%7D")
    s.get("alternatives", f"{TSMETA}?m=sys.cpu%7Bhost=web01%7Cweb02%7D")
    s.get("two tags", f"{TSMETA}?m=sys.cpu%7Bhost=web01,cpu=0%7D")
    s.get("two tags, one a wildcard", f"{TSMETA}?m=sys.cpu%7Bhost=*,cpu=0%7D")
    s.get("no match", f"{TSMETA}?m=sys.mem%7Bhost=web01%7D")
    s.get("empty braces", f"{TSMETA}?m=sys.mem%7B%7D")
    s.post("UIDMeta of a tag value", UIDMETA, {"uid": "000001", "type": "tagv", "displayName": "Web 1", "custom": {"a": "b"}})
    s.get("GET shows UIDMeta", f"{TSMETA}?tsuid=000001000001000001")


def tsmeta_defaults(s):
    s.get("names", "/api/uid/assign?metric=sys.cpu&tagk=host&tagv=web01")
    s.points("a point", [("sys.cpu", HOUR, 1, {"host": "web01"})])
    s.get("GET", f"{TSMETA}?tsuid={SERIES}")
    s.get("GET by m", f"{TSMETA}?m=sys.cpu%7Bhost=web01%7D")
    s.post("POST", TSMETA, {"tsuid": SERIES, "notes": "x"})
    s.post("POST m with create=true", f"{TSMETA}?m=sys.cpu%7Bhost=web01%7D&create=true", {"notes": "made"})
    s.get("GET the created", f"{TSMETA}?tsuid={SERIES}")
    s.post("POST to the created", TSMETA, {"tsuid": SERIES, "notes": "edited", "max": 2})
    s.cells("tsdb-meta", "tsdb-uid", "tsdb")
