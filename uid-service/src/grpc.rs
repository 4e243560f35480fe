//! The gRPC adapter: decodes requests, calls [`Uids`], encodes responses.

mod admin;
mod change;
mod convert;
mod in_use;
mod meta;
pub(crate) mod reclaim;
mod status;
mod usage;
mod watch;

use std::sync::Arc;
use std::time::SystemTime;

use futures::StreamExt as _;
use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::error::{invalid_field, invalid_field_because};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_proto::uid::v1::uid_service_server::{UidService, UidServiceServer};
use oxtsdb_schema::{Name, NameRules, UidKind};
use oxtsdb_server::Shutdown;
use oxtsdb_uids::assign::Purpose;
use oxtsdb_uids::error::UidServiceError;
use oxtsdb_uids::table::KindName;
use oxtsdb_uids::uids::{Freshness, Uids};
use tonic::{Request, Response, Status};

use self::convert::PageToken;

/// Maximum bytes of a request: 4096 names of nearly 4 KiB each, repairs of long names, and documents.
pub(crate) const MAX_REQUEST_BYTES: usize = 16 << 20;

/// Default count of names on a page of suggestions.
const PAGE_SIZE_DEFAULT: usize = 25;

/// Maximum count of names on a page of suggestions.
const PAGE_SIZE_MAX: usize = 3000;

pub use admin::UidAdminHandler;
pub(crate) use admin::server as admin_server;
pub use meta::UidMetaHandler;
pub(crate) use meta::server as meta_server;

/// `UidService` over [`Uids`]. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct UidServiceHandler {
    uids: Arc<Uids>,
    shutdown: Shutdown,
}

/// The tonic service.
pub fn server(uids: Arc<Uids>, shutdown: Shutdown) -> UidServiceServer<UidServiceHandler> {
    UidServiceServer::new(UidServiceHandler { uids, shutdown }, MAX_REQUEST_BYTES)
}

#[tonic::async_trait]
impl UidService for UidServiceHandler {
    async fn get_or_create_uids(
        &self,
        request: Request<pb::GetOrCreateUidsRequest>,
    ) -> Result<Response<pb::GetOrCreateUidsResponse>, Status> {
        use pb::get_or_create_uids_response::{Result as ItemResult, result::Outcome};

        let request = request.into_inner();
        let purpose = if request.explicit {
            Purpose::Explicit
        } else {
            Purpose::Write
        };
        convert::check_batch("names", request.names.len(), convert::MAX_BATCH)?;
        in_use::note(&self.uids, request.in_use.as_ref()).await?;
        let rules = &self.uids.layout().name_rules;
        let (names, invalid) = partition(&request.names, |index, name| {
            Ok((convert::name(index, name, rules)?, convert::tag_key(name)))
        });
        let (names, tag_keys): (Vec<_>, Vec<_>) = names.into_iter().unzip();
        let assigned = self.uids.get_or_create_for(&names, &tag_keys, purpose).await;
        // When nothing was done, the call may as well be repeated as a whole.
        if !assigned.iter().any(Result::is_ok) {
            fail_if_unavailable(&assigned)?;
        }
        let results = in_order(invalid, assigned, |outcome| match outcome {
            Ok(Ok(assigned)) => ItemResult {
                outcome: Some(Outcome::Uid(convert::uid_bytes(assigned.uid))),
                created: assigned.created,
            },
            Ok(Err(failure)) => ItemResult {
                outcome: Some(Outcome::Error(status::item(&failure))),
                created: false,
            },
            Err(error) => ItemResult {
                outcome: Some(Outcome::Error(error)),
                created: false,
            },
        });
        Ok(Response::new(pb::GetOrCreateUidsResponse { results }))
    }

    async fn lookup_uids(
        &self,
        request: Request<pb::LookupUidsRequest>,
    ) -> Result<Response<pb::LookupUidsResponse>, Status> {
        use pb::lookup_uids_response::{Result as ItemResult, result::Outcome};

        let request = request.into_inner();
        let (names, invalid) = self.names(&request.names, convert::any_stored())?;
        in_use::check_table(&self.uids, request.table_id).await?;
        let outcomes = self
            .uids
            .lookup_uids(&names, freshness(request.bypass_cache))
            .await;
        fail_if_unavailable(&outcomes)?;
        let results = in_order(invalid, outcomes, |outcome| ItemResult {
            outcome: Some(match outcome {
                Ok(Ok(uid)) => Outcome::Uid(convert::uid_bytes(uid)),
                Ok(Err(failure)) => Outcome::Error(status::item(&failure)),
                Err(error) => Outcome::Error(error),
            }),
        });
        Ok(Response::new(pb::LookupUidsResponse { results }))
    }

    async fn lookup_names(
        &self,
        request: Request<pb::LookupNamesRequest>,
    ) -> Result<Response<pb::LookupNamesResponse>, Status> {
        use pb::lookup_names_response::{Result as ItemResult, result::Outcome};

        let request = request.into_inner();
        convert::check_batch("uids", request.uids.len(), convert::MAX_BATCH)?;
        in_use::check_table(&self.uids, request.table_id).await?;
        let width = |kind| self.uids.layout().width(kind);
        let (uids, invalid) = partition(&request.uids, |index, uid| convert::uid(index, uid, width));
        let outcomes = self
            .uids
            .lookup_names(&uids, freshness(request.bypass_cache))
            .await;
        fail_if_unavailable(&outcomes)?;
        let results = in_order(invalid, outcomes, |outcome| ItemResult {
            outcome: Some(match outcome {
                Ok(Ok(name)) => Outcome::Name(name.to_text()),
                Ok(Err(failure)) => Outcome::Error(status::item(&failure)),
                Err(error) => Outcome::Error(error),
            }),
        });
        Ok(Response::new(pb::LookupNamesResponse { results }))
    }

    async fn suggest_names(
        &self,
        request: Request<pb::SuggestNamesRequest>,
    ) -> Result<Response<pb::SuggestNamesResponse>, Status> {
        let request = request.into_inner();
        let kind = convert::kind_of("kind", request.kind)?;
        let size = match usize::try_from(request.page_size) {
            Ok(0) => PAGE_SIZE_DEFAULT,
            Ok(size) => size.min(PAGE_SIZE_MAX),
            Err(_) => {
                return Err(invalid_field(
                    "page_size",
                    format!("is {}, at least 0 is expected", request.page_size),
                ));
            }
        };
        let Some(prefix) = convert::latin1(&request.prefix) else {
            // No stored name has such a character.
            return Ok(Response::new(pb::SuggestNamesResponse::default()));
        };
        let after = match request.page_token.as_str() {
            "" => None,
            text => match PageToken::decode(text) {
                Some(token) if token.kind == kind && token.last.starts_with(&prefix) => Some(token.last),
                _ => {
                    let rule = "is not from the page before, with the same kind and prefix";
                    return Err(invalid_field("page_token", rule));
                }
            },
        };
        let page = self
            .uids
            .suggest(kind, &prefix, after.as_deref(), size)
            .await
            .map_err(|e| status::status(&e))?;
        let last = page.mappings.last().filter(|_| page.more);
        let token = last.map(|last| {
            PageToken {
                kind,
                last: last.name.as_bytes().to_vec(),
            }
            .encode()
        });
        Ok(Response::new(pb::SuggestNamesResponse {
            mappings: page.mappings.iter().map(convert::mapping).collect(),
            next_page_token: token.unwrap_or_default(),
        }))
    }

    async fn export_uids(
        &self,
        request: Request<pb::ExportUidsRequest>,
    ) -> Result<Response<MessageStream<pb::ExportUidsResponse>>, Status> {
        let request = request.into_inner();
        let mut kinds = convert::kinds("kinds", &request.kinds)?;
        let after = match &request.start_after {
            Some(name) => Some(export_start(name)?),
            None => None,
        };
        let after = after.and_then(|(kind, name)| {
            kinds.retain(|other| *other >= kind);
            (kinds.first() == Some(&kind)).then_some(name)
        });
        let batches = self.uids.export(kinds, after).map(|batch| match batch {
            Ok(mappings) => Ok(pb::ExportUidsResponse {
                mappings: mappings.iter().map(convert::mapping).collect(),
            }),
            Err(failure) => Err(status::status(&failure)),
        });
        Ok(Response::new(batches.boxed()))
    }

    async fn rename_uid(
        &self,
        request: Request<pb::RenameUidRequest>,
    ) -> Result<Response<pb::RenameUidResponse>, Status> {
        change::rename(&self.uids, request.into_inner()).await
    }

    async fn delete_uid(
        &self,
        request: Request<pb::DeleteUidRequest>,
    ) -> Result<Response<pb::DeleteUidResponse>, Status> {
        change::delete(&self.uids, request.into_inner()).await
    }

    async fn watch_uids(
        &self,
        request: Request<pb::WatchUidsRequest>,
    ) -> Result<Response<MessageStream<pb::WatchUidsResponse>>, Status> {
        let shutdown = Shutdown::from_extensions(request.extensions(), &self.shutdown);
        let updates = watch::watch(&self.uids, request.into_inner(), shutdown).await?;
        Ok(Response::new(updates))
    }

    async fn drop_uid_caches(
        &self,
        _request: Request<pb::DropUidCachesRequest>,
    ) -> Result<Response<pb::DropUidCachesResponse>, Status> {
        let dropped = self.uids.drop_caches();
        Ok(Response::new(pb::DropUidCachesResponse { dropped }))
    }

    async fn get_uid_layout(
        &self,
        _request: Request<pb::GetUidLayoutRequest>,
    ) -> Result<Response<pb::GetUidLayoutResponse>, Status> {
        let layout = self.uids.layout();
        let table_id = self.uids.table_id().await;
        let table_id = table_id.map_err(|error| status::status(&error))?;
        let kinds = UidKind::ALL.map(|kind| {
            let of_kind = layout.kinds.get(kind);
            pb::get_uid_layout_response::KindLayout {
                kind: convert::kind_number(kind),
                width: i32::try_from(of_kind.width.bytes()).unwrap_or(i32::MAX),
                random: of_kind.random,
                auto_create: of_kind.auto_create,
            }
        });
        Ok(Response::new(pb::GetUidLayoutResponse {
            kinds: kinds.into(),
            extra_name_characters: layout.name_rules.extra_characters.clone(),
            max_name_length: i32::try_from(layout.name_rules.max_length).unwrap_or(i32::MAX),
            table_id,
        }))
    }

    async fn report_uids_in_use(
        &self,
        request: Request<pb::ReportUidsInUseRequest>,
    ) -> Result<Response<pb::ReportUidsInUseResponse>, Status> {
        in_use::report(&self.uids, request.into_inner()).await
    }

    async fn get_uid_usage(
        &self,
        _request: Request<pb::GetUidUsageRequest>,
    ) -> Result<Response<pb::GetUidUsageResponse>, Status> {
        let usages = self
            .uids
            .usage(SystemTime::now())
            .await
            .map_err(|failure| status::status(&failure))?;
        let quotas = self.uids.quotas().await;
        let quotas = quotas.map_err(|failure| status::status(&failure))?;
        Ok(Response::new(pb::GetUidUsageResponse {
            kinds: usages
                .iter()
                .map(|usage| usage::kind(&self.uids, usage, &quotas))
                .collect(),
            quotas: quotas.iter().map(usage::quota).collect(),
        }))
    }
}

/// The valid items of a request, and for each item its error if it is invalid.
type Partition<T> = (Vec<T>, Vec<Option<ItemError>>);

impl UidServiceHandler {
    fn names(&self, names: &[pb::UidName], rules: &NameRules) -> Result<Partition<KindName>, Status> {
        convert::check_batch("names", names.len(), convert::MAX_BATCH)?;
        Ok(partition(names, |index, name| convert::name(index, name, rules)))
    }
}

fn partition<M, T>(items: &[M], convert: impl Fn(usize, &M) -> Result<T, Box<ItemError>>) -> Partition<T> {
    let mut good = Vec::with_capacity(items.len());
    let invalid = items
        .iter()
        .enumerate()
        .map(|(index, item)| match convert(index, item) {
            Ok(item) => {
                good.push(item);
                None
            }
            Err(error) => Some(*error),
        })
        .collect();
    (good, invalid)
}

/// Merges the outcomes of the valid items with the errors of the others, in the order of the request.
fn in_order<T, A>(
    invalid: Vec<Option<ItemError>>,
    outcomes: Vec<T>,
    convert: impl Fn(Result<T, ItemError>) -> A,
) -> Vec<A> {
    let mut outcomes = outcomes.into_iter();
    invalid
        .into_iter()
        .filter_map(|error| error.map(Err).or_else(|| outcomes.next().map(Ok)))
        .map(convert)
        .collect()
}

/// Fails the whole call if the store is unavailable: the client can retry all of it.
fn fail_if_unavailable<T>(outcomes: &[Result<T, UidServiceError>]) -> Result<(), Status> {
    let mut failures = outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
    failures
        .find(|failure| status::is_unavailable(failure))
        .map_or(Ok(()), |failure| Err(status::status(failure)))
}

fn freshness(bypass_cache: bool) -> Freshness {
    if bypass_cache {
        Freshness::Store
    } else {
        Freshness::Cached
    }
}

fn export_start(start: &pb::UidName) -> Result<(UidKind, Name), Status> {
    let kind = convert::kind_of("start_after.kind", start.kind)?;
    let name = Name::parse(&start.name, convert::any_stored()).map_err(|error| {
        invalid_field_because("start_after.name", ErrorReason::InvalidName, error.to_string())
    })?;
    Ok((kind, name))
}
