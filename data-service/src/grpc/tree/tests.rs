use futures::TryStreamExt as _;
use oxtsdb_proto::common::v1::series_key::Key;
use oxtsdb_proto::common::v1::{ErrorReason, SeriesKey, SeriesName, Tag};
use oxtsdb_proto::data::v1::get_branch_request::Branch;
use oxtsdb_proto::data::v1::test_tree_response::result::Outcome;
use oxtsdb_proto::data::v1::tree_service_server::TreeService as _;
use oxtsdb_proto::data::v1::{
    CreateTreeRequest, DeleteTreeRequest, GetBranchRequest, GetBranchResponse, ListTreeProblemsRequest,
    ListTreesRequest, SetTreeRulesRequest, SyncTreesRequest, TestTreeRequest, Tree, TreeProblem, TreeRule,
    TreeRuleType, UpdateTreeRequest,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_schema::UidKind;
use oxtsdb_test_stack::TestStack;
use prost_types::FieldMask;
use tonic::{Code, Request, Status};

use super::TreeServiceHandler;

struct Fixture {
    stack: TestStack,
    handler: TreeServiceHandler,
}

impl Fixture {
    async fn start() -> Self {
        let stack = TestStack::start().await;
        let handler = TreeServiceHandler::new(stack.service.trees.clone(), stack.service.engine.clone());
        Self { stack, handler }
    }

    async fn create(&self, rules: Vec<TreeRule>) -> Result<Tree, Status> {
        let tree = Tree {
            name: "t".into(),
            enabled: true,
            strict_match: true,
            store_failures: true,
            rules,
            ..Tree::default()
        };
        let request = Request::new(CreateTreeRequest { tree: Some(tree) });
        Ok(self
            .handler
            .create_tree(request)
            .await?
            .into_inner()
            .tree
            .unwrap())
    }

    /// Makes a series known.
    async fn write(&self, host: &str, dc: &str) {
        let names = [
            (UidKind::Metric, "sys.cpu"),
            (UidKind::Tagk, "host"),
            (UidKind::Tagv, host),
            (UidKind::Tagk, "dc"),
            (UidKind::Tagv, dc),
        ];
        let uids = self
            .stack
            .service
            .uids
            .assign_for(&names, |_| None, None)
            .await
            .unwrap();
        let uid = |index: usize| *uids[index].as_ref().unwrap();
        let mut tags = [(uid(1).into(), uid(2).into()), (uid(3).into(), uid(4).into())];
        let tsuid = oxtsdb_schema::Tsuid::new(uid(0).into(), &mut tags).unwrap();
        let table = self.stack.service.writer.meta_table();
        table.put_counters(&[tsuid.as_bytes().to_vec()]).await.unwrap();
    }

    async fn sync(&self) -> oxtsdb_proto::data::v1::SyncTreesResponse {
        let request = SyncTreesRequest {
            all_series: true,
            ..SyncTreesRequest::default()
        };
        let stream = self
            .handler
            .sync_trees(Request::new(request))
            .await
            .unwrap()
            .into_inner();
        stream.try_collect::<Vec<_>>().await.unwrap().pop().unwrap()
    }

    async fn branch(&self, branch: Branch) -> Result<Vec<GetBranchResponse>, Status> {
        let request = GetBranchRequest { branch: Some(branch) };
        let stream = self.handler.get_branch(Request::new(request)).await?.into_inner();
        stream.try_collect().await
    }
}

fn rule(level: u32, rule_type: TreeRuleType, field: &str) -> TreeRule {
    let mut rule = TreeRule {
        level,
        field: field.into(),
        ..TreeRule::default()
    };
    rule.set_type(rule_type);
    rule
}

fn rules() -> Vec<TreeRule> {
    vec![
        rule(0, TreeRuleType::TagKey, "dc"),
        rule(1, TreeRuleType::Metric, ""),
    ]
}

fn is(status: &Status, code: Code, reason: ErrorReason) -> bool {
    status.code() == code && reason_of(status) == Some(reason)
}

#[tokio::test]
async fn a_tree_is_filled_walked_and_deleted() {
    let fixture = Fixture::start().await;
    let tree = fixture.create(rules()).await.unwrap();
    assert_eq!((tree.tree_id, tree.rules.len()), (1, 2));
    assert!(tree.create_time.is_some() && !tree.etag.is_empty());
    for (host, dc) in [("a", "lax"), ("b", "lax"), ("a", "ams")] {
        fixture.write(host, dc).await;
    }
    let synced = fixture.sync().await;
    assert_eq!(
        (synced.series, synced.placed, synced.collisions, synced.done),
        (3, 2, 1, true)
    );
    let root = fixture.branch(Branch::TreeId(1)).await.unwrap();
    assert_eq!(root[0].branch.as_ref().unwrap().path, ["ROOT"]);
    let children: Vec<_> = root.iter().flat_map(|part| &part.children).collect();
    assert_eq!(
        children
            .iter()
            .map(|child| &*child.display_name)
            .collect::<Vec<_>>(),
        ["ams", "lax"]
    );
    let lax = fixture
        .branch(Branch::BranchId(children[1].branch_id.clone()))
        .await
        .unwrap();
    let leaf = lax.iter().flat_map(|part| &part.leaves).next().unwrap();
    let name = leaf.name.clone().unwrap();
    assert_eq!(
        (&*leaf.display_name, &*name.metric, name.tags.len()),
        ("sys.cpu", "sys.cpu", 2)
    );
    let problems = ListTreeProblemsRequest {
        tree_id: 1,
        problem: TreeProblem::Collision.into(),
        tsuids: Vec::new(),
    };
    let problems = fixture
        .handler
        .list_tree_problems(Request::new(problems))
        .await
        .unwrap()
        .into_inner();
    let problems: Vec<_> = problems.try_collect().await.unwrap();
    assert_eq!(problems[0].entries[0].other_tsuid, leaf.tsuid);
    let delete = DeleteTreeRequest {
        tree_id: 1,
        definition: true,
    };
    let deleted = fixture
        .handler
        .delete_tree(Request::new(delete))
        .await
        .unwrap()
        .into_inner();
    let deleted: Vec<_> = deleted.try_collect().await.unwrap();
    let last = deleted.last().unwrap();
    assert_eq!(
        (last.branches, last.leaves, last.problems, last.done),
        (3, 2, 1, true)
    );
    let gone = fixture.branch(Branch::TreeId(1)).await.unwrap_err();
    assert!(is(&gone, Code::NotFound, ErrorReason::BranchNotFound), "{gone:?}");
}

#[tokio::test]
async fn a_test_shows_places_and_reasons() {
    let fixture = Fixture::start().await;
    fixture.create(rules()).await.unwrap();
    fixture.write("a", "lax").await;
    let name = |tags: &[(&str, &str)]| SeriesKey {
        key: Some(Key::Name(SeriesName {
            metric: "sys.cpu".into(),
            tags: tags
                .iter()
                .map(|(key, value)| Tag {
                    key: (*key).into(),
                    value: (*value).into(),
                })
                .collect(),
        })),
    };
    let tsuid = |bytes: &'static [u8]| SeriesKey {
        key: Some(Key::Tsuid(bytes.into())),
    };
    let series = vec![
        name(&[("host", "a"), ("dc", "lax")]),
        name(&[("host", "a")]),
        name(&[("host", "unknown")]),
        tsuid(&[0, 0, 1]),
        tsuid(&[0, 0, 9, 0, 0, 1, 0, 0, 1]),
    ];
    let request = TestTreeRequest { tree_id: 1, series };
    let results = fixture
        .handler
        .test_tree(Request::new(request))
        .await
        .unwrap()
        .into_inner()
        .results;
    let Some(Outcome::Place(place)) = &results[0].outcome else {
        panic!("{:?}", results[0]);
    };
    assert_eq!(
        (&*place.branches, &*place.leaf),
        (&["lax".to_owned()][..], "sys.cpu")
    );
    assert_eq!(hex::encode(&place.branch_id), "00010001a1a3");
    assert_eq!(results[0].messages[0], "Processing rule: [1:0:0:TAGK]");
    assert!(matches!(&results[1].outcome, Some(Outcome::NoPlace(reason)) if reason.contains("[1:0:0:TAGK]")));
    let reason = |index: usize| match &results[index].outcome {
        Some(Outcome::Error(error)) => error.reason(),
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(2), ErrorReason::NameNotFound);
    assert_eq!(reason(3), ErrorReason::InvalidUidWidth);
    assert_eq!(reason(4), ErrorReason::UidNotFound);
    let cells = fixture.stack.cells("tsdb-tree").await;
    assert_eq!(cells.len(), 3, "the definition and two rules");
}

#[tokio::test]
async fn errors_name_the_rule_its_part_and_the_position() {
    let fixture = Fixture::start().await;
    let mut bad = rule(4, TreeRuleType::Metric, "");
    (bad.order, bad.regex) = (2, "web[".into());
    let error = fixture
        .create(vec![rule(0, TreeRuleType::Metric, ""), bad.clone()])
        .await
        .unwrap_err();
    assert!(
        is(&error, Code::InvalidArgument, ErrorReason::InvalidRule),
        "{error:?}"
    );
    let info = tonic_types::StatusExt::get_details_error_info(&error).unwrap();
    let metadata = |key: &str| info.metadata.get(key).map(String::as_str);
    assert_eq!((metadata("level"), metadata("order")), (Some("4"), Some("2")));
    assert_eq!(
        (metadata("part"), metadata("position")),
        (Some("regex"), Some("3"))
    );
    assert_eq!(metadata("field"), Some("tree.rules[1].regex"));
    fixture.create(Vec::new()).await.unwrap();
    bad.regex = "(a)".into();
    bad.regex_group_index = 1;
    let request = SetTreeRulesRequest {
        tree_id: 1,
        rules: vec![bad],
        replace_all: false,
    };
    let error = fixture
        .handler
        .set_tree_rules(Request::new(request))
        .await
        .unwrap_err();
    assert!(
        error.message().contains("rules[0].regex_group_index"),
        "{error:?}"
    );
    let unspecified = SetTreeRulesRequest {
        tree_id: 1,
        rules: vec![TreeRule::default()],
        replace_all: false,
    };
    let error = fixture
        .handler
        .set_tree_rules(Request::new(unspecified))
        .await
        .unwrap_err();
    assert!(error.message().starts_with("rules[0].type: "), "{error:?}");
}

#[tokio::test]
async fn updates_follow_mask_and_etag() {
    let fixture = Fixture::start().await;
    let tree = fixture.create(Vec::new()).await.unwrap();
    let update = async |change: Tree, paths: &[&str]| {
        let request = UpdateTreeRequest {
            tree: Some(change),
            update_mask: (!paths.is_empty()).then(|| FieldMask {
                paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            }),
        };
        let updated = fixture.handler.update_tree(Request::new(request)).await?;
        Ok::<_, Status>(updated.into_inner().tree.unwrap())
    };
    let change = Tree {
        tree_id: 1,
        notes: "n".into(),
        etag: tree.etag.clone(),
        ..Tree::default()
    };
    let updated = update(change.clone(), &[]).await.unwrap();
    assert_eq!(
        (&*updated.notes, &*updated.name, updated.enabled),
        ("n", "t", true)
    );
    let error = update(change, &[]).await.unwrap_err();
    assert!(is(&error, Code::Aborted, ErrorReason::EtagMismatch), "{error:?}");
    let off = Tree {
        tree_id: 1,
        ..Tree::default()
    };
    let updated = update(off.clone(), &["enabled", "notes"]).await.unwrap();
    assert_eq!(
        (&*updated.notes, updated.enabled, updated.strict_match),
        ("", false, true)
    );
    let error = update(off.clone(), &["rules"]).await.unwrap_err();
    assert!(
        is(&error, Code::InvalidArgument, ErrorReason::InvalidField),
        "{error:?}"
    );
    let error = update(off, &["*"]).await.unwrap_err();
    assert!(error.message().starts_with("tree.name: is empty"), "{error:?}");
}

#[tokio::test]
async fn trees_are_listed_by_pages() {
    let fixture = Fixture::start().await;
    for _ in 0..5 {
        fixture.create(Vec::new()).await.unwrap();
    }
    let (mut token, mut ids) = (String::new(), Vec::new());
    loop {
        let request = ListTreesRequest {
            page_size: 2,
            page_token: token,
        };
        let page = fixture
            .handler
            .list_trees(Request::new(request))
            .await
            .unwrap()
            .into_inner();
        assert!(page.trees.len() <= 2);
        ids.extend(page.trees.iter().map(|tree| tree.tree_id));
        token = page.next_page_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    let request = ListTreesRequest {
        page_size: 2,
        page_token: "x".into(),
    };
    let error = fixture
        .handler
        .list_trees(Request::new(request))
        .await
        .unwrap_err();
    assert!(is(&error, Code::InvalidArgument, ErrorReason::InvalidField));
}
