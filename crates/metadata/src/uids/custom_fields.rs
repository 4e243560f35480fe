//! Custom fields of the metadata of UIDs, for trees. They are not cached.

use std::collections::BTreeMap;
use std::time::Instant;

use async_trait::async_trait;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_schema::{Uid, UidKind};

use super::requests::with_deadline;
use super::{Uids, UidsError};
use crate::tree::CustomFields;

#[async_trait]
impl CustomFields for Uids {
    async fn custom_fields(
        &self,
        kind: UidKind,
        uids: &[Uid],
        deadline: Option<Instant>,
    ) -> Result<Vec<Option<BTreeMap<String, String>>>, UidsError> {
        let requested: Vec<(UidKind, Uid)> = uids.iter().map(|uid| (kind, *uid)).collect();
        let client = with_deadline(&self.0.client, deadline);
        let metas = client
            .get_uid_metas(&requested)
            .await
            .map_err(UidsError::from_client)?;
        let mut fields = Vec::with_capacity(uids.len());
        for (uid, meta) in uids.iter().zip(metas) {
            let meta = match meta {
                Ok(meta) => Some(meta),
                // The documents before it fill the response.
                Err(rejection) if rejection.reason == Some(ErrorReason::MessageTooLarge) => {
                    let meta = client.get_uid_meta(kind, *uid).await;
                    Some(meta.map_err(UidsError::from_client)?)
                }
                Err(rejection) if rejection.reason == Some(ErrorReason::UidNotFound) => None,
                Err(rejection) => return Err(UidsError::from_item(kind, &uid.to_string(), rejection)),
            };
            let custom = meta.and_then(|meta| meta.custom);
            fields.push(custom.map(|custom| {
                let values = custom.into_iter();
                values.filter_map(|(name, value)| Some((name, value?))).collect()
            }));
        }
        Ok(fields)
    }
}
