//! The files of `deploy/`: alerts and dashboards use metrics that exist, units and images use options that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use anyhow::{Context as _, ensure};
use oxtsdb_tests::certificates::Authority;
use oxtsdb_tests::http::Http;
use oxtsdb_tests::metrics::{Documented, documented};
use oxtsdb_tests::process::Process;
use oxtsdb_tests::{Options, Tsdb, paths, program_path, until};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Labels that Prometheus adds, and the label of buckets.
const OF_SCRAPES: [&str; 3] = ["instance", "job", "le"];

fn read(path: &str) -> anyhow::Result<String> {
    fs::read_to_string(paths::workspace().join(path)).context(path.to_owned())
}

/// The metrics of expressions, each with the labels of its selector.
fn selectors(text: &str) -> Vec<(String, Vec<String>)> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut metrics = Vec::new();
    let mut rest = text;
    while let Some(at) = ["oxtsdb_", "process_"]
        .iter()
        .filter_map(|start| rest.find(start))
        .min()
    {
        let begins_word = at == 0 || !is_name(rest.as_bytes()[at - 1]);
        let name: String = rest[at..]
            .bytes()
            .take_while(|byte| is_name(*byte))
            .map(char::from)
            .collect();
        rest = &rest[at + name.len()..];
        if !begins_word {
            continue;
        }
        let mut labels = Vec::new();
        if let Some(selector) = rest.strip_prefix('{')
            && let Some(end) = selector.find('}')
        {
            // Values have commas only within quotes: keys are before `=` or `!`.
            let mut is_value = false;
            let mut key = String::new();
            for character in selector[..end].chars() {
                match character {
                    '"' => is_value = !is_value,
                    _ if is_value => {}
                    ',' => key.clear(),
                    '=' | '!' if !key.is_empty() => labels.push(std::mem::take(&mut key)),
                    'a'..='z' | '_' => key.push(character),
                    _ => {}
                }
            }
        }
        metrics.push((name, labels));
    }
    metrics
}

/// Checks the metrics of expressions; returns their families.
fn check(
    source: &str,
    text: &str,
    documented: &BTreeMap<String, Documented>,
) -> anyhow::Result<BTreeSet<String>> {
    let mut families = BTreeSet::new();
    for (name, labels) in selectors(text) {
        let (family, metric) = ["", "_total", "_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| {
                let family = name.strip_suffix(suffix)?;
                let metric = documented.get(family)?;
                let is_counter = metric.meaning.starts_with("counter ");
                let is_histogram = metric.meaning.starts_with("histogram ");
                let is_right = match *suffix {
                    "" => !is_counter && !is_histogram,
                    "_total" => is_counter,
                    _ => is_histogram,
                };
                is_right.then_some((family, metric))
            })
            .with_context(|| format!("{source}: `{name}` is no sample of a metric of docs/operate.md"))?;
        for label in labels {
            let is_known = metric.labels.contains(&label) || OF_SCRAPES.contains(&label.as_str());
            ensure!(is_known, "{source}: `{name}` has no label `{label}`");
        }
        families.insert(family.to_owned());
    }
    Ok(families)
}

/// All texts below keys of this name.
fn texts<'a>(value: &'a Value, key: &str, texts_below: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == key => texts_below.push(text),
                    value => texts(value, key, texts_below),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| texts(value, key, texts_below)),
        _ => {}
    }
}

#[test]
fn dashboards_and_alerts_use_metrics_that_exist() -> anyhow::Result<()> {
    let documented = documented()?;
    let dashboard: Value = serde_json::from_str(&read("deploy/dashboards/oxtsdb.json")?)?;
    let mut expressions = Vec::new();
    texts(&dashboard, "expr", &mut expressions);
    ensure!(expressions.len() > 20, "{expressions:?}");
    for expression in &expressions {
        let families = check("the dashboard", expression, &documented)?;
        ensure!(!families.is_empty(), "`{expression}` has no metric");
    }
    let mut variables = Vec::new();
    texts(&dashboard, "query", &mut variables);
    check("the dashboard", &variables.join("\n"), &documented)?;

    let alerts = read("deploy/alerts/oxtsdb.yaml")?;
    let families = check("the alerts", &alerts, &documented)?;
    let rules = alerts.matches("- alert: ").count();
    ensure!(
        rules > 5 && families.len() >= rules,
        "{rules} rules of {families:?}"
    );
    Ok(())
}

#[test]
fn names_and_labels_that_do_not_exist_are_found() -> anyhow::Result<()> {
    let documented = documented()?;
    for (wrong, expected) in [
        ("rate(oxtsdb_made_up_total[5m])", "oxtsdb_made_up_total"),
        // A counter without its suffix, and a gauge with one.
        ("oxtsdb_requests", "oxtsdb_requests"),
        ("oxtsdb_store_parts_total", "oxtsdb_store_parts_total"),
        ("oxtsdb_requests_total{verb=\"GET\"}", "`verb`"),
        ("oxtsdb_requests_total{code=~\"a,b=\",verb!=\"x\"}", "`verb`"),
    ] {
        let error = check("a test", wrong, &documented)
            .err()
            .context(wrong)?
            .to_string();
        ensure!(error.contains(expected), "{error}");
    }
    check(
        "a test",
        "oxtsdb_requests_total{code=\"OK\",job=\"a\"} / sum(oxtsdb_request_seconds_bucket)",
        &documented,
    )?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_unit_of_systemd_starts_a_server() -> anyhow::Result<()> {
    let unit = read("deploy/systemd/oxtsdb.service")?;
    let command = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="))
        .context("ExecStart")?;
    let mut words = command.split(' ');
    ensure!(
        words.next() == Some("/usr/local/bin/tsdb") && words.next() == Some("serve"),
        "{command}"
    );
    // The harness sets the folder and the ports.
    let words: Vec<&str> = words.collect();
    ensure!(words == ["--data-dir", "${STATE_DIRECTORY}"], "{command}");
    let help = tokio::process::Command::new(program_path("tsdb")?)
        .args(["serve", "--help"])
        .output()
        .await?;
    let help = String::from_utf8(help.stdout)?;
    ensure!(help.contains("--data-dir"), "{help}");
    // A reload must not end the server, which SIGHUP does by default.
    ensure!(unit.contains("ExecReload=/bin/kill -HUP $MAINPID"));
    let mut tsdb = Tsdb::start_with(Options::default()).await?;
    tsdb.process().signal(rustix::process::Signal::HUP)?;
    let response = tsdb.http().get("/api/version").await?;
    ensure!(response.status == 200, "{response:?}");
    let stop: u64 = unit
        .lines()
        .find_map(|line| line.strip_prefix("TimeoutStopSec="))
        .context("TimeoutStopSec")?
        .parse()?;
    ensure!(stop > 5 + 30, "less than the lame duck and the drain");
    Ok(())
}

const CONTAINERFILE: &str = "deploy/container/Containerfile";

/// The arguments of all instructions of this name in the Containerfile, each on one line.
fn instructions(name: &str) -> anyhow::Result<Vec<String>> {
    let text = read(CONTAINERFILE)?.replace("\\\n", " ");
    let arguments = text
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let arguments: Vec<String> = arguments.map(str::to_owned).collect();
    ensure!(!arguments.is_empty(), "{CONTAINERFILE} has no {name}");
    Ok(arguments)
}

type Variables = BTreeMap<String, String>;

fn variables<'a>(assignments: impl IntoIterator<Item = &'a str>) -> anyhow::Result<Variables> {
    let parse = |assignment: &str| {
        let (name, value) = assignment.split_once('=').context(assignment.to_owned())?;
        Ok((name.to_owned(), value.to_owned()))
    };
    assignments.into_iter().map(parse).collect()
}

/// The variables of the image.
fn image() -> anyhow::Result<Variables> {
    variables(instructions("ENV")?[0].split_whitespace())
}

/// A file below `deploy/kubernetes`.
fn manifest(path: &str) -> anyhow::Result<String> {
    read(&format!("deploy/kubernetes/{path}"))
}

/// The variables of a `settings.env`.
fn settings(path: &str) -> anyhow::Result<Variables> {
    variables(manifest(path)?.lines().filter(|line| !line.starts_with('#')))
}

/// The values of a field in a manifest, or of a field of `{key: value, …}`.
fn values(manifest: &str, field: &str) -> anyhow::Result<Vec<String>> {
    let field = format!("{field}: ");
    let values = manifest
        .lines()
        .filter_map(|line| Some(line.split_once(&field)?.1));
    let values = values.map(|rest| rest.split([',', '}']).next().unwrap_or_default().trim());
    let values: Vec<String> = values
        .map(|value| value.trim_matches(['"', '[', ']']).to_owned())
        .collect();
    ensure!(!values.is_empty(), "no `{field}`");
    Ok(values)
}

/// The command of a manifest, with the variables of the image.
struct Pod {
    program: &'static str,
    arguments: &'static [&'static str],
    variables: Variables,
}

impl Pod {
    fn new(program: &'static str, path: &str, settings_path: &str) -> anyhow::Result<Self> {
        let text = manifest(path)?;
        // The image's entry point is `tsdb`.
        let (arguments, expected): (&[&str], _) = match program {
            "tsdb" => (&["serve"], "          args: [serve]\n".to_owned()),
            program => (&[], format!("          command: [{program}]\n")),
        };
        ensure!(text.contains(&expected), "{path} does not start {program}");
        ensure!(instructions("ENTRYPOINT")? == [r#"["tsdb"]"#]);
        let mut variables = image()?;
        for (name, port) in [
            ("OXTSDB_HTTP_LISTEN", "opentsdb"),
            ("OXTSDB_DATA_LISTEN", "grpc"),
            ("OXTSDB_UID_LISTEN", "grpc"),
            ("OXTSDB_ADMIN_LISTEN", "admin"),
        ] {
            let (_, number) = variables[name].split_once(':').context(name)?;
            let declared = format!("- {{name: {port}, containerPort: {number}}}");
            let is_used = match name {
                "OXTSDB_UID_LISTEN" => program == "uid-service",
                "OXTSDB_ADMIN_LISTEN" => true,
                _ => program != "uid-service",
            };
            ensure!(text.contains(&declared) == is_used, "{path}: `{declared}`");
        }
        variables.extend(settings(settings_path)?);
        for line in text.lines().filter(|line| line.contains("{name: OXTSDB_")) {
            let [name, value] = ["name", "value"].map(|field| values(line, field));
            variables.extend(name?.into_iter().zip(value?));
        }
        Ok(Self {
            program,
            arguments,
            variables,
        })
    }

    /// Moves its listeners to free ports of the same addresses, and its data to a folder.
    fn move_to(&mut self, folder: &Path) -> anyhow::Result<()> {
        let data = self.variables.get_mut("OXTSDB_DATA_DIR").context("data")?;
        *data = folder.join(self.program).display().to_string();
        for (name, value) in &mut self.variables {
            if name.ends_with("_LISTEN") {
                let mut address: SocketAddr = value.parse()?;
                address.set_port(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port());
                *value = address.to_string();
            }
        }
        Ok(())
    }

    fn port(&self, listener: &str) -> anyhow::Result<u16> {
        Ok(self.variables[listener].parse::<SocketAddr>()?.port())
    }

    /// Starts it, and waits until all probes succeed.
    async fn start(&self, folder: &Path) -> anyhow::Result<Process> {
        let mut command: Vec<String> = self
            .variables
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        // The container has a PATH with these programs only.
        command.retain(|variable| !variable.starts_with("PATH="));
        command.push(program_path(self.program)?.display().to_string());
        command.extend(self.arguments.iter().map(|argument| (*argument).to_owned()));
        let log = folder.join(format!("{}.log", self.program));
        let mut process = Process::run_program(Path::new("/usr/bin/env"), command, &log, None, &[])?;
        let admin = Http::new(SocketAddr::from((
            [127, 0, 0, 1],
            self.port("OXTSDB_ADMIN_LISTEN")?,
        )));
        let paths = values(&manifest("common/pod.yaml")?, "path")?;
        ensure!(paths == ["/healthz", "/healthz", "/readyz"], "{paths:?}");
        until("all probes succeed", || {
            let running = process.check_running();
            let (admin, paths) = (admin.clone(), &paths);
            async move {
                running?;
                for path in paths {
                    let response = admin.get(path).await?;
                    ensure!(response.status == 200, "{path}: {}", response.body);
                }
                Ok(())
            }
        })
        .await
        .with_context(|| process.log())?;
        Ok(process)
    }
}

/// The first variable that no help has; each command prints one.
async fn unknown(variables: &Variables, commands: &[&[&str]]) -> anyhow::Result<Option<String>> {
    let mut known = String::new();
    for command in commands {
        let printed = tokio::process::Command::new(program_path(command[0])?)
            .args(&command[1..])
            .output()
            .await?;
        ensure!(printed.status.success(), "{command:?}: {printed:?}");
        known.push_str(&String::from_utf8(printed.stdout)?);
    }
    let is_unknown = |name: &&String| !known.contains(&format!("[env: {name}="));
    Ok(variables.keys().find(is_unknown).cloned())
}

#[tokio::test]
async fn images_and_manifests_set_variables_that_exist() -> anyhow::Result<()> {
    const SERVE: &[&str] = &["tsdb", "serve", "--help-all"];
    const UID: &[&str] = &["uid-service", "--help-all"];
    const DATA: &[&str] = &["data-service", "--help-all"];
    let mut of_image = image()?;
    ensure!(of_image.remove("PATH").as_deref() == Some("/usr/local/bin"));
    // A variable of the allocator.
    ensure!(of_image.remove("MIMALLOC_ALLOW_THP").as_deref() == Some("0"));
    let tls = manifest("components/tls/settings.env")?;
    let optional = variables(tls.lines().filter_map(|line| line.strip_prefix("#OXTSDB")))?;
    ensure!(optional.len() == 1, "{optional:?}");
    let optional = optional
        .into_iter()
        .map(|(name, value)| (format!("OXTSDB{name}"), value));
    let of_data = Pod::new("data-service", "hbase/data-service.yaml", "hbase/settings.env")?;
    let inline = of_data
        .variables
        .into_iter()
        .filter(|(name, _)| name == "OXTSDB_MEMORY_LIMIT_MIB");
    for (variables, commands) in [
        (of_image, &[SERVE][..]),
        (settings("embedded/settings.env")?, &[SERVE]),
        (settings("hbase/settings.env")?, &[UID, DATA]),
        (
            settings("components/tls/settings.env")?,
            &[DATA, &["tsdb", "doctor", "--help"]],
        ),
        (optional.collect(), &[DATA]),
        (inline.collect(), &[DATA]),
    ] {
        ensure!(!variables.is_empty());
        let unknown = unknown(&variables, commands).await?;
        ensure!(unknown.is_none(), "{unknown:?} is no variable of {commands:?}");
    }
    Ok(())
}

/// The target folder that a program was built in, whatever its name and profile: the folder above the program
/// that cargo marks as a cache.
fn target_folder(program: &Path) -> anyhow::Result<&Path> {
    program
        .ancestors()
        .find(|folder| folder.join("CACHEDIR.TAG").is_file())
        .with_context(|| format!("{} lies in no target folder", program.display()))
}

#[test]
fn the_containerfile_copies_all_sources_of_the_programs() -> anyhow::Result<()> {
    let workspace = paths::workspace();
    let of_context = instructions("COPY")?
        .into_iter()
        .filter(|copy| !copy.starts_with("--from"));
    let mut copied = Vec::new();
    for copy in of_context {
        let mut words: Vec<&str> = copy.split(' ').collect();
        words.pop();
        copied.extend(words.into_iter().map(|word| workspace.join(word)));
    }
    for path in &copied {
        ensure!(path.exists(), "{} does not exist", path.display());
    }
    let is_copied = |path: &Path| copied.iter().any(|copied| path.starts_with(copied));
    let build = &instructions("RUN")?[0];
    let packages = build.split(" --package ").skip(1);
    let packages: Vec<&str> = packages.collect();
    ensure!(packages == ["tsdb", "uid-service", "data-service"], "{build}");
    // The files that cargo compiled into each library, included ones too. (The libraries of tests among them: their folder is
    // copied with the others.)
    let program = program_path("tsdb")?;
    let target = target_folder(&program)?;
    let mut sources = 0;
    for entry in fs::read_dir(program.with_file_name("deps"))? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "d") {
            continue;
        }
        let lists = fs::read_to_string(&path)?;
        let libraries = lists.lines().filter_map(|line| line.split_once(".rlib: "));
        for source in libraries.flat_map(|(_, list)| list.split_whitespace()) {
            let source = workspace.join(source);
            // Build scripts generate sources in the target folder, in the image's build too.
            let is_ours = source.starts_with(&workspace) && !source.starts_with(target);
            // `.ci/lint-rustc` compiles as clippy does, which reads its settings.
            if source == workspace.join("clippy.toml") {
                continue;
            }
            ensure!(
                !is_ours || is_copied(&source),
                "{} needs {}, which is not copied",
                path.display(),
                source.display()
            );
            sources += usize::from(is_ours);
        }
    }
    ensure!(sources > 500, "{sources} sources");
    let manifest = read("Cargo.toml")?;
    let members = manifest.split_once("members = [").context("members")?.1;
    let members = members.split(']').next().context("members")?.split('"');
    for member in members.skip(1).step_by(2) {
        let member = workspace.join(member);
        ensure!(
            is_copied(&member),
            "{} is a member of the workspace",
            member.display()
        );
    }
    Ok(())
}

#[test]
fn the_image_has_the_ports_user_and_compiler_that_fit() -> anyhow::Result<()> {
    let image = image()?;
    let listeners = image.iter().filter(|(name, _)| name.ends_with("_LISTEN"));
    let mut ports: Vec<&str> = listeners
        .filter_map(|(_, address)| address.strip_prefix("0.0.0.0:"))
        .collect();
    ports.sort_unstable();
    ensure!(instructions("EXPOSE")? == [ports.join(" ")], "{ports:?}");
    let data = &image["OXTSDB_DATA_DIR"];
    ensure!(instructions("VOLUME")? == [data.as_str()]);
    let mounts = values(&manifest("embedded/server.yaml")?, "mountPath")?;
    ensure!(mounts == [data.as_str()], "{mounts:?}");
    let user = instructions("USER")?.join("");
    let pod = manifest("common/pod.yaml")?;
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        let id = values(&pod, field)?.join("");
        ensure!(user == format!("{id}:{id}"), "{field}: {id}");
    }
    // The tag is a version of Rust that the workspace accepts.
    let from = instructions("FROM")?;
    let tag = from[0].strip_prefix("rust:").context("rust")?;
    let minor = |version: &str| version.split(['.', '-']).nth(1)?.parse::<u32>().ok();
    let oldest = read("Cargo.toml")?;
    let oldest = oldest.split_once("rust-version = \"").context("rust-version")?.1;
    ensure!(
        minor(tag) >= minor(oldest.split('"').next().unwrap_or_default()),
        "{tag}"
    );
    Ok(())
}

#[test]
fn pods_have_the_time_and_memory_that_the_server_needs() -> anyhow::Result<()> {
    let grace = values(&manifest("common/pod.yaml")?, "terminationGracePeriodSeconds")?;
    ensure!(
        grace[0].parse::<u32>()? > 5 + 30,
        "less than the lame duck and the drain"
    );
    // The process stays under its limit and a fifth.
    let data = manifest("hbase/data-service.yaml")?;
    let limit: u64 = values(&data, "value")?[0].parse()?;
    let memory = values(&data, "limits: {memory")?;
    let gib: u64 = memory[0].strip_suffix("Gi").context("Gi")?.parse()?;
    ensure!(limit * 6 / 5 < gib * 1024, "{limit} MiB and a fifth of {gib} GiB");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pod_of_the_embedded_overlay_serves_and_ends_in_time() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let mut pod = Pod::new("tsdb", "embedded/server.yaml", "embedded/settings.env")?;
    pod.move_to(folder.path())?;
    let mut process = pod.start(folder.path()).await?;
    let http = SocketAddr::from(([127, 0, 0, 1], pod.port("OXTSDB_HTTP_LISTEN")?));
    let version = Http::new(http).get("/api/version").await?;
    ensure!(version.status == 200, "{version:?}");
    let log = process.log();
    ensure!(log.contains("{\"timestamp\":"), "logs are not JSON:\n{log}");
    process.terminate()?;
    let status = process.wait().await?;
    ensure!(status.success(), "{status}:\n{}", process.log());
    Ok(())
}

/// The store is the embedded one: `tests/hbase` has the other.
#[tokio::test(flavor = "multi_thread")]
async fn the_pods_of_the_hbase_overlay_find_each_other_also_with_tls() -> anyhow::Result<()> {
    for with_tls in [false, true] {
        let folder = TempDir::with_prefix("oxtsdb-test-")?;
        let mut pods = [
            Pod::new("uid-service", "hbase/uid-service.yaml", "hbase/settings.env")?,
            Pod::new("data-service", "hbase/data-service.yaml", "hbase/settings.env")?,
        ];
        // The Secret, where the component mounts it.
        let authority = Authority::new("oxtsdb")?;
        let issued = authority.issue(&["localhost"])?;
        for (name, text) in [
            ("tls.crt", &issued.certificate),
            ("tls.key", &issued.key),
            ("ca.crt", &authority.pem()),
        ] {
            fs::write(folder.path().join(name), text)?;
        }
        let mount = values(&manifest("components/tls/pod.yaml")?, "mountPath")?.join("");
        let mut uid_port = None;
        let mut processes = Vec::new();
        for pod in &mut pods {
            if with_tls {
                pod.variables.extend(settings("components/tls/settings.env")?);
            }
            pod.move_to(folder.path())?;
            for (name, value) in [
                ("OXTSDB_STORE", "hbase"),
                ("OXTSDB_HBASE_THRIFT", "hbase-thrift:9090"),
            ] {
                let removed = pod.variables.remove(name);
                ensure!(removed.as_deref() == Some(value), "{name}: {removed:?}");
            }
            let uid_port = *uid_port.get_or_insert(pod.port("OXTSDB_UID_LISTEN")?);
            for value in pod.variables.values_mut() {
                *value = value.replace("//uid-service:4244", &format!("//localhost:{uid_port}"));
                *value = value.replace(&mount, &folder.path().display().to_string());
            }
            processes.push(pod.start(folder.path()).await?);
        }
        let port = pods[1].port("OXTSDB_HTTP_LISTEN")?;
        let http = match with_tls {
            true => Http::over_tls(port, &authority.pem(), None)?,
            false => Http::new(SocketAddr::from(([127, 0, 0, 1], port))),
        };
        // A new name needs the UID service.
        let point = json!({"metric": "m", "timestamp": 1_700_000_000, "value": 1, "tags": {"host": "a"}});
        let put = http.post("/api/put?summary", &point).await?;
        ensure!(put.body == r#"{"success":1,"failed":0}"#, "{put:?}");
    }
    Ok(())
}
