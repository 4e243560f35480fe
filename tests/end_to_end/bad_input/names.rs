//! Bad input of names, metadata, annotations, look-ups, trees and watches, over gRPC and HTTP.

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::ErrorReason::{self, *};
use oxtsdb_proto::common::v1::series_key::Key;
use oxtsdb_proto::common::v1::{SeriesKey, UidKind};
use oxtsdb_proto::data::v1::annotation_service_client::AnnotationServiceClient;
use oxtsdb_proto::data::v1::get_branch_request::Branch;
use oxtsdb_proto::data::v1::put_annotation_request::Precondition;
use oxtsdb_proto::data::v1::series_meta_service_client::SeriesMetaServiceClient;
use oxtsdb_proto::data::v1::series_service_client::SeriesServiceClient;
use oxtsdb_proto::data::v1::tree_service_client::TreeServiceClient;
use oxtsdb_proto::data::v1::*;
use oxtsdb_proto::error::reason_of;
use oxtsdb_proto::uid::v1::uid_meta_service_client::UidMetaServiceClient;
use oxtsdb_proto::uid::v1::watch_uids_response::event::Event;
use oxtsdb_proto::uid::v1::*;
use oxtsdb_tests::read_back::{call_error, range};
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, Tsdb, until};
use serde_json::{Value, json};
use tonic::{Code, Response, Status};
use tonic_types::StatusExt as _;

use super::points::T;

/// The series `m{host=a}`.
const TSUID: &[u8] = &[0, 0, 1, 0, 0, 1, 0, 0, 1];

/// A server with the metrics `m` and `n`, an annotation and a tree.
async fn server() -> anyhow::Result<Tsdb> {
    let tsdb = Tsdb::start_with(Options::default().flag("--uid-log-entries", "1")).await?;
    let samples = ["m", "n"].map(|metric| Sample::int(metric, &[("host", "a")], T, 1));
    tsdb.data().write(write_request(&samples)).await?;
    for start_ms in [T, T + 1000] {
        AnnotationServiceClient::new(tsdb.data_channel())
            .put_annotation(PutAnnotationRequest {
                annotation: Some(annotation(start_ms)),
                ..PutAnnotationRequest::default()
            })
            .await?;
    }
    let tree = Tree {
        name: "t".to_owned(),
        ..Tree::default()
    };
    TreeServiceClient::new(tsdb.data_channel())
        .create_tree(CreateTreeRequest { tree: Some(tree) })
        .await?;
    Ok(tsdb)
}

fn annotation(start_ms: i64) -> Annotation {
    Annotation {
        tsuid: TSUID.to_vec().into(),
        start_ms,
        notes: "n".to_owned(),
        ..Annotation::default()
    }
}

fn renaming(name: &str, new_name: &str) -> RenameUidRequest {
    RenameUidRequest {
        kind: UidKind::Metric.into(),
        name: name.to_owned(),
        new_name: new_name.to_owned(),
        ..RenameUidRequest::default()
    }
}

/// Checks the code and the reason of an error, and the field that it names; empty: none.
fn check<R: std::fmt::Debug>(
    what: &str,
    result: Result<Response<R>, Status>,
    expected: (Code, ErrorReason),
    field: &str,
) -> anyhow::Result<()> {
    let status = call_error(result).with_context(|| what.to_owned())?;
    let reason = reason_of(&status).with_context(|| format!("{what}: {status:?}"))?;
    ensure!((status.code(), reason) == expected, "{what}: {status:?}");
    let info = status.get_details_error_info().context("ErrorInfo")?;
    let named = info.metadata.get("field").map_or("", String::as_str);
    ensure!(named == field, "{what}: field `{named}`: {status:?}");
    ensure!(!status.message().is_empty(), "{what}: {status:?}");
    Ok(())
}

const INVALID: (Code, ErrorReason) = (Code::InvalidArgument, InvalidField);
const STALE: (Code, ErrorReason) = (Code::Aborted, EtagMismatch);
const NO_NAME: (Code, ErrorReason) = (Code::NotFound, NameNotFound);
const NO_TREE: (Code, ErrorReason) = (Code::NotFound, TreeNotFound);

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_names_are_rejected_with_typed_errors() -> anyhow::Result<()> {
    let tsdb = server().await?;
    let mut uids = tsdb.uids();
    for (what, request, expected, field) in [
        (
            "a taken name",
            renaming("m", "n"),
            (Code::AlreadyExists, NameTaken),
            "",
        ),
        (
            "an illegal name",
            renaming("m", "a b"),
            (Code::InvalidArgument, InvalidName),
            "new_name",
        ),
        (
            "an empty name",
            renaming("m", ""),
            (Code::InvalidArgument, InvalidName),
            "new_name",
        ),
        ("an absent name", renaming("none", "x"), NO_NAME, ""),
        (
            "another UID",
            RenameUidRequest {
                expected_uid: vec![0, 0, 9].into(),
                ..renaming("m", "x")
            },
            (Code::Aborted, UidMismatch),
            "",
        ),
        (
            "a UID of another width",
            RenameUidRequest {
                expected_uid: vec![9].into(),
                ..renaming("m", "x")
            },
            (Code::InvalidArgument, InvalidUidWidth),
            "expected_uid",
        ),
        (
            "no kind",
            RenameUidRequest {
                kind: 0,
                ..renaming("m", "x")
            },
            INVALID,
            "kind",
        ),
    ] {
        check(
            &format!("rename: {what}"),
            uids.rename_uid(request).await,
            expected,
            field,
        )?;
    }
    let delete = |name: &str| DeleteUidRequest {
        kind: UidKind::Metric.into(),
        name: name.to_owned(),
        ..DeleteUidRequest::default()
    };
    check(
        "delete: an absent name",
        uids.delete_uid(delete("none")).await,
        NO_NAME,
        "",
    )?;
    let other = DeleteUidRequest {
        expected_uid: vec![0, 0, 9].into(),
        ..delete("m")
    };
    check(
        "delete: another UID",
        uids.delete_uid(other).await,
        (Code::Aborted, UidMismatch),
        "",
    )?;
    let suggest = |prefix: &str, page_token: String| SuggestNamesRequest {
        kind: UidKind::Metric.into(),
        prefix: prefix.to_owned(),
        page_size: 1,
        page_token,
    };
    let page = uids.suggest_names(suggest("", String::new())).await?.into_inner();
    ensure!(!page.next_page_token.is_empty(), "{page:?}");
    for token in [page.next_page_token, "x".to_owned()] {
        let of_another = uids.suggest_names(suggest("o", token)).await;
        check(
            "suggest: a token of another query",
            of_another,
            INVALID,
            "page_token",
        )?;
    }
    let mut meta = UidMetaServiceClient::new(tsdb.uid_channel());
    let update = |uid: u8, etag: &str| UpdateUidMetaRequest {
        meta: Some(UidMeta {
            kind: UidKind::Metric.into(),
            uid: vec![0, 0, uid].into(),
            notes: "n".to_owned(),
            etag: etag.to_owned(),
            ..UidMeta::default()
        }),
        update_mask: None,
    };
    meta.update_uid_meta(update(1, "")).await?;
    check(
        "UID metadata: an old etag",
        meta.update_uid_meta(update(1, "0")).await,
        STALE,
        "",
    )?;
    check(
        "UID metadata: an absent UID",
        meta.update_uid_meta(update(9, "")).await,
        (Code::NotFound, UidNotFound),
        "",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_series_and_annotations_are_rejected_with_typed_errors() -> anyhow::Result<()> {
    let tsdb = server().await?;
    let mut meta = SeriesMetaServiceClient::new(tsdb.data_channel());
    let update = |tsuid: &[u8], etag: &str| UpdateSeriesMetaRequest {
        series: Some(SeriesKey {
            key: Some(Key::Tsuid(tsuid.to_vec().into())),
        }),
        meta: Some(SeriesMeta {
            notes: "n".to_owned(),
            etag: etag.to_owned(),
            ..SeriesMeta::default()
        }),
        ..UpdateSeriesMetaRequest::default()
    };
    let mut create = update(TSUID, "");
    let absent = (Code::NotFound, SeriesNotFound);
    check(
        "series: no document",
        meta.update_series_meta(create.clone()).await,
        absent,
        "",
    )?;
    create.allow_missing = true;
    meta.update_series_meta(create).await?;
    check(
        "series: an old etag",
        meta.update_series_meta(update(TSUID, "0")).await,
        STALE,
        "",
    )?;

    let mut annotations = AnnotationServiceClient::new(tsdb.data_channel());
    let put = |precondition| PutAnnotationRequest {
        annotation: Some(annotation(T)),
        precondition: Some(precondition),
        ..PutAnnotationRequest::default()
    };
    for precondition in [Precondition::Etag("0".to_owned()), Precondition::MustBeNew(true)] {
        let stale = annotations.put_annotation(put(precondition)).await;
        check("annotation: a precondition", stale, STALE, "")?;
    }
    let delete = |start_ms, etag: &str| DeleteAnnotationRequest {
        tsuid: TSUID.to_vec().into(),
        start_ms,
        etag: etag.to_owned(),
        ..DeleteAnnotationRequest::default()
    };
    let gone = annotations.delete_annotation(delete(T + 5000, "")).await;
    check(
        "annotation: absent",
        gone,
        (Code::NotFound, AnnotationNotFound),
        "",
    )?;
    let stale = annotations.delete_annotation(delete(T, "0")).await;
    check("annotation: an old etag", stale, STALE, "")?;
    let list = |end_ms, page_token| ListAnnotationsRequest {
        tsuid: TSUID.to_vec().into(),
        range: Some(range(T, end_ms)),
        page_size: 1,
        page_token,
    };
    let page = annotations
        .list_annotations(list(T + 9000, String::new()))
        .await?
        .into_inner();
    ensure!(!page.next_page_token.is_empty(), "{page:?}");
    for token in [page.next_page_token, "x".to_owned()] {
        let of_another = annotations.list_annotations(list(T + 8000, token)).await;
        check(
            "annotations: a token of another query",
            of_another,
            INVALID,
            "page_token",
        )?;
    }

    let mut series = SeriesServiceClient::new(tsdb.data_channel());
    let lookup = |metric: &str, page_token| LookupSeriesRequest {
        selector: Some(SeriesSelector {
            metric: metric.to_owned(),
            tags: Vec::new(),
        }),
        page_size: 1,
        page_token,
        ..LookupSeriesRequest::default()
    };
    let page = series
        .lookup_series(lookup("", String::new()))
        .await?
        .into_inner();
    ensure!(!page.next_page_token.is_empty(), "{page:?}");
    for token in [page.next_page_token, "x".to_owned()] {
        let of_another = series.lookup_series(lookup("m", token)).await;
        check(
            "look-up: a token of another query",
            of_another,
            INVALID,
            "page_token",
        )?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_rules_and_unknown_trees_are_rejected_with_typed_errors() -> anyhow::Result<()> {
    let tsdb = server().await?;
    let mut trees = TreeServiceClient::new(tsdb.data_channel());
    let good = TreeRule {
        r#type: TreeRuleType::Metric.into(),
        ..TreeRule::default()
    };
    let set = |tree_id, rules| SetTreeRulesRequest {
        tree_id,
        rules,
        replace_all: false,
    };
    for (part, rule) in [
        (
            "regex",
            TreeRule {
                regex: "a(".to_owned(),
                ..good.clone()
            },
        ),
        (
            "separator",
            TreeRule {
                separator: "[".to_owned(),
                ..good.clone()
            },
        ),
        (
            "regex_group_index",
            TreeRule {
                regex: "(a)".to_owned(),
                regex_group_index: 1,
                ..good.clone()
            },
        ),
        (
            "type",
            TreeRule {
                r#type: 0,
                ..good.clone()
            },
        ),
        (
            "field",
            TreeRule {
                r#type: TreeRuleType::TagKey.into(),
                ..good.clone()
            },
        ),
    ] {
        let rejected = trees.set_tree_rules(set(1, vec![good.clone(), rule])).await;
        let field = format!("rules[1].{part}");
        check(
            "a bad rule",
            rejected,
            (Code::InvalidArgument, InvalidRule),
            &field,
        )?;
    }
    let tree = |tree_id, etag: &str| UpdateTreeRequest {
        tree: Some(Tree {
            tree_id,
            notes: "n".to_owned(),
            etag: etag.to_owned(),
            ..Tree::default()
        }),
        update_mask: None,
    };
    check("an old etag", trees.update_tree(tree(1, "0")).await, STALE, "")?;
    check("update", trees.update_tree(tree(7, "")).await, NO_TREE, "")?;
    check(
        "get",
        trees.get_tree(GetTreeRequest { tree_id: 7 }).await,
        NO_TREE,
        "",
    )?;
    check(
        "rules",
        trees.set_tree_rules(set(7, vec![good])).await,
        NO_TREE,
        "",
    )?;
    let series = vec![SeriesKey {
        key: Some(Key::Tsuid(TSUID.to_vec().into())),
    }];
    let test = |tree_id| TestTreeRequest {
        tree_id,
        series: series.clone(),
    };
    check("test", trees.test_tree(test(7)).await, NO_TREE, "")?;
    check("the id 0", trees.test_tree(test(0)).await, INVALID, "tree_id")?;
    let places = vec![delete_tree_rules_request::Place { level: 3, order: 0 }];
    let delete = DeleteTreeRulesRequest { tree_id: 1, places };
    let absent = trees.delete_tree_rules(delete).await;
    check("an absent rule", absent, (Code::NotFound, RuleNotFound), "")?;
    let branch = |branch| GetBranchRequest { branch: Some(branch) };
    let no_branch = (Code::NotFound, BranchNotFound);
    let empty = trees.get_branch(branch(Branch::TreeId(1))).await;
    check("an empty tree", empty, no_branch, "")?;
    let short = trees
        .get_branch(branch(Branch::BranchId(vec![0, 1, 2].into())))
        .await;
    check("a short branch", short, INVALID, "branch_id")?;
    let delete = trees
        .delete_tree(DeleteTreeRequest {
            tree_id: 7,
            definition: true,
        })
        .await;
    let ended = match delete {
        Ok(progress) => progress.into_inner().message().await.map(Response::new),
        Err(status) => Err(status),
    };
    check("delete", ended, NO_TREE, "")?;
    let list = ListTreesRequest {
        page_token: "x".to_owned(),
        ..ListTreesRequest::default()
    };
    check("a token", trees.list_trees(list).await, INVALID, "page_token")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resume_token_that_is_too_old_is_out_of_range_until_resync() -> anyhow::Result<()> {
    let mut tsdb = server().await?;
    let watch = |resume_token: &str| WatchUidsRequest {
        resume_token: resume_token.to_owned(),
        skip_assigned: true,
        ..WatchUidsRequest::default()
    };
    let no_token = tsdb.uids().watch_uids(watch("x")).await;
    check("no token", no_token, INVALID, "resume_token")?;
    let mut first = tsdb.uids().watch_uids(watch("")).await?.into_inner();
    let token = first.message().await?.context("a response")?.resume_token;
    drop(first);
    for (from, to) in [("m", "m2"), ("m2", "m3")] {
        tsdb.uids().rename_uid(renaming(from, to)).await?;
    }
    // The log, which keeps one entry, is trimmed at the start.
    tsdb.terminate().await?;
    tsdb.restart().await?;
    let expired = until("the token has expired", || async {
        call_error(tsdb.uids().watch_uids(watch(&token)).await)
    })
    .await?;
    let result: Result<Response<()>, Status> = Err(expired);
    check("an old token", result, (Code::OutOfRange, ResumeTokenExpired), "")?;
    // A client reads everything again, and watches from now on.
    let mut again = tsdb.uids().watch_uids(watch("")).await?.into_inner();
    again.message().await?.context("a response")?;
    tsdb.uids().rename_uid(renaming("m3", "m4")).await?;
    loop {
        let response = again.message().await?.context("a response")?;
        let event = response.events.into_iter().next().and_then(|event| event.event);
        if let Some(Event::Renamed(renamed)) = event {
            ensure!(renamed.mapping.context("a mapping")?.name == "m4");
            return Ok(());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_rejects_with_opentsdbs_statuses() -> anyhow::Result<()> {
    let tsdb = server().await?;
    let http = tsdb.http();
    let rule = |part: Value| {
        let mut rule = json!({"treeId": 1, "level": 0, "order": 0, "type": "METRIC"});
        if let (Some(rule), Some(part)) = (rule.as_object_mut(), part.as_object()) {
            rule.extend(part.clone());
        }
        rule
    };
    let posts = [
        ("/api/uid/rename", json!({"metric": "m", "name": "n"}), 400, "n"),
        (
            "/api/uid/rename",
            json!({"metric": "m", "name": "a b"}),
            400,
            "a b",
        ),
        (
            "/api/uid/rename",
            json!({"metric": "none", "name": "x"}),
            400,
            "none",
        ),
        (
            "/api/uid/rename",
            json!({"metric": "m"}),
            400,
            "Missing necessary values",
        ),
        (
            "/api/uid/uidmeta",
            json!({"uid": "000009", "type": "metric", "notes": "x"}),
            404,
            "UID",
        ),
        (
            "/api/uid/uidmeta",
            json!({"uid": "zz", "type": "metric", "notes": "x"}),
            400,
            "",
        ),
        ("/api/tree/rule", rule(json!({"regex": "a("})), 400, "regex"),
        (
            "/api/tree/rule",
            rule(json!({"separator": "["})),
            400,
            "separator",
        ),
        ("/api/tree/rule", rule(json!({"treeId": 7})), 404, "tree"),
        ("/api/tree", json!({"treeId": 7, "name": "x"}), 404, "tree"),
        ("/api/tree", json!({"description": "x"}), 400, "name"),
        ("/api/annotation", json!({"description": "x"}), 400, "start"),
    ];
    for (path, body, status, part) in posts {
        let response = http.post(path, &body).await?;
        ensure!(response.status == status, "{path} {body}: {response:?}");
        // OpenTSDB's rename has an envelope of its own.
        let text = match path {
            "/api/uid/rename" if part != "Missing necessary values" => response.body.clone(),
            _ => response.error_message()?,
        };
        ensure!(
            text.to_lowercase().contains(&part.to_lowercase()),
            "{path} {body}: `{part}` is not in `{text}`"
        );
    }
    for (path, status) in [
        ("/api/tree?treeid=7", 404),
        ("/api/tree?treeid=x", 400),
        ("/api/tree/branch?treeid=7", 404),
        ("/api/tree/branch?branch=zz", 400),
        ("/api/tree/rule?treeid=1&level=3&order=0", 404),
        ("/api/tree/collisions?treeid=7", 404),
        ("/api/tree/test?treeid=7&tsuids=000001000001000001", 404),
        ("/api/annotation?start_time=1", 404),
        ("/api/uid/tsmeta?tsuid=000001000001000001", 404),
        ("/api/search/lookup?m=none", 404),
    ] {
        let response = http.get(path).await?;
        ensure!(response.status == status, "{path}: {response:?}");
        response.error_message()?;
    }
    Ok(())
}
