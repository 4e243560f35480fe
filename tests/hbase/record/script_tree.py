"""/api/tree and all below it."""

from recorder import ALL, missing, ok

TREE = "/api/tree"
RULE = "/api/tree/rule"
RULES = "/api/tree/rules"
BRANCH = "/api/tree/branch"
TEST = "/api/tree/test"
COLLISIONS = "/api/tree/collisions"
NOT_MATCHED = "/api/tree/notmatched"
TSMETA = "/api/uid/tsmeta"
HOUR = 1356998400


def record(rig):
    for step in (definitions, rules, rule_sets, branches, forms, one_level, failures, errors):
        with rig.section("tree", step.__name__, ALL) as section:
            step(section)
    off = {**ALL, "tsd.core.tree.enable_processing": "false"}
    with rig.section("tree", "processing_off", off) as section:
        processing_off(section)


def definitions(s):
    s.get("no trees", TREE)
    s.post("POST", TREE, {"name": "By DC", "description": "d é", "notes": "n"})
    s.get("GET all", TREE)
    s.get("GET one", f"{TREE}?treeid=1")
    s.post("POST a second", TREE, {"name": "Second", "enabled": True, "strictMatch": True, "storeFailures": True})
    s.post("POST the same name", TREE, {"name": "By DC"})
    s.get("GET all of three", TREE)
    s.cells("tsdb-tree")
    s.post("POST edits", TREE, {"treeId": 1, "notes": "edited"})
    s.post("POST edits nothing", TREE, {"treeId": 1, "notes": "edited"})
    s.post("POST only the ID", TREE, {"treeId": 1})
    s.post("POST flags", TREE, {"treeId": 1, "enabled": True, "strictMatch": True, "storeFailures": True})
    s.post("POST flags off", TREE, {"treeId": 1, "strictMatch": False})
    s.post("POST created", TREE, {"treeId": 1, "created": 1300000000})
    s.post("POST rules within", TREE, {"treeId": 1, "description": "with rules", "rules": {"0": {"0": {
        "treeId": 1, "level": 0, "order": 0, "type": "METRIC"}}}})
    s.post("POST an unknown field", TREE, {"treeId": 1, "bogus": 1, "notes": "bogus"})
    s.cells("tsdb-tree")
    s.put("PUT", TREE, {"treeId": 1, "name": "Put", "description": "p"})
    s.put("PUT again", TREE, {"treeId": 1, "name": "Put", "description": "p"})
    s.put("PUT without a name", TREE, {"treeId": 1, "notes": "no name"})
    s.put("PUT a new tree", TREE, {"name": "Fourth"})
    s.get("GET after PUT", f"{TREE}?treeid=1")
    s.cells("tsdb-tree")
    s.get("method_override=post creates", f"{TREE}?name=Query&description=q&notes=n&enabled=true&strict_match=true"
          "&store_failures=true&method_override=post")
    s.get("method_override=post edits", f"{TREE}?treeid=2&description=edited&method_override=post")
    s.get("method_override=post edits nothing", f"{TREE}?treeid=2&description=edited&method_override=post")
    s.get("method_override=put", f"{TREE}?treeid=2&name=Q2&method_override=put")
    s.get("a flag that is a word", f"{TREE}?treeid=2&enabled=maybe&method_override=post")
    s.get("a flag that is 1", f"{TREE}?treeid=2&enabled=1&method_override=post")
    s.post("POST the query string", f"{TREE}?treeid=2&notes=posted")
    s.get("GET all of five", TREE)
    s.cells("tsdb-tree")
    s.delete("DELETE without definition", f"{TREE}?treeid=1")
    s.get("GET after DELETE", f"{TREE}?treeid=1")
    s.delete("DELETE with definition=false", f"{TREE}?treeid=1&definition=false")
    s.delete("DELETE with definition", f"{TREE}?treeid=1&definition=true")
    s.get("GET after DELETE with definition", f"{TREE}?treeid=1", until=missing)
    s.delete("DELETE by body", TREE, {"treeId": 2, "definition": True})
    s.get("GET after DELETE by body", f"{TREE}?treeid=2", until=missing)
    s.get("method_override=delete", f"{TREE}?treeid=3&definition=true&method_override=delete")
    s.get("GET after method_override=delete", f"{TREE}?treeid=3", until=missing)
    s.post("POST after deletions", TREE, {"name": "After"})
    s.get("GET what is left", TREE)
    s.cells("tsdb-tree")


def rules(s):
    s.post("a tree", TREE, {"name": "t"})
    at = {"treeId": 1, "level": 0, "order": 0}
    s.post("POST", RULE, {**at, "type": "TAGK", "field": "dc"})
    s.get("GET", f"{RULE}?treeid=1&level=0&order=0")
    s.post("POST all", RULE, {
        **at, "order": 1, "type": "TAGK", "field": "host", "regex": "^(.*?)\\.", "regexGroupIdx": 0, "separator": "",
        "description": "d", "notes": "n", "displayFormat": "host: {value}"})
    s.post("POST a metric", RULE, {**at, "level": 1, "type": "METRIC", "separator": "\\."})
    s.post("POST metric custom", RULE, {**at, "level": 2, "type": "METRIC_CUSTOM", "field": "sys.cpu", "customField": "owner"})
    s.post("POST tagk custom", RULE, {**at, "level": 3, "type": "TAGK_CUSTOM", "field": "host", "customField": "owner"})
    s.post("POST tagv custom", RULE, {**at, "level": 4, "type": "TAGV_CUSTOM", "field": "web01", "customField": "owner"})
    s.post("POST small letters", RULE, {**at, "level": 5, "type": "tagk", "field": "x"})
    s.get("GET the tree", f"{TREE}?treeid=1")
    s.cells("tsdb-tree")
    s.post("POST edits", RULE, {**at, "notes": "edited"})
    s.post("POST edits nothing", RULE, {**at, "notes": "edited"})
    s.post("POST another type", RULE, {**at, "type": "METRIC"})
    s.put("PUT", RULE, {**at, "type": "TAGK", "field": "dc", "description": "put"})
    s.put("PUT again", RULE, {**at, "type": "TAGK", "field": "dc", "description": "put"})
    s.put("PUT a new one", RULE, {**at, "level": 6, "type": "TAGK", "field": "new"})
    s.get("method_override=post", f"{RULE}?treeid=1&level=7&order=2&type=tagk&field=f&regex=%5E(.*)%24&separator=-"
          "&description=d&notes=n&regex_group_idx=0&display_format=%7Bvalue%7D&method_override=post")
    s.get("custom_field", f"{RULE}?treeid=1&level=8&order=0&type=tagv_custom&field=f&custom_field=owner&method_override=post")
    s.get("method_override=put", f"{RULE}?treeid=1&level=7&order=2&type=metric&method_override=put")
    s.cells("tsdb-tree")
    s.get("GET the tree with all", f"{TREE}?treeid=1")
    s.get("absent", f"{RULE}?treeid=1&level=5&order=9")
    s.get("of an absent tree", f"{RULE}?treeid=99&level=0&order=0")
    s.get("no tree", f"{RULE}?level=0&order=0")
    s.get("no level", f"{RULE}?treeid=1&order=0")
    s.get("no order", f"{RULE}?treeid=1&level=0")
    s.get("nothing", RULE)
    s.get("a word as level", f"{RULE}?treeid=1&level=x&order=0")
    s.get("a word as order", f"{RULE}?treeid=1&level=0&order=x")
    s.get("a word as tree", f"{RULE}?treeid=x&level=0&order=0")
    s.get("a negative level", f"{RULE}?treeid=1&level=-1&order=0")
    s.get("a word as regex_group_idx", f"{RULE}?treeid=1&level=0&order=0&regex_group_idx=x&method_override=post")
    s.get("an unknown type", f"{RULE}?treeid=1&level=0&order=0&type=bogus&method_override=post")
    new = {**at, "level": 20}
    s.post("POST no type", RULE, {**new, "field": "x"})
    s.post("POST an unknown type", RULE, {**new, "type": "BOGUS", "field": "x"})
    s.post("POST TAGK without a field", RULE, {**new, "type": "TAGK"})
    s.post("POST METRIC_CUSTOM without a field", RULE, {**new, "type": "METRIC_CUSTOM", "customField": "x"})
    s.post("POST METRIC_CUSTOM without a custom field", RULE, {**new, "type": "METRIC_CUSTOM", "field": "x"})
    s.post("POST TAGK_CUSTOM without a custom field", RULE, {**new, "type": "TAGK_CUSTOM", "field": "x"})
    s.post("POST TAGV_CUSTOM without a field", RULE, {**new, "type": "TAGV_CUSTOM", "customField": "x"})
    s.post("POST a broken regular expression", RULE, {**new, "type": "METRIC", "regex": "("})
    s.post("POST a broken separator", RULE, {**new, "type": "METRIC", "separator": "["})
    s.post("POST a group that is not there", RULE, {**new, "type": "METRIC", "regex": "(a)", "regexGroupIdx": 5})
    s.post("POST a negative group", RULE, {**new, "level": 21, "type": "METRIC", "regex": "(a)", "regexGroupIdx": -1})
    s.post("POST a negative level", RULE, {**new, "level": -1, "type": "METRIC"})
    s.post("POST a negative order", RULE, {**new, "order": -1, "type": "METRIC"})
    s.post("POST no level", RULE, {"treeId": 1, "order": 5, "type": "METRIC"})
    s.post("POST no tree", RULE, {"level": 0, "order": 0, "type": "METRIC"})
    s.post("POST an unknown tree", RULE, {**new, "treeId": 99, "type": "METRIC"})
    s.post("POST tree 0", RULE, {**new, "treeId": 0, "type": "METRIC"})
    s.post("POST tree 65536", RULE, {**new, "treeId": 65536, "type": "METRIC"})
    s.post("POST an empty object", RULE, {})
    s.post("POST broken JSON", RULE, "{")
    s.post("POST an array", RULE, [])
    s.post("POST without a body", RULE)
    s.post("POST an unknown field", RULE, {**new, "type": "METRIC", "bogus": 1})
    s.send("PATCH", "PATCH", f"{RULE}?treeid=1&level=0&order=0")
    s.delete("DELETE", f"{RULE}?treeid=1&level=0&order=0")
    s.get("GET after DELETE", f"{RULE}?treeid=1&level=0&order=0", until=missing)
    s.delete("DELETE again", f"{RULE}?treeid=1&level=0&order=0")
    s.delete("DELETE by body", RULE, {**at, "order": 1})
    s.get("GET after DELETE by body", f"{RULE}?treeid=1&level=0&order=1")
    s.get("method_override=delete", f"{RULE}?treeid=1&level=1&order=0&method_override=delete")
    s.delete("DELETE of an unknown tree", f"{RULE}?treeid=99&level=0&order=0")
    s.delete("DELETE nothing", RULE)
    s.cells("tsdb-tree")


def rule_sets(s):
    s.post("a tree", TREE, {"name": "t"})
    s.post("another tree", TREE, {"name": "u"})
    first = [
        {"treeId": 1, "level": 0, "order": 0, "type": "TAGK", "field": "dc"},
        {"treeId": 1, "level": 0, "order": 1, "type": "TAGK", "field": "datacenter"},
        {"treeId": 1, "level": 1, "order": 0, "type": "METRIC", "separator": "\\."},
    ]
    s.get("GET", f"{RULES}?treeid=1")
    s.post("POST", RULES, first)
    s.get("the tree", f"{TREE}?treeid=1")
    s.post("POST more", RULES, [{"treeId": 1, "level": 2, "order": 0, "type": "TAGK", "field": "host"}])
    s.post("POST a change", RULES, [{"treeId": 1, "level": 2, "order": 0, "notes": "changed"}])
    s.get("the tree after POST", f"{TREE}?treeid=1")
    s.cells("tsdb-tree")
    s.put("PUT", RULES, [{"treeId": 1, "level": 5, "order": 0, "type": "METRIC"}])
    s.get("the tree after PUT", f"{TREE}?treeid=1")
    s.cells("tsdb-tree")
    s.post("POST two trees", RULES, [first[0], {**first[1], "treeId": 2}])
    s.post("POST an unknown tree", RULES, [{**first[0], "treeId": 99}])
    s.post("POST no tree", RULES, [{"level": 0, "order": 0, "type": "METRIC"}])
    s.post("POST an empty array", RULES, [])
    s.post("POST an object", RULES, first[0])
    s.post("POST broken JSON", RULES, "[")
    s.post("POST without a body", RULES)
    s.post("POST a bad and a good rule", RULES, [
        {"treeId": 1, "level": 8, "order": 0, "type": "METRIC"}, {"treeId": 1, "level": 9, "order": 0, "type": "TAGK"}])
    s.post("POST a rule without a type", RULES, [{"treeId": 1, "level": 10, "order": 0}])
    s.post("POST a rule twice", RULES, [
        {"treeId": 1, "level": 11, "order": 0, "type": "METRIC"}, {"treeId": 1, "level": 11, "order": 0, "type": "TAGK", "field": "x"}])
    s.get("the tree after errors", f"{TREE}?treeid=1")
    s.delete("DELETE", f"{RULES}?treeid=1")
    s.get("the tree after DELETE", f"{TREE}?treeid=1", until=lambda _, text: '"rules":null' in text)
    s.delete("DELETE an unknown tree", f"{RULES}?treeid=99")
    s.delete("DELETE nothing", RULES)
    s.delete("DELETE a word", f"{RULES}?treeid=x")
    s.get("method_override=delete", f"{RULES}?treeid=1&method_override=delete")
    s.get("method_override=post", f"{RULES}?treeid=1&method_override=post")
    s.cells("tsdb-tree")


def make_tree(s, **more):
    s.post("a tree", TREE, {"name": "By DC", "enabled": True, "storeFailures": True, **more})
    s.post("its rules", RULES, [
        {"treeId": 1, "level": 0, "order": 0, "type": "TAGK", "field": "dc"},
        {"treeId": 1, "level": 1, "order": 0, "type": "TAGK", "field": "host", "displayFormat": "host: {value}"},
        {"treeId": 1, "level": 2, "order": 0, "type": "METRIC", "separator": "\\."},
    ])
    # OpenTSDB loads its trees with the first series, and leaves out what arrives meanwhile.
    s.points("the first series loads the trees", [("warm.up", HOUR, 1, {"warm": "up"})])
    s.get("the first series", f"{TSMETA}?tsuid=000001000001000001", until=ok)


def branches(s):
    make_tree(s)
    series = [
        ("sys.cpu.user", {"dc": "lax", "host": "web01"}, "000002000002000002000003000003"),
        ("sys.cpu.system", {"dc": "lax", "host": "web01"}, "000003000002000002000003000003"),
        ("sys.mem", {"dc": "lax", "host": "web02"}, "000004000002000002000003000004"),
        ("sys.cpu.user", {"dc": "dal", "host": "web01"}, "000002000002000005000003000003"),
        ("sys.cpu.user", {"host": "web03"}, "000002000003000006"),
        ("up", {"dc": "lax"}, "000005000002000002"),
    ]
    s.get("names", "/api/uid/assign?metric=sys.cpu.user,sys.cpu.system,sys.mem,up&tagk=dc,host&tagv=lax,web01,web02,dal,web03")
    for metric, tags, tsuid in series:
        s.points(f"a point of {tsuid}", [(metric, HOUR, 1, tags)])
        s.get(f"TSMeta of {tsuid}", f"{TSMETA}?tsuid={tsuid}", until=ok)
    s.get("the root", f"{BRANCH}?treeid=1", unordered=True,
          until=lambda _, text: all(f'"displayName":"{name}"' in text for name in ("lax", "dal", "host: web03", "warm")))
    s.cells("tsdb-tree")
    s.get("the root by branch", f"{BRANCH}?branch=0001", unordered=True)
    s.get("lax", f"{BRANCH}?branch=00010001A1A3", unordered=True)
    s.get("small letters", f"{BRANCH}?branch=00010001a1a3", unordered=True)
    s.get("web01", f"{BRANCH}?branch=00010001A1A34F07AA47", unordered=True)
    s.get("sys", f"{BRANCH}?branch=00010001A1A34F07AA470001BECD", unordered=True)
    s.get("cpu", f"{BRANCH}?branch=00010001A1A34F07AA470001BECD000181A8", unordered=True)
    s.get("tree and branch", f"{BRANCH}?treeid=1&branch=00010001A1A3", unordered=True)
    s.get("another tree than the branch's", f"{BRANCH}?treeid=2&branch=00010001A1A3", unordered=True)
    s.get("an unknown tree", f"{BRANCH}?treeid=99")
    s.get("an unknown branch", f"{BRANCH}?branch=000100000001")
    s.get("an odd branch", f"{BRANCH}?branch=0001000")
    s.get("a branch that is not hex", f"{BRANCH}?branch=00010001A1AG")
    s.get("an uneven branch", f"{BRANCH}?branch=00010001A1")
    s.get("a short branch", f"{BRANCH}?branch=00")
    s.get("nothing", BRANCH)
    s.get("a word", f"{BRANCH}?treeid=x")
    s.post("POST", BRANCH, {"treeId": 1})
    s.delete("DELETE", f"{BRANCH}?treeid=1")

    s.get("test one", f"{TEST}?treeid=1&tsuids=000002000002000002000003000003")
    s.get("test two", f"{TEST}?treeid=1&tsuids=000002000002000002000003000003,000005000002000002", unordered=True)
    s.post("POST test", TEST, {"treeId": 1, "tsuids": ["000004000002000002000003000004"]})
    s.get("test what does not exist", f"{TEST}?treeid=1&tsuids=000002000002000002000003000009")
    s.get("test what is no TSUID", f"{TEST}?treeid=1&tsuids=xyz")
    s.get("test a short TSUID", f"{TEST}?treeid=1&tsuids=000002")
    s.get("test an unknown tree", f"{TEST}?treeid=99&tsuids=000005000002000002")
    s.get("test without TSUIDs", f"{TEST}?treeid=1")
    s.get("test without a tree", f"{TEST}?tsuids=000005000002000002")
    s.post("POST test an empty list", TEST, {"treeId": 1, "tsuids": []})
    s.post("POST test no list", TEST, {"treeId": 1})
    s.post("POST test broken JSON", TEST, "{")
    s.put("PUT test", TEST, {"treeId": 1, "tsuids": ["000005000002000002"]})
    s.delete("DELETE test", f"{TEST}?treeid=1&tsuids=000005000002000002")

    s.post("strict", TREE, {"treeId": 1, "strictMatch": True})
    s.get("test strict", f"{TEST}?treeid=1&tsuids=000002000003000006")
    s.get("test strict, all match", f"{TEST}?treeid=1&tsuids=000002000002000002000003000003")
    s.delete("DELETE the branches", f"{TREE}?treeid=1")
    s.get("the root after DELETE", f"{BRANCH}?treeid=1", until=missing)
    s.get("the tree after DELETE", f"{TREE}?treeid=1")
    s.cells("tsdb-tree")


def forms(s):
    """What rules make of values, by /api/tree/test."""
    s.get("names", "/api/uid/assign?metric=sys.cpu.0.user&tagk=host,dc&tagv=web01.lax.mysite.com,lax")
    s.points("a point", [("sys.cpu.0.user", HOUR, 1, {"host": "web01.lax.mysite.com", "dc": "lax"})])
    tsuid = "000001000001000001000002000002"
    s.get("TSMeta", f"{TSMETA}?tsuid={tsuid}", until=ok)
    s.post("metric's metadata", "/api/uid/uidmeta", {"uid": "000001", "type": "metric", "custom": {"owner": "Jane Doe"}})
    s.post("tag key's metadata", "/api/uid/uidmeta", {"uid": "000001", "type": "tagk", "custom": {"owner": "OK"}})
    s.post("tag value's metadata", "/api/uid/uidmeta", {"uid": "000002", "type": "tagv", "custom": {"region": "west"}})
    rules = {
        "metric": [{"type": "METRIC"}],
        "metric, separator": [{"type": "METRIC", "separator": "\\."}],
        "metric, separator of characters": [{"type": "METRIC", "separator": "[.]"}],
        "a separator that does not occur": [{"type": "METRIC", "separator": "-"}],
        "a separator at each letter": [{"type": "METRIC", "separator": ""}],
        "regex": [{"type": "TAGK", "field": "host", "regex": "^(.*?)\\."}],
        "regex, second group": [{"type": "TAGK", "field": "host", "regex": "^(.*?)\\.(.*?)\\.", "regexGroupIdx": 1}],
        "regex, a group that is not there": [{"type": "TAGK", "field": "host", "regex": "^(.*?)\\.", "regexGroupIdx": 3}],
        "regex without groups": [{"type": "TAGK", "field": "host", "regex": "web"}],
        "regex without a match": [{"type": "TAGK", "field": "host", "regex": "^(db.*)"}],
        "regex, an empty group": [{"type": "TAGK", "field": "host", "regex": "^(x*)"}],
        "lookahead": [{"type": "TAGK", "field": "host", "regex": "^(?=web)(.*?)\\."}],
        "possessive": [{"type": "TAGK", "field": "host", "regex": "^([^.]++)"}],
        "format": [{"type": "TAGK", "field": "host", "displayFormat": "host: {value}"}],
        "format, all": [{"type": "TAGK", "field": "host", "regex": "^(.*?)\\.", "displayFormat": "{tag_name} {ovalue} {value} {tsuid}"}],
        "format of a metric": [{"type": "METRIC", "displayFormat": "{tag_name}: {value}"}],
        "format with separator": [{"type": "METRIC", "separator": "\\.", "displayFormat": "<{value}|{ovalue}>"}],
        "format without value": [{"type": "METRIC", "displayFormat": "fixed"}],
        "metric custom": [{"type": "METRIC_CUSTOM", "field": "sys.cpu.0.user", "customField": "owner"}],
        "metric custom, its field": [{"type": "METRIC_CUSTOM", "field": "owner", "customField": "owner"}],
        "tagk custom": [{"type": "TAGK_CUSTOM", "field": "host", "customField": "owner"}],
        "tagv custom": [{"type": "TAGV_CUSTOM", "field": "lax", "customField": "region"}],
        "tagv custom, by key": [{"type": "TAGV_CUSTOM", "field": "dc", "customField": "region"}],
        "custom, absent": [{"type": "TAGV_CUSTOM", "field": "lax", "customField": "absent"}],
        "custom, formatted": [{"type": "TAGV_CUSTOM", "field": "lax", "customField": "region", "displayFormat": "{tag_name}:{value}"}],
        "tag key that is absent": [{"type": "TAGK", "field": "absent"}],
        "two rules of a level": [{"type": "TAGK", "field": "absent"}, {"type": "TAGK", "field": "dc", "order": 1}],
        "two levels": [{"type": "TAGK", "field": "dc"}, {"type": "METRIC", "level": 1}],
        "a gap between levels": [{"type": "TAGK", "field": "dc"}, {"type": "METRIC", "level": 7}],
        "the same name twice": [{"type": "TAGK", "field": "dc"}, {"type": "TAGK", "field": "dc", "level": 1}, {"type": "METRIC", "level": 2}],
        "a level that fails": [{"type": "TAGK", "field": "dc"}, {"type": "TAGK", "field": "absent", "level": 1}, {"type": "METRIC", "level": 2}],
        "the last level fails": [{"type": "TAGK", "field": "dc"}, {"type": "TAGK", "field": "absent", "level": 1}],
        "the same leaf and branch": [{"type": "TAGK", "field": "dc"}, {"type": "METRIC", "level": 1}, {"type": "TAGK", "field": "dc", "level": 2}],
        "split with regex": [{"type": "TAGK", "field": "host", "regex": "(.*)\\.com", "separator": "\\."}],
    }
    for number, (name, of_tree) in enumerate(rules.items(), 1):
        s.post(f"{name}: tree", TREE, {"name": name})
        for rule in of_tree:
            s.post(f"{name}: rule", RULE, {"treeId": number, "level": 0, "order": 0, **rule})
        s.get(f"{name}: test", f"{TEST}?treeid={number}&tsuids={tsuid}")
    s.post("no rules", TREE, {"name": "no rules"})
    s.get("no rules: test", f"{TEST}?treeid={len(rules) + 1}&tsuids={tsuid}")


def one_level(s):
    """Its only level is the leaf, below the root."""
    s.post("a tree", TREE, {"name": "One", "enabled": True})
    s.post("its rule", RULE, {"treeId": 1, "level": 0, "order": 0, "type": "TAGK", "field": "dc"})
    s.points("the first series loads the trees", [("warm.up", HOUR, 1, {"warm": "up"})])
    s.get("the first series", f"{TSMETA}?tsuid=000001000001000001", until=ok)
    s.get("names", "/api/uid/assign?metric=sys.cpu&tagk=dc&tagv=lax")
    s.points("a point", [("sys.cpu", HOUR, 1, {"dc": "lax"})])
    s.get("TSMeta", f"{TSMETA}?tsuid=000002000002000002", until=ok)
    s.get("the root", f"{BRANCH}?treeid=1", until=ok)
    s.get("test", f"{TEST}?treeid=1&tsuids=000002000002000002")
    s.cells("tsdb-tree")


def failures(s):
    s.post("a tree", TREE, {"name": "Collisions", "enabled": True, "storeFailures": True, "strictMatch": True})
    s.post("its rules", RULES, [
        {"treeId": 1, "level": 0, "order": 0, "type": "TAGK", "field": "dc"},
        {"treeId": 1, "level": 1, "order": 0, "type": "METRIC", "displayFormat": "leaf"},
    ])
    s.points("the first series loads the trees", [("warm.up", HOUR, 1, {"warm": "up"})])
    s.get("the first series", f"{TSMETA}?tsuid=000001000001000001", until=ok)
    s.get("names", "/api/uid/assign?metric=sys.cpu,sys.mem&tagk=dc,host&tagv=lax,web01")
    for metric, tags, tsuid in (
        ("sys.cpu", {"dc": "lax"}, "000002000002000002"),
        ("sys.mem", {"dc": "lax"}, "000003000002000002"),
        ("sys.mem", {"host": "web01"}, "000003000003000003"),
    ):
        s.points(f"a point of {tsuid}", [(metric, HOUR, 1, tags)])
        s.get(f"TSMeta of {tsuid}", f"{TSMETA}?tsuid={tsuid}", until=ok)
    s.get("lax", f"{BRANCH}?branch=00010001A1A3", until=lambda _, text: "sys.cpu" in text)
    s.get("the root", f"{BRANCH}?treeid=1")
    s.cells("tsdb-tree")
    s.get("test the collision", f"{TEST}?treeid=1&tsuids=000003000002000002")
    s.get("test what does not match", f"{TEST}?treeid=1&tsuids=000003000003000003")
    s.get("collisions", f"{COLLISIONS}?treeid=1")
    s.get("collisions of one", f"{COLLISIONS}?treeid=1&tsuids=000003000002000002")
    s.get("collisions of an absent one", f"{COLLISIONS}?treeid=1&tsuids=000009000009000009")
    s.get("not matched", f"{NOT_MATCHED}?treeid=1")
    s.get("not matched, one", f"{NOT_MATCHED}?treeid=1&tsuids=000003000003000003")
    for path in (COLLISIONS, NOT_MATCHED):
        s.get("an unknown tree", f"{path}?treeid=99")
        s.get("nothing", path)
        s.get("a word", f"{path}?treeid=x")
        s.get("tree 0", f"{path}?treeid=0")
        s.get("a TSUID that is not hex", f"{path}?treeid=1&tsuids=xyz")
        s.post("POST", path, {"treeId": 1})
        s.post("POST TSUIDs", path, {"treeId": 1, "tsuids": ["000003000002000002"]})
        s.post("POST an empty list", path, {"treeId": 1, "tsuids": []})
        s.post("POST broken JSON", path, "{")
        s.post("POST without a tree", path, {})
        s.put("PUT", path, {"treeId": 1})
        s.delete("DELETE", f"{path}?treeid=1")
    s.cells("tsdb-tree")


def errors(s):
    s.get("an unknown tree", f"{TREE}?treeid=99")
    s.get("a word", f"{TREE}?treeid=x")
    s.get("tree 0", f"{TREE}?treeid=0")
    s.get("a negative tree", f"{TREE}?treeid=-1")
    s.get("tree 65535", f"{TREE}?treeid=65535")
    s.get("tree 65536", f"{TREE}?treeid=65536")
    s.get("an empty tree ID", f"{TREE}?treeid=")
    s.post("POST without a name", TREE, {"description": "x"})
    s.post("POST an empty name", TREE, {"name": ""})
    s.post("POST an empty object", TREE, {})
    s.post("POST broken JSON", TREE, "{")
    s.post("POST an array", TREE, [])
    s.post("POST without a body", TREE)
    s.post("POST an unknown tree", TREE, {"treeId": 99, "name": "x"})
    s.post("POST a negative tree", TREE, {"treeId": -1, "name": "x"})
    s.post("POST a word as tree", TREE, {"treeId": "x", "name": "x"})
    s.post("POST a word as flag", TREE, {"name": "x", "enabled": "maybe"})
    s.post("POST a number as name", TREE, {"name": 5})
    s.put("PUT an unknown tree", TREE, {"treeId": 99, "name": "x"})
    s.put("PUT without a name", TREE, {"notes": "x"})
    s.delete("DELETE an unknown tree", f"{TREE}?treeid=99")
    s.delete("DELETE an unknown tree with definition", f"{TREE}?treeid=99&definition=true")
    s.delete("DELETE nothing", TREE)
    s.delete("DELETE a word", f"{TREE}?treeid=x")
    s.send("PATCH", "PATCH", TREE)
    s.get("below tree", f"{TREE}/bogus")
    s.get("below rule", f"{RULE}/bogus")
    s.get("slash", f"{TREE}/")
    s.get("capital letters", "/API/TREE")
    s.get("version 1", "/api/v1/tree")
    s.get("jsonp", f"{TREE}?jsonp=callback")
    s.cells("tsdb-tree")


def processing_off(s):
    make_tree(s)
    s.get("names", "/api/uid/assign?metric=sys.cpu&tagk=dc&tagv=lax")
    s.points("a point", [("sys.cpu", HOUR, 1, {"dc": "lax"})])
    s.get("TSMeta", f"{TSMETA}?tsuid=000002000002000002", until=ok)
    s.get("the root", f"{BRANCH}?treeid=1")
    s.get("test", f"{TEST}?treeid=1&tsuids=000002000002000002")
    s.cells("tsdb-tree")
