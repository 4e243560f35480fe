use std::collections::HashMap;

use prost::{Message, Name};
use prost_types::field_descriptor_proto::Label;
use prost_types::{DescriptorProto, FileDescriptorSet};
use tonic::Code;

use super::*;
use crate::common::v1::{ErrorReason, Tag};
use crate::data::v1::columns::{Block, SeriesDeclaration};
use crate::data::v1::{
    ExplainRequest, QueryExpressionsRequest, QueryLastRequest, QueryRequest, SubQuery, TagFilter, TimeSeries,
    WriteColumnsRequest, WriteRequest, WriteStreamRequest, sub_query,
};
use crate::uid::v1::{ExportUidsRequest, LookupNamesRequest};

fn check<M: Message + Name>(message: &M) -> Result<(), Status> {
    check_bytes::<M>(&message.encode_to_vec())
}

fn check_bytes<M: Name>(message: &[u8]) -> Result<(), Status> {
    let name = M::full_name();
    RequestBounds::for_message(&name)
        .unwrap()
        .check(&name, message)
        .map(drop)
}

fn limit_of(field: &str) -> usize {
    bound_of(field).0
}

/// The limit of a field, and the bytes of an element.
pub(crate) fn bound_of(field: &str) -> (usize, usize) {
    let bound = BOUNDS.iter().find(|bound| bound.field == field).unwrap();
    (bound.limit as usize, bound.element_bytes as usize)
}

#[track_caller]
fn assert_too_many(result: Result<(), Status>, field: &str) {
    let status = result.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert_eq!(error::reason_of(&status), Some(ErrorReason::BatchTooLarge));
    assert!(status.message().contains(field), "{status:?}");
}

/// Reads the descriptors, not the tables.
#[test]
fn each_repeated_field_of_a_request_has_a_bound() {
    let set = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap();
    let mut messages = HashMap::new();
    for file in &set.file {
        for message in &file.message_type {
            collect(&format!(".{}", file.package()), message, &mut messages);
        }
    }
    let services = set.file.iter().flat_map(|file| &file.service);
    let mut open: Vec<String> = services
        .flat_map(|service| &service.method)
        .map(|method| method.input_type().to_owned())
        .collect();
    assert!(open.len() > 15, "all calls are found");
    let mut seen = Vec::new();
    while let Some(name) = open.pop() {
        if seen.contains(&name) {
            continue;
        }
        let message = messages
            .get(&name)
            .unwrap_or_else(|| panic!("{name} is declared"));
        for field in &message.field {
            if field.label() == Label::Repeated {
                let name = format!("{}.{}", name.trim_start_matches('.'), field.name());
                assert!(limit_of(&name) > 0, "{name}");
            }
            if !field.type_name().is_empty() && messages.contains_key(field.type_name()) {
                open.push(field.type_name().to_owned());
            }
        }
        seen.push(name);
    }
}

fn collect<'a>(scope: &str, message: &'a DescriptorProto, all: &mut HashMap<String, &'a DescriptorProto>) {
    let name = format!("{scope}.{}", message.name());
    for nested in &message.nested_type {
        collect(&name, nested, all);
    }
    all.insert(name, message);
}

#[test]
fn elements_are_counted_up_to_the_bound() {
    let request = |series| WriteRequest {
        series: vec![TimeSeries::default(); series],
        ..WriteRequest::default()
    };
    let field = "oxtsdb.data.v1.WriteRequest.series";
    check(&request(limit_of(field))).unwrap();
    assert_too_many(check(&request(limit_of(field) + 1)), field);
}

#[test]
fn elements_of_all_parents_count_together() {
    let field = "oxtsdb.data.v1.SubQuery.MetricSource.filters";
    let source = sub_query::MetricSource {
        filters: vec![TagFilter::default(); limit_of(field) / 2],
        ..sub_query::MetricSource::default()
    };
    let query = SubQuery {
        source: Some(sub_query::Source::Metric(source)),
        ..SubQuery::default()
    };
    let request = |queries| QueryRequest {
        queries: vec![query.clone(); queries],
        ..QueryRequest::default()
    };
    check(&request(2)).unwrap();
    assert_too_many(check(&request(3)), field);
}

#[test]
fn sub_queries_are_bounded_wherever_a_call_takes_them() {
    let field = "oxtsdb.data.v1.QueryRequest.queries";
    let query = QueryRequest {
        queries: vec![SubQuery::default(); limit_of(field) + 1],
        ..QueryRequest::default()
    };
    assert_too_many(check(&query), field);
    assert_too_many(check(&ExplainRequest { query: Some(query) }), field);
    let field = "oxtsdb.data.v1.QueryExpressionsRequest.inputs";
    let expressions = QueryExpressionsRequest {
        inputs: vec![Default::default(); limit_of(field) + 1],
        ..Default::default()
    };
    assert_too_many(check(&expressions), field);
    let field = "oxtsdb.data.v1.QueryLastRequest.targets";
    let last = QueryLastRequest {
        targets: vec![Default::default(); limit_of(field) + 1],
        ..Default::default()
    };
    assert_too_many(check(&last), field);
    let field = "oxtsdb.uid.v1.LookupNamesRequest.uids";
    let uids = LookupNamesRequest {
        uids: vec![Default::default(); limit_of(field) + 1],
        ..Default::default()
    };
    assert_too_many(check(&uids), field);
}

/// A field with a length: a text, a message or packed numbers.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    prost::encoding::encode_varint(content.len() as u64, &mut field);
    field.extend_from_slice(content);
    field
}

#[test]
fn the_tags_of_all_series_are_counted() {
    let bound = "oxtsdb.common.v1.SeriesName.tags";
    // series.name.tags, all of them empty.
    let series = |tags: usize| field(1, &field(1, &field(2, &[]).repeat(tags)));
    let request = |tags: usize| [series(tags / 2), series(tags - tags / 2)].concat();
    check_bytes::<WriteRequest>(&request(limit_of(bound))).unwrap();
    assert_too_many(check_bytes::<WriteRequest>(&request(limit_of(bound) + 1)), bound);
}

#[test]
fn packed_numbers_are_counted_one_by_one() {
    let bound = "oxtsdb.data.v1.Columns.Block.int_values";
    // frame.columns.blocks.int_values, of two bytes each.
    let request = |values: usize| {
        let block = field(5, &[0x80, 0x01].repeat(values));
        field(2, &field(2, &field(5, &block)))
    };
    check_bytes::<WriteStreamRequest>(&request(limit_of(bound))).unwrap();
    assert_too_many(
        check_bytes::<WriteStreamRequest>(&request(limit_of(bound) + 1)),
        bound,
    );
    let kinds = ExportUidsRequest {
        kinds: vec![1; 65],
        start_after: None,
    };
    assert_too_many(check(&kinds), "ExportUidsRequest.kinds");
}

#[test]
fn numbers_that_are_not_packed_are_counted_too() {
    let kinds = [0x08, 0x01].repeat(65);
    assert_too_many(
        check_bytes::<ExportUidsRequest>(&kinds),
        "ExportUidsRequest.kinds",
    );
}

#[test]
fn a_request_unfolds_to_no_more_than_the_stated_bytes() {
    // Each is within its own bound; all together are not.
    let columns = [
        field(2, &[]).repeat(1_000_000),
        field(4, &[]).repeat(600_000),
        field(5, &[]).repeat(300_000),
    ];
    let status = check_bytes::<WriteColumnsRequest>(&field(1, &columns.concat())).unwrap_err();
    assert_eq!(error::reason_of(&status), Some(ErrorReason::BatchTooLarge));
    assert!(status.message().contains("128 MiB"), "{status:?}");
}

#[test]
fn what_elements_take_is_returned() {
    let unfolded = |series| {
        let request = WriteRequest {
            series: vec![TimeSeries::default(); series],
            ..WriteRequest::default()
        };
        let name = WriteRequest::full_name();
        let bounds = RequestBounds::for_message(&name).unwrap();
        bounds.check(&name, &request.encode_to_vec()).unwrap()
    };
    assert_eq!(unfolded(0), 0);
    assert!(unfolded(1000) >= 1000 * size_of::<TimeSeries>() as u64);
    assert!(unfolded(1000) <= 4000 * size_of::<TimeSeries>() as u64);
}

#[test]
fn the_bytes_of_an_element_are_not_underestimated() {
    let bytes_of = |field: &str| {
        let bound = BOUNDS.iter().find(|bound| bound.field == field).unwrap();
        bound.element_bytes as usize
    };
    for (field, size) in [
        ("oxtsdb.data.v1.WriteRequest.series", size_of::<TimeSeries>()),
        ("oxtsdb.common.v1.SeriesName.tags", size_of::<Tag>()),
        ("oxtsdb.data.v1.Columns.blocks", size_of::<Block>()),
        (
            "oxtsdb.data.v1.Columns.new_series",
            size_of::<SeriesDeclaration>(),
        ),
        ("oxtsdb.data.v1.QueryRequest.queries", size_of::<SubQuery>()),
        ("oxtsdb.data.v1.TagFilter.values", size_of::<String>()),
    ] {
        assert!(bytes_of(field) >= size, "{field}: {} < {size}", bytes_of(field));
    }
}

#[test]
fn malformed_bytes_do_not_end_the_count() {
    // Cut short, a tag without an end, groups that could hide elements, field 0, a number cut short.
    for bytes in [
        &[0x0a, 0x05, 0x01][..],
        &[0xff; 12],
        &[0x0b, 0x0c],
        &[0x00, 0x01],
        &[0x09, 1],
    ] {
        let status = check_bytes::<WriteRequest>(bytes).unwrap_err();
        assert_eq!(
            error::reason_of(&status),
            Some(ErrorReason::MalformedMessage),
            "{bytes:?}"
        );
    }
    check_bytes::<WriteRequest>(&[]).unwrap();
    assert!(RequestBounds::for_message("oxtsdb.data.v1.WriteResponse").is_none());
}
