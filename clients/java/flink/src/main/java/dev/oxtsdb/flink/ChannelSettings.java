package dev.oxtsdb.flink;

import dev.oxtsdb.proto.Endpoints;
import io.grpc.CallCredentials;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ChannelCredentials;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptor;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.TlsChannelCredentials;
import java.io.File;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Objects;
import java.util.concurrent.Executor;

/**
 * TLS and tokens of a sink. Immutable: each method returns a copy with one more setting.
 *
 * <p>Files are those of the task managers. They are read when a channel is made, the token's file at each call, so that a renewed token
 * needs no restart.
 *
 * @serial exclude
 */
public final class ChannelSettings implements ChannelFactory {
  private static final long serialVersionUID = 1;
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  private final boolean tls;
  private final String authorities;
  private final String certificate;
  private final String key;
  private final Token token;

  private ChannelSettings(boolean tls, String authorities, String certificate, String key, Token token) {
    this.tls = tls;
    this.authorities = authorities;
    this.certificate = certificate;
    this.key = key;
    this.token = token;
  }

  /**
   * Returns settings without TLS.
   *
   * @return the default of a sink
   */
  public static ChannelSettings plaintext() {
    return new ChannelSettings(false, null, null, null, null);
  }

  /**
   * Returns settings with TLS, which trust the certificate authorities of the Java runtime.
   *
   * @return the settings
   */
  public static ChannelSettings tls() {
    return new ChannelSettings(true, null, null, null, null);
  }

  /**
   * Trusts other certificate authorities in place of the runtime's.
   *
   * @param file PEM
   * @return the settings, with TLS
   */
  public ChannelSettings trusting(String file) {
    return new ChannelSettings(true, Objects.requireNonNull(file, "file"), certificate, key, token);
  }

  /**
   * Sends a client certificate.
   *
   * @param certificateFile the certificate with its chain, PEM
   * @param keyFile its private key, PKCS #8 as PEM
   * @return the settings, with TLS
   */
  public ChannelSettings certificate(String certificateFile, String keyFile) {
    Objects.requireNonNull(certificateFile, "certificateFile");
    Objects.requireNonNull(keyFile, "keyFile");
    return new ChannelSettings(true, authorities, certificateFile, keyFile, token);
  }

  /**
   * Sends a token with each call. It is a part of the job graph: {@link #tokenFile} keeps it out.
   *
   * @param token a JWT
   * @return the settings
   */
  public ChannelSettings token(String token) {
    Objects.requireNonNull(token, "token");
    return new ChannelSettings(tls, authorities, certificate, key, () -> token);
  }

  /**
   * Sends the token in a file with each call.
   *
   * @param file a JWT; white space around it is ignored
   * @return the settings
   */
  public ChannelSettings tokenFile(String file) {
    Objects.requireNonNull(file, "file");
    return new ChannelSettings(tls, authorities, certificate, key, () -> Files.readString(Path.of(file)).trim());
  }

  /**
   * Makes a channel.
   *
   * @param endpoint {@code host:port}
   * @return a new channel
   * @throws UncheckedIOException if a file cannot be read
   */
  @Override
  public ManagedChannel apply(String endpoint) {
    ManagedChannelBuilder<?> builder = Endpoints.channel(endpoint, credentials());
    if (token != null) {
      builder.intercept(new TokenCredentials(token));
    }
    return builder.build();
  }

  private ChannelCredentials credentials() {
    if (!tls) {
      return InsecureChannelCredentials.create();
    }
    TlsChannelCredentials.Builder builder = TlsChannelCredentials.newBuilder();
    try {
      if (authorities != null) {
        builder.trustManager(new File(authorities));
      }
      if (certificate != null) {
        builder.keyManager(new File(certificate), new File(key));
      }
    } catch (IOException failure) {
      throw new UncheckedIOException(failure);
    }
    return builder.build();
  }

  /** Where a token comes from. */
  @FunctionalInterface
  private interface Token extends Serializable {
    String read() throws IOException;
  }

  /** Adds the token to the headers of each call. */
  private static final class TokenCredentials extends CallCredentials implements ClientInterceptor {
    private final Token token;

    private TokenCredentials(Token token) {
      this.token = token;
    }

    @Override
    public <Q, R> ClientCall<Q, R> interceptCall(MethodDescriptor<Q, R> method, CallOptions options, Channel next) {
      return next.newCall(method, options.withCallCredentials(this));
    }

    @Override
    public void applyRequestMetadata(RequestInfo request, Executor executor, MetadataApplier applier) {
      executor.execute(
          () -> {
            Metadata headers = new Metadata();
            try {
              headers.put(AUTHORIZATION, "Bearer " + token.read());
            } catch (IOException failure) {
              applier.fail(Status.UNAUTHENTICATED.withDescription("cannot read the token: " + failure).withCause(failure));
              return;
            }
            applier.apply(headers);
          });
    }
  }
}
