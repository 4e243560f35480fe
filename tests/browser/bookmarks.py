"""Bookmarks of OpenTSDB's user interface, and what they mean.

`MetricForm` and `QueryUi` of 2.4 write `m`, `o` and the other parameters in the order that is here; versions before write no braces
without tags and no fill policy. Browsers encode brackets or leave them. Others are links as people publish them.
"""

import dataclasses

HOUR = "2012/09/05-12:00:00", "2012/09/05-13:00:00"
IN_HOUR = f"start={HOUR[0]}&end={HOUR[1]}"


def sub(metric, *tags, aggregator="sum", downsample="", rate="", axis="left", tsuids=""):
    """A sub-query; a tag is `key=type(value)`, with `by ` before it if it groups."""
    return {"metric": metric, "tsuids": tsuids, "aggregator": aggregator, "downsample": downsample, "rate": rate, "axis": axis, "tags": list(tags)}


@dataclasses.dataclass
class Bookmark:
    """A link and the state of the page that it opens: range, time zone, ranges of the axes, sub-queries, and the series of the plot."""

    link: str
    series: int
    subs: list
    range: tuple = HOUR
    zone: str = "UTC"
    axes: tuple = ("", "")


USER, NICE, CPU, LOAD = "sys.cpu.user", "sys.cpu.nice", "proc.stat.cpu", "proc.loadavg.1m"
LAST_HOUR = "1h-ago", ""

BOOKMARKS = [
    # The forms of QueryUi: a metric, and each of its options.
    Bookmark(f"{IN_HOUR}&m=sum:{USER}{{}}&o=&yrange=%5B0:%5D&wxh=1240x640&style=linespoint", 1, [sub(USER)], axes=("[0:]", "")),
    Bookmark(f"{IN_HOUR}&m=sum:{USER}%7B%7D&o=&yrange=%5B0:%5D&wxh=1240x640&style=linespoint", 1, [sub(USER)], axes=("[0:]", "")),
    Bookmark(f"{IN_HOUR}&m=sum:{USER}&o=&yrange=%5B0:%5D&wxh=1240x640", 1, [sub(USER)], axes=("[0:]", "")),
    Bookmark(f"{IN_HOUR}&m=sum:10m-avg-none:{USER}%7Bhost=web01%7D&o=&yrange=%5B0:%5D&wxh=1240x640&style=linespoint", 1,
             [sub(USER, "by host=literal_or(web01)", downsample="10m-avg-none")], axes=("[0:]", "")),
    Bookmark(f"{IN_HOUR}&m=avg:10m-max-nan:{USER}%7Bhost=*%7D&o=&yrange=%5B:100%5D&wxh=1240x640&style=points", 4,
             [sub(USER, "by host=wildcard(*)", aggregator="avg", downsample="10m-max-nan")], axes=("[:100]", "")),
    Bookmark(f"{IN_HOUR}&m=max:1m-sum-zero:{USER}{{host=*}}&o=&wxh=800x600&style=linespoint", 4,
             [sub(USER, "by host=wildcard(*)", aggregator="max", downsample="1m-sum-zero")]),
    Bookmark(f"{IN_HOUR}&m=sum:5m-min-null:{USER}{{}}&o=&wxh=800x600&style=linespoint", 1, [sub(USER, downsample="5m-min-null")]),
    Bookmark(f"{IN_HOUR}&m=sum:rate:{CPU}%7Bhost=foo,type=idle%7D&o=&yrange=%5B0:%5D&wxh=1240x640&style=linespoint", 1,
             [sub(CPU, "by host=literal_or(foo)", "by type=literal_or(idle)", rate="rate")], axes=("[0:]", "")),
    Bookmark(f"{IN_HOUR}&m=sum:rate%7Bcounter,,100%7D:net.bytes%7B%7D&o=&wxh=1240x640&style=linespoint", 1, [sub("net.bytes", rate="counter,,100")]),
    Bookmark(f"{IN_HOUR}&m=sum:rate%7Bcounter,4294967296%7D:net.bytes%7Biface=eth0%7D&o=&wxh=1240x640&style=linespoint", 1,
             [sub("net.bytes", "by iface=literal_or(eth0)", rate="counter,4294967296")]),
    Bookmark(f"{IN_HOUR}&m=sum:rate{{counter,4294967296,100}}:net.bytes{{}}&o=&wxh=1240x640", 1, [sub("net.bytes", rate="counter,4294967296,100")]),
    Bookmark(f"{IN_HOUR}&m=sum:rate%7Bdropcounter%7D:net.bytes%7B%7D&o=&wxh=1240x640&style=linespoint", 1, [sub("net.bytes", rate="dropcounter")]),
    Bookmark(f"{IN_HOUR}&m=sum:5m-avg-none:rate%7Bdropcounter,,0%7D:net.bytes%7Bhost=*%7D&o=axis%20x1y2&y2range=%5B0:%5D&wxh=1240x640&style=linespoint", 2,
             [sub("net.bytes", "by host=wildcard(*)", downsample="5m-avg-none", rate="dropcounter,,0", axis="right")], axes=("", "[0:]")),
    # Filters, in both pairs of braces.
    Bookmark(f"{IN_HOUR}&m=sum:{USER}%7Bhost=web01%7Cweb02%7D&o=&wxh=1240x640&style=linespoint", 2, [sub(USER, "by host=literal_or(web01|web02)")]),
    Bookmark(f"{IN_HOUR}&m=sum:{USER}%7Bhost=wildcard(web*)%7D&o=&wxh=1240x640&style=linespoint", 4, [sub(USER, "by host=wildcard(web*)")]),
    Bookmark(f"{IN_HOUR}&m=sum:{USER}%7B%7D%7Bdc=literal_or(lga)%7D&o=&wxh=1240x640&style=linespoint", 1, [sub(USER, "dc=literal_or(lga)")]),
    Bookmark(f"{IN_HOUR}&m=sum:{USER}%7Bhost=*%7D%7Bdc=iliteral_or(LGA)%7D&o=&wxh=1240x640&style=linespoint", 2,
             [sub(USER, "by host=wildcard(*)", "dc=iliteral_or(LGA)")]),
    Bookmark(f"{IN_HOUR}&m=sum:{USER}%7Bhost=regexp(web0%5B12%5D),dc=*%7D&o=&wxh=1240x640&style=linespoint", 2,
             [sub(USER, "by host=regexp(web0[12])", "by dc=wildcard(*)")]),
    Bookmark(f"{IN_HOUR}&m=sum:{USER}{{dc=*}}{{host=not_literal_or(web04)}}&o=&wxh=1240x640", 2,
             [sub(USER, "by dc=wildcard(*)", "host=not_literal_or(web04)")]),
    # Several metrics, both axes, and all that belongs to them.
    Bookmark(f"{IN_HOUR}&m=sum:{USER}%7Bhost=web01%7D&o=&m=max:{NICE}%7Bhost=web01%7D&o=axis%20x1y2&yrange=%5B0:100%5D&y2range=%5B0:50%5D&key=out%20right%20top&wxh=1240x640&style=linespoint", 2,
             [sub(USER, "by host=literal_or(web01)"), sub(NICE, "by host=literal_or(web01)", aggregator="max", axis="right")], axes=("[0:100]", "[0:50]")),
    Bookmark(f"{IN_HOUR}&m=sum:{USER}{{host=*}}&o=&m=sum:{NICE}{{host=*}}&o=axis x1y2&m=avg:{LOAD}{{}}&o=&yrange=[0:]&key=out center top horiz box&wxh=1240x640&smooth=csplines&style=linespoint", 9,
             [sub(USER, "by host=wildcard(*)"), sub(NICE, "by host=wildcard(*)", axis="right"), sub(LOAD, aggregator="avg")], axes=("[0:]", "")),
    Bookmark(f"{IN_HOUR}&m=sum:{USER}%7B%7D&o=axis%20x1y2&ylabel=percent&y2label=percent%20of%20all&yformat=%25.2f&y2format=%25.0f%25%25&yrange=%5B-5:1e3%5D&y2range=%5B0:1e+9%5D&ylog&y2log&key=top%20left%20box&wxh=640x480&style=dots", 1,
             [sub(USER, axis="right")], axes=("[-5:1e3]", "[0:1e+9]")),
    Bookmark(f"{IN_HOUR}&m=sum:{USER}%7B%7D&o=&yrange=%5B0:%5D&nokey&wxh=1240x640&style=linespoint&no_annotations=true", 1, [sub(USER)], axes=("[0:]", "")),
    Bookmark(f"{IN_HOUR}&global_annotations&m=sum:{USER}%7B%7D&o=&key=out%20bottom%20center%20box&wxh=740x345&style=linespoint&global_annotations=true", 1, [sub(USER)]),
    # Ranges.
    Bookmark(f"start=1h-ago&m=sum:{LOAD}%7Bhost=foo%7D&o=&yrange=%5B0:%5D&wxh=1240x640&style=linespoint", 1,
             [sub(LOAD, "by host=literal_or(foo)")], range=LAST_HOUR, axes=("[0:]", "")),
    Bookmark(f"start=1h%20ago&m=sum:{LOAD}%7Bhost=*%7D&o=&wxh=1240x640&style=linespoint&autoreload=15", 2,
             [sub(LOAD, "by host=wildcard(*)")], range=("1h ago", "")),
    Bookmark("start=10m-ago&m=sum:df.inodes.free&autoreload=15;", 1, [sub("df.inodes.free")], range=("10m-ago", "")),
    Bookmark(f"start=2h-ago&end=1h-ago&ignore=7&m=sum:{LOAD}&o=&wxh=1240x640", 1, [sub(LOAD)], range=("2h-ago", "1h-ago")),
    Bookmark(f"start=1346846400&end=1346850000&m=sum:{LOAD}&o=", 1, [sub(LOAD)], range=("1346846400", "1346850000")),
    Bookmark(f"start=2012/09/05-14:00:00&end=2012/09/05-15:00:00&tz=Europe/Berlin&m=sum:{LOAD}%7B%7D&o=&wxh=1240x640&style=linespoint", 1,
             [sub(LOAD)], range=("2012/09/05-14:00:00", "2012/09/05-15:00:00"), zone="Europe/Berlin"),
    Bookmark(f"start=2012/09/05 12:00:00&end=2012/09/05 13:00:00&m=sum:{LOAD}&o=", 1, [sub(LOAD)], range=("2012/09/05 12:00:00", "2012/09/05 13:00:00")),
    Bookmark(f"start=2012/09/05&end=2012/09/06&m=sum:1h-avg-none:{LOAD}%7B%7D&o=&yrange=%5B0:%5D&wxh=1240x640&style=linespoint", 1,
             [sub(LOAD, downsample="1h-avg-none")], range=("2012/09/05", "2012/09/06"), axes=("[0:]", "")),
    # As people publish them.
    Bookmark("start=2016/02/09-08:00:00&end=2016/02/09-11:00:00&m=mimmax:php.timers.mongo.p95&o=&yrange=%5B0:%5D&wxh=1420x608&style=linespoint", 1,
             [sub("php.timers.mongo.p95", aggregator="mimmax")], range=("2016/02/09-08:00:00", "2016/02/09-11:00:00"), axes=("[0:]", "")),
    Bookmark("start=2020/01/01-00:00:00&end=2020/01/08-00:00:00&m=none:csv_data&o=&yrange=%5B0:%5D&wxh=600x500&style=linespoint", 2,
             [sub("csv_data", aggregator="none")], range=("2020/01/01-00:00:00", "2020/01/08-00:00:00"), axes=("[0:]", "")),
    Bookmark("start=2016/05/01-00:00:00&end=2017/01/01-00:00:00&m=zimsum:rc04_simple_data_v3&o=&yrange=%5B0:%5D&wxh=1025x631&style=linespoint", 1,
             [sub("rc04_simple_data_v3", aggregator="zimsum")], range=("2016/05/01-00:00:00", "2017/01/01-00:00:00"), axes=("[0:]", "")),
    Bookmark(f"start=2012/09/05-12:00:00&end=2012/09/05-13:00:00&m=sum:test.count.count{{name=cte}}&o=axis%20x1y2&m=sum:rate:test.count.count{{name=rise}}&o=&m=sum:10m-avg:{LOAD}&o=&yrange=[0:2.5]&y2range=[0:120]&wxh=1660x666&png", 3,
             [sub("test.count.count", "by name=literal_or(cte)", axis="right"), sub("test.count.count", "by name=literal_or(rise)", rate="rate"),
              sub(LOAD, downsample="10m-avg-none")], axes=("[0:2.5]", "[0:120]")),
]
