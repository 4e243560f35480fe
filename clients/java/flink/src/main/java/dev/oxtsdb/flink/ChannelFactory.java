package dev.oxtsdb.flink;

import io.grpc.ManagedChannel;
import java.io.Serializable;
import java.util.function.Function;

/** Makes the gRPC channel to an endpoint, {@code host:port}. {@link ChannelSettings} has TLS and tokens; implement it for anything else. */
@FunctionalInterface
public interface ChannelFactory extends Function<String, ManagedChannel>, Serializable {}
