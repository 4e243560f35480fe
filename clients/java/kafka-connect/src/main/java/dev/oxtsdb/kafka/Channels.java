package dev.oxtsdb.kafka;

import dev.oxtsdb.proto.Endpoints;
import io.grpc.ChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.TlsChannelCredentials;
import io.grpc.stub.MetadataUtils;
import java.io.File;
import java.io.IOException;
import java.util.function.Function;
import org.apache.kafka.common.config.ConfigException;

/** Opens channels to data services: plain or TLS, with or without a token. */
final class Channels implements Function<String, ManagedChannel> {
  private static final Metadata.Key<String> AUTHORIZATION = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  private final ChannelCredentials credentials;
  private final String token;

  Channels(SinkSettings settings) {
    credentials = settings.getBoolean(SinkSettings.TLS) ? tls(settings) : InsecureChannelCredentials.create();
    token = settings.token();
  }

  private static ChannelCredentials tls(SinkSettings settings) {
    TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder();
    File authorities = settings.file(SinkSettings.TLS_CA);
    File certificate = settings.file(SinkSettings.TLS_CERTIFICATE);
    try {
      if (authorities != null) {
        tls.trustManager(authorities);
      }
      if (certificate != null) {
        tls.keyManager(certificate, settings.file(SinkSettings.TLS_KEY));
      }
    } catch (IOException error) {
      throw new ConfigException("files of " + SinkSettings.TLS + " cannot be read: " + error.getMessage());
    }
    return tls.build();
  }

  @Override
  public ManagedChannel apply(String endpoint) {
    ManagedChannelBuilder<?> channel = Endpoints.channel(endpoint, credentials);
    if (token != null) {
      Metadata headers = new Metadata();
      headers.put(AUTHORIZATION, "Bearer " + token);
      channel.intercept(MetadataUtils.newAttachHeadersInterceptor(headers));
    }
    return channel.build();
  }
}
