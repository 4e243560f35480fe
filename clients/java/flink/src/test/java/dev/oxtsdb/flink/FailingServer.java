package dev.oxtsdb.flink;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import dev.oxtsdb.testing.TsdbServer;
import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;

/** A server with outages, and its stored points. */
final class FailingServer implements AutoCloseable {
  private static final HttpClient HTTP = HttpClient.newBuilder().connectTimeout(Duration.ofSeconds(10)).build();

  private final TsdbServer server;
  private volatile CompletableFuture<Void> restart = CompletableFuture.completedFuture(null);

  FailingServer(Path folder) throws IOException {
    server = new TsdbServer(folder);
  }

  String endpoint() {
    return server.endpoint();
  }

  /** Ends the server by SIGKILL, once an earlier restart is complete. */
  void kill() {
    restart.join();
    server.close();
  }

  /** Starts the server again when a condition holds, in another thread. */
  void startWhen(Callable<Boolean> condition) {
    restart =
        CompletableFuture.runAsync(
            () -> {
              try {
                Wait.until("the condition to start", Duration.ofSeconds(60), condition);
                server.start();
              } catch (Exception failure) {
                throw new IllegalStateException(failure);
              }
            });
  }

  void killAndRestart() {
    kill();
    startWhen(() -> true);
  }

  /** Stops all threads of the server, until it is continued. */
  void freeze() throws Exception {
    server.signal("STOP");
  }

  void unfreeze() throws Exception {
    server.signal("CONT");
  }

  /** Ends the server, also one that is about to start. */
  @Override
  public void close() {
    restart.handle((nothing, failure) -> nothing).join();
    server.close();
  }

  /** Returns the stored points of a metric: by tags, timestamps in milliseconds and values in the order of the response. */
  Map<Map<String, String>, List<Map.Entry<Long, Double>>> points(String metric, String tagk)
      throws IOException, InterruptedException {
    String query = URLEncoder.encode("none:" + metric + "{" + tagk + "=*}", StandardCharsets.UTF_8);
    HttpRequest request =
        HttpRequest.newBuilder(URI.create("http://" + server.http() + "/api/query?start=1&arrays=true&ms=true&m=" + query))
            .timeout(Duration.ofSeconds(60))
            .build();
    HttpResponse<String> response = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
    Map<Map<String, String>, List<Map.Entry<Long, Double>>> all = new HashMap<>();
    if (response.statusCode() == 400 && response.body().contains("No such name")) {
      return all;
    }
    if (response.statusCode() != 200) {
      throw new AssertionError(response.body());
    }
    for (JsonElement element : JsonParser.parseString(response.body()).getAsJsonArray()) {
      JsonObject series = element.getAsJsonObject();
      Map<String, String> tags = new HashMap<>();
      series.getAsJsonObject("tags").entrySet().forEach(tag -> tags.put(tag.getKey(), tag.getValue().getAsString()));
      List<Map.Entry<Long, Double>> points = new ArrayList<>();
      for (JsonElement point : series.getAsJsonArray("dps")) {
        JsonArray pair = point.getAsJsonArray();
        points.add(Map.entry(pair.get(0).getAsLong(), pair.get(1).getAsDouble()));
      }
      all.put(tags, points);
    }
    return all;
  }
}
