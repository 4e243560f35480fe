package dev.oxtsdb.stubs;

import static dev.oxtsdb.stubs.Support.HOUR_MS;
import static dev.oxtsdb.stubs.Support.START_MS;
import static dev.oxtsdb.stubs.Support.check;
import static dev.oxtsdb.stubs.Support.rejected;

import com.google.protobuf.Duration;
import dev.oxtsdb.proto.common.v1.ErrorReason;
import dev.oxtsdb.proto.common.v1.SeriesKey;
import dev.oxtsdb.proto.common.v1.TimeRange;
import dev.oxtsdb.proto.data.v1.AggregateFunction;
import dev.oxtsdb.proto.data.v1.Aggregator;
import dev.oxtsdb.proto.data.v1.DataServiceGrpc.DataServiceBlockingV2Stub;
import dev.oxtsdb.proto.data.v1.DeltaTimestamps;
import dev.oxtsdb.proto.data.v1.QueryLastRequest;
import dev.oxtsdb.proto.data.v1.QueryLastResponse;
import dev.oxtsdb.proto.data.v1.QueryRequest;
import dev.oxtsdb.proto.data.v1.QueryResponse;
import dev.oxtsdb.proto.data.v1.SubQuery;
import dev.oxtsdb.proto.data.v1.TagFilter;
import dev.oxtsdb.proto.data.v1.WriteRequest;
import io.grpc.Status.Code;
import io.grpc.stub.BlockingClientCall;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongToDoubleFunction;

/** Queries, last points and the details of errors. */
final class Reads {
  private Reads() {}

  private static SubQuery.Builder subQuery(String metric, AggregateFunction function) {
    return SubQuery.newBuilder()
        .setMetric(SubQuery.MetricSource.newBuilder().setMetric(metric))
        .setAggregator(Aggregator.newBuilder().setFunction(function));
  }

  private static QueryRequest.Builder request(SubQuery.Builder subQuery) {
    return QueryRequest.newBuilder()
        .setRange(TimeRange.newBuilder().setStartMs(START_MS).setEndMs(START_MS + HOUR_MS))
        .addQueries(subQuery);
  }

  private static List<Long> timestamps(QueryResponse.Points points) {
    if (!points.hasDeltaTimestamps()) {
      return points.getTimestampsMsList();
    }
    DeltaTimestamps encoding = points.getDeltaTimestamps();
    List<Long> instants = new ArrayList<>(List.of(encoding.getFirst()));
    for (long delta : encoding.getDeltasList()) {
      instants.add(instants.get(instants.size() - 1) + delta);
    }
    check("the encoding adds up", instants.get(instants.size() - 1), encoding.getLast());
    return instants;
  }

  /** The points of each group by second, under the group's tag host ("" if its series differ in it). */
  private static Map<String, Map<Long, Double>> query(DataServiceBlockingV2Stub stub, QueryRequest request)
      throws Exception {
    BlockingClientCall<?, QueryResponse> call = stub.query(request);
    Map<Integer, Map<Long, Double>> groups = new HashMap<>();
    Map<String, Map<Long, Double>> result = new TreeMap<>();
    boolean isComplete = false;
    for (QueryResponse response = call.read(); response != null; response = call.read()) {
      check("the statistics are the last frame", isComplete, false);
      switch (response.getFrameCase()) {
        case SERIES -> {
          QueryResponse.Series series = response.getSeries();
          groups.put(series.getSeries(), new TreeMap<>());
          result.put(series.getTagsOrDefault("host", ""), groups.get(series.getSeries()));
        }
        case POINTS -> {
          QueryResponse.Points points = response.getPoints();
          List<Long> timestamps = timestamps(points);
          for (int number = 0; number < timestamps.size(); number++) {
            double value =
                points.getIntValuesCount() > 0 ? points.getIntValues(number) : points.getValues(number);
            groups.get(points.getSeries()).put((timestamps.get(number) - START_MS) / 1000, value);
          }
        }
        case STATISTICS -> isComplete = true;
        default -> {}
      }
    }
    check("the result is complete", isComplete, true);
    return result;
  }

  private static Map<Long, Double> points(long first, long count, LongToDoubleFunction value) {
    Map<Long, Double> points = new TreeMap<>();
    for (long second = first; second < first + count; second++) {
      points.put(second, value.applyAsDouble(second));
    }
    return points;
  }

  static void queries(DataServiceBlockingV2Stub stub) throws Exception {
    AggregateFunction none = AggregateFunction.AGGREGATE_FUNCTION_NONE;
    AggregateFunction sum = AggregateFunction.AGGREGATE_FUNCTION_SUM;
    for (String metric : List.of("java.columns", "java.deltas", "java.stream")) {
      Map<Long, Double> expected = points(0, 1000, second -> second);
      check(metric, query(stub, request(subQuery(metric, none)).build()), Map.of("a", expected));
    }
    check(
        "the point before the mistake",
        query(stub, request(subQuery("java.declared", none)).build()),
        Map.of("a", points(7, 1, second -> second)));
    SubQuery.Builder byHost = subQuery("java.metric", sum);
    byHost
        .getMetricBuilder()
        .addFilters(
            TagFilter.newBuilder()
                .setKey("host")
                .setType(TagFilter.FilterType.FILTER_TYPE_WILDCARD)
                .setPattern("*")
                .setGroupBy(true));
    check(
        "a group for each host",
        query(stub, request(byHost).build()),
        Map.of("a", points(0, 10, second -> second), "b", points(0, 10, second -> second + 0.5)));
    Map<String, Map<Long, Double>> both = Map.of("", points(0, 10, second -> 2 * second + 0.5));
    QueryRequest.Builder request = request(subQuery("java.metric", sum));
    check("the sum over hosts", query(stub, request.build()), both);
    check("with delta timestamps", query(stub, request.setDeltaTimestamps(true).build()), both);
  }

  static void lastPoints(DataServiceBlockingV2Stub stub) throws Exception {
    QueryLastRequest request =
        QueryLastRequest.newBuilder()
            .addTargets(
                QueryLastRequest.Target.newBuilder()
                    .setMetric(SubQuery.MetricSource.newBuilder().setMetric("java.metric")))
            .addTargets(
                QueryLastRequest.Target.newBuilder()
                    .setSeries(SeriesKey.newBuilder().setName(Support.seriesName("no.such.metric", "a"))))
            .setLookBack(Duration.newBuilder().setSeconds(6 * 3600))
            .setIncludeNames(true)
            .build();
    Map<String, Double> last = new HashMap<>();
    Map<Integer, ErrorReason> failed = new HashMap<>();
    BlockingClientCall<?, QueryLastResponse> call = stub.queryLast(request);
    for (QueryLastResponse response = call.read(); response != null; response = call.read()) {
      for (QueryLastResponse.LastPoint point : response.getPointsList()) {
        check("timestamp of a last point", point.getTimestampMs(), START_MS + 9000);
        double value = point.hasIntValue() ? point.getIntValue() : point.getDoubleValue();
        last.put(point.getName().getTags(0).getValue(), value);
      }
      for (QueryLastResponse.TargetError error : response.getErrorsList()) {
        failed.put(error.getTarget(), error.getError().getReason());
      }
    }
    check("last points", last, Map.of("a", 9.0, "b", 9.5));
    check("the target that failed", failed, Map.of(1, ErrorReason.ERROR_REASON_NAME_NOT_FOUND));
  }

  static void errors(DataServiceBlockingV2Stub stub) throws Exception {
    AggregateFunction sum = AggregateFunction.AGGREGATE_FUNCTION_SUM;
    Support.Details details =
        rejected(
            "an unknown metric",
            Code.NOT_FOUND,
            "NAME_NOT_FOUND",
            () -> query(stub, request(subQuery("no.such.metric", sum)).build()));
    check(
        "its metadata",
        details.info().getMetadataMap(),
        Map.of("kind", "UID_KIND_METRIC", "name", "no.such.metric"));
    details =
        rejected(
            "no aggregator",
            Code.INVALID_ARGUMENT,
            "INVALID_FIELD",
            () -> query(stub, request(subQuery("java.metric", sum).clearAggregator()).build()));
    String field = details.badRequest().getFieldViolations(0).getField();
    check("the field is named", field.contains("aggregator"), true);
    rejected(
        "no points",
        Code.INVALID_ARGUMENT,
        "BATCH_TOO_LARGE",
        () -> stub.write(WriteRequest.newBuilder().setOptions(Writes.MILLISECONDS).build()));
  }
}
