package dev.oxtsdb.flink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import dev.oxtsdb.proto.data.v1.DataServiceGrpc;
import dev.oxtsdb.proto.data.v1.WriteRequest;
import dev.oxtsdb.proto.data.v1.WriteResponse;
import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerCredentials;
import io.grpc.ServerInterceptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsServerCredentials;
import io.grpc.stub.StreamObserver;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.Key;
import java.security.KeyStore;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.flink.util.InstantiationUtil;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Calls over the channels, to a server that keeps the headers. */
class ChannelSettingsTest {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);

  @TempDir Path folder;
  private final BlockingQueue<String> authorizations = new LinkedBlockingQueue<>();
  private Server server;

  @AfterEach
  void endServer() {
    if (server != null) {
      server.shutdownNow();
    }
  }

  private String serve(ServerCredentials credentials) throws Exception {
    ServerInterceptor headers =
        new ServerInterceptor() {
          @Override
          public <Q, R> ServerCall.Listener<Q> interceptCall(
              ServerCall<Q, R> call, Metadata headers, ServerCallHandler<Q, R> next) {
            authorizations.add(String.valueOf(headers.get(AUTHORIZATION)));
            return next.startCall(call, headers);
          }
        };
    server =
        Grpc.newServerBuilderForPort(0, credentials)
            .intercept(headers)
            .addService(
                new DataServiceGrpc.DataServiceImplBase() {
                  @Override
                  public void write(WriteRequest request, StreamObserver<WriteResponse> response) {
                    response.onNext(WriteResponse.getDefaultInstance());
                    response.onCompleted();
                  }
                })
            .build()
            .start();
    return "localhost:" + server.getPort();
  }

  private static void call(ManagedChannel channel) {
    DataServiceGrpc.newBlockingStub(channel).withDeadlineAfter(60, TimeUnit.SECONDS).write(WriteRequest.getDefaultInstance());
  }

  /** Calls with a copy of the settings, as a task does. */
  private static void call(ChannelSettings settings, String endpoint) throws Exception {
    ManagedChannel channel = InstantiationUtil.clone(settings).apply(endpoint);
    try {
      call(channel);
    } finally {
      channel.shutdownNow();
    }
  }

  @Test
  void sendsTheToken() throws Exception {
    String endpoint = serve(InsecureServerCredentials.create());
    call(ChannelSettings.plaintext(), endpoint);
    call(ChannelSettings.plaintext().token("abc"), endpoint);
    assertEquals(List.of("null", "Bearer abc"), List.copyOf(authorizations));
  }

  @Test
  void readsTheTokenFileForEachCall() throws Exception {
    Path file = Files.writeString(folder.resolve("token"), "first\n");
    ManagedChannel channel =
        ChannelSettings.plaintext().tokenFile(file.toString()).apply(serve(InsecureServerCredentials.create()));
    try {
      call(channel);
      Files.writeString(file, "second");
      call(channel);
      Files.delete(file);
      StatusRuntimeException failure = assertThrows(StatusRuntimeException.class, () -> call(channel));
      assertEquals(Status.Code.UNAUTHENTICATED, failure.getStatus().getCode());
    } finally {
      channel.shutdownNow();
    }
    assertEquals(List.of("Bearer first", "Bearer second"), List.copyOf(authorizations));
  }

  @Test
  void trustsTheGivenAuthoritiesOnlyAndSendsItsCertificate() throws Exception {
    Pem own = new Pem("server");
    Pem client = new Pem("client");
    String endpoint =
        serve(
            TlsServerCredentials.newBuilder()
                .keyManager(own.certificate.toFile(), own.key.toFile())
                .trustManager(client.certificate.toFile())
                .clientAuth(TlsServerCredentials.ClientAuth.REQUIRE)
                .build());
    ChannelSettings settings = ChannelSettings.plaintext().trusting(own.certificate.toString());
    call(settings.certificate(client.certificate.toString(), client.key.toString()), endpoint);
    assertThrows(StatusRuntimeException.class, () -> call(settings, endpoint));
    assertThrows(StatusRuntimeException.class, () -> call(ChannelSettings.tls(), endpoint));
    assertThrows(StatusRuntimeException.class, () -> call(ChannelSettings.plaintext(), endpoint));
    assertEquals(1, authorizations.size());
  }

  @Test
  void aMissingFileIsAnError() {
    ChannelSettings settings = ChannelSettings.plaintext().trusting(folder.resolve("missing.pem").toString());
    assertThrows(UncheckedIOException.class, () -> settings.apply("localhost:1"));
  }

  /** A key of its own for localhost, with a certificate that it signs itself. */
  private final class Pem {
    private final Path certificate;
    private final Path key;

    private Pem(String name) throws Exception {
      Path store = folder.resolve(name + ".p12");
      Process keytool =
          new ProcessBuilder(
                  Path.of(System.getProperty("java.home"), "bin", "keytool").toString(),
                  "-genkeypair", "-alias", name, "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=" + name,
                  "-ext", "san=dns:localhost", "-ext", "bc=ca:true", "-validity", "2", "-storetype", "PKCS12",
                  "-storepass", "changeit", "-keystore", store.toString())
              .inheritIO()
              .start();
      assertEquals(0, keytool.waitFor());
      KeyStore keys = KeyStore.getInstance(store.toFile(), "changeit".toCharArray());
      Key secret = keys.getKey(name, "changeit".toCharArray());
      certificate = pem(name + ".pem", "CERTIFICATE", keys.getCertificate(name).getEncoded());
      key = pem(name + ".key", "PRIVATE KEY", secret.getEncoded());
    }

    private Path pem(String name, String type, byte[] content) throws Exception {
      String base64 = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(content);
      return Files.writeString(
          folder.resolve(name), "-----BEGIN " + type + "-----\n" + base64 + "\n-----END " + type + "-----\n");
    }
  }
}
