package dev.oxtsdb.proto;

import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import java.util.concurrent.TimeUnit;

/** Endpoints of services, {@code host:port}, and channels to them. */
public final class Endpoints {
  private Endpoints() {}

  /**
   * Returns a copy of the endpoints of a client.
   *
   * @param endpoints at least one
   * @return the copy
   * @throws IllegalArgumentException if there is none
   */
  public static String[] copyOf(String... endpoints) {
    if (endpoints.length == 0) {
      throw new IllegalArgumentException("no endpoints, at least one is required");
    }
    return endpoints.clone();
  }

  /**
   * Returns a builder of channels with keepalive, which notices a server that is gone.
   *
   * @param endpoint {@code host:port}
   * @param credentials TLS, or none
   * @return the builder
   */
  public static ManagedChannelBuilder<?> channel(String endpoint, ChannelCredentials credentials) {
    return Grpc.newChannelBuilder(endpoint, credentials)
        .keepAliveTime(30, TimeUnit.SECONDS)
        .keepAliveTimeout(10, TimeUnit.SECONDS);
  }

  /**
   * Returns a new channel without TLS, with keepalive.
   *
   * @param endpoint {@code host:port}
   * @return the channel
   */
  public static ManagedChannel plain(String endpoint) {
    return channel(endpoint, InsecureChannelCredentials.create()).build();
  }
}
