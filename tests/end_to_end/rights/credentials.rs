//! Tokens, the files and URLs of their keys, and the file of the policy.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::ensure;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_tests::tokens::{Signer, jwks, now, replace};
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, Tsdb, program_path, until};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tonic::Code;

use super::{Guarded, POLICY, is, options, sample};

#[tokio::test]
async fn tokens_that_are_not_valid_are_rejected_without_a_word_of_them() -> anyhow::Result<()> {
    let mut guarded = Guarded::start().await?;
    let stranger = Signer::new("stranger")?;
    let valid = guarded.token("olga");
    let (message, signature) = valid.rsplit_once('.').unwrap();
    let forged = format!(
        "{message}.{}",
        signature
            .chars()
            .rev()
            .skip(1)
            .chain(['A', 'A'])
            .take(86)
            .collect::<String>()
    );
    let cases = [
        (
            guarded.signer.token("olga", &json!({"aud": "other"}))?,
            "the token is for another audience",
        ),
        (
            guarded.signer.token("olga", &json!({"exp": now() - 60}))?,
            "the token has expired",
        ),
        (
            guarded.signer.token("olga", &json!({"nbf": now() + 60}))?,
            "the token is not valid yet",
        ),
        (
            stranger.token("olga", &json!({}))?,
            "no key of the JWKS is the one that signed the token",
        ),
        (forged, "the signature of the token is wrong"),
        ("not-a-token-at-all".to_owned(), "the token is not a valid JWT"),
    ];
    for (token, text) in &cases {
        let status = guarded.write(token, &["sys.a"]).await.unwrap_err();
        is(
            &status,
            Code::Unauthenticated,
            ErrorReason::InvalidCredentials,
            text,
        )?;
        let header = format!("Bearer {token}");
        let body = json!([sample("sys.a").to_json()]).to_string().into_bytes();
        let headers = [("authorization", header.as_str())];
        let response = guarded.tsdb.http().post_bytes("/api/put", &headers, body).await?;
        ensure!(response.status == 401, "{response:?}");
        ensure!(response.error_message()?.contains(text), "{response:?}");
    }
    let status = guarded
        .tsdb
        .data()
        .write(write_request(&[sample("sys.a")]))
        .await
        .unwrap_err();
    is(
        &status,
        Code::Unauthenticated,
        ErrorReason::InvalidCredentials,
        "no credentials",
    )?;
    // Probes have no token: the harness waited for health.
    let log = guarded.log();
    ensure!(log.contains("the token has expired"), "{log}");
    for (token, _) in &cases {
        for part in token.split('.') {
            ensure!(!log.contains(part), "the log has a part of a token");
        }
    }
    ensure!(
        !log.contains(&guarded.signer.jwk()["x"].as_str().unwrap().to_owned()),
        "the log has a key"
    );
    Ok(())
}

#[tokio::test]
async fn files_are_read_again_and_wrong_ones_are_not_used() -> anyhow::Result<()> {
    let mut guarded = Guarded::start().await?;
    ensure!(!guarded.may_write("app.r").await?);
    let wrong = POLICY.replace(
        "on = [\"telnet/put\"]",
        "on = [\"oxtsdb.data.v1.DataService/Wriite\"]",
    );
    replace(&guarded.file("policy.toml"), &wrong)?;
    let expected = "kept the old policy: the new one is wrong";
    until("the wrong policy is rejected", || {
        let log = guarded.tsdb.process().log();
        async move {
            ensure!(log.contains(expected), "{log}");
            ensure!(
                log.contains("unknown gRPC method `oxtsdb.data.v1.DataService/Wriite`"),
                "{log}"
            );
            Ok(())
        }
    })
    .await?;
    ensure!(guarded.may_write("sys.r").await? && !guarded.may_write("app.r").await?);
    replace(
        &guarded.file("policy.toml"),
        &POLICY.replace("[\"sys.\"]", "[\"app.\"]"),
    )?;
    until("the new policy is used", || async {
        ensure!(guarded.may_write("app.r").await? && !guarded.may_write("sys.r").await?);
        Ok(())
    })
    .await?;
    // A new key; tokens of the old one end with it.
    let old = guarded.token("collector");
    let second = Signer::new("second")?;
    replace(&guarded.file("jwks.json"), &jwks(&[&second]))?;
    until("the old key is gone", || async {
        match guarded.write(&old, &["app.r"]).await {
            Err(status) => is(
                &status,
                Code::Unauthenticated,
                ErrorReason::InvalidCredentials,
                "no key",
            ),
            Ok(response) => anyhow::bail!("{response:?}"),
        }
    })
    .await?;
    let new = second.token("collector", &json!({}))?;
    ensure!(guarded.write(&new, &["app.r"]).await?.written == 1);
    Ok(())
}

/// Serves a JWKS over HTTP until the runtime ends.
async fn serve(jwks: Arc<Mutex<String>>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/jwks", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let body = jwks.lock().unwrap().clone();
            let status = if body.is_empty() {
                "503 Unavailable"
            } else {
                "200 OK"
            };
            let length = body.len();
            let response =
                format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
            // A client that is gone asks again.
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    Ok(url)
}

#[tokio::test]
async fn keys_of_an_url_are_requested_again() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("policy.toml"), POLICY)?;
    let keys = Arc::new(Mutex::new(String::new()));
    let url = serve(Arc::clone(&keys)).await?;
    let options = Options::default()
        .flag(
            "--access-policy",
            &folder.path().join("policy.toml").display().to_string(),
        )
        .flag("--jwks", &url)
        .flag("--jwks-refresh-seconds", "1")
        .flag("--token-audience", "other,oxtsdb");
    // The issuer is away: the server starts, and rejects tokens.
    let tsdb = Tsdb::start_with(options).await?;
    let signer = Signer::new("a")?;
    let guarded = Guarded { tsdb, signer, folder };
    let status = guarded
        .write(&guarded.token("olga"), &["sys.u"])
        .await
        .unwrap_err();
    let text = "the server has no keys of tokens";
    is(
        &status,
        Code::Unauthenticated,
        ErrorReason::InvalidCredentials,
        text,
    )?;
    *keys.lock().unwrap() = jwks(&[&guarded.signer]);
    until("the keys are known", || async {
        ensure!(guarded.write(&guarded.token("olga"), &["sys.u"]).await?.written == 1);
        Ok(())
    })
    .await?;
    let second = Signer::new("b")?;
    *keys.lock().unwrap() = jwks(&[&second]);
    until("the new key is known", || async {
        let token = second.token("olga", &json!({}))?;
        ensure!(guarded.write(&token, &["sys.u"]).await?.written == 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn starts_with_wrong_files_fail_with_the_reason() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let signer = Signer::new("a")?;
    std::fs::write(folder.path().join("jwks.json"), jwks(&[&signer]))?;
    let policy = "[[rule]]\nname = \"r\"\nwho = [\"sub:a\"]\nmay = [\"read\"]\non = [\"oxtsdb.data.v1.DataService/Fetch\"]";
    for (text, expected) in [
        (
            policy,
            "r: on: unknown gRPC method `oxtsdb.data.v1.DataService/Fetch`",
        ),
        (
            "[[rule]]\nwho = [\"sub:a\"]\nmay = [\"read\"]\nallow = true",
            "unknown field `allow`",
        ),
    ] {
        std::fs::write(folder.path().join("policy.toml"), text)?;
        let error = Tsdb::failed_start(options(&folder)).await?;
        ensure!(
            error.contains("--access-policy") && error.contains(expected),
            "{error}"
        );
    }
    std::fs::write(folder.path().join("policy.toml"), POLICY)?;
    std::fs::write(
        folder.path().join("jwks.json"),
        r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#,
    )?;
    let error = Tsdb::failed_start(options(&folder)).await?;
    ensure!(
        error.contains("--jwks: ") && error.contains("has no key for signatures"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn clients_send_the_token_of_a_file() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let file = guarded.file("token");
    std::fs::write(&file, guarded.token("olga"))?;
    let program = program_path("tsdb")?;
    let list = async |token: Option<PathBuf>| {
        let mut command = tokio::process::Command::new(&program);
        let target = format!("http://{}", guarded.tsdb.data_address());
        command.args(["queries", "--target", &target]);
        if let Some(token) = token {
            command.arg("--token-file").arg(token);
        }
        command.output().await.map_err(anyhow::Error::from)
    };
    let listed = list(Some(file.clone())).await?;
    ensure!(listed.status.success(), "{listed:?}");
    let refused = list(None).await?;
    let error = String::from_utf8(refused.stderr)?;
    ensure!(
        !refused.status.success() && error.contains("no credentials"),
        "{error}"
    );
    // The client reads it again when it changes.
    let client = oxtsdb_client::ClientBuilder::new([format!("http://{}", guarded.tsdb.data_address())])
        .token_file(&file)
        .data()?;
    client.list_queries().await?;
    replace(&file, &guarded.token("grafana"))?;
    until("the new token is sent", || async {
        let Err(error) = client.list_queries().await else {
            anyhow::bail!("still the old one");
        };
        ensure!(error.code() == Code::PermissionDenied, "{error}");
        Ok(())
    })
    .await
}
