//! Every operation that a caller can request: its name in policies, what it does, and which modes serve it.
//!
//! gRPC methods are named `PACKAGE.SERVICE/METHOD`, HTTP endpoints by their path in OpenTSDB's documentation, commands
//! of telnet `telnet/COMMAND`. A method of the contract without a row is rejected; tests compare the table with the
//! contract and with the HTTP endpoints.

use std::fmt;

use crate::mode::Modes;

/// The kind of an operation, as policies grant it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Returns data.
    Read,
    /// Adds or changes points, names, metadata or annotations.
    Write,
    /// Deletes, repairs, or changes the deployment.
    Administer,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Administer];

    /// The name in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Administer => "administer",
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its name in policies.
    pub name: &'static str,
    /// Its kind: callers need a rule that grants it.
    pub action: Action,
    /// Which modes serve it.
    pub modes: Modes,
    /// Whether it checks the metrics of a request. Rules with `metrics` grant only operations that do.
    pub checks_metrics: bool,
    /// Whether every caller may request it: it returns nothing that is stored.
    pub is_open: bool,
}

/// A path of HTTP, and the actions of its methods.
#[derive(Clone, Copy, Debug)]
pub struct HttpEndpoint {
    /// The path without a version.
    pub path: &'static str,
    read: Action,
    change: Action,
    delete: Action,
    modes: Modes,
    checks_metrics: bool,
    is_open: bool,
}

impl HttpEndpoint {
    /// The operation of a method of HTTP, after `method_override`. `changes` says whether it may change something.
    pub fn operation(&self, method: &http::Method, changes: bool) -> Operation {
        let action = match (changes, method) {
            (false, _) => self.read,
            (true, &http::Method::DELETE) => self.delete,
            (true, _) => self.change,
        };
        Operation {
            name: self.path,
            action,
            modes: self.modes,
            checks_metrics: self.checks_metrics,
            is_open: self.is_open,
        }
    }

    /// The actions of its methods: read, change, delete.
    pub fn actions(&self) -> [Action; 3] {
        [self.read, self.change, self.delete]
    }
}

const fn row(name: &'static str, action: Action, modes: Modes, checks_metrics: bool) -> Operation {
    Operation {
        name,
        action,
        modes,
        checks_metrics,
        is_open: false,
    }
}

/// Stores points.
const fn points(name: &'static str) -> Operation {
    row(name, Action::Write, Modes::Writing, true)
}

/// Returns points of metrics that the request names.
const fn query(name: &'static str) -> Operation {
    row(name, Action::Read, Modes::Reading, true)
}

/// Returns something else that is stored with the points.
const fn search(name: &'static str) -> Operation {
    row(name, Action::Read, Modes::Reading, false)
}

/// Returns names, or the state of the server.
const fn read(name: &'static str) -> Operation {
    row(name, Action::Read, Modes::All, false)
}

/// Changes names or metadata.
const fn write(name: &'static str) -> Operation {
    row(name, Action::Write, Modes::Writing, false)
}

/// Deletes or repairs.
const fn repair(name: &'static str) -> Operation {
    row(name, Action::Administer, Modes::Writing, false)
}

/// For operators; changes nothing that is stored.
const fn operate(name: &'static str) -> Operation {
    row(name, Action::Administer, Modes::All, false)
}

/// All methods of the contract, and of OpenTelemetry's.
pub static GRPC: &[Operation] = &[
    points("oxtsdb.data.v1.DataService/Write"),
    points("oxtsdb.data.v1.DataService/WriteColumns"),
    points("oxtsdb.data.v1.DataService/WriteStream"),
    points("oxtsdb.data.v1.DataService/WriteHistograms"),
    points("oxtsdb.data.v1.DataService/WriteRollups"),
    query("oxtsdb.data.v1.DataService/Query"),
    query("oxtsdb.data.v1.DataService/Explain"),
    query("oxtsdb.data.v1.DataService/QueryExpressions"),
    query("oxtsdb.data.v1.DataService/QueryLast"),
    search("oxtsdb.data.v1.DataService/ScanRows"),
    read("oxtsdb.data.v1.DataAdminService/ListQueries"),
    operate("oxtsdb.data.v1.DataAdminService/CancelQuery"),
    operate("oxtsdb.data.v1.DataAdminService/ScanTable"),
    repair("oxtsdb.data.v1.DataAdminService/BuildRollups"),
    repair("oxtsdb.data.v1.DataAdminService/CompactRows"),
    repair("oxtsdb.data.v1.DataAdminService/DeletePoints"),
    operate("oxtsdb.data.v1.DataAdminService/FsckRows"),
    repair("oxtsdb.data.v1.DataAdminService/RepairRows"),
    operate("oxtsdb.data.v1.ReferenceService/ListReferencedUids"),
    operate("oxtsdb.data.v1.StoreAdminService/CreateSnapshot"),
    operate("oxtsdb.data.v1.StoreAdminService/CheckStore"),
    operate("oxtsdb.data.v1.StoreAdminService/GetStoreStats"),
    search("oxtsdb.data.v1.SeriesService/LookupSeries"),
    search("oxtsdb.data.v1.SeriesService/ExportSeries"),
    search("oxtsdb.data.v1.SeriesService/CountSeries"),
    search("oxtsdb.data.v1.SeriesMetaService/GetSeriesMeta"),
    write("oxtsdb.data.v1.SeriesMetaService/UpdateSeriesMeta"),
    write("oxtsdb.data.v1.SeriesMetaService/DeleteSeriesMeta"),
    repair("oxtsdb.data.v1.SeriesMetaService/SyncMeta"),
    repair("oxtsdb.data.v1.SeriesMetaService/PurgeMeta"),
    search("oxtsdb.data.v1.SeriesMetaService/SearchMetadata"),
    search("oxtsdb.data.v1.AnnotationService/GetAnnotation"),
    search("oxtsdb.data.v1.AnnotationService/ListAnnotations"),
    write("oxtsdb.data.v1.AnnotationService/PutAnnotation"),
    write("oxtsdb.data.v1.AnnotationService/BatchPutAnnotations"),
    write("oxtsdb.data.v1.AnnotationService/DeleteAnnotation"),
    write("oxtsdb.data.v1.AnnotationService/DeleteAnnotationRange"),
    repair("oxtsdb.data.v1.TreeService/CreateTree"),
    search("oxtsdb.data.v1.TreeService/GetTree"),
    search("oxtsdb.data.v1.TreeService/ListTrees"),
    repair("oxtsdb.data.v1.TreeService/UpdateTree"),
    repair("oxtsdb.data.v1.TreeService/DeleteTree"),
    repair("oxtsdb.data.v1.TreeService/SetTreeRules"),
    repair("oxtsdb.data.v1.TreeService/DeleteTreeRules"),
    search("oxtsdb.data.v1.TreeService/GetBranch"),
    search("oxtsdb.data.v1.TreeService/TestTree"),
    repair("oxtsdb.data.v1.TreeService/SyncTrees"),
    search("oxtsdb.data.v1.TreeService/ListTreeProblems"),
    write("oxtsdb.uid.v1.UidService/GetOrCreateUids"),
    read("oxtsdb.uid.v1.UidService/LookupUids"),
    read("oxtsdb.uid.v1.UidService/LookupNames"),
    read("oxtsdb.uid.v1.UidService/SuggestNames"),
    read("oxtsdb.uid.v1.UidService/ExportUids"),
    read("oxtsdb.uid.v1.UidService/GetUidLayout"),
    repair("oxtsdb.uid.v1.UidService/RenameUid"),
    repair("oxtsdb.uid.v1.UidService/DeleteUid"),
    read("oxtsdb.uid.v1.UidService/WatchUids"),
    operate("oxtsdb.uid.v1.UidService/DropUidCaches"),
    write("oxtsdb.uid.v1.UidService/ReportUidsInUse"),
    read("oxtsdb.uid.v1.UidService/GetUidUsage"),
    operate("oxtsdb.uid.v1.UidAdminService/FsckUids"),
    repair("oxtsdb.uid.v1.UidAdminService/RepairUids"),
    repair("oxtsdb.uid.v1.UidAdminService/RaiseUidCounter"),
    read("oxtsdb.uid.v1.UidMetaService/GetUidMeta"),
    read("oxtsdb.uid.v1.UidMetaService/BatchGetUidMeta"),
    write("oxtsdb.uid.v1.UidMetaService/UpdateUidMeta"),
    write("oxtsdb.uid.v1.UidMetaService/DeleteUidMeta"),
    repair("oxtsdb.uid.v1.UidMetaService/SyncUidMeta"),
    repair("oxtsdb.uid.v1.UidMetaService/PurgeUidMeta"),
    repair("oxtsdb.uid.v1.UidReclaimService/QuarantineUids"),
    repair("oxtsdb.uid.v1.UidReclaimService/RestoreUids"),
    repair("oxtsdb.uid.v1.UidReclaimService/ReleaseUids"),
    operate("oxtsdb.uid.v1.UidReclaimService/ListReclaimedUids"),
    operate("oxtsdb.uid.v1.UidReclaimService/CountUidQuotas"),
    points("opentelemetry.proto.collector.metrics.v1.MetricsService/Export"),
    read("grpc.reflection.v1.ServerReflection/ServerReflectionInfo"),
    read("grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"),
];

/// The service of health checks, which every caller may use: probes have no credentials.
pub const HEALTH: &str = "grpc.health.v1.Health";

const fn http(path: &'static str, [read, change, delete]: [Action; 3], modes: Modes) -> HttpEndpoint {
    HttpEndpoint {
        path,
        read,
        change,
        delete,
        modes,
        checks_metrics: false,
        is_open: false,
    }
}

/// The page and its files, on which callers enter their tokens.
const fn http_open(path: &'static str) -> HttpEndpoint {
    HttpEndpoint {
        is_open: true,
        ..http(path, READS, Modes::Reading)
    }
}

const fn http_metrics(path: &'static str, actions: [Action; 3], modes: Modes) -> HttpEndpoint {
    HttpEndpoint {
        checks_metrics: true,
        ..http(path, actions, modes)
    }
}

const WRITES: [Action; 3] = [Action::Write; 3];
const READS: [Action; 3] = [Action::Read; 3];
const QUERIES: [Action; 3] = [Action::Read, Action::Read, Action::Administer];
const EDITS: [Action; 3] = [Action::Read, Action::Write, Action::Write];
const OPERATES: [Action; 3] = [Action::Administer; 3];

/// All endpoints of HTTP. Which modes serve OpenTSDB's is its choice.
///
/// Source: OpenTSDB 2.4, `RpcManager.initializeBuiltinRpcs`.
pub static HTTP: &[HttpEndpoint] = &[
    http_metrics("/api/put", WRITES, Modes::Writing),
    http_metrics("/api/histogram", WRITES, Modes::Writing),
    http_metrics("/api/rollup", WRITES, Modes::Writing),
    http_metrics("/api/write", WRITES, Modes::Writing),
    http_metrics("/api/read", READS, Modes::Reading),
    http_metrics("/api/v2/write", WRITES, Modes::Writing),
    http_metrics("/v1/metrics", WRITES, Modes::Writing),
    http_metrics("/write", WRITES, Modes::Writing),
    http("/query", WRITES, Modes::Writing),
    http("/ping", READS, Modes::All),
    http_metrics("/api/query", QUERIES, Modes::Reading),
    http_metrics("/api/query/last", QUERIES, Modes::Reading),
    http_metrics("/api/query/exp", QUERIES, Modes::Reading),
    http_metrics("/api/query/gexp", QUERIES, Modes::Reading),
    http_metrics("/q", READS, Modes::Reading),
    http("/api/annotation", EDITS, Modes::Writing),
    http("/api/annotations", EDITS, Modes::Writing),
    http("/api/annotation/bulk", EDITS, Modes::Writing),
    http("/api/annotations/bulk", EDITS, Modes::Writing),
    http("/api/uid", READS, Modes::Writing),
    http("/api/uid/assign", WRITES, Modes::Writing),
    http("/api/uid/rename", OPERATES, Modes::Writing),
    http("/api/uid/uidmeta", EDITS, Modes::Writing),
    http("/api/uid/tsmeta", EDITS, Modes::Writing),
    http(
        "/api/tree",
        [Action::Read, Action::Administer, Action::Administer],
        Modes::Writing,
    ),
    http("/api/suggest", READS, Modes::Reading),
    http("/api/search", READS, Modes::Reading),
    http("/api/aggregators", READS, Modes::All),
    http("/api/serializers", READS, Modes::All),
    http("/api/config", READS, Modes::All),
    http("/api/config/filters", READS, Modes::All),
    http("/api/dropcaches", OPERATES, Modes::All),
    http("/api/stats", READS, Modes::All),
    http("/api/version", READS, Modes::All),
    http("/suggest", READS, Modes::Reading),
    http("/aggregators", READS, Modes::All),
    http("/version", READS, Modes::All),
    http("/stats", READS, Modes::All),
    http("/logs", READS, Modes::All),
    http_open("/favicon.ico"),
    http_open("/s"),
    http_open("/"),
];

/// The commands of telnet that need a right; `version`, `help` and `exit` need none.
pub static TELNET: &[Operation] = &[
    points("telnet/put"),
    points("telnet/histogram"),
    points("telnet/rollup"),
    read("telnet/stats"),
    operate("telnet/dropcaches"),
];

/// The row of a gRPC method, by the path of its requests.
pub fn by_grpc_path(path: &str) -> Option<&'static Operation> {
    let name = path.strip_prefix('/')?;
    GRPC.iter().find(|operation| operation.name == name)
}

/// The row of an HTTP endpoint.
pub fn by_http_path(path: &str) -> Option<&'static HttpEndpoint> {
    HTTP.iter().find(|endpoint| endpoint.path == path)
}

/// The row of a telnet command.
pub fn by_telnet_command(command: &str) -> Option<&'static Operation> {
    let of = |operation: &&Operation| operation.name.strip_prefix("telnet/") == Some(command);
    TELNET.iter().find(of)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message as _;
    use prost_types::FileDescriptorSet;

    use super::*;

    #[test]
    fn has_a_row_for_each_method_of_the_contract() {
        let contract = FileDescriptorSet::decode(oxtsdb_proto::FILE_DESCRIPTOR_SET).unwrap();
        let mut methods = BTreeSet::new();
        for file in &contract.file {
            for service in &file.service {
                for method in &service.method {
                    methods.insert(format!("{}.{}/{}", file.package(), service.name(), method.name()));
                }
            }
        }
        let rows = GRPC.iter().map(|operation| operation.name.to_owned());
        let rows: BTreeSet<String> = rows.filter(|name| name.starts_with("oxtsdb.")).collect();
        assert_eq!(rows, methods);
    }

    #[test]
    fn finds_operations_by_path() {
        let write = by_grpc_path("/oxtsdb.data.v1.DataService/Write").unwrap();
        assert_eq!((write.action, write.modes), (Action::Write, Modes::Writing));
        assert!(by_grpc_path("/oxtsdb.data.v1.DataService/write").is_none());
        let query = by_http_path("/api/query").unwrap();
        let delete = query.operation(&http::Method::DELETE, true);
        assert_eq!(delete.action, Action::Administer);
        assert_eq!(by_telnet_command("put").unwrap().name, "telnet/put");
        assert!(by_telnet_command("exit").is_none());
    }
}
