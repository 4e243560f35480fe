//! The messages of HBase's RPC, as far as this client sends and reads them.
//!
//! Source: HBase 2.6.1, `hbase-protocol-shaded`: `RPC.proto`, `Client.proto`, `HBase.proto`, `Master.proto`,
//! `RegistryProtos.proto`, `Filter.proto`, `Comparator.proto`, `ZooKeeper.proto`. The numbers of these fields are the
//! same in 1.7.2, 2.4.18 and 3.0.0-alpha-4. A field that a server may omit is an `Option`, or a list.

use bytes::Bytes;
use prost::Message;

// --- A connection

#[derive(Clone, PartialEq, Message)]
pub(super) struct UserInformation {
    #[prost(string, required, tag = "1")]
    pub effective_user: String,
}

/// Decides which forms of responses a server uses: cell blocks for gets from 1.3 on, and newer exceptions.
#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionInfo {
    #[prost(string, required, tag = "1")]
    pub version: String,
    #[prost(string, required, tag = "2")]
    pub url: String,
    #[prost(string, required, tag = "3")]
    pub revision: String,
    #[prost(string, required, tag = "4")]
    pub user: String,
    #[prost(string, required, tag = "5")]
    pub date: String,
    #[prost(string, required, tag = "6")]
    pub src_checksum: String,
    #[prost(uint32, optional, tag = "7")]
    pub version_major: Option<u32>,
    #[prost(uint32, optional, tag = "8")]
    pub version_minor: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ConnectionHeader {
    #[prost(message, optional, tag = "1")]
    pub user_info: Option<UserInformation>,
    #[prost(string, optional, tag = "2")]
    pub service_name: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub cell_block_codec_class: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub version_info: Option<VersionInfo>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct CellBlockMeta {
    #[prost(uint32, optional, tag = "1")]
    pub length: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestHeader {
    #[prost(uint32, optional, tag = "1")]
    pub call_id: Option<u32>,
    #[prost(string, optional, tag = "3")]
    pub method_name: Option<String>,
    #[prost(bool, optional, tag = "4")]
    pub request_param: Option<bool>,
    #[prost(message, optional, tag = "5")]
    pub cell_block_meta: Option<CellBlockMeta>,
    #[prost(uint32, optional, tag = "6")]
    pub priority: Option<u32>,
    /// Milliseconds.
    #[prost(uint32, optional, tag = "7")]
    pub timeout: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ExceptionResponse {
    #[prost(string, optional, tag = "1")]
    pub exception_class_name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub stack_trace: Option<String>,
    /// Of `RegionMovedException` only, as the port.
    #[prost(string, optional, tag = "3")]
    pub hostname: Option<String>,
    #[prost(int32, optional, tag = "4")]
    pub port: Option<i32>,
    #[prost(bool, optional, tag = "5")]
    pub do_not_retry: Option<bool>,
    #[prost(bool, optional, tag = "6")]
    pub server_overloaded: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ResponseHeader {
    #[prost(uint32, optional, tag = "1")]
    pub call_id: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub exception: Option<ExceptionResponse>,
    #[prost(message, optional, tag = "3")]
    pub cell_block_meta: Option<CellBlockMeta>,
}

// --- Servers and regions

/// The region by its name.
pub(super) const BY_REGION_NAME: i32 = 1;

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RegionSpecifier {
    #[prost(int32, required, tag = "1")]
    pub kind: i32,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub value: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TableNameMessage {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub namespace: Bytes,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub qualifier: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ServerName {
    #[prost(string, required, tag = "1")]
    pub host_name: String,
    #[prost(uint32, optional, tag = "2")]
    pub port: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RegionInfo {
    #[prost(uint64, required, tag = "1")]
    pub region_id: u64,
    #[prost(message, required, tag = "2")]
    pub table_name: TableNameMessage,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub start_key: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub end_key: Option<Bytes>,
    #[prost(bool, optional, tag = "5")]
    pub offline: Option<bool>,
    #[prost(bool, optional, tag = "6")]
    pub split: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RegionLocation {
    #[prost(message, optional, tag = "2")]
    pub server_name: Option<ServerName>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Empty {}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct GetMetaRegionLocationsResponse {
    #[prost(message, repeated, tag = "1")]
    pub meta_locations: Vec<RegionLocation>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct GetActiveMasterResponse {
    #[prost(message, optional, tag = "1")]
    pub server_name: Option<ServerName>,
}

/// The znode of `hbase:meta`'s location, and the znode of the active master: the first field of both.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ServerOfZnode {
    #[prost(message, optional, tag = "1")]
    pub server: Option<ServerName>,
}

// --- Rows

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Column {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub family: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub qualifier: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct BytesBytesPair {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub first: Bytes,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub second: Bytes,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct NameBytesPair {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
}

/// A filter or a comparator: a Java class, and its message.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct JavaClass {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub serialized: Option<Bytes>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Get {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub row: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub column: Vec<Column>,
    #[prost(uint32, optional, tag = "6")]
    pub max_versions: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CellMessage {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub row: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub family: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub qualifier: Option<Bytes>,
    #[prost(uint64, optional, tag = "4")]
    pub timestamp: Option<u64>,
    #[prost(bytes = "bytes", optional, tag = "6")]
    pub value: Option<Bytes>,
}

/// The cells of a row: in the message, or the next ones of the cell block.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ResultMessage {
    #[prost(message, repeated, tag = "1")]
    pub cell: Vec<CellMessage>,
    #[prost(int32, optional, tag = "2")]
    pub associated_cell_count: Option<i32>,
}

/// Values of `MutationProto::mutate_type`.
pub(super) mod mutate_type {
    pub(in super::super) const APPEND: i32 = 0;
    pub(in super::super) const INCREMENT: i32 = 1;
    pub(in super::super) const PUT: i32 = 2;
    pub(in super::super) const DELETE: i32 = 3;
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct QualifierValue {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub qualifier: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub value: Option<Bytes>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ColumnValue {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub family: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub qualifier_value: Vec<QualifierValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct MutationProto {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub row: Option<Bytes>,
    #[prost(int32, optional, tag = "2")]
    pub mutate_type: Option<i32>,
    #[prost(message, repeated, tag = "3")]
    pub column_value: Vec<ColumnValue>,
    /// Its cells in the cell block.
    #[prost(int32, optional, tag = "8")]
    pub associated_cell_count: Option<i32>,
    #[prost(uint64, optional, tag = "9")]
    pub nonce: Option<u64>,
}

/// The compare type `EQUAL`.
pub(super) const EQUAL: i32 = 2;

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ConditionMessage {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub row: Bytes,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub family: Bytes,
    #[prost(bytes = "bytes", required, tag = "3")]
    pub qualifier: Bytes,
    #[prost(int32, required, tag = "4")]
    pub compare_type: i32,
    #[prost(message, required, tag = "5")]
    pub comparator: JavaClass,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct MutateRequest {
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    #[prost(message, required, tag = "2")]
    pub mutation: MutationProto,
    #[prost(message, optional, tag = "3")]
    pub condition: Option<ConditionMessage>,
    #[prost(uint64, optional, tag = "4")]
    pub nonce_group: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct MutateResponse {
    #[prost(message, optional, tag = "1")]
    pub result: Option<ResultMessage>,
    #[prost(bool, optional, tag = "2")]
    pub processed: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Action {
    #[prost(uint32, optional, tag = "1")]
    pub index: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub mutation: Option<MutationProto>,
    #[prost(message, optional, tag = "3")]
    pub get: Option<Get>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RegionAction {
    #[prost(message, required, tag = "1")]
    pub region: RegionSpecifier,
    #[prost(bool, optional, tag = "2")]
    pub atomic: Option<bool>,
    #[prost(message, repeated, tag = "3")]
    pub action: Vec<Action>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct MultiRequest {
    #[prost(message, repeated, tag = "1")]
    pub region_action: Vec<RegionAction>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ResultOrException {
    #[prost(uint32, optional, tag = "1")]
    pub index: Option<u32>,
    #[prost(message, optional, tag = "2")]
    pub result: Option<ResultMessage>,
    #[prost(message, optional, tag = "3")]
    pub exception: Option<NameBytesPair>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RegionActionResult {
    #[prost(message, repeated, tag = "1")]
    pub result_or_exception: Vec<ResultOrException>,
    #[prost(message, optional, tag = "2")]
    pub exception: Option<NameBytesPair>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct MultiResponse {
    #[prost(message, repeated, tag = "1")]
    pub region_action_result: Vec<RegionActionResult>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ScanMessage {
    #[prost(message, repeated, tag = "1")]
    pub column: Vec<Column>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub start_row: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub stop_row: Option<Bytes>,
    #[prost(message, optional, tag = "5")]
    pub filter: Option<JavaClass>,
    #[prost(uint32, optional, tag = "7")]
    pub max_versions: Option<u32>,
    #[prost(uint64, optional, tag = "10")]
    pub max_result_size: Option<u64>,
    #[prost(bool, optional, tag = "15")]
    pub reversed: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ScanRequest {
    #[prost(message, optional, tag = "1")]
    pub region: Option<RegionSpecifier>,
    #[prost(message, optional, tag = "2")]
    pub scan: Option<ScanMessage>,
    #[prost(uint64, optional, tag = "3")]
    pub scanner_id: Option<u64>,
    #[prost(uint32, optional, tag = "4")]
    pub number_of_rows: Option<u32>,
    #[prost(bool, optional, tag = "5")]
    pub close_scanner: Option<bool>,
    #[prost(uint64, optional, tag = "6")]
    pub next_call_seq: Option<u64>,
    #[prost(bool, optional, tag = "7")]
    pub client_handles_partials: Option<bool>,
    #[prost(bool, optional, tag = "8")]
    pub client_handles_heartbeats: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ScanResponse {
    #[prost(uint32, repeated, tag = "1")]
    pub cells_per_result: Vec<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub scanner_id: Option<u64>,
    #[prost(bool, optional, tag = "3")]
    pub more_results: Option<bool>,
    #[prost(bool, repeated, tag = "7")]
    pub partial_flag_per_result: Vec<bool>,
    #[prost(bool, optional, tag = "8")]
    pub more_results_in_region: Option<bool>,
}

// --- Filters and comparators

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct BinaryComparator {
    #[prost(message, required, tag = "1")]
    pub comparable: ByteArrayComparable,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ByteArrayComparable {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub value: Option<Bytes>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RegexStringComparator {
    #[prost(string, required, tag = "1")]
    pub pattern: String,
    #[prost(int32, required, tag = "2")]
    pub pattern_flags: i32,
    #[prost(string, required, tag = "3")]
    pub charset: String,
    #[prost(string, optional, tag = "4")]
    pub engine: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CompareFilter {
    #[prost(int32, required, tag = "1")]
    pub compare_op: i32,
    #[prost(message, optional, tag = "2")]
    pub comparator: Option<JavaClass>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RowFilterMessage {
    #[prost(message, required, tag = "1")]
    pub compare_filter: CompareFilter,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct RowRange {
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub start_row: Option<Bytes>,
    #[prost(bool, optional, tag = "2")]
    pub start_row_inclusive: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub stop_row: Option<Bytes>,
    #[prost(bool, optional, tag = "4")]
    pub stop_row_inclusive: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct MultiRowRangeFilter {
    #[prost(message, repeated, tag = "1")]
    pub row_range_list: Vec<RowRange>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct FilterList {
    /// 1: all filters have to pass.
    #[prost(int32, required, tag = "1")]
    pub operator: i32,
    #[prost(message, repeated, tag = "2")]
    pub filters: Vec<JavaClass>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct KeyOnlyFilter {
    #[prost(bool, required, tag = "1")]
    pub len_as_val: bool,
}

// --- Tables

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct FamilySchema {
    #[prost(bytes = "bytes", required, tag = "1")]
    pub name: Bytes,
    #[prost(message, repeated, tag = "2")]
    pub attributes: Vec<BytesBytesPair>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct TableSchema {
    #[prost(message, optional, tag = "1")]
    pub table_name: Option<TableNameMessage>,
    #[prost(message, repeated, tag = "3")]
    pub column_families: Vec<FamilySchema>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct CreateTableRequest {
    #[prost(message, required, tag = "1")]
    pub table_schema: TableSchema,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub split_keys: Vec<Bytes>,
    #[prost(uint64, optional, tag = "3")]
    pub nonce_group: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub nonce: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct ProcedureId {
    #[prost(uint64, optional, tag = "1")]
    pub proc_id: Option<u64>,
}

/// The state of a procedure that runs.
pub(super) const PROCEDURE_RUNS: i32 = 1;

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct GetProcedureResultResponse {
    #[prost(int32, required, tag = "1")]
    pub state: i32,
    #[prost(message, optional, tag = "5")]
    pub exception: Option<ForeignException>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ForeignException {
    #[prost(message, optional, tag = "2")]
    pub generic_exception: Option<GenericException>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct GenericException {
    #[prost(string, optional, tag = "1")]
    pub class_name: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub message: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct GetTableDescriptorsRequest {
    #[prost(message, repeated, tag = "1")]
    pub table_names: Vec<TableNameMessage>,
    #[prost(bool, optional, tag = "3")]
    pub include_sys_tables: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct GetTableDescriptorsResponse {
    #[prost(message, repeated, tag = "1")]
    pub table_schema: Vec<TableSchema>,
}
